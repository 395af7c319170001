"""Constrained parameters: each stores an unconstrained array and offers its constrained `value`.

A gradient step on `raw` never leaves the constraint, so optimisers need to know nothing of it.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import OptionError
from .devices import on_device


def zeros(*shape: int) -> Array:
    """Where parameters start. Made by NumPy: `jnp.zeros` would compile a program for each shape."""
    return on_device(np.zeros(shape))


class AbstractParameter(eqx.Module):
    """An unconstrained array `raw` and the constrained `value` it stands for."""

    raw: eqx.AbstractVar[Array]

    @property
    @abc.abstractmethod
    def value(self) -> Array:
        """The constrained value."""


class Positive(AbstractParameter):
    """value = floor + softplus(raw) > floor.

    Floors are low enough not to bind: a noise variance floor of 1e-5 would cap the score of data
    sets whose noise is smaller than that.
    """

    raw: Float[Array, "*shape"]
    floor: float = eqx.field(static=True)

    @classmethod
    def of(cls, value: object, floor: float = 1e-8) -> Positive:
        """The parameter whose `value` is given; values from 0 to the floor are lifted just over it."""
        if not np.all(np.asarray(value, float) >= 0.0):
            raise OptionError(f"value={value!r} given to Positive.of; expected positive numbers.")
        excess = np.maximum(np.asarray(value, float) - floor, 1e-3 * floor)
        # Inverse of softplus without overflow: y + log(1 − exp(−y)).
        return cls(on_device(excess + np.log(-np.expm1(-excess))), floor)

    @property
    def value(self) -> Array:
        return self.floor + jax.nn.softplus(self.raw)


class Scaled(AbstractParameter):
    """value = floor + exp(raw): a step of `raw` is a share of what lies over the floor, however much that is."""

    raw: Float[Array, "*shape"]
    floor: float = eqx.field(static=True)

    @classmethod
    def of(cls, value: object, floor: float = 0.0) -> Scaled:
        """The parameter whose `value` is given; it must lie over the floor."""
        return cls(on_device(np.log(np.asarray(value, float) - floor)), floor)

    @property
    def value(self) -> Array:
        return self.floor + jnp.exp(self.raw)


def diagonal_of(matrix: Float[Array, "*batch M M"]) -> Float[Array, "*batch M"]:
    """The diagonal, by a mask: `jnp.diagonal` gathers, and the derivative of a gather is a scatter, slow everywhere."""
    return jnp.sum(jnp.where(np.eye(matrix.shape[-1], dtype=bool), matrix, 0.0), -1)


@jax.custom_jvp
def with_positive_diagonal(raw: Float[Array, "*batch M M"]) -> Float[Array, "*batch M M"]:
    """What is below the diagonal, and exp of the diagonal.

    The derivative goes entry by entry, dR_ii = R_ii draw_ii; through `diagonal_of` it would be four arrays of the size
    of R and two sums over them.
    """
    is_diagonal = np.eye(raw.shape[-1], dtype=bool)
    return jnp.where(is_diagonal, jnp.exp(diagonal_of(raw))[..., None], jnp.tril(raw, -1))


@with_positive_diagonal.defjvp
def _with_positive_diagonal_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    value, tangent = with_positive_diagonal(primals[0]), tangents[0]
    is_diagonal = np.eye(value.shape[-1], dtype=bool)
    return value, jnp.tril(tangent) * jnp.where(is_diagonal, value, 1.0)


class LowerTriangular(AbstractParameter):
    """Lower triangular matrices with a positive diagonal: exp on the diagonal, free below it."""

    raw: Float[Array, "*batch M M"]

    @classmethod
    def of(cls, value: Float[Array, "*batch M M"]) -> LowerTriangular:
        """The parameter whose `value` is the given lower triangular matrix (positive diagonal)."""
        value = jnp.asarray(value)
        diagonal = jnp.log(diagonal_of(value))
        return cls(jnp.tril(value, -1) + diagonal[..., None] * jnp.eye(value.shape[-1], dtype=value.dtype))

    @property
    def value(self) -> Array:
        return with_positive_diagonal(self.raw)

    @property
    def log_diagonal(self) -> Array:
        """log R_ii, exactly the stored numbers."""
        return diagonal_of(self.raw)


class UnitRows(AbstractParameter):
    """A matrix whose rows have unit Euclidean norm: value = raw / ‖raw‖ row by row."""

    raw: Float[Array, "D rho"]

    @property
    def value(self) -> Array:
        return self.raw / jnp.linalg.norm(self.raw, axis=-1, keepdims=True)


class Free(AbstractParameter):
    """No constraint: value = raw."""

    raw: Float[Array, "*shape"]

    @property
    def value(self) -> Array:
        return self.raw
