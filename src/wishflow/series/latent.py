"""Time series seen through a readout: dx = μ(x, u) dt + √(Σ + Λ_x) dB, y_t | x_t ~ N(g(x_t), AΣ(x_t)Aᵀ + Λ).

x in R^D has p(x_0) = N(0, I) at the beginning of a window; an encoder of the window's first rows gives q(x_0).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from .. import kernels
from ..inducing import ConditionedGP, InducingBasis, SparseGP
from ..numerics.devices import AnyArray, on_device
from ..numerics.parameters import Positive, zeros
from ..wishart import Field, FieldValues
from .autoregressive import FIELD_JITTER, Start
from .autoregressive import build as build_dynamics
from .layout import Layout
from .specs import DynamicsSpec
from .windows import ENCODED_ROWS

READOUT_AMPLITUDE = 0.1
COUPLING = 0.1
START_SD = 0.3


class Encoder(eqx.Module):
    """q(x_0 | window): an affine map of the first rows (holes as 0) and of where they have entries."""

    weights: Float[Array, "D E"]
    constant: Float[Array, " D"]
    scale_weights: Float[Array, "D E"]
    log_scale: Float[Array, " D"]

    def __call__(self, rows: Float[Array, "B half"], is_known: Bool[Array, "B half"]) -> tuple[Array, Array]:
        """Mean and standard deviation of x_0, (B, D) each."""
        inputs = jnp.concatenate([rows, is_known.astype(rows.dtype)], axis=-1)
        mean = inputs @ self.weights.T + self.constant
        return mean, jnp.exp(inputs @ self.scale_weights.T + self.log_scale)


class Readout(eqx.Module):
    """g(x) = C x + d + ℓ f(x), f a sparse GP with P outputs or absent; white noise Λ; A couples it to Σ(x)."""

    weights: Float[Array, "P D"]
    constant: Float[Array, " P"]
    white: Positive
    gp: SparseGP | None
    amplitude: Positive | None
    coupling: Float[Array, "P D"] | None

    def kl(self) -> dict[str, Scalar]:
        return {} if self.gp is None else {"kl_output": jnp.sum(self.gp.kl())}

    def prepare(self) -> PreparedReadout:
        return PreparedReadout(self, None if self.gp is None else self.gp.conditioned())


class PreparedReadout(eqx.Module):
    """A readout whose GP is factorised."""

    readout: Readout
    gp: ConditionedGP | None

    def __call__(self, x: Float[Array, "N D"]) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """Mean and variance of g(x)."""
        mean = self._linear(x)
        if self.gp is None or self.readout.amplitude is None:
            return mean, jnp.zeros_like(mean)
        gp_mean, variance = self.gp.marginals(x)
        amplitude = self.readout.amplitude.value
        return mean + amplitude * gp_mean, amplitude**2 * variance

    def _linear(self, x: Float[Array, "N D"]) -> Float[Array, "N P"]:
        return x @ self.readout.weights.T + self.readout.constant

    def mean(self, x: Float[Array, "N D"]) -> Float[Array, "N P"]:
        """E[g(x)] alone; unlike the variance it has derivatives in both modes."""
        if self.gp is None or self.readout.amplitude is None:
            return self._linear(x)
        return self._linear(x) + self.readout.amplitude.value * self.gp.means(x)

    def slope(self, x: Float[Array, "N D"]) -> Float[Array, "N P D"]:
        """∂E[g]/∂x."""
        if self.gp is None:
            return jnp.broadcast_to(self.readout.weights, (x.shape[0], *self.readout.weights.shape))
        return jax.vmap(jax.jacfwd(lambda row: self.mean(row[None])[0]))(x)

    def noise_factor(self, key: PRNGKeyArray, here: FieldValues) -> Float[Array, "N P nu"]:
        """A L J(x): the part of the noise of y that comes from Σ(x)."""
        if self.readout.coupling is None:
            return jnp.zeros((here.drift.shape[0], len(self.readout.constant), 0), here.drift.dtype)
        return jnp.einsum("pd,ndv->npv", self.readout.coupling.astype(here.drift.dtype), here.factor(key))


class LatentModel(eqx.Module):
    """Field of the state, readout, encoder."""

    field: Field
    readout: Readout
    encoder: Encoder

    @property
    def layout(self) -> Layout:
        return self.field.layout

    def bases(self) -> list[InducingBasis]:
        """The inducing bases, for the choice of their jitter."""
        return [self.field.basis, *([] if self.readout.gp is None else [self.readout.gp.basis])]

    def noise_summary(self) -> Scalar:
        """The mean white noise of the observations."""
        return jnp.mean(self.readout.white.value)

    def kl(self) -> dict[str, Scalar]:
        return {**self.field.kl(), **self.readout.kl()}

    def summary(self) -> dict[str, Scalar]:
        return self.field.summary()


class LatentStart(eqx.Module):
    """Where training starts: the field's start, x as a projection of the first rows, and the readout's residuals."""

    field: Start
    projection: Float[AnyArray, "D R"]
    weights: Float[AnyArray, "P D"]
    white: Float[AnyArray, " P"]


def build(spec: DynamicsSpec, layout: Layout, start: LatentStart, Z: object, key: PRNGKeyArray) -> LatentModel:
    """The model at its starting values: x a projection of the first rows, y a linear map of x."""
    latent = spec.latent
    assert latent is not None
    Z = on_device(Z)
    field = build_dynamics(spec, layout, start.field, Z, key).field
    weights = on_device(start.weights)
    n_outputs = weights.shape[0]
    gp, amplitude = None, None
    if latent.readout == "gp":
        states = Z[:, : layout.dim]
        kernel = kernels.build(spec.kernel, layout.dim, variance=1.0, lengthscale=2.0 * np.sqrt(layout.dim))
        gp = SparseGP.prior(InducingBasis.of(kernel, states, FIELD_JITTER), n_outputs)
        amplitude = Positive.of([READOUT_AMPLITUDE] * n_outputs)
    coupling = COUPLING * weights if latent.has_coupled_noise else None
    white = Positive.of(np.asarray(start.white))
    readout = Readout(weights, zeros(n_outputs), white, gp, amplitude, coupling)
    return LatentModel(field, readout, _encoder(start, n_outputs, layout.dim))


def _encoder(start: LatentStart, n_outputs: int, dim: int) -> Encoder:
    """The projection on the first rows that it is made of; nothing on the others and on the mask."""
    weights = np.zeros((dim, 2 * ENCODED_ROWS * n_outputs))
    projection = np.asarray(start.projection)
    weights[:, : projection.shape[1]] = projection
    log_scale = on_device(np.full(dim, np.log(START_SD)))
    return Encoder(on_device(weights), zeros(dim), zeros(*weights.shape), log_scale)
