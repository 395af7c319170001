"""Time series: the auto-regressive SDE y ~ dx = μ(x, lags, u) dt + √(Σ + Λ) dB, observed at irregular times.

One time unit is the median gap; δ (`step`) is part of the model: training, scoring and forecasting cut every gap into
⌈Δ/δ⌉ equal Euler steps.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .. import kernels
from ..inducing import InducingBasis, for_prediction
from ..numerics.devices import AnyArray, on_device
from ..numerics.parameters import Positive, Scaled, zeros
from ..numerics.random import normals_of_keys
from ..numerics.tails import Jumps
from ..wishart import Field, GPNoise, PreparedField, WhiteNoise, start_drift, start_noise
from ..wishart.specs import Wishart
from .layout import Layout
from .linear import LinearDrift
from .specs import DynamicsSpec

FIELD_JITTER = 1e-6
DRIFT_AMPLITUDE = 0.1
# Degrees of freedom of Student-t noise at the start, and the least, below which there is hardly a covariance.
TAIL_DOF = 8.0
LEAST_TAIL_DOF = 2.1
# The most normals of a simulation that are drawn before it, 8 MiB of them.
MOST_NORMALS = 2**20


class DynamicsModel(eqx.Module):
    """The auto-regressive model: its field."""

    field: Field

    @property
    def layout(self) -> Layout:
        return self.field.layout

    def bases(self) -> list[InducingBasis]:
        """The inducing bases, for the choice of their jitter."""
        return [self.field.basis]

    def noise_summary(self) -> Scalar:
        """The mean white noise."""
        white = self.field.white
        assert white is not None
        return jnp.mean(white.base.value)

    def summary(self) -> dict[str, Scalar]:
        return self.field.summary()


class Start(eqx.Module):
    """Where training starts: the ridge regression of the increments and the covariance rate of its residuals."""

    weights: Float[AnyArray, "D K"]
    constant: Float[AnyArray, " D"]
    covariance: Float[AnyArray, "D D"]


def build(spec: DynamicsSpec, layout: Layout, start: Start, Z: object, key: PRNGKeyArray) -> DynamicsModel:
    """The model at its starting values: E[Σ] + Λ is the covariance of the residuals, at Z."""
    Z, dim, covariance = on_device(Z), layout.dim, np.asarray(start.covariance)
    dof = spec.diffusion.rank_and_dof(dim)[1] if isinstance(spec.diffusion, Wishart) else 1
    variance = 1.0 / dof
    kernel = kernels.build(spec.kernel, Z.shape[1], variance=variance, lengthscale=2.0 * np.sqrt(Z.shape[1]))
    basis = InducingBasis.of(kernel, Z, FIELD_JITTER)
    noise, explained = start_noise(spec.diffusion, basis, dim, key, covariance)
    gp = None
    if "gp" in spec.drift and not isinstance(noise, GPNoise):
        amplitude = Positive.of([DRIFT_AMPLITUDE / variance**0.5] * dim)
        gp = start_drift(dim, basis, spec.drift_posterior, amplitude=amplitude)
    linear = LinearDrift.of(start.weights, start.constant, len(layout.lags)) if "linear" in spec.drift else None
    tail_dof = Scaled.of(TAIL_DOF, LEAST_TAIL_DOF) if spec.innovations == "student_t" else None
    jumps = Jumps(np.array(0.0), np.array(1.0)) if spec.innovations == "jumps" else None
    white = _white(spec, basis, layout, covariance, explained)
    return DynamicsModel(Field(basis, linear, gp, noise, white, layout, tail_dof, jumps))


def _white(
    spec: DynamicsSpec, basis: InducingBasis, layout: Layout, covariance: np.ndarray, explained: np.ndarray
) -> WhiteNoise:
    """Λ = max(diag(Q − LLᵀ), 1e-3 diag Q)."""
    base = Positive.of(np.maximum(np.diagonal(covariance - explained), 1e-3 * np.diagonal(covariance)))
    if spec.white_noise == "constant":
        return WhiteNoise(base)
    return WhiteNoise(base, zeros(layout.dim, layout.n_kernel_inputs), zeros(layout.dim, basis.n_inducing))


# --- simulation ----------------------------------------------------------------------------------


def simulate(
    key: PRNGKeyArray,
    field: PreparedField,
    history: Float[Array, "N pD"],
    h: Float[Array, " T"],
    u: Float[Array, "T U"],
    limits: Float[Array, "2 D"] | None = None,
) -> tuple[Float[Array, "N D"], Float[Array, "T N lD"]]:
    """Paths over ticks that all rows share: the states at the end, and (x, lags) *before* each tick.

    With `limits`, lowest and highest values, a step ends at the limit that it would cross. A drift with a posterior is
    drawn once for each row and kept along its path.

    The state after a tick is the first block of what is seen before the next one; the transition densities of a
    forecast need the whole of it.

    The noise of all ticks is drawn at once where it is not too large, which is faster; the numbers are the same.
    """
    if field.has_drift_posterior:
        field = field.drawn(jax.random.fold_in(key, len(h)), len(history), one_for_each_row=True)
    layout, field = field.layout, for_prediction(field, history.shape[0] * h.shape[0])
    keys, width = jax.random.split(key, len(h)), field.n_normals
    is_drawn = width is not None and len(h) * len(history) * width <= MOST_NORMALS
    noise = normals_of_keys(keys, (len(history), width), history.dtype) if is_drawn else keys

    def tick(history: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        noise, h, u = inputs
        X = layout.row(history, jnp.broadcast_to(u, (history.shape[0], len(u))))
        here: Any = field.at(X)  # `DrivenValues` where the field has `n_normals`
        moved = here.moved(noise, h) if is_drawn else here.increment(noise, h)
        x = history[:, : layout.dim] + h * here.drift + moved
        if limits is not None:
            x = jnp.clip(x, limits[0], limits[1])
        return layout.shift(history, x), layout.chosen(history)

    end, before = jax.lax.scan(tick, history, (noise, h, u))
    return end[:, : layout.dim], before
