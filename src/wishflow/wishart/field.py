"""The field of flows and time series: a drift, a noise and white noise on one basis, hence one a(x).

dx = (μ_linear + ℓ aᵀm_f + μ_noise) dt + √(Σ + Λ) dB. Each part may be absent. The noise of a step is Gaussian or
Student-t.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..inducing import InducingBasis, JoinedPosterior, PreparedBasis, rotated
from ..numerics import platform
from ..numerics.entries import Entries, inner
from ..numerics.linalg import rows_product, thin_product
from ..numerics.parameters import Positive, Scaled
from ..numerics.random import standard_normals
from ..numerics.tails import Jumps, Tails, tail_draw, tail_variance
from .base import AbstractField, AbstractPreparedField, DrivenValues, FieldValues, StateLayout, safe_sqrt
from .noise import AbstractNoise, NoiseValues, PreparedNoise, checked_values
from .white import WhiteNoise
from .wishart import WishartNoise, wishart_values


class GPDrift(eqx.Module):
    """f(x) = ℓ a(x)ᵀ v_f; ℓ = 1 where there is no amplitude.

    Without variances v_f is a point estimate m_f, with the log prior ½‖m_f‖² where it has one. With them
    q(v_f) = N(m_f, Q diag(λ) Qᵀ), Q being the rotation of the posterior of J (the identity where it has none), and the
    penalty is the KL divergence from N(0, I).
    """

    mean: Float[Array, "D M"]
    amplitude: Positive | None = None
    has_prior: bool = eqx.field(static=True, default=True)
    log_variances: Float[Array, "D M"] | None = None

    @property
    def has_posterior(self) -> bool:
        return self.log_variances is not None

    def scales(self) -> Float[Array, " D"]:
        """ℓ."""
        return jnp.ones(len(self.mean), self.mean.dtype) if self.amplitude is None else self.amplitude.value

    def weights(self) -> Float[Array, "D M"]:
        """What a(x) is multiplied by on average."""
        return self.mean if self.amplitude is None else self.mean * self.amplitude.value[:, None]

    def variances(self) -> Float[Array, "D M"] | None:
        """ℓ²λ."""
        return None if self.log_variances is None else self.scales()[:, None] ** 2 * jnp.exp(self.log_variances)

    def kl(self) -> dict[str, Scalar]:
        if self.log_variances is not None:
            excess = jnp.exp(self.log_variances) - 1.0 - self.log_variances
            return {"kl_drift": 0.5 * jnp.sum(self.mean**2 + excess)}
        return {"kl_drift": 0.5 * jnp.sum(self.mean**2)} if self.has_prior else {}


class Coefficients(DrivenValues):
    """Drift, moments of the entries of J, L and Λ at rows; for shared columns the moments have a last axis of size one.

    `drift` is its mean where it has a posterior that was not drawn from; `drift_variances` are then its variances.
    With `tails` the whole noise of a step is scaled by √s, one draw for all its entries (`numerics.tails`): Student-t
    noise, or noise with jumps, of the same covariance.
    """

    drift: Float[Array, "N D"]
    means: Float[Array, "N rho cols"]
    variances: Float[Array, "N rho cols"]
    scale: Float[Array, "D rho"]
    white_variances: Float[Array, "N D"] | None
    dof: int = eqx.field(static=True)
    tails: Tails = None
    drift_variances: Float[Array, "N D"] | None = None

    @property
    def n_normals(self) -> int:
        """W, one normal for each row of J, and white noise where there is some."""
        dim, rank = self.scale.shape
        return self.dof + rank + (0 if self.white_variances is None else dim)

    def moved(self, normals: Float[Array, "N K"], dt: Scalar | Float[Array, "N 1"] | float) -> Float[Array, "N D"]:
        """√dt (L J W + Λ^½ ε) with a fresh J, by the short cut: given W ~ N(0, I_ν) the entries (J W)_r are independent
        N(Σ_v m_rv W_v, Σ_v W_v² s²_rv), so ρ normals are drawn instead of ρν; the law is the same."""
        rank = self.scale.shape[1]
        W, epsilon, white = jnp.split(normals, (self.dof, self.dof + rank), axis=1)
        moved = self._moved_by_J(W, epsilon) if rank else jnp.zeros_like(self.drift)
        if self.white_variances is not None:
            by_white = safe_sqrt(self.white_variances) * white
            moved = moved + by_white if rank else by_white
        return jnp.sqrt(dt) * moved

    def _moved_by_J(self, W: Float[Array, "N nu"], epsilon: Float[Array, "N rho"]) -> Float[Array, "N D"]:
        if self.means.shape[-1] == 1:  # shared columns: a sum over them needs no array of their size
            mean = self.means[..., 0] * jnp.sum(W, -1, keepdims=True)
            variance = self.variances[..., 0] * jnp.sum(W * W, -1, keepdims=True)
        else:
            mean = jnp.sum(self.means * W[:, None], -1)
            variance = jnp.sum(self.variances * W[:, None] ** 2, -1)
        drawn = mean + safe_sqrt(variance) * epsilon
        return thin_product(drawn, self.scale.T) if platform.joins_products() else drawn @ self.scale.T

    def increment(self, key: PRNGKeyArray, dt: Scalar | Float[Array, "N 1"] | float) -> Float[Array, "N D"]:
        """`moved`, scaled by √s where there are tails."""
        if self.tails is not None:
            key, k_tails = jax.random.split(key)
            draw = tail_draw(k_tails, (self.drift.shape[0], 1), self.drift.dtype, self.tails)
            dt = dt * tail_variance(draw, self.tails)
        return super().increment(key, dt)

    def factor(self, key: PRNGKeyArray) -> Float[Array, "N D nu"]:
        """L J with J drawn entry by entry: the long way."""
        n, rank, _ = self.means.shape
        epsilon = standard_normals(key, (n, rank, self.dof), self.drift.dtype)
        return jnp.einsum("dr,nrv->ndv", self.scale, self.means + safe_sqrt(self.variances) * epsilon)

    def factor_entries(self, key: PRNGKeyArray) -> Entries:
        """The same draw as that of `factor`."""
        n, rank, _ = self.means.shape
        if not 0 < rank <= self.scale.shape[0]:  # as many products for each entry
            return super().factor_entries(key)
        epsilon = standard_normals(key, (n, rank, self.dof), self.drift.dtype)
        # Rows last: those of an entry are one after another in memory.
        J = jnp.moveaxis(self.means + safe_sqrt(self.variances) * epsilon, 0, -1)
        columns = [list(J[:, v]) for v in range(J.shape[1])]
        return [[inner(list(row), column) for column in columns] for row in self.scale]

    @property
    def white(self) -> Float[Array, "N D"]:
        return jnp.zeros_like(self.drift) if self.white_variances is None else self.white_variances

    def mean_covariance(self) -> Float[Array, "N D D"]:
        """Σ̄ + Λ with Σ̄ = L (M Mᵀ + diag_r Σ_v s²_rv) Lᵀ and M_rv = m_rv(x)."""
        shape = (*self.means.shape[:2], self.dof)
        M, s2 = jnp.broadcast_to(self.means, shape), jnp.broadcast_to(self.variances, shape)
        inner = jnp.einsum("nrv,nqv->nrq", M, M) + jnp.sum(s2, -1)[..., None] * jnp.eye(shape[1], dtype=M.dtype)
        diagonal = self.white[..., None] * jnp.eye(self.drift.shape[-1], dtype=M.dtype)
        return jnp.einsum("dr,nrq,eq->nde", self.scale, inner, self.scale) + diagonal


class Field(AbstractField):
    """Drift, noise and white noise on one basis.

    `linear` is a function of whole rows, `layout` an `AbstractLayout`. `tail_dof` are the degrees of freedom of
    Student-t noise, `jumps` those of noise that has some, which training does not change; None of both: it is Gaussian.
    """

    basis: InducingBasis
    linear: Any
    gp: GPDrift | None
    noise: AbstractNoise | None
    white: WhiteNoise | None
    layout: Any
    tail_dof: Scaled | None = None
    jumps: Jumps | None = None

    def prepare(self, dtype: DTypeLike | None = None) -> PreparedField | JoinedField:
        dtype = self.basis.Z.dtype if dtype is None else dtype
        return self._joined(dtype) if self._is_joined() else self.in_parts(dtype)

    def in_parts(self, dtype: DTypeLike | None = None) -> PreparedField:
        """`prepare` with drift and noise apart, as it is for series on every device."""
        dtype = self.basis.Z.dtype if dtype is None else dtype
        Q = None if self.noise is None else self.noise.rotation()
        noise = None if self.noise is None else self.noise.prepare(dtype, Q)
        return self._prepared(self.basis.prepare(dtype, Q), noise, Q)

    def draw(self, key: PRNGKeyArray, dtype: DTypeLike | None = None) -> PreparedField | JoinedField:
        if self.noise is None:
            return self.prepare(dtype)
        basis = self.basis.prepare(dtype)
        if not self.has_drift_posterior:
            return self._prepared(basis, self.noise.draw(key, self.basis, basis), None)
        k_drift, k_noise = jax.random.split(key)
        field = self._prepared(basis, self.noise.draw(k_noise, self.basis, basis), None)
        # Variances are those of rotated weights, and the functions of J are drawn in the coordinates of a(x).
        Q = self.noise.rotation()
        weights = self._prepared(basis, None, Q).drawn_weights(k_drift, ())
        weights = weights if Q is None else Q.astype(weights.dtype) @ weights
        return dataclasses.replace(field, gp_weights=weights, gp_variances=None)

    @property
    def has_drift_posterior(self) -> bool:
        """Whether the drift is a random function."""
        return self.gp is not None and self.gp.has_posterior

    def _prepared(self, basis: PreparedBasis, noise: PreparedNoise | None, rotation: Array | None) -> PreparedField:
        gp, dtype = self.gp, basis.dtype
        variances = None if gp is None else gp.variances()
        return PreparedField(
            layout=self.layout,
            white=None if self.white is None else self.white.rotated(rotation),
            tails=self._tails(dtype),
            basis=basis,
            linear=self.linear,
            gp_weights=None if gp is None else rotated(gp.weights(), rotation).T.astype(dtype),
            noise=noise,
            gp_variances=None if variances is None else variances.T.astype(dtype),
            gp_scales=None if gp is None or variances is None else gp.scales().astype(dtype),
        )

    def _tails(self, dtype: DTypeLike) -> Tails:
        if self.jumps is not None:
            return jax.lax.stop_gradient(self.jumps.astype(dtype))
        return None if self.tail_dof is None else self.tail_dof.value.astype(dtype)

    def _is_joined(self) -> bool:
        """Whether drift and J are found by one product: for flows, on accelerators."""
        is_flow = isinstance(self.layout, StateLayout) and self.gp is not None and not self.gp.has_posterior
        is_wishart = isinstance(self.noise, WishartNoise) and isinstance(self.noise.posterior, JoinedPosterior.KINDS)
        return platform.joins_products() and is_flow and is_wishart

    def _joined(self, dtype: DTypeLike) -> JoinedField:
        noise, gp = self.noise, self.gp
        assert isinstance(noise, WishartNoise) and gp is not None
        return JoinedField(
            layout=self.layout,
            white=self.white,
            tails=None,
            joined=JoinedPosterior.of(self.basis, noise.posterior, gp.weights(), dtype),
            scale=noise.scale.value.astype(dtype),
            dof=noise.dof,
        )

    def kl(self) -> dict[str, Scalar]:
        parts: dict[str, Scalar] = {}
        for part in (self.gp, self.noise, self.white):
            for name, value in ({} if part is None else part.kl()).items():
                parts[name] = parts[name] + value if name in parts else value
        return parts

    def summary(self) -> dict[str, Scalar]:
        found = {} if self.gp is None else {"drift_norm": jnp.linalg.norm(self.gp.mean)}
        found |= {} if self.noise is None else self.noise.summary()
        return found if self.tail_dof is None else {**found, "tail_dof": self.tail_dof.value}


class AbstractPreparedParts(AbstractPreparedField):
    """What the two ways to prepare a field have in common."""

    layout: Any
    white: WhiteNoise | None
    tails: Tails

    def coefficients(
        self,
        drift: Float[Array, "N D"],
        white: Float[Array, "N D"] | None,
        noise: NoiseValues | None,
        drift_variances: Float[Array, "N D"] | None = None,
    ) -> Coefficients:
        """Drift, Λ and noise put together."""
        if noise is None:
            empty = jnp.zeros((drift.shape[0], 0, 1), drift.dtype)
            L = jnp.zeros((self.layout.dim, 0), drift.dtype)
            return Coefficients(drift, empty, empty, L, white, 0, self.tails, drift_variances)
        drift = drift if noise.drift is None else drift + noise.drift
        if noise.diagonal is not None:
            white = noise.diagonal if white is None else white + noise.diagonal
        return Coefficients(
            drift, noise.means, noise.variances, noise.scale, white, noise.dof, self.tails, drift_variances
        )


class PreparedField(AbstractPreparedParts):
    """A factorised `Field`.

    `gp_weights` are means of the weights of the drift or draws of them, one for all rows or one for each. A drift with
    a posterior has `gp_scales` ℓ, the variances of its weights until they are drawn, and, once drawn, normals for what
    the weights do not explain of it.
    """

    basis: PreparedBasis
    linear: Any
    gp_weights: Float[Array, "*rows M D"] | None
    noise: PreparedNoise | None
    gp_variances: Float[Array, "M D"] | None = None
    gp_scales: Float[Array, " D"] | None = None
    gp_normals: Float[Array, "N D"] | None = None

    @property
    def has_drift_posterior(self) -> bool:
        """Whether the drift is a random function."""
        return self.gp_scales is not None

    def drawn(self, key: PRNGKeyArray, n_rows: int, one_for_each_row: bool) -> PreparedField:
        """The field with a draw of its drift, to be kept along the path of each of N rows.

        f(x) = ℓ (a(x)ᵀv + √(k(x, x) − ‖a(x)‖²) η), v ~ q, with v and η ~ N(0, I_D) the same in all steps of a path. The
        law of f at one x is that of the posterior; what v does not explain of f depends fully on itself along a path,
        which is the prior with the kernel aᵀa' + √(k − ‖a‖²) √(k' − ‖a'‖²). v is one for all rows, or one for each.
        """
        if self.gp_scales is None or self.gp_weights is None:
            return self
        k_weights, k_rest = jax.random.split(key)
        weights = self.drawn_weights(k_weights, (n_rows,) if one_for_each_row else ())
        normals = jax.random.normal(k_rest, (n_rows, self.layout.dim), weights.dtype)
        return dataclasses.replace(self, gp_weights=weights, gp_variances=None, gp_normals=self.gp_scales * normals)

    def drawn_weights(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "*rows M D"]:
        """ℓ v; as they are where they were drawn before."""
        assert self.gp_weights is not None
        if self.gp_variances is None:
            return self.gp_weights
        normals = jax.random.normal(key, (*shape, *self.gp_variances.shape), self.gp_variances.dtype)
        return self.gp_weights + jnp.sqrt(self.gp_variances) * normals

    @property
    def n_normals(self) -> int | None:
        n = 0 if self.noise is None else self.noise.n_normals
        if n is None or self.tails is not None:
            return None
        has_diagonal = self.white is not None or (self.noise is not None and self.noise.has_diagonal)
        return n + self.layout.dim * has_diagonal

    def at(self, X: Float[Array, "N K"], t: Scalar | float = 0.0) -> FieldValues:
        inputs = self.layout.kernel_inputs(X, t)
        a = self.basis.project(inputs)
        drift = jnp.zeros((X.shape[0], self.layout.dim), X.dtype) if self.linear is None else self.linear(X)
        white = None if self.white is None else self.white.at(inputs, a)
        if self.noise is None and not self.has_drift_posterior:
            return self.coefficients(drift + self._gp_drift(a), white, None)
        unexplained = self.basis.unexplained(inputs, a)
        drift, variances = drift + self._gp_drift(a), None
        if self.gp_normals is not None:
            drift = drift + safe_sqrt(unexplained)[:, None] * self.gp_normals
        elif self.gp_scales is not None and self.gp_variances is not None:
            variances = (a * a) @ self.gp_variances + unexplained[:, None] * self.gp_scales**2
        if self.noise is None:
            return self.coefficients(drift, white, None, variances)
        noise = self.noise.at(inputs, a, unexplained)
        return self.coefficients(drift, white, checked_values(noise, *drift.shape), variances)

    def _gp_drift(self, a: Float[Array, "N M"]) -> Float[Array, "N D"] | float:
        if self.gp_weights is None:
            return 0.0
        if self.gp_weights.ndim == 2:
            return rows_product(a, self.gp_weights)
        return jnp.einsum("nm,nmd->nd", a, self.gp_weights)


class JoinedField(AbstractPreparedParts):
    """`PreparedField` for accelerators: drift and posterior of J in one product."""

    joined: JoinedPosterior
    scale: Float[Array, "D rho"]
    dof: int = eqx.field(static=True)

    @property
    def n_normals(self) -> int | None:
        return self.dof + self.scale.shape[1] + (0 if self.white is None else self.layout.dim)

    def at(self, X: Float[Array, "N K"], t: Scalar | float = 0.0) -> FieldValues:
        inputs = self.layout.kernel_inputs(X, t)
        drift, means, variances = self.joined.moments(inputs)
        white = None if self.white is None else self.white.at(inputs, inputs[:, :0])
        return self.coefficients(drift, white, wishart_values(means, variances, self.scale, self.dof))
