"""Model files of each version, one of every kind of estimator, with what they predict.

    python -m tests.reference.released

writes those of the version that is installed to `tests/reference/models/v…`: once, when it is released. Later versions
load them and predict the same (`test_released`). Files that are there are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import wishflow as wf

FOLDER = Path(__file__).parent / "models"
GP = {"n_inducing": 6, "max_iter": 5, "random_state": 0}
FLOW = {**GP, "n_steps": 2, "n_predict_samples": 8}
SERIES = {"n_inducing": 5, "max_iter": 4, "n_train_samples": 2, "rank": 2, "lags": 1, "random_state": 0}
PLAIN = {"validation_fraction": 0, "calibrate": None}
N_ROWS, N_HOURS = 120, 90


def rows() -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (N_ROWS, 2))
    y = np.sin(3.0 * X[:, 0]) + X[:, 1] + (0.1 + 0.2 * (X[:, 0] > 0)) * rng.normal(size=N_ROWS)
    return pd.DataFrame(X, columns=["länge", "b"]), pd.Series(100.0 + 5.0 * y, name="y")


def labels() -> tuple[pd.DataFrame, np.ndarray]:
    X, y = rows()
    return X, np.array(["low", "middle", "high"])[np.searchsorted(np.quantile(y, [0.3, 0.7]), y)]


def hours(n_series: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    walk = np.cumsum(rng.normal(size=(N_HOURS, n_series)), axis=0)
    times = pd.date_range("2024-03-01", periods=N_HOURS, freq="h", tz="Europe/Copenhagen")
    return pd.DataFrame(10.0 + walk, times, list("abc")[:n_series])


CASES: dict[str, Callable[[], Any]] = {
    "sparse_gp": lambda: wf.SparseGPRegressor(**GP, calibrate=None).fit(*rows()),
    "sparse_gp_calibrated": lambda: wf.SparseGPRegressor(**GP).fit(*rows()),
    "flow": lambda: wf.FlowRegressor(**FLOW, **PLAIN).fit(*rows()),
    "flow_calibrated": lambda: wf.FlowRegressor(**FLOW, validation_fraction=0.3).fit(*rows()),
    "flow_members": lambda: wf.FlowRegressor(**FLOW, n_members=2).fit(*rows()),
    "classifier": lambda: wf.FlowClassifier(**FLOW).fit(*labels()),
    "forecaster": lambda: wf.WishartForecaster(**SERIES, **PLAIN).fit(hours()),
    "forecaster_calibrated": lambda: wf.WishartForecaster(**SERIES).fit(hours()),
    "forecaster_members": lambda: wf.WishartForecaster(**SERIES, n_members=2, **PLAIN).fit(hours()),
    "forecaster_of_a_panel": lambda: wf.WishartForecaster(**SERIES, **PLAIN).fit({"x": hours(), "y": 2.0 * hours()}),
    "wide": lambda: wf.WideForecaster(n_factors=1, forecaster=wf.WishartForecaster(**SERIES, **PLAIN)).fit(hours(3)),
    "forecaster_latent": lambda: wf.WishartForecaster(**SERIES, latent_dim=2, **PLAIN).fit(hours(3)),
}


def predicted(model: Any) -> dict[str, np.ndarray]:
    """What users ask of a model; all of it follows from its file."""
    if getattr(model, "is_panel_", False):
        forecasts = model.forecast([1, 3], n_draws=4)
        return {f"draws of {key}": forecasts[key].samples.values for key in ("x", "y")}
    if isinstance(model, wf.WishartForecaster | wf.WideForecaster):
        forecast = model.forecast([1, 3], n_draws=4)
        quantiles = model.predict_quantiles([1, 3], alpha=[0.1, 0.9]).to_numpy()
        return {"draws": forecast.samples.values, "quantiles": quantiles}
    new = pd.DataFrame(np.random.default_rng(9).uniform(-1.5, 1.5, (7, 2)), columns=["länge", "b"])
    if isinstance(model, wf.FlowClassifier):
        return {"probabilities": model.predict_proba(new), "names": model.predict(new).astype(str)}
    mean, std = model.predict(new, return_std=True)
    return {"mean": mean, "std": std, "quantiles": model.predict_quantiles(new, [0.1, 0.9])}


def main() -> None:
    folder = FOLDER / f"v{wf.__version__}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, fit in CASES.items():
        if not (folder / f"{name}.safetensors").exists():
            model = fit()
            np.savez_compressed(folder / f"{name}.npz", **predicted(model))
            model.save(folder / f"{name}.safetensors")
            print(name, type(model).__name__, model.status_[:80], flush=True)


if __name__ == "__main__":
    main()
