"""Odd data for all estimators: a finite result or one of our errors; valid data must fit.

A task is a block of cases for one model that hypothesis draws from a seed. The models take turns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import jax
import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.errors import WishflowError
from wishflow.numerics import devices

from . import limits, odd_data
from .ledger import Found

N_CASES, N_SAMPLE = 20, 4
MOST_MAPS = 20_000
SMALL = {"n_inducing": 5, "max_iter": 3, "random_state": 0}
FLOW = {**SMALL, "n_steps": 2, "n_predict_samples": 4}
SERIES = {**SMALL, "rank": 1, "n_train_samples": 2}
PLAIN = {**SERIES, "validation_fraction": 0}
N_AHEAD, N_DRAWS = 3, 4

MODELS: dict[str, Callable[[], Any]] = {
    "SparseGPRegressor": lambda: wf.SparseGPRegressor(**SMALL),
    "SparseGPRegressor, Student-t": lambda: wf.SparseGPRegressor(likelihood="student_t", **SMALL),
    "FlowRegressor": lambda: wf.FlowRegressor(**FLOW),
    "FlowClassifier": lambda: wf.FlowClassifier(**FLOW),
    "WishartForecaster": lambda: wf.WishartForecaster(**SERIES),
    "WishartForecaster, plain": lambda: wf.WishartForecaster(**PLAIN),
    "WishartForecaster, latent": lambda: wf.WishartForecaster(latent_dim=1, **PLAIN),
    "WishartForecaster, lags": lambda: wf.WishartForecaster(lags=2, **PLAIN),
    "WideForecaster": lambda: wf.WideForecaster(forecaster=wf.WishartForecaster(**PLAIN)),
}


class Task:
    """Blocks of cases by their numbers, the models in turn."""

    def __init__(self, folder: Path, n_cases: int = N_CASES) -> None:
        self.n_cases = n_cases
        # Each program runs a few times: it is compiled sooner without optimised machine code.
        devices.QUICK_OPTIONS["xla_backend_optimization_level"] = 0

    def __call__(self, number: int) -> Found:
        found, name = Found(number), list(MODELS)[number % len(MODELS)]
        is_series, is_classifier = "Forecaster" in name, "Classifier" in name
        cases = odd_data.hours() if is_series else odd_data.rows(is_classifier)

        @hypothesis.seed(number)
        @hypothesis.settings(
            max_examples=self.n_cases,
            phases=[hypothesis.Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(cases)
        def block(case: Any) -> None:
            problem, outcome = outcome_of(name, case)
            kind = name.partition(",")[0]
            found.count(f"{kind}: {'problem' if problem else outcome}")
            if problem:
                found.problems.append(f"{name}: {problem} ({case.words})")

        block()
        if limits.n_maps() > MOST_MAPS:
            jax.clear_caches()
        return found


def outcome_of(name: str, case: Any) -> tuple[str | None, str]:
    """What must not be, if it was, and what was: a finite result, or an error of ours."""
    is_valid = case.is_valid and suits(name, case)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            numbers = results(MODELS[name](), case)
    except WishflowError as error:
        return (f"valid data: {limits.described(error)}" if is_valid else None), "refused"
    except Exception as error:
        return limits.described(error), "error"
    return (None if np.isfinite(numbers).all() else "not finite"), "valid, fitted" if is_valid else "odd, fitted"


def suits(name: str, case: Any) -> bool:
    """Lags above 1 need a grid, and common factors three series too."""
    if name == "WideForecaster":
        return bool(case.is_regular and np.ndim(case.y) == 2 and np.shape(case.y)[1] >= 3)
    return name != "WishartForecaster, lags" or case.is_regular


def ahead(case: Any) -> Any:
    """Steps, or stamps where gaps differ: no step is known there."""
    if case.is_regular or not isinstance(case.y, (pd.DataFrame, pd.Series)):
        return N_AHEAD
    gap = case.y.index.to_series().diff().median()
    return [case.y.index.max() + k * gap for k in range(1, N_AHEAD + 1)]


def results(model: Any, case: Any) -> np.ndarray:
    """Numbers that a fitted model gives."""
    if isinstance(model, (wf.WishartForecaster, wf.WideForecaster)):
        found = model.fit(case.y).forecast(ahead(case), n_draws=N_DRAWS)
        parts = [np.ravel(part.samples) for part in (found.values() if isinstance(found, dict) else [found])]
        return np.concatenate(parts)
    model.fit(case.X, case.y)
    if isinstance(model, wf.FlowClassifier):
        return np.concatenate([np.ravel(model.predict_proba(case.X)), model.log_prob(case.X, case.y)])
    mean, std = model.predict(case.X, return_std=True)
    return np.concatenate([np.ravel(mean), np.ravel(std), model.log_prob(case.X, case.y)])
