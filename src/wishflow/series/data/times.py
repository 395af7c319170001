"""Time stamps and units: one unit is the median gap; stamps go to numbers and steps go back to stamps."""

from __future__ import annotations

import dataclasses
import datetime as dt
import numbers
import zlib
from typing import Any

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset

from ...errors import DataError, OptionError
from ...specs import checks

IRREGULAR = 1e-3
HORIZONS = "steps (an int or a list), a time span such as '48h', or stamps"
# Offsets of uneven length, and the period that counts them.
PERIOD_OF = {"MS": "M", "ME": "M", "BMS": "M", "BME": "M", "QS": "Q", "QE": "Q", "BQS": "Q", "BQE": "Q"}
PERIOD_OF |= {"YS": "Y", "YE": "Y", "BYS": "Y", "BYE": "Y"}
BUSINESS_DAY = "B"
# Weekends that daily stamps must have skipped, one after another of their weeks, before that is taken for a rule.
WEEKENDS = 3


@dataclasses.dataclass(frozen=True)
class TimeAxis:
    """How stamps are turned into units of the model.

    `kind` is "datetime" (numbers are nanoseconds), "period" (ordinals of `freq`; also for months and other spans of
    uneven length) or "number". `unit` is the length of one unit in these numbers; `zone` and `freq` give stamps back.
    """

    kind: str
    unit: float
    zone: str | None = None
    freq: str | None = None
    is_regular: bool = True

    @classmethod
    def of(cls, indices: list[pd.Index], freq: Any = None) -> TimeAxis:
        """The axis of a series, or of all series of a panel together."""
        first = indices[0]
        for index in indices[1:]:
            check_same_kind(index, first, "a series of the panel", "the first one")
        if isinstance(first, pd.PeriodIndex):
            if freq is not None and to_offset(freq) != first.freq:
                raise OptionError(
                    f"freq={freq!r} given, but the index holds periods of {first.freqstr}; turn it into stamps "
                    "(index.to_timestamp()), or resample the series first."
                )
            return cls("period", float(first.freq.n), None, first.freqstr)  # type: ignore[union-attr]
        if isinstance(first, pd.DatetimeIndex):
            return _datetime_axis(indices, freq)
        gaps = np.concatenate([np.diff(np.asarray(index, float)) for index in indices])
        unit = _median_gap(gaps) if freq is None else checks.positive_number("freq", freq)
        return cls("number", unit, is_regular=freq is not None or _is_regular(gaps, unit))

    def numbers(self, index: pd.Index) -> np.ndarray:
        """Stamps as numbers of the axis."""
        if self.kind == "number":
            return np.asarray(index, float)
        if self.kind == "period":
            return np.asarray(index.asi8 if isinstance(index, pd.PeriodIndex) else _ordinals(index, self.freq), float)
        if self._counts_days:  # of the wall clock: those on which clocks change are steps as all others
            return np.asarray(_naive(index).as_unit("ns").asi8, float)
        return np.asarray(_utc(index).asi8, float)

    def units(self, index: pd.Index, origin: float) -> np.ndarray:
        """Time since `origin` (a number of the axis) in units."""
        return (self.numbers(index) - origin) / self.unit

    def ahead(self, end: Any, steps: Any) -> pd.Index:
        """The stamps `steps` steps after `end`; before it where they are negative."""
        steps = np.asarray(steps, int)
        if self.kind == "number":
            return pd.Index(end + steps * (int(self.unit) if float(self.unit).is_integer() else self.unit))
        if self.kind == "period" and isinstance(end, pd.Period):
            return pd.PeriodIndex([end + int(k) for k in steps], freq=self.freq)
        if self.kind == "period" or self._counts_days:
            # Months differ in length, and so does a day on which clocks change.
            n_before, clock = max(0, -int(steps.min())), end.tz_localize(None)
            after = pd.date_range(clock, periods=max(0, int(steps.max())) + 1, freq=self.freq)
            before = pd.date_range(end=clock, periods=n_before + 1, freq=self.freq)[:-1]
            ahead = (before.append(after) if n_before else after)[steps + n_before]
            # An hour that clocks skip is the next one, and of one that they repeat it is the first.
            return ahead.tz_localize(end.tz, nonexistent="shift_forward", ambiguous=np.ones(len(ahead), bool))
        ahead = end + pd.to_timedelta(steps * int(self.unit), unit="ns")
        return pd.DatetimeIndex(ahead).as_unit(end.unit)

    @property
    def _counts_days(self) -> bool:
        return self.kind == "datetime" and self.freq is not None and self.freq.endswith("D")

    @property
    def counts_business_days(self) -> bool:
        # Without a multiple; names of periods ("2M") are not all names of offsets.
        return self.kind == "period" and (self.freq or "").lstrip("0123456789") == BUSINESS_DAY

    @property
    def step_name(self) -> Any:
        """The frequency of the steps: an alias of pandas ("h", "B", "MS"), a number, or None for irregular stamps."""
        if not self.is_regular:
            return None
        if self.freq is not None:
            return self.freq
        if self.kind == "number":
            return self.unit
        length = pd.Timedelta(round(self.unit), unit="ns")
        # With a zone a day may have 23 hours, and these steps have 24.
        is_days = self.zone is None and length % pd.Timedelta("1D") == pd.Timedelta(0)
        offset: Any = pd.offsets.Day(length.days) if is_days else to_offset(length)
        return offset.freqstr

    # --- horizons ---

    def horizon(self, fh: Any, end: Any) -> pd.Index:
        """Stamps of a horizon in order: an int h or a time span means all steps up to it, a list of ints these steps.

        Stamps are taken as they are, in the time zone of `end`; all of them must lie after it.
        """
        steps = self.steps(fh, end)
        return self._stamps(fh, end) if steps is None else self.ahead(end, steps)

    def steps(self, fh: Any, end: Any) -> list[int] | None:
        """The steps of a horizon in order, counted from `end`; None where it holds stamps."""
        if fh is None or isinstance(fh, bool | np.bool_):
            raise OptionError(f"fh={fh!r} given; expected {HORIZONS}.")
        if isinstance(fh, str | dt.timedelta | np.timedelta64):
            return self._counted(self._span(fh, end), end, fh)
        if isinstance(fh, numbers.Integral) or (isinstance(fh, np.ndarray) and fh.ndim == 0 and fh.dtype.kind in "iu"):
            return self._counted(list(range(1, int(fh) + 1)), end, fh)
        # Among numbers an index holds stamps, as the one of the data does, and a list steps.
        is_stamps = isinstance(fh, pd.Index) and self.kind == "number"
        if is_stamps or np.asarray(fh).dtype.kind not in "iu":
            return None
        return self._counted(sorted(int(k) for k in np.ravel(fh)), end, fh)

    def _span(self, fh: Any, end: Any) -> list[int]:
        """All steps up to a time span after `end`; of business days those among the days of the span."""
        has_days = self.counts_business_days and isinstance(end, pd.Timestamp)
        if self.kind != "datetime" and not has_days:
            what = "the stamps of the data are numbers" if self.kind == "number" else f"steps are those of {self.freq}"
            raise OptionError(f"fh={fh!r} is a time span, but {what}; expected whole numbers of steps, or stamps.")
        try:
            span = pd.Timedelta(fh)
        except ValueError as error:
            raise OptionError(f"fh={fh!r} is no time span; expected one such as '48h', steps or stamps.") from error
        if has_days:
            clock = end.tz_localize(None)
            stamps = pd.date_range(clock, clock + span, freq=self.freq)
            return list(range(1, int((stamps > clock).sum()) + 1))
        return list(range(1, int(np.floor(span.as_unit("ns").value / self.unit + IRREGULAR)) + 1))

    def _counted(self, steps: list[int], end: Any, fh: Any) -> list[int]:
        if not steps or min(steps) < 1:
            raise OptionError(
                f"fh={fh!r} given; expected steps of at least 1, counted from the end of the data ({end})."
            )
        _check_distinct(pd.Index(steps))
        if not self.is_regular:
            raise OptionError(
                f"fh={fh!r} counts steps, but the stamps are irregular; pass the stamps to forecast, or freq= to the "
                "forecaster."
            )
        return steps

    def _stamps(self, fh: Any, end: Any) -> pd.Index:
        index: Any = pd.Index(np.atleast_1d(fh) if np.ndim(fh) == 0 else fh)
        if not len(index):
            raise OptionError(f"fh={fh!r} is empty; expected {HORIZONS}.")
        self._check_kind(index, end)
        if index.hasnans:
            raise OptionError("fh holds NaT; expected a stamp in every place.")
        index = index.sort_values()
        _check_distinct(index)
        if isinstance(index, pd.DatetimeIndex) and index.tz is not None:
            index = index.tz_convert(end.tz)
        if not index[0] > end:
            raise OptionError(f"fh starts at {index[0]}; expected stamps after the end of the data ({end}).")
        return index

    def _check_kind(self, index: Any, end: Any) -> None:
        """Stamps of a horizon are of the kind of those of the data."""
        if self.kind == "number":
            is_right = index.dtype.kind in "iuf"
        else:
            is_right = isinstance(index, pd.PeriodIndex if isinstance(end, pd.Period) else pd.DatetimeIndex)
        if not is_right or (isinstance(end, pd.Period) and index.dtype != pd.PeriodIndex([end]).dtype):
            raise OptionError(
                f"fh holds {index.dtype}; expected stamps as in the data, which end at {end!r}, or whole numbers of "
                "steps."
            )
        if isinstance(index, pd.DatetimeIndex) and (index.tz is None) != (end.tz is None):
            raise OptionError(
                f"fh has the time zone {index.tz}, the data have {end.tz}; give both one (tz_localize), or none."
            )


def _check_distinct(index: pd.Index) -> None:
    if index.has_duplicates:
        raise OptionError(f"fh holds {index[index.duplicated()][0]} twice; give each step or stamp once.")


def _utc(index: pd.Index) -> pd.DatetimeIndex:
    index = pd.DatetimeIndex(index)
    return (index.tz_convert("UTC") if index.tz is not None else index).as_unit("ns")


def _naive(index: pd.Index) -> pd.DatetimeIndex:
    index = pd.DatetimeIndex(index)
    return index.tz_localize(None) if index.tz is not None else index


def _ordinals(index: Any, freq: str | None) -> np.ndarray:
    """The number of the month, quarter, year or business day that each stamp lies in."""
    naive = _naive(index)
    name = to_offset(freq).name  # type: ignore[union-attr]  # without its multiple
    if name == "B":
        return np.busday_count("1970-01-01", naive.to_numpy().astype("datetime64[D]"))
    return naive.to_period(PERIOD_OF.get(name.split("-")[0], name)).asi8


def _datetime_axis(indices: list[Any], freq: Any) -> TimeAxis:
    zone = None if indices[0].tz is None else str(indices[0].tz)
    found = freq
    if found is None:
        names = {index.freqstr or (pd.infer_freq(index) if len(index) > 2 else None) for index in indices}
        found = names.pop() if len(names) == 1 else None
    if found is None and _are_business_days(indices):
        found = BUSINESS_DAY
    if found is not None:
        found = to_offset(found)
        if not isinstance(found, pd.tseries.offsets.Tick | pd.tseries.offsets.Day):
            return TimeAxis("period", float(found.n), zone, found.freqstr)
    gaps = np.concatenate([np.diff(_utc(index).asi8.astype(float)) for index in indices])
    unit = _median_gap(gaps) if found is None else float(_length(found).as_unit("ns").value)
    is_regular = found is not None or _is_regular(gaps, unit)
    return TimeAxis("datetime", unit, zone, None if found is None else found.freqstr, is_regular)


def _are_business_days(indices: list[Any]) -> bool:
    """Whether daily stamps say that they are business days, some of them missing, as markets' with their holidays.

    All series have one stamp a day at one time of the day (of the wall clock), none on a Saturday or Sunday, but some
    on each other day of the week; most stamps follow the business day before them; and the weeks of one series go on
    over at least `WEEKENDS` weekends. Weekly and monthly stamps do not follow each other's day, and calendars with
    other weekends have stamps on one of these days, or none on another.
    """
    days = [_naive(index).as_unit("ns") for index in indices]
    if any((index - index.normalize()).nunique() != 1 for index in days):
        return False
    numbers = [index.to_numpy().astype("datetime64[D]") for index in days]
    if set(np.concatenate([index.dayofweek for index in days])) != set(range(5)):
        return False
    gaps = np.concatenate([np.busday_count(each[:-1], each[1:]) for each in numbers])
    # Day 0 was a Thursday: weeks begin on Mondays.
    weeks = [(each.astype(int) + 3) // 7 for each in numbers]
    n_weekends = max(int((np.diff(week) == 1).sum()) for week in weeks)
    return n_weekends >= WEEKENDS and bool(np.median(gaps) == 1.0)


def _length(offset: Any) -> pd.Timedelta:
    """The length of a fixed offset; a day counts as 24 hours."""
    return pd.Timedelta(days=offset.n) if isinstance(offset, pd.tseries.offsets.Day) else pd.Timedelta(offset)


def _median_gap(gaps: np.ndarray) -> float:
    if not len(gaps):
        raise DataError("the series has one row; expected at least two, to learn from steps between rows.")
    return float(np.median(gaps))


def _is_regular(gaps: np.ndarray, unit: float) -> bool:
    return bool(np.abs(gaps / unit - np.round(gaps / unit)).max() < IRREGULAR) if len(gaps) else True


def check_order(index: pd.Index, name: str) -> None:
    """Stamps must be there, increasing and distinct."""
    if index.hasnans:
        raise DataError(
            f"the index of {name} holds NaT at position {int(np.flatnonzero(index.isna())[0])}; drop the row."
        )
    if index.has_duplicates:
        stamp = index[index.duplicated()][0]
        raise DataError(
            f"the index of {name} holds {stamp} twice; keep one row for each stamp (groupby(level=0).mean())."
        )
    if not index.is_monotonic_increasing:
        raise DataError(f"the index of {name} is not sorted; call sort_index() first.")


def check_same_kind(index: Any, known: Any, name: str, whose: str) -> None:
    """Stamps that are to stand on one axis: all numbers, all periods, or all times, with zones or without."""
    if _kind(index) != _kind(known):
        raise DataError(
            f"{name} has stamps that are {_kind(index)}, {whose} has {_kind(known)}; give all the same kind "
            "(tz_localize gives a time zone to stamps without one)."
        )


def _kind(index: Any) -> str:
    if isinstance(index, pd.DatetimeIndex):
        return "times without a time zone" if index.tz is None else "times with a time zone"
    return f"periods of {index.freqstr}" if isinstance(index, pd.PeriodIndex) else "numbers"


def noise_seed(seed: int, *origin: Any) -> int:
    """A seed for the noise of one forecast, from what it starts at; the same in every process."""
    place = zlib.crc32(" ".join(map(str, origin)).encode())
    return int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
