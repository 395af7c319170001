"""Parts of a page about backtests: calibration and scores by horizon, models side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from .numbers import few_digits

SCORES = {
    "crps": "CRPS (lower is better)",
    "energy": "energy score (lower is better)",
    "variogram": "variogram score (lower is better)",
    "log_density": "log density (higher is better)",
    "log_density_moments": "log density of a Gaussian with the draws' moments (higher is better)",
}


def by_horizon(scores: dict[str, Any]) -> list[dict[str, Any]]:
    """Calibration by horizon, for all variables together and each, and the scores of the models by horizon."""
    first = next(iter(scores.values()))
    horizons = [int(h) for h in first["horizon"].values]
    common = {"part": "horizon", "models": list(scores), "horizons": horizons}
    n_origins = int(first.sizes["origin"])
    level = float(first.attrs["coverage"])
    calibration = {
        **common,
        **{"title": "Calibration by horizon", "choice": "Variable", "charts": _coverage(scores, level)},
        "note": f"Share of the observed values inside their {level:.0%} intervals, over {n_origins} origins.",
        "foot": f"Dashed: {level:.0%}, what it should be.",
    }
    comparison = {
        **common,
        **{"title": "Models compared by horizon", "choice": "Score", "charts": _scores(scores)},
        "note": f"Means over {n_origins} origins" + (" and all variables." if len(first["variable"]) > 1 else "."),
    }
    return [calibration, comparison]


def _coverage(scores: dict[str, Any], level: float) -> list[dict[str, Any]]:
    names = list(next(iter(scores.values()))["variable"].values)
    lines = {"all variables": [_means(data["covered"]) for data in scores.values()]}
    if len(names) > 1:
        for name in names:
            lines[str(name)] = [_means(data["covered"].sel(variable=name)) for data in scores.values()]
    return [{"name": name, "lines": found, "nominal": level, "share": True} for name, found in lines.items()]


def _scores(scores: dict[str, Any]) -> list[dict[str, Any]]:
    shared = [name for name in SCORES if all(name in data for data in scores.values())]
    charts = [{"name": SCORES[name], "lines": [_means(data[name]) for data in scores.values()]} for name in shared]
    return [chart for chart in charts if any(v is not None for line in chart["lines"] for v in line)]


def _means(values: Any) -> list[Any]:
    """Means of the entries at each horizon that are not missing; none where one of them is infinite."""
    array = np.moveaxis(values.values, values.dims.index("horizon"), 0)
    array = array.reshape(len(array), -1)
    is_there = ~np.isnan(array)
    total = np.where(is_there, array, 0.0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        means = total / is_there.sum(axis=1)
    return few_digits(np.where(np.isfinite(means), means, np.nan))
