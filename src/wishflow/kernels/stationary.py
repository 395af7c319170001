"""Stationary kernels k(x, y) = s² h(r²), r² = Σ_d (x_d − y_d)² / ℓ_d²: RBF and Matérn."""

from __future__ import annotations

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..numerics import platform
from ..numerics.linalg import GRADIENT_PRECISION, by_parts
from ..numerics.parameters import Positive
from .base import (
    AbstractKernel,
    FixedKernel,
    active_inputs,
    centred,
    check_n_features,
    clamp_at_zero,
    floating,
    squared_distances,
)
from .features import CosineFeatures

SQRT3, SQRT5 = float(np.sqrt(3.0)), float(np.sqrt(5.0))


class AbstractStationaryKernel(AbstractKernel):
    """Base of stationary kernels, k(x, y) = s² h(r²).

    A new one needs `profile` and `unit_frequencies`.

    Parameters
    ----------
    variance : Positive
        The variance s².
    lengthscale : Positive
        One ℓ for all active inputs, shape (), or one for each, shape (A,).
    n_inputs : int
        Number of columns of the inputs.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Notes
    -----
    r² = Σ_d (x_d − y_d)² / ℓ_d², over the active inputs.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import kernels
    >>> kernel = kernels.build(kernels.Matern32(), n_inputs=2)
    >>> isinstance(kernel, kernels.AbstractStationaryKernel), float(kernel.profile(jnp.zeros(())))
    (True, 1.0)
    """

    variance: Positive
    lengthscale: Positive
    n_inputs: int = eqx.field(static=True)
    active_dims: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @abc.abstractmethod
    def profile(self, square: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Return h(r²), with h(0) = 1.

        Parameters
        ----------
        square : Array
            Squared scaled distances r², of any shape.

        Returns
        -------
        Array
            Values of h, of the same shape.
        """

    @abc.abstractmethod
    def unit_frequencies(self, key: PRNGKeyArray, n_features: int, n_active: int) -> Float[Array, "F A"]:
        """Draw from the spectral density of h(‖x − y‖²), so that E cos(ωᵀ(x − y)) = h(‖x − y‖²).

        Parameters
        ----------
        key : PRNGKeyArray
            Key of the draw.
        n_features : int
            Number F of frequencies.
        n_active : int
            Number A of active inputs.

        Returns
        -------
        Array of shape (F, A)
            The frequencies ω.
        """

    @property
    def scale(self) -> Scalar:
        return self.variance.value

    def pair(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Scalar:
        x = floating(x)
        difference = active_inputs(x - y, self.n_inputs, self.active_dims) / self.lengthscale.value
        return (self.variance.value * self.profile(jnp.sum(difference**2))).astype(x.dtype)

    def matrix(self, X: Float[Array, "N D"], Y: Float[Array, "M D"]) -> Float[Array, "N M"]:
        U = active_inputs(floating(X), self.n_inputs, self.active_dims)
        V = active_inputs(floating(Y), self.n_inputs, self.active_dims)
        rate = 1.0 / self.lengthscale.value
        U, V = centred(U, V)
        square = squared_distances(U * rate.astype(U.dtype), V * rate, U.dtype)
        return self.variance.value.astype(U.dtype) * self.profile(square)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return jnp.broadcast_to(self.variance.value.astype(floating(X).dtype), X.shape[:1])

    def fixed(self, Y: Float[Array, "M D"], dtype: DTypeLike) -> FixedKernel:
        Y = active_inputs(floating(Y), self.n_inputs, self.active_dims)
        centre = jax.lax.stop_gradient(jnp.mean(Y, axis=0)).astype(dtype)
        rate, amplitude = 1.0 / self.lengthscale.value, self.variance.value.astype(dtype)
        V, rest = (Y - centre.astype(Y.dtype)) * rate, (self.profile, self.n_inputs, self.active_dims)
        if platform.joins_products():
            return ProductStationary(amplitude, distance_columns(V, rate).astype(dtype), centre, *rest)
        return FixedStationary(amplitude, V.astype(dtype), centre, rate.astype(dtype), *rest)

    def features(self, key: PRNGKeyArray, n_features: int) -> CosineFeatures:
        """`n_features` random cosines; ℓ and s² enter by reparametrisation, so derivatives pass through them."""
        check_n_features(n_features)
        frequency_key, phase_key = jax.random.split(key)
        n_active = self.n_inputs if self.active_dims is None else len(self.active_dims)
        frequencies = self.unit_frequencies(frequency_key, n_features, n_active) / self.lengthscale.value
        phases = jax.random.uniform(phase_key, (n_features,), frequencies.dtype, maxval=2.0 * np.pi)
        amplitude = jnp.sqrt(2.0 * self.variance.value / n_features)
        return CosineFeatures(frequencies, phases, amplitude, self.n_inputs, self.active_dims)

    def paired_features(self, key: PRNGKeyArray, n_features: int) -> CosineFeatures:
        return self.features(key, n_features)


class FixedStationary(FixedKernel):
    """k(·, Y) = s² h(‖U − V‖²) with V = (Y − centre)/ℓ scaled once, U the other rows, scaled when they come."""

    amplitude: Scalar
    V: Float[Array, "M A"]
    centre: Float[Array, " A"]
    rate: Float[Array, "*A"]
    profile: Callable[[Array], Array]
    n_inputs: int = eqx.field(static=True)
    active_dims: tuple[int, ...] | None = eqx.field(static=True)

    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "N M"]:
        U = active_inputs(floating(X), self.n_inputs, self.active_dims)
        return self.profile(squared_distances((U - self.centre) * self.rate, self.V, self.V.dtype))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return jnp.broadcast_to(self.amplitude, X.shape[:1])


class ProductStationary(FixedKernel):
    """The same for accelerators, where the rows are not even scaled and r² is one product: no sums over rows or columns
    are left for its derivative.
    """

    amplitude: Scalar
    columns: Float[Array, "C M"]
    centre: Float[Array, " A"]
    profile: Callable[[Array], Array]
    n_inputs: int = eqx.field(static=True)
    active_dims: tuple[int, ...] | None = eqx.field(static=True)

    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "N M"]:
        U = active_inputs(floating(X), self.n_inputs, self.active_dims) - self.centre
        return self.profile(clamp_at_zero(distances_by_columns(U, self.columns)))

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return jnp.broadcast_to(self.amplitude, X.shape[:1])


def distance_columns(V: Float[Array, "M A"], rate: Float[Array, "*A"]) -> Float[Array, "C M"]:
    """‖u/ℓ − v‖² = (u, u², 1)ᵀ (−2v/ℓ, 1/ℓ², ‖v‖²): the columns for all v."""
    squares = jnp.broadcast_to(jnp.broadcast_to(rate**2, V.shape[1:])[:, None], V.T.shape)
    return jnp.concatenate([-2.0 * (V * rate).T, squares, jnp.sum(V * V, axis=1)[None]])


@jax.custom_jvp
def distances_by_columns(U: Float[Array, "N A"], columns: Float[Array, "C M"]) -> Float[Array, "N M"]:
    """(u, u², 1)ᵀ columns, for accelerators: a sum of few terms is one operation with the profile after it, a matrix
    product would be another. Of its derivative, which sums over many rows, products are made.
    """
    n = U.shape[1]
    terms = U[:, :, None] * (columns[:n] + U[:, :, None] * columns[n : 2 * n])
    return jnp.sum(terms, 1) + columns[2 * n]


@distances_by_columns.defjvp
def _distances_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    U, columns = primals
    dU, d_columns = tangents
    rows = jnp.concatenate([U, U * U, jnp.ones((len(U), 1), U.dtype)], axis=1)
    d_rows = jnp.concatenate([dU, 2.0 * U * dU], axis=1)
    by_rows = jnp.matmul(d_rows, columns[: 2 * U.shape[1]], precision=GRADIENT_PRECISION)
    return distances_by_columns(U, columns), by_rows + by_parts(rows, d_columns, GRADIENT_PRECISION)


class RBFKernel(AbstractStationaryKernel):
    """Radial basis function kernel, k(x, y) = s² exp(−½ r²).

    Parameters
    ----------
    variance : Positive
        The variance s².
    lengthscale : Positive
        One ℓ for all active inputs, shape (), or one for each, shape (A,).
    n_inputs : int
        Number of columns of the inputs.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Notes
    -----
    r² = Σ_d (x_d − y_d)² / ℓ_d², over the active inputs.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import kernels
    >>> kernel = kernels.build(kernels.RBF(), n_inputs=1)
    >>> round(float(kernel.pair(jnp.array([0.0]), jnp.array([1.0]))), 1)
    0.6
    """

    def profile(self, square: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return jnp.exp(-0.5 * square)

    def unit_frequencies(self, key: PRNGKeyArray, n_features: int, n_active: int) -> Float[Array, "F A"]:
        return jax.random.normal(key, (n_features, n_active), self.lengthscale.raw.dtype)


def distance(square: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """r = √(r²) with derivative 0 at 0; the inner `where` keeps the infinite slope of the root out of the chain."""
    is_apart = square > 0.0
    return jnp.where(is_apart, jnp.sqrt(jnp.where(is_apart, square, 1.0)), 0.0)


def _with_slope(value: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """h with its derivative h′(r²) in closed form: finite at 0, and the backward pass keeps one array, not four."""

    @jax.custom_jvp
    def profile(square: Array) -> Array:
        return value(square)

    @profile.defjvp
    def _jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        return value(primals[0]), slope(primals[0]) * tangents[0]

    return profile


def _matern12(square: Array) -> Array:
    return jnp.exp(-distance(square))


def _matern12_slope(square: Array) -> Array:
    # −exp(−r) / 2r; the kernel has a kink at r = 0, where 0 is the middle of its one-sided derivatives in x.
    is_apart = square > 0.0
    r = jnp.sqrt(jnp.where(is_apart, square, 1.0))
    return jnp.where(is_apart, -0.5 * jnp.exp(-r) / r, 0.0)


def _matern32(square: Array) -> Array:
    r = SQRT3 * distance(square)
    return (1.0 + r) * jnp.exp(-r)


def _matern32_slope(square: Array) -> Array:
    return -1.5 * jnp.exp(-SQRT3 * distance(square))


def _matern52(square: Array) -> Array:
    r = SQRT5 * distance(square)
    return (1.0 + r + (5.0 / 3.0) * square) * jnp.exp(-r)


def _matern52_slope(square: Array) -> Array:
    r = SQRT5 * distance(square)
    return -(5.0 / 6.0) * (1.0 + r) * jnp.exp(-r)


matern12_profile = _with_slope(_matern12, _matern12_slope)
matern32_profile = _with_slope(_matern32, _matern32_slope)
matern52_profile = _with_slope(_matern52, _matern52_slope)


def student_t_frequencies(key: PRNGKeyArray, shape: tuple[int, int], dof: int, dtype: DTypeLike) -> Float[Array, "F A"]:
    """The spectral density of Matérn-ν, a multivariate t with `dof` = 2ν: z / √(χ²/2ν), one χ² for each frequency.

    The χ² is a sum of squared normals: exact for whole degrees of freedom, without a rejection sampler.
    """
    normal_key, chi_key = jax.random.split(key)
    chi_square = jnp.sum(jax.random.normal(chi_key, (shape[0], dof), dtype) ** 2, axis=1, keepdims=True)
    return jax.random.normal(normal_key, shape, dtype) * jnp.sqrt(dof / chi_square)


class Matern12Kernel(AbstractStationaryKernel):
    """Matérn kernel with ν = 1/2, k(x, y) = s² exp(−r).

    Parameters
    ----------
    variance : Positive
        The variance s².
    lengthscale : Positive
        One ℓ for all active inputs, shape (), or one for each, shape (A,).
    n_inputs : int
        Number of columns of the inputs.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Notes
    -----
    r² = Σ_d (x_d − y_d)² / ℓ_d², over the active inputs.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import kernels
    >>> kernel = kernels.build(kernels.Matern12(), n_inputs=1)
    >>> round(float(kernel.pair(jnp.array([0.0]), jnp.array([1.0]))), 1)
    0.4
    """

    def profile(self, square: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return matern12_profile(square)

    def unit_frequencies(self, key: PRNGKeyArray, n_features: int, n_active: int) -> Float[Array, "F A"]:
        return student_t_frequencies(key, (n_features, n_active), 1, self.lengthscale.raw.dtype)


class Matern32Kernel(AbstractStationaryKernel):
    """Matérn kernel with ν = 3/2, k(x, y) = s² (1 + √3 r) exp(−√3 r).

    Parameters
    ----------
    variance : Positive
        The variance s².
    lengthscale : Positive
        One ℓ for all active inputs, shape (), or one for each, shape (A,).
    n_inputs : int
        Number of columns of the inputs.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Notes
    -----
    r² = Σ_d (x_d − y_d)² / ℓ_d², over the active inputs.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import kernels
    >>> kernel = kernels.build(kernels.Matern32(), n_inputs=1)
    >>> round(float(kernel.pair(jnp.array([0.0]), jnp.array([1.0]))), 1)
    0.5
    """

    def profile(self, square: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return matern32_profile(square)

    def unit_frequencies(self, key: PRNGKeyArray, n_features: int, n_active: int) -> Float[Array, "F A"]:
        return student_t_frequencies(key, (n_features, n_active), 3, self.lengthscale.raw.dtype)


class Matern52Kernel(AbstractStationaryKernel):
    """Matérn kernel with ν = 5/2, k(x, y) = s² (1 + √5 r + 5r²/3) exp(−√5 r).

    Parameters
    ----------
    variance : Positive
        The variance s².
    lengthscale : Positive
        One ℓ for all active inputs, shape (), or one for each, shape (A,).
    n_inputs : int
        Number of columns of the inputs.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Notes
    -----
    r² = Σ_d (x_d − y_d)² / ℓ_d², over the active inputs.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import kernels
    >>> kernel = kernels.build(kernels.Matern52(), n_inputs=1)
    >>> round(float(kernel.pair(jnp.array([0.0]), jnp.array([1.0]))), 1)
    0.5
    """

    def profile(self, square: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return matern52_profile(square)

    def unit_frequencies(self, key: PRNGKeyArray, n_features: int, n_active: int) -> Float[Array, "F A"]:
        return student_t_frequencies(key, (n_features, n_active), 5, self.lengthscale.raw.dtype)
