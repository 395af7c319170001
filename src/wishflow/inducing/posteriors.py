"""q(v_p) = N(m_p, R_p R_pᵀ) for several outputs: the forms in which the R_p are held, and ‖R_pᵀa‖² for rows."""

from __future__ import annotations

import abc
import itertools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..linalg import cayley
from ..parameters import LowerTriangular, zeros

N_BLOCKS = 5
N_LANES = 4
SMALLEST_CUT = 64


def block_width(n_inducing: int, n_outputs: int) -> int:
    """How many columns of each factor are multiplied at once: about a fifth, about a half for one output, whose
    products would be too narrow; a multiple of `N_LANES`, the float32 lanes of a small vector register.
    """
    if n_inducing < SMALLEST_CUT:
        return n_inducing
    n_blocks = 2 if n_outputs == 1 else N_BLOCKS
    return -(-n_inducing // (n_blocks * N_LANES)) * N_LANES


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
    def prepare(self, dtype: jnp.dtype, rotation: Float[Array, "M M"] | None = None) -> PreparedPosterior:
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

    def kl(self):
        squares = jnp.sum(self.mean**2, -1) + jnp.sum(self.sqrt.value**2, (-2, -1))
        return 0.5 * (squares - self.mean.shape[-1]) - jnp.sum(self.sqrt.log_diagonal, -1)

    def factors(self):
        return self.sqrt.value

    def prepare(self, dtype, rotation=None):
        """Factors of all outputs side by side: one matrix product instead of P.

        R is lower triangular, so its columns are cut into blocks without the zeros above them: with five blocks the
        product costs 3/5 of the full one (with two, for one output, 3/4).
        """
        R, n_inducing = self.sqrt.value.astype(dtype), self.mean.shape[1]
        starts = range(0, n_inducing, block_width(n_inducing, len(R)))
        blocks = []
        for start, stop in itertools.pairwise((*starts, n_inducing)):
            blocks.append(jnp.moveaxis(R[:, start:, start:stop], 0, 1))
        return PreparedFull(self.mean.T.astype(dtype), tuple(blocks))


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

    def kl(self):
        trace = jnp.exp(self.log_variances) @ jnp.sum(self.factor**2, 0)
        squares = jnp.sum(self.mean**2, -1) + trace
        return 0.5 * (squares - self.mean.shape[-1] - jnp.sum(self.log_variances, -1))

    def factors(self):
        return self.factor * jnp.exp(0.5 * self.log_variances)[:, None, :]

    def prepare(self, dtype, rotation=None):
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

    def kl(self):
        squares = jnp.sum(self.mean**2, -1) + jnp.sum(jnp.exp(self.log_variances), -1)
        return 0.5 * (squares - self.mean.shape[-1] - jnp.sum(self.log_variances, -1))

    def factors(self):
        return jnp.exp(0.5 * self.log_variances)[:, None, :] * jnp.eye(self.mean.shape[-1], dtype=self.mean.dtype)

    def prepare(self, dtype, rotation=None):
        mean = turned(self.mean, rotation)
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

    def rotation(self):
        return cayley(jnp.tril(self.below, -1))

    def factors(self):
        return self.rotation() * jnp.exp(0.5 * self.log_variances)[:, None, :]

    def prepare(self, dtype, rotation=None):
        return super().prepare(dtype, self.rotation() if rotation is None else rotation)


def turned(weights: Float[Array, "K M"], rotation: Float[Array, "M M"] | None) -> Float[Array, "K M"]:
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
        return a @ self.mean

    @abc.abstractmethod
    def quadratics(self, a: Float[Array, "N M"]) -> Float[Array, "N P"]:
        """‖R_pᵀ a‖²."""


class PreparedStructured(PreparedPosterior):
    """Means, T and λ."""

    mean: Float[Array, "M P"]
    factor: Float[Array, "M M"]
    variances: Float[Array, "M P"]

    def quadratics(self, a):
        b = a @ self.factor
        return (b * b) @ self.variances  # of b * b the derivative keeps b; of b**2 it would keep 2 b too


class PreparedDiagonal(PreparedPosterior):
    """Means and λ."""

    mean: Float[Array, "M P"]
    variances: Float[Array, "M P"]

    def quadratics(self, a):
        return a**2 @ self.variances


class PreparedFull(PreparedPosterior):
    """Means, and the factors in blocks of columns (M − start, P, width)."""

    mean: Float[Array, "M P"]
    blocks: tuple[Float[Array, "_rows P _width"], ...]

    def quadratics(self, a):
        total = jnp.zeros((a.shape[0], self.mean.shape[1]), a.dtype)
        for block in self.blocks:
            rows, n_outputs, width = block.shape
            product = a[:, a.shape[1] - rows :] @ block.reshape(rows, n_outputs * width)
            total = total + jnp.sum(product.reshape(a.shape[0], n_outputs, width) ** 2, -1)
        return total
