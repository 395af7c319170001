"""Compare MAPIE's conformal intervals for wishflow's regressors with the intervals of the predictive distribution.

Run it with `python docs/examples/conformal.py` (`pip install mapie`). For each method, it prints the share of new rows
inside the intervals and the mean width.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from mapie.regression import CrossConformalRegressor, JackknifeAfterBootstrapRegressor, SplitConformalRegressor

import wishflow as wf

COVERAGE = 0.9


def simulated(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate data whose noise grows with the input and has heavier tails than a normal distribution."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, n_rows)
    return x[:, None], np.sin(2.0 * x) + (0.1 + 0.2 * np.maximum(x, 0.0)) * rng.standard_t(5.0, n_rows)


def split_conformal(model, X_cal, y_cal, X_new):
    """For a fitted model: the mean plus or minus a quantile of absolute errors, with the same width everywhere."""
    mapie = SplitConformalRegressor(model, COVERAGE, prefit=True).conformalize(X_cal, y_cal)
    return mapie.predict_interval(X_new)[1][:, :, 0]


def region(model, X_cal, y_cal, X_new):
    """The same with errors in units of the predictive standard deviation: wishflow's region for one target."""
    found = model.conformal_region(X_cal, y_cal, COVERAGE)
    centre, variance = (part.ravel() for part in found.ellipsoids(X_new))
    return centre[:, None] + found.radius * np.sqrt(variance)[:, None] * [-1.0, 1.0]


def cross_conformal(model, X, y, X_new):
    """CV+: no rows are set aside, and the model is fitted six times. "std_normalized" uses standard deviations."""
    mapie = CrossConformalRegressor(model, COVERAGE, "std_normalized", cv=5, random_state=0)
    return mapie.fit_conformalize(X, y).predict_interval(X_new)[1][:, :, 0]


def jackknife_after_bootstrap(model, X, y, X_new):
    """Jackknife+-after-bootstrap. With few fits, some rows are in every bootstrap sample, and MAPIE warns."""
    mapie = JackknifeAfterBootstrapRegressor(model, COVERAGE, resampling=30, random_state=0)
    return mapie.fit_conformalize(X, y).predict_interval(X_new)[1][:, :, 0]


def compared(**flow_options) -> pd.DataFrame:
    """Coverage and mean width at 2000 new rows, with 200 rows to fit, or 100 to fit and 100 to calibrate."""
    X, y = simulated(200, seed=0)
    X_new, y_new = simulated(2000, seed=1)
    X_fit, y_fit, X_cal, y_cal = X[:100], y[:100], X[100:], y[100:]
    whole = wf.SparseGPRegressor(n_inducing=20, random_state=0).fit(X, y)
    half = wf.SparseGPRegressor(n_inducing=20, random_state=0).fit(X_fit, y_fit)
    # Without validation rows the flow is always kept; otherwise the sparse GP might replace it on so few rows.
    flow = wf.FlowRegressor(n_inducing=20, random_state=0, validation_fraction=0, **flow_options).fit(X_fit, y_fit)
    intervals = {
        "sparse GP, 200 rows: predictive distribution": whole.predict_interval(X_new, COVERAGE),
        "sparse GP, 200 rows: CV+": cross_conformal(whole, X, y, X_new),
        "sparse GP, 200 rows: jackknife+-after-bootstrap": jackknife_after_bootstrap(whole, X, y, X_new),
    }
    for name, model in (("sparse GP", half), ("flow", flow)):
        intervals |= {
            f"{name}, 100 rows: predictive distribution": model.predict_interval(X_new, COVERAGE),
            f"{name}, 100 + 100 rows: split conformal": split_conformal(model, X_cal, y_cal, X_new),
            f"{name}, 100 + 100 rows: conformal_region": region(model, X_cal, y_cal, X_new),
        }
    rows = {}
    for name, (low, high) in ((name, found.T) for name, found in intervals.items()):
        rows[name] = {"coverage": np.mean((low <= y_new) & (y_new <= high)), "mean width": np.mean(high - low)}
    return pd.DataFrame.from_dict(rows, orient="index")


if __name__ == "__main__":
    print(compared().to_string(float_format="{:.3f}".format))
