"""What a kernel is, what a feature map is, and the arithmetic on inputs that the kernels share."""

from __future__ import annotations

import abc
from typing import NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..errors import DataError, OptionError

HIGHEST = jax.lax.Precision.HIGHEST


class FeatureMap(eqx.Module):
    """Features φ with E[φ(x)ᵀφ(y)] = k(x, y), the expectation over the draw of the map.

    Call it with rows X (N, D) for the features (N, F) of each row, in the dtype of X.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from wishflow import kernels
    >>> features = kernels.build(kernels.RBF(), n_inputs=2).features(jax.random.key(0), 50)
    >>> features.n_features, features(jnp.zeros((3, 2))).shape
    (50, (3, 50))
    """

    @property
    @abc.abstractmethod
    def n_features(self) -> int:
        """F, the length of φ(x)."""

    @abc.abstractmethod
    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N F"]:
        """φ at each row, in the dtype of X."""


class FixedKernel(eqx.Module):
    """A kernel with one argument fixed, k(·, Y) = amplitude · matrix(·).

    What does not depend on the other argument is computed once: paths ask for k(x, Z) at every step. What is left out
    of a step, the step's derivative need not pass either.

    Parameters
    ----------
    amplitude : scalar Array
        The factor of the matrix.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import kernels
    >>> fixed = kernels.build(kernels.RBF(), n_inputs=2).fixed(jnp.zeros((5, 2)), jnp.float32)
    >>> fixed.matrix(jnp.ones((3, 2), jnp.float32)).shape
    (3, 5)
    """

    amplitude: eqx.AbstractVar[Scalar]

    @abc.abstractmethod
    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "N M"]:
        """Return k(x_i, y_j) / amplitude for all pairs.

        Parameters
        ----------
        X : Array of shape (N, D)
            Inputs.

        Returns
        -------
        Array of shape (N, M)
            The matrix.
        """

    @abc.abstractmethod
    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """Return k(x_i, x_i), with the amplitude.

        Parameters
        ----------
        X : Array of shape (N, D)
            Inputs.

        Returns
        -------
        Array of shape (N,)
            The variances.
        """


class AbstractKernel(eqx.Module):
    """Base of the covariance functions k(x, y).

    A new kernel needs `pair` and `scale`; the rest has a plain default. Results have the dtype of the first argument:
    float32 states give float32 matrices, whatever the parameters are.

    See Also
    --------
    AbstractStationaryKernel : Base of kernels of a scaled distance.
    build : Make a kernel from its spec.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import kernels
    >>> class Brownian(kernels.AbstractKernel):
    ...     scale = jnp.ones(())
    ...
    ...     def pair(self, x, y):
    ...         return jnp.minimum(x[0], y[0])
    >>> float(Brownian().matrix(jnp.ones((2, 1)), 3.0 * jnp.ones((4, 1))).sum())
    8.0
    """

    @abc.abstractmethod
    def pair(self, x: Float[Array, " D"], y: Float[Array, " D"]) -> Scalar:
        """Return k(x, y) of one pair: the definition of the kernel.

        Parameters
        ----------
        x : Array of shape (D,)
            One point.
        y : Array of shape (D,)
            The other point.

        Returns
        -------
        scalar Array
            The covariance.
        """

    @property
    @abc.abstractmethod
    def scale(self) -> Scalar:
        """A typical k(x, x) for standardised inputs; jitter is measured in it."""

    def matrix(self, X: Float[Array, "N D"], Y: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """Return k(x_i, y_j) for all pairs.

        Faster forms may shift both sets by the mean of Y: put the fixed set (inducing points) second, and a row of the
        result does not depend on the other rows of X.

        Parameters
        ----------
        X : Array of shape (N, D)
            Inputs.
        Y : Array of shape (M, D)
            Other inputs.

        Returns
        -------
        Array of shape (N, M)
            The covariances.
        """
        return jax.vmap(lambda x: jax.vmap(lambda y: self.pair(x, y))(Y))(X)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """Return k(x_i, x_i).

        Parameters
        ----------
        X : Array of shape (N, D)
            Inputs.

        Returns
        -------
        Array of shape (N,)
            The variances.
        """
        return jax.vmap(lambda x: self.pair(x, x))(X)

    def fixed(self, Y: Float[Array, "M D"], dtype: DTypeLike) -> FixedKernel:
        """Fix the second argument, for inputs of the given dtype.

        Parameters
        ----------
        Y : Array of shape (M, D)
            The inputs that are fixed.
        dtype : dtype
            Type of the other inputs.

        Returns
        -------
        FixedKernel
            The function k(·, Y).
        """
        return WholeKernel(jnp.ones((), dtype), self, Y.astype(dtype))

    def features(self, key: PRNGKeyArray, n_features: int) -> FeatureMap:
        """Draw a random feature map: φ(x)ᵀφ(y) has the mean k(x, y).

        Parameters
        ----------
        key : PRNGKeyArray
            Key of the draw.
        n_features : int
            Number of features. Each kernel says how long φ is for it.

        Returns
        -------
        FeatureMap
            The map φ.

        Raises
        ------
        OptionError
            If the kernel has no random features.
        """
        self._refuse_features()

    def paired_features(self, key: PRNGKeyArray, n_features: int) -> FeatureMap:
        """Draw features with mean zero, each of which alone has E[φ_i(x) φ_i(y)] = k(x, y) / F.

        Such features of independent kernels can be multiplied (products) or added (sums inside products) one by one.

        Parameters
        ----------
        key : PRNGKeyArray
            Key of the draw.
        n_features : int
            The number F of features.

        Returns
        -------
        FeatureMap
            The map φ.

        Raises
        ------
        OptionError
            If the kernel has no random features.
        """
        self._refuse_features()

    def _refuse_features(self) -> NoReturn:
        raise OptionError(
            f"{type(self).__name__} has no random features, which pathwise sampling needs; choose a kernel that has "
            "them (RBF, Matérn, linear, own stationary kernels, their sums and products) or sampling='marginal'."
        )


class WholeKernel(FixedKernel):
    """A kernel of which nothing is computed in advance."""

    amplitude: Scalar
    kernel: AbstractKernel
    Y: Float[Array, "M D"]

    def matrix(self, X: Float[Array, "N D"]) -> Float[Array, "N M"]:
        return self.kernel.matrix(X, self.Y)

    def diagonal(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        return self.kernel.diagonal(X)


def check_n_features(n_features: int) -> None:
    """Refuse an empty feature map."""
    if n_features < 1:
        raise OptionError(f"n_features={n_features} given; expected at least 1.")


def floating(X: Array) -> Array:
    """X as an array of floating type: float32 and float64 stay, integers become JAX's default float."""
    return jnp.asarray(X, jnp.result_type(X, 0.0))


def active_inputs(X: Float[Array, "*N D"], n_inputs: int, active_dims: tuple[int, ...] | None) -> Float[Array, "*N A"]:
    """The columns a kernel sees. Slices rather than a gather: the derivative of a gather is a scatter, slow on CPUs."""
    if X.shape[-1] != n_inputs:
        raise DataError(
            f"the kernel was built for {n_inputs} inputs but was given an array of shape {X.shape}; "
            f"pass {n_inputs} columns."
        )
    if active_dims is None:
        return X
    first, stop = active_dims[0], active_dims[0] + len(active_dims)
    if active_dims == tuple(range(first, stop)):
        return X[..., first:stop]
    return jnp.stack([X[..., d] for d in active_dims], axis=-1)


def centred(X: Float[Array, "N A"], Y: Float[Array, "M A"]) -> tuple[Float[Array, "N A"], Float[Array, "M A"]]:
    """Both sets minus the mean of Y, each in its own dtype.

    Differences do not change, so no derivative passes through the centre; squared distances found by a matrix product
    keep the digits that a common offset would cost.
    """
    centre = jax.lax.stop_gradient(jnp.mean(Y, axis=0)).astype(X.dtype)
    return X - centre, Y - centre.astype(Y.dtype)


@jax.custom_jvp
def clamp_at_zero(square: Array) -> Array:
    """max(square, 0) for a quantity that is negative by rounding alone.

    The derivative passes through: the true one, 2(x − y), is all but zero there. `jnp.maximum` would halve it at a tie
    and keep an N × M array for the backward pass.
    """
    return jnp.maximum(square, 0.0)


@clamp_at_zero.defjvp
def _clamp_at_zero_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return clamp_at_zero(*primals), tangents[0]


def squared_distances(U: Float[Array, "N A"], V: Float[Array, "M A"], dtype: DTypeLike) -> Float[Array, "N M"]:
    """‖u_i − v_j‖² = ‖u_i‖² + ‖v_j‖² − 2 u_iᵀv_j by one matrix product, never negative."""
    return clamp_at_zero(_distances(U.astype(dtype), V.astype(dtype)))


@jax.custom_jvp
def _distances(U: Float[Array, "N A"], V: Float[Array, "M A"]) -> Float[Array, "N M"]:
    """`squared_distances` as they come, below zero by rounding."""
    products = jnp.matmul(U, V.T, precision=HIGHEST)
    return jnp.sum(U * U, axis=1)[:, None] + jnp.sum(V * V, axis=1)[None, :] - 2.0 * products


@_distances.defjvp
def _distances_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """d‖u − v‖² = (du, 2uᵀdu)ᵀ(−2v, 1) + (−2u, 1)ᵀ(dv, 2vᵀdv): of its transpose two products are left, which hold the
    sums over rows and columns too.
    """
    (U, V), (dU, dV) = primals, tangents

    def sides(X: Array, dX: Array) -> tuple[Array, Array]:
        fixed = jnp.concatenate([-2.0 * X, jnp.ones((len(X), 1), X.dtype)], axis=1)
        return fixed, jnp.concatenate([dX, 2.0 * jnp.sum(X * dX, axis=1, keepdims=True)], axis=1)

    (of_U, by_U), (of_V, by_V) = sides(U, dU), sides(V, dV)
    tangent = jnp.matmul(by_U, of_V.T, precision=HIGHEST) + jnp.matmul(of_U, by_V.T, precision=HIGHEST)
    return _distances(U, V), tangent
