"""Parts of a page about series: fan charts with observed values, correlation matrices along time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..errors import DataError, OptionError
from .numbers import few_digits, thinned, time_of

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
# Times at which matrices are shown.
MOST_MATRICES = 300
MOST_CORRELATIONS = 30_000
MOST_VARIABLES = 30
LEAST_VARIABLES = 2


def fan(forecast: Any, history: Any) -> dict[str, Any]:
    """Quantiles of each variable at each time, the past before them and the observed values beside them."""
    names = [str(name) for name in forecast.columns]
    kept = thinned(len(forecast.index), len(LEVELS) * len(names))
    quantiles = np.quantile(forecast.samples.values[:, kept], LEVELS, axis=0)
    found: dict[str, Any] = {
        **{"part": "fan", "variables": names, "time": time_of(forecast.index[kept])},
        "quantiles": few_digits(np.moveaxis(quantiles, 2, 0)),
    }
    frame = _frame(history, forecast.columns)
    if frame is None:
        return found
    past = frame[frame.index < forecast.index[0]]
    rows = thinned(len(past), len(names)) if len(past) else np.zeros(0, int)
    values = past.to_numpy()[rows]
    found["history"] = {"time": time_of(past.index[rows]), "values": few_digits(values.T)}
    later = frame[~frame.index.duplicated()].reindex(forecast.index[kept]).to_numpy()
    if not np.isnan(later).all():
        found["observed"] = few_digits(later.T)
    if len(rows) < len(past) or len(kept) < len(forecast.index):
        found["note"] = (
            f"Of {len(past)} past and {len(forecast.index)} future rows {len(rows)} and {len(kept)} are shown."
        )
    return found


def _frame(history: Any, columns: pd.Index) -> pd.DataFrame | None:
    """The history in the columns of the forecast; None where there is none, or it has another form."""
    if isinstance(history, pd.Series) and len(columns) == 1:
        return history.to_frame(columns[0])
    is_usable = isinstance(history, pd.DataFrame) and not isinstance(history.index, pd.MultiIndex)
    if history is None or not is_usable or not set(columns) <= set(history.columns):
        return None
    return history[list(columns)]


def forecast_correlations(forecast: Any) -> list[dict[str, Any]]:
    """Correlations of the draws at each time of a forecast."""
    if not LEAST_VARIABLES <= len(forecast.columns) <= MOST_VARIABLES:
        return []
    low, high = forecast.correlation_interval(0.9)
    note = "Correlations between the series over the draws of the forecast. The band is that of the number of draws."
    return [_matrices("Correlations of the forecast", note, forecast.correlation, low, high)]


def noise_correlations(model: Any, history: Any) -> list[dict[str, Any]]:
    """Correlations of a forecaster's noise along rows of the past."""
    columns = model.columns_
    frame = _frame(history, columns)
    is_one_series = frame is not None and not model.is_panel_
    if frame is None or not is_one_series or not LEAST_VARIABLES <= len(columns) <= MOST_VARIABLES:
        return []
    try:
        value = model.correlation(frame)
    except DataError:  # a model with covariates needs theirs
        return []
    note = "Correlations of the noise of one step at each past row, as the model sees it."
    try:
        low, high = model.correlation_interval(frame)
    except OptionError:  # of a latent state
        return [_matrices("Correlations of the noise along the past", note, value, None, None)]
    note += " The band holds 90 % of the posterior of the noise; it has no width where the noise is constant."
    return [_matrices("Correlations of the noise along the past", note, value, low, high)]


def _matrices(title: str, note: str, value: Any, low: Any, high: Any) -> dict[str, Any]:
    """Values above the diagonal, a list along time for each pair; so for the bands."""
    names = [str(name) for name in value["variable"].values]
    above = np.triu_indices(len(names), 1)
    n_pairs = len(above[0])
    n_times = value.shape[0]
    rows = thinned(n_times, 1, min(MOST_MATRICES, max(2, MOST_CORRELATIONS // (3 * n_pairs))))

    def pairs(array: Any) -> list[Any]:
        return few_digits(array.values[rows][:, above[0], above[1]].T, 3)

    found: dict[str, Any] = {"part": "correlations", "title": title, "note": note, "variables": names}
    found |= {"time": time_of(value.indexes["time"][rows]), "value": pairs(value)}
    return found if low is None else {**found, "low": pairs(low), "high": pairs(high)}
