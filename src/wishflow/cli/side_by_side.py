"""SGP, No noise, diffGP and diffWGP on the same data: fit, score, compare."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

import wishflow as wf

from .. import metrics

# Quantiles at 5 % and 95 % for coverage, then at Gauss–Legendre nodes of (0, 1) for the integral that is the CRPS.
NODES, WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(8))
LEVELS = np.concatenate([[0.05, 0.95], 0.5 + NODES])


@dataclasses.dataclass(frozen=True)
class Split:
    """Training and test rows of one data set."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@dataclasses.dataclass(frozen=True)
class Scores:
    """How a predictive distribution does on test rows; `standard_error` is that of the mean log density."""

    name: str
    log_density: float
    standard_error: float
    rmse: float
    crps: float
    coverage: float
    seconds: float = np.nan


def models(n_inducing: int, max_iter: int, **options: Any) -> dict[str, Any]:
    """The four models by name, with the same number of inducing points; `options` go to the flows."""
    options = {"n_inducing": n_inducing, "max_iter": max_iter, **options}
    return {
        "SGP": wf.SparseGPRegressor(n_inducing=n_inducing),
        "No noise": wf.FlowRegressor(diffusion="none", **options),
        "diffGP": wf.FlowRegressor(diffusion="gp", **options),
        "diffWGP": wf.FlowRegressor(diffusion="wishart", **options),
    }


def fit_and_score(
    estimators: dict[str, Any], data: Split, callbacks_of: Callable[[str], list[Any]]
) -> Iterator[tuple[str, Any, Scores]]:
    """Fit and score one model after another; name, fitted model and scores as soon as each is done."""
    for name, estimator in estimators.items():
        started = time.perf_counter()
        estimator.set_params(callbacks=callbacks_of(name)).fit(data.X, data.y)
        seconds = time.perf_counter() - started
        estimator.set_params(callbacks=None)
        yield name, estimator, dataclasses.replace(score_model(name, estimator, data), seconds=seconds)


def score_model(name: str, estimator: Any, data: Split) -> Scores:
    """Scores of a fitted regressor on the test rows."""
    return score_predictions(
        name,
        data.y_test,
        log_prob=estimator.log_prob(data.X_test, data.y_test),
        mean=estimator.predict(data.X_test),
        quantiles=estimator.predict_quantiles(data.X_test, LEVELS),
    )


def score_law(name: str, law: wf.datasets.SimulatedFlow, data: Split, n_draws: int, seed: int) -> Scores:
    """Scores of the law the data come from: what no model can beat but by luck.

    The log density takes four times as many paths as the rest: too few make it too small.
    """
    draws = law.sample(data.X_test, n_draws, seed)
    return score_predictions(
        name,
        data.y_test,
        log_prob=law.log_prob(data.X_test, data.y_test, n_paths=4 * n_draws, seed=seed + 1),
        mean=draws.mean(axis=0),
        quantiles=np.moveaxis(np.quantile(draws, LEVELS, axis=0), 0, -1),
    )


def score_predictions(
    name: str, y: np.ndarray, *, log_prob: np.ndarray, mean: np.ndarray, quantiles: np.ndarray
) -> Scores:
    """Scores from the log density of each row, the means, and the quantiles at LEVELS on the last axis."""
    return Scores(
        name,
        log_density=metrics.mean_log_density(log_prob),
        standard_error=float(np.std(log_prob, ddof=1) / np.sqrt(len(log_prob))),
        rmse=metrics.rmse(y, mean),
        crps=float(crps_quantiles(y, quantiles[..., 2:]).mean()),
        coverage=metrics.coverage(y, quantiles[..., 0], quantiles[..., 1]),
    )


def crps_quantiles(y: Float[np.ndarray, "*shape"], quantiles: Float[np.ndarray, "*shape K"]) -> np.ndarray:
    """CRPS = 2 ∫ (1{y < q_u} − u)(q_u − y) du over the levels u in (0, 1), by the Gauss–Legendre rule."""
    excess = quantiles - np.asarray(y)[..., None]
    return 2.0 * ((excess > 0.0) - LEVELS[2:]) * excess @ WEIGHTS
