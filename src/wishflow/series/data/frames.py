"""Frames in: one series, a panel (MultiIndex or dict) or an array, with what is needed to give frames back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from ...errors import DataError
from ..specs import Lags, memory_of

ONLY = None  # the key of a series that is no part of a panel


@dataclasses.dataclass(frozen=True)
class Table:
    """Stamps and values of one series."""

    index: pd.Index
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.index)


@dataclasses.dataclass(frozen=True)
class Panel:
    """All series by key, the names of their columns, and the form they came in."""

    tables: dict[Any, Table]
    columns: pd.Index
    is_series: bool
    is_panel: bool


def read(data: Any, name: str) -> Panel:
    """A Series, DataFrame (also with an (id, time) MultiIndex), array, or dict of frames."""
    if isinstance(data, Panel):
        return data
    if isinstance(data, dict):
        if not data:
            raise DataError(f"{name} is an empty dict; expected one frame for each series.")
        parts = {key: read(frame, f"{name}[{key!r}]") for key, frame in data.items()}
        first = next(iter(parts.values()))
        _require_same_columns(parts, first, name)
        return Panel({k: p.tables[ONLY] for k, p in parts.items()}, first.columns, first.is_series, True)
    frame, is_series = _frame(data, name)
    if not len(frame):
        raise DataError(f"{name} has no rows; expected at least one.")
    if isinstance(frame.index, pd.MultiIndex):
        levels: list[Any] = list(range(frame.index.nlevels - 1))
        groups = frame.groupby(level=levels if len(levels) > 1 else 0, sort=False)
        tables = {key: _table(part.droplevel(levels), f"{name} of {key!r}") for key, part in groups}
        return Panel(tables, frame.columns, is_series, True)
    return Panel({ONLY: _table(frame, name)}, frame.columns, is_series, False)


def _require_same_columns(parts: dict[Any, Panel], first: Panel, name: str) -> None:
    for key, part in parts.items():
        if not part.columns.equals(first.columns):
            raise DataError(f"{name}[{key!r}] has columns {list(part.columns)}; the first has {list(first.columns)}.")


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
        raise DataError(f"the index of {name} has dtype {frame.index.dtype}; expected time stamps, periods or numbers.")
    bad = [str(column) for column, dtype in frame.dtypes.items() if dtype.kind not in "iufb"]
    if bad:
        raise DataError(f"{name} has columns that are no numbers: {', '.join(bad[:5])}; convert or drop them.")
    values = frame.to_numpy(float, na_value=np.nan)
    if np.isinf(values).any():
        row, column = np.argwhere(np.isinf(values))[0]
        raise DataError(
            f"{name} holds infinity at {frame.index[row]}, {frame.columns[column]}; NaN marks what is missing."
        )
    return Table(frame.index, values)


def _check_order(index: pd.Index, name: str) -> None:
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


def check_targets(panel: Panel, lags: Lags) -> None:
    """There must be columns, each must vary somewhere, and some series must be longer than its lags."""
    if not len(panel.columns):
        raise DataError("y has no columns; expected at least one, of numbers.")
    values = np.concatenate([table.values for table in panel.tables.values()])
    with np.errstate(invalid="ignore"):
        is_empty = np.isnan(values).all(axis=0)
        spread = np.nanmax(np.where(is_empty, 0.0, values), axis=0) - np.nanmin(np.where(is_empty, 0.0, values), axis=0)
    for flags, what in ((is_empty, "has no value at all"), (~is_empty & (spread == 0.0), "is constant")):
        if flags.any():
            raise DataError(f"the series {panel.columns[int(np.flatnonzero(flags)[0])]!r} {what}; drop it.")
    longest = max(int((~np.isnan(t.values).all(axis=1)).sum()) for t in panel.tables.values())
    needed = memory_of(lags) + 2
    if longest < needed:
        raise DataError(f"the longest series has {longest} rows; lags={lags} needs at least {needed}.")
