"""Tables from the logs of searches for settings: what levers gained, and what forms of q lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ... import paths
from . import levers
from .text import NOT_MEASURED, grid

CHEAPER_FORMS = ("structured", "rotated")


def tried(kind: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """File, job and result of every line of a search, in the order of the files' numbers."""
    for path in sorted((paths.RESULTS / "tuning").glob(f"{kind}-*.jsonl"), key=_number):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            yield path.stem, line["job"], line


def _number(path: Path) -> int:
    """The number of a file of a search."""
    return int(path.stem.partition("-")[2])


def lever_table() -> str:
    """What each lever gained on validation parts."""
    return levers.lever_table(list(tried("uci")))


def structured_table() -> str:
    """What one factor or one rotation for all outputs of q loses, against a factor for each: the objective of the
    training rows, per row, from pairs of one file.
    """
    found: dict[tuple[str, str], dict[str, dict]] = {}
    for file, job, line in tried("uci"):
        diffusion = job.get("options", {}).get("diffusion")
        form = diffusion.get("posterior") if isinstance(diffusion, dict) else None
        if "n_train" in line and form in (*CHEAPER_FORMS, "full"):
            found.setdefault((job["data"], file), {})[form] = line
    rows: dict[str, dict[str, str]] = {}
    for (data, file), lines in found.items():
        for form in CHEAPER_FORMS:
            if {form, "full"} <= set(lines):
                rows[f"{data}, {form} q ({file})"] = _pair(lines[form], lines["full"])
    return grid("data", dict(sorted(rows.items()))) if rows else NOT_MEASURED


def _pair(cheaper: dict[str, Any], full: dict[str, Any]) -> dict[str, str]:
    objectives = [_objective(line) / line["n_train"] for line in (cheaper, full)]
    scores = [line["mean"]["log_density_of_more_paths"] for line in (cheaper, full)]
    return {
        "objective per row": f"{objectives[0]:.4f}",
        "objective per row, full q": f"{objectives[1]:.4f}",
        "loss": f"{objectives[1] - objectives[0]:+.4f}",
        "held-out log density": f"{scores[0]:.3f}",
        "held-out log density, full q": f"{scores[1]:.3f}",
        "splits": str(cheaper["job"]["splits"]),
    }


def _objective(line: dict[str, Any]) -> float:
    """The objective at the end of training, which results of before 0.2 call "bound"."""
    return line["mean"].get("objective", line["mean"].get("bound"))
