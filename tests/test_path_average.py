"""The mean over paths of densities instead of their logs: an objective in which noise of the flow explains y."""

import functools

import equinox as eqx
import jax
import numpy as np
import pytest
from factories import make_batch, make_flow, quick_jit

import wishflow as wf
from wishflow.errors import OptionError
from wishflow.regression.objectives import negative_objective


@functools.partial(quick_jit, static_argnames=("average", "n_samples"))
def evaluate(model, batch, key, average, n_samples):
    return negative_objective(model, batch, key, average=average, n_samples=n_samples, has_sites=True)


def fit_of(*args):
    return float(evaluate(*args)[1][0]["fit"])


@pytest.mark.parametrize("name", [pytest.param("gp", marks=pytest.mark.slow), "wishart-shared-white"])
def test_the_mean_of_densities_is_above_that_of_logs_and_one_path_has_but_one_mean(name, key):
    model, batch = make_flow(name), make_batch()
    np.testing.assert_allclose(fit_of(model, batch, key, "log", 1), fit_of(model, batch, key, "density", 1), rtol=1e-12)
    assert fit_of(model, batch, key, "density", 4) > fit_of(model, batch, key, "log", 4)


@pytest.mark.slow
def test_more_paths_raise_the_mean_of_densities(key):
    """Jensen (Burda et al. 2016, theorem 1), in the mean over keys."""
    model, batch = make_flow("wishart-shared-white"), make_batch()
    keys = jax.random.split(key, 200)
    values = [np.mean([fit_of(model, batch, k, "density", s) for k in keys]) for s in (1, 3, 9)]
    assert values[0] < values[1] < values[2]


@pytest.mark.parametrize("average", ["log", "density"])
def test_sites_hold_the_gradient_of_the_fit(average, key):
    """d fit / d m = Σ w a (target − λ mean): what a natural step follows is the derivative of what it maximises."""
    model, batch = make_flow("gp"), make_batch()
    run = quick_jit(jax.grad(lambda mean: _with_mean(model, mean, batch, key, average), has_aux=True))
    gradient, sites = run(model.output.posterior.mean)
    means = sites.a @ model.output.posterior.mean.T
    slopes = sites.target - sites.curvature * means
    np.testing.assert_allclose(gradient, (sites.weights[:, None] * slopes).T @ sites.a, rtol=1e-8)


def _with_mean(model, mean, batch, key, average):
    moved = eqx.tree_at(lambda m: m.output.posterior.mean, model, mean)
    _, (parts, sites) = negative_objective(moved, batch, key, average=average, n_samples=3, has_sites=True)
    return parts["fit"], sites


def test_an_unknown_average_is_refused():
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(OptionError, match="path_average='mean'"):
        wf.FlowRegressor(path_average="mean").fit(X, X[:, 0])


@pytest.mark.slow
def test_noise_of_the_flow_is_learnt_where_the_noise_of_the_data_depends_on_the_input():
    """Data whose noise comes from a flow: the mean of logs stays at the sparse GP, that of densities leaves it."""
    data = wf.datasets.make_heteroskedastic_2d(400, n_outputs=2, random_state=5)
    test = wf.datasets.make_heteroskedastic_2d(400, n_outputs=2, random_state=2)
    plain = {"n_inducing": 20, "calibrate": None}
    options = {**plain, "max_iter": 300, "learning_rate": 0.03, "batch_size": 64, "n_train_samples": 32}
    score = {
        average: wf.FlowRegressor(path_average=average, **options).fit(data.X, data.y).log_prob(test.X, test.y).mean()
        for average in ("log", "density")
    }
    gp = wf.SparseGPRegressor(**plain).fit(data.X, data.y).log_prob(test.X, test.y).mean()
    assert abs(score["log"] - gp) < 0.3
    assert score["density"] > gp + 0.7
