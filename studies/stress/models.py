"""Small fitted models of all kinds, as files to be mutated, and how each is used once it is loaded."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import wishflow as wf

from ..paths import ROOT

SMALL = {"n_inducing": 6, "max_iter": 3, "random_state": 0}
FLOW = {**SMALL, "n_steps": 2, "n_predict_samples": 4}
SERIES = {"n_inducing": 5, "max_iter": 3, "n_train_samples": 2, "rank": 1, "random_state": 0}
PLAIN = {"validation_fraction": 0, **SERIES}
RELEASED = {"released flow": "flow", "released series": "series_lags", "released latent": "latent"}
N_DRAWS, N_AHEAD = 4, 2


@functools.cache
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (40, 2))
    return X, np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=40)


@functools.cache
def hours(n_rows: int = 60, seed: int = 0) -> pd.DataFrame:
    walk = np.random.default_rng(seed).normal(size=(n_rows, 2)).cumsum(axis=0)
    return pd.DataFrame(np.exp(0.2 * walk), pd.date_range("2024-01-01", periods=n_rows, freq="h", tz="UTC"), ["a", "b"])


def many_hours() -> pd.DataFrame:
    noise = np.random.default_rng(1).normal(size=(60, 6))
    return pd.DataFrame(hours()[["a"]].to_numpy() + 0.1 * noise, hours().index, list("abcdef"))


def covariates(n_rows: int, first: int = 0) -> pd.DataFrame:
    stamps = pd.date_range("2024-01-01", periods=first + n_rows, freq="h", tz="UTC")[first:]
    return pd.DataFrame({"u": np.sin(np.arange(first, first + n_rows) / 4.0)}, stamps)


def _classes(n: int) -> np.ndarray:
    y = rows()[1]
    return np.array(["no", "yes", "perhaps"])[np.searchsorted(np.quantile(y, np.arange(1, n) / n), y)]


MAKERS: dict[str, Callable[[], Any]] = {
    "gp": lambda: wf.SparseGPRegressor(**SMALL).fit(*rows()),
    "gp members": lambda: wf.SparseGPRegressor(n_members=2, **SMALL).fit(*rows()),
    "flow": lambda: wf.FlowRegressor(validation_fraction=0, rank=2, **FLOW).fit(*rows()),
    "flow members": lambda: wf.FlowRegressor(n_members=2, columns="independent", **FLOW).fit(*rows()),
    "two classes": lambda: wf.FlowClassifier(**FLOW).fit(rows()[0], _classes(2)),
    "three classes": lambda: wf.FlowClassifier(**FLOW).fit(pd.DataFrame(rows()[0], columns=["é", "β"]), _classes(3)),
    "series": lambda: wf.WishartForecaster(**PLAIN).fit(hours()),
    "validated series": lambda: wf.WishartForecaster(**SERIES).fit(hours(210)),  # rows enough that it trains
    "series members": lambda: wf.WishartForecaster(n_members=2, **PLAIN).fit(hours()),
    "covariates": lambda: wf.WishartForecaster(lags=2, **PLAIN).fit(hours(), covariates(60)),
    "panel": lambda: wf.WishartForecaster(panel_effects=True, **PLAIN).fit({"one": hours(), "two": hours(60, 1)}),
    "latent": lambda: wf.WishartForecaster(latent_dim=1, **PLAIN).fit(hours()),
    "wide": lambda: wf.WideForecaster(n_factors=1, forecaster=wf.WishartForecaster(**PLAIN)).fit(many_hours()),
}
KINDS = (*MAKERS, *RELEASED)
SAMPLE = ("gp", *RELEASED)


def made(folder: Path, kinds: tuple[str, ...] = KINDS) -> dict[str, bytes]:
    """The content of one file of each kind; models are fitted where the folder lacks them."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for kind in kinds:
        path = folder / kind.replace(" ", "_")
        if kind in RELEASED:
            path = ROOT / "tests" / "reference" / "v0.1.0" / f"{RELEASED[kind]}.safetensors"
        elif not path.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                MAKERS[kind]().save(path)
        found[kind] = path.read_bytes()
    return found


def used(model: Any, kind: str) -> np.ndarray:
    """Numbers that a loaded model gives: predictions of rows, or draws of a forecast."""
    if isinstance(model, wf.WishartForecaster | wf.WideForecaster):
        ahead = covariates(N_AHEAD, 60) if kind == "covariates" else None
        found = model.forecast(N_AHEAD, X=ahead, n_draws=N_DRAWS)
        parts = found.values() if isinstance(found, dict) else [found]
        return np.concatenate([np.ravel(part.samples) for part in parts])
    X = rows()[0]
    if isinstance(model, wf.FlowClassifier):
        return np.ravel(model.predict_proba(pd.DataFrame(X, columns=["é", "β"]) if kind == "three classes" else X))
    return np.concatenate([np.ravel(part) for part in model.predict(X, return_std=True)])
