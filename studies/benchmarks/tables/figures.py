"""Figures of docs/reproduction.md, drawn from result files; each ends with a digest of the numbers it shows.

So whether a figure is up to date can be checked without drawing it, whatever the version that draws.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from matplotlib.figure import Figure

from wishflow.files.writing import write_bytes_atomic

from ... import paths, report
from ...beijing import figures as series_figures
from ...beijing import results as beijing
from ...uci import figures
from ...uci.results import split_scores
from .reproduction import uci_results

FOLDER = paths.ROOT / "docs" / "figures"
# As wide as a page of text.
N_COLUMNS = 2
SERIES = {
    "traces": series_figures.trace_figure,
    "joint": series_figures.joint_figure,
    "hours": series_figures.hour_figure,
}
# What each figure of the series reads of a result.
SHOWN = {
    "traces": ("traces", ("mean", "standard_error", "mixture")),
    "joint": ("joint", ("hours",)),
    "hours": ("scores", ("by_hour",)),
}


def names() -> list[str]:
    return [f"uci_{score}.svg" for score in figures.SCORES] + [f"beijing_{name}.svg" for name in SERIES]


def digest(name: str) -> str:
    """A short digest of the numbers that a figure shows."""
    return hashlib.sha256(json.dumps(shown(name), sort_keys=True).encode()).hexdigest()[:16]


def shown(name: str) -> dict[str, Any]:
    """The numbers of a figure, by cell."""
    suite, _, subject = name.removesuffix(".svg").partition("_")
    if suite == "uci":
        return {" ".join(key): split_scores(result, subject).tolist() for key, result in uci_results().items()}
    cell, keys = SHOWN[subject]
    found = beijing.read_results(paths.RESULTS / "beijing")
    return {model: [result[key] for key in keys] for (kind, model), result in found.items() if kind == cell}


def stale() -> list[str]:
    """Figures that are not there or do not show what the result files say."""
    return [name for name in names() if not _text(name).endswith(_mark(name))]


def _text(name: str) -> str:
    path = FOLDER / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _mark(name: str) -> str:
    return f"<!-- results {digest(name)} -->\n"


def draw(wanted: Iterable[str]) -> None:
    """Draw figures anew."""
    for name in wanted:
        write_bytes_atomic(FOLDER / name, report.svg(figure_of(name)) + _mark(name).encode())


def figure_of(name: str) -> Figure:
    suite, _, subject = name.removesuffix(".svg").partition("_")
    if suite == "uci":
        return figures.violin_figure(uci_results(), subject, N_COLUMNS)
    return SERIES[subject](beijing.read_results(paths.RESULTS / "beijing"))
