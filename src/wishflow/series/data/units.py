"""Between the frames of a user and the numbers of a model: transforms, scales, time in units, covariates, the grid."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from ...errors import DataError, OptionError
from ...numerics.scaling import Scaler
from ..specs import DynamicsSpec, Lags, memory_of
from ..windows import Series, Ticks, n_substeps, to_ticks
from .calendar import chosen_periods, harmonics, n_products, seconds
from .frames import ONLY, Panel, Table, align, at_stamps
from .grid import filled, grid_start, placed, placed_covariates
from .times import TimeAxis, check_same_kind
from .transforms import ColumnTransforms, typical_values

# Rows that are kept to start forecasts from: the belief forgets what is older.
TAIL = 96
LONGEST_TAIL = 2000


@dataclasses.dataclass(frozen=True)
class Tail:
    """Rows of a series in model units: what forecasts condition on."""

    index: pd.Index
    values: np.ndarray
    covariates: np.ndarray

    def rows(self, keep: Any) -> Tail:
        return Tail(self.index[keep], self.values[keep], self.covariates[keep])

    def last_rows(self, n_least: int) -> Tail:
        """The last `n_least` rows, or as many more as hold the last value of every column (up to `LONGEST_TAIL`)."""
        n = len(self.index)
        is_there = ~np.isnan(self.values)
        last = np.where(is_there.any(axis=0), n - 1 - is_there[::-1].argmax(axis=0), n - 1)
        start = max(min(n - n_least, int(last.min())), n - max(LONGEST_TAIL, n_least), 0)
        if not is_there[start:].any() and is_there.any():
            start = int(np.flatnonzero(is_there.any(axis=1))[-1])
        return self.rows(slice(start, None))


@dataclasses.dataclass(frozen=True)
class Units:
    """What was learnt of the frames: all that is needed to go to model units and back."""

    columns: pd.Index
    axis: TimeAxis
    transforms: ColumnTransforms
    y_scaler: Scaler
    x_columns: pd.Index | None
    x_scaler: Scaler | None
    periods: tuple[str, ...]
    has_freq: bool
    step: float
    lags: Lags
    max_gap: float

    @classmethod
    def of(
        cls, panel: Panel, X: Panel | None, spec: DynamicsSpec, transform: Any, calendar: bool | str, freq: Any
    ) -> Units:
        """Scales of the training data; axis and calendar of its stamps."""
        indices = [table.index for table in panel.tables.values()]
        axis = TimeAxis.of(indices, freq)
        _check_kinds(panel, X, {})
        if freq is not None:
            panel, X = _on_grids(axis, panel, X, {})
        values = np.concatenate([t.values for t in panel.tables.values()])
        transforms = ColumnTransforms.of(transform, panel.columns, typical_values(values))
        transforms.check_data(values, panel.columns)
        z = transforms.forward(values)
        transforms.check_objects(z, panel.columns)
        periods: tuple[str, ...] = ()
        if calendar:
            gap = axis.unit / 1e9 if axis.kind == "datetime" else float(np.median(np.diff(seconds(indices[0]))))
            periods = chosen_periods(indices, gap, calendar == "seasonal")
        return cls(
            panel.columns,
            axis,
            transforms,
            Scaler(np.nanmean(z, axis=0), np.nanstd(z, axis=0)),
            None if X is None else X.columns,
            None if X is None else Scaler.of(np.concatenate(list(align(X, panel).values())), "X"),
            periods,
            freq is not None,
            spec.step,
            spec.lags,
            spec.max_gap,
        )

    @property
    def n_linear(self) -> int:
        """How many of the covariates, the last ones, are for the linear drift alone."""
        return n_products(self.periods)

    @property
    def has_older_lags(self) -> bool:
        return memory_of(self.lags) > 1

    # --- values ---

    def forward(self, y: np.ndarray) -> np.ndarray:
        """Model units of values in the support of the transforms, or missing."""
        return self.y_scaler.forward(self.transforms.forward(y))

    def inverse(self, z: np.ndarray) -> np.ndarray:
        return self.transforms.inverse(self.y_scaler.inverse(z))

    def draws(self, z: np.ndarray) -> np.ndarray:
        """Draws of the model in the units of y; a transformer must give each of them a value."""
        y = self.inverse(z)
        for d, choice in enumerate(self.transforms.choices):
            n_bad = int((np.isfinite(z[..., d]) & ~np.isfinite(y[..., d])).sum())
            if n_bad:
                raise DataError(
                    f"{n_bad} of {z[..., d].size} draws of {self.columns[d]!r} have no finite value: the inverse of "
                    f"its transform {choice!r} does not take all numbers. Use one that does ('log', 'asinh', "
                    "Yeo-Johnson), or keep paths near the data with limits=0."
                )
        return y

    def slope(self, y: np.ndarray) -> np.ndarray:
        """dy/dz."""
        return self.y_scaler.scale / self.transforms.slope(y)

    def log_jacobian(self, y: np.ndarray) -> np.ndarray:
        """log |dz/dy|, summed over the entries that are there."""
        with np.errstate(divide="ignore"):
            slopes = np.log(np.abs(self.transforms.slope(y)) / self.y_scaler.scale)
        is_there = ~np.isnan(y)
        if np.isnan(slopes[is_there]).any():
            row = tuple(np.argwhere(is_there & np.isnan(slopes))[0])
            raise DataError(
                f"the transform of {self.columns[row[-1]]!r} has no slope at {y[row]:g}, so there is no density there; "
                "use one that is smooth."
            )
        return np.sum(np.where(is_there, slopes, 0.0), axis=-1)

    def check_data(self, panel: Panel) -> None:
        """Rows to condition on are of the kind that the transforms take."""
        for table in panel.tables.values():
            self.transforms.check_data(table.values, self.columns)

    def _check_support(self, values: np.ndarray) -> None:
        bad = np.argwhere(~self.transforms.is_supported(values))
        if len(bad):
            row, d = bad[0]
            part, choice = self.transforms.parts[d], self.transforms.choices[d]
            raise DataError(
                f"the series {self.columns[d]!r} holds {values[row, d]:g}; its transform {choice!r} takes values above "
                f"{part.bound:g}."
            )

    # --- rows ---

    def on_axis(
        self, panel: Panel, X: Panel | None, past: Mapping[Any, Tail] = MappingProxyType({})
    ) -> tuple[Panel, Panel | None]:
        """y and X at the stamps of the axis: in the zone of the rows known so far, and on the grid of `freq` if given.

        A series that goes on stays on the grid of its past. The rows keep their order and their number.
        """
        _check_kinds(panel, X, past)
        tables = {key: _in_zone(table, past.get(key)) for key, table in panel.tables.items()}
        panel = dataclasses.replace(panel, tables=tables)
        if self.axis.counts_business_days and not self.has_freq:
            for key, table in tables.items():
                _require_weekdays(table.index, _named("y", key))
        return _on_grids(self.axis, panel, X, past) if self.has_freq else (panel, X)

    def tails(self, panel: Panel, X: Panel | None) -> dict[Any, Tail]:
        """Scaled values and covariates, on a grid where one is needed; y and X are at stamps of the axis."""
        if not panel.columns.equals(self.columns):
            raise DataError(f"y has columns {list(panel.columns)}; fit saw {list(self.columns)}.")
        self.check_covariates(X)
        return {key: self._tail(key, table, X) for key, table in panel.tables.items()}

    def check_covariates(self, X: Panel | None) -> None:
        if (X is None) != (self.x_columns is None):
            came, expected = ("no X", "one with") if X is None else ("an X", "none; it was fitted without")
            raise DataError(f"{came} was given; the forecaster expects {expected} covariates, as in fit.")
        if X is not None and self.x_columns is not None and not X.columns.equals(self.x_columns):
            raise DataError(f"X has columns {list(X.columns)}; fit saw {list(self.x_columns)}.")

    def _tail(self, key: Any, table: Table, X: Panel | None) -> Tail:
        self._require_one_row_a_step(table.index)
        if self.axis.is_regular and (self.has_older_lags or X is None or self.has_freq):
            table = filled(self.axis, table, self.max_gap * self.step)
        self._check_support(table.values)
        return Tail(table.index, self.forward(table.values), self._covariates(table.index, _source(key, X)))

    def _covariates(self, index: pd.Index, source: Table | None) -> np.ndarray:
        parts = [harmonics(index, self.periods)]
        if source is not None and self.x_scaler is not None:
            parts.insert(0, self.x_scaler.forward(at_stamps(source, index)))
        return np.concatenate(parts, axis=1)

    def last_rows(self, tail: Tail) -> Tail:
        """What forecasts start from: `TAIL` rows, more where lags are long (the belief about them needs a past too)."""
        return tail.last_rows(max(TAIL, memory_of(self.lags) + TAIL // 2))

    def joined(self, past: Tail, new: Tail) -> Tail:
        """Past and new rows in order. Where both have a stamp a new number wins, and a NaN leaves what was known.

        Holes of the grid are filled with NaN.
        """
        keep = ~past.index.isin(new.index)
        known = np.concatenate([past.values, np.full((1, past.values.shape[1]), np.nan)])
        arrived = np.where(np.isnan(new.values), known[past.index.get_indexer(new.index)], new.values)
        index = past.index[keep].append(new.index)
        order = np.argsort(self.axis.numbers(index), kind="stable")
        index = index[order]
        self._require_one_row_a_step(index)
        values = np.concatenate([past.values[keep], arrived])[order]
        covariates = np.concatenate([past.covariates[keep], new.covariates])[order]
        if not self.has_older_lags:
            return Tail(index, values, covariates)
        table = filled(self.axis, Table(index, values), self.max_gap * self.step)
        if len(table) == len(index):
            return Tail(index, values, covariates)
        # The covariates of rows that never came are those of the row before them.
        before = np.maximum(index.searchsorted(table.index, side="right") - 1, 0)
        return Tail(table.index, table.values, covariates[before])

    def _require_one_row_a_step(self, index: pd.Index) -> None:
        """Of steps that were inferred and hold many stamps, such as business days or months; with `freq` rows are
        placed on the grid.
        """
        if self.has_freq or self.axis.kind != "period":
            return
        is_same = np.diff(self.axis.numbers(index)) == 0.0
        if is_same.any():
            k = int(np.flatnonzero(is_same)[0])
            step = "business day" if self.axis.counts_business_days else f"step of freq_={self.axis.step_name!r}"
            raise DataError(
                f"two rows fall on one {step}: {index[k]} and {index[k + 1]}. The frequency was inferred from the "
                "stamps of fit, and each step has one row. To correct a known row, give it at its own stamp; to add "
                "rows, keep one for each step, or fit again with a shorter freq."
            )

    # --- time ---

    def series(self, tail: Tail) -> Series:
        return Series(self._ahead(tail.index[:1], tail.index), tail.values, tail.covariates)

    def ticks(self, tail: Tail) -> list[Ticks]:
        return to_ticks(self.series(tail), self.step, self.lags, self.max_gap)

    def _ahead(self, start: pd.Index, index: pd.Index) -> np.ndarray:
        return self.axis.units(index, float(self.axis.numbers(start)[0]))

    def future_ticks(
        self, key: Any, tail: Tail, last: int, index: pd.Index, X: Panel | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ticks from row `last`, the last one with an entry, to the end of the horizon: lengths, covariates, the one at
        each stamp of the horizon.

        Rows without entries at the end of the data are on the way.
        """
        future, place = self._on_the_way(key, tail, index, X)
        stamps = tail.index[last + 1 :].append(future.index)
        covariates = np.concatenate([tail.covariates[last + 1 :], future.values])
        gaps = np.diff(np.concatenate([[0.0], self._ahead(tail.index[last : last + 1], stamps)]))
        counts = n_substeps(gaps, self.step)
        owner = np.repeat(np.arange(len(stamps)), counts)
        ends = np.cumsum(counts) - 1
        n_empty = len(stamps) - len(future)
        return (gaps / counts)[owner], covariates[owner], ends[n_empty + place]

    def _on_the_way(self, key: Any, tail: Tail, index: pd.Index, X: Panel | None) -> tuple[Table, np.ndarray]:
        """Stamps the forecast passes on its way, every grid step where there is a grid, and the covariates there; the
        places of those that were asked for among them.
        """
        ahead = self._ahead(tail.index[-1:], index)
        place = np.arange(len(index))
        if self.axis.is_regular and bool(np.abs(ahead - np.round(ahead)).max() < 1e-3):
            place = np.round(ahead).astype(int) - 1
            passed = self.axis.ahead(tail.index[-1], np.arange(1, max(place.max(), 0) + 2))
            self._require_steps(passed, place, index)
            index = passed
        elif self.has_older_lags:
            raise OptionError("fh holds stamps off the grid; with lags above 1 a forecast goes from step to step.")
        source = _source(key, X)
        if source is not None:
            check_same_kind(source.index, tail.index, _named("X", key), "the data of fit")
            if self.has_freq:
                source = placed_covariates(self.axis, source, tail.index[-1], tail.index[:0])
        return Table(index, self._covariates(index, source)), place

    def _require_steps(self, passed: pd.Index, place: np.ndarray, index: pd.Index) -> None:
        """The stamps asked for are steps: a month holds many days, and one of them alone is the stamp of its step."""
        found = passed.get_indexer(index) if self.axis.kind == "period" else place
        is_step = (place >= 0) & (found == place)
        if not is_step.all():
            raise OptionError(
                f"fh holds {index[~is_step][0]}, which is no step after the end of the data; the first step is "
                f"{passed[0]}: pass such stamps, or whole numbers of steps."
            )


def _on_grids(axis: TimeAxis, panel: Panel, X: Panel | None, past: Mapping[Any, Tail]) -> tuple[Panel, Panel | None]:
    """Every series on its grid, and for each the covariates there."""
    tables, covariates = {}, {}
    for key, table in panel.tables.items():
        start = past[key].index[-1] if key in past else grid_start(axis, table.index)
        tables[key] = placed(axis, table, start)
        source = _source(key, X)
        if source is not None:
            covariates[key] = placed_covariates(axis, source, start, table.index)
    on_grid = None if X is None else dataclasses.replace(X, tables=covariates)
    return dataclasses.replace(panel, tables=tables), on_grid


def _check_kinds(panel: Panel, X: Panel | None, past: Mapping[Any, Tail]) -> None:
    """y has stamps of the kind of those seen so far, and X of the kind of y."""
    for key, table in panel.tables.items():
        if past:
            check_same_kind(table.index, next(iter(past.values())).index, _named("y", key), "the data of fit")
        source = _source(key, X)
        if source is not None:
            check_same_kind(source.index, table.index, _named("X", key), "y")


def _require_weekdays(index: pd.Index, name: str) -> None:
    is_weekend = index.dayofweek > 4  # type: ignore[attr-defined]
    if is_weekend.any():
        stamp = index[is_weekend][0]
        raise DataError(
            f"{name} holds {stamp}, a {stamp.strftime('%A')}, but business days were inferred from the stamps of fit; "
            "fit with freq='D' if weekends belong to the series, or with freq='B' to move such rows to the next "
            "business day."
        )


def _source(key: Any, X: Panel | None) -> Table | None:
    """The covariates of a series: its own, or those that all have in common."""
    if X is None:
        return None
    if key not in X.tables and ONLY not in X.tables:
        raise DataError(f"X has no rows for the series {key!r}.")
    return X.tables.get(key, X.tables.get(ONLY))


def _in_zone(table: Table, past: Tail | None) -> Table:
    """With the stamps in the zone of those known so far."""
    index: Any = table.index
    if past is None or not isinstance(index, pd.DatetimeIndex) or index.tz is None:
        return table
    return Table(index.tz_convert(past.index.tz), table.values)  # type: ignore[attr-defined]


def _named(name: str, key: Any) -> str:
    return name if key is ONLY else f"{name} of {key!r}"
