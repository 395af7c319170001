"""Between the frames of a user and the numbers of a model: transforms, scales, time in units, covariates, the grid."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...errors import DataError, NumericalError, OptionError
from ...numerics.scaling import Scaler
from ..specs import Lags, memory_of
from ..windows import Series, Ticks, n_substeps, to_ticks
from .calendar import n_products, with_harmonics
from .frames import Panel, Table, with_columns
from .times import (
    SAME_STEP,
    TimeAxis,
    at_stamps,
    check_same_kind,
    filled,
    named,
    placed_covariates,
    require_one_row_a_step,
    source_of,
    spread,
)
from .transforms import ColumnTransforms
from .unstamped import at_rows, following

# Rows that are kept to start forecasts from: the belief forgets what is older.
TAIL = 96
LONGEST_TAIL = 2000


@dataclasses.dataclass(frozen=True)
class Tail(Series):
    """Rows of a series in model units, and their stamps; forecasts condition on the last of them."""

    index: pd.Index


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
    # Of the levels of the index of y, the time being the last one; files of older versions have none.
    index_names: tuple[Any, ...] = (None,)
    # Level and scale of each series of a panel, in place of `y_scaler`.
    effects: Mapping[Any, Scaler] = dataclasses.field(default_factory=dict)
    # Those of them that came by `update`: their levels and scales follow their rows until the next fit.
    added: tuple[Any, ...] = ()

    @property
    def n_linear(self) -> int:
        """How many of the covariates, the last ones, are for the linear drift alone."""
        return n_products(self.periods)

    @property
    def has_older_lags(self) -> bool:
        return memory_of(self.lags) > 1

    # --- values ---

    def of_series(self, key: Any) -> Units:
        """The units of one series: its own level and scale, or those of all series where it has none."""
        scaler = self.effects.get(key)
        return self if scaler is None else dataclasses.replace(self, y_scaler=scaler, effects={})

    def inverse_each(self, keys: Sequence[Any], z: np.ndarray) -> np.ndarray:
        """Values (…, N, H, P) of N series given by their keys, in the units of y."""
        if not self.effects:
            return self.inverse(z)
        scalers = [self.of_series(key).y_scaler for key in keys]
        mean, scale = (np.stack([getattr(s, name) for s in scalers])[:, None] for name in ("mean", "scale"))
        return self.transforms.inverse(z * scale + mean)

    def in_common(self, tails: Mapping[Any, Tail]) -> list[Series]:
        """The series in the units that all have in common."""
        found: list[Series] = []
        for key, tail in tails.items():
            own = self.of_series(key).y_scaler
            found.append(dataclasses.replace(tail, values=self.y_scaler.forward(own.inverse(tail.values))))
        return found

    def from_common(self, key: Any, z: np.ndarray) -> np.ndarray:
        """Values in the units that all series have in common, in those of one of them."""
        return self.of_series(key).y_scaler.forward(self.y_scaler.inverse(z)) if key in self.effects else z

    def forward(self, y: np.ndarray) -> np.ndarray:
        """Model units of values in the support of the transforms, or missing."""
        return self.y_scaler.forward(self.transforms.forward(y))

    def inverse(self, z: np.ndarray) -> np.ndarray:
        return self.transforms.inverse(self.y_scaler.inverse(z))

    def draws(self, z: np.ndarray) -> np.ndarray:
        """Draws of the model in the units of y; a transformer must give each of them a value."""
        if not np.isfinite(z).all():
            raise NumericalError(
                f"{int((~np.isfinite(z)).sum())} of {z.size} drawn values are not finite: paths grow beyond all "
                "numbers before the end of the horizon, as those of a linear drift from few rows can. Ask for a nearer "
                "one, keep paths near the data with limits=0, or fit to more rows."
            )
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
        for table in with_columns(panel, self.columns, "y").tables.values():
            self.transforms.check_data(table.values, self.columns)

    # --- rows ---

    def covariates(self, X: Panel | None) -> Panel | None:
        """Covariates with the columns of fit in their order; given if, and only if, they were then."""
        if (X is None) != (self.x_columns is None):
            came, expected = ("no X", "one with") if X is None else ("an X", "none; it was fitted without")
            raise DataError(f"{came} was given; the forecaster expects {expected} covariates, as in fit.")
        return X if X is None or self.x_columns is None else with_columns(X, self.x_columns, "X")

    def following(self, panel: Panel, past: Mapping[Any, Tail]) -> Panel:
        """Further rows of y with stamps: those of arrays follow the last row of their series."""
        ends = {key: tail.index[-1] for key, tail in past.items()}
        return following(panel, self.axis, ends, self.columns, self.index_names[-1])

    def rows(self, tail: Tail, keep: Any) -> Tail:
        """Some rows of a series; times are counted from the first of them."""
        index = tail.index[keep]
        return Tail(self.axis.since_first(index), tail.values[keep], tail.covariates[keep], index)

    def last_rows(self, tail: Tail) -> Tail:
        """What forecasts start from: `TAIL` rows, more where lags are long (the belief about them needs a past too)."""
        n_least, n = max(TAIL, memory_of(self.lags) + TAIL // 2), len(tail)
        is_there = ~np.isnan(tail.values)
        # As many more as hold the last value of every column (up to `LONGEST_TAIL`).
        last = np.where(is_there.any(axis=0), n - 1 - is_there[::-1].argmax(axis=0), n - 1)
        start = max(min(n - n_least, int(last.min())), n - max(LONGEST_TAIL, n_least), 0)
        if not is_there[start:].any() and is_there.any():
            start = int(np.flatnonzero(is_there.any(axis=1))[-1])
        return self.rows(tail, slice(start, None))

    def joined(self, past: Tail, new: Tail) -> Tail:
        """Past and new rows in order. Where both have a stamp a new number wins, and a NaN leaves what was known.

        Holes of the grid are filled with NaN.
        """
        new = dataclasses.replace(new, index=self.axis.as_known(new.index, past.index))
        keep = ~past.index.isin(new.index)
        known = np.concatenate([past.values, np.full((1, past.values.shape[1]), np.nan)])
        arrived = np.where(np.isnan(new.values), known[past.index.get_indexer(new.index)], new.values)
        index = past.index[keep].append(new.index)
        order = np.argsort(self.axis.numbers(index), kind="stable")
        index = index[order]
        if not self.has_freq:
            require_one_row_a_step(self.axis, index)
        values = np.concatenate([past.values[keep], arrived])[order]
        covariates = np.concatenate([past.covariates[keep], new.covariates])[order]
        if self.has_older_lags:
            index, is_row = filled(self.axis, index, self.max_gap * self.step)
            # Rows that never came have the covariates of the next row, as in fit, and their own calendar.
            following_row = np.searchsorted(np.flatnonzero(is_row), np.arange(len(is_row)))
            known = covariates[following_row, : 0 if self.x_columns is None else len(self.x_columns)]
            values, covariates = spread(values, is_row), with_harmonics(known, index, self.periods)
        return Tail(self.axis.since_first(index), values, covariates, index)

    # --- time ---

    def ticks(self, tail: Tail) -> list[Ticks]:
        return to_ticks(tail, self.step, self.lags, self.max_gap)

    def last_ticks(self, key: Any, tail: Tail) -> Ticks:
        """The last stretch without a long gap, which forecasts start from."""
        pieces = self.ticks(tail)
        if not pieces:
            raise DataError(
                f"the series {key!r} has no value yet, so that no forecast can start from it; give it rows with values "
                "by update."
            )
        return pieces[-1]

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
        gaps = self.axis.gaps(tail.index[last : last + 1].append(stamps))
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
        if self.axis.is_regular and bool(np.abs(ahead - np.round(ahead)).max() < SAME_STEP):
            place = np.round(ahead).astype(int) - 1
            passed = self.axis.ahead(tail.index[-1], np.arange(1, max(place.max(), 0) + 2))
            self._require_steps(passed, place, index)
            index = passed
        elif self.has_older_lags:
            raise OptionError("fh holds stamps off the grid; with lags above 1 a forecast goes from step to step.")
        source = source_of(key, X)
        if source is not None:
            has_stamps = source.has_stamps
            said, is_numbered = "the way to the end of the horizon has {n} steps", self.axis.unit == 1.0
            source = at_rows(source, index, named("X", key), said, is_numbered)
            check_same_kind(source.index, tail.index, named("X", key), "the data of fit")
            if self.has_freq and has_stamps:
                source = placed_covariates(self.axis, source, tail.index[-1], tail.index[:0])
        known = np.zeros((len(index), 0))
        if source is not None and self.x_scaler is not None:
            known = self.x_scaler.forward(at_stamps(self.axis, source, index))
        return Table(index, with_harmonics(known, index, self.periods)), place

    def _require_steps(self, passed: pd.Index, place: np.ndarray, index: pd.Index) -> None:
        """The stamps asked for are steps: a month holds many days, and one of them alone is the stamp of its step."""
        found = self.axis.places_of(index, passed) if self.axis.kind == "period" else place
        is_step = (place >= 0) & (found == place)
        if not is_step.all():
            raise OptionError(
                f"fh holds {index[~is_step][0]}, which is no step after the end of the data; the first step is "
                f"{passed[0]}: pass such stamps, or whole numbers of steps."
            )
