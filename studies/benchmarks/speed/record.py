"""The result file: the newest rows of each work, and the runs that they come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .works import WORKS

Record = dict[str, Any]


def one_run(rows: list[dict], measurements: list[dict], limits: dict[str, dict], provenance: dict) -> Record:
    """The record of a single run."""
    run = {"works": _works(rows), "limits_gflops": limits, "provenance": provenance}
    return {"runs": [run], "rows": rows, "measurements": measurements}


def merged(before: Record | None, new: Record) -> Record:
    """The record after a run: all rows of its works are replaced, other works stay, with the runs that made them."""
    if before is None:
        return new
    replaced = set(_works(new["rows"]))
    runs = [{**run, "works": [work for work in run["works"] if work not in replaced]} for run in before["runs"]]
    return {
        "runs": [*(run for run in runs if run["works"]), *new["runs"]],
        **{part: _in_order(_others(before[part], replaced), new[part]) for part in ("rows", "measurements")},
    }


def _works(rows: list[dict]) -> list[str]:
    return list(dict.fromkeys(row["work"] for row in rows))


def _others(rows: Iterable[dict], replaced: set[str]) -> list[dict]:
    return [row for row in rows if row["work"] not in replaced]


def _in_order(*parts: list[dict]) -> list[dict]:
    """By work, as `WORKS` has them; within a work as they were."""
    order = {work.name: i for i, work in enumerate(WORKS)}
    return sorted((row for part in parts for row in part), key=lambda row: order[row["work"]])
