"""Frames in: one series, a panel (MultiIndex or dict) or an array, with what is needed to give frames back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ...errors import DataError
from ..specs import Lags, memory_of

ONLY = None  # the key of a series that is no part of a panel
# Whole years whose nanoseconds fit into 64 bits.
FIRST_YEAR, LAST_YEAR = 1678, 2261


@dataclasses.dataclass(frozen=True)
class Table:
    """Stamps and values of one series; rows of an array have no stamps of their own, and are numbered from 0.

    `n_merged` is how many rows went into others of the same stamp.
    """

    index: pd.Index
    values: np.ndarray
    has_stamps: bool = True
    n_merged: int = 0

    def __len__(self) -> int:
        return len(self.index)


@dataclasses.dataclass(frozen=True)
class Panel:
    """All series by key, the names of their columns, and the form they came in.

    `names` are those of the levels of the index: the time alone, or ids and then the time.
    """

    tables: dict[Any, Table]
    columns: pd.Index
    is_series: bool
    is_panel: bool
    names: tuple[Any, ...] = (None,)


def read(data: Any, name: str) -> Panel:
    """A Series, DataFrame (also with an (id, time) MultiIndex), array, or dict of frames."""
    if isinstance(data, Panel):
        return data
    if isinstance(data, dict):
        if not data:
            raise DataError(f"{name} is an empty dict; expected one frame for each series.")
        parts = {key: read(frame, f"{name}[{key!r}]") for key, frame in data.items()}
        first = next(iter(parts.values()))
        nested = [key for key, part in parts.items() if part.is_panel]
        if nested:
            raise DataError(f"{name}[{nested[0]!r}] is a panel itself; expected one series for each key of a dict.")
        tables = {
            key: with_columns(part, first.columns, f"{name}[{key!r}]", "the first one has").tables[ONLY]
            for key, part in parts.items()
        }
        return Panel(tables, first.columns, first.is_series, True, (*_id_names(parts), *first.names))
    frame, is_series = _frame(data, name)
    if not len(frame):
        raise DataError(f"{name} has no rows; expected at least one.")
    if isinstance(frame.index, pd.MultiIndex):
        levels: list[Any] = list(range(frame.index.nlevels - 1))
        groups = frame.groupby(level=levels if len(levels) > 1 else 0, sort=False)
        tables = {key: _table(part.droplevel(levels), f"{name} of {key!r}") for key, part in groups}
        return Panel(tables, frame.columns, is_series, True, tuple(frame.index.names))
    table = dataclasses.replace(_table(frame, name), has_stamps=not isinstance(data, np.ndarray))
    return Panel({ONLY: table}, frame.columns, is_series, False, (frame.index.name,))


def _id_names(parts: dict[Any, Any]) -> tuple[None, ...]:
    """A dict has no names for the levels of its keys."""
    first = next(iter(parts))
    return (None,) * (len(first) if isinstance(first, tuple) else 1)


def named_as(given: tuple[Any, ...], known: tuple[Any, ...]) -> list[Any]:
    """Names of the levels of an index: those that were given, elsewhere those of fit (a dict names no level)."""
    if len(given) != len(known):
        return list(given)
    return [new if new is not None else old for new, old in zip(given, known, strict=True)]


def with_columns(panel: Panel, columns: pd.Index, name: str, whose: str = "fit saw") -> Panel:
    """The panel with these columns in this order: columns are found by their names, whatever their order.

    Those of an array have no names, and neither may that of a Series: they are the ones that are expected, in order.
    """
    if panel.columns.equals(columns):
        return panel
    has_names = any(table.has_stamps for table in panel.tables.values())
    is_unnamed = not has_names or (panel.is_series and panel.columns[0] == 0)
    is_same = is_unnamed and len(panel.columns) == len(columns)
    order = np.arange(len(columns)) if is_same else column_order(panel.columns, columns, name, whose)
    tables = {key: dataclasses.replace(table, values=table.values[:, order]) for key, table in panel.tables.items()}
    return dataclasses.replace(panel, tables=tables, columns=columns)


def column_order(given: pd.Index, expected: pd.Index, name: str, whose: str = "fit saw") -> np.ndarray:
    """Where the expected columns are among the given ones; each must be there once, and no other."""
    unknown, missing = [c for c in given if c not in expected], [c for c in expected if c not in given]
    said = [f"{what}: {', '.join(map(repr, names))}" for what, names in (("unknown", unknown), ("missing", missing))]
    said = [words for words, names in zip(said, (unknown, missing), strict=True) if names]
    if len(given) != len(set(given)):
        said.append(f"twice: {given[given.duplicated()][0]!r}")
    if said:
        raise DataError(f"{name} has columns {list(given)}; {whose} {list(expected)} ({'; '.join(said)}).")
    return given.get_indexer(expected)


def check_form(panel: Panel, is_panel: bool) -> None:
    """Further rows come in the form of those of fit: one series, or a panel."""
    if panel.is_panel and not is_panel:
        raise DataError(
            f"y is a panel of {len(panel.tables)} series; the forecaster was fitted to one: pass them one at a time, "
            "or fit it to the panel."
        )
    if is_panel and not panel.is_panel:
        raise DataError(
            "y is one series; the forecaster was fitted to a panel: pass a dict of frames by id, {id: y}, or a frame "
            "with a MultiIndex (id, time). The id may be a new one."
        )


def _frame(data: Any, name: str) -> tuple[pd.DataFrame, bool]:
    if isinstance(data, pd.DataFrame):
        return data, False
    if isinstance(data, pd.Series):
        return data.to_frame(0 if data.name is None else data.name), True
    if isinstance(data, np.ndarray) and data.ndim in (1, 2):
        return pd.DataFrame(data), data.ndim == 1
    raise DataError(
        f"{name} is a {type(data).__name__}; expected a pandas Series or DataFrame, an array, or a dict of them."
    )


def _table(frame: pd.DataFrame, name: str) -> Table:
    _check_order(frame.index, name)
    if frame.index.dtype.kind not in "iuf" and not isinstance(frame.index, pd.DatetimeIndex | pd.PeriodIndex):
        first = frame.index[0]
        raise DataError(
            f"the index of {name} holds {type(first).__name__}, such as {first!r}; expected time stamps, "
            "periods or numbers: turn text into stamps with pd.to_datetime, or read the file with parse_dates=True."
        )
    bad = [str(column) for column, dtype in frame.dtypes.items() if dtype.kind not in "iufb"]
    if bad:
        stamps = [str(column) for column, dtype in frame.dtypes.items() if dtype.kind == "M"]
        remedy = f"if {stamps[0]!r} holds the timestamps, make it the index with set_index" if stamps else "drop them"
        raise DataError(
            f"{name} has columns that do not hold numbers: {', '.join(bad[:5])}; convert them to numbers, or {remedy}."
        )
    values = frame.to_numpy(float, na_value=np.nan)
    if np.isinf(values).any():
        row, column = np.argwhere(np.isinf(values))[0]
        raise DataError(
            f"{name} holds infinity at {frame.index[row]}, {frame.columns[column]}; NaN marks what is missing."
        )
    if not frame.index.has_duplicates:
        return Table(frame.index, values)
    values, of_row = merged(frame.index, frame.index, values, frame.columns, name)
    return Table(frame.index[np.unique(of_row, return_index=True)[1]], values, n_merged=len(frame) - len(values))


def merged(
    steps: Any, stamps: pd.Index, values: Float[np.ndarray, "N D"], columns: pd.Index, name: str
) -> tuple[Float[np.ndarray, "M D"], Int[np.ndarray, " N"]]:
    """One row for each of M steps, and the one that each given row went into: rows of one step are merged cell by cell.

    `steps` do not decrease. A cell that is NaN in one row has the number of the other; two numbers must be the same.
    """
    steps = np.asarray(steps)
    is_first = np.r_[True, steps[1:] != steps[:-1]]
    of_row = np.cumsum(is_first) - 1
    rank = np.arange(len(steps)) - np.flatnonzero(is_first)[of_row]
    found = values[is_first]
    for k in range(1, int(rank.max()) + 1):
        rows = np.flatnonzero(rank == k)
        known, new = found[of_row[rows]], values[rows]
        differs = ~np.isnan(known) & ~np.isnan(new) & (known != new)
        if differs.any():
            row, d = np.argwhere(differs)[0]
            here = rows[row]
            where = (
                f"the index of {name} holds {stamps[here]} twice"
                if stamps[here] == stamps[here - 1]
                else f"several rows of {name} fall on one step of the grid, for example {stamps[here - 1]} and "
                f"{stamps[here]}"
            )
            raise DataError(
                f"{where}, and {columns[d]!r} has two values there, {known[row, d]:g} and {new[row, d]:g}. Rows are "
                "merged where no two numbers differ; keep one of them, take their mean (groupby, resample), or give "
                "a shorter freq."
            )
        found[of_row[rows]] = np.where(np.isnan(known), new, known)
    return found, of_row


def _check_order(index: pd.Index, name: str) -> None:
    """Stamps must be there and in order."""
    if index.hasnans:
        raise DataError(
            f"the index of {name} holds NaT at position {int(np.flatnonzero(index.isna())[0])}; drop the row."
        )
    if not index.is_monotonic_increasing:
        raise DataError(f"the index of {name} is not sorted; call sort_index() first.")
    if index.dtype.kind in "iuf":
        _check_numbers(index, name)
    if isinstance(index, pd.DatetimeIndex | pd.PeriodIndex):
        for stamp in (index[0], index[-1]):
            if not FIRST_YEAR <= stamp.year <= LAST_YEAR:
                raise DataError(
                    f"the index of {name} holds {stamp}; expected years from {FIRST_YEAR} to {LAST_YEAR}, whose "
                    "nanoseconds 64 bits can count: shift the stamps, or use numbers as the index."
                )


def _check_numbers(index: pd.Index, name: str) -> None:
    """Stamps that are numbers have gaps: all are finite, and differ as doubles."""
    stamps = np.asarray(index, float)
    if np.isinf(stamps).any():
        raise DataError(f"the index of {name} holds {stamps[np.isinf(stamps)][0]}; drop the row.")
    is_lost = (np.diff(stamps) == 0.0) & (index[1:] != index[:-1])
    if is_lost.any():
        k = int(np.flatnonzero(is_lost)[0])
        raise DataError(
            f"the index of {name} holds {index[k]} and {index[k + 1]}, which are the same as doubles; subtract the "
            "first stamp from all of them."
        )


def check_targets(panel: Panel, lags: Lags) -> None:
    """There must be columns with plain names; each must vary somewhere, no series may be empty, and one must be longer
    than its lags.
    """
    if not len(panel.columns):
        raise DataError("y has no columns; expected at least one, of numbers.")
    check_names(panel.columns, "y")
    if panel.is_panel:
        check_ids(list(panel.tables))
    values = np.concatenate([table.values for table in panel.tables.values()])
    with np.errstate(invalid="ignore"):
        is_empty = np.isnan(values).all(axis=0)
        spread = np.nanmax(np.where(is_empty, 0.0, values), axis=0) - np.nanmin(np.where(is_empty, 0.0, values), axis=0)
    for flags, what in ((is_empty, "has no value at all"), (~is_empty & (spread == 0.0), "is constant")):
        if flags.any():
            raise DataError(f"the series {panel.columns[int(np.flatnonzero(flags)[0])]!r} {what}; drop it.")
    for key, table in panel.tables.items():
        if np.isnan(table.values).all():
            raise DataError(
                f"the series {key!r} of the panel has no value at all, so that no forecast can start from it; drop it. "
                "It may come later by update."
            )
    longest = max(int((~np.isnan(t.values).all(axis=1)).sum()) for t in panel.tables.values())
    needed = memory_of(lags) + 2
    if longest < needed:
        raise DataError(f"the longest series has {longest} rows; lags={lags} needs at least {needed}.")


def check_names(columns: pd.Index, of: str) -> None:
    """Each column has a name of its own, and no levels: names are labels of draws, covariances and scores."""
    if isinstance(columns, pd.MultiIndex) or any(isinstance(name, tuple) for name in columns):
        n_levels = max(len(name) for name in columns if isinstance(name, tuple))
        raise DataError(
            f"the columns of {of} have {n_levels} levels, such as {columns[0]!r}; expected one: join them, "
            f"{of}.columns = ['/'.join(map(str, name)) for name in {of}.columns]."
        )
    if columns.has_duplicates:
        raise DataError(
            f"two columns of {of} have the name {columns[columns.duplicated()][0]!r}; expected different names: rename "
            f"one of them ({of}.columns = [...]), or drop it ({of}.loc[:, ~{of}.columns.duplicated()])."
        )
    bad = [name for name in columns if not _can_be_kept(name)]
    if bad:
        raise DataError(
            f"a column of {of} has the name {bad[0]!r}, which model files cannot hold; expected text or finite "
            f"numbers: rename it ({of}.columns = {of}.columns.map(str))."
        )


def check_ids(ids: list[Any]) -> None:
    """Each series of a panel has an id of as many parts, all of which model files can hold."""
    parts = [key if isinstance(key, tuple) else (key,) for key in ids]
    for key, part in zip(ids, parts, strict=True):
        if not all(map(_can_be_kept, part)):
            raise DataError(
                f"a series of the panel has the id {key!r}, which model files cannot hold; expected text or finite "
                "numbers, or tuples of them: rename it."
            )
        if len(part) != len(parts[0]):
            raise DataError(
                f"series of the panel have the ids {ids[0]!r} and {key!r}; expected as many parts in each: rename them."
            )


def _can_be_kept(name: Any) -> bool:
    """Whether a name comes back from a model file as it was."""
    if isinstance(name, str):
        return name.encode("utf-8", "ignore").decode() == name  # no half of a surrogate pair
    is_finite = isinstance(name, float | np.floating) and bool(np.isfinite(name))
    return is_finite or isinstance(name, int | np.integer | np.bool_)
