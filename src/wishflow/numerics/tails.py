"""Laws of noise with heavier tails than a Gaussian and the same covariance: r = √s ε with ε Gaussian and a random s.

E s = 1, and one s scales all entries of a row. For Student-t noise s is (κ − 2)/χ²_κ. For noise with jumps it is one of
two numbers: a share of the rows is some times as wide as the others.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, log_ndtr, ndtr, ndtri
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray, Scalar

from .devices import AnyArray

# Below it the inverse of Φ is without bound.
LEAST_PROBABILITY = 1e-300


class Jumps(eqx.Module):
    """With probability π the noise of a row is w times as wide as otherwise:

    s = 1/(1 − π + π w²), or w² times that, so that E s = 1.
    """

    share: Float[AnyArray, ""]
    width: Float[AnyArray, ""]

    def parts(self) -> tuple[tuple[Scalar, Scalar], tuple[Scalar, Scalar]]:
        """Probability and s of the narrow part and of the wide one."""
        share, square = jnp.asarray(self.share), jnp.asarray(self.width) ** 2
        narrow = 1.0 / (1.0 - share + share * square)
        return (1.0 - share, narrow), (share, square * narrow)

    def astype(self, dtype: DTypeLike) -> Jumps:
        return jax.tree.map(lambda x: jnp.asarray(x, dtype), self)


# κ of Student-t noise, jumps, or None: Gaussian noise.
Tails = Scalar | Jumps | None


def elliptical_log_density(
    squares: Float[Array, "*#batch"],
    log_det: Float[Array, "*#batch"],
    n: Num[Array, "*#batch"] | int,
    tails: Tails | float = None,
) -> Float[Array, "*batch"]:
    """Log density of r, n entries with mean zero and covariance B, from rᵀB⁻¹r and log|B|: where `tails` is None

        −½ (n log 2π + log|B| + rᵀB⁻¹r),

    for Student-t noise with κ > 2 degrees of freedom

        log Γ((κ + n)/2) − log Γ(κ/2) − ½ (n log((κ − 2)π) + log|B| + (κ + n) log(1 + rᵀB⁻¹r/(κ − 2))),

    and for jumps a mixture of two Gaussians with the covariances s B.
    """
    if tails is None:
        return -0.5 * (n * jnp.log(2.0 * jnp.pi) + log_det + squares)
    if isinstance(tails, Jumps):
        return jnp.logaddexp(*_log_parts(squares, log_det, n, tails))
    far = (tails + n) * jnp.log1p(squares / (tails - 2.0))
    constant = gammaln(0.5 * (tails + n)) - gammaln(0.5 * tails)
    return constant - 0.5 * (n * jnp.log((tails - 2.0) * jnp.pi) + log_det + far)


def _log_parts(squares: Array, log_det: Array, n: Num[Array, "*#batch"] | int, jumps: Jumps) -> tuple[Array, Array]:
    """Log of probability times density of the narrow part and of the wide one."""
    narrow, wide = (
        jnp.log(p) + elliptical_log_density(squares / s, log_det + n * jnp.log(s), n) for p, s in jumps.parts()
    )
    return narrow, wide


def tail_draw(
    key: PRNGKeyArray,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    tails: Scalar | float | Jumps,
    n: Num[Array, "*#shape"] | int = 0,
) -> Float[Array, "*shape"]:
    """What `tail_variance` makes s of, given n known entries of a row: a uniform number for jumps, χ²_{κ+n} else."""
    if isinstance(tails, Jumps):
        return jax.random.uniform(key, shape, dtype)
    return 2.0 * jax.random.gamma(key, 0.5 * (tails + n), shape, dtype)


def tail_variance(
    draw: Float[Array, "*shape"],
    tails: Scalar | float | Jumps,
    squares: Float[Array, "*#shape"] | float = 0.0,
    n: Num[Array, "*#shape"] | int = 0,
) -> Float[Array, "*shape"]:
    """s, given n entries of a row whose squared length rᵀB⁻¹r is known."""
    if isinstance(tails, Jumps):
        (_, narrow), (_, wide) = tails.parts()
        log_narrow, log_wide = _log_parts(jnp.asarray(squares, draw.dtype), jnp.zeros((), draw.dtype), n, tails)
        return jnp.where(draw < jax.nn.sigmoid(log_wide - log_narrow), wide, narrow)
    return (tails - 2.0 + squares) / draw


def normal_beyond(
    u: Float[Array, "*shape"], z: Float[Array, "*shape"], side: Int[Array, "*#shape"]
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """A standard normal draw beyond z, above it for a `side` of 1 and below it for −1, and the log probability of that.

    The draw is made of u, uniform between 0 and 1. Where `side` is 0 it means nothing, and the log probability is 0.
    """
    bound = -side * z
    drawn = -side * jnp.minimum(ndtri(jnp.maximum(u * ndtr(bound), LEAST_PROBABILITY)), bound)
    return drawn, jnp.where(side == 0, 0.0, log_ndtr(bound))
