"""Densities with stacks of small covariances, entry by entry: for accelerators.

A matrix is a list of rows, each a list of entries, and an entry is an array with one element for each matrix of the
stack. All operations are then elementwise and become one; a batched product of 5×5 matrices would be done by tiles of
32×32, most of them empty.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .tails import Tails, elliptical_log_density

Entry = Float[Array, "*#batch"]
Entries = list[list[Entry]]

# Entries of a factor up to which a density is written out; compilation takes longer with each of them.
MOST = 36


def are_written_out(factor: jax.ShapeDtypeStruct) -> bool:
    """Whether densities with such factors (N, D, ν) are computed entry by entry."""
    return 0 < math.prod(factor.shape[1:]) <= MOST


def entries_of(matrices: Float[Array, "*batch D nu"]) -> Entries:
    """The entries of a stack of matrices."""
    rows, columns = matrices.shape[-2:]
    return [[matrices[..., i, j] for j in range(columns)] for i in range(rows)]


def last_axis(vectors: Float[Array, "*batch D"]) -> list[Entry]:
    """The entries of a stack of vectors."""
    return [vectors[..., i] for i in range(vectors.shape[-1])]


def inner(a: list[Entry], b: list[Entry]) -> Entry:
    """aᵀb."""
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total


def columns_of(rows: Entries) -> Entries:
    """The transpose."""
    return [list(column) for column in zip(*rows, strict=True)]


def whitener(K: Entries) -> Entries:
    """The rows of W = L⁻¹ up to the diagonal, for K = L Lᵀ; `linalg.small_whitener` says how."""
    W: Entries = []
    for j, row in enumerate(K):
        along = [inner(w, row[: len(w)]) for w in W]
        pivot = row[j] if not along else row[j] - inner(along, along)
        scale = jax.lax.rsqrt(pivot)
        rest = [-scale * inner(along[k:], [w[k] for w in W[k:]]) for k in range(j)]
        W.append([*rest, scale])
    return W


def log_det(W: Entries) -> Entry:
    """log|K| from its whitener."""
    logs = [jnp.log(row[-1]) for row in W]
    return -2.0 * sum(logs[1:], logs[0])


def low_rank_log_density(
    r: list[Entry], F: Entries, diagonal: list[Entry], tails: Tails | float = None
) -> Float[Array, "*batch"]:
    """`linalg.low_rank_log_density`, with B = F Fᵀ + diag(λ) for ν ≥ D and C = I + FᵀΛ⁻¹F for ν < D."""
    D, nu = len(F), len(F[0])
    if nu >= D:
        W = whitener(_gram(F, diagonal))
        white = [inner(row, r[: len(row)]) for row in W]
        return elliptical_log_density(inner(white, white), log_det(W), D, tails)
    sds = [jnp.sqrt(variance) for variance in diagonal]
    z = [x / sd for x, sd in zip(r, sds, strict=True)]
    G = [[f / sd for f in row] for row, sd in zip(F, sds, strict=True)]
    columns = columns_of(G)
    W = whitener(_gram(columns, [jnp.ones_like(z[0])] * nu))
    along = [inner(column, z) for column in columns]
    white = [inner(row, along[: len(row)]) for row in W]
    q = [inner([row[k] for row in W[k:]], white[k:]) for k in range(nu)]  # C⁻¹Gᵀz
    e = [x - inner(row, q) for x, row in zip(z, G, strict=True)]  # B⁻¹z for B = I + GGᵀ
    log_diagonal = [jnp.log(variance) for variance in diagonal]
    whole = sum(log_diagonal[1:], log_diagonal[0]) + log_det(W)
    return elliptical_log_density(inner(e, e) + inner(q, q), whole, D, tails)


def _gram(rows: Entries, diagonal: list[Entry]) -> Entries:
    """The lower triangle of A Aᵀ + diag(λ) for the rows of A."""
    K = [[inner(a, b) for b in rows[: i + 1]] for i, a in enumerate(rows)]
    for row, variance in zip(K, diagonal, strict=True):
        row[-1] = row[-1] + variance
    return K
