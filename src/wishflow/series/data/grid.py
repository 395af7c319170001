"""Regular grids: rows go to the steps nearest to them, covariates with the rows they belong to; holes become rows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int
from pandas.tseries.frequencies import to_offset

from ...errors import DataError
from .frames import Table
from .times import IRREGULAR, TimeAxis

# The phase of a grid in parts of a step: enough to keep readings at half past the hour together.
PHASES = 4


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
    offset: Any = to_offset(axis.freq)
    if offset.is_on_offset(stamp):
        return stamp
    sides = pd.DatetimeIndex([offset.rollback(stamp), offset.rollforward(stamp)]).normalize()
    is_same = axis.numbers(sides) == axis.numbers(pd.DatetimeIndex([stamp]))[0]
    return sides[int(is_same.argmax())]


def places(axis: TimeAxis, index: pd.Index, start: Any) -> Int[np.ndarray, " N"]:
    """The steps of the grid through `start` nearest to the rows; one row for each."""
    found = np.round(_units(axis, index, start)).astype(int)
    if (np.diff(found) < 1).any():
        k = int(np.flatnonzero(np.diff(found) < 1)[0])
        raise DataError(
            f"several rows fall on one step of the grid, for example {index[k]} and {index[k + 1]}; resample the "
            "series, or give a shorter freq."
        )
    return found


def placed(axis: TimeAxis, table: Table, start: Any) -> Table:
    """The rows at the stamps of the grid through `start`, each at the one nearest to it."""
    index = axis.ahead(start, places(axis, table.index, start))
    return table if index.equals(table.index) else Table(index, table.values)


def placed_covariates(axis: TimeAxis, table: Table, start: Any, rows: pd.Index) -> Table:
    """Covariates at the stamps of the grid: those given at the stamp of a row of y where there is one, otherwise those
    at the stamp nearest to the step. `rows` are the stamps of y as they came.
    """
    if isinstance(table.index, pd.DatetimeIndex) and table.index.tz is not None:
        # Days and months are those of the data, wherever the clock of the covariates hangs.
        table = Table(table.index.tz_convert(start.tz), table.values)
    units = _units(axis, table.index, start)
    place = np.round(units).astype(int)
    distance = np.where(np.isin(axis.numbers(table.index), axis.numbers(rows)), -1.0, np.abs(units - place))
    order = np.lexsort((distance, place))
    keep = order[np.unique(place[order], return_index=True)[1]]
    return Table(axis.ahead(start, place[keep]), table.values[keep])


def filled(axis: TimeAxis, table: Table, max_gap: float) -> Table:
    """With rows of NaN for the steps of the grid that are not there, but for those in gaps above `max_gap` steps.

    Rows that are there keep their stamps.
    """
    start = grid_start(axis, table.index)
    place = places(axis, table.index, start)
    inside = [np.arange(a + 1, b) for a, b in itertools.pairwise(place) if 1 < b - a <= max_gap]
    if not inside:
        return table
    holes = np.concatenate(inside)
    order = np.argsort(np.concatenate([place, holes]))
    values = np.concatenate([table.values, np.full((len(holes), table.values.shape[1]), np.nan)])
    return Table(table.index.append(axis.ahead(start, holes))[order], values[order])


def _units(axis: TimeAxis, index: pd.Index, start: Any) -> np.ndarray:
    return axis.units(index, float(axis.numbers(pd.Index([start]))[0]))
