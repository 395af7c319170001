"""Train and score all splits of a data set with one model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp, ndtr

import wishflow as wf
from wishflow import metrics
from wishflow.datasets import split, validation_split

Rows = tuple[np.ndarray, np.ndarray]
COVERAGES = (0.8, 0.95)
N_LAST = 20
# The CRPS of a mixture costs pairs of its paths: it is that of every tenth of a thousand.
MOST_PAIRED = 100


def split_rows(n: int, index: int, is_validation: bool = False) -> Rows:
    """Rows to train on and rows to score; with `is_validation` nothing of the test part is read."""
    train, test = split(n, index)
    return validation_split(train, index) if is_validation else (train, test)


def run_splits(
    make: Callable[[], Any],
    X: np.ndarray,
    y: np.ndarray,
    rows: Sequence[Rows],
    *,
    group: int | None = None,
    callbacks: Any = None,
    score: Callable[[Sequence[Any], Sequence[tuple[np.ndarray, np.ndarray]]], list[dict[str, float]]] | None = None,
) -> dict[str, Any]:
    """Fit a new model to each split, `group` of them at a time (None: all), and score it; what a result file holds.

    `score` takes fitted models and their rows to score, and returns named numbers for each.
    """
    score = score_models if score is None else score
    size = len(rows) if group is None else group
    models: list[Any] = []
    scores: list[dict[str, float]] = []
    fit_seconds, score_seconds = 0.0, 0.0
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        started = time.perf_counter()
        fitted = wf.fit_many([make() for _ in part], [(X[train], y[train]) for train, _ in part], callbacks)
        trained = time.perf_counter()
        scores += score(fitted, [(X[test], y[test]) for _, test in part])
        fit_seconds += trained - started
        score_seconds += time.perf_counter() - trained
        models += fitted
    return {
        "training": models[0].training_.to_json(),
        "n_iter": [model.n_iter_ for model in models],
        "status": sorted({model.status_ for model in models}),
        "fit_seconds": fit_seconds,
        "score_seconds": score_seconds,
        "splits": scores,
        **summary(scores),
    }


def summary(scores: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation over the splits, for each score."""
    columns = {name: np.array([row[name] for row in scores]) for name in scores[0]}
    return {
        "mean": {name: float(np.mean(values)) for name, values in columns.items()},
        "sd": {name: float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for name, values in columns.items()},
    }


def score_models(models: Sequence[Any], data: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[dict[str, float]]:
    """All scores of each model on its rows (X, y), from one simulation of its paths."""
    mixtures = [model.predict_components(X, return_weights=True) for model, (X, _) in zip(models, data, strict=True)]
    with ThreadPoolExecutor() as pool:  # NumPy lets go of the interpreter while it computes
        scores = list(pool.map(lambda y, mixture: score_mixture(y, *mixture), [y for _, y in data], mixtures))
    return [{**row, **training_end(model)} for row, model in zip(scores, models, strict=True)]


def training_end(model: Any) -> dict[str, float]:
    """Where training arrived: the objective, a mean over the last iterations, and the noise variance, both scaled."""
    return {
        "objective": float(model.history_["objective"].iloc[-N_LAST:].mean()),
        "noise": float(model.history_["noise"].iloc[-1]),
    }


def score_mixture(
    y: Float[np.ndarray, " N"],
    means: Float[np.ndarray, "S N"],
    variances: Float[np.ndarray, "S N"],
    weights: Float[np.ndarray, " S"],
) -> dict[str, float]:
    """Scores of the predictive mixtures Σ_s w_s N(means_s, variances_s), in the units of y.

    `log_density` is the log of the mean density, `mean_log_density_of_paths` the mean of the logs, which is the paper's
    score. `crps` is that of the mixture of at most MOST_PAIRED components with equal weights, each there as often as
    its weight says. y lies in the central interval of coverage c where |F(y) − ½| ≤ c/2.
    """
    n_few = min(len(means), MOST_PAIRED)
    few = np.searchsorted(np.cumsum(weights), (np.arange(n_few) + 0.5) / n_few)
    few = np.minimum(few, len(means) - 1)  # the weights may add up to a little less than 1
    stds = np.sqrt(variances)
    z = (y - means) / stds
    log_density = -0.5 * z**2 - np.log(stds) - 0.5 * np.log(2.0 * np.pi)
    probability = weights @ ndtr(z)
    return {
        "log_density": metrics.mean_log_density(logsumexp(log_density, axis=0, b=weights[:, None])),
        "mean_log_density_of_paths": metrics.mean_log_density(weights @ log_density),
        "rmse": metrics.rmse(y, weights @ means),
        "crps": float(metrics.crps_gaussian_mixture(y, means[few], variances[few]).mean()),
        **{f"coverage_{100 * c:.0f}": float(np.mean(np.abs(probability - 0.5) <= 0.5 * c)) for c in COVERAGES},
    }
