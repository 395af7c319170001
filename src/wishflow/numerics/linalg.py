"""Cholesky factors, triangular inverses and the choice of jitter.

On the CPU a *batched* LAPACK call waits on the thread pool from inside a pool worker, and two of them in one program
can wait for each other for ever. So stacks of matrices go through `each`, which issues unbatched
calls in order.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int, PyTree

from ..errors import FactorisationError
from . import platform
from .tails import Tails, elliptical_log_density

FIRST_JITTER = 1e-10
LAST_JITTER = 1e-4
# Factors of this size are inverted as a whole: smaller parts gain nothing on two cores.
UNSPLIT = 256
# On accelerators sums over rows are cut into parts: how many at most, and of how many rows at least.
MOST_PARTS = 16
PART_ROWS = 64
# On accelerators, of products with the rows of a batch, those of the derivative alone: an error of 5e-4 in a gradient
# is little beside the noise of batch and paths, where one of 6e-4 in ‖a‖² would make variances negative. In float32,
# which only training uses, this is TF32 on GPUs; float64 is as it was.
GRADIENT_PRECISION = jax.lax.Precision.HIGH


def each(function: Callable, stack: PyTree[Array]) -> PyTree[Array]:
    """Apply `function` to every matrix of a stack (or of several stacks), one after another."""
    if all(leaf.shape[0] == 1 for leaf in jax.tree.leaves(stack)):  # no loop to trace, to differentiate and to compile
        return jax.tree.map(lambda leaf: leaf[None], function(jax.tree.map(lambda leaf: leaf[0], stack)))
    return jax.lax.map(function, stack)


def cholesky(matrix: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Lower Cholesky factor; NaN where the matrix is not positive definite."""
    return jnp.linalg.cholesky(matrix, symmetrize_input=False)


def solve_lower(L: Float[Array, "M M"], b: Float[Array, "M K"]) -> Float[Array, "M K"]:
    """L⁻¹ b."""
    return solve_triangular(L, b, lower=True)


def inverse_lower(L: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """L⁻¹, lower triangular."""
    return solve_triangular(L, jnp.eye(L.shape[-1], dtype=L.dtype), lower=True)


def inverse_from_factor(L: Float[Array, "M M"]) -> tuple[Float[Array, "M M"], Float[Array, "M M"]]:
    """W = L⁻¹ and WᵀW = (L Lᵀ)⁻¹ of a large factor, by halves: products without the zeros above the diagonal, which
    take half the time of the triangular solve and the product of whole matrices.
    """
    half = len(L) // 2
    if len(L) <= UNSPLIT:
        W = inverse_lower(L)
        return W, W.T @ W
    (first, gram_first), (last, gram_last) = (inverse_from_factor(part) for part in (L[:half, :half], L[half:, half:]))
    below = -last @ (L[half:, :half] @ first)
    cross = below.T @ last
    W = jnp.block([[first, jnp.zeros(cross.shape, L.dtype)], [below, last]])
    return W, jnp.block([[gram_first + below.T @ below, cross], [cross.T, gram_last]])


def lower_half(matrix: Float[Array, "... M M"]) -> Float[Array, "... M M"]:
    """Φ: the lower triangle and half of the diagonal."""
    return jnp.tril(matrix, -1) + 0.5 * matrix * jnp.eye(matrix.shape[-1], dtype=matrix.dtype)


def over_rows(
    A: Float[Array, "N C"], B: Float[Array, "N M"], precision: jax.lax.Precision | None = None
) -> Float[Array, "C M"]:
    """AᵀB, a sum over rows, for accelerators: by parts of the rows, since few elements that are each a long sum leave
    most of the device idle. The precision is that of the context if none is given.
    """
    n_parts = parts_of(len(A))
    by_part = [X.reshape(n_parts, -1, X.shape[1]) for X in (A, B)]
    return jnp.sum(jnp.matmul(jnp.swapaxes(by_part[0], 1, 2), by_part[1], precision=precision), 0)


def by_parts(
    A: Float[Array, "N C"], B: Float[Array, "C M"], precision: jax.lax.Precision | None = None
) -> Float[Array, "N M"]:
    """A B for accelerators, each part of the rows with a copy of B: the derivative by B is then that of `over_rows`, in
    whatever mode derivatives are taken.
    """
    n_parts = parts_of(len(A))
    stack = jnp.broadcast_to(B, (n_parts, *B.shape))
    return jnp.matmul(A.reshape(n_parts, -1, A.shape[1]), stack, precision=precision).reshape(len(A), -1)


def rows_product(A: Float[Array, "N C"], B: Float[Array, "C M"]) -> Float[Array, "N M"]:
    """A B for many rows; on accelerators with the derivative of `_product_by_parts`."""
    return _product_by_parts(A, B) if platform.joins_products() else A @ B


@jax.custom_jvp
def _product_by_parts(A: Float[Array, "N C"], B: Float[Array, "C M"]) -> Float[Array, "N M"]:
    """A B. Of the derivative, products have `GRADIENT_PRECISION`, and sums over rows are those of `over_rows`."""
    return A @ B


@_product_by_parts.defjvp
def _product_by_parts_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (A, B), (dA, dB) = primals, tangents
    by_A = jnp.matmul(dA, B, precision=GRADIENT_PRECISION)
    return A @ B, by_A + by_parts(A, dB, GRADIENT_PRECISION)


def parts_of(n_rows: int) -> int:
    """The most parts of equal size that are within the limits; 1 where the number of rows has no such divisor."""
    most = min(n_rows // PART_ROWS, MOST_PARTS)
    return next((n for n in range(most, 1, -1) if n_rows % n == 0), 1)


@jax.custom_vjp
def thin_product(A: Float[Array, "N C"], B: Float[Array, "C M"]) -> Float[Array, "N M"]:
    """A B for few columns C and M, for accelerators: a sum of C terms is part of the operations before and after it,
    where a matrix product is an operation of its own, with its operands and its result written to memory.

    The derivative by B, a sum over rows, is a product.
    """
    return jnp.sum(A[:, :, None] * B, 1)


def _thin_forward(A: Array, B: Array) -> tuple[Array, tuple[Array, Array]]:
    return thin_product(A, B), (A, B)


def _thin_backward(operands: tuple[Array, Array], G: Float[Array, "N M"]) -> tuple[Array, Array]:
    A, B = operands
    return thin_product(G, B.T), over_rows(A, G)


thin_product.defvjp(_thin_forward, _thin_backward)


def unfused(values: Float[Array, "N P"], scale: float = 1.0) -> Float[Array, "N P"]:
    """The values, scaled, as a product with a multiple of I. On the CPU XLA copies the elementwise operations that led
    to a small array into every loop over a larger one that reads it, divisions and all; a product it leaves alone. Of
    finite values it is exact; one that is not spreads over its row.
    """
    if platform.on_accelerator():
        return scale * values
    return values @ (scale * jnp.eye(values.shape[1], dtype=values.dtype))


@jax.custom_jvp
def whitener(matrix: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """W = L⁻¹ for the Cholesky factor L of a matrix K, so that W K Wᵀ = I.

    dW = −Φ(W dK Wᵀ) W with Φ = `lower_half`: three matrix products, where the
    derivatives of the factor and of its inverse, one after the other, solve five triangular systems.
    """
    return inverse_lower(cholesky(matrix))


@whitener.defjvp
def _whitener_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    W = whitener(*primals)
    return W, -lower_half(W @ tangents[0] @ W.T) @ W


@jax.custom_jvp
def known_whitener(matrix: Float[Array, "M M"], W: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """`whitener` of a matrix whose whitener W was found before, with its derivative by the matrix."""
    return W


@known_whitener.defjvp
def _known_whitener_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    W = primals[1]
    return W, -lower_half(W @ tangents[0] @ W.T) @ W


def together(function: Callable, stack: PyTree[Array]) -> PyTree[Array]:
    """`function` of every matrix of a stack: in one call on accelerators, where a small matrix takes as long as many,
    else by `each`.
    """
    return jax.vmap(function)(stack) if platform.batches_factorisations() else each(function, stack)


def cayley(below: Float[Array, "M M"], known: Float[Array, "M M"] | None = None) -> Float[Array, "M M"]:
    """Q = (I − A)(I + A)⁻¹ for the skew A = B − Bᵀ of a strictly lower triangular B: orthogonal, det Q = 1.

    (I + A)(I − A) = I − A² = I + AᵀA =: S is positive definite and commutes with A, so Q = (I − A)² S⁻¹, and S is
    factorised as Kzz is; `known` is its whitener where it was found before.
    """
    A, identity = below - below.T, jnp.eye(below.shape[-1], dtype=below.dtype)
    S = cayley_matrix(below)
    W = whitener(S) if known is None else known_whitener(S, known)
    return (identity - A) @ ((identity - A) @ W.T) @ W


def cayley_matrix(below: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """S = I + AᵀA of `cayley`."""
    A = below - below.T
    return jnp.eye(below.shape[-1], dtype=below.dtype) + A.T @ A


def inverse_square_root(precision: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The lower triangular R with R Rᵀ = Π⁻¹ and a positive diagonal.

    Π = U Uᵀ with U upper triangular (a Cholesky factor with rows and columns reversed), so R = U⁻ᵀ.
    """
    reversed_factor = cholesky(precision[::-1, ::-1])
    return inverse_lower(reversed_factor)[::-1, ::-1].T


def choose_jitter(matrix: np.ndarray, scale: float, what: str = "the kernel matrix") -> float:
    """The smallest relative jitter, 1e-10 × 10ᵏ ≤ 1e-4, with which matrix + jitter·scale·I can be factorised.

    Runs on the host between compiled chunks, so the jitter is constant inside each of them.
    """
    jitter = FIRST_JITTER
    while jitter <= LAST_JITTER * 1.001:
        try:
            factor = np.linalg.cholesky(matrix + jitter * scale * np.eye(len(matrix)))
            # A factor whose smallest pivot is lost in rounding would pass here and fail on another machine.
            if factor.diagonal().min() ** 2 > 0.1 * jitter * scale:
                return jitter
        except np.linalg.LinAlgError:
            pass
        jitter *= 10.0
    raise FactorisationError(_describe_failure(matrix, scale, what))


def _describe_failure(matrix: np.ndarray, scale: float, what: str) -> str:
    if not np.isfinite(matrix).all():
        cause = "it holds NaN or infinity: a parameter of the kernel has diverged"
        remedy = "lower learning_rate, or check the scale of the inputs"
    elif len(matrix) > 1 and (matrix - np.diag(np.diag(matrix))).max() > 0.999999 * scale:
        cause = "two inducing points coincide for the kernel (duplicated rows, or a lengthscale far too long)"
        remedy = "use fewer inducing points (n_inducing) or remove duplicated rows"
    else:
        cause = f"its entries span {np.abs(matrix).min():.1e} to {np.abs(matrix).max():.1e}"
        remedy = "check the scale of the inputs"
    size = f"{len(matrix)}×{len(matrix)}"
    return f"{what} ({size}) is not positive definite with jitter up to {LAST_JITTER:g}: {cause}; {remedy}."


# --- stacks of small matrices, in plain operations ------------------------------------------------

UNROLLED = 6


def _small_whitener(matrix: Float[Array, "... K K"]) -> Float[Array, "... K K"]:
    """W by elimination: row j of W is (e_j − Σ_{i<j} L_ji w_i)/L_jj, L_ji = w_iᵀ K e_j, so no triangular solve is left.

    The rows are K-orthonormal, w_iᵀ K w_j = δ_ij (Gram–Schmidt on the unit vectors); each turn of the loop over j works
    on the whole stack.
    """
    size = matrix.shape[-1]
    identity = jnp.eye(size, dtype=matrix.dtype)

    def row(j: Int[Array, ""] | int, W: Float[Array, "... K K"]) -> Float[Array, "... K K"]:
        column = jnp.take(matrix, j, axis=-1)
        along = jnp.einsum("...ik,...k->...i", W, column)  # L_ji for i < j; rows not yet made are zero
        rest = jnp.take(identity, j, axis=0) - jnp.einsum("...i,...ik->...k", along, W)
        pivot = jnp.take(column, j, axis=-1) - jnp.sum(along**2, axis=-1)
        return W.at[..., j, :].set(rest * jax.lax.rsqrt(pivot)[..., None])

    W = jnp.zeros_like(matrix)
    if size <= UNROLLED:
        for j in range(size):
            W = row(j, W)
        return W
    return jax.lax.fori_loop(0, size, row, W)


@jax.custom_jvp
def small_whitener(matrix: Float[Array, "... K K"]) -> Float[Array, "... K K"]:
    """`whitener` for a stack of small matrices without LAPACK, whose batched calls can hang on the CPU."""
    return _small_whitener(matrix)


@small_whitener.defjvp
def _small_whitener_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    W = small_whitener(*primals)
    return W, -lower_half(W @ tangents[0] @ jnp.swapaxes(W, -1, -2)) @ W


def log_det(W: Float[Array, "*batch K K"]) -> Float[Array, "*batch"]:
    """log|K| from its whitener: −2 Σ log W_jj."""
    return -2.0 * jnp.sum(jnp.log(jnp.diagonal(W, axis1=-2, axis2=-1)), -1)


def low_rank_log_density(
    r: Float[Array, "*#batch D"],
    F: Float[Array, "*#batch D nu"],
    diagonal: Float[Array, "*#batch D"],
    tails: Tails | float = None,
) -> Float[Array, "*batch"]:
    """`elliptical_log_density` with B = F Fᵀ + diag(λ).

    For ν < D by Woodbury and the determinant lemma with the small matrix C = I + FᵀΛ⁻¹F; for ν ≥ D with B itself, which
    is then cheaper and more exact.
    """
    D, nu = F.shape[-2:]
    if nu >= D:
        B = F @ jnp.swapaxes(F, -1, -2) + diagonal[..., None] * jnp.eye(D, dtype=F.dtype)
        return dense_log_density(r, B, tails)
    z = r / jnp.sqrt(diagonal)
    if nu == 0:
        return elliptical_log_density(jnp.sum(z * z, -1), jnp.sum(jnp.log(diagonal), -1), D, tails)
    G = F / jnp.sqrt(diagonal)[..., None]
    squares, log_det_C = low_rank_terms(z, G)
    return elliptical_log_density(squares, jnp.sum(jnp.log(diagonal), -1) + log_det_C, D, tails)


@jax.custom_jvp
def low_rank_terms(
    z: Float[Array, "*#batch D"], G: Float[Array, "*#batch D nu"]
) -> tuple[Float[Array, "*#batch"], Float[Array, "*#batch"]]:
    """zᵀB⁻¹z and log|B| for B = I + GGᵀ, from the small C = I + GᵀG: with q = C⁻¹Gᵀz and e = B⁻¹z = z − Gq they are
    ‖e‖² + ‖q‖² and log|C|.

    Their derivatives need no more than that: 2 eᵀdz − 2 eᵀdG q, and 2 tr(C⁻¹Gᵀ dG).
    """
    return _low_rank_parts(z, G)[0]


def _low_rank_parts(
    z: Float[Array, "*#batch D"], G: Float[Array, "*#batch D nu"]
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
    """`low_rank_terms`, and G C⁻¹, q and e for their derivatives."""
    C = jnp.swapaxes(G, -1, -2) @ G + jnp.eye(G.shape[-1], dtype=G.dtype)
    W = small_whitener(C)
    solved = (G @ jnp.swapaxes(W, -1, -2)) @ W  # G C⁻¹
    q = jnp.sum(solved * z[..., None], -2)
    e = z - jnp.sum(G * q[..., None, :], -1)
    return (jnp.sum(e * e, -1) + jnp.sum(q * q, -1), log_det(W)), (solved, q, e)


@low_rank_terms.defjvp
def _low_rank_terms_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    dz, dG = tangents
    values, (solved, q, e) = _low_rank_parts(*primals)
    by_states = jnp.sum(e * (dz - jnp.sum(dG * q[..., None, :], -1)), -1)
    return values, (2.0 * by_states, 2.0 * jnp.sum(solved * dG, (-2, -1)))


def dense_log_density(
    r: Float[Array, "*#batch D"], B: Float[Array, "*#batch D D"], tails: Tails | float = None
) -> Float[Array, "*batch"]:
    """`elliptical_log_density` for a stack of small covariances."""
    W = small_whitener(B)
    white = jnp.einsum("...ij,...j->...i", W, r)
    return elliptical_log_density(jnp.sum(white * white, -1), log_det(W), r.shape[-1], tails)
