"""Time series: the auto-regressive SDE y ~ dx = μ(x, lags, u) dt + √(Σ + Λ) dB, observed at irregular times.

One time unit is the median gap; δ (`step`) is part of the model: training, scoring and forecasting cut every gap into
⌈Δ/δ⌉ equal Euler steps.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .. import kernels
from ..fields.dynamic import (
    AbstractNoise,
    DynamicField,
    GPDrift,
    GPNoise,
    Layout,
    LinearDrift,
    PreparedDynamics,
    WhiteNoise,
    WishartNoise,
)
from ..inducing import POSTERIORS, InducingBasis, for_values, kernel_matrix_on_host
from ..parameters import Free, Positive, Scaled, zeros
from ..runtime import on_device
from ..specs import Diagonal, DynamicsSpec, GPDiffusion, NoDiffusion, Wishart

FIELD_JITTER = 1e-6
DRIFT_AMPLITUDE = 0.1
# Σ is even in J, so a mean of zero is a saddle, and where the noise is constant a start beside it is slow to leave:
# J starts around DIFFUSION_MEAN · [I 0], whose square is as large as the variances; normals make columns differ.
DIFFUSION_MEAN = 1.0
DIFFUSION_MEAN_SD = 0.1
# How large 1ᵀ Kzz⁻¹ 1 may be, in units of M/k(z, z), for a constant to be in reach of a kernel.
FARTHEST_CONSTANT = 2.0
# Degrees of freedom of Student-t noise at the start, and the least, below which there is hardly a covariance.
TAIL_DOF = 8.0
LEAST_TAIL_DOF = 2.1


class DynamicsModel(eqx.Module):
    """The auto-regressive model: its field."""

    field: DynamicField

    @property
    def layout(self) -> Layout:
        return self.field.layout

    def bases(self) -> list[InducingBasis]:
        """The inducing bases, for the choice of their jitter."""
        return [self.field.basis]

    def noise_summary(self) -> Scalar:
        """The mean white noise."""
        return jnp.mean(self.field.white.base.value)

    def summary(self) -> dict[str, Scalar]:
        return self.field.summary()


class Start(eqx.Module):
    """Where training starts: the ridge regression of the increments and the covariance rate of its residuals."""

    weights: Float[Array, "D K"]
    constant: Float[Array, " D"]
    covariance: Float[Array, "D D"]


def build(spec: DynamicsSpec, layout: Layout, start: Start, Z: object, key: PRNGKeyArray) -> DynamicsModel:
    """The model at its starting values (design, section 4): E[Σ] + Λ is the covariance of the residuals, at Z."""
    Z = on_device(Z)
    rank, dof = _rank_and_dof(spec.diffusion, layout.dim)
    variance = 1.0 / dof if dof else 1.0
    kernel = kernels.build(spec.kernel, Z.shape[1], variance=variance, lengthscale=2.0 * np.sqrt(Z.shape[1]))
    basis = InducingBasis.of(kernel, Z, FIELD_JITTER)
    noise, explained = _noise(spec.diffusion, basis, layout, start.covariance, rank, dof, key)
    has_linear, has_gp = "linear" in spec.drift, "gp" in spec.drift
    amplitude = Positive.of([DRIFT_AMPLITUDE / variance**0.5] * layout.dim)
    gp = GPDrift(zeros(layout.dim, len(Z)), amplitude)
    linear = LinearDrift.of(start.weights, start.constant, len(layout.lags))
    return DynamicsModel(
        DynamicField(
            basis,
            linear if has_linear else None,
            gp if has_gp and not isinstance(noise, GPNoise) else None,
            noise,
            _white(spec, basis, layout, start.covariance, explained),
            layout,
            Scaled.of(TAIL_DOF, LEAST_TAIL_DOF) if spec.innovations == "student_t" else None,
        )
    )


def _rank_and_dof(diffusion, dim: int) -> tuple[int, int]:
    if not isinstance(diffusion, Wishart):
        return 0, 0
    rank = dim if diffusion.rank is None else min(diffusion.rank, dim)
    return rank, rank if diffusion.dof is None else diffusion.dof


def _noise(diffusion, basis, layout, covariance, rank, dof, key) -> tuple[AbstractNoise | None, np.ndarray]:
    """The noise and what it explains of the covariance at the start."""
    Q = np.asarray(covariance)
    if isinstance(diffusion, NoDiffusion | Diagonal):
        return None, np.zeros_like(Q)
    posterior = POSTERIORS[diffusion.posterior]
    if isinstance(diffusion, GPDiffusion):
        share = 0.5 * np.diagonal(Q)
        return GPNoise(posterior.prior(layout.dim, basis.n_inducing), Positive.of(np.sqrt(share))), np.diag(share)
    values, vectors = np.linalg.eigh(Q)
    order = np.argsort(values)[::-1][:rank]
    L = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    is_shared = diffusion.columns == "shared"
    q = posterior.prior(rank if is_shared else rank * dof, basis.n_inducing)
    one = _whitened_one(basis)
    constant, second = _constant_mean(rank, dof, is_shared, DIFFUSION_MEAN if one.any() else 0.0)
    mean = DIFFUSION_MEAN_SD * jax.random.normal(key, q.mean.shape) + constant[:, None] * one
    q = eqx.tree_at(lambda q: q.mean, q, mean)
    return WishartNoise(q, Free(on_device(L / np.sqrt(second))), dof, is_shared), L @ L.T


def _constant_mean(rank: int, dof: int, is_shared: bool, size: float) -> tuple[np.ndarray, np.ndarray]:
    """What J is on average at the start, one number for each output of q, and the diagonal of E[JJᵀ].

    Columns that share their mean have one of rank one: it goes to the first row, where L has most of the noise.
    """
    if is_shared:
        first = size * np.eye(rank)[0]
        return first / np.sqrt(dof), 1.0 + first**2
    mean = size * np.eye(rank, dof)
    return mean.ravel(), 1.0 + np.sum(mean**2, 1)


def _whitened_one(basis: InducingBasis) -> np.ndarray:
    """v = Lz⁻¹ 1, a function that is one at the inducing points; zero where the kernel knows no such function.

    ‖v‖² = 1ᵀ Kzz⁻¹ 1 is M/k(z, z) at most for values that are independent or correlated by one positive number. A
    linear kernel, in whose span there is no constant, has thousands of times that.
    """
    Kzz, scale = kernel_matrix_on_host(basis)
    Lz = np.linalg.cholesky(Kzz + float(basis.jitter) * scale * np.eye(len(Kzz)))
    v = np.linalg.solve(Lz, np.ones(len(Kzz)))
    return v if v @ v * scale <= FARTHEST_CONSTANT * len(v) else np.zeros_like(v)


def _white(spec, basis, layout, covariance, explained) -> WhiteNoise:
    """Λ = max(diag(Q − LLᵀ), 1e-3 diag Q)."""
    total = np.diagonal(np.asarray(covariance))
    base = Positive.of(np.maximum(np.diagonal(np.asarray(covariance) - explained), 1e-3 * total))
    if spec.white_noise == "constant":
        return WhiteNoise(base, None, None)
    return WhiteNoise(base, zeros(layout.dim, layout.n_kernel_inputs), zeros(layout.dim, basis.n_inducing))


# --- simulation ----------------------------------------------------------------------------------


def simulate(
    key: PRNGKeyArray,
    field: PreparedDynamics,
    history: Float[Array, "N pD"],
    h: Float[Array, " T"],
    u: Float[Array, "T U"],
    limits: Float[Array, "2 D"] | None = None,
) -> tuple[Float[Array, "N D"], Float[Array, "T N lD"]]:
    """Paths over ticks that all rows share: the states at the end, and (x, lags) *before* each tick.

    With `limits`, lowest and highest values, a step ends at the limit that it would cross.

    The state after a tick is the first block of what is seen before the next one; the transition densities of a
    forecast need the whole of it.
    """
    layout, field = field.layout, for_values(field, history.shape[0] * h.shape[0])

    def tick(history, inputs):
        k, h, u = inputs
        X = layout.row(history, jnp.broadcast_to(u, (history.shape[0], len(u))))
        here = field.at(X)
        x = history[:, : layout.dim] + h * here.drift + here.increment(k, h)
        if limits is not None:
            x = jnp.clip(x, limits[0], limits[1])
        return layout.shift(history, x), layout.chosen(history)

    end, before = jax.lax.scan(tick, history, (jax.random.split(key, len(h)), h, u))
    return end[:, : layout.dim], before
