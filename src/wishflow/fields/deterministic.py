"""Drift with a constant or no diffusion: the ablations "No noise" (Σ = 0) and "Diagonal noise" (Σ = Λ)."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..inducing import InducingBasis, PreparedBasis
from ..parameters import Positive
from .base import AbstractField, DrivenValues, PreparedField, with_time


class ConstantNoiseValues(DrivenValues):
    """A drift and a diagonal that does not depend on the state."""

    drift: Float[Array, "N D"]
    variances: Float[Array, " D"] | None

    @property
    def n_normals(self):
        return 0 if self.variances is None else len(self.variances)

    def moved(self, normals, dt):
        return jnp.zeros_like(self.drift) if self.variances is None else jnp.sqrt(dt * self.variances) * normals

    def factor(self, key):
        del key
        return jnp.zeros((*self.drift.shape, 0), self.drift.dtype)

    @property
    def white(self):
        return (
            jnp.zeros_like(self.drift) if self.variances is None else jnp.broadcast_to(self.variances, self.drift.shape)
        )

    def mean_covariance(self):
        return self.white[..., None] * jnp.eye(self.drift.shape[-1], dtype=self.drift.dtype)


class PreparedConstantNoise(PreparedField):
    """Factorised basis and the drift's whitened mean."""

    basis: PreparedBasis
    drift_mean: Float[Array, "M D"]
    variances: Float[Array, " D"] | None
    is_time_dependent: bool = eqx.field(static=True)

    @property
    def n_normals(self):
        return 0 if self.variances is None else len(self.variances)

    def at(self, X, t):
        a = self.basis.project(with_time(X, t, self.is_time_dependent))
        return ConstantNoiseValues(a @ self.drift_mean, self.variances)


class ConstantNoiseField(AbstractField):
    """μ(x) = a(x)ᵀ m_f; Σ = Λ constant and diagonal, or Σ = 0 where `white` is None.

    With Λ the drift pays its log prior ½‖m_f‖²; "No noise" has no flow term in the bound (the paper's ablation).
    """

    basis: InducingBasis
    drift_mean: Float[Array, "D M"]
    white: Positive | None
    is_time_dependent: bool = eqx.field(static=True)

    def prepare(self, dtype=None):
        dtype = self.basis.Z.dtype if dtype is None else dtype
        variances = None if self.white is None else self.white.value.astype(dtype)
        return PreparedConstantNoise(
            self.basis.prepare(dtype), self.drift_mean.T.astype(dtype), variances, self.is_time_dependent
        )

    def kl(self):
        return {} if self.white is None else {"kl_drift": 0.5 * jnp.sum(self.drift_mean**2)}

    def summary(self):
        return {"drift_norm": jnp.linalg.norm(self.drift_mean)}
