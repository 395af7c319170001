"""Classical forecasters with the methods of ours, so that `backtest` rolls them too: random walk and VAR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator

from .. import metrics
from ..errors import DataError
from ..series.data.calendar import harmonics
from ..series.data.horizons import horizon
from ..series.data.times import TimeAxis, noise_seed
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

    def update(self, y: pd.DataFrame, X: Any = None) -> Any:
        """Condition on new rows."""
        self.seen_ = pd.concat([self.seen_, y]).iloc[-self.n_kept_ :]
        return self

    @property
    def end_(self) -> Any:
        return self.seen_.index[-1]

    def _remember(self, y: pd.DataFrame, n_rows: int) -> None:
        self.n_kept_ = n_rows
        self.seen_ = y.iloc[-n_rows:]
        self.axis_ = TimeAxis.of([y.index])

    def _horizon(self, fh: Any) -> tuple[pd.Index, np.ndarray, pd.Index]:
        """Stamps asked for, their positions among all steps, and all steps on the way."""
        index = horizon(self.axis_, fh, self.end_)
        steps = np.round(self.axis_.units(index, float(self.axis_.numbers(self.seen_.index[-1:])[0]))).astype(int)
        return index, steps - 1, self.axis_.ahead(self.end_, list(range(1, int(steps[-1]) + 1)))


class RandomWalk(_Rival):
    """y_{t+1} = y_t + ε with increments drawn from those of the training part."""

    def fit(self, y: pd.DataFrame, X: Any = None) -> RandomWalk:
        self.steps_ = np.diff(filled(y).to_numpy(), axis=0)
        self._remember(y, 48)
        return self

    def forecast(self, fh: Any, X: Any = None, n_draws: int = 1000) -> Forecast:
        index, place, way = self._horizon(fh)
        last = filled(self.seen_).to_numpy()[-1]
        rng = np.random.default_rng(noise_seed(0, self.end_))
        noise = self.steps_[rng.integers(len(self.steps_), size=(n_draws, len(way)))]
        root = np.linalg.cholesky(np.cov(self.steps_.T) + 1e-9 * np.eye(len(last)))

        def log_density(y: np.ndarray) -> np.ndarray:
            spread = np.sqrt(place + 1.0)[:, None]
            return gaussian_log_density((y - last) / spread, root) - len(last) * np.log(spread[:, 0])

        return Forecast(last + np.cumsum(noise, axis=1)[:, place], index, self.seen_.columns, log_density)


class VectorAutoregression(_Rival):
    """VAR(p) with harmonics of the calendar, fitted by least squares; paths with Gaussian noise."""

    def __init__(self, lags=3, periods=("day",)):
        self.lags = lags
        self.periods = periods

    def fit(self, y: pd.DataFrame, X: Any = None) -> VectorAutoregression:
        values, (n_rows, dim) = filled(y).to_numpy(), y.shape
        exogenous = harmonics(y.index, self.periods) if self.periods else np.zeros((n_rows, 0))
        n_exogenous, lagged = exogenous.shape[1], [values[self.lags - k : n_rows - k] for k in range(1, self.lags + 1)]
        inputs = np.concatenate([np.ones((n_rows - self.lags, 1)), exogenous[self.lags :], *lagged], axis=1)
        n_free = len(inputs) - inputs.shape[1]
        if n_free <= dim:
            raise DataError(f"{n_rows} rows are too few for a VAR of {self.lags} lags and {dim} series.")
        parameters = np.linalg.lstsq(inputs, values[self.lags :], rcond=None)[0]
        errors = values[self.lags :] - inputs @ parameters
        self.constant_, self.harmonics_ = parameters[0], parameters[1 : 1 + n_exogenous]
        self.coefficients_ = parameters[1 + n_exogenous :].reshape(self.lags, dim, dim)
        self.root_ = np.linalg.cholesky(errors.T @ errors / n_free)
        self._remember(y, max(48, 2 * self.lags))
        return self

    def forecast(self, fh: Any, X: Any = None, n_draws: int = 1000) -> Forecast:
        index, place, way = self._horizon(fh)
        level = np.tile(self.constant_, (len(way), 1))
        if self.periods:
            level = level + harmonics(way, self.periods) @ self.harmonics_
        past = filled(self.seen_).to_numpy()[::-1][: self.lags]  # newest first
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
