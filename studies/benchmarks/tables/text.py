"""What the tables have in common: result files, grids, and where numbers come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wishflow.files.json import read_json

from ... import paths
from ...provenance import present_command

NOT_MEASURED = "Not measured yet."


def result(name: str) -> dict[str, Any] | None:
    """The content of a result file; None where there is none."""
    return read_json(paths.RESULTS / name)


def grid(corner: str, rows: dict[str, dict[str, str]]) -> str:
    """A table with the names of rows and columns; all rows have the same columns."""
    columns = list(next(iter(rows.values())))
    lines = [f"| {corner} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(cells[column] for column in columns) + " |" for name, cells in rows.items()]
    return "\n".join(lines)


def source_of(cells: Iterable[dict[str, Any]], command: str) -> str:
    """That of several results: all their commits, device and version of the first."""
    found = [cell["provenance"] for cell in cells]
    commits = sorted({p["commit"].split("-")[0][:12] for p in found})
    first = source_text({**found[0], "command": command})
    return first.replace(found[0]["commit"][:12], ", ".join(commits))


def source_text(p: dict[str, Any]) -> str:
    """Command, commit, device and version of a result."""
    commit, *is_changed = p["commit"].split("-")
    changed = ", with changes" if is_changed else ""
    return (
        f"`{present_command(p['command'])}`, commit {commit[:12]}{changed}, {p['device']}, jax {p['versions']['jax']}"
    )
