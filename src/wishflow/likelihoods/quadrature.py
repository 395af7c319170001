"""Expectations under normal and gamma laws, by fixed rules whose gradients stay finite when a variance is zero.

The axis of the nodes comes last: integrands see g as (..., P, n) and their other arguments, (..., P) or (P,), as
(..., P, 1) or (P, 1), so that all leading axes broadcast as they would without the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float, Num

N_NODES = 20
"""Gauss–Hermite nodes of the training objective."""

N_PREDICT_NODES = 64
"""Gauss–Hermite nodes of predictions, where a wide g meets a steep link."""


def safe_sqrt(variance: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """√(max(v, 0) + tiny), differentiable at v = 0.

    Symmetric rules give Σ_i w_i f'(m + √v z_i) z_i / 2√v for d/dv. With `tiny` = ε^¾ the sum at v = 0 is ½ f''(m) up to
    rounding of size ε / √tiny; a square root cut off at zero would give 0 or NaN there.
    """
    tiny = float(jnp.finfo(variance.dtype).eps) ** 0.75
    return jnp.sqrt(jnp.where(variance >= 0, variance, 0) + tiny)


def hermite_rule(n_nodes: int, dtype: DTypeLike) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Nodes z_i and log weights with E f(z) ≈ Σ w_i f(z_i), z ~ N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return jnp.asarray(nodes, dtype), jnp.asarray(np.log(weights) - 0.5 * np.log(2.0 * np.pi), dtype)


def expectation(
    f: Callable[..., Array],
    mean: Float[Array, "*#batch P"],
    variance: Float[Array, "*#batch P"],
    *args: Num[Array, "*#batch #P"],
    n_nodes: int = N_NODES,
) -> Float[Array, "*batch P"]:
    """Return E f(g, *args) for g ~ N(mean, variance), by Gauss–Hermite quadrature.

    Parameters
    ----------
    f : callable
        An elementwise function of g and the other arguments.
    mean : Array of shape (..., P)
        Mean of g.
    variance : Array of shape (..., P)
        Variance of g.
    *args : Array
        Other arguments of `f`, which broadcast against `mean`.
    n_nodes : int, default=20
        Number of nodes.

    Returns
    -------
    Array of shape (..., P)
        Expectations.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow.likelihoods import expectation
    >>> round(float(expectation(jnp.square, jnp.zeros(1), 2.0 * jnp.ones(1))[0]), 1)
    2.0
    """
    nodes, log_weights = hermite_rule(n_nodes, mean.dtype)
    g = mean[..., None] + safe_sqrt(variance)[..., None] * nodes
    return jnp.dot(f(g, *_column(args)), jnp.exp(log_weights), precision="highest")


def log_expectation(
    log_f: Callable[..., Array],
    mean: Float[Array, "*#batch P"],
    variance: Float[Array, "*#batch P"],
    *args: Num[Array, "*#batch #P"],
    centre: Float[Array, "*#batch P"] | float = 0.0,
    width: Float[Array, "*#batch P"] | float = 1.0,
    n_nodes: int = N_PREDICT_NODES,
) -> Float[Array, "*batch P"]:
    """Return log E f(g, *args) for g ~ N(mean, variance), by Gauss–Hermite quadrature.

    g = mean + √variance t with t ~ N(0, 1), and the nodes are put at t_i = centre + width z_i. Centre and width of the
    integrand itself make the rule accurate where f is far narrower than the normal; the defaults give the plain rule.

    Parameters
    ----------
    log_f : callable
        The logarithm of f, an elementwise function of g and the other arguments.
    mean : Array of shape (..., P)
        Mean of g.
    variance : Array of shape (..., P)
        Variance of g.
    *args : Array
        Other arguments of `log_f`, which broadcast against `mean`.
    centre : Array or float, default=0.0
        Centre of the nodes.
    width : Array or float, default=1.0
        Width of the nodes.
    n_nodes : int, default=64
        Number of nodes.

    Returns
    -------
    Array of shape (..., P)
        Log expectations.

    Notes
    -----
    E f = ∫ f N(t; 0, 1) dt ≈ Σ w_i f(t_i) · width · exp(½ z_i² − ½ t_i²).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow.likelihoods import log_expectation
    >>> round(float(log_expectation(lambda g: g, jnp.zeros(1), jnp.ones(1))[0]), 1)
    0.5
    """
    z, log_weights = hermite_rule(n_nodes, mean.dtype)
    mean, root, centre, width = _column((mean, safe_sqrt(variance), centre, width))
    t = centre + width * z
    log_terms = log_weights + log_f(mean + root * t, *_column(args)) + 0.5 * (z**2 - t**2) + jnp.log(width)
    return jax.nn.logsumexp(log_terms, axis=-1)


def log_gamma_rule(shape: Float[Array, "*batch P"]) -> tuple[Float[Array, "*batch P n"], Float[Array, "*batch P n"]]:
    """Nodes u_j = log λ_j and log weights for λ ~ Gamma(shape, rate = shape), shape ≥ 1: trapezoid rule in log λ.

    The density of u is ∝ exp(shape (u − eᵘ)), of width shape^−½ about 0; it is analytic, so a step of 0.6 widths is
    exact to about 1e-8. Weights sum to one. The left tail, exponential, has 65 nodes, the right one, thinner, 15.
    """
    shape = shape[..., None]
    u = 0.6 / jnp.sqrt(shape + 0.5) * jnp.arange(-65, 16, dtype=shape.dtype)
    return u, jax.nn.log_softmax(shape * (u - jnp.exp(u)), axis=-1)


def _column(values: Iterable[ArrayLike]) -> list[Array]:
    """Each array with a last axis of one, to stand against the nodes."""
    return [jnp.asarray(value)[..., None] for value in values]
