"""A field with coefficient functions that are known: for simulation, tests and data with a known truth."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .base import AbstractField, AbstractPreparedField, FieldValues


class GivenValues(FieldValues):
    """μ(x) and σ(x) as numbers."""

    drift: Float[Array, "N D"]
    sigma: Float[Array, "N D nu"]

    def driven(self, dB: Float[Array, "N nu"]) -> Float[Array, "N D"]:
        """σ(x) dB for a given Brownian increment."""
        return jnp.einsum("ndv,nv->nd", self.sigma, dB)

    def increment(self, key: PRNGKeyArray, dt: Scalar | Float[Array, "N 1"] | float) -> Float[Array, "N D"]:
        return self.driven(
            jnp.sqrt(dt) * jax.random.normal(key, (self.sigma.shape[0], self.sigma.shape[-1]), self.sigma.dtype)
        )

    def factor(self, key: PRNGKeyArray) -> Float[Array, "N D nu"]:
        del key
        return self.sigma

    @property
    def white(self) -> Float[Array, "N D"]:
        return jnp.zeros_like(self.drift)

    def mean_covariance(self) -> Float[Array, "N D D"]:
        return self.sigma @ jnp.swapaxes(self.sigma, -1, -2)


class GivenField(AbstractField, AbstractPreparedField):
    """dx = drift(x, t) dt + sigma(x, t) dB, both functions of one state (D,) and the time."""

    drift: Callable = eqx.field(static=True)
    sigma: Callable = eqx.field(static=True)

    def prepare(self, dtype: DTypeLike | None = None) -> GivenField:
        del dtype
        return self

    def at(self, X: Float[Array, "N K"], t: Scalar | float = 0.0) -> GivenValues:
        return GivenValues(jax.vmap(lambda x: self.drift(x, t))(X), jax.vmap(lambda x: self.sigma(x, t))(X))

    def kl(self) -> dict[str, Scalar]:
        return {}

    def summary(self) -> dict[str, Scalar]:
        return {}
