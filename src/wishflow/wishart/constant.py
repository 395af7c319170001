"""Correlated noise that does not change: Σ = L Lᵀ."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Scalar

from ..inducing import InducingBasis
from ..numerics.devices import on_device
from ..numerics.parameters import Free
from .noise import AbstractNoise, NoiseValues, PreparedNoise
from .specs import ConstantDiffusion

# The part of each variance that is left to Λ, whose lowest start is the same share (`series.autoregressive`).
WHITE_SHARE = 1e-3


class ConstantNoise(AbstractNoise):
    """Σ = L Lᵀ; J is the identity."""

    scale: Free

    def kl(self) -> dict[str, Scalar]:
        return {}

    def prepare(self, dtype: DTypeLike, rotation: Float[Array, "M M"] | None) -> PreparedNoise:
        del rotation
        return PreparedConstant(self.scale.value.astype(dtype))


class PreparedConstant(PreparedNoise):
    """L at every row."""

    scale: Float[Array, "D D"]

    @property
    def n_normals(self) -> int | None:
        return 2 * self.scale.shape[1]

    def at(self, inputs: Float[Array, "N K"], a: Float[Array, "N M"], unexplained: Float[Array, " N"]) -> NoiseValues:
        del a, unexplained
        dim = self.scale.shape[1]
        J = jnp.broadcast_to(jnp.eye(dim, dtype=self.scale.dtype), (inputs.shape[0], dim, dim))
        return NoiseValues(J, jnp.zeros_like(J), self.scale, dim)


def start(
    spec: ConstantDiffusion, basis: InducingBasis, dim: int, key: object, covariance: Float[np.ndarray, "D D"] | None
) -> tuple[ConstantNoise, Float[np.ndarray, "D D"]]:
    """L of a covariance without a small part of its diagonal, which white noise keeps; otherwise the identity."""
    del spec, basis, key
    if covariance is None:
        return ConstantNoise(Free(on_device(np.eye(dim)))), np.zeros((dim, dim))
    values, vectors = np.linalg.eigh(covariance - WHITE_SHARE * np.diag(np.diagonal(covariance)))
    L = vectors * np.sqrt(np.maximum(values, 0.0))
    return ConstantNoise(Free(on_device(L))), L @ L.T
