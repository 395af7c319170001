"""Kernel and inducing points, and a(x) = Lz⁻¹ k(Z, x) for rows."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Scalar

from ..kernels import AbstractKernel, FixedKernel
from ..numerics.devices import compiled, on_device
from ..numerics.linalg import FIRST_JITTER, cholesky, rows_product, whitener


class InducingBasis(eqx.Module):
    """Kernel, inducing locations and the jitter (relative to the kernel's scale) that Kzz is factorised with."""

    kernel: AbstractKernel
    Z: Float[Array, "M D"]
    jitter: Float[Array, ""]

    @classmethod
    def of(cls, kernel: AbstractKernel, Z: object, jitter: float = FIRST_JITTER) -> InducingBasis:
        Z = on_device(Z)
        # A Python number would be weakly typed, and a model read from arrays would then need programs of its own.
        return cls(kernel, Z, on_device(jitter, Z.dtype))

    @property
    def n_inducing(self) -> int:
        return self.Z.shape[0]

    def matrix(self) -> Float[Array, "M M"]:
        """Kzz + jitter · scale · I."""
        Kzz = self.kernel.matrix(self.Z, self.Z)
        jitter = jax.lax.stop_gradient(self.jitter) * self.kernel.scale
        return Kzz + jitter * jnp.eye(self.n_inducing, dtype=Kzz.dtype)

    def factor(self) -> Float[Array, "M M"]:
        """Lz, the Cholesky factor of `matrix`."""
        return cholesky(self.matrix())

    def whitener(self) -> Float[Array, "M M"]:
        """W = Lz⁻¹."""
        return whitener(self.matrix())

    def prepare(self, dtype: DTypeLike | None = None, rotation: Float[Array, "M M"] | None = None) -> PreparedBasis:
        """Factorise Kzz once, in the precision of Z; the result works in `dtype` (that of Z by default).

        With a rotation Q rows are Qᵀa(x) instead of a(x): as good a whitening, (Lz Q)⁻¹ k(Z, x), at no cost for rows.
        """
        dtype = self.Z.dtype if dtype is None else dtype
        kernel, W = self.kernel.fixed(self.Z, dtype), self.whitener()
        W = W if rotation is None else rotation.T @ W
        return PreparedBasis(kernel, W.astype(dtype), (kernel.amplitude * W).astype(dtype))


class PreparedBasis(eqx.Module):
    """A factorised basis: what a(x) needs at every step of a path."""

    kernel: FixedKernel
    whitener: Float[Array, "M M"]
    projector: Float[Array, "M M"]

    @property
    def dtype(self) -> jnp.dtype:
        """What rows are to be given in."""
        return self.projector.dtype

    def project(self, X: Float[Array, "N D"]) -> Float[Array, "N M"]:
        """a(x)ᵀ in rows: k(X, Z) Lz⁻ᵀ. The amplitude of k is part of the projector, not of every row."""
        return rows_product(self.kernel.matrix(X), self.projector.T)

    def unexplained(self, X: Float[Array, "N D"], a: Float[Array, "N M"]) -> Float[Array, " N"]:
        """k(x, x) − aᵀa, the prior variance not explained by u; it must not go negative by rounding."""
        return jnp.maximum(self.kernel.diagonal(X) - jnp.sum(a * a, axis=-1), 0.0)


@compiled
def _kernel_matrix(kernel: AbstractKernel, Z: Float[Array, "M D"]) -> tuple[Float[Array, "M M"], Scalar]:
    return kernel.matrix(Z, Z), kernel.scale


def kernel_matrix_on_host(basis: InducingBasis) -> tuple[np.ndarray, float]:
    """Kzz and the kernel's scale as NumPy values, for the choice of jitter."""
    Kzz, scale = _kernel_matrix(basis.kernel, basis.Z)
    return np.asarray(Kzz), float(scale)
