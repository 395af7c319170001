"""Small estimators and their data: the one file of this suite that knows how options are called.

All cases have the same numbers of rows, inputs, inducing points and steps, so that few programs are compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import wishflow as wf

N_ROWS, N_INPUTS = 200, 2
GP = {"n_inducing": 10, "max_iter": 20, "random_state": 0}
# Training reports every 100 steps: a fit can be interrupted between two of these reports.
STEPS = {"n_inducing": 10, "max_iter": 200, "random_state": 0}
FLOW = {**STEPS, "n_steps": 2, "rank": 2, "n_predict_samples": 5, "validation_fraction": 0}

Case = tuple[Any, Any, Any]  # an estimator, its inputs and its targets


# --- data ----------------------------------------------------------------------------------------


def inputs(seed: int = 0, n: int = N_ROWS) -> np.ndarray:
    """Two inputs in very different units."""
    return np.random.default_rng(seed).uniform(-2.0, 2.0, (n, N_INPUTS)) * [1.0, 20.0] + [0.0, 300.0]


def signal(X: np.ndarray) -> np.ndarray:
    return np.sin(2.0 * X[:, 0]) + 0.01 * (X[:, 1] - 300.0)


def real(seed: int = 0, n: int = N_ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Noise that grows with the first input."""
    X = inputs(seed, n)
    noise = np.random.default_rng([seed, 1]).normal(size=n)
    return X, 50.0 + 5.0 * (signal(X) + (0.05 + 0.3 * np.maximum(X[:, 0], 0.0)) * noise)


def frames(seed: int = 0, n: int = N_ROWS) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two targets of different size, with names."""
    X, y = real(seed, n)
    other = 1e-3 * (X[:, 1] - 300.0) + 1e-2 * np.random.default_rng([seed, 2]).normal(size=n)
    index = pd.Index(np.arange(n) + 1000, name="row")
    return (
        pd.DataFrame(X, index, ["angle", "kelvin"]),
        pd.DataFrame({"force": y, "strain": other}, index),
    )


def counts(seed: int = 0, n: int = N_ROWS) -> tuple[np.ndarray, np.ndarray]:
    X = inputs(seed, n)
    return X, np.random.default_rng([seed, 3]).poisson(np.exp(1.0 + signal(X)))


def labels(seed: int = 0, n: int = N_ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Three labels, of different frequency."""
    X, y = real(seed, n)
    return X, np.array(["high", "low", "middle"])[np.searchsorted([47.0, 52.0], y)]


# --- estimators ----------------------------------------------------------------------------------


def sparse_gp(**options: Any) -> Any:
    return wf.SparseGPRegressor(**{**GP, **options})


def poisson_gp(**options: Any) -> Any:
    return wf.SparseGPRegressor(**{**STEPS, "likelihood": "poisson", **options})


def flow(**options: Any) -> Any:
    return wf.FlowRegressor(**{**FLOW, **options})


def classifier(**options: Any) -> Any:
    return wf.FlowClassifier(**{**FLOW, **options})


def checkpointed(estimator: Any, folder: Any) -> Any:
    """The estimator with a state written after each report of training."""
    return estimator.set_params(checkpoint_dir=wf.Checkpointing(folder, every_seconds=0))


def watched(estimator: Any, callback: Any) -> Any:
    return estimator.set_params(callbacks=callback)


CASES: dict[str, Callable[[], Case]] = {
    "gp": lambda: (sparse_gp(), *real()),  # its law is recalibrated
    "two_targets": lambda: (sparse_gp(), *frames()),
    "counts": lambda: (poisson_gp(), *counts()),
    "flow": lambda: (flow(), *real()),
    "mixed": lambda: (flow(validation_fraction=0.2), *real()),  # the flow, and a sparse GP beside it
    "members": lambda: (sparse_gp(n_members=2), *real()),
    "classes": lambda: (classifier(), *labels()),
}
