"""Files of series: one series or a panel (a long table with a column of ids), covariates and scenarios."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import WishartForecaster
from ..errors import DataError, OptionError
from ..series.data.frames import ONLY
from ..series.data.given import cells, of_series
from ..series.data.horizons import horizon
from ..series.data.times import TimeAxis
from .options import Reading, SeriesColumns
from .tables import check_columns, counted, guessed_time, listed, numbers, read_table, split_names, time_index
from .terminal import Terminal

STEPS = {"D": "1D", "h": "1h", "min": "1min"}
# Steps between two rows, in the median, from which on a step is said to be too short.
FAR_APART = 3.0
REMEDY = "leave the column out, by naming those you want with --series, or name it by --id if it tells series apart"


@dataclasses.dataclass(frozen=True)
class SeriesData:
    """Values of series, covariates of past and future rows, and the given values of a scenario.

    The index of a panel has the levels id and time.
    """

    y: pd.DataFrame | None
    X: pd.DataFrame | None = None
    given: pd.DataFrame | None = None

    @property
    def values(self) -> pd.DataFrame:
        """The values of the series, where a file of them was given."""
        if self.y is None:
            raise OptionError("no file of series was given; expected one.")
        return self.y

    @property
    def tables(self) -> dict[Any, pd.DataFrame]:
        """The values of each series by its id; a series that is no part of a panel has none."""
        return {} if self.y is None else parts(self.y)


def parts(frame: pd.DataFrame) -> dict[Any, pd.DataFrame]:
    """The rows of each id, in the order of the file; all rows where there is no id."""
    if not isinstance(frame.index, pd.MultiIndex):
        return {ONLY: frame}
    return {key: part.droplevel(0) for key, part in frame.groupby(level=0, sort=False)}


@dataclasses.dataclass(frozen=True)
class Source:
    """Where series come from: a file and its columns, a file of future covariates, and one of given values."""

    path: Path | None
    columns: SeriesColumns
    reading: Reading = dataclasses.field(default_factory=Reading)
    future: Path | None = None
    given: Path | None = None

    def read(self, terminal: Terminal, model: WishartForecaster | None = None) -> SeriesData:
        """The series, in order of time, with the columns of a model where there is one."""
        wanted = self.columns if model is None else _as_in(model, self.columns)
        y, X = (None, None) if self.path is None else self._rows(terminal, self.path, wanted, model is not None)
        names = list(wanted.covariates or []) if X is None else list(X.columns)
        if self.future is not None:
            if not names:
                raise OptionError("--future given without --covariates; name the columns that are known in advance.")
            later = self._table(terminal, self.future, wanted, names, "the covariate")
            if X is not None and y is not None:
                later = ordered(pd.concat([X[X.index.isin(y.index)], later[~later.index.isin(y.index)]]))
            X = later
        if X is not None:
            _check_known(X)
        series = None if y is None else list(y.columns)
        return SeriesData(y, X, None if self.given is None else self._scenario(terminal, wanted, series))

    def _rows(
        self, terminal: Terminal, path: Path, wanted: SeriesColumns, of_model: bool
    ) -> tuple[pd.DataFrame, pd.DataFrame | None]:
        """Values and covariates of the file; its last rows may hold covariates alone."""
        frame = read_table(path, self.reading)
        time = wanted.time or guessed_time(frame, path, wanted.date_format)
        known, named = (split_names(names, frame) for names in (wanted.covariates, wanted.series))
        _check_roles({"--time": [time], "--id": [wanted.id] if wanted.id else [], "--covariates": known}, named)
        check_columns(frame, named, path, "the model's series" if of_model else "--series")
        check_columns(frame, known, path, "the model's covariate" if of_model else "--covariates")
        series = named or [name for name in frame.columns if name not in {time, wanted.id, *known}]
        if not series:
            raise DataError(f"{str(path)!r} has no column except {time!r}; expected at least one column of numbers.")
        values = self._stamped(terminal, frame, path, wanted, time, [*series, *known])
        if not known:
            return values, None
        is_past = _up_to_last(values[series].notna().any(axis=1)).to_numpy(bool)
        if not is_past.any():
            raise DataError(f"no row of {str(path)!r} has a value of {listed(series)}; expected at least one.")
        if not is_past.all():
            n_future = int((~is_past).sum())
            terminal.note(f"{counted(n_future, 'row')} of {path} with covariates alone; taken as those of the horizon.")
        return values.loc[is_past, series], values[known]

    def _table(
        self, terminal: Terminal, path: Path, wanted: SeriesColumns, names: Sequence[str], what: str
    ) -> pd.DataFrame:
        """Some columns of another file, with its stamps and ids."""
        frame = read_table(path, self.reading)
        time = wanted.time or guessed_time(frame, path, wanted.date_format)
        check_columns(frame, names, path, what)
        return self._stamped(terminal, frame, path, wanted, time, names)

    def _scenario(self, terminal: Terminal, wanted: SeriesColumns, series: Sequence[str] | None) -> pd.DataFrame:
        """Given values of some series; of a panel for all of its series alike where the file has no ids."""
        path = Path(str(self.given))
        frame = read_table(path, self.reading)
        time = wanted.time or guessed_time(frame, path, wanted.date_format)
        own = wanted if wanted.id in frame.columns else dataclasses.replace(wanted, id=None)
        names = [name for name in frame.columns if name not in {time, own.id}]
        known = list(series or wanted.series or [])
        if not names:
            raise DataError(f"{str(path)!r} has no column except {time!r}; expected some of {listed(known)}.")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise DataError(
                f"{str(path)!r} gives values of {unknown[0]!r}; expected some of the series {listed(known)}."
            )
        return self._stamped(terminal, frame, path, own, time, names)

    def _stamped(
        self,
        terminal: Terminal,
        frame: pd.DataFrame,
        path: Path,
        wanted: SeriesColumns,
        time: str,
        names: Sequence[str],
    ) -> pd.DataFrame:
        """Columns as numbers with stamps, and ids, as the index; the rows of each id in order of time."""
        check_columns(frame, [time], path, "--time")
        ids = [] if wanted.id is None else [wanted.id]
        check_columns(frame, ids, path, "--id")
        if ids and frame[ids[0]].isna().any():
            row = int(np.flatnonzero(frame[ids[0]].isna())[0])
            raise DataError(
                f"the id {ids[0]!r} of {str(path)!r} is empty in line {row + 2}; name the series, or remove it."
            )
        values = numbers(frame, names, path, REMEDY)
        stamps = time_index(frame, time, path, wanted.date_format)
        values.index = stamps if not ids else pd.MultiIndex.from_arrays([frame[ids[0]], stamps], names=[ids[0], time])
        if not all(part.index.is_monotonic_increasing for part in parts(values).values()):
            terminal.note(f"Note: the rows of {path} were not in order of time; they were sorted by {time!r}.")
        return ordered(values)


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of each id in order of time, ids as they came."""
    times = pd.factorize(frame.index.get_level_values(-1), sort=True)[0]
    ids = pd.factorize(frame.index.get_level_values(0))[0] if frame.index.nlevels > 1 else np.zeros_like(times)
    return frame.iloc[np.lexsort((times, ids))]


def _check_roles(others: dict[str, list[str]], series: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for option, names in {**others, "--series": list(series)}.items():
        for name in names:
            if name in seen:
                raise OptionError(f"{name!r} is named by {seen[name]} and by {option}; name it once.")
            seen[name] = option


def _up_to_last(is_there: pd.Series) -> pd.Series:
    """Which rows are not after the last true one, of each id."""
    back = is_there[::-1]
    groups = back.groupby(level=0, sort=False) if isinstance(back.index, pd.MultiIndex) else back
    return groups.cummax()[::-1]


def _check_known(X: pd.DataFrame) -> None:
    holes = X.isna()
    if holes.any(axis=None):
        row, column = np.argwhere(holes.to_numpy())[0]
        raise DataError(
            f"the covariate {X.columns[column]!r} is empty at {_shown(X.index[row])}; covariates are known in advance: "
            "fill the cell, or leave the column out."
        )


def _shown(stamp: Any) -> str:
    """A stamp, or an id and a stamp, in words."""
    return f"{stamp[1]} of {stamp[0]!r}" if isinstance(stamp, tuple) else str(stamp)


# --- beside a model --------------------------------------------------------------------------


def _as_in(model: WishartForecaster, columns: SeriesColumns) -> SeriesColumns:
    """The columns of a model; what was named must agree with them."""
    units = model.units_
    if columns.id is not None and not model.is_panel_:
        raise OptionError(f"--id {columns.id!r} given, but the model was fitted to one series; leave --id out.")
    name = columns.id or (units.index_names[0] if model.is_panel_ else None)
    if model.is_panel_ and name is None:
        raise OptionError("the model was fitted to a panel; name the column of the ids with --id.")
    series, known = (
        [str(c) for c in model.columns_],
        [str(c) for c in ([] if units.x_columns is None else units.x_columns)],
    )
    for option, given, own in (("--series", columns.series, series), ("--covariates", columns.covariates, known)):
        if given and set(given) != set(own) and set(",".join(given).split(",")) != set(own):
            fitted = f"fitted to {listed(own)}" if own else "fitted without"
            raise OptionError(f"{option} {','.join(given)} given, but the model was {fitted}; leave {option} out.")
    return dataclasses.replace(columns, id=name, series=series, covariates=known)


def check_matches(model: WishartForecaster, y: pd.DataFrame) -> None:
    """The stamps of a file must be of the kind of those of the model."""
    end, index = model.end_, y.index.get_level_values(-1)
    if isinstance(index, pd.DatetimeIndex) != isinstance(end, pd.Timestamp):
        raise DataError(f"the stamps of the file have type {index.dtype}; expected {type(end).__name__}, as fitted.")
    zone = getattr(end, "tzinfo", None)
    if isinstance(index, pd.DatetimeIndex) and (index.tz is None) != (zone is None):
        raise DataError(f"the stamps of the file have the zone {index.tz}; the model expects the zone {zone}.")


def check_has_future(model: WishartForecaster, data: SeriesData) -> None:
    """A model with covariates needs those of the horizon."""
    if model.units_.x_columns is not None and data.X is None:
        names = listed(model.units_.x_columns)
        raise OptionError(f"the model has the covariates {names}; name a file of their future rows with --future.")


# --- before a fit ----------------------------------------------------------------------------


def number_or_name(freq: str | None) -> float | str | None:
    """A step of numeric stamps, or a frequency of pandas."""
    try:
        return None if freq is None else float(freq)
    except ValueError:
        return freq


def check_regular(data: SeriesData, freq: str | None) -> TimeAxis | None:
    """Horizons count steps: without a regular grid they have no length. Returns the axis where it is known."""
    indices = [table.index.drop_duplicates() for table in data.tables.values()]
    if max(map(len, indices)) <= 2:
        return None
    if freq is not None:
        _warn_of_short_steps(indices, freq)
        return TimeAxis.of(indices, number_or_name(freq))
    axis = TimeAxis.of(indices)
    if not axis.is_regular:
        length = axis.unit if axis.kind == "number" else pd.Timedelta(round(axis.unit), unit="ns")
        raise OptionError(
            f"the stamps are irregular (median gap {length}), so the length of a step is unknown; give it with "
            f"--freq, such as --freq {_example_of(axis)}."
        )
    return axis


def _warn_of_short_steps(indices: list[pd.Index], freq: str) -> None:
    """Nearly all rows of such a grid would have no value, and what is filled in there can grow without bound."""
    if not isinstance(indices[0], pd.DatetimeIndex):
        return
    gap = float(np.median(np.concatenate([TimeAxis.of([index], freq).gaps(index) for index in indices])))
    if gap >= FAR_APART:
        warnings.warn(
            f"--freq {freq} is much shorter than the gaps between rows (median {gap:.0f} steps), so most steps have no "
            "value, and forecasts can be unusable; leave --freq out, or give a step near the usual gap.",
            stacklevel=3,
        )


def _example_of(axis: TimeAxis) -> str:
    """A step that is no longer than the median gap."""
    if axis.kind == "number":
        return "1"
    gap = pd.Timedelta(round(axis.unit), unit="ns")
    return next((name for name, length in STEPS.items() if gap >= pd.Timedelta(length)), "s")


def check_horizon(data: SeriesData, axis: TimeAxis | None, fh: int | str) -> None:
    """Covariates and given values belong to the horizon; found before the fit, where the grid is known."""
    if axis is None or data.y is None:
        return
    known = {} if data.X is None else parts(data.X)
    scenarios = of_series(data.given, list(data.tables))
    for key, table in data.tables.items():
        stamps = horizon(axis, fh, table.index[-1])
        last = known[key].index[-1] if key in known else None
        # A row that is less than half a step early has the covariates of the step.
        if last is not None and np.diff(axis.numbers(pd.Index([last, stamps[-1]])))[0] > 0.499 * axis.unit:
            of_key = "" if key is ONLY else f" of {key!r}"
            raise DataError(
                f"the covariates{of_key} end at {last}, the forecast at {stamps[-1]}; add rows with covariates alone "
                "to the file, or name a file of them with --future."
            )
        cells(scenarios[key], key, axis, stamps, table.columns)
