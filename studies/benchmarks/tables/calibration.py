"""Defaults on problems that no setting was chosen for."""

from __future__ import annotations

import numpy as np

from ..calibration import ESTIMATORS, NAMES, verdict
from ..calibration_problems import PROBLEMS
from .text import NOT_MEASURED, grid, result, source_text


def calibration_table() -> str:
    """Log densities beside the truth, and coverage of the default flow."""
    results = result("calibration.json")
    if results is None:
        return NOT_MEASURED
    rows = {name: _row(name, results[name]) for name in NAMES if name in results}
    n_seeds = max(len(found["truth"]) for found in results.values())
    # One command, split by problems.
    first = next(iter(results.values()))["provenance"]
    source = source_text({**first, "command": "python -m studies.benchmarks.calibration"})
    return f"{grid('problem', rows)}\n\nMeans of {n_seeds} draws. Source: {source}."


def member_table() -> str:
    """Default estimators and members on test parts of the UCI data sets, as far as they were measured."""
    found = {key: cell for key, cell in (result("uci_members.json") or {}).items() if cell["scored"] == "test"}
    if not found:
        return NOT_MEASURED
    columns = {"log density": "log_density", "RMSE": "rmse", "inside 80 %": "coverage_80", "inside 95 %": "coverage_95"}
    rows = {
        key: {title: f"{cell['mean'][name]:.3f}" for title, name in columns.items()}
        | {"splits": str(len(cell["splits"])), "seconds": f"{cell['seconds']:.0f}"}
        for key, cell in found.items()
    }
    source = source_text(next(iter(found.values()))["provenance"])
    return f"{grid('data, model', rows)}\n\nSource: {source}."


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
        "inside 80 %": f"{means['coverage_0.8']:.1%}",
        "inside 95 %": f"{means['coverage_0.95']:.1%}",
    }
