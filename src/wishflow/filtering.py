"""p(x_t | y up to t): the Gaussian belief recursion through gaps and holes (design, section 1, Dynamics).

The state is (x, older lags). The belief moves with the mean covariance Σ̄ + Λ; what is seen at a tick is scored by a
mixture over draws of J in the step that leads to it. Exact for linear drift and Gaussian noise that is neither random
nor dependent on the state; elsewhere an assumed-density approximation. With Student-t noise the belief moves by the
covariance alone, and what is seen is scored as Student-t with that covariance, as if the way there were one step.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from .fields.dynamic import Layout, PreparedDynamics
from .linalg import elliptical_log_density, log_det, small_whitener
from .solver import scan_steps


class Belief(eqx.Module):
    """N(m, P) over histories; P is zero on coordinates that were just observed."""

    mean: Float[Array, "N pD"]
    covariance: Float[Array, "N pD pD"]

    @classmethod
    def start(cls, values: Float[Array, "N pD"], is_known: Bool[Array, "N pD"]) -> Belief:
        """Known coordinates as they are, the others at N(0, 1) in standardised units."""
        unknown = 1.0 - is_known.astype(values.dtype)
        return cls(values * (1.0 - unknown), unknown[..., None] * jnp.eye(values.shape[-1], dtype=values.dtype))


class Predicted(eqx.Module):
    """The belief after a step, and the covariance of the new state for each draw of J, (S, N, D, D).

    `tail_dof` are the degrees of freedom of Student-t noise (None: Gaussian).
    """

    belief: Belief
    drawn: Float[Array, "S N D D"]
    tail_dof: Scalar | None = None


def predict(
    key: PRNGKeyArray,
    field: PreparedDynamics,
    belief: Belief,
    h: Float[Array, " N"],
    u: Float[Array, "N U"],
    n_samples: int = 1,
) -> Predicted:
    """One Euler step: m ← m + hμ(m, u), P ← G P Gᵀ + h (Σ̄ + Λ), the field taken at the old m."""
    layout = field.layout
    D = layout.dim
    X = layout.row(belief.mean, u)
    here = field.at(X)
    length = h[:, None, None]
    G = jnp.eye(D, layout.n_history, dtype=X.dtype) + length * field.drift_jacobian(X)
    GP = G @ belief.covariance
    carried = GP @ jnp.swapaxes(G, -1, -2)
    mean = layout.shift(belief.mean, belief.mean[:, :D] + h[:, None] * here.drift)
    moved = _moved(belief.covariance, GP, carried + length * here.mean_covariance(), layout)

    def drawn(k):
        F = here.factor(k)
        noise = F @ jnp.swapaxes(F, -1, -2) + here.white[..., None] * jnp.eye(D, dtype=X.dtype)
        return carried + length * noise

    return Predicted(Belief(mean, moved), jax.vmap(drawn)(jax.random.split(key, n_samples)), here.tail_dof)


def _moved(P: Array, GP: Array, first: Array, layout: Layout) -> Array:
    """A P Aᵀ + noise with A = (G; shift of the older lags): `first` is its first block."""
    if layout.lags == 1:
        return first
    kept = layout.n_history - layout.dim
    cross = GP[..., :kept]
    top = jnp.concatenate([first, cross], axis=-1)
    bottom = jnp.concatenate([jnp.swapaxes(cross, -1, -2), P[..., :kept, :kept]], axis=-1)
    return jnp.concatenate([top, bottom], axis=-2)


def _among_seen(covariance: Float[Array, "... N D D"], seen: Float[Array, "N D"]) -> Float[Array, "... N D D"]:
    """The covariance of the entries that are there; the others become independent, with variance one."""
    return covariance * seen[:, :, None] * seen[:, None, :] + (1.0 - seen)[..., None] * jnp.eye(seen.shape[-1])


def _residual(belief: Belief, y: Array, is_seen: Array) -> Array:
    return jnp.where(is_seen, y - belief.mean[:, : y.shape[-1]], 0.0)


def score(predicted: Predicted, y: Float[Array, "N D"], is_seen: Bool[Array, "N D"]) -> Float[Array, "S N"]:
    """Log density of the entries that are there under each draw of J; zero where there are none."""
    seen = is_seen.astype(y.dtype)
    W = small_whitener(_among_seen(predicted.drawn, seen))
    white = jnp.einsum("snij,nj->sni", W, _residual(predicted.belief, y, is_seen))
    return elliptical_log_density(jnp.sum(white**2, -1), log_det(W), jnp.sum(seen, -1), predicted.tail_dof)


def update(belief: Belief, y: Float[Array, "N D"], is_seen: Bool[Array, "N D"]) -> Belief:
    """Condition on the entries that are there: K = P_:o P_oo⁻¹, m ← m + K r, P ← P − K P_o:, zero on what was seen."""
    D, P = y.shape[-1], belief.covariance
    seen = is_seen.astype(P.dtype)
    W = small_whitener(_among_seen(P[:, :D, :D], seen))
    gain = (P[:, :, :D] * seen[:, None, :]) @ jnp.swapaxes(W, -1, -2)  # P_:o Wᵀ, so that K = gain W
    mean = belief.mean + jnp.einsum("nki,nij,nj->nk", gain, W, _residual(belief, y, is_seen))
    covariance = P - gain @ jnp.swapaxes(gain, -1, -2)
    unseen = jnp.concatenate([1.0 - seen, jnp.ones((len(seen), P.shape[-1] - D), P.dtype)], axis=-1)
    observed = jnp.concatenate([jnp.where(is_seen, y, mean[:, :D]), mean[:, D:]], axis=-1)
    return Belief(observed, covariance * unseen[:, :, None] * unseen[:, None, :])


def run(
    key: PRNGKeyArray,
    field: PreparedDynamics,
    belief: Belief,
    h: Float[Array, "T N"],
    u: Float[Array, "T N U"],
    y: Float[Array, "T N D"],
    is_seen: Bool[Array, "T N D"],
    n_samples: int = 1,
) -> tuple[Belief, tuple[Float[Array, "T N pD"], Float[Array, "T S N"]]]:
    """The belief after all ticks; its mean after each, and the log densities of what was seen there."""

    def tick(belief, inputs):
        k, h, u, y, seen = inputs
        predicted = predict(k, field, belief, h, u, n_samples)
        belief = update(predicted.belief, y, seen)
        return belief, (belief.mean, score(predicted, y, seen))

    keys = jax.random.split(key, h.shape[0])
    return scan_steps(tick, belief, (keys, h, u, y, is_seen))
