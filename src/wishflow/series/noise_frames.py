"""Covariances and correlations of the noise at rows of a series, as arrays with names."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from ..errors import OptionError
from ..specs import checks
from .data.frames import ONLY, Panel, read
from .data.intake import further_rows
from .data.units import Tail, Units
from .running.base import AbstractRunner


class NoiseFrames(abc.ABC):
    """What a fitted forecaster says of the noise at given rows."""

    columns_: pd.Index
    is_panel_: bool
    units_: Units
    tails_: dict[Any, Tail]
    seed_: int

    @abc.abstractmethod
    def _read(self, y: Any) -> Panel: ...

    @abc.abstractmethod
    def _runner(self, key: Any = ONLY) -> AbstractRunner: ...

    @abc.abstractmethod
    def _names(self) -> list: ...

    def covariance(self, y: Any, X: Any = None) -> Any:
        """Σ̄ + Λ at each row of y: a rate per unit of time in the units of y, (time, variable, variable_2).

        With a transform it is the rate of the increments of y to first order. Holes are filled by the filter's mean.
        """
        panel = self._read(y)
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
        """The correlations of `covariance`."""
        found = self.covariance(y, X)
        return {k: _correlation(v) for k, v in found.items()} if self.is_panel_ else _correlation(found)

    def correlation_interval(
        self, y: Any, X: Any = None, coverage: float = 0.9, n_draws: int = 200
    ) -> tuple[xr.DataArray, xr.DataArray]:
        """Lower and upper ends of the central intervals of the correlations at each row of one series y.

        They are quantiles over `n_draws` draws of J from its posterior at the row, all other parameters fixed; where
        the noise is constant both ends are the correlation itself. Shapes are those of `correlation`.
        """
        level = checks.level("coverage", coverage, "ask for one at a time")
        panel = self._read(y)
        if panel.is_panel:
            raise OptionError("y is a panel; expected one series: pass the rows of one, {id: y[id]} to `correlation`.")
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


def _correlation(rate: xr.DataArray) -> xr.DataArray:
    sd = np.sqrt(np.diagonal(rate.values, axis1=1, axis2=2))
    return rate / (sd[:, :, None] * sd[:, None, :])
