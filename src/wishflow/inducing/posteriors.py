"""q(v_p) = N(m_p, R_p R_pᵀ) for several outputs: the forms in which the R_p are held, and ‖R_pᵀa‖² for rows."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PyTree

from ..numerics import platform
from ..numerics.linalg import GRADIENT_PRECISION, cayley, over_rows, rows_product, unfused
from ..numerics.parameters import LowerTriangular, zeros

Blocks = tuple[Array, ...]

# ‖Rᵀa‖² on accelerators. In float32 this is TF32 on GPUs: a form, a sum of squares, is then off by 5e-4 of itself at
# most, where ‖a‖², which is subtracted from k(x, x), must be exact. Float64 is as it was.
FORM_PRECISION = jax.lax.Precision.HIGH

N_BLOCKS = 5
N_LANES = 4
SMALLEST_CUT = 64
# From so many outputs on products are wide enough to be cut into more blocks, and rows may be their last axis.
MANY_OUTPUTS = 16
MANY_BLOCKS = 7
# Where there is no derivative: how many rows of S are multiplied at once, and from how many rows for each inducing
# point on it pays to compute S.
PAIR_WIDTH = 8
ROWS_PAID = 4


def block_width(n_inducing: int, n_outputs: int) -> int:
    """How many columns of each factor are multiplied at once: about a fifth; about a half for one output, whose
    products would be too narrow, a seventh for many; a multiple of `N_LANES`, the float32 lanes of a small vector
    register.
    """
    if n_inducing < SMALLEST_CUT:
        return n_inducing
    n_blocks = 2 if n_outputs == 1 else MANY_BLOCKS if has_rows_last(n_outputs) else N_BLOCKS
    return -(-n_inducing // (n_blocks * N_LANES)) * N_LANES


def has_rows_last(n_outputs: int) -> bool:
    """Whether products with the factors of that many outputs have the outputs first and the rows last: on the CPU what
    is done with each number of them, squares, sums and scales by output and row, then runs along memory.
    """
    return n_outputs >= MANY_OUTPUTS and not platform.on_accelerator()


class AbstractPosterior(eqx.Module):
    """q(v_p) = N(m_p, R_p R_pᵀ) for p = 1 … P, whatever the form in which the R_p are held."""

    mean: eqx.AbstractVar[Float[Array, "P M"]]

    @abc.abstractmethod
    def kl(self) -> Float[Array, " P"]:
        """KL(q(v_p) ‖ N(0, I)) = ½ (‖m‖² + ‖R‖²_F − M − 2 log det R), one number for each output."""

    @abc.abstractmethod
    def factors(self) -> Float[Array, "P M M"]:
        """The R_p, written out."""

    def rotation(self) -> Float[Array, "M M"] | None:
        """Q, if the posterior is prepared for rows Qᵀa(x); None: for rows of a(x)."""
        return None

    @abc.abstractmethod
    def prepare(self, dtype: DTypeLike, rotation: Float[Array, "M M"] | None = None) -> PreparedPosterior:
        """What means and quadratic forms at rows of a(x) need, in `dtype`; `rotation` is that of `rotation()`."""


class WhitenedPosterior(AbstractPosterior):
    """Each R_p a lower triangular matrix of its own: every Gaussian q."""

    mean: Float[Array, "P M"]
    sqrt: LowerTriangular

    @classmethod
    def prior(cls, n_outputs: int, n_inducing: int) -> WhitenedPosterior:
        """The prior N(0, I)."""
        raw = zeros(n_outputs, n_inducing, n_inducing)  # log 1 on the diagonal, nothing below it
        return cls(zeros(n_outputs, n_inducing), LowerTriangular(raw))

    def kl(self) -> Float[Array, " P"]:
        squares = jnp.sum(self.mean**2, -1) + jnp.sum(self.sqrt.value**2, (-2, -1))
        return 0.5 * (squares - self.mean.shape[-1]) - jnp.sum(self.sqrt.log_diagonal, -1)

    def factors(self) -> Float[Array, "P M M"]:
        return self.sqrt.value

    def prepare(self, dtype: DTypeLike, rotation: Float[Array, "M M"] | None = None) -> PreparedPosterior:
        """Factors of all outputs side by side: one matrix product instead of P.

        R is lower triangular, so its columns are cut into blocks without the zeros above them: with five blocks the
        product costs 3/5 of the full one (with two, for one output, 3/4; with seven 4/7).
        """
        R, n_inducing = self.sqrt.value.astype(dtype), self.mean.shape[1]
        if platform.multiplies_zeros(dtype):
            return PreparedWide(self.mean.T.astype(dtype), jnp.moveaxis(R, 0, 1).reshape(n_inducing, -1))
        starts = tuple(range(0, n_inducing, block_width(n_inducing, len(R))))
        # Cut before the zeros are left out: the derivative then puts blocks side by side instead of adding full arrays.
        columns = jnp.split(R, starts[1:], axis=2)
        blocks = [part[:, start:] for start, part in zip(starts, columns, strict=True)]
        mean = self.mean.T.astype(dtype)
        if has_rows_last(len(R)):
            return PreparedMany(mean, tuple(jnp.swapaxes(block, 1, 2) for block in blocks))
        return PreparedFull(mean, tuple(jnp.moveaxis(block, 0, 1) for block in blocks))


class StructuredPosterior(AbstractPosterior):
    """R_p = T diag(√λ_p) with one unit lower triangular T for all outputs.

    A quadratic form of P outputs costs M² + PM for each row instead of PM². The R_p of outputs that see the same rows
    with different weights have much in common; T holds it, λ_p the rest.
    """

    mean: Float[Array, "P M"]
    below: Float[Array, "M M"]
    log_variances: Float[Array, "P M"]

    @classmethod
    def prior(cls, n_outputs: int, n_inducing: int) -> StructuredPosterior:
        """The prior N(0, I)."""
        means, log_variances = zeros(n_outputs, n_inducing), zeros(n_outputs, n_inducing)
        return cls(means, zeros(n_inducing, n_inducing), log_variances)

    @property
    def factor(self) -> Float[Array, "M M"]:
        """T."""
        return jnp.tril(self.below, -1) + jnp.eye(self.below.shape[-1], dtype=self.below.dtype)

    def kl(self) -> Float[Array, " P"]:
        trace = jnp.exp(self.log_variances) @ jnp.sum(self.factor**2, 0)
        squares = jnp.sum(self.mean**2, -1) + trace
        return 0.5 * (squares - self.mean.shape[-1] - jnp.sum(self.log_variances, -1))

    def factors(self) -> Float[Array, "P M M"]:
        return self.factor * jnp.exp(0.5 * self.log_variances)[:, None, :]

    def prepare(self, dtype: DTypeLike, rotation: Float[Array, "M M"] | None = None) -> PreparedPosterior:
        variances = jnp.exp(self.log_variances)
        return PreparedStructured(*(x.astype(dtype) for x in (self.mean.T, self.factor, variances.T)))


class DiagonalPosterior(AbstractPosterior):
    """R_p = diag(√λ_p): the whitened inducing values are independent (mean field).

    A quadratic form of P outputs costs PM for each row beside a(x) itself. Where q stays near the prior, which is
    diagonal too, little is lost.
    """

    mean: Float[Array, "P M"]
    log_variances: Float[Array, "P M"]

    @classmethod
    def prior(cls, n_outputs: int, n_inducing: int) -> DiagonalPosterior:
        """The prior N(0, I)."""
        return cls(zeros(n_outputs, n_inducing), zeros(n_outputs, n_inducing))

    def kl(self) -> Float[Array, " P"]:
        squares = jnp.sum(self.mean**2, -1) + jnp.sum(jnp.exp(self.log_variances), -1)
        return 0.5 * (squares - self.mean.shape[-1] - jnp.sum(self.log_variances, -1))

    def factors(self) -> Float[Array, "P M M"]:
        return jnp.exp(0.5 * self.log_variances)[:, None, :] * jnp.eye(self.mean.shape[-1], dtype=self.mean.dtype)

    def prepare(self, dtype: DTypeLike, rotation: Float[Array, "M M"] | None = None) -> PreparedPosterior:
        mean = rotated(self.mean, rotation)
        return PreparedDiagonal(*(x.astype(dtype) for x in (mean.T, jnp.exp(self.log_variances).T)))


class RotatedPosterior(DiagonalPosterior):
    """R_p = Q diag(√λ_p) with one orthogonal Q for all outputs: covariances that have their eigenvectors in common.

    Q = (I − A)(I + A)⁻¹ with the skew A = B − Bᵀ, B what is below the diagonal (Cayley). The prior N(0, I) is the same
    in all directions, so in rows Qᵀa(x), which cost what rows of a(x) cost, q is diagonal: a quadratic form of P
    outputs costs PM for each row, as if nothing were correlated. With one output it is any Gaussian, with as many
    parameters as `StructuredPosterior` has.
    """

    below: Float[Array, "M M"]

    @classmethod
    def prior(cls, n_outputs: int, n_inducing: int) -> RotatedPosterior:
        """The prior N(0, I)."""
        diagonal = DiagonalPosterior.prior(n_outputs, n_inducing)
        return cls(diagonal.mean, diagonal.log_variances, zeros(n_inducing, n_inducing))

    def rotation(self) -> Float[Array, "M M"]:
        return cayley(jnp.tril(self.below, -1))

    def factors(self) -> Float[Array, "P M M"]:
        return self.rotation() * jnp.exp(0.5 * self.log_variances)[:, None, :]

    def prepare(self, dtype: DTypeLike, rotation: Float[Array, "M M"] | None = None) -> PreparedPosterior:
        return super().prepare(dtype, self.rotation() if rotation is None else rotation)


def rotated(weights: Float[Array, "K M"], rotation: Float[Array, "M M"] | None) -> Float[Array, "K M"]:
    """Weights w of a(x) as those of Qᵀa(x), so that they give the same: (Qᵀw)ᵀ in rows."""
    return weights if rotation is None else weights @ rotation


POSTERIORS: dict[str, Any] = {
    "full": WhitenedPosterior,
    "structured": StructuredPosterior,
    "rotated": RotatedPosterior,
    "diagonal": DiagonalPosterior,
}


class PreparedPosterior(eqx.Module):
    """Means and quadratic forms of the factors, ready for rows of a(x)."""

    mean: eqx.AbstractVar[Float[Array, "M P"]]

    def means(self, a: Float[Array, "N M"]) -> Float[Array, "N P"]:
        """aᵀ m_p."""
        return rows_product(a, self.mean)

    @abc.abstractmethod
    def quadratics(self, a: Float[Array, "N M"]) -> Float[Array, "N P"]:
        """‖R_pᵀ a‖²; of full factors with derivatives in reverse mode alone."""


class PreparedStructured(PreparedPosterior):
    """Means, T and λ."""

    mean: Float[Array, "M P"]
    factor: Float[Array, "M M"]
    variances: Float[Array, "M P"]

    def quadratics(self, a: Float[Array, "N M"]) -> Float[Array, "N P"]:
        b = a @ self.factor
        return (b * b) @ self.variances  # of b * b the derivative keeps b; of b**2 it would keep 2 b too


class PreparedDiagonal(PreparedPosterior):
    """Means and λ."""

    mean: Float[Array, "M P"]
    variances: Float[Array, "M P"]

    def quadratics(self, a: Float[Array, "N M"]) -> Float[Array, "N P"]:
        return a**2 @ self.variances


class PreparedFull(PreparedPosterior):
    """Means, and the factors in blocks of columns (M − start, P, width)."""

    mean: Float[Array, "M P"]
    blocks: tuple[Float[Array, "_rows P _width"], ...]

    def quadratics(self, a: Float[Array, "N M"]) -> Float[Array, "N P"]:
        return quadratic_forms(a, self.blocks)


class PreparedWide(PreparedPosterior):
    """`PreparedFull` for accelerators: one product with all columns of all factors, the zeros above them too."""

    mean: Float[Array, "M P"]
    columns: Float[Array, "M PM"]

    def quadratics(self, a: Float[Array, "N M"]) -> Float[Array, "N P"]:
        return quadratic_forms_at_once(a, self.columns)


class PreparedMany(PreparedPosterior):
    """`PreparedFull` for many outputs: blocks (P, width, M − start), and products with rows on the last axis."""

    mean: Float[Array, "M P"]
    blocks: tuple[Float[Array, "P _width _rows"], ...]

    def quadratics(self, a: Float[Array, "N M"]) -> Float[Array, "N P"]:
        return quadratic_forms_of_many(a.T, self.blocks).T

    def as_squares(self) -> PreparedSquares:
        """The same for many rows and no derivative."""
        n_inducing, n_outputs = self.mean.shape
        lower = [jnp.pad(block, ((0, 0), (0, 0), (n_inducing - block.shape[2], 0))) for block in self.blocks]
        columns = jnp.concatenate(lower, axis=1)  # R_pᵀ
        S = jnp.swapaxes(columns, 1, 2) @ columns
        entries = []
        for start in range(0, n_inducing, PAIR_WIDTH):
            is_inside = np.arange(start, n_inducing) < start + PAIR_WIDTH
            part = S[:, start : start + PAIR_WIDTH, start:] * np.where(is_inside, 1.0, 2.0).astype(S.dtype)
            entries.append(unfused(part.reshape(n_outputs, -1).T))  # laid out as its shape says, whatever it came from
        return PreparedSquares(self.mean, tuple(entries))


class PreparedSquares(PreparedPosterior):
    """aᵀS_p a with S_p = R_p R_pᵀ: products of the entries of S_p with all a_i a_j, those with i < j taken once but for
    narrow blocks around the diagonal.

    Less arithmetic than `PreparedMany`, and nothing of the size N P M is written; the derivative would take more.
    """

    mean: Float[Array, "M P"]
    entries: tuple[Float[Array, "_pairs P"], ...]

    def quadratics(self, a: Float[Array, "N M"]) -> Float[Array, "N P"]:
        # By a product: a transpose would be left to each reading of a column, number by number.
        columns = jnp.eye(a.shape[1], dtype=a.dtype) @ a.T
        total = jnp.zeros((self.mean.shape[1], a.shape[0]), a.dtype)
        for i, entries in enumerate(self.entries):
            start = i * PAIR_WIDTH
            pairs = columns[start : start + PAIR_WIDTH, None] * columns[None, start:]
            total = total + entries.T @ pairs.reshape(-1, a.shape[0])
        return jnp.maximum(total, 0.0).T  # no sum of squares, so rounding may leave less


def for_prediction(prepared: PyTree, n_rows: int) -> PyTree:
    """Whatever holds prepared posteriors, for that many rows without a derivative, such as those of a forecast. S costs
    as much as M rows and what lays it out up to half of that again, which a gain of a quarter or more pays for from 4M
    on. The two forms agree to rounding, not to the last digit.
    """

    def is_many(part: Any) -> bool:
        return isinstance(part, PreparedMany)

    def chosen(part: Any) -> Any:
        return part.as_squares() if is_many(part) and n_rows >= ROWS_PAID * len(part.mean) else part

    return jax.tree.map(chosen, prepared, is_leaf=is_many)


# --- ‖Rᵀa‖² in blocks, with derivatives of their own ---------------------------------------------
#
# With t = Rᵀa and G the derivatives by the forms: ∂a = R u and ∂R = a uᵀ with u = 2 G t. These are the derivatives that
# JAX would find; written out, 2 G can be `unfused`, so that what led to G is not computed again for each number of t.
# The two functions are one derivation in two layouts: a change of one is a change of the other.


@jax.custom_vjp
def quadratic_forms(a: Float[Array, "N M"], blocks: tuple[Float[Array, "_rows P _width"], ...]) -> Float[Array, "N P"]:
    """‖R_pᵀ a‖² for rows of a, with the factors in blocks of columns without the zeros above them."""
    return _forms_forward(a, blocks)[0]


def _forms_forward(a: Array, blocks: Blocks) -> tuple[Array, tuple[Array, Blocks, list[Array]]]:
    (n, n_inducing), n_outputs = a.shape, blocks[0].shape[1]
    total, products = jnp.zeros((n, n_outputs), a.dtype), []
    for block in blocks:
        rows, _, width = block.shape
        product = (a[:, n_inducing - rows :] @ block.reshape(rows, -1)).reshape(n, n_outputs, width)
        total = total + jnp.sum(product * product, -1)
        products.append(product)
    return total, (a, blocks, products)


def _forms_backward(residuals: tuple[Array, Blocks, list[Array]], G: Float[Array, "N P"]) -> tuple[Array, Blocks]:
    a, blocks, products = residuals
    (n, n_inducing), scale = a.shape, unfused(G, 2.0)
    by_a, by_blocks = jnp.zeros_like(a), []
    for block, product in zip(blocks, products, strict=True):
        rows = len(block)
        start, u = n_inducing - rows, (product * scale[:, :, None]).reshape(n, -1)
        by_a = by_a + jnp.pad(u @ block.reshape(rows, -1).T, ((0, 0), (start, 0)))  # no kernel of its own on a GPU
        by_blocks.append((a[:, start:].T @ u).reshape(block.shape))
    return by_a, tuple(by_blocks)


quadratic_forms.defvjp(_forms_forward, _forms_backward)


@jax.custom_vjp
def quadratic_forms_of_many(
    columns: Float[Array, "M N"], blocks: tuple[Float[Array, "P _width _rows"], ...]
) -> Float[Array, "P N"]:
    """The same for columns of a and many outputs: what `quadratic_forms` does with rows first, with rows last."""
    return _many_forward(columns, blocks)[0]


def _many_forward(columns: Array, blocks: Blocks) -> tuple[Array, tuple[Array, Blocks, list[Array]]]:
    (n_inducing, n), n_outputs = columns.shape, len(blocks[0])
    total, products = jnp.zeros((n_outputs, n), columns.dtype), []
    for block in blocks:
        _, width, rows = block.shape
        product = (block.reshape(-1, rows) @ columns[n_inducing - rows :]).reshape(n_outputs, width, n)
        total = total + jnp.sum(product * product, 1)
        products.append(product)
    return total, (columns, blocks, products)


def _many_backward(residuals: tuple[Array, Blocks, list[Array]], G: Float[Array, "P N"]) -> tuple[Array, Blocks]:
    columns, blocks, products = residuals
    (n_inducing, n), scale = columns.shape, unfused(G.T, 2.0).T
    by_columns, by_blocks = jnp.zeros_like(columns), []
    for block, product in zip(blocks, products, strict=True):
        rows = block.shape[2]
        start, u = n_inducing - rows, (product * scale[:, None]).reshape(-1, n)
        by_columns = by_columns.at[start:].add(block.reshape(-1, rows).T @ u)
        by_blocks.append((u @ columns[start:].T).reshape(block.shape))
    return by_columns, tuple(by_blocks)


quadratic_forms_of_many.defvjp(_many_forward, _many_backward)


@jax.custom_vjp
def quadratic_forms_at_once(a: Float[Array, "N M"], columns: Float[Array, "M PM"]) -> Float[Array, "N P"]:
    """The same for accelerators, with the columns of all factors side by side and products of `FORM_PRECISION`."""
    return _at_once_forward(a, columns)[0]


def _at_once_forward(a: Array, columns: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    product = jnp.matmul(a, columns, precision=FORM_PRECISION)
    by_output = product.reshape(len(a), -1, a.shape[1])
    return jnp.sum(by_output * by_output, -1), (a, columns, product)


def _at_once_backward(residuals: tuple[Array, Array, Array], G: Float[Array, "N P"]) -> tuple[Array, Array]:
    a, columns, product = residuals
    u = product * jnp.repeat(2.0 * G, a.shape[1], axis=1)
    return jnp.matmul(u, columns.T, precision=GRADIENT_PRECISION), over_rows(a, u, GRADIENT_PRECISION)


quadratic_forms_at_once.defvjp(_at_once_forward, _at_once_backward)
