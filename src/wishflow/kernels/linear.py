"""The linear kernel."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..numerics.parameters import Positive
from .base import HIGHEST, AbstractKernel, active_inputs, check_n_features, floating
from .features import LinearFeatures


class LinearKernel(AbstractKernel):
    """Linear kernel, k(x, y) = Σ_d s²_d x_d y_d.

    Parameters
    ----------
    variance : Positive
        The variances s², of shape () or one for each active input, (A,).
    n_inputs : int
        Number of columns of the inputs.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import kernels
    >>> kernel = kernels.build(kernels.Linear(), n_inputs=2)
    >>> round(float(kernel.pair(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))), 1)
    11.0
    """

    variance: Positive
    n_inputs: int = eqx.field(static=True)
    active_dims: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @property
    def variances(self) -> Float[Array, " A"]:
        """s²_d for each active input."""
        n_active = self.n_inputs if self.active_dims is None else len(self.active_dims)
        return jnp.broadcast_to(self.variance.value, (n_active,))

    @property
    def scale(self) -> Scalar:
        """Σ_d s²_d: the mean of k(x, x) over standardised inputs."""
        return jnp.sum(self.variances)

    def pair(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Scalar:
        x = floating(x)
        products = active_inputs(x * y, self.n_inputs, self.active_dims)
        return jnp.sum(self.variances * products).astype(x.dtype)

    def matrix(self, X: Float[Array, "N D"], Y: Float[Array, "M D"]) -> Float[Array, "N M"]:
        U = active_inputs(floating(X), self.n_inputs, self.active_dims)
        V = active_inputs(floating(Y), self.n_inputs, self.active_dims) * self.variances
        return jnp.matmul(U, V.astype(U.dtype).T, precision=HIGHEST)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        U = active_inputs(floating(X), self.n_inputs, self.active_dims)
        return jnp.sum(U * U * self.variances.astype(U.dtype), axis=1)

    def features(self, key: PRNGKeyArray, n_features: int) -> LinearFeatures:
        """φ(x) = (s_d x_d)_d: exact, one feature for each active input; neither `key` nor `n_features` is used."""
        return LinearFeatures(jnp.diag(jnp.sqrt(self.variances)), self.n_inputs, self.active_dims)

    def paired_features(self, key: PRNGKeyArray, n_features: int) -> LinearFeatures:
        """φ_i(x) = Σ_d s_d ε_di x_d / √F with random signs ε."""
        check_n_features(n_features)
        deviations = jnp.sqrt(self.variances / n_features)
        signs = jax.random.rademacher(key, (deviations.shape[0], n_features), deviations.dtype)
        return LinearFeatures(deviations[:, None] * signs, self.n_inputs, self.active_dims)
