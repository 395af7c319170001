"""Rows of arrays, which have no stamps: those of y follow the last row known, those of X go with the rows of y."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ...errors import DataError
from .frames import ONLY, Panel, Table, with_columns
from .times import TimeAxis, named

REMEDY = "pass a DataFrame with its stamps as the index"


def following(panel: Panel, axis: TimeAxis, ends: Mapping[Any, Any], columns: pd.Index, index_name: Any) -> Panel:
    """Further rows of y, those of arrays at the steps after the last row of their series.

    A series that is not known yet starts at 0, as in `fit`, where stamps are numbers.
    """
    if all(table.has_stamps for table in panel.tables.values()):
        return panel
    panel = with_columns(panel, columns, "y")
    tables = {
        key: table if table.has_stamps else _following(key, table, axis, ends, index_name)
        for key, table in panel.tables.items()
    }
    return dataclasses.replace(panel, tables=tables)


def _following(key: Any, table: Table, axis: TimeAxis, ends: Mapping[Any, Any], index_name: Any) -> Table:
    name, steps = named("y", key), np.arange(len(table))
    if not axis.is_regular:
        raise DataError(
            f"{name} is an array, which has no stamps, and the stamps of fit are irregular, so no length of a step is "
            f"known; {REMEDY}."
        )
    if key not in ends and axis.kind != "number":
        raise DataError(
            f"{name} is an array, which has no stamps, and the series {key!r} was not in fit, so there is no row that "
            f"it could follow; {REMEDY}."
        )
    index = axis.ahead(ends[key], steps + 1) if key in ends else axis.ahead(0, steps)
    return dataclasses.replace(table, index=index.rename(index_name))


def beside(X: Panel, panel: Panel) -> Panel:
    """Covariates, those of arrays at the stamps of y: row i of an array belongs to row i of y."""
    if all(table.has_stamps for table in X.tables.values()):
        return X
    tables = {
        key: _beside(key, table, _rows_of(key, panel)) if key in (ONLY, *panel.tables) else table
        for key, table in X.tables.items()
    }
    return dataclasses.replace(X, tables=tables)


def _beside(key: Any, table: Table, y: Table) -> Table:
    merged = f", after {y.n_merged} were merged with others of the same stamp" if y.n_merged else ""
    is_numbered = not y.has_stamps or bool(y.index[0] == 0)
    return at_rows(table, y.index, named("X", key), f"y has {{n}} rows{merged}", is_numbered)


def _rows_of(key: Any, panel: Panel) -> Table:
    """The rows of y that rows of covariates go with."""
    if key in panel.tables:
        return panel.tables[key]
    indices = [table.index for table in panel.tables.values()]
    if not all(index.equals(indices[0]) for index in indices):
        raise DataError(
            "X is one array for all series of the panel, whose stamps differ, so that its rows have none; expected a "
            "dict of arrays by id, or a frame with stamps."
        )
    return next(iter(panel.tables.values()))


def at_rows(table: Table, index: pd.Index, name: str, expected: str, is_numbered: bool) -> Table:
    """Rows of an array at these stamps, one for each; those of a frame stay at their own.

    Where rows of the series are numbered from 0 on, one after another, an array that reaches past the last of these is
    that of the whole series.
    """
    if table.has_stamps:
        return table
    if len(table) == len(index):
        return Table(index, table.values)
    is_run = is_numbered and index.dtype.kind in "iu" and index[-1] - index[0] == len(index) - 1
    if is_run and index[0] >= 0 and index[-1] < len(table):
        return Table(table.index, table.values)
    raise DataError(
        f"{name} is an array of {len(table)} rows; {expected.format(n=len(index))}, and an array has a row for each of "
        f"them: give as many, or {REMEDY}."
    )
