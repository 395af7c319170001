"""Horizons of forecasts: steps, time spans and stamps, to stamps after the end of the data."""

from __future__ import annotations

import datetime as dt
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from ...errors import OptionError
from .frames import LAST_YEAR
from .times import IRREGULAR, TimeAxis

# Nanoseconds that 64 bits can count.
LARGEST_COUNT = 2.0**63
# Steps of a horizon that are listed one by one.
MOST_STEPS = 10_000_000
HORIZONS = "steps (an int or a list), a time span such as '48h', or stamps"


def horizon(axis: TimeAxis, fh: Any, end: Any) -> pd.Index:
    """Stamps of a horizon in order: an int h or a time span means all steps up to it, a list of ints these steps.

    Stamps are taken as they are, in the time zone of `end`; all of them must lie after it.
    """
    why = ""
    try:
        steps = steps_of(axis, fh, end)
        index = _stamps(axis, fh, end) if steps is None else axis.ahead(end, steps)
        if not isinstance(index, pd.DatetimeIndex | pd.PeriodIndex) or index[-1].year <= LAST_YEAR:
            return index
    except (OverflowError, pd.errors.OutOfBoundsDatetime, pd.errors.OutOfBoundsTimedelta) as error:
        why = f" ({error})"
    raise _too_far(fh, end, why)


def _too_far(fh: Any, end: Any, why: str) -> OptionError:
    return OptionError(
        f"fh={fh!r} reaches beyond the year {LAST_YEAR} from {end} on{why}, which 64 bits cannot count in nanoseconds; "
        "expected a shorter horizon."
    )


def checked(fh: Any, axis: TimeAxis, ends: Iterable[Any]) -> Any:
    """A horizon that is kept for later: a mistake in it is said before training."""
    for end in ends:
        horizon(axis, fh, end)
    return fh


def steps_of(axis: TimeAxis, fh: Any, end: Any) -> list[int] | None:
    """The steps of a horizon in order, counted from `end`; None where it holds stamps."""
    if fh is None or isinstance(fh, bool | np.bool_):
        raise OptionError(f"fh={fh!r} given; expected {HORIZONS}.")
    if isinstance(fh, str | dt.timedelta | np.timedelta64):
        return _counted(axis, _span(axis, fh, end), end, fh)
    if isinstance(fh, numbers.Integral) or (isinstance(fh, np.ndarray) and fh.ndim == 0 and fh.dtype.kind in "iu"):
        return _counted(axis, _first(int(fh), fh), end, fh)
    # Among numbers an index holds stamps, as the one of the data does, and a list steps.
    is_stamps = isinstance(fh, pd.Index) and axis.kind == "number"
    if is_stamps or np.asarray(fh).dtype.kind not in "iu":
        return None
    return _counted(axis, sorted(int(k) for k in np.ravel(fh)), end, fh)


def _span(axis: TimeAxis, fh: Any, end: Any) -> list[int]:
    """All steps up to a time span after `end`; of business days those among the days of the span."""
    has_days = axis.counts_business_days and isinstance(end, pd.Timestamp)
    if axis.kind != "datetime" and not has_days:
        what = "the stamps of the data are numbers" if axis.kind == "number" else f"steps are those of {axis.freq}"
        raise OptionError(f"fh={fh!r} is a time span, but {what}; expected whole numbers of steps, or stamps.")
    try:
        span = pd.Timedelta(fh)
    except ValueError as error:
        raise OptionError(f"fh={fh!r} is no time span; expected one such as '48h', steps or stamps.") from error
    if has_days:
        clock = end.tz_localize(None)
        stamps = pd.date_range(clock, clock + span, freq=axis.offset)
        return list(range(1, int((stamps > clock).sum()) + 1))
    n_steps = int(np.floor(span.as_unit("ns").value / axis.unit + IRREGULAR))
    if n_steps == 0 and span > pd.Timedelta(0):
        step = pd.Timedelta(round(axis.unit), unit="ns")
        raise OptionError(f"fh={fh!r} is shorter than a step of the data ({step}); expected at least one step.")
    return _first(n_steps, fh)


def _first(n_steps: int, fh: Any) -> list[int]:
    """The steps 1, 2, … of a horizon; too many are refused before memory ends."""
    if n_steps > MOST_STEPS:
        raise OptionError(f"fh={fh!r} given; expected at most {MOST_STEPS} steps.")
    return list(range(1, n_steps + 1))


def _counted(axis: TimeAxis, steps: list[int], end: Any, fh: Any) -> list[int]:
    if not steps or min(steps) < 1:
        raise OptionError(f"fh={fh!r} given; expected steps of at least 1, counted from the end of the data ({end}).")
    _check_distinct(pd.Index(steps))
    if axis.kind != "number" and max(steps) * axis.unit >= LARGEST_COUNT:  # products of integers would wrap around
        raise _too_far(fh, end, "")
    if not axis.is_regular:
        length = axis.unit if axis.kind == "number" else pd.Timedelta(round(axis.unit), unit="ns")
        raise OptionError(
            f"fh={fh!r} counts steps, but the stamps of the data are irregular (median gap {length}), so no length of "
            "a step is known; pass the stamps to forecast (fh=[...]), or freq= to the forecaster."
        )
    return steps


def _stamps(axis: TimeAxis, fh: Any, end: Any) -> pd.Index:
    index: Any = pd.Index(np.atleast_1d(fh) if np.ndim(fh) == 0 else fh)
    if not len(index):
        raise OptionError(f"fh={fh!r} is empty; expected {HORIZONS}.")
    _check_kind(axis, index, end)
    if index.hasnans:
        raise OptionError("fh holds NaT; expected a stamp in every place.")
    index = index.sort_values()
    _check_distinct(index)
    if isinstance(index, pd.DatetimeIndex) and index.tz is not None:
        index = index.tz_convert(end.tz)
    if not index[0] > end:
        raise OptionError(f"fh starts at {index[0]}; expected stamps after the end of the data ({end}).")
    return index


def _check_kind(axis: TimeAxis, index: Any, end: Any) -> None:
    """Stamps of a horizon are of the kind of those of the data."""
    if axis.kind == "number":
        is_right = index.dtype.kind in "iuf"
    else:
        is_right = isinstance(index, pd.PeriodIndex if isinstance(end, pd.Period) else pd.DatetimeIndex)
    if not is_right or (isinstance(end, pd.Period) and index.dtype != pd.PeriodIndex([end]).dtype):
        raise OptionError(
            f"fh holds {index.dtype}; expected stamps as in the data, which end at {end!r}, or whole numbers of steps."
        )
    if isinstance(index, pd.DatetimeIndex) and (index.tz is None) != (end.tz is None):
        raise OptionError(
            f"fh has the time zone {index.tz}, the data have {end.tz}; give both one (tz_localize), or none."
        )


def _check_distinct(index: pd.Index) -> None:
    if index.has_duplicates:
        raise OptionError(f"fh holds {index[index.duplicated()][0]} twice; give each step or stamp once.")
