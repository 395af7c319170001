"""The prior on lengthscales and noise: its density, where it is used, and what it is for."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from small import SMALL, SMALL_GP

import wishflow as wf
from wishflow import kernels, likelihoods
from wishflow.errors import OptionError
from wishflow.inducing import InducingBasis, SparseGP
from wishflow.kernels import RBF, Linear, Matern32, Periodic
from wishflow.numerics.devices import computing
from wishflow.numerics.parameters import Positive
from wishflow.regression.hyperprior import LOG_LENGTHSCALE, NOISE_SHAPE, SPREAD, hyperprior_penalty
from wishflow.regression.presets import fast_preset
from wishflow.regression.sparse_gp import SparseGPModel


def few_rows(n, seed=0):
    """One relevant column of ten."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    return X, X[:, 0] + 0.5 * rng.normal(size=n)


def model_with(spec, noise, n_inputs=3):
    basis = InducingBasis.of(kernels.build(spec, n_inputs), jnp.zeros((4, n_inputs)))
    likelihood = likelihoods.build("gaussian", len(noise))
    likelihood = eqx.tree_at(lambda part: part.noise, likelihood, Positive.of(noise))
    return SparseGPModel(SparseGP.prior(basis, len(noise)), likelihood)


def penalty(model):
    return float(hyperprior_penalty(model.output.basis.kernel, model.likelihood))


def bound_of(model):
    return model.history_["bound"].iloc[-1]


@pytest.fixture(scope="module")
def with_and_without():
    options = {"n_inducing": 30, "calibrate": None}
    return [wf.SparseGPRegressor(hyperprior=value, **options).fit(*few_rows(30, seed=2)) for value in ("auto", None)]


def test_the_penalty_is_the_density_of_normal_and_gamma_laws():
    """Of two models it differs as the log densities of log ℓ, normal, and of log σ², the log of a gamma variable."""

    def log_density(lengthscale, noise):
        law = scipy.stats.norm(LOG_LENGTHSCALE + 0.5 * np.log(3), SPREAD)
        of_noise = scipy.stats.loggamma(NOISE_SHAPE, loc=-np.log(NOISE_SHAPE))
        return 3 * law.logpdf(np.log(lengthscale)) + of_noise.logpdf(np.log(noise)).sum()

    values = [(0.5, np.array([0.1, 0.01])), (7.0, np.array([1.0, 2.0]))]
    with computing():
        found = [penalty(model_with(RBF(lengthscale=ell), noise)) for ell, noise in values]
    assert min(found) > 0
    np.testing.assert_allclose(found[0] - found[1], log_density(*values[1]) - log_density(*values[0]), rtol=1e-6)


def test_the_penalty_is_zero_at_the_mode_and_of_stationary_parts_alone():
    with computing():
        at_mode = np.exp(LOG_LENGTHSCALE)
        spec = RBF(lengthscale=at_mode * 3**0.5) + Matern32(lengthscale=at_mode, active_dims=(1,)) * Linear()
        assert penalty(model_with(spec, np.ones(2))) == pytest.approx(0.0, abs=1e-9)
        assert penalty(model_with(Linear() + Periodic(), np.ones(1))) == pytest.approx(0.0, abs=1e-9)


def test_few_rows_are_not_overfitted(with_and_without):
    X, y = few_rows(2000, seed=1)
    prior, plain = with_and_without
    assert prior.log_prob(X, y).mean() > plain.log_prob(X, y).mean() + 0.1
    low, high = prior.predict_interval(X, 0.95).T
    assert np.mean((low <= y) & (y <= high)) > 0.88


def test_the_objective_is_below_the_bound_that_is_maximised_without_the_prior(with_and_without):
    prior, plain = with_and_without
    assert bound_of(prior) < bound_of(plain)
    assert (np.diff(prior.history_["bound"]) >= 0).all()


def test_the_same_on_other_devices(monkeypatch):
    """Compiled chunks and SciPy maximise the same objective."""
    from wishflow.numerics import platform

    data = few_rows(40)
    options = {"n_inducing": 8, "max_iter": 200, "calibrate": None}
    on_host = wf.SparseGPRegressor(**options).fit(*data)
    monkeypatch.setattr(platform, "minimises_on_host", lambda n_models: False)
    elsewhere = wf.SparseGPRegressor(**options).fit(*data)
    assert bound_of(elsewhere) == pytest.approx(bound_of(on_host), abs=0.05)


def test_which_fits_have_it(X, y):
    assert wf.SparseGPRegressor(**SMALL_GP).fit(X, y).training_.hyperprior
    assert wf.FlowRegressor(**SMALL).fit(X, y).training_.hyperprior
    assert not wf.SparseGPRegressor(preset="paper", **SMALL_GP).fit(X, y).training_.hyperprior
    assert fast_preset(249, 3).hyperprior and not fast_preset(250, 3).hyperprior
    assert not wf.SparseGPRegressor(hyperprior=None, **SMALL_GP).fit(X, y).training_.hyperprior


def test_a_flow_is_the_same_with_and_without_it(X, y):
    """The prior is that of the sparse GP alone, not that of a warm start."""
    flows = [wf.FlowRegressor(hyperprior=value, **SMALL).fit(X, y) for value in ("auto", None)]
    np.testing.assert_array_equal(*(flow.predict(X[:5]) for flow in flows))


def test_an_unknown_prior_is_refused(X, y):
    with pytest.raises(OptionError, match="hyperprior='weak' given; expected 'auto' or None"):
        wf.SparseGPRegressor(hyperprior="weak").fit(X, y)
