"""Small estimators of every kind, and the data they are fitted to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import wishflow as wf
from wishflow import diffusions, kernels, likelihoods

N_ROWS, N_HOURS = 40, 60
GP = {"n_inducing": 6, "max_iter": 3}
FLOW = {**GP, "n_steps": 2, "n_predict_samples": 5, "validation_fraction": 0}
SERIES = {"n_inducing": 5, "max_iter": 2, "n_train_samples": 2, "rank": 2, "validation_fraction": 0, "calibrate": None}
# What "auto" was called before there was something to choose.
SERIES |= {"lags": 1, "calendar": False, "transform": None, "white_noise": "constant"}


def forecaster(**options: Any) -> wf.WishartForecaster:
    return wf.WishartForecaster(**{**SERIES, **options})


def rows(seed: int = 0, n_targets: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, 2) and real targets."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (N_ROWS, 2))
    y = np.sin(3.0 * X[:, :1]) + X[:, 1:] * np.arange(1, n_targets + 1) + 0.1 * rng.normal(size=(N_ROWS, n_targets))
    return X, y[:, 0] if n_targets == 1 else y


def counts() -> tuple[np.ndarray, np.ndarray]:
    X, y = rows(1)
    return X, np.random.default_rng(1).poisson(np.exp(1.0 + y))


def labels(names: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
    X, y = rows(2)
    return X, np.asarray(names)[np.searchsorted(np.quantile(y, np.linspace(0, 1, len(names) + 1)[1:-1]), y)]


def hours(n_series: int = 2, has_holes: bool = False, seed: int = 3) -> pd.DataFrame:
    """Positive hourly series."""
    rng = np.random.default_rng(seed)
    walk = np.cumsum(rng.normal(size=(N_HOURS, n_series)), axis=0)
    values = np.exp(0.3 * walk + 0.3 * np.sin(2.0 * np.pi * np.arange(N_HOURS) / 24)[:, None])
    if has_holes:
        values[rng.uniform(size=values.shape) < 0.1] = np.nan
    return pd.DataFrame(values, pd.date_range("2024-01-01", periods=N_HOURS, freq="h"), list("abcd")[:n_series])


def irregular() -> pd.DataFrame:
    return hours().iloc[np.sort(np.random.default_rng(4).permutation(N_HOURS)[:40])]


def panel() -> dict[str, pd.DataFrame]:
    return {"one": hours(seed=5), "two": hours(seed=6)}


REGRESSION: dict[str, tuple[Any, Any]] = {
    "sgp": (wf.SparseGPRegressor(**GP), rows()),
    "sgp_two_targets": (wf.SparseGPRegressor(kernel="matern32", **GP), rows(n_targets=2)),
    "sgp_kernels": (wf.SparseGPRegressor(kernel=kernels.RBF() * kernels.Linear() + kernels.Periodic(), **GP), rows()),
    "sgp_student_t": (wf.SparseGPRegressor(likelihood="student_t", **GP), rows()),
    "sgp_poisson": (wf.SparseGPRegressor(likelihood=likelihoods.Poisson(), **GP), counts()),
    "flow": (wf.FlowRegressor(rank=2, **FLOW), rows()),
    "flow_wide": (wf.FlowRegressor(state_dim=4, **FLOW), rows()),
    "flow_independent": (wf.FlowRegressor(rank=1, columns="independent", time_dependent=True, **FLOW), rows()),
    "flow_structured": (
        wf.FlowRegressor(diffusion=diffusions.Wishart(2, white=0.02, posterior="structured"), **FLOW),
        rows(),
    ),
    "flow_full": (wf.FlowRegressor(diffusion=diffusions.Wishart(1, posterior="full"), **FLOW), rows()),
    "flow_mean_field": (wf.FlowRegressor(diffusion=diffusions.Wishart(2, posterior="diagonal"), **FLOW), rows()),
    "flow_pathwise": (wf.FlowRegressor(sampling="pathwise", rank=2, **FLOW), rows()),
    "flow_gp": (wf.FlowRegressor(diffusion="gp", **FLOW), rows()),
    "flow_diagonal": (wf.FlowRegressor(diffusion="diagonal", **FLOW), rows()),
    "flow_none": (wf.FlowRegressor(diffusion="none", **FLOW), rows()),
    "flow_paper": (wf.FlowRegressor(preset="paper", **FLOW), rows()),
    "flow_poisson": (wf.FlowRegressor(likelihood="poisson", **FLOW), counts()),
    "classes_two": (wf.FlowClassifier(**{k: v for k, v in FLOW.items() if "fraction" not in k}), labels(("no", "yes"))),
    "classes_three": (wf.FlowClassifier(**{k: v for k, v in FLOW.items() if "fraction" not in k}), labels((1, 2, 5))),
}

FORECASTING: dict[str, tuple[Any, Any]] = {
    "series": (forecaster(), hours()),
    "series_shared": (forecaster(columns="shared"), hours(has_holes=True)),
    "series_gp": (forecaster(diffusion="gp"), hours()),
    "series_diagonal": (forecaster(diffusion="diagonal", drift="linear"), hours()),
    "series_none": (forecaster(diffusion="none", drift="gp"), hours()),
    "series_white": (forecaster(white_noise="state", transform="log1p"), hours()),
    "series_tails": (forecaster(innovations="student_t", transform="sqrt"), hours(has_holes=True)),
    "series_lags": (forecaster(lags=(1, 2, 6), calendar=True), hours(has_holes=True)),
    "series_step": (forecaster(step=0.5, transform={"a": "log"}, limits=0.1), irregular()),
    "series_rotated": (
        forecaster(diffusion=diffusions.Wishart(2, unit_rows=False), objective="rollout"),
        hours(),
    ),
    "series_panel": (forecaster(), panel()),
    "latent": (forecaster(latent_dim=2), hours(3)),
    "latent_gp": (
        forecaster(latent_dim=wf.series.Latent(2, "gp", True), objective="rollout"),
        hours(3, has_holes=True),
    ),
}
