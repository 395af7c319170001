"""Cells of a forecast that are given: frames, arrays or dicts of them, to rows at the forecast's stamps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from ...errors import DataError
from .frames import ONLY, Table, read
from .times import TimeAxis, check_same_kind, named


def of_series(given: Any, keys: list[Any]) -> dict[Any, Any]:
    """What is given for each series: by its key, or the same for all of a panel; None where nothing is."""
    if isinstance(given, pd.DataFrame | pd.Series) and isinstance(given.index, pd.MultiIndex):
        panel = read(given, "given")
        given = {key: pd.DataFrame(t.values, t.index, panel.columns) for key, t in panel.tables.items()}
    if not isinstance(given, dict):
        return dict.fromkeys(keys, given)
    unknown = [key for key in given if key not in keys]
    if unknown:
        known = "it was fitted to one series" if keys == [ONLY] else f"its series are {keys[:10]}"
        raise DataError(f"given has the series {unknown[0]!r}, which the forecaster does not know: {known}.")
    return {key: given.get(key) for key in keys}


def cells(given: Any, key: Any, axis: TimeAxis, index: pd.Index, columns: pd.Index) -> Float[np.ndarray, "T P"] | None:
    """Given values at the stamps and columns of a forecast, NaN where a cell is free; None where all are.

    Rows of a frame are found by their stamps and columns by their names; those that are not there are free. An array
    has a row for each stamp in order of time, and all columns.
    """
    name = named("given", key)
    if given is None:
        return None
    if isinstance(given, np.ndarray):
        values = _array(given, name, index, columns)
    else:
        panel = read(given, name)
        if panel.is_panel:
            raise DataError(f"{name} is a panel; expected one frame for each series.")
        is_unnamed = panel.is_series and panel.columns[0] == 0 and len(columns) == 1
        at = np.zeros(1, int) if is_unnamed else _columns(panel.columns, columns, name)
        values = np.full((len(index), len(columns)), np.nan)
        values[np.ix_(_rows(panel.tables[ONLY], axis, index, name), at)] = panel.tables[ONLY].values
    return None if np.isnan(values).all() else values


def _array(given: np.ndarray, name: str, index: pd.Index, columns: pd.Index) -> Float[np.ndarray, "T P"]:
    shape = (len(index), len(columns))
    if given.shape != shape and not (given.ndim == 1 and (*given.shape, 1) == shape):
        raise DataError(
            f"{name} is an array of shape {given.shape}; expected {shape}, a row for each stamp of the forecast and a "
            "column for each series (NaN where it is free), or a DataFrame with some stamps and columns."
        )
    values = np.asarray(given, float).reshape(shape)
    if np.isinf(values).any():
        raise DataError(f"{name} holds infinity; NaN marks cells that are free.")
    return values


def _columns(given: pd.Index, columns: pd.Index, name: str) -> np.ndarray:
    unknown = [column for column in given if column not in columns]
    if unknown or given.has_duplicates:
        what = f"unknown: {unknown[0]!r}" if unknown else f"twice: {given[given.duplicated()][0]!r}"
        raise DataError(f"{name} has columns {list(given)}; expected some of {list(columns)}, each once ({what}).")
    return columns.get_indexer(given)


def _rows(table: Table, axis: TimeAxis, index: pd.Index, name: str) -> np.ndarray:
    """Where the stamps of a frame are among those of the forecast."""
    check_same_kind(table.index, index, name, "the forecast")
    at = axis.places_of(table.index, index)
    if (at < 0).any():
        stamp = table.index[int(np.flatnonzero(at < 0)[0])]
        raise DataError(
            f"{name} holds {stamp}, which is no stamp of this forecast ({len(index)} from {index[0]} to {index[-1]}); "
            "add it to fh, or drop the row."
        )
    return at
