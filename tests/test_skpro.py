"""The adapter for skpro: skpro's own checks, and laws that are those of the regressors."""

import inspect
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.model_selection import KFold

import wishflow as wf
from wishflow import metrics
from wishflow.errors import DataError

pytest.importorskip("skpro", reason="the extra sktime is not installed: pip install 'wishflow[sktime]'")

from skpro.metrics import CRPS
from skpro.model_selection import GridSearchCV
from skpro.utils.estimator_checks import check_estimator

from wishflow.regression.skpro import GaussianMixture, ProbaRegressor

SPARSE = {"n_inducing": 5, "max_iter": 5}
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.uniform(-2.0, 2.0, (40, 2)), index=range(100, 140), columns=["a", 7])
Y = pd.DataFrame({"y": np.sin(X["a"]) + 0.1 * RNG.normal(size=40), "z": X[7]})
NEW = X.head(6)


def plain(frame):
    return frame.set_axis(["a", "7"], axis=1)


@pytest.mark.slow
def test_the_checks_of_skpro_pass(monkeypatch):
    # Without the checks of types that tests put around it: skpro reads the arguments of the constructor.
    monkeypatch.setattr(ProbaRegressor, "__init__", inspect.unwrap(ProbaRegressor.__init__))
    results = check_estimator(ProbaRegressor, raise_exceptions=False, verbose=False)
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}
    assert len(results) > 50


@pytest.fixture(scope="module")
def flow():
    """A flow of two targets, recalibrated with tails or not: a mixture either way."""
    options = {"n_inducing": 5, "max_iter": 3, "n_predict_samples": 8, "calibrate": None, "validation_fraction": 0}
    return ProbaRegressor(wf.FlowRegressor(**options)).fit(X, Y)


def test_the_law_of_a_flow_is_its_mixture(flow):
    law = flow.predict_proba(NEW)
    mean, std = flow.estimator_.predict(plain(NEW), return_std=True)
    assert isinstance(law, GaussianMixture) and law.index.equals(NEW.index) and list(law.columns) == ["y", "z"]
    np.testing.assert_allclose(law.mean(), mean, rtol=1e-6)
    np.testing.assert_allclose(flow.predict(NEW), mean, rtol=1e-6)
    np.testing.assert_allclose(law.var(), std**2, rtol=1e-5)
    quantiles = flow.estimator_.predict_quantiles(plain(NEW), [0.05, 0.9])
    np.testing.assert_allclose(flow.predict_quantiles(NEW, [0.05, 0.9]), quantiles.reshape(6, 4), rtol=1e-4, atol=1e-5)


def test_scores_of_a_mixture_are_those_of_the_metrics(flow):
    """CRPS of skpro, for each row and target; the mixture of skpro itself takes all means for one."""
    y = Y.loc[NEW.index]
    means, variances = flow.estimator_.predict_components(plain(NEW))
    expected = metrics.crps_gaussian_mixture(y.to_numpy(), means, variances)
    law = flow.predict_proba(NEW)
    for name, column in zip(y.columns, expected.T, strict=True):
        found = CRPS().evaluate_by_index(y[[name]], law.loc[:, [name]])
        np.testing.assert_allclose(np.ravel(found), column, rtol=1e-6)


def test_the_law_of_a_sparse_gp_is_normal_and_densities_agree():
    one = Y[["z"]]
    model = ProbaRegressor(wf.SparseGPRegressor(calibrate=None, **SPARSE)).fit(X, one)
    law = model.predict_proba(NEW)
    assert type(law).__name__ == "Normal"
    density = model.estimator_.log_prob(plain(NEW), one.loc[NEW.index, "z"])
    np.testing.assert_allclose(np.ravel(law.log_pdf(one.loc[NEW.index])), density, rtol=1e-5, atol=1e-6)


def test_other_noise_gives_draws():
    model = ProbaRegressor(wf.SparseGPRegressor(likelihood="student_t", **SPARSE), n_draws=4000).fit(X, Y[["y"]])
    law = model.predict_proba(NEW)
    assert type(law).__name__ == "Empirical" and law.index.equals(NEW.index)
    mean, std = model.estimator_.predict(plain(NEW), return_std=True)
    away = (np.ravel(law.mean()) - mean) / (std / np.sqrt(4000))
    assert scipy.stats.chi2.sf(np.sum(away**2), 6) > 1e-4


def test_a_refit_that_fails_leaves_the_predictions_as_they_were():
    model = ProbaRegressor(wf.SparseGPRegressor(**SPARSE)).fit(X, Y[["y"]])
    before = model.predict(NEW)
    with pytest.raises(DataError, match="infinity"):
        model.fit(X, Y.assign(z=np.inf))
    pd.testing.assert_frame_equal(model.predict(NEW), before)


def test_parameters_are_reached_by_searches_of_skpro():
    model = ProbaRegressor(wf.SparseGPRegressor(max_iter=5))
    grid = {"estimator__n_inducing": [1, 8]}
    found = GridSearchCV(model, KFold(2), grid, scoring=CRPS()).fit(X, Y[["y"]])
    assert found.best_params_["estimator__n_inducing"] == 8  # one point does not hold a sine


def test_a_missing_skpro_is_named():
    code = "import sys; sys.modules['skpro'] = None; import wishflow.regression.skpro"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "wishflow.regression.skpro needs skpro; install it with: pip install 'wishflow[sktime]'" in done.stderr
