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
    return Table(index.rename(index_name), table.values)


def beside(X: Panel, panel: Panel) -> Panel:
    """Covariates, those of arrays at the stamps of y: row i of an array belongs to row i of y."""
    if all(table.has_stamps for table in X.tables.values()):
        return X
    tables = {
        key: at_rows(table, _stamps_of(key, panel), named("X", key), "y has {n} rows")
        if key in (ONLY, *panel.tables)
        else table
        for key, table in X.tables.items()
    }
    return dataclasses.replace(X, tables=tables)


def _stamps_of(key: Any, panel: Panel) -> pd.Index:
    """The stamps of the rows of y that rows of covariates go with."""
    if key in panel.tables:
        return panel.tables[key].index
    indices = [table.index for table in panel.tables.values()]
    if not all(index.equals(indices[0]) for index in indices):
        raise DataError(
            "X is one array for all series of the panel, whose stamps differ, so that its rows have none; expected a "
            "dict of arrays by id, or a frame with stamps."
        )
    return indices[0]


def at_rows(table: Table, index: pd.Index, name: str, expected: str) -> Table:
    """Rows of an array at these stamps, one for each; those of a frame stay at their own.

    An array that has a row for every number from 0 on, past the last of the stamps, is that of the whole series.
    """
    if table.has_stamps:
        return table
    if len(table) == len(index):
        return Table(index, table.values)
    if index.dtype.kind in "iu" and index[0] >= 0 and index[-1] < len(table):
        return Table(table.index, table.values)
    raise DataError(
        f"{name} is an array of {len(table)} rows; {expected.format(n=len(index))}, and an array has a row for each of "
        f"them: give as many, or {REMEDY}."
    )
