"""Feature maps for pathwise sampling: cosines, linear maps, and how sums and products put them together."""

from __future__ import annotations

import functools
import operator

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from .base import HIGHEST, FeatureMap, active_inputs, floating


class CosineFeatures(FeatureMap):
    """φ_i(x) = c cos(ω_iᵀx + b_i), with ω from the spectral density of a stationary kernel and b uniform on (0, 2π).

    With c = √(2s²/F): E[φ(x)ᵀφ(y)] = s² E cos(ωᵀ(x − y)) = k(x, y) (Rahimi & Recht 2007).
    """

    frequencies: Float[Array, "F A"]
    phases: Float[Array, " F"]
    amplitude: Scalar
    n_inputs: int = eqx.field(static=True)
    active_dims: tuple[int, ...] | None = eqx.field(static=True)

    @property
    def n_features(self) -> int:
        return self.phases.shape[-1]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N F"]:
        U = active_inputs(floating(X), self.n_inputs, self.active_dims)
        frequencies, phases = self.frequencies.astype(U.dtype), self.phases.astype(U.dtype)
        return self.amplitude.astype(U.dtype) * jnp.cos(jnp.matmul(U, frequencies.T, precision=HIGHEST) + phases)


class LinearFeatures(FeatureMap):
    """φ(x) = Wᵀx, with E[W Wᵀ] = diag(s²)."""

    weights: Float[Array, "A F"]
    n_inputs: int = eqx.field(static=True)
    active_dims: tuple[int, ...] | None = eqx.field(static=True)

    @property
    def n_features(self) -> int:
        return self.weights.shape[-1]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N F"]:
        U = active_inputs(floating(X), self.n_inputs, self.active_dims)
        return jnp.matmul(U, self.weights.astype(U.dtype), precision=HIGHEST)


class JoinedFeatures(FeatureMap):
    """φ = (φ_1, φ_2, …): the features of a sum of kernels."""

    parts: tuple[FeatureMap, ...]

    @property
    def n_features(self) -> int:
        return sum(part.n_features for part in self.parts)

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N F"]:
        return jnp.concatenate([part(X) for part in self.parts], axis=1)


class AddedFeatures(FeatureMap):
    """φ = Σ_k φ_k: paired features of a sum; cross terms vanish, the parts being independent with mean zero."""

    parts: tuple[FeatureMap, ...]

    @property
    def n_features(self) -> int:
        return self.parts[0].n_features

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N F"]:
        return functools.reduce(operator.add, [part(X) for part in self.parts])


class MultipliedFeatures(FeatureMap):
    """φ = F^((K−1)/2) Π_k φ_k: paired features of a product, E[φ_i(x) φ_i(y)] = F^(K−1) Π_k (k_k(x, y) / F)."""

    parts: tuple[FeatureMap, ...]

    @property
    def n_features(self) -> int:
        return self.parts[0].n_features

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N F"]:
        factor = float(self.n_features) ** ((len(self.parts) - 1) / 2)
        return factor * functools.reduce(operator.mul, [part(X) for part in self.parts])
