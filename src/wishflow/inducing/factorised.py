"""All factorisations of a model in one call, for accelerators."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..numerics.linalg import cayley, cayley_matrix, cholesky, inverse_lower, known_whitener, together
from .basis import InducingBasis
from .posteriors import RotatedPosterior


class FactorisedBasis(InducingBasis):
    """A basis whose matrix and W were found before."""

    known_matrix: Float[Array, "M M"]
    known_whitener: Float[Array, "M M"]

    def matrix(self) -> Float[Array, "M M"]:
        return self.known_matrix

    def whitener(self) -> Float[Array, "M M"]:
        return known_whitener(self.known_matrix, self.known_whitener)


class FactorisedRotation(RotatedPosterior):
    """A rotated posterior whose `cayley_matrix` was factorised before."""

    known_whitener: Float[Array, "M M"]

    def rotation(self) -> Float[Array, "M M"]:
        return cayley(jnp.tril(self.below, -1), self.known_whitener)


def rotations(tree: PyTree) -> list[Any]:
    """The rotated posteriors of a model."""
    parts = jax.tree.leaves(tree, is_leaf=lambda part: isinstance(part, RotatedPosterior))
    return [part for part in parts if isinstance(part, RotatedPosterior)]


def factorised(
    bases: list[InducingBasis], rotated: list[RotatedPosterior], factor: Float[Array, "M M"]
) -> tuple[list[InducingBasis], list[RotatedPosterior], Float[Array, "M M"]]:
    """Bases and rotations of equal size that know their W, and the inverse of a lower triangular factor of that size:
    all factorisations in one call, and all inverses in another. The inverse has no derivative.
    """
    matrices, turns = _matrices(bases), [cayley_matrix(jnp.tril(q.below, -1)) for q in rotated]
    fixed, factor = jax.lax.stop_gradient((jnp.concatenate([matrices, *(turn[None] for turn in turns)]), factor))
    *known, inverse = together(inverse_lower, jnp.concatenate([together(cholesky, fixed), factor[None]]))
    parts = zip(bases, matrices, known[: len(bases)], strict=True)
    turned = zip(rotated, known[len(bases) :], strict=True)
    return (
        [FactorisedBasis(b.kernel, b.Z, b.jitter, matrix, W) for b, matrix, W in parts],
        [FactorisedRotation(q.mean, q.log_variances, q.below, W) for q, W in turned],
        inverse,
    )


def _matrices(bases: list[InducingBasis]) -> Float[Array, "B M M"]:
    """The matrices of several bases, at once where their kernels are of one kind."""
    if len({jax.tree.structure(basis) for basis in bases}) > 1 or len({_shapes(basis) for basis in bases}) > 1:
        return jnp.stack([basis.matrix() for basis in bases])
    return jax.vmap(lambda basis: basis.matrix())(jax.tree.map(lambda *leaves: jnp.stack(leaves), *bases))


def _shapes(basis: InducingBasis) -> tuple[tuple[int, ...], ...]:
    return tuple(leaf.shape for leaf in jax.tree.leaves(basis))
