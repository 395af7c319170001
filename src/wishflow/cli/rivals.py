"""Classical forecasters with the methods of ours, so that `backtest` rolls them too: random walk and VAR."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator, clone

from .. import metrics
from ..errors import DataError
from ..numerics.random import noise_seed
from ..series.data.calendar import harmonics
from ..series.data.horizons import horizon
from ..series.data.times import TimeAxis
from ..series.forecast import Forecast


def filled(y: pd.DataFrame) -> pd.DataFrame:
    """Holes on straight lines, ends by the nearest value: these models know no missing values."""
    return y.interpolate(limit_direction="both")


def gaussian_log_density(r: Float[np.ndarray, "N D"], root: Float[np.ndarray, "D D"]) -> Float[np.ndarray, " N"]:
    """log N(r; 0, R Rᵀ)."""
    white = solve_triangular(root, r.T, lower=True, check_finite=False)
    constant = r.shape[1] * np.log(2 * np.pi) + 2 * np.log(np.diagonal(root)).sum()
    return -0.5 * (constant + (white**2).sum(axis=0))


class _Rival(BaseEstimator):
    """What the two share: the rows seen so far, and stamps of a horizon."""

    seen_: pd.DataFrame
    n_kept_: int
    axis_: TimeAxis

    def fit(self, y: pd.DataFrame, X: pd.DataFrame | None = None) -> Any:
        """Fit to one series."""
        return self.fit_all([y], [X]).beside(y)

    def fit_all(self, parts: Sequence[pd.DataFrame], X: Sequence[pd.DataFrame | None]) -> Any:
        """Learn the parameters that several series have in common."""
        raise NotImplementedError

    def beside(self, y: pd.DataFrame) -> Any:
        """Go on from the end of a series, with the parameters that were learnt."""
        self.seen_ = y.iloc[-self.n_kept_ :]
        return self

    def update(self, y: pd.DataFrame, X: Any = None) -> Any:
        """Condition on new rows."""
        return self.beside(pd.concat([self.seen_, y]))

    @property
    def index(self) -> pd.Index:
        """Stamps of the rows seen last."""
        return self.seen_.index

    @property
    def end_(self) -> Any:
        return self.index[-1]

    def _remember(self, parts: Sequence[pd.DataFrame], n_rows: int) -> Any:
        self.n_kept_ = n_rows
        self.axis_ = TimeAxis.of([y.index for y in parts])
        return self

    def _horizon(self, fh: Any) -> tuple[pd.Index, np.ndarray, pd.Index]:
        """Stamps asked for, their positions among all steps, and all steps on the way."""
        index = horizon(self.axis_, fh, self.end_)
        steps = np.round(self.axis_.units(index, float(self.axis_.numbers(self.seen_.index[-1:])[0]))).astype(int)
        return index, steps - 1, self.axis_.ahead(self.end_, list(range(1, int(steps[-1]) + 1)))


class RandomWalk(_Rival):
    """y_{t+1} = y_t + ε with increments drawn from those of the training part."""

    def fit_all(self, parts: Sequence[pd.DataFrame], X: Sequence[pd.DataFrame | None]) -> RandomWalk:
        self.steps_ = np.concatenate([np.diff(filled(y).to_numpy(), axis=0) for y in parts])
        if len(self.steps_) < 2:
            raise DataError("a random walk needs at least three rows.")
        return self._remember(parts, 48)

    def forecast(self, fh: Any, X: Any = None, n_draws: int = 1000) -> Forecast:
        index, place, way = self._horizon(fh)
        last = filled(self.seen_).to_numpy()[-1]
        rng = np.random.default_rng(noise_seed(0, self.end_))
        noise = self.steps_[rng.integers(len(self.steps_), size=(n_draws, len(way)))]
        root = np.linalg.cholesky(np.atleast_2d(np.cov(self.steps_.T)) + 1e-9 * np.eye(len(last)))

        def log_density(y: np.ndarray) -> np.ndarray:
            spread = np.sqrt(place + 1.0)[:, None]
            return gaussian_log_density((y - last) / spread, root) - len(last) * np.log(spread[:, 0])

        return Forecast(last + np.cumsum(noise, axis=1)[:, place], index, self.seen_.columns, log_density)


class VectorAutoregression(_Rival):
    """VAR(p) with covariates and harmonics of the calendar, fitted by least squares; paths with Gaussian noise."""

    def __init__(self, lags=3, periods=("day",)):
        self.lags = lags
        self.periods = periods

    def _exogenous(self, index: pd.Index, X: pd.DataFrame | None) -> np.ndarray:
        cycle = harmonics(index, self.periods) if self.periods else np.zeros((len(index), 0))
        known = np.zeros((len(index), 0)) if X is None else X.reindex(index, method="nearest").to_numpy()
        return np.concatenate([cycle, known], axis=1)

    def _rows(self, y: pd.DataFrame, X: pd.DataFrame | None) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of the regression."""
        values, n_rows = filled(y).to_numpy(), len(y)
        lagged = [values[self.lags - k : n_rows - k] for k in range(1, self.lags + 1)]
        before = self._exogenous(y.index, X)[self.lags :]
        return np.concatenate([np.ones((len(before), 1)), before, *lagged], axis=1), values[self.lags :]

    def fit_all(self, parts: Sequence[pd.DataFrame], X: Sequence[pd.DataFrame | None]) -> VectorAutoregression:
        dim, n_rows = parts[0].shape[1], sum(map(len, parts))
        long = [(y, known) for y, known in zip(parts, X, strict=True) if len(y) > self.lags]
        rows = [self._rows(y, known) for y, known in long]
        inputs, targets = (
            (np.concatenate(arrays) for arrays in zip(*rows, strict=True)) if rows else (np.zeros((0, 1)),) * 2
        )
        n_free, n_exogenous = len(inputs) - inputs.shape[1], inputs.shape[1] - 1 - self.lags * dim
        if n_free <= dim:
            raise DataError(f"{n_rows} rows are too few for a VAR of {self.lags} lags and {dim} series.")
        parameters = np.linalg.lstsq(inputs, targets, rcond=None)[0]
        errors = targets - inputs @ parameters
        self.constant_, self.exogenous_ = parameters[0], parameters[1 : 1 + n_exogenous]
        self.coefficients_ = parameters[1 + n_exogenous :].reshape(self.lags, dim, dim)
        self.root_ = np.linalg.cholesky(errors.T @ errors / n_free)
        return self._remember(parts, max(48, 2 * self.lags))

    def forecast(self, fh: Any, X: Any = None, n_draws: int = 1000) -> Forecast:
        index, place, way = self._horizon(fh)
        level = self.constant_ + self._exogenous(way, X) @ self.exogenous_
        past = filled(self.seen_).to_numpy()[::-1][: self.lags]  # newest first
        past = np.pad(past, ((0, self.lags - len(past)), (0, 0)), mode="edge")  # a series may have begun just now
        history = np.repeat(past[None], n_draws, 0)
        rng = np.random.default_rng(noise_seed(0, self.end_))
        paths, means = [], []
        for t in range(len(way)):
            means.append(level[t] + np.einsum("slj,lji->si", history, self.coefficients_))
            paths.append(means[-1] + rng.normal(size=means[-1].shape) @ self.root_.T)
            history = np.concatenate([paths[-1][:, None], history[:, :-1]], axis=1)
        at = [means[t] for t in place]

        def log_density(y: np.ndarray) -> np.ndarray:
            """The last step in closed form, as for our own forecasts."""
            each = [gaussian_log_density(y[i] - mean, self.root_) for i, mean in enumerate(at)]
            return metrics.mixture_log_density(np.stack(each, axis=1))

        return Forecast(np.stack(paths, axis=1)[:, place], index, self.seen_.columns, log_density)


class EachSeries(BaseEstimator):
    """A rival for each series of a panel: fitted to its own rows, or to those of all series where they are too few."""

    def __init__(self, rival):
        self.rival = rival

    def fit(self, y: dict[Any, pd.DataFrame], X: pd.DataFrame | None = None) -> EachSeries:
        self.common_ = clone(self.rival).fit_all(list(y.values()), [_of_series(X, key) for key in y])
        self.tails_ = {key: self._fitted(part, _of_series(X, key)) for key, part in y.items()}
        return self

    def _fitted(self, y: pd.DataFrame, X: pd.DataFrame | None) -> _Rival:
        try:
            own = clone(self.rival).fit(y, X)
            own.axis_ = self.common_.axis_
            return own
        except (ArithmeticError, ValueError):
            return copy.copy(self.common_).beside(y)

    def update(self, y: dict[Any, pd.DataFrame], X: pd.DataFrame | None = None) -> EachSeries:
        """Condition on new rows; a series that was not there before has the common parameters."""
        known = self.tails_
        self.tails_ = known | {
            key: copy.copy(known[key]).update(part) if key in known else copy.copy(self.common_).beside(part)
            for key, part in y.items()
        }
        return self

    @property
    def end_(self) -> Any:
        return max(one.end_ for one in self.tails_.values())

    def forecast(self, fh: Any, X: pd.DataFrame | None = None, n_draws: int = 1000) -> dict[Any, Forecast]:
        return {key: one.forecast(fh, _of_series(X, key), n_draws) for key, one in self.tails_.items()}


def _of_series(X: pd.DataFrame | None, key: Any) -> pd.DataFrame | None:
    return None if X is None else X.loc[X.index.get_level_values(0) == key].droplevel(0)
