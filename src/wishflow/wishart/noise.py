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
    """J's moments and L; `drift` and `diagonal` are what a noise adds to μ and Λ (None: nothing).

    For columns that share their posterior the last axis of both moments has size one.
    """

    means: Float[Array, "N rho cols"]
    variances: Float[Array, "N rho cols"]
    scale: Float[Array, "D rho"]
    dof: int = eqx.field(static=True)
    drift: Float[Array, "N D"] | None = None
    diagonal: Float[Array, "N D"] | None = None

    @classmethod
    def of_diagonal(cls, diagonal: Float[Array, "N D"], drift: Float[Array, "N D"] | None = None) -> NoiseValues:
        """Without J: independent noise of the given variances for each dimension."""
        _check_axes("of_diagonal", diagonal, "(N, D)", 2)
        empty = jnp.zeros((diagonal.shape[0], 0, 1), diagonal.dtype)
        return cls(empty, empty, jnp.zeros((diagonal.shape[1], 0), diagonal.dtype), 0, drift, diagonal)

    @classmethod
    def of_factor(cls, factor: Float[Array, "N D nu"]) -> NoiseValues:
        """With a factor σ(x) that is not random, Σ = σσᵀ: J is σ and L the identity."""
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
    """A noise whose posterior is prepared for rows of a(x)."""

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
        """The noise at rows: inputs of the kernel, a(x), and k(x, x) − ‖a‖²."""

    def drift_weights(self) -> Float[Array, "M D"] | None:
        """What a(x) is multiplied by in the drift that the noise adds; None: it adds none."""
        return None


class AbstractNoise(eqx.Module):
    """Parameters of a noise."""

    @abc.abstractmethod
    def kl(self) -> dict[str, Scalar]:
        """Its penalties by name, which begins with "kl_"; in warm-up "kl_drift" has the weight c², others c."""

    @abc.abstractmethod
    def prepare(self, dtype: DTypeLike, rotation: Float[Array, "M M"] | None) -> PreparedNoise:
        """Ready for rows of a(x), or of Qᵀa(x) with the rotation Q of the posterior."""

    def rotation(self) -> Float[Array, "M M"] | None:
        """The rotation Q of its posterior, where it has one: rows of a(x) then come as Qᵀa(x)."""
        return None

    def summary(self) -> dict[str, Scalar]:
        """Numbers worth watching in the history."""
        return {}

    def draw(self, key: PRNGKeyArray, basis: InducingBasis, prepared: PreparedBasis) -> PreparedNoise:
        """One draw of the functions of the noise, for pathwise sampling."""
        raise OptionError(
            f'sampling="pathwise" was asked of {type(self).__name__}, which has no functions of its own to draw; use '
            'sampling="marginal", or diffusion="wishart".'
        )
