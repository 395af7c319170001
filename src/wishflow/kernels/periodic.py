"""The periodic kernel."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from ..numerics.parameters import Positive
from .base import AbstractKernel, active_inputs, centred, floating, squared_distances


class PeriodicKernel(AbstractKernel):
    """Periodic kernel, k(x, y) = s² exp(−2 Σ_d sin²(π (x_d − y_d) / p_d) / ℓ_d²).

    Parameters
    ----------
    variance : Positive
        The variance s².
    lengthscale : Positive
        The lengthscales ℓ, of shape () or (A,).
    period : Positive
        The periods p, of shape () or (A,).
    n_inputs : int
        Number of columns of the inputs.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Notes
    -----
    It is the RBF kernel of points on circles, u(x) = (cos 2πx/p, sin 2πx/p) / ℓ, since
    ‖u(x) − u(y)‖² = 4 sin²(π(x − y)/p) / ℓ². It has no random features.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import kernels
    >>> kernel = kernels.build(kernels.Periodic(period=2.0), n_inputs=1)
    >>> round(float(kernel.pair(jnp.array([0.0]), jnp.array([2.0]))), 1)
    1.0
    """

    variance: Positive
    lengthscale: Positive
    period: Positive
    n_inputs: int = eqx.field(static=True)
    active_dims: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @property
    def scale(self) -> Scalar:
        return self.variance.value

    def pair(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Scalar:
        x = floating(x)
        difference = active_inputs(x - y, self.n_inputs, self.active_dims)
        sines = jnp.sin(np.pi * difference / self.period.value) / self.lengthscale.value
        return (self.variance.value * jnp.exp(-2.0 * jnp.sum(sines**2))).astype(x.dtype)

    def matrix(self, X: Float[Array, "N D"], Y: Float[Array, "M D"]) -> Float[Array, "N M"]:
        U = active_inputs(floating(X), self.n_inputs, self.active_dims)
        V = active_inputs(floating(Y), self.n_inputs, self.active_dims)
        # Centred before the angle is taken: a common offset of many periods would cost the angle its digits.
        U, V = centred(U, V)
        square = squared_distances(self._on_circles(U), self._on_circles(V), U.dtype)
        return self.variance.value.astype(U.dtype) * jnp.exp(-0.5 * square)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return jnp.broadcast_to(self.variance.value.astype(floating(X).dtype), X.shape[:1])

    def _on_circles(self, U: Float[Array, "N A"]) -> Float[Array, "N 2*A"]:
        """u(x) = (cos 2πx/p, sin 2πx/p) / ℓ."""
        angles = U * (2.0 * np.pi / self.period.value).astype(U.dtype)
        rate = (1.0 / self.lengthscale.value).astype(U.dtype)
        return jnp.concatenate([rate * jnp.cos(angles), rate * jnp.sin(angles)], axis=1)
