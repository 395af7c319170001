"""Time stamps and units: one unit is the median gap; stamps go to numbers, rows to steps, steps back to stamps."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from pandas.tseries.frequencies import to_offset

from ...errors import DataError, OptionError
from ...specs import checks
from ..specs import Lags, memory_of
from .frames import ONLY, Panel, Table, merged
from .matching import ROUNDING, places_of
from .offsets import (
    BUSINESS_DAY,
    OWN_BUSINESS_DAY,
    WEEKDAYS,
    business_calendar,
    inferred,
    naive,
    offset_of,
    own_business_day,
    period_name,
    period_offset,
)
from .rounding import AS_GOOD, NEARLY, Rounded, rounded_numbers, rounded_stamps

IRREGULAR = 1e-3
# Two stamps of a regular axis, each so far from its step at most, are of the same one.
SAME_STEP = 2.0 * IRREGULAR
# The phase of a grid in parts of a step: enough to keep readings at half past the hour together.
PHASES = 4


@dataclasses.dataclass(frozen=True)
class TimeAxis:
    """How stamps are turned into units of the model.

    `kind` is "datetime" (numbers are nanoseconds), "period" (ordinals of `freq`; also for months and other spans of
    uneven length) or "number". `unit` is the length of one unit in these numbers; `zone` and `freq` give stamps back.
    Business days of a calendar of their own have its days of the week ("1111100", Monday first) and its holidays (days
    since 1970).
    """

    kind: str
    unit: float
    zone: str | None = None
    freq: str | None = None
    is_regular: bool = True
    weekmask: str | None = None
    holidays: tuple[int, ...] = ()

    @classmethod
    def of(cls, indices: list[pd.Index], freq: Any = None) -> TimeAxis:
        """The axis of a series, or of all series of a panel together."""
        first = indices[0]
        for index in indices[1:]:
            check_same_kind(index, first, "a series of the panel", "the first one")
        if isinstance(first, pd.PeriodIndex):
            if freq is not None and period_offset(freq) != first.freq:
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
            return np.asarray(index.asi8 if isinstance(index, pd.PeriodIndex) else self._ordinals(index), float)
        if self._counts_days:  # of the wall clock: those on which clocks change are steps as all others
            return np.asarray(naive(index).as_unit("ns").asi8, float)
        return np.asarray(_utc(index).asi8, float)

    def _ordinals(self, index: Any) -> np.ndarray:
        """The number of the week, month, quarter, year or business day that each stamp lies in.

        A day that is no business day counts as the next one that is.
        """
        stamps = naive(index)
        if self.counts_business_days:
            return np.busday_count("1970-01-01", stamps.to_numpy().astype("datetime64[D]"), busdaycal=self._business)
        return stamps.to_period(period_name(self.offset)).asi8

    def is_step_day(self, index: Any) -> Bool[np.ndarray, " N"]:
        """Whether stamps lie on days that have steps: all, but for those that are no business days."""
        if not self.counts_business_days or isinstance(index, pd.PeriodIndex):
            return np.ones(len(index), bool)
        return np.is_busday(naive(index).to_numpy().astype("datetime64[D]"), busdaycal=self._business)

    @property
    def _business(self) -> np.busdaycalendar:
        return business_calendar(self.weekmask or WEEKDAYS, self.holidays)

    @property
    def offset(self) -> Any:
        """The steps as an offset of pandas; None where they have no frequency."""
        if self.weekmask is not None:
            return own_business_day(int(self.unit), self.weekmask, self.holidays)
        return None if self.freq is None else to_offset(self.freq)

    def units(self, index: pd.Index, origin: float) -> np.ndarray:
        """Time since `origin` (a number of the axis) in units."""
        return (self.numbers(index) - origin) / self.unit

    def since_first(self, index: pd.Index) -> np.ndarray:
        """Time since the first stamp in units."""
        return np.concatenate([np.zeros(min(1, len(index))), np.cumsum(self.gaps(index))])

    def gaps(self, index: pd.Index) -> np.ndarray:
        """From each stamp to the next one, in units; whole numbers of them where stamps of a regular axis are near."""
        gaps = np.diff(self.numbers(index)) / self.unit
        is_whole = self.is_regular & (gaps > 0.5) & (np.abs(gaps - np.round(gaps)) < SAME_STEP)
        return np.where(is_whole, np.round(gaps), gaps)

    def places_of(self, stamps: pd.Index, known: pd.Index) -> Int[np.ndarray, " N"]:
        """Where stamps are among those that are known, −1 where they are not: on a regular axis by their steps."""
        share = SAME_STEP if self.is_regular else ROUNDING
        return places_of(stamps, known, self._nanoseconds if isinstance(known, pd.DatetimeIndex) else self.unit, share)

    def as_known(self, index: pd.Index, known: pd.Index) -> pd.Index:
        """Stamps, those of steps that are known as they are known."""
        at = self.places_of(index, known)
        found = index if (at < 0).all() else index.where(at < 0, known[at])
        return found if found.is_unique else index

    @property
    def _nanoseconds(self) -> float:
        """The length of a step of time stamps; of months and other spans of uneven length that of one of them."""
        if self.kind != "period":
            return self.unit
        return float(np.diff(pd.date_range("2001-01-01", periods=2, freq=self.offset).as_unit("ns").asi8)[0])

    def ahead(self, end: Any, steps: Any) -> pd.Index:
        """The stamps `steps` steps after `end`; before it where they are negative."""
        steps = np.asarray(steps, int)
        if self.kind == "number":
            is_whole = float(self.unit).is_integer() and self.unit < 2.0**63  # else no integer of 64 bits
            return pd.Index(end + steps * (int(self.unit) if is_whole else self.unit))
        if self.kind == "period" and isinstance(end, pd.Period):
            ordinals = end.ordinal + steps * int(self.unit)
            return pd.PeriodIndex.from_ordinals(ordinals, freq=end.freq)  # type: ignore[attr-defined]
        if self.kind == "period" or self._counts_days:
            # Months differ in length, and so does a day on which clocks change.
            n_before, clock = max(0, -int(steps.min())), end.tz_localize(None)
            after = pd.date_range(clock, periods=max(0, int(steps.max())) + 1, freq=self.offset)
            before = pd.date_range(end=clock, periods=n_before + 1, freq=self.offset)[:-1]
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
        return self.kind == "period" and (self.freq or "").lstrip("0123456789") in (BUSINESS_DAY, OWN_BUSINESS_DAY)

    @property
    def step_name(self) -> Any:
        """The frequency of the steps: an alias of pandas ("h", "B", "MS"), a number, or None for irregular stamps.

        Business days of a calendar of their own, which no alias describes, have an offset.
        """
        if not self.is_regular:
            return None
        if self.weekmask is not None:
            return self.offset
        if self.freq is not None:
            return self.freq
        if self.kind == "number":
            return self.unit
        length = pd.Timedelta(round(self.unit), unit="ns")
        # With a zone a day may have 23 hours, and these steps have 24.
        is_days = self.zone is None and length % pd.Timedelta("1D") == pd.Timedelta(0)
        offset: Any = pd.offsets.Day(length.days) if is_days else to_offset(length)
        return offset.freqstr


def _utc(index: pd.Index) -> pd.DatetimeIndex:
    index = pd.DatetimeIndex(index)
    return (index.tz_convert("UTC") if index.tz is not None else index).as_unit("ns")


def _datetime_axis(indices: list[Any], freq: Any) -> TimeAxis:
    if freq is not None:
        return _axis_of_offset(indices, offset_of(freq))
    found = inferred(indices)
    rounded = None if found is not None else rounded_stamps(indices, AS_GOOD)
    axis = None if rounded is None else _rounded_axis(indices, rounded)
    # A stamp before the first moment of a month or business day lies in the one before it.
    if rounded is None or axis is None or (axis.kind == "period" and rounded.later > 0.0):
        return _axis_of_offset(indices, found)
    return axis


def _axis_of_offset(indices: list[Any], found: Any) -> TimeAxis:
    """The axis of an offset; where there is none (None), that of the gaps."""
    zone = None if indices[0].tz is None else str(indices[0].tz)
    if isinstance(found, pd.offsets.CustomBusinessDay):
        calendar = found.calendar
        weekmask = "".join(str(int(day)) for day in calendar.weekmask)
        holidays = tuple(int(day) for day in calendar.holidays.astype("datetime64[D]").astype(int))
        return TimeAxis("period", float(found.n), zone, found.freqstr, True, weekmask, holidays)
    if found is not None and not isinstance(found, pd.offsets.Tick | pd.offsets.Day):
        return TimeAxis("period", float(found.n), zone, found.freqstr)
    gaps = np.concatenate([np.diff(_utc(index).asi8.astype(float)) for index in indices])
    unit = _median_gap(gaps) if found is None else float(_length(found).as_unit("ns").value)
    is_regular = found is not None or _is_regular(gaps, unit)
    return TimeAxis("datetime", unit, zone, None if found is None else found.freqstr, is_regular)


def nearly(axis: TimeAxis, indices: list[Any]) -> tuple[TimeAxis, str] | None:
    """The axis that stamps would have if they were rounded a little, and how to round them; None where that is the one
    they have.
    """
    if axis.kind == "number":
        found = None if axis.is_regular else rounded_numbers(indices, axis.unit)
    else:
        found = rounded_stamps(indices, NEARLY) if isinstance(indices[0], pd.DatetimeIndex) else None
    other = None if found is None else _rounded_axis(indices, found)
    return None if found is None or other is None or other.step_name == axis.step_name else (other, found.how)


def _rounded_axis(indices: list[Any], found: Rounded) -> TimeAxis:
    """The axis of stamps that were rounded, in the zone that they had."""
    if not isinstance(indices[0], pd.DatetimeIndex):
        return TimeAxis.of(found.indices)
    zone = None if indices[0].tz is None else str(indices[0].tz)
    return dataclasses.replace(_axis_of_offset(found.indices, found.offset), zone=zone)


def _length(offset: Any) -> pd.Timedelta:
    """The length of a fixed offset; a day counts as 24 hours."""
    return pd.Timedelta(days=offset.n) if isinstance(offset, pd.tseries.offsets.Day) else pd.Timedelta(offset)


def _median_gap(gaps: np.ndarray) -> float:
    if not len(gaps):
        raise DataError("the series has one row; expected at least two, to learn from steps between rows.")
    return float(np.median(gaps))


def _is_regular(gaps: np.ndarray, unit: float) -> bool:
    return bool(np.abs(gaps / unit - np.round(gaps / unit)).max() < IRREGULAR) if len(gaps) else True


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


# --- grids ------------------------------------------------------------------------------------------


def grid_start(axis: TimeAxis, index: pd.Index) -> Any:
    """The first stamp of the grid of a series.

    It is that of the first row where all rows lie on a grid with it. Otherwise steps are counted from midnight (numbers
    from zero), shifted by the quarter of a step nearest to the mean phase of the rows, so that readings at half past
    every hour, give or take ten minutes, do not fall on two hours by chance.
    """
    first = index[0]
    if isinstance(first, pd.Period):
        return first
    if axis.kind == "period":
        return _step_of(axis, first)
    units = _units(axis, index, first)
    if np.abs(units - np.round(units)).max() < IRREGULAR:
        return first
    origin = first.normalize() if axis.kind == "datetime" else type(first)(0)
    since = _units(axis, index, origin)
    # The mean of angles, for a phase just below one step and one just above none are close to each other.
    phase = np.angle(np.exp(2j * np.pi * since).mean()) / (2.0 * np.pi)
    phase = round(PHASES * float(phase)) / PHASES
    start = phase + round(float(since[0]) - phase)
    return origin + (
        pd.Timedelta(round(start * axis.unit), unit="ns") if axis.kind == "datetime" else start * axis.unit
    )


def _step_of(axis: TimeAxis, stamp: pd.Timestamp) -> pd.Timestamp:
    """The stamp of the month, quarter, year or business day that a stamp lies in."""
    offset = axis.offset
    if offset.is_on_offset(stamp):
        return stamp
    sides = pd.DatetimeIndex([offset.rollback(stamp), offset.rollforward(stamp)]).normalize()
    is_same = axis.numbers(sides) == axis.numbers(pd.DatetimeIndex([stamp]))[0]
    return sides[int(is_same.argmax())]


def places(axis: TimeAxis, index: pd.Index, start: Any) -> Int[np.ndarray, " N"]:
    """The steps of the grid through `start` nearest to the rows."""
    return np.round(_units(axis, index, start)).astype(int)


def placed(axis: TimeAxis, index: pd.Index, start: Any) -> pd.Index:
    """The stamps of the grid through `start` nearest to the rows, each once."""
    found = axis.ahead(start, np.unique(places(axis, index, start)))
    return index if found.equals(index) else found


def placed_covariates(axis: TimeAxis, table: Table, start: Any, rows: pd.Index) -> Table:
    """Covariates at the stamps of the grid: those given at the stamp of a row of y where there is one, otherwise those
    at the stamp nearest to the step. `rows` are the stamps of y as they came.
    """
    if isinstance(table.index, pd.DatetimeIndex) and table.index.tz is not None:
        # Days and months are those of the data, wherever the clock of the covariates hangs.
        table = Table(table.index.tz_convert(start.tz), table.values)
    units = _units(axis, table.index, start)
    place = np.round(units).astype(int)
    distance = np.abs(units - place) - np.isin(axis.numbers(table.index), axis.numbers(rows))
    order = np.lexsort((distance, place))
    keep = order[np.unique(place[order], return_index=True)[1]]
    return Table(axis.ahead(start, place[keep]), table.values[keep])


def filled(axis: TimeAxis, index: pd.Index, max_gap: float) -> tuple[pd.Index, Bool[np.ndarray, " M"]]:
    """With the steps of the grid that are not there, but for those in gaps above `max_gap` steps; which ones were.

    Rows that are there keep their stamps.
    """
    start = grid_start(axis, index)
    place = places(axis, index, start)
    if (np.diff(place) < 1).any():
        k = int(np.flatnonzero(np.diff(place) < 1)[0])
        raise DataError(
            f"several rows fall on one step of the grid, for example {index[k]} and {index[k + 1]}; fit with freq= to "
            "merge rows of one step, resample the series, or give a shorter freq."
        )
    inside = [np.arange(a + 1, b) for a, b in itertools.pairwise(place) if 1 < b - a <= max_gap]
    if not inside:
        return index, np.ones(len(index), bool)
    holes = np.concatenate(inside)
    order = np.argsort(np.concatenate([place, holes]))
    return index.append(axis.ahead(start, holes))[order], order < len(index)


def spread(values: Float[np.ndarray, "N D"], is_row: Bool[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
    """The rows at their places, NaN at all others."""
    found = np.full((len(is_row), values.shape[1]), np.nan)
    found[is_row] = values
    return found


def _units(axis: TimeAxis, index: pd.Index, start: Any) -> np.ndarray:
    return axis.units(index, float(axis.numbers(pd.Index([start]))[0]))


# --- rows -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Rows:
    """A series at stamps of the axis, its times in units of the model, NaN where a step has no row, and X there.

    `is_row` marks the steps that rows came for, `of_row` has the step of each row that came.
    """

    index: pd.Index
    times: Float[np.ndarray, " N"]
    values: Float[np.ndarray, "N D"]
    covariates: Float[np.ndarray, "N U"]
    is_row: Bool[np.ndarray, " N"]
    of_row: Int[np.ndarray, " M"]


def on_axis(
    axis: TimeAxis,
    panel: Panel,
    X: Panel | None,
    past: Mapping[Any, pd.Index],
    has_freq: bool,
    lags: Lags,
    longest_gap: float,
) -> dict[Any, Rows]:
    """Every series at the stamps of the axis: in the zone of the rows known so far, on the grid of `freq` if given, and
    with its holes as rows where there is a grid.

    `past` has the stamps known so far; a series that goes on stays on their grid. Rows of one step of the grid are
    merged cell by cell (`frames.merged`). Gaps above `longest_gap` units are
    not filled, and without `freq` nor lags that need it, nothing is where X would have to be known there.
    """
    is_filled = axis.is_regular and (memory_of(lags) > 1 or X is None or has_freq)
    for key, table in panel.tables.items():
        if past:
            check_same_kind(table.index, next(iter(past.values())), named("y", key), "the data of fit")
        source = source_of(key, X)
        if source is not None:
            check_same_kind(source.index, table.index, named("X", key), "y")
    found = {}
    for key, table in panel.tables.items():
        known, source = past.get(key), source_of(key, X)
        index: Any = table.index
        values, of_row = table.values, np.arange(len(index))
        if known is not None and isinstance(index, pd.DatetimeIndex) and index.tz is not None:
            index = index.tz_convert(known.tz)  # type: ignore[attr-defined]
        if known is not None and not has_freq:
            index = axis.as_known(index, known)
        if has_freq:
            start = grid_start(axis, index) if known is None else known[-1]
            source = None if source is None else placed_covariates(axis, source, start, index)
            place = places(axis, index, start)
            if (np.diff(place) == 0).any():
                values, of_row = merged(place, index, values, panel.columns, named("y", key))
            index = placed(axis, index, start)
        else:
            _require_step_days(axis, index, named("y", key))
            require_one_row_a_step(axis, index)
        is_row = np.ones(len(index), bool)
        if is_filled:
            # From the last known row on: a hole before new rows has covariates as any other.
            before = known[-1:] if known is not None and _is_ahead(axis, index, known[-1]) else index[:0]
            index, is_row = filled(axis, before.append(index), longest_gap)
            index, is_row = index[len(before) :], is_row[len(before) :]
        of_row, values = np.flatnonzero(is_row)[of_row], spread(values, is_row)
        covariates = np.zeros((len(index), 0)) if source is None else at_rows_of(axis, source, index, values)
        found[key] = Rows(index, axis.since_first(index), values, covariates, is_row, of_row)
    return found


def _is_ahead(axis: TimeAxis, index: pd.Index, end: Any) -> bool:
    """Whether all rows are whole steps after a stamp."""
    steps = _units(axis, index, end)
    return bool(steps[0] > 0.5 and np.abs(steps - np.round(steps)).max() < SAME_STEP)


def source_of(key: Any, X: Panel | None) -> Table | None:
    """The covariates of a series: its own, or those that all have in common."""
    if X is None:
        return None
    if key not in X.tables and ONLY not in X.tables:
        raise DataError(f"X has no rows for the series {key!r}.")
    return X.tables.get(key, X.tables.get(ONLY))


def at_rows_of(axis: TimeAxis, table: Table, index: pd.Index, values: Float[np.ndarray, "N D"]) -> np.ndarray:
    """The covariates at the rows of a series.

    A row without a value before the last one that has some, such as a hole of the grid, needs no covariates. Where
    there are none it has those of the next row, as the steps across a gap have those of the row where it ends.
    """
    has_value = ~np.isnan(values).all(axis=1)
    n_before = int(np.flatnonzero(has_value)[-1]) if has_value.any() else 0
    where = axis.places_of(index, table.index)
    is_known = (where >= 0) & ~np.isnan(table.values[where]).any(axis=1)
    is_free = ~is_known & ~has_value & (np.arange(len(index)) < n_before)
    keep = np.flatnonzero(~is_free)
    return at_stamps(axis, table, index[keep])[np.searchsorted(keep, np.arange(len(index)))]


def at_stamps(axis: TimeAxis, table: Table, index: pd.Index, name: str = "X") -> np.ndarray:
    """The rows of covariates at given stamps; they are known in advance, so none may be missing."""
    where = axis.places_of(index, table.index)
    if (where < 0).any():
        raise DataError(
            f"{name} has no row for {index[int(np.flatnonzero(where < 0)[0])]}; covariates must cover every stamp of y "
            f"and of the horizon (they reach from {table.index[0]} to {table.index[-1]})."
        )
    values = table.values[where]
    if np.isnan(values).any():
        row = int(np.argwhere(np.isnan(values))[0][0])
        raise DataError(f"{name} holds NaN at {index[row]}; covariates are known in advance: fill them first.")
    return values


def require_one_row_a_step(axis: TimeAxis, index: pd.Index) -> None:
    """Of steps that were inferred and hold many stamps, such as business days or months."""
    if axis.kind != "period":
        return
    is_same = np.diff(axis.numbers(index)) == 0.0
    if is_same.any():
        k = int(np.flatnonzero(is_same)[0])
        step = "business day" if axis.counts_business_days else f"step of freq_={axis.step_name!r}"
        raise DataError(
            f"two rows fall on one {step}: {index[k]} and {index[k + 1]}. The frequency was inferred from the "
            "stamps of fit, and each step has one row. To correct a known row, give it at its own stamp; to add "
            "rows, keep one for each step, or fit again: with freq= to merge rows of one step, or with a shorter freq."
        )


def _require_step_days(axis: TimeAxis, index: Any, name: str) -> None:
    """Of business days that were inferred."""
    is_off = ~axis.is_step_day(index)
    if is_off.any():
        stamp = index[is_off][0]
        what = f"a {stamp.strftime('%A')}" if stamp.dayofweek > 4 else "a day off"
        raise DataError(
            f"{name} holds {stamp}, {what}, but business days were inferred from the stamps of fit; fit with freq='D' "
            "if such days belong to the series, or with freq='B' to move such rows to the next business day."
        )


def named(name: str, key: Any) -> str:
    return name if key is ONLY else f"{name} of {key!r}"
