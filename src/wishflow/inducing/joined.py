"""A basis and a posterior in one product, for accelerators."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..kernels import FixedKernel
from ..numerics.linalg import GRADIENT_PRECISION, over_rows
from .basis import InducingBasis
from .posteriors import N_LANES, DiagonalPosterior, RotatedPosterior, StructuredPosterior


class JoinedPosterior(eqx.Module):
    """A basis and a posterior on it for accelerators, where few large products are faster than many small ones: a, Fᵀa
    and all means are linear in k(Z, x), so one product gives them all. R_p = F diag(√λ_p), F being T, Q or I.

    The columns of `product` are Lz⁻ᵀ (I, F, further weights, m), times the amplitude of k, and zeros up to a multiple
    of `N_LANES`. Where F is orthogonal Fᵀa is as long as a, and I is left out.
    """

    KINDS: ClassVar = (StructuredPosterior, RotatedPosterior, DiagonalPosterior)

    kernel: FixedKernel
    product: Float[Array, "M K"]
    variances: Float[Array, "M P"]
    n_further: int = eqx.field(static=True)
    is_orthogonal: bool = eqx.field(static=True)

    @classmethod
    def of(
        cls, basis: InducingBasis, posterior: Any, further: Float[Array, "D M"], dtype: DTypeLike
    ) -> JoinedPosterior:
        """`further` are weights of a(x) beside those of the posterior, such as a drift's."""
        kernel, W = basis.kernel.fixed(basis.Z, dtype), basis.whitener()
        is_orthogonal = not isinstance(posterior, StructuredPosterior)
        F = posterior.rotation() if is_orthogonal else posterior.factor
        projector = kernel.amplitude.astype(W.dtype) * W.T
        weights = jnp.concatenate([further.T, posterior.mean.T], axis=1)
        if F is None:
            parts = [projector, projector @ weights]
        else:
            right = projector @ jnp.concatenate([F, weights], axis=1)
            parts = [right] if is_orthogonal else [projector, right]
        n_missing = -sum(part.shape[1] for part in parts) % N_LANES
        product = jnp.concatenate([*parts, jnp.zeros((len(W), n_missing), W.dtype)], axis=1)
        variances = jnp.exp(posterior.log_variances).T
        return cls(kernel, product.astype(dtype), variances.astype(dtype), len(further), is_orthogonal)

    def moments(self, X: Float[Array, "N K"]) -> tuple[Float[Array, "N D"], Float[Array, "N P"], Float[Array, "N P"]]:
        """The further means, the means and the variances of all outputs at the rows."""
        linear, explained, quadratics = joined_moments(
            self.kernel.matrix(X), self.product, self.variances, self.is_orthogonal
        )
        unexplained = jnp.maximum(self.kernel.diagonal(X) - explained, 0.0)
        further, means = jnp.split(linear[:, : self.n_further + quadratics.shape[1]], (self.n_further,), axis=1)
        return further, means, unexplained[:, None] + quadratics


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def joined_moments(
    K: Float[Array, "N M"], product: Float[Array, "M K"], variances: Float[Array, "M P"], is_orthogonal: bool
) -> tuple[Float[Array, "N L"], Float[Array, " N"], Float[Array, "N P"]]:
    """With (a, b, rest) = K product, a and b of M columns, or (a, rest) and b = a: the rest, ‖a‖² and b² λ.

    The derivative keeps K and that product, and takes two products for all three, with `GRADIENT_PRECISION`.
    """
    return _joined_forward(K, product, variances, is_orthogonal)[0]


def _cut(joined: Float[Array, "N C"], n: int, is_orthogonal: bool) -> tuple[Array, Array, Array]:
    """a, b and the rest."""
    start = 0 if is_orthogonal else n
    return joined[:, :n], joined[:, start : start + n], joined[:, start + n :]


def _joined_forward(
    K: Array, product: Array, variances: Array, is_orthogonal: bool
) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array, Array]]:
    joined = K @ product
    a, b, rest = _cut(joined, K.shape[1], is_orthogonal)
    # A sum, not a product: b * b is then never written.
    quadratics = jnp.sum((b * b)[:, None] * variances.T, -1)
    return (rest, jnp.sum(a * a, -1), quadratics), (K, joined, product, variances)


def _joined_backward(
    is_orthogonal: bool, residuals: tuple[Array, Array, Array, Array], cotangents: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    K, joined, product, variances = residuals
    linear, explained, quadratics = cotangents
    a, b, _ = _cut(joined, K.shape[1], is_orthogonal)
    by_a, by_b = 2.0 * a * explained[:, None], 2.0 * b * jnp.sum(quadratics[:, :, None] * variances.T, 1)
    inner = jnp.concatenate([by_a + by_b, linear] if is_orthogonal else [by_a, by_b, linear], axis=1)
    return (
        jnp.matmul(inner, product.T, precision=GRADIENT_PRECISION),
        over_rows(K, inner, GRADIENT_PRECISION),
        over_rows(b * b, quadratics, GRADIENT_PRECISION),
    )


joined_moments.defvjp(_joined_forward, _joined_backward)
