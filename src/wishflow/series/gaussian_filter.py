"""p(x_t | y up to t): the Gaussian belief recursion through gaps and holes.

The state is a history: x and the rows before it, back to the longest lag. The belief moves with the mean covariance
Σ̄ + Λ; what is seen at a tick is scored by a mixture over draws of J in the step that leads to it. Exact for linear
drift and Gaussian noise that is neither random nor dependent on the state; elsewhere an assumed-density approximation.
With heavy tails (Student-t noise, jumps) the belief moves by the covariance alone, and what is seen is scored by a law
with these tails and that covariance, as if the way there were one step.

With a long lag, one of all (24) or chosen (1, 2, 3, 24), the covariance of a whole history would be too large. The
newest rows, as many as `n_joint` says, keep all their covariances, so that what is seen later still mends them; a row
that grows older than that keeps its mean and its own covariance, and is from then on taken as independent of all
others. This is exact where those older rows have no holes, where `n_joint` reaches back to the longest lag (up to six
lags without gaps, and histories of up to `JOINT_SIZE` numbers), and an approximation otherwise.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..numerics.linalg import log_det, small_whitener
from ..numerics.tails import Tails, elliptical_log_density
from ..wishart import PreparedField
from ..wishart.solver import scan_steps
from .layout import Layout
from .specs import joint_run_of

# Numbers in the rows of a history whose covariances with each other are kept, where lags have gaps or are many.
JOINT_SIZE = 160


def n_joint(layout: Layout) -> int:
    """How many of the newest rows of a history keep all their covariances: at least the first lags without a gap."""
    return min(layout.memory, max(joint_run_of(layout.lags), JOINT_SIZE // layout.dim))


class Belief(eqx.Module):
    """N(m, P) over histories; P is zero on coordinates that were just observed.

    `covariance` is that of the newest r rows, `older` are those of each of the p − r rows before them (None: there are
    none).
    """

    mean: Float[Array, "N pD"]
    covariance: Float[Array, "N rD rD"]
    older: Float[Array, "N older D D"] | None = None

    @classmethod
    def start(cls, values: Float[Array, "N pD"], variance: Float[Array, "N pD"], layout: Layout) -> Belief:
        """Coordinates that are independent: known ones have no variance."""
        size = n_joint(layout) * layout.dim
        joint = variance[:, :size, None] * jnp.eye(size, dtype=values.dtype)
        if size == layout.n_history:
            return cls(values, joint)
        rest = variance[:, size:].reshape(len(variance), -1, layout.dim)
        return cls(values, joint, rest[..., None] * jnp.eye(layout.dim, dtype=values.dtype))


class Predicted(eqx.Module):
    """The belief after a step, and the covariance of the new state for each draw of J, (S, N, D, D).

    `tails` are those of its noise (None: Gaussian).
    """

    belief: Belief
    drawn: Float[Array, "S N D D"]
    tails: Tails = None


def predict(
    key: PRNGKeyArray,
    field: PreparedField,
    belief: Belief,
    h: Float[Array, " N"],
    u: Float[Array, "N U"],
    n_samples: int = 1,
) -> Predicted:
    """One Euler step: m ← m + hμ(m, u), P ← G P Gᵀ + h (Σ̄ + Λ) + h² s², the field taken at the old m; s² are the
    variances of a drift that has some, drawn afresh in each step.
    """
    layout = field.layout
    D = layout.dim
    X = layout.row(belief.mean, u)
    here = field.at(X)
    length = h[:, None, None]
    near, far = _by_age(length * drift_jacobian(field, X), layout)
    G = jnp.eye(D, near.shape[-1], dtype=X.dtype) + near
    GP = G @ belief.covariance
    carried = GP @ jnp.swapaxes(G, -1, -2)
    if belief.older is not None:
        rows = {lag: belief.older[:, lag - 1 - n_joint(layout)] for lag in far}
        carried = carried + sum(slope @ rows[lag] @ jnp.swapaxes(slope, -1, -2) for lag, slope in far.items())
    if here.drift_variances is not None:
        carried = carried + length**2 * here.drift_variances[..., None] * jnp.eye(D, dtype=X.dtype)
    mean = layout.shift(belief.mean, belief.mean[:, :D] + h[:, None] * here.drift)
    moved = _moved(belief.covariance, GP, carried + length * here.mean_covariance(), layout)

    def drawn(k: PRNGKeyArray) -> Float[Array, "B D D"]:
        F = here.factor(k)
        noise = F @ jnp.swapaxes(F, -1, -2) + here.white[..., None] * jnp.eye(D, dtype=X.dtype)
        return carried + length * noise

    belief = Belief(mean, moved, _aged(belief, layout))
    return Predicted(belief, jax.vmap(drawn)(jax.random.split(key, n_samples)), here.tails)


def drift_jacobian(field: PreparedField, X: Float[Array, "N K"]) -> Float[Array, "N D lD"]:
    """∂μ/∂(x, lags): the linear weights, and the slope of the GP part along x alone.

    The GP part is k(x, Z)/s² c with a fixed c = s² Lz⁻ᵀ m, so its slope needs no product of the size M².
    """
    layout = field.layout
    D, n_lagged = layout.dim, layout.n_lagged
    shape = (X.shape[0], D, n_lagged)
    weights = jnp.zeros((D, n_lagged)) if field.linear is None else field.linear.weights[:, :n_lagged]
    jacobian = jnp.broadcast_to(weights.astype(X.dtype), shape)
    coefficients = _kernel_coefficients(field)
    if coefficients is None:
        return jacobian

    def gp_part(row: Float[Array, " K"]) -> Float[Array, " D"]:
        return (field.basis.kernel.matrix(row[None]) @ coefficients)[0]

    slope = jax.vmap(jax.jacfwd(gp_part))(layout.kernel_inputs(X))[..., :D]
    return jacobian.at[..., :D].add(slope)


def _kernel_coefficients(field: PreparedField) -> Float[Array, "M D"] | None:
    """c with GP drift(x) = k(x, Z) c / s²; a drift that the noise adds counts too."""
    parts = [field.gp_weights, None if field.noise is None else field.noise.drift_weights()]
    given = [part for part in parts if part is not None]
    return field.basis.projector.T @ sum(given[1:], given[0]) if given else None


def _by_age(slopes: Float[Array, "N D lD"], layout: Layout) -> tuple[Float[Array, "N D rD"], dict[int, Array]]:
    """Slopes along all coordinates of the joint rows (zero where a lag was not chosen), and along older rows by lag."""
    D, r = layout.dim, n_joint(layout)
    if layout.n_run == layout.memory == r:
        return slopes, {}
    by_lag = {lag: slopes[..., i * D : (i + 1) * D] for i, lag in enumerate(layout.lags)}
    zero = jnp.zeros_like(slopes[..., :D])
    near = jnp.concatenate([by_lag.get(lag, zero) for lag in range(1, r + 1)], axis=-1)
    return near, {lag: slope for lag, slope in by_lag.items() if lag > r}


def _aged(belief: Belief, layout: Layout) -> Float[Array, "N older D D"] | None:
    """The covariances of older rows a step later: the oldest is forgotten, the last of the joint rows joins them."""
    if belief.older is None:
        return None
    last = belief.covariance[:, -layout.dim :, -layout.dim :]
    return jnp.concatenate([last[:, None], belief.older[:, :-1]], axis=1)


def _moved(P: Array, GP: Array, first: Array, layout: Layout) -> Array:
    """A P Aᵀ + noise with A = (G; shift of the joint rows): `first` is its first block."""
    kept = P.shape[-1] - layout.dim
    if not kept:
        return first
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
    return elliptical_log_density(jnp.sum(white**2, -1), log_det(W), jnp.sum(seen, -1), predicted.tails)


def update(belief: Belief, y: Float[Array, "N D"], is_seen: Bool[Array, "N D"]) -> Belief:
    """Condition on the entries that are there: K = P_:o P_oo⁻¹, m ← m + K r, P ← P − K P_o:, zero on what was seen."""
    D, P, size = y.shape[-1], belief.covariance, belief.covariance.shape[-1]
    seen = is_seen.astype(P.dtype)
    W = small_whitener(_among_seen(P[:, :D, :D], seen))
    gain = (P[:, :, :D] * seen[:, None, :]) @ jnp.swapaxes(W, -1, -2)  # P_:o Wᵀ, so that K = gain W
    mean = belief.mean[:, :size] + jnp.einsum("nki,nij,nj->nk", gain, W, _residual(belief, y, is_seen))
    covariance = P - gain @ jnp.swapaxes(gain, -1, -2)
    unseen = jnp.concatenate([1.0 - seen, jnp.ones((len(seen), size - D), P.dtype)], axis=-1)
    observed = jnp.concatenate([jnp.where(is_seen, y, mean[:, :D]), mean[:, D:], belief.mean[:, size:]], axis=-1)
    return Belief(observed, covariance * unseen[:, :, None] * unseen[:, None, :], belief.older)


def run(
    key: PRNGKeyArray,
    field: PreparedField,
    belief: Belief,
    h: Float[Array, "T N"],
    u: Float[Array, "T N U"],
    y: Float[Array, "T N D"],
    is_seen: Bool[Array, "T N D"],
    n_samples: int = 1,
) -> tuple[Belief, tuple[Float[Array, "T N lD"], Float[Array, "T S N"]]]:
    """The belief after all ticks; after each its mean of (x, lags), and the log densities of what was seen there."""

    def tick(belief: Belief, inputs: tuple[Array, ...]) -> tuple[Belief, tuple[Array, Array]]:
        k, h, u, y, seen = inputs
        predicted = predict(k, field, belief, h, u, n_samples)
        belief = update(predicted.belief, y, seen)
        return belief, (field.layout.chosen(belief.mean), score(predicted, y, seen))

    keys = jax.random.split(key, h.shape[0])
    return scan_steps(tick, belief, (keys, h, u, y, is_seen))
