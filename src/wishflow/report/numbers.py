"""Numbers of a page: few digits, NaN as null, fewer rows where there are too many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

DIGITS = 4
# The most numbers of one part of a page: it stays below 2 MB.
MOST_NUMBERS = 100_000


def few_digits(values: Any, digits: int = DIGITS) -> list[Any]:
    """Numbers rounded to significant digits, None where they are not finite."""
    array = np.asarray(values, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        places = digits - 1 - np.floor(np.log10(np.abs(np.where(array == 0.0, 1.0, array))))
    flat = [
        _shortest(round(float(v), int(p))) if np.isfinite(v) else None
        for v, p in zip(array.ravel(), np.where(np.isfinite(places), places, 0).ravel(), strict=True)
    ]
    return np.array(flat, object).reshape(array.shape).tolist()


def _shortest(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def thinned(n_rows: int, n_columns: int, most: int = MOST_NUMBERS) -> np.ndarray:
    """Positions of rows, evenly spaced and with the last one, so that rows × columns is at most `most`."""
    n_kept = min(n_rows, max(2, most // max(n_columns, 1)))
    return np.unique(np.round(np.linspace(0, n_rows - 1, n_kept)).astype(int))


def time_of(index: pd.Index) -> dict[str, Any]:
    """Stamps as the script reads them: dates as milliseconds of the wall clock, evenly spaced ones by their step."""
    if isinstance(index, pd.PeriodIndex):
        index = index.to_timestamp()
    if isinstance(index, pd.DatetimeIndex):
        clock = index.tz_localize(None).as_unit("ms")
        numbers, kind = np.asarray(clock.asi8, float), "date"
    else:
        numbers, kind = np.asarray(index, float), "number"
    gaps = np.diff(numbers)
    if len(gaps) and np.allclose(gaps, gaps[0], rtol=1e-9, atol=0.0):
        return {"kind": kind, "start": numbers[0], "step": gaps[0], "n": len(numbers)}
    return {"kind": kind, "at": [_shortest(float(v)) for v in numbers]}


def span_in_words(first: Any, last: Any) -> str:
    """Both ends of a span of time; without hours where both are days."""
    if isinstance(first, pd.Timestamp) and first == first.normalize() and last == last.normalize():
        return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
    return f"{first} to {last}"
