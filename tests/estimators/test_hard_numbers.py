"""Numbers that are hard to compute with: many inducing points that coincide, lengthscales far from the data, columns
that are constant or identical, in both precisions. A fit ends with finite predictions, or with an error of ours.
"""

import dataclasses
import warnings

import numpy as np
import pytest

import wishflow as wf
from wishflow.datasets import load_uci
from wishflow.errors import DatasetError, NumericalError, WishflowError
from wishflow.numerics import linalg
from wishflow.regression import training
from wishflow.regression.presets import fast_preset

N_ROWS, N_INDUCING = 300, 200


def like_naval():
    """16 columns of a ship's engine: two are constant, two are identical, most depend on one lever alone."""
    rng = np.random.default_rng(0)
    lever = rng.integers(1, 10, N_ROWS).astype(float)
    decay = rng.uniform(0.95, 1.0, (N_ROWS, 2))
    X = lever[:, None] ** rng.uniform(0.5, 2.0, 16) * (1.0 + 1e-3 * decay @ rng.normal(size=(2, 16)))
    X[:, 8], X[:, 11], X[:, 6] = 288.0, 0.998, X[:, 5]
    return X, decay[:, 0]


def naval():
    try:
        data = load_uci("naval")
    except DatasetError:
        pytest.skip("the data set is not there and cannot be downloaded")
    rows = np.random.default_rng(0).permutation(len(data.X))[:N_ROWS]
    return data.X[rows], data.y[rows]


DATA = {"simulated": like_naval, "naval": naval}


@pytest.fixture
def coinciding(monkeypatch):
    """Inducing points of which each is there four times, once moved by rounding alone."""

    def points(X, n_inducing, seed):
        chosen = np.repeat(X[: n_inducing // 4], 4, axis=0)
        chosen[::4] *= 1.0 + 1e-15
        return chosen

    monkeypatch.setattr(training, "inducing_points", points)


def finite_or_ours(fit, X, y):
    """Whether the fit has finite predictions; otherwise it must have raised an error of ours, with a remedy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of training that diverged, which is said too
        try:
            model = fit()
        except WishflowError as error:
            assert isinstance(error, NumericalError) and len(str(error)) > 40
            return False
    found = [*model.predict(X, return_std=True), model.log_prob(X, y)]
    assert all(np.isfinite(part).all() for part in found)
    assert np.isfinite(model.history_["objective"]).all()
    return True


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("lengthscale", [1e-3, 1.0, 1e3])
def test_sparse_gps(data, lengthscale, coinciding):
    X, y = DATA[data]()
    kernel = wf.kernels.RBF(lengthscale=lengthscale)
    model = wf.SparseGPRegressor(kernel=kernel, n_inducing=N_INDUCING, max_iter=15, calibrate=None, random_state=0)
    assert finite_or_ours(lambda: model.fit(X, y), X, y)
    assert len(model.model_.output.basis.Z) == N_INDUCING


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lengthscale", [1e-3, 1e3])
def test_flows(dtype, lengthscale, coinciding):
    X, y = like_naval()
    preset = dataclasses.replace(fast_preset(N_ROWS, 16), flow_dtype=dtype, validation_fraction=0.0)
    kernel = wf.kernels.RBF(lengthscale=lengthscale)
    options = {"n_inducing": N_INDUCING, "max_iter": 20, "n_steps": 2, "n_predict_samples": 4, "random_state": 0}
    model = wf.FlowRegressor(kernel=kernel, preset=preset, calibrate=None, **options)
    assert finite_or_ours(lambda: model.fit(X, y), X, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lengthscale", [1e-3, 1.0, 1e3])
def test_the_jitter_of_coinciding_points_is_found_in_both_precisions(dtype, lengthscale):
    """Of 200 points, each four times: K + jitter I can be factorised, with a jitter far below the largest."""
    Z = np.repeat(np.random.default_rng(0).normal(size=(50, 16)), 4, axis=0).astype(dtype).astype(float)
    K = np.exp(-0.5 * ((Z[:, None] - Z[None]) ** 2).sum(-1) / lengthscale**2)
    jitter = linalg.choose_jitter(K, 1.0)
    factor = np.linalg.cholesky(K + jitter * np.eye(len(K)))
    np.testing.assert_allclose(factor @ factor.T, K + jitter * np.eye(len(K)), atol=1e-12)
    assert jitter <= 1e-8
