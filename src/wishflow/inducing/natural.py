"""Natural-gradient steps on q(v) of a sparse GP."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Scalar

from ..likelihoods import AbstractLikelihood
from ..numerics.linalg import each, inverse_square_root, solve_lower
from ..numerics.parameters import LowerTriangular
from .posteriors import WhitenedPosterior

# A posterior, its objective, the next rate to try and how many were tried.
Trial = tuple[WhitenedPosterior, Scalar, Scalar, Int[Array, ""]]


class SiteRows(eqx.Module):
    """What the expected log density of the rows of `Sites` needs beside a(x_T): their targets, k − aᵀa, the likelihood
    and its key.
    """

    y: Float[Array, "K Q"]
    unexplained: Float[Array, "K P"]
    likelihood: AbstractLikelihood
    key: PRNGKeyArray


class Sites(eqx.Module):
    """What a natural-gradient step of the output needs of a forward pass, rows being (sample, row) pairs.

    a(x_T), the curvatures λ = max(0, −E ∂² log p) and the targets λ·mean + E ∂ log p; `weights` holds N/(B S).
    `inverse` is R⁻¹ where it is known. `rows` is there where steps are to be checked (`is_damped`).
    """

    a: Float[Array, "K M"]
    curvature: Float[Array, "K P"]
    target: Float[Array, "K P"]
    weights: Float[Array, " K"]
    inverse: Float[Array, "M M"] | None = None
    rows: SiteRows | None = None


def natural_step(posterior: WhitenedPosterior, sites: Sites, rate: Scalar | float) -> WhitenedPosterior:
    """One natural-gradient step γ on q(v): with Π = (RRᵀ)⁻¹ and θ = Πm,

    Π ← (1−γ)Π + γ(I + Σ w λ aaᵀ),  θ ← (1−γ)θ + γ Σ w a·target.  For a Gaussian likelihood on all rows γ = 1 is the
    optimum.
    """
    identity = jnp.eye(posterior.mean.shape[-1], dtype=posterior.mean.dtype)

    def one(q: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        mean, sqrt, curvature, target = q
        inverse = solve_lower(sqrt, identity) if sites.inverse is None else sites.inverse
        precision, theta = inverse.T @ inverse, inverse.T @ (inverse @ mean)
        weighted = sites.a * (sites.weights * curvature)[:, None]
        precision = (1 - rate) * precision + rate * (identity + weighted.T @ sites.a)
        theta = (1 - rate) * theta + rate * (sites.a.T @ (sites.weights * target))
        R = inverse_square_root(0.5 * (precision + precision.T))
        return R @ (R.T @ theta), R

    means, sqrts = each(one, (posterior.mean, posterior.sqrt.value, sites.curvature.T, sites.target.T))
    return WhitenedPosterior(means, LowerTriangular.of(sqrts))


# The largest λ·variance of a row: by this factor it may narrow q.
MOST_KNOWN = 100.0
# A step that is too long is divided by SHORTER, at most as often as MOST_TRIALS says; then q stays where it is.
SHORTER = 4.0
MOST_TRIALS = 8
# By how many nats per row a step may lower the objective: curvatures cut off at zero make R a little too narrow.
ALLOWED_LOSS = 1e-4


def damped_step(posterior: WhitenedPosterior, sites: Sites, rate: Scalar | float) -> WhitenedPosterior:
    """`natural_step` with the first of γ, γ/4, γ/16, … that does not lower Σ w E log p − KL on the rows of the sites.

    Curvatures that change with g hold near q alone: where the rate of counts is far too small, so is its curvature, and
    exp(g) shoots over the target by orders of magnitude. The direction is one of ascent, so a step that is short enough
    raises the objective. With the paths' shares in w, kept as they are, what the sum gains is no more than what the
    mean of densities gains (Jensen). Where a likelihood is not damped this is `natural_step`.
    """
    rows = sites.rows
    if rows is None:
        return natural_step(posterior, sites, rate)

    def objective(q: WhitenedPosterior) -> Scalar:
        prepared = q.prepare(sites.a.dtype)
        variance = rows.unexplained + prepared.quadratics(sites.a)
        fit = rows.likelihood.expected_log_density(rows.y, prepared.means(sites.a), variance, key=rows.key)
        return jnp.sum(sites.weights * fit) - jnp.sum(q.kl())

    lowest = objective(posterior) - ALLOWED_LOSS * jnp.sum(sites.weights)

    def is_bad(tried: Trial) -> Bool[Array, ""]:
        _, value, _, n = tried
        return ~(value >= lowest) & (n < MOST_TRIALS)  # NaN is bad

    def attempt(tried: Trial) -> Trial:
        _, _, rate, n = tried
        q = natural_step(posterior, sites, rate)
        return q, objective(q), rate / SHORTER, n + 1

    start = (posterior, jnp.full_like(lowest, -jnp.inf), jnp.asarray(rate, lowest.dtype), jnp.zeros((), int))
    found, value, _, _ = jax.lax.while_loop(is_bad, attempt, start)
    return jax.tree.map(lambda new, old: jnp.where(value >= lowest, new, old), found, posterior)
