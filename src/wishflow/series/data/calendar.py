"""Harmonics of the day, the week and the year, and products of them, from the wall clock of the index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ...errors import OptionError

DAY = 86_400.0
PERIODS = {"day": (DAY, 3), "week": (7 * DAY, 2), "year": (365.2425 * DAY, 2)}
# Every harmonic of the day times every one of the year: a daily cycle that changes with the season.
SEASONAL = "day*year"
CALENDARS = ("seasonal",)
# What the harmonics of a period leave out of a cycle of a few rows: the period, the rows, and the field of a stamp that
# counts them. A sale in December is no sum of two harmonics.
FINE = {"weekdays": ("week", 7, "dayofweek"), "months": ("year", 12, "month")}


def chosen_periods(indices: list[pd.Index], gap_seconds: float, is_seasonal: bool = False) -> tuple[str, ...]:
    """The periods a series can be asked about: covered at least once by the data, and with four rows in each.

    `is_seasonal` adds the products of the day's harmonics with the year's, where there are both.
    """
    if not isinstance(indices[0], pd.DatetimeIndex | pd.PeriodIndex):
        raise OptionError(f"a calendar needs time stamps; the index has dtype {indices[0].dtype}; use calendar=False.")
    span = max((seconds(index)[-1] - seconds(index)[0]) for index in indices)
    found = tuple(
        name for name, (period, _) in PERIODS.items() if period <= span + gap_seconds and 4 * gap_seconds <= period
    )
    return (*found, SEASONAL) if is_seasonal and {"day", "year"} <= set(found) else found


def n_products(periods: tuple[str, ...]) -> int:
    """How many of the columns of `harmonics`, the last ones, are for the linear drift alone: products, and harmonics
    above those of a period.
    """
    n_fine = sum(n_rows - 1 - 2 * PERIODS[name][1] for fine, (name, n_rows, _) in FINE.items() if fine in periods)
    return n_fine + (4 * PERIODS["day"][1] * PERIODS["year"][1] if SEASONAL in periods else 0)


def seconds(index: pd.Index) -> np.ndarray:
    """Seconds of the wall clock since 1970."""
    return _wall_clock(index).as_unit("ns").asi8 / 1e9


def _wall_clock(index: pd.Index) -> pd.DatetimeIndex:
    stamps = index.to_timestamp() if isinstance(index, pd.PeriodIndex) else pd.DatetimeIndex(index)
    return stamps.tz_localize(None) if stamps.tz is not None else stamps


def harmonics(index: pd.Index, periods: tuple[str, ...]) -> np.ndarray:
    """cos and sin of 2π k t/period, k = 1 … order, side by side, then products, then those of the periods in `FINE`:
    (N, 2 Σ orders + n_products).
    """
    t = seconds(index)
    columns = []
    for name in periods:
        if name not in PERIODS:
            continue
        period, order = PERIODS[name]
        # The week starts on a Monday: 1970-01-01 was a Thursday; a phase changes nothing but the names.
        for k in range(1, order + 1):
            angle = 2.0 * np.pi * k * t / period
            columns += [np.cos(angle), np.sin(angle)]
    plain = np.stack(columns, axis=1) if columns else np.zeros((len(index), 0))
    parts = [plain]
    if SEASONAL in periods:
        day, year = (harmonics(index, (name,)) for name in ("day", "year"))
        parts.append((day[:, :, None] * year[:, None]).reshape(len(index), -1))
    parts += [_fine_harmonics(index, name) for name in periods if name in FINE]
    return np.concatenate(parts, axis=1)


def _fine_harmonics(index: pd.Index, name: str) -> np.ndarray:
    """cos and sin of 2π k i/n of the i-th of n rows in a cycle, k from the order of its period + 1 to n/2 (cos alone):
    together with the harmonics of the period they tell the rows apart.
    """
    period, n_rows, field = FINE[name]
    angle = 2.0 * np.pi * getattr(_wall_clock(index), field).to_numpy() / n_rows
    orders = range(PERIODS[period][1] + 1, n_rows // 2 + 1)
    columns = [f(k * angle) for k in orders for f in ((np.cos, np.sin) if 2 * k < n_rows else (np.cos,))]
    return np.stack(columns, axis=1)


def with_harmonics(covariates: np.ndarray, index: pd.Index, periods: tuple[str, ...]) -> np.ndarray:
    """Covariates and, to the right of them, harmonics."""
    return np.concatenate([covariates, harmonics(index, periods)], axis=1)


def calendar_option(calendar: Any, drift: str) -> bool | str:
    """The option `calendar`, checked: True, False, or "seasonal" where the drift has a linear part."""
    if isinstance(calendar, bool | np.bool_):
        return bool(calendar)
    if calendar not in CALENDARS:
        raise OptionError(
            f"calendar={calendar!r} given; expected True for harmonics of day, week and year, 'seasonal' for products "
            "of them too, or False for none."
        )
    if "linear" not in drift:
        raise OptionError(
            f"calendar='seasonal' given with drift={drift!r}; expected a drift with a linear part, which alone sees "
            "the products of harmonics; use calendar=True."
        )
    return calendar
