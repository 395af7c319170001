"""Steps of the calendar as offsets of pandas: what the option `freq` means, and what stamps say themselves."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset

from ...errors import OptionError

# Offsets of uneven length, and the period that counts them.
PERIOD_OF = {"MS": "M", "ME": "M", "BMS": "M", "BME": "M", "QS": "Q", "QE": "Q", "BQS": "Q", "BQE": "Q"}
PERIOD_OF |= {"YS": "Y", "YE": "Y", "BYS": "Y", "BYE": "Y"}
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
BUSINESS_DAY, OWN_BUSINESS_DAY = "B", "C"
# Days of business days without a calendar of their own, Monday first.
WEEKDAYS = "1111100"


def naive(index: pd.Index) -> pd.DatetimeIndex:
    """The wall clock of stamps."""
    index = pd.DatetimeIndex(index)
    return index.tz_localize(None) if index.tz is not None else index


@functools.cache
def business_calendar(weekmask: str, holidays: tuple[int, ...]) -> np.busdaycalendar:
    return np.busdaycalendar(weekmask, np.array(holidays, "datetime64[D]"))


@functools.cache
def own_business_day(n: int, weekmask: str, holidays: tuple[int, ...]) -> Any:
    # Pickles of offsets that were made of a calendar forget its days of the week.
    return pd.offsets.CustomBusinessDay(n, weekmask=weekmask, holidays=list(np.array(holidays, "datetime64[D]")))


def period_name(offset: Any) -> str | None:
    """The period whose ordinals count the steps of an offset; None where there is none.

    Quarters that begin in January end in December, and it is their end that a period is named after.
    """
    try:
        base, _, anchor = offset.name.partition("-")
    except NotImplementedError:  # offsets without a name, such as DateOffset(months=1)
        return None
    if base == "W":
        return offset.name
    if base not in PERIOD_OF or not anchor:
        return PERIOD_OF.get(base)
    return f"{PERIOD_OF[base]}-{MONTHS[MONTHS.index(anchor) - 1] if base.endswith('S') else anchor}"


def _is_counted(offset: Any) -> bool:
    """Whether steps of this offset can be counted."""
    of_days = pd.offsets.Tick, pd.offsets.Day, pd.offsets.BusinessDay, pd.offsets.CustomBusinessDay
    return offset.n > 0 and (isinstance(offset, of_days) or period_name(offset) is not None)


def offset_of(freq: Any) -> Any:
    """The option `freq`, for time stamps."""
    examples = "'h', '15min', 'D', 'B', 'W-MON', 'MS', 'ME', 'QS' or 'YE', or an offset of pandas for one of these"
    try:
        offset = to_offset(freq)
    except (ValueError, TypeError) as error:
        hint = re.search(r"Did you mean \S+\?|Please use \S+ instead", str(error))
        why = "" if hint is None else f" ({hint[0]})"
        raise OptionError(f"freq={freq!r} given; expected a frequency such as {examples}{why}.") from error
    if offset is None or not _is_counted(offset):
        raise OptionError(
            f"freq={freq!r} given; expected a frequency whose steps can be counted: {examples}, among them "
            "CustomBusinessDay(holidays=...)."
        )
    return offset


def period_offset(freq: Any) -> Any:
    """The option `freq`, for periods: a name of them ("M"), or an offset; None where it is neither."""
    try:
        return pd.PeriodDtype(freq).freq
    except (ValueError, TypeError):
        return None


# --- what stamps say themselves ---------------------------------------------------------------------


def inferred(indices: list[Any]) -> Any:
    """The offset that stamps follow, in the units of the calendar; None where only their gaps can tell."""
    names = {index.freq or (to_offset(pd.infer_freq(index)) if len(index) > 2 else None) for index in indices}
    found = names.pop() if len(names) == 1 else None
    if found is not None and _is_counted(found):
        return found
    days = [naive(index).as_unit("ns") for index in indices]
    if len({time for index in days for time in (index - index.normalize()).unique()}) != 1 or max(map(len, days)) < 3:
        return None
    days = [index.normalize() for index in days]
    # With a zone days differ in length, and their number counts.
    return _business_days(days) or _months(days) or (None if indices[0].tz is None else _days(days))


def _business_days(days: list[pd.DatetimeIndex]) -> Any:
    """Business days, some of them missing, as markets' with their holidays; None where stamps are no such days.

    No stamp is on a Saturday or Sunday, but some are on each other day of the week; most stamps follow the business day
    before them (or all gaps are a multiple of the commonest one); and some week of a series goes on after a weekend.
    Weekly and monthly stamps do not follow each other's day, and calendars with other weekends have stamps on one of
    these days, or none on another.
    """
    numbers = [index.to_numpy().astype("datetime64[D]") for index in days]
    if set(np.concatenate([index.dayofweek for index in days])) != set(range(5)):
        return None
    unit = _common_unit([np.busday_count("1970-01-01", each) for each in numbers])
    # Day 0 was a Thursday: weeks begin on Mondays.
    has_weekend = any((np.diff((each.astype(int) + 3) // 7) == 1).any() for each in numbers)
    return pd.offsets.BusinessDay(unit) if unit is not None and has_weekend and unit < 5 else None


def _months(days: list[pd.DatetimeIndex]) -> Any:
    """First or last (business) days of months, quarters or years, some of them missing; None where stamps are not."""
    unit = _common_unit([12 * index.year.to_numpy() + index.month.to_numpy() - 1 for index in days])
    if unit is None:
        return None
    for name in ("MS", "ME", "BMS", "BME"):
        offset: Any = to_offset(name)
        if all(offset.is_on_offset(day) for index in days for day in index):
            return to_offset(_name_of_months(name, unit, {month - 1 for index in days for month in index.month}))
    return None


def _name_of_months(name: str, unit: int, months: set[int]) -> str:
    """ "3MS" as "QS-JAN", and "12ME" as "YE-JUN", where all stamps are in such months."""
    for length, letter in ((12, "Y"), (3, "Q")):
        if unit % length == 0 and len({month % length for month in months}) == 1:
            anchor = MONTHS[min(months) if name.endswith("S") else max(months)]
            return f"{unit // length}{name.replace('M', letter)}-{anchor}"
    return f"{unit}{name}"


def _days(days: list[pd.DatetimeIndex]) -> Any:
    unit = _common_unit([index.to_numpy().astype("datetime64[D]").astype(int) for index in days])
    return None if unit is None else pd.offsets.Day(unit)


def _common_unit(numbers: list[np.ndarray]) -> int | None:
    """The median gap of whole numbers where it is one itself and all gaps are multiples of it."""
    gaps = np.concatenate([np.diff(each) for each in numbers])
    unit = float(np.median(gaps)) if len(gaps) else 0.0
    return int(unit) if unit >= 1.0 and gaps.min() > 0 and not (gaps % unit).any() else None
