"""Sums and products of kernels."""

from __future__ import annotations

import functools
import operator

import jax
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .base import AbstractKernel, check_n_features
from .features import AddedFeatures, JoinedFeatures, MultipliedFeatures
from .linear import LinearKernel


class SumKernel(AbstractKernel):
    """Sum of kernels, k = Σ_i k_i.

    Parameters
    ----------
    parts : tuple of AbstractKernel
        The terms.

    Examples
    --------
    >>> from wishflow import kernels
    >>> kernel = kernels.build(kernels.RBF() + kernels.Linear(), n_inputs=2)
    >>> [type(part).__name__ for part in kernel.parts]
    ['RBFKernel', 'LinearKernel']
    """

    parts: tuple[AbstractKernel, ...]

    @property
    def scale(self) -> Scalar:
        return _added([part.scale for part in self.parts])

    def pair(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Scalar:
        return _added([part.pair(x, y) for part in self.parts])

    def matrix(self, X: Float[Array, "N D"], Y: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return _added([part.matrix(X, Y) for part in self.parts])

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return _added([part.diagonal(X) for part in self.parts])

    def features(self, key: PRNGKeyArray, n_features: int) -> JoinedFeatures:
        """The features of the parts side by side.

        Linear parts are exact, with one feature for each input; the others share `n_features` evenly.
        """
        check_n_features(n_features)
        keys = jax.random.split(key, len(self.parts))
        shares = self._feature_shares(n_features)
        return JoinedFeatures(tuple(part.features(k, n) for part, k, n in zip(self.parts, keys, shares, strict=True)))

    def paired_features(self, key: PRNGKeyArray, n_features: int) -> AddedFeatures:
        keys = jax.random.split(key, len(self.parts))
        return AddedFeatures(
            tuple(part.paired_features(k, n_features) for part, k in zip(self.parts, keys, strict=True))
        )

    def _feature_shares(self, n_features: int) -> list[int]:
        """How many features each part is asked for."""
        n_random = sum(not isinstance(part, LinearKernel) for part in self.parts)
        share, rest = divmod(n_features, max(n_random, 1))
        random_shares = iter([max(1, share + (i < rest)) for i in range(n_random)])
        return [1 if isinstance(part, LinearKernel) else next(random_shares) for part in self.parts]


class ProductKernel(AbstractKernel):
    """Product of kernels, k = Π_i k_i.

    Parameters
    ----------
    parts : tuple of AbstractKernel
        The factors.

    Examples
    --------
    >>> from wishflow import kernels
    >>> kernel = kernels.build(kernels.RBF() * kernels.Linear(), n_inputs=2)
    >>> [type(part).__name__ for part in kernel.parts]
    ['RBFKernel', 'LinearKernel']
    """

    parts: tuple[AbstractKernel, ...]

    @property
    def scale(self) -> Scalar:
        return _multiplied([part.scale for part in self.parts])

    def pair(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Scalar:
        return _multiplied([part.pair(x, y) for part in self.parts])

    def matrix(self, X: Float[Array, "N D"], Y: Float[Array, "M D"]) -> Float[Array, "N M"]:
        return _multiplied([part.matrix(X, Y) for part in self.parts])

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return _multiplied([part.diagonal(X) for part in self.parts])

    def features(self, key: PRNGKeyArray, n_features: int) -> MultipliedFeatures:
        """Feature i is the product of the i-th paired features of the factors."""
        keys = jax.random.split(key, len(self.parts))
        return MultipliedFeatures(
            tuple(part.paired_features(k, n_features) for part, k in zip(self.parts, keys, strict=True))
        )

    def paired_features(self, key: PRNGKeyArray, n_features: int) -> MultipliedFeatures:
        return self.features(key, n_features)


def _added(terms: list[Array]) -> Array:
    return functools.reduce(operator.add, terms)


def _multiplied(factors: list[Array]) -> Array:
    return functools.reduce(operator.mul, factors)
