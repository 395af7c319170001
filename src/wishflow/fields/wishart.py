"""diffWGP: Σ(x) = L J(x) J(x)ᵀ Lᵀ (+ Λ) with J a ρ×ν matrix of Gaussian processes (the paper, section 3.1).

Drift and diffusion share one kernel and one Z, hence one a(x). Posteriors of J:
`independent` has one q for each entry (r, v); `shared` one q for each row r, the ν entries being independent draws of
it.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..inducing import (
    AbstractPosterior,
    InducingBasis,
    JoinedPosterior,
    PathwiseDraw,
    PreparedBasis,
    PreparedPosterior,
    draw_pathwise,
    turned,
)
from ..linalg import thin_product
from ..noise import standard_normals
from ..parameters import AbstractParameter, Positive
from ..runtime import on_accelerator
from .base import AbstractField, DrivenValues, PreparedField, safe_sqrt, with_time


class WishartValues(DrivenValues):
    """Moments of the entries of J at the rows; for shared columns the last axis of both has size one.

    With `tail_dof` κ the whole noise of a step is scaled by √((κ − 2)/χ²_κ), one draw for all its entries: Student-t
    noise with the same covariance.
    """

    drift: Float[Array, "N D"]
    means: Float[Array, "N rho cols"]
    variances: Float[Array, "N rho cols"]
    scale: Float[Array, "D rho"]
    white_variances: Float[Array, " D"] | None
    dof: int = eqx.field(static=True)
    tail_dof: Scalar | None = None

    @property
    def n_normals(self):
        return normals_of(self.scale, self.dof, self.white_variances)

    def moved(self, normals, dt):
        """√dt (L J W + Λ^½ ε) with a fresh J, by the short cut: given W ~ N(0, I_ν) the entries (J W)_r are independent
        N(Σ_v m_rv W_v, Σ_v W_v² s²_rv), so ρ normals are drawn instead of ρν; the law is the same."""
        rank = self.scale.shape[1]
        W, epsilon, white = jnp.split(normals, (self.dof, self.dof + rank), axis=1)
        if self.means.shape[-1] == 1:  # shared columns: a sum over them needs no array of their size
            mean = self.means[..., 0] * jnp.sum(W, -1, keepdims=True)
            variance = self.variances[..., 0] * jnp.sum(W * W, -1, keepdims=True)
        else:
            mean = jnp.sum(self.means * W[:, None], -1)
            variance = jnp.sum(self.variances * W[:, None] ** 2, -1)
        drawn = mean + safe_sqrt(variance) * epsilon
        moved = thin_product(drawn, self.scale.T) if on_accelerator() else drawn @ self.scale.T
        if self.white_variances is not None:
            moved = moved + jnp.sqrt(self.white_variances) * white
        return jnp.sqrt(dt) * moved

    def increment(self, key, dt):
        """`moved`, scaled by √((κ − 2)/χ²_κ) where there is a κ."""
        if self.tail_dof is not None:
            key, k_tails = jax.random.split(key)
            shape = (self.drift.shape[0], 1)
            chi_squared = 2.0 * jax.random.gamma(k_tails, 0.5 * self.tail_dof, shape, self.drift.dtype)
            dt = dt * (self.tail_dof - 2.0) / chi_squared
        return super().increment(key, dt)

    def factor(self, key):
        """L J with J drawn entry by entry: the long way."""
        n, rank, _ = self.means.shape
        epsilon = standard_normals(key, (n, rank, self.dof), self.drift.dtype)
        return jnp.einsum("dr,nrv->ndv", self.scale, self.means + safe_sqrt(self.variances) * epsilon)

    @property
    def white(self):
        zeros = jnp.zeros_like(self.drift)
        return zeros if self.white_variances is None else zeros + self.white_variances

    def mean_covariance(self):
        """Σ̄ = L (M Mᵀ + diag_r Σ_v s²_rv) Lᵀ + Λ with M_rv = m_rv(x)."""
        shape = (*self.means.shape[:2], self.dof)
        M, s2 = jnp.broadcast_to(self.means, shape), jnp.broadcast_to(self.variances, shape)
        inner = jnp.einsum("nrv,nqv->nrq", M, M) + jnp.sum(s2, -1)[..., None] * jnp.eye(shape[1], dtype=M.dtype)
        diagonal = self.white[..., None] * jnp.eye(self.drift.shape[-1], dtype=M.dtype)
        return jnp.einsum("dr,nrq,eq->nde", self.scale, inner, self.scale) + diagonal


def normals_of(scale: Float[Array, "D rho"], dof: int, white: Array | None) -> int:
    """W, one normal for each row of J, and white noise where there is some."""
    dim, rank = scale.shape
    return dof + rank + (0 if white is None else dim)


class AbstractPreparedWishart(PreparedField):
    """What all ways to find J have in common: L, Λ and ν."""

    scale: Float[Array, "D rho"]
    white: Float[Array, " D"] | None
    dof: int = eqx.field(static=True)
    is_time_dependent: bool = eqx.field(static=True)

    @property
    def n_normals(self):
        return normals_of(self.scale, self.dof, self.white)

    def values(
        self, drift: Float[Array, "N D"], means: Float[Array, "N P"], variances: Float[Array, "N P"]
    ) -> WishartValues:
        """With moments of the entries of J in the order (r, v)."""
        shape = (len(drift), self.scale.shape[1], -1)
        return WishartValues(drift, means.reshape(shape), variances.reshape(shape), self.scale, self.white, self.dof)


class PreparedWishart(AbstractPreparedWishart):
    """Factorised basis, drift and posterior of J: marginal sampling, the paper's way."""

    basis: PreparedBasis
    drift_mean: Float[Array, "M D"]
    posterior: PreparedPosterior

    def at(self, X, t):
        inputs = with_time(X, t, self.is_time_dependent)
        a = self.basis.project(inputs)
        variances = self.basis.unexplained(inputs, a)[:, None] + self.posterior.quadratics(a)
        return self.values(a @ self.drift_mean, self.posterior.means(a), variances)


class JoinedWishart(AbstractPreparedWishart):
    """`PreparedWishart` for accelerators: drift and posterior of J in one product."""

    joined: JoinedPosterior

    def at(self, X, t):
        return self.values(*self.joined.moments(with_time(X, t, self.is_time_dependent)))


class DrawnWishart(AbstractPreparedWishart):
    """One draw of J(·), shared by all rows and steps: a proper random SDE given the draw."""

    drift_mean: Float[Array, "M D"]
    J: PathwiseDraw

    def at(self, X, t):
        inputs = with_time(X, t, self.is_time_dependent)
        a = self.J.basis.project(inputs)
        J = self.J.at(inputs, a)
        return self.values(a @ self.drift_mean, J, jnp.zeros_like(J))


class WishartField(AbstractField):
    """Drift μ(x) = a(x)ᵀ m_f with the log prior ½‖m_f‖² and the Wishart diffusion.

    `posterior` has ρ·ν outputs in the order (r, v) where columns are independent, ρ where they are shared.
    """

    basis: InducingBasis
    drift_mean: Float[Array, "D M"]
    posterior: AbstractPosterior
    scale: AbstractParameter
    white: Positive | None
    dof: int = eqx.field(static=True)
    has_shared_columns: bool = eqx.field(static=True)
    is_time_dependent: bool = eqx.field(static=True)

    def prepare(self, dtype=None):
        dtype = self.basis.Z.dtype if dtype is None else dtype
        shared = self._shared(dtype)
        if on_accelerator() and isinstance(self.posterior, JoinedPosterior.KINDS):
            joined = JoinedPosterior.of(self.basis, self.posterior, self.drift_mean, dtype)
            return JoinedWishart(*shared, joined)
        Q = self.posterior.rotation()
        drift = turned(self.drift_mean, Q).T.astype(dtype)
        return PreparedWishart(*shared, self.basis.prepare(dtype, Q), drift, self.posterior.prepare(dtype, Q))

    def draw(self, key, dtype=None):
        dtype = self.basis.Z.dtype if dtype is None else dtype
        repeats = self.dof if self.has_shared_columns else 1
        means = jnp.repeat(self.posterior.mean, repeats, axis=0)
        factors = jnp.repeat(self.posterior.factors(), repeats, axis=0)
        J = draw_pathwise(key, self.basis, self.basis.prepare(dtype), means, factors)
        return DrawnWishart(*self._shared(dtype), self.drift_mean.T.astype(dtype), J)

    def _shared(self, dtype: Any) -> tuple[Array, Array | None, int, bool]:
        """The fields of an `AbstractPreparedWishart`."""
        white = None if self.white is None else self.white.value.astype(dtype)
        return self.scale.value.astype(dtype), white, self.dof, self.is_time_dependent

    def kl(self):
        """½‖m_f‖² and KL_Σ, which for shared columns counts each row's KL ν times (they are ν independent draws)."""
        times = self.dof if self.has_shared_columns else 1
        return {
            "kl_drift": 0.5 * jnp.sum(self.drift_mean**2),
            "kl_diffusion": times * jnp.sum(self.posterior.kl()),
        }

    def summary(self):
        return {
            "drift_norm": jnp.linalg.norm(self.drift_mean),
            "diffusion_norm": jnp.linalg.norm(self.posterior.mean),
        }
