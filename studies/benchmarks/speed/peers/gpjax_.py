"""GPJax: `WhitenedVariationalGaussian` and `elbo`; steps in a loop, as its `fit` takes them."""

from __future__ import annotations

import functools
from pathlib import Path

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
import optax

from .. import problem
from ..loops import steps_in_a_loop
from ..worker import Prepared, serve
from ..works import LEARNING_RATE, Work


def build(work: Work) -> gpx.variational_families.WhitenedVariationalGaussian:
    start = problem.output_start(work)
    array = functools.partial(jnp.asarray, dtype=work.dtype)
    kernel = gpx.kernels.RBF(lengthscale=array(start.lengthscale), variance=array(start.variance))
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel, jitter=start.jitter)
    posterior = prior * gpx.likelihoods.Gaussian(obs_stddev=array(problem.NOISE_VARIANCE**0.5))
    return gpx.variational_families.WhitenedVariationalGaussian(
        model=posterior,
        inducing_inputs=array(start.Z),
        variational_mean=array(start.mean.T),
        variational_root_covariance=array(start.sqrt[0]),
    )


def loss_of(model, X, y, n_data: int):
    # The data set is put together here, as in GPJax's own `get_batch`: as an argument each one would compile anew.
    return -gpx.objectives.elbo(model, gpx.Dataset(X, y, n_data))


def prepare(work: Work, noise: Path | None) -> Prepared:
    del noise  # the bound has none
    jax.config.update("jax_enable_x64", work.dtype == "float64")
    # Some leaves are weakly typed; after a step they no longer are, and the step would be compiled again.
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype) if eqx.is_array(leaf) else leaf, build(work))
    n_data = problem.n_data(work)
    data = [(jnp.asarray(b["X"]), jnp.asarray(b["y"])) for b in problem.batches(work)]
    adam = optax.adam(LEARNING_RATE)

    parameters, fixed = eqx.partition(model, eqx.is_array)

    def take(carried, batch):
        parameters, state = carried
        loss, gradient = eqx.filter_value_and_grad(loss_of)(eqx.combine(parameters, fixed), *batch, n_data)
        updates, state = adam.update(gradient, state, parameters)
        return (eqx.apply_updates(parameters, updates), state), loss

    run = steps_in_a_loop(take, (parameters, adam.init(parameters)), data)

    def value() -> float:
        """The variance of f holds a jitter there, whose cost is taken off."""
        jitter_cost = 0.5 * problem.JITTER / problem.NOISE_VARIANCE
        return float(eqx.filter_jit(loss_of)(model, *data[0], n_data)) - n_data * jitter_cost

    return Prepared(run, value)


if __name__ == "__main__":
    serve(prepare, ("gpjax", "jax", "jaxlib", "numpy"))
