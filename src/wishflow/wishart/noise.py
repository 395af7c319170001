"""Interfaces of a diffusion: noise that Gaussian processes on the basis of the field make.

A noise gives, at rows of a(x), the moments of the entries of J and the matrix L of Σ = L J Jᵀ Lᵀ, and what it adds to
the drift and to the diagonal Λ. Flows and time series use the same classes.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..errors import OptionError
from ..inducing import InducingBasis, PreparedBasis


class NoiseValues(eqx.Module):
    """The noise at rows: moments of the entries of J, L, and what is added to the drift and to Λ.

    Parameters
    ----------
    means : Array of shape (N, ρ, ν or 1)
        Means of the entries of J. For columns that share their posterior the last axis has size one.
    variances : Array of shape (N, ρ, ν or 1)
        Variances of the entries of J.
    scale : Array of shape (D, ρ)
        The matrix L.
    dof : int
        Degrees of freedom ν.
    drift : Array of shape (N, D), optional
        What the noise adds to μ. None: nothing.
    diagonal : Array of shape (N, D), optional
        What the noise adds to Λ. None: nothing.

    Notes
    -----
    The covariance rate is Σ + Λ with Σ = L J Jᵀ Lᵀ.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow.diffusions import NoiseValues
    >>> values = NoiseValues.of_diagonal(jnp.ones((5, 2)))
    >>> values.dof, values.diagonal.shape
    (0, (5, 2))
    """

    means: Float[Array, "N rho cols"]
    variances: Float[Array, "N rho cols"]
    scale: Float[Array, "D rho"]
    dof: int = eqx.field(static=True)
    drift: Float[Array, "N D"] | None = None
    diagonal: Float[Array, "N D"] | None = None

    @classmethod
    def of_diagonal(cls, diagonal: Float[Array, "N D"], drift: Float[Array, "N D"] | None = None) -> NoiseValues:
        """Make values without J: independent noise of the given variances for each dimension.

        Parameters
        ----------
        diagonal : Array of shape (N, D)
            The variances.
        drift : Array of shape (N, D), optional
            What the noise adds to μ.

        Returns
        -------
        NoiseValues
            The values.
        """
        _check_axes("of_diagonal", diagonal, "(N, D)", 2)
        empty = jnp.zeros((diagonal.shape[0], 0, 1), diagonal.dtype)
        return cls(empty, empty, jnp.zeros((diagonal.shape[1], 0), diagonal.dtype), 0, drift, diagonal)

    @classmethod
    def of_factor(cls, factor: Float[Array, "N D nu"]) -> NoiseValues:
        """Make values with a factor σ(x) that is not random, Σ = σσᵀ: J is σ and L the identity.

        Parameters
        ----------
        factor : Array of shape (N, D, ν)
            The factor σ.

        Returns
        -------
        NoiseValues
            The values.
        """
        _check_axes("of_factor", factor, "(N, D, ν)", 3)
        return cls(factor, jnp.zeros_like(factor), jnp.eye(factor.shape[1], dtype=factor.dtype), factor.shape[2])


def _check_axes(name: str, values: Array, shape: str, n_axes: int) -> None:
    if values.ndim != n_axes:
        raise OptionError(f"an array of shape {values.shape} given to NoiseValues.{name}; expected {shape}.")


def checked_values(values: Any, n_rows: int, dim: int) -> NoiseValues:
    """What a noise has returned for N rows of D dimensions, if its shapes are right."""
    if not isinstance(values, NoiseValues):
        raise OptionError(f"`at` of a noise returned {values!r}; expected `NoiseValues` (docs/extend.md).")
    found = (values.means.shape, values.variances.shape, values.scale.shape)
    others = [part.shape for part in (values.drift, values.diagonal) if part is not None]
    rank, columns = values.scale.shape[-1], values.means.shape[-1]
    wanted = (n_rows, rank, columns)
    if found != (wanted, wanted, (dim, rank)) or any(shape != (n_rows, dim) for shape in others):
        raise OptionError(
            f"`at` of a noise returned means, variances and L of shapes {found}, drift and diagonal of {others}, for "
            f"{n_rows} rows of {dim} dimensions; expected (N, ρ, ν or 1) twice, (D, ρ), and (N, D) (docs/extend.md)."
        )
    return values


class PreparedNoise(eqx.Module):
    """Base of noises whose posterior is prepared for rows of a(x).

    A subclass says what the noise is `at` rows (docs/extend.md).

    See Also
    --------
    AbstractNoise : The parameters, which `prepare` makes ready.

    Examples
    --------
    >>> from wishflow.diffusions import NoiseValues, PreparedNoise
    >>> import jax.numpy as jnp
    >>> class Constant(PreparedNoise):
    ...     def at(self, inputs, a, unexplained):
    ...         return NoiseValues.of_diagonal(jnp.ones_like(inputs))
    >>> Constant().at(jnp.zeros((5, 2)), None, None).diagonal.shape
    (5, 2)
    """

    @property
    def n_normals(self) -> int | None:
        """How many normals J takes for each row and step, ν + ρ; None: it is not known before the step."""
        return None

    @property
    def has_diagonal(self) -> bool:
        """Whether the values have a `diagonal`."""
        return False

    @abc.abstractmethod
    def at(self, inputs: Float[Array, "N K"], a: Float[Array, "N M"], unexplained: Float[Array, " N"]) -> NoiseValues:
        """Return the noise at rows.

        Parameters
        ----------
        inputs : Array of shape (N, K)
            Inputs of the kernel.
        a : Array of shape (N, M)
            The projections a(x), or Qᵀa(x) with the rotation Q of the posterior.
        unexplained : Array of shape (N,)
            The variances k(x, x) − ‖a‖².

        Returns
        -------
        NoiseValues
            The noise.
        """

    def drift_weights(self) -> Float[Array, "M D"] | None:
        """Return what a(x) is multiplied by in the drift that the noise adds.

        Returns
        -------
        Array of shape (M, D) or None
            The weights. None: it adds none.
        """
        return None


class AbstractNoise(eqx.Module):
    """Base of noises: their parameters, penalties, and how they are made ready for rows.

    A subclass has the methods `kl` and `prepare` (docs/extend.md).

    See Also
    --------
    wishflow.register : Make a noise an option of the estimators.

    Examples
    --------
    >>> from wishflow.diffusions import AbstractNoise
    >>> class Silent(AbstractNoise):
    ...     def kl(self):
    ...         return {}
    ...
    ...     def prepare(self, dtype, rotation):
    ...         raise NotImplementedError
    >>> Silent().summary()
    {}
    """

    @abc.abstractmethod
    def kl(self) -> dict[str, Scalar]:
        """Return the penalties by name.

        Returns
        -------
        dict of str to scalar Array
            Names begin with "kl_". In warm-up "kl_drift" has the weight c², others c.
        """

    @abc.abstractmethod
    def prepare(self, dtype: DTypeLike, rotation: Float[Array, "M M"] | None) -> PreparedNoise:
        """Make the noise ready for rows of a(x), or of Qᵀa(x) with the rotation Q of the posterior.

        Parameters
        ----------
        dtype : dtype
            Type of the rows.
        rotation : Array of shape (M, M) or None
            The rotation Q.

        Returns
        -------
        PreparedNoise
            The prepared noise.
        """

    def rotation(self) -> Float[Array, "M M"] | None:
        """Return the rotation Q of the posterior, where it has one: rows of a(x) then come as Qᵀa(x).

        Returns
        -------
        Array of shape (M, M) or None
            The rotation.
        """
        return None

    def summary(self) -> dict[str, Scalar]:
        """Return numbers worth watching in the history.

        Returns
        -------
        dict of str to scalar Array
            The numbers by name.
        """
        return {}

    def draw(self, key: PRNGKeyArray, basis: InducingBasis, prepared: PreparedBasis) -> PreparedNoise:
        """Draw the functions of the noise once, for pathwise sampling.

        Parameters
        ----------
        key : PRNGKeyArray
            Key of the draw.
        basis : InducingBasis
            The basis of the field.
        prepared : PreparedBasis
            The basis, prepared.

        Returns
        -------
        PreparedNoise
            The noise with these functions.

        Raises
        ------
        OptionError
            If the noise has no functions of its own to draw.
        """
        raise OptionError(
            f'sampling="pathwise" is not available for {type(self).__name__}, which has no functions to draw; use '
            'sampling="marginal", or diffusion="wishart".'
        )
