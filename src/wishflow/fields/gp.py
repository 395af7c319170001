"""diffGP (Hegde et al. 2019): drift and diffusion are mean and variance of one Gaussian field f."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..inducing import AbstractPosterior, InducingBasis, PreparedBasis, PreparedPosterior
from .base import AbstractField, DrivenValues, PreparedField, refuse_pathwise, safe_sqrt, with_time


class GPFieldValues(DrivenValues):
    """Mean and variance of f at the rows."""

    drift: Float[Array, "N D"]
    variance: Float[Array, "N D"]

    @property
    def n_normals(self):
        return self.drift.shape[-1]

    def moved(self, normals, dt):
        return safe_sqrt(self.variance) * jnp.sqrt(dt) * normals

    def factor(self, key):
        del key
        return safe_sqrt(self.variance)[..., None] * jnp.eye(self.drift.shape[-1], dtype=self.drift.dtype)

    @property
    def white(self):
        return jnp.zeros_like(self.drift)

    def mean_covariance(self):
        return self.variance[..., None] * jnp.eye(self.drift.shape[-1], dtype=self.drift.dtype)


class PreparedGPField(PreparedField):
    """Factorised basis and posterior."""

    basis: PreparedBasis
    posterior: PreparedPosterior
    is_time_dependent: bool = eqx.field(static=True)

    @property
    def n_normals(self):
        return self.posterior.mean.shape[1]

    def at(self, X, t):
        inputs = with_time(X, t, self.is_time_dependent)
        a = self.basis.project(inputs)
        variance = self.basis.unexplained(inputs, a)[:, None] + self.posterior.quadratics(a)
        return GPFieldValues(self.posterior.means(a), variance)


class GPField(AbstractField):
    """q(v_f) = N(m, R Rᵀ) for each dimension: μ = aᵀm, Σ = diag(k − aᵀa + ‖Rᵀa‖²).

    The KL of f is counted once, with the drift; there is no separate term for Σ.
    """

    basis: InducingBasis
    posterior: AbstractPosterior
    is_time_dependent: bool = eqx.field(static=True)

    def prepare(self, dtype=None):
        dtype = self.basis.Z.dtype if dtype is None else dtype
        Q = self.posterior.rotation()
        return PreparedGPField(self.basis.prepare(dtype, Q), self.posterior.prepare(dtype, Q), self.is_time_dependent)

    def draw(self, key, dtype=None):
        raise refuse_pathwise("gp")

    def kl(self):
        return {"kl_drift": jnp.sum(self.posterior.kl())}

    def summary(self):
        return {"drift_norm": jnp.linalg.norm(self.posterior.mean)}
