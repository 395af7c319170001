"""Diffrax: the diffGP flow by `diffeqsolve` with `Euler`, on a model in plain JAX.

The Brownian increments are drawn beforehand and handed over as a path, which costs less than `VirtualBrownianTree`
(`UnsafeBrownianPath` has no reverse mode); as many checkpoints as steps, so that nothing is computed twice.
Precisions are those of ours: the field's products in float32, all else in float64.
"""

from __future__ import annotations

import functools
from pathlib import Path

import diffrax
import jax
import jax.numpy as jnp
import lineax
import numpy as np
import optax
from jax.scipy.linalg import solve_triangular

from .. import problem
from ..loops import steps_in_a_loop
from ..worker import Prepared, serve
from ..works import FLOW_TIME, LEARNING_RATE, Work

TINY = 1e-30


class GivenPath(diffrax.AbstractPath):
    """Brownian motion by its increments over equal steps."""

    increments: jax.Array
    dt: float
    t0: float = 0.0
    t1: float = FLOW_TIME

    def evaluate(self, t0, t1=None, left=True):
        return self.increments[jnp.round(t0 / self.dt).astype(int)]


def inverse_softplus(value) -> jax.Array:
    value = np.asarray(value, float)
    return jnp.asarray(value + np.log(-np.expm1(-value)))


def gp_parameters(start: problem.GPStart) -> dict[str, jax.Array]:
    log_diagonal = np.log(np.diagonal(start.sqrt, axis1=1, axis2=2))[:, None] * np.eye(start.Z.shape[0])
    return {
        "variance": inverse_softplus(start.variance),
        "lengthscale": inverse_softplus(start.lengthscale),
        "Z": jnp.asarray(start.Z),
        "mean": jnp.asarray(start.mean),
        "sqrt": jnp.asarray(np.tril(start.sqrt, -1) + log_diagonal),
    }


def factors(parameters) -> jax.Array:
    raw = parameters["sqrt"]
    diagonal = jnp.exp(jnp.diagonal(raw, axis1=1, axis2=2))
    return jnp.tril(raw, -1) + diagonal[:, None] * jnp.eye(raw.shape[-1])


def kl(parameters) -> jax.Array:
    log_det = jnp.sum(jnp.diagonal(parameters["sqrt"], axis1=1, axis2=2))
    squares = jnp.sum(parameters["mean"] ** 2) + jnp.sum(factors(parameters) ** 2)
    return 0.5 * (squares - parameters["mean"].size) - log_det


def squared_distances(U, V):
    return jnp.maximum(jnp.sum(U * U, 1)[:, None] + jnp.sum(V * V, 1) - 2.0 * U @ V.T, 0.0)


def prepared_moments(parameters, dtype):
    """x -> mean and variance of f(x); Kzz is factorised here, in float64."""
    variance, lengthscale = (jax.nn.softplus(parameters[name]) for name in ("variance", "lengthscale"))
    scaled, eye = parameters["Z"] / lengthscale, jnp.eye(len(parameters["Z"]))
    Kzz = variance * jnp.exp(-0.5 * squared_distances(scaled, scaled))
    L = jnp.linalg.cholesky(Kzz + problem.JITTER * jax.lax.stop_gradient(variance) * eye)
    unwhiten = solve_triangular(L, eye, lower=True).T.astype(dtype)
    rate, scaled, variance = (1.0 / lengthscale).astype(dtype), scaled.astype(dtype), variance.astype(dtype)
    n_outputs, n_inducing = parameters["mean"].shape
    means = parameters["mean"].T.astype(dtype)
    stacked = jnp.moveaxis(factors(parameters).astype(dtype), 0, 1).reshape(n_inducing, n_outputs * n_inducing)

    def moments(X):
        a = variance * jnp.exp(-0.5 * squared_distances(X * rate, scaled)) @ unwhiten
        quadratics = jnp.sum((a @ stacked).reshape(len(X), n_outputs, n_inducing) ** 2, -1)
        return a @ means, jnp.maximum(variance - jnp.sum(a * a, 1), 0.0)[:, None] + quadratics

    return moments


def flow(work: Work, parameters, X, noise):
    """States at the end; XLA merges the evaluations of drift and diffusion at the same state."""
    dtype, dt = jnp.dtype(work.dtype), FLOW_TIME / work.n_steps
    moments = prepared_moments(parameters, dtype)
    terms = diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, x, args: moments(x)[0]),
        diffrax.ControlTerm(
            lambda t, x, args: lineax.DiagonalLinearOperator(jnp.sqrt(jnp.maximum(moments(x)[1], TINY))),
            GivenPath((dt**0.5 * noise).astype(dtype), dt),
        ),
    )
    return diffrax.diffeqsolve(
        terms,
        diffrax.Euler(),
        t0=0.0,
        t1=FLOW_TIME,
        dt0=dt,
        y0=X.astype(dtype),
        max_steps=work.n_steps + 1,
        adjoint=diffrax.RecursiveCheckpointAdjoint(checkpoints=work.n_steps),
    ).ys[-1]


def loss_of(work: Work, parameters, batch, noise):
    """The negative bound."""
    X = flow(work, parameters["field"], batch["X"], noise).astype(batch["X"].dtype)
    mean, variance = prepared_moments(parameters["output"], X.dtype)(X)
    sigma2 = jax.nn.softplus(parameters["noise"])
    fit = -0.5 * (jnp.log(2.0 * jnp.pi * sigma2) + ((batch["y"] - mean) ** 2 + variance) / sigma2)
    scale = problem.n_data(work) / len(X)
    return kl(parameters["output"]) + kl(parameters["field"]) - scale * jnp.sum(fit)


def prepare(work: Work, noise: Path | None) -> Prepared:
    jax.config.update("jax_enable_x64", True)
    parameters = {
        "output": gp_parameters(problem.output_start(work)),
        "field": gp_parameters(problem.field_start(work).gp),
        "noise": inverse_softplus(problem.NOISE_VARIANCE),
    }
    data = [{name: jnp.asarray(array) for name, array in batch.items()} for batch in problem.batches(work)]
    adam, shape = optax.adam(LEARNING_RATE), (work.n_steps, work.rows, work.dim)
    loss = functools.partial(loss_of, work)

    def take(carried, batch):
        parameters, state, key = carried
        key, k_noise = jax.random.split(key)
        value, gradient = jax.value_and_grad(loss)(parameters, batch, jax.random.normal(k_noise, shape, work.dtype))
        updates, state = adam.update(gradient, state)
        return (optax.apply_updates(parameters, updates), state, key), value

    run = steps_in_a_loop(take, (parameters, adam.init(parameters), jax.random.key(0)), data)

    def value() -> float:
        drawn = np.zeros(shape) if noise is None else np.stack(problem.read_noise(noise))
        return float(jax.jit(loss)(parameters, data[0], drawn))

    return Prepared(run, value)


if __name__ == "__main__":
    serve(prepare, ("diffrax", "jax", "jaxlib", "numpy"))
