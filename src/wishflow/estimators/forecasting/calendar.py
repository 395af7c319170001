"""Harmonics of the day, the week and the year, from the wall clock of the index."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...errors import OptionError

DAY = 86_400.0
PERIODS = {"day": (DAY, 3), "week": (7 * DAY, 2), "year": (365.2425 * DAY, 2)}


def chosen_periods(indices: list[pd.Index], gap_seconds: float) -> tuple[str, ...]:
    """The periods a series can be asked about: covered at least once by the data, and with four rows in each."""
    if not isinstance(indices[0], pd.DatetimeIndex | pd.PeriodIndex):
        raise OptionError(f"calendar=True needs time stamps; the index has dtype {indices[0].dtype}.")
    span = max((seconds(index)[-1] - seconds(index)[0]) for index in indices)
    return tuple(
        name for name, (period, _) in PERIODS.items() if period <= span + gap_seconds and 4 * gap_seconds <= period
    )


def seconds(index: pd.Index) -> np.ndarray:
    """Seconds of the wall clock since 1970."""
    stamps = index.to_timestamp() if isinstance(index, pd.PeriodIndex) else pd.DatetimeIndex(index)
    naive = stamps.tz_localize(None) if stamps.tz is not None else stamps
    return naive.as_unit("ns").asi8 / 1e9


def harmonics(index: pd.Index, periods: tuple[str, ...]) -> np.ndarray:
    """cos and sin of 2π k t/period, k = 1 … order, side by side: (N, 2 Σ orders)."""
    t = seconds(index)
    columns = []
    for name in periods:
        period, order = PERIODS[name]
        # The week starts on a Monday: 1970-01-01 was a Thursday; a phase changes nothing but the names.
        for k in range(1, order + 1):
            angle = 2.0 * np.pi * k * t / period
            columns += [np.cos(angle), np.sin(angle)]
    return np.stack(columns, axis=1) if columns else np.zeros((len(index), 0))
