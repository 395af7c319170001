"""Defaults on problems that no setting was chosen for."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...uci.suite import DATA
from ..calibration import ESTIMATORS, NAMES, verdict
from ..calibration_problems import PROBLEMS
from .text import NOT_MEASURED, grid, result, source_of

UCI_MODELS = ("SGP", "diffWGP", "members")
OTHER_FLOWS = ("No noise", "diffGP")
UCI_SCORES = {
    "log density": "log_density",
    "RMSE": "rmse",
    "80 % coverage": "coverage_80",
    "95 % coverage": "coverage_95",
}


def calibration_table() -> str:
    """Log densities beside the truth, and coverage of the default flow."""
    results = result("calibration.json")
    if results is None:
        return NOT_MEASURED
    rows = {name: _row(name, results[name]) for name in NAMES if name in results}
    n_seeds = max(len(found["truth"]) for found in results.values())
    # One command, split by problems.
    source = source_of(results.values(), "python -m studies.benchmarks.calibration")
    return f"{grid('problem', rows)}\n\nMeans over {n_seeds} draws. Source: {source}."


def member_table() -> str:
    """Default estimators and members on test parts of the UCI data sets, as far as they were measured."""
    return _test_table(UCI_MODELS)


def flow_table() -> str:
    """The other flows with defaults, on the same test parts."""
    return _test_table(OTHER_FLOWS)


def _test_table(models: Sequence[str]) -> str:
    found = _cells("test", models)
    if not found:
        return NOT_MEASURED
    rows = {
        data: {
            **{title: _numbers(cells[m]["mean"][name] for m in models) for title, name in UCI_SCORES.items()},
            "splits": " / ".join(str(len(cells[m]["splits"])) for m in models),
        }
        for data, cells in found.items()
    }
    return f"{grid('data', rows)}\n\n{' / '.join(models)}. {_source(found, models)}"


def drift_table() -> str:
    """A drift with a posterior beside the point estimate, on the validation splits that both have."""
    models = ("diffWGP", "drift_posterior")
    found = _cells("validation", models)
    if not found:
        return NOT_MEASURED
    rows = {}
    for data, cells in found.items():
        n = min(len(cells[model]["splits"]) for model in models)
        splits = [cells[model]["splits"][:n] for model in models]
        rows[data] = {
            **{
                title: _numbers(np.mean([row[name] for row in part]) for part in splits)
                for title, name in UCI_SCORES.items()
            },
            "splits": str(n),
        }
    return f"{grid('data', rows)}\n\nPoint estimate / posterior. {_source(found, models, ' --validation')}"


def _numbers(values: Iterable[float]) -> str:
    """Three digits after the point, more where a number is small."""
    return " / ".join(f"{value:.3f}" if abs(value) > 0.1 else f"{value:.2g}" for value in values)


def _cells(scored: str, models: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Cells of data sets that all of the models have."""
    cells = [cell for cell in (result("uci_members.json") or {}).values() if cell["scored"] == scored]
    by_data = {data: {cell["model"]: cell for cell in cells if cell["data"] == data} for data in DATA}
    return {data: found for data, found in by_data.items() if all(model in found for model in models)}


def _source(found: dict[str, dict[str, Any]], models: Sequence[str], flag: str = "") -> str:
    command = f"python -m studies.benchmarks.uci_members --models {shlex.quote(','.join(models))}{flag}"
    return f"Source: {source_of((cells[m] for cells in found.values() for m in models), command)}."


def _row(name: str, found: dict) -> dict[str, str]:
    means = verdict(name, found)
    truth = found["truth"][0]
    inputs = PROBLEMS[name].inputs(np.random.default_rng(0), 2).shape[1] if name in PROBLEMS else 10
    closed = means["gap_closed"]
    return {
        "rows × inputs": f"{PROBLEMS[name].n_rows if name in PROBLEMS else 353} × {inputs}",
        "truth": "–" if truth is None or not np.isfinite(truth) else f"{np.mean(found['truth']):.3f}",
        **{f"{label}": f"{np.mean(found[label]['log_density']):.3f}" for label in ESTIMATORS},
        "gap closed": "–" if not np.isfinite(closed) else f"{closed:.0%}",
        "80 % coverage": f"{means['coverage_0.8']:.1%}",
        "95 % coverage": f"{means['coverage_0.95']:.1%}",
    }
