"""Covariances and correlations of the noise at rows of a series, as arrays with names."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from sklearn.utils.validation import check_is_fitted

from ..errors import DataError, OptionError
from ..specs import checks
from .data.frames import ONLY, Panel, Table, check_form, read, with_columns
from .data.intake import further_rows
from .data.times import named
from .data.units import Tail, Units
from .data.unstamped import REMEDY
from .running.base import AbstractRunner

# Values are the same if they differ by less than this share of the largest of their column.
EQUAL = 1e-6


class NoiseFrames(abc.ABC):
    """Covariances and correlations of the noise of a fitted forecaster at given rows."""

    columns_: pd.Index
    is_panel_: bool
    units_: Units
    tails_: dict[Any, Tail]
    seed_: int

    @abc.abstractmethod
    def _read(self, y: Any) -> Panel: ...

    def _seen(self, y: Any) -> Panel:
        """Rows to look at; those of an array that are known have the stamps that they are known by."""
        check_is_fitted(self, "model_")
        panel = read(y, "y")
        check_form(panel, self.is_panel_)
        known = getattr(self, "reservoir_", None) or self.tails_
        return self._read(_at_known_stamps(panel, self.units_, known))

    @abc.abstractmethod
    def _runner(self, key: Any = ONLY) -> AbstractRunner: ...

    @abc.abstractmethod
    def _names(self) -> list: ...

    def covariance(self, y: Any, X: Any = None) -> Any:
        """Return the covariance Σ̄ + Λ of the noise at each row, with Σ̄ the posterior mean of Σ.

        Parameters
        ----------
        y : DataFrame, Series, array or dict
            Rows, in the form of those of `fit`. Missing values are filled by the mean of the filter. An array that has
            the values of the last known rows is these rows; those of any other array follow the last row seen, as in
            `update`.
        X : DataFrame, Series, array or dict, optional
            Covariates at these rows, as in `fit`.

        Returns
        -------
        DataArray or dict of DataArray
            Rates per unit of time in the units of y, (time, variable, variable_2). With a transform they are the rates
            of the increments of y to first order. A dict by id for a panel.

        Raises
        ------
        DataError
            If `y` or `X` has another form or other columns than in `fit`, or `y` is an array that ends with the known
            rows and begins before all of them that are kept.
        """
        panel = self._seen(y)
        found = {}
        for key, (tail, of_row) in further_rows(self.units_, panel, read_covariates(X), self.tails_).items():
            rates, times = self._covariances(key, tail)[of_row], panel.tables[key].index.rename("time")
            coordinates = {"time": times, "variable": self._names(), "variable_2": self._names()}
            found[key] = xr.DataArray(rates, coordinates, dims=("time", "variable", "variable_2"))
        return found if self.is_panel_ else found[ONLY]

    def _covariances(self, key: Any, tail: Tail) -> Float[np.ndarray, "T P P"]:
        dim, units = len(self.columns_), self.units_.of_series(key)
        rates = np.full((len(tail.index), dim, dim), np.nan)
        for ticks in units.ticks(tail):
            is_row = ticks.row >= 0
            values, rate = self._runner(key).covariances(ticks)
            slope = units.slope(units.inverse(values[is_row]))
            rates[ticks.row[is_row]] = rate[is_row] * slope[:, :, None] * slope[:, None, :]
        return rates

    def correlation(self, y: Any, X: Any = None) -> Any:
        """Return the correlations of the noise at each row, those of `covariance`.

        Parameters
        ----------
        y : DataFrame, Series, array or dict
            Rows, in the form of those of `fit`; arrays as in `covariance`.
        X : DataFrame, Series, array or dict, optional
            Covariates at these rows, as in `fit`.

        Returns
        -------
        DataArray or dict of DataArray
            Correlations, (time, variable, variable_2). A dict by id for a panel.
        """
        found = self.covariance(y, X)
        return {k: _correlation(v) for k, v in found.items()} if self.is_panel_ else _correlation(found)

    def correlation_interval(
        self, y: Any, X: Any = None, coverage: float = 0.9, n_draws: int = 200
    ) -> tuple[xr.DataArray, xr.DataArray]:
        """Return central intervals of the correlations of the noise at each row of one series y.

        Parameters
        ----------
        y : DataFrame, Series or array
            Rows, in the form of those of `fit`; arrays as in `covariance`. No panel.
        X : DataFrame, Series or array, optional
            Covariates at these rows, as in `fit`.
        coverage : float, default=0.9
            Probability inside the intervals, strictly between 0 and 1.
        n_draws : int, default=200
            Draws of J from its posterior at each row.

        Returns
        -------
        low : DataArray
            Lower ends, (time, variable, variable_2).
        high : DataArray
            Upper ends, of the same shape.

        Raises
        ------
        OptionError
            If `coverage` is not one number between 0 and 1, `y` is a panel, or the model has a latent state.

        Notes
        -----
        The ends are quantiles over the draws of J, with all other parameters fixed. Where the noise is constant both
        ends are the correlation itself.
        """
        level = checks.level("coverage", coverage, "ask for one at a time")
        panel = self._seen(y)
        if panel.is_panel:
            raise OptionError("y is a panel; expected one series: panels have `correlation` alone, without intervals.")
        n_draws, ends = checks.positive_int("n_draws", n_draws), (0.5 - level / 2, 0.5 + level / 2)
        tail, of_row = further_rows(self.units_, panel, read_covariates(X), self.tails_)[ONLY]
        dim, runner = len(self.columns_), self._runner()
        found = np.full((len(tail.index), 2, dim, dim), np.nan)
        for ticks in self.units_.ticks(tail):
            is_row = ticks.row >= 0
            found[ticks.row[is_row]] = runner.correlation_quantiles(ticks, ends, n_draws, self.seed_)[is_row]
        times = panel.tables[ONLY].index.rename("time")
        coordinates = {"time": times, "variable": self._names(), "variable_2": self._names()}
        low, high = (xr.DataArray(found[of_row, i], coordinates, ("time", "variable", "variable_2")) for i in (0, 1))
        return low, high


def read_covariates(X: Any) -> Panel | None:
    return None if X is None else read(X, "X")


def _at_known_stamps(panel: Panel, units: Units, known: Mapping[Any, Tail]) -> Panel:
    """Arrays that have the values of the last known rows at the stamps of these."""
    if all(table.has_stamps for table in panel.tables.values()):
        return panel
    panel = with_columns(panel, units.columns, "y")
    tables = {
        key: table if table.has_stamps or key not in known else _known(key, table, units, known[key])
        for key, table in panel.tables.items()
    }
    return dataclasses.replace(panel, tables=tables)


def _known(key: Any, table: Table, units: Units, tail: Tail) -> Table:
    values = units.of_series(key).inverse(tail.values)
    has_value = ~np.isnan(values).all(axis=1)
    for rows in (np.arange(len(values)), np.flatnonzero(has_value)):  # an array may leave out the holes of the grid
        rows = rows[-len(table) :]
        given, seen = table.values[-len(rows) :], values[rows]
        size = np.abs(np.nan_to_num(seen)).max(axis=0)
        if (np.isclose(given, seen, rtol=0.0, atol=EQUAL * size) | (np.isnan(given) & np.isnan(seen))).all():
            if len(rows) == len(table):
                return Table(tail.index[rows], table.values)
            raise DataError(
                f"{named('y', key)} is an array of {len(table)} rows whose last {len(rows)} are the last known ones, "
                f"and of those before no stamps are kept; give the last {len(rows)} rows, or {REMEDY}."
            )
    return table


def _correlation(rate: xr.DataArray) -> xr.DataArray:
    sd = np.sqrt(np.diagonal(rate.values, axis1=1, axis2=2))
    return rate / (sd[:, :, None] * sd[:, None, :])
