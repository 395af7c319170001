"""Gradients of every objective against central differences in float64, parameter by parameter, with a fixed key."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import is_jitter, make_batch, make_flow, make_sparse_gp, quick_jit, series_problem

from wishflow.regression.collapsed import collapsed_bound
from wishflow.regression.objectives import negative_objective
from wishflow.series.latent_objectives import negative_encoder_objective, negative_filter_objective
from wishflow.series.objectives import negative_rollout_objective, negative_transition_objective
from wishflow.series.specs import Latent

STEP = 1e-3


def central_difference(value, model, direction):
    """d/dε f(model + ε direction) at 0, error O(ε⁴): (8 (f(ε) − f(−ε)) − (f(2ε) − f(−2ε))) / 12ε."""

    def at(epsilon):
        moved = jax.tree.map(lambda leaf, d: jnp.asarray(np.asarray(leaf) + epsilon * d), model, direction)
        return float(value(moved))

    return (8 * (at(STEP) - at(-STEP)) - (at(2 * STEP) - at(-2 * STEP))) / (12 * STEP)


def directions(model, seed=0):
    """A random unit direction for each parameter on its own, and one through all of them; jitters are no parameters."""
    rng = np.random.default_rng(seed)
    paths, structure = jax.tree_util.tree_flatten_with_path(model)
    everything = [np.zeros(leaf.shape) if is_jitter(path) else rng.normal(size=leaf.shape) for path, leaf in paths]
    for i, (path, _) in enumerate(paths):
        if not is_jitter(path):
            chosen = [d / np.linalg.norm(d) if i == j else 0.0 * d for j, d in enumerate(everything)]
            yield jax.tree_util.keystr(path), structure.unflatten(chosen)
    yield "all", structure.unflatten([0.1 * d for d in everything])


def inner(gradient, direction):
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    return float(sum(np.sum(np.asarray(g) * d) for g, d in pairs))


def check_gradient(objective, model):
    """One program gives value and gradient; each directional derivative agrees with the difference of values."""
    program = quick_jit(jax.value_and_grad(objective))
    gradient = program(model)[1]
    size = np.sqrt(sum(np.sum(np.asarray(leaf) ** 2) for leaf in jax.tree.leaves(gradient)))
    assert np.isfinite(size) and size > 0.1
    for name, direction in directions(model):
        slope = inner(gradient, direction)
        difference = central_difference(lambda m: program(m)[0], model, direction)
        assert abs(difference - slope) < 1e-6 * abs(slope) + 1e-8 * size, (name, slope, difference)


FLOWS = {
    "none": {"diffusion": "none"},
    "gp": {"diffusion": "gp"},
    "diagonal": {"diffusion": "diagonal"},
    "wishart-shared": {"diffusion": "wishart-shared"},
    "wishart-independent-white, Student-t": {"diffusion": "wishart-independent-white", "likelihood": "student_t"},
    "wishart-independent, in time": {"diffusion": "wishart-independent", "time_dependent": True},
    "pathwise": {"diffusion": "wishart-shared-white", "sampling": "pathwise"},
}


SLOW_FLOWS = ("diagonal", "wishart-independent, in time")


@pytest.mark.parametrize(
    "options",
    [pytest.param(o, id=n, marks=pytest.mark.slow if n in SLOW_FLOWS else ()) for n, o in FLOWS.items()],
)
def test_gradient_of_the_objective_of_a_flow(options, key):
    """Two samples of the path, half-weighted penalties."""
    batch = make_batch(options.get("likelihood", "gaussian"))
    objective = functools.partial(negative_objective, batch=batch, key=key, kl_weight=0.5, n_samples=2)
    check_gradient(lambda model: objective(model)[0], make_flow(**options))


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "bernoulli", "poisson"])
def test_gradient_of_the_bound_of_a_sparse_gp(likelihood, key):
    batch = make_batch(likelihood)
    check_gradient(lambda model: negative_objective(model, batch, key)[0], make_sparse_gp(likelihood))


def test_gradient_of_the_collapsed_bound():
    """The optimal q does not depend on the one in the model, so its gradient there is zero."""
    batch = make_batch()
    check_gradient(lambda model: collapsed_bound(model, batch), make_sparse_gp())


def test_sites_carry_no_gradient(key):
    """The same gradient whether or not the pass also prepares a natural-gradient step."""
    model, batch = make_sparse_gp(), make_batch()

    def loss(model, has_sites):
        value, (_, sites) = negative_objective(model, batch, key, has_sites=has_sites)
        return value + (0.0 if sites is None else sum(jnp.sum(leaf) for leaf in jax.tree.leaves(sites)))

    both = quick_jit(lambda m: (jax.grad(loss)(m, True), jax.grad(loss)(m, False)))(model)
    for one, other in zip(*(jax.tree.leaves(g) for g in both), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


# --- the categorical likelihood, whose expectations are means over draws --------------------------


def test_gradient_of_the_categorical_bound_by_the_mean_of_q(key):
    """For fixed draws the derivative by the mean is the one of the draws themselves."""
    model, batch = make_sparse_gp("categorical"), make_batch("categorical")

    def objective(mean):
        return negative_objective(eqx.tree_at(lambda m: m.output.posterior.mean, model, mean), batch, key)[0]

    check_gradient(objective, model.output.posterior.mean)


def test_gradient_of_the_categorical_bound_is_unbiased(key):
    """By the variance it is ½ E ∂², which equals the derivative of the draws in expectation only: the mean over keys of

    (gradient − difference) along each direction is zero within 4.5 standard errors, and those are small.
    """
    model, batch = make_sparse_gp("categorical"), make_batch("categorical")
    n_keys = 600
    keys = jax.random.split(key, n_keys)

    def value(model, k):
        return negative_objective(model, batch, k)[0]

    @quick_jit
    def both(model, direction):
        """Gradient along the direction, and a central difference of second order, for each key one after another."""

        def one(k):
            plus, minus = (jax.tree.map(lambda x, d, s=s: x + s * d, model, direction) for s in (1e-4, -1e-4))
            slope = jax.grad(value)(model, k)
            along = sum(jnp.sum(g * d) for g, d in zip(*map(jax.tree.leaves, (slope, direction)), strict=True))
            return along, (value(plus, k) - value(minus, k)) / 2e-4

        return jax.lax.map(one, keys)

    for name, direction in directions(model):
        slopes, differences = (np.asarray(part) for part in both(model, direction))
        gap = slopes - differences
        error = gap.std() / np.sqrt(n_keys)
        assert abs(gap.mean()) < 4.5 * error + 1e-6, name
        assert error < 0.05 * np.abs(slopes).mean() + 0.05, name


# --- time series ----------------------------------------------------------------------------------

SERIES = {
    "transition": ({}, negative_transition_objective, 3),
    "transition, lags": ({"lags": 2, "white_noise": "state"}, negative_transition_objective, 2),
    "transition, student_t": ({"innovations": "student_t"}, negative_transition_objective, 2),
    "rollout": ({"objective": "rollout"}, negative_rollout_objective, 2),
    # One particle: with more, the choices of the resampling jump, and their derivative is left out on purpose.
    "filter": ({"latent": Latent(2, "gp", True)}, negative_filter_objective, 1),
    "encoder": ({"latent": Latent(2, "gp", True), "objective": "rollout"}, negative_encoder_objective, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, average",
    [
        *(("transition, lags", "density"), ("rollout", "log")),
        *(
            pytest.param(name, "density", marks=pytest.mark.slow)
            for name in ("transition", "transition, student_t", "rollout", "encoder", "filter")
        ),
        *(pytest.param(name, "log", marks=pytest.mark.slow) for name in ("transition", "transition, lags", "encoder")),
    ],
)
def test_gradient_of_the_objectives_of_a_series(name, average, key):
    """Holes, gaps and a covariate; every parameter of the field, the readout and the encoder."""
    options, negative, n_samples = SERIES[name]
    model, batch = series_problem(**options)

    def objective(model):
        value, _ = negative(model, batch, key, n_samples=n_samples, average=average)
        return value / 10.0

    check_gradient(objective, model)
