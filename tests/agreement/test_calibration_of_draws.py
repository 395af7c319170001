"""Simulation-based calibration of the conjugate sparse GP (Talts et al., 2018).

Functions are drawn from the prior, targets from the functions, and the posterior given the targets is drawn from by the
estimator's own `sample_y`. With the true kernel and noise, and Z = X, the rank of the true value among draws is
uniform. Runs are the targets of one model: they share inputs and kernel, and are independent.
"""

import equinox as eqx
import numpy as np
import pytest
from scipy.stats import chisquare
from test_exact_gp import make_batch, make_model, with_posterior

import wishflow as wf
from wishflow.kernels import RBF
from wishflow.numerics.devices import computing
from wishflow.numerics.scaling import Scaler
from wishflow.regression.collapsed import optimal_posterior

N_RUNS, N_DRAWS, N_BINS = 200, 19, 10
N_ROWS, N_NEW = 25, 4
KERNEL, NOISE = RBF(variance=1.0, lengthscale=0.8), 0.2


def simulated(seed):
    """Inputs, and one column of targets for each run: N_ROWS to learn from, then N_NEW to rank."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (N_ROWS + N_NEW, 2))
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1) / 0.8**2)
    L = np.linalg.cholesky(K + 1e-10 * np.eye(len(K)))
    return X, L @ rng.normal(size=(len(X), N_RUNS)) + np.sqrt(NOISE) * rng.normal(size=(len(X), N_RUNS))


def estimator(X, y, noise):
    """A regressor of unscaled data whose kernel, noise and inducing points are given, with its exact posterior."""
    made = wf.SparseGPRegressor(n_inducing=3, max_iter=1, calibrate=None).fit(X, y[:, :2])
    made.x_scaler_, made.y_scaler_ = Scaler.identity(2), Scaler.identity(N_RUNS)
    with computing():
        model = make_model(KERNEL, X, np.full(N_RUNS, noise))
        made.model_ = with_posterior(model, eqx.filter_jit(optimal_posterior)(model, make_batch(X, y)))
    return made


def ranks(noise):
    """The ranks of one new target, and of the sum of all, which depends on their covariance."""
    X, y = simulated(0)
    new = slice(N_ROWS, None)
    made = estimator(X[:N_ROWS], y[:N_ROWS], noise)
    draws = made.sample_y(X[new], N_DRAWS)  # (N_NEW, N_RUNS, N_DRAWS)
    one = (draws[0] < y[N_ROWS][:, None]).sum(-1)
    return one, (draws.sum(0) < y[new].sum(0)[:, None]).sum(-1)


def p_value(values):
    return chisquare(np.histogram(values, N_BINS, (-0.5, N_DRAWS + 0.5))[0]).pvalue


@pytest.fixture(autouse=True)
def _library_context():
    """The estimator is used as users do."""
    yield


def test_ranks_of_true_values_among_draws_are_uniform(record_property):
    found = [p_value(values) for values in ranks(NOISE)]
    assert min(found) > 0.01
    record_property("calibration of draws", f"p = {found[0]:.2f} for one value, {found[1]:.2f} for the sum of several")


def test_ranks_are_not_uniform_where_the_noise_is_wrong():
    """The test above can fail: with a sixth of the noise the draws are too narrow."""
    one, _ = ranks(NOISE / 6.0)
    assert p_value(one) < 1e-4
