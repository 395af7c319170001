"""Cholesky factors, triangular inverses and the choice of jitter.

On the CPU a *batched* LAPACK call waits on the thread pool from inside a pool worker, and two of them in one program
can wait for each other for ever (design, section 3). So stacks of matrices go through `each`, which issues unbatched
calls in order.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PyTree

from .errors import FactorisationError

FIRST_JITTER = 1e-10
LAST_JITTER = 1e-4


def each(function: Callable, stack: PyTree[Array]) -> PyTree[Array]:
    """Apply `function` to every matrix of a stack (or of several stacks), one after another."""
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


@jax.custom_jvp
def whitener(matrix: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """W = L⁻¹ for the Cholesky factor L of a matrix K, so that W K Wᵀ = I.

    dW = −Φ(W dK Wᵀ) W, Φ keeping the lower triangle and half of the diagonal: three matrix products, where the
    derivatives of the factor and of its inverse, one after the other, solve five triangular systems.
    """
    return inverse_lower(cholesky(matrix))


@whitener.defjvp
def _whitener_jvp(primals, tangents):
    W = whitener(*primals)
    inner = W @ tangents[0] @ W.T
    return W, -(jnp.tril(inner, -1) + 0.5 * jnp.diag(jnp.diagonal(inner))) @ W


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
