"""p(x_t | y up to t): the Gaussian belief recursion through gaps and holes (design, section 1, Dynamics).

The state is (x, older lags). Exact given J for linear drift and noise that does not depend on the state; elsewhere an
assumed-density approximation.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .fields.dynamic import Layout, PreparedDynamics
from .linalg import log_det, small_whitener


class Belief(eqx.Module):
    """N(m, P) over histories; P is zero on coordinates that were just observed."""

    mean: Float[Array, "N pD"]
    covariance: Float[Array, "N pD pD"]

    @classmethod
    def start(cls, values: Float[Array, "N pD"], is_known: Bool[Array, "N pD"]) -> Belief:
        """Known coordinates as they are, the others at N(0, 1) in standardised units."""
        unknown = 1.0 - is_known.astype(values.dtype)
        return cls(values * (1.0 - unknown), unknown[..., None] * jnp.eye(values.shape[-1], dtype=values.dtype))


def predict(
    key: PRNGKeyArray, field: PreparedDynamics, belief: Belief, h: Float[Array, " N"], u: Float[Array, "N U"]
) -> Belief:
    """One Euler step: m ← m + hμ(m, u), P ← G P Gᵀ + h (F Fᵀ + Λ), with J fresh and the field taken at the old m."""
    layout = field.layout
    X = layout.row(belief.mean, u)
    here = field.at(X)
    F = here.factor(key)
    D = layout.dim
    eye = jnp.eye(D, layout.n_history, dtype=X.dtype)
    G = eye + h[:, None, None] * field.drift_jacobian(X)
    noise = jnp.einsum("ndv,nev->nde", F, F) + here.white[..., None] * jnp.eye(D, dtype=X.dtype)
    mean = layout.shift(belief.mean, belief.mean[:, :D] + h[:, None] * here.drift)
    return Belief(mean, _moved(belief.covariance, G, h[:, None, None] * noise, layout))


def _moved(P: Array, G: Array, noise: Array, layout: Layout) -> Array:
    """A P Aᵀ + noise in the first block, A = (G; shift of the older lags)."""
    GP = G @ P
    first = GP @ jnp.swapaxes(G, -1, -2) + noise
    if layout.lags == 1:
        return first
    kept = layout.n_history - layout.dim
    cross = GP[..., :kept]
    top = jnp.concatenate([first, cross], axis=-1)
    bottom = jnp.concatenate([jnp.swapaxes(cross, -1, -2), P[..., :kept, :kept]], axis=-1)
    return jnp.concatenate([top, bottom], axis=-2)


def update(belief: Belief, y: Float[Array, "N D"], is_seen: Bool[Array, "N D"]) -> tuple[Belief, Float[Array, " N"]]:
    """Condition on the entries that are there; the log density of these entries, zero where there are none."""
    D, P = y.shape[-1], belief.covariance
    seen = is_seen.astype(P.dtype)
    r = seen * (jnp.where(is_seen, y, 0.0) - belief.mean[:, :D])
    S = P[:, :D, :D] * seen[:, :, None] * seen[:, None, :] + (1.0 - seen)[..., None] * jnp.eye(D, dtype=P.dtype)
    W = small_whitener(S)
    white = jnp.einsum("nij,nj->ni", W, r)
    log_density = -0.5 * (jnp.sum(seen, -1) * jnp.log(2.0 * jnp.pi) + log_det(W) + jnp.sum(white**2, -1))
    gain = (P[:, :, :D] * seen[:, None, :]) @ jnp.swapaxes(W, -1, -2)  # P_:o W ᵀ, so that K = gain W
    mean = belief.mean + jnp.einsum("nki,ni->nk", gain, white)
    covariance = P - gain @ jnp.swapaxes(gain, -1, -2)
    unseen = jnp.concatenate([1.0 - seen, jnp.ones((len(seen), P.shape[-1] - D), P.dtype)], axis=-1)
    observed = jnp.concatenate([jnp.where(is_seen, y, mean[:, :D]), mean[:, D:]], axis=-1)
    return Belief(observed, covariance * unseen[:, :, None] * unseen[:, None, :]), log_density


def run(
    key: PRNGKeyArray,
    field: PreparedDynamics,
    belief: Belief,
    h: Float[Array, "T N"],
    u: Float[Array, "T N U"],
    y: Float[Array, "T N D"],
    is_seen: Bool[Array, "T N D"],
) -> tuple[Belief, Float[Array, "T N"]]:
    """The belief after all ticks, and the log density of what was seen at each."""

    def tick(belief, inputs):
        k, h, u, y, seen = inputs
        return update(predict(k, field, belief, h, u), y, seen)

    keys = jax.random.split(key, h.shape[0])
    return jax.lax.scan(tick, belief, (keys, h, u, y, is_seen))
