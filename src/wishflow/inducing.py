"""Sparse Gaussian processes: inducing points Z, the whitened posterior q(v), marginals, KL and pathwise draws.

Notation: Lz = chol(k(Z, Z) + jitter), u = Lz v, q(v_p) = N(m_p, R_p R_pᵀ), a(x) = Lz⁻¹ k(Z, x).
The basis (kernel and Z) is apart from the posterior, so that drift and diffusion of one field share a(x).
"""

from __future__ import annotations

import abc
import functools
import itertools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .kernels import AbstractKernel, FeatureMap, FixedKernel
from .linalg import (
    FIRST_JITTER,
    cayley,
    cholesky,
    each,
    inverse_lower,
    known_whitener,
    lower_half,
    over_rows,
    together,
    whitener,
)
from .parameters import LowerTriangular, zeros
from .runtime import compiled, on_device

N_FEATURES = 512
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


class InducingBasis(eqx.Module):
    """Kernel, inducing locations and the jitter (relative to the kernel's scale) that Kzz is factorised with."""

    kernel: AbstractKernel
    Z: Float[Array, "M D"]
    jitter: Float[Array, ""]

    @classmethod
    def of(cls, kernel: AbstractKernel, Z: object, jitter: float = FIRST_JITTER) -> InducingBasis:
        Z = on_device(Z)
        # A Python number would be weakly typed, and a model read from arrays would then need programs of its own.
        return cls(kernel, Z, on_device(jitter, Z.dtype))

    @property
    def n_inducing(self) -> int:
        return self.Z.shape[0]

    def matrix(self) -> Float[Array, "M M"]:
        """Kzz + jitter · scale · I."""
        Kzz = self.kernel.matrix(self.Z, self.Z)
        jitter = jax.lax.stop_gradient(self.jitter) * self.kernel.scale
        return Kzz + jitter * jnp.eye(self.n_inducing, dtype=Kzz.dtype)

    def factor(self) -> Float[Array, "M M"]:
        """Lz, the Cholesky factor of `matrix`."""
        return cholesky(self.matrix())

    def whitener(self) -> Float[Array, "M M"]:
        """W = Lz⁻¹."""
        return whitener(self.matrix())

    def prepare(self, dtype: jnp.dtype | None = None, rotation: Float[Array, "M M"] | None = None) -> PreparedBasis:
        """Factorise Kzz once, in the precision of Z; the result works in `dtype` (that of Z by default).

        With a rotation Q rows are Qᵀa(x) instead of a(x): as good a whitening, (Lz Q)⁻¹ k(Z, x), at no cost for rows.
        """
        dtype = self.Z.dtype if dtype is None else dtype
        kernel, W = self.kernel.fixed(self.Z, dtype), self.whitener()
        W = W if rotation is None else rotation.T @ W
        return PreparedBasis(kernel, W.astype(dtype), (kernel.amplitude * W).astype(dtype))


class FactorisedBasis(InducingBasis):
    """A basis whose matrix and W were found before."""

    known_matrix: Float[Array, "M M"]
    known_whitener: Float[Array, "M M"]

    def matrix(self):
        return self.known_matrix

    def whitener(self):
        return known_whitener(self.known_matrix, self.known_whitener)


def factorised(
    bases: list[InducingBasis], factor: Float[Array, "M M"]
) -> tuple[list[InducingBasis], Float[Array, "M M"]]:
    """Bases of equal size that know their matrices and W, and the inverse of a lower triangular factor of that size:
    all factorisations in one call, and all inverses in another, for accelerators. The inverse has no derivative.
    """
    matrices = _matrices(bases)
    fixed, factor = jax.lax.stop_gradient((matrices, factor))
    *known, inverse = together(inverse_lower, jnp.concatenate([together(cholesky, fixed), factor[None]]))
    parts = zip(bases, matrices, known, strict=True)
    return [FactorisedBasis(b.kernel, b.Z, b.jitter, matrix, W) for b, matrix, W in parts], inverse


def _matrices(bases: list[InducingBasis]) -> Float[Array, "B M M"]:
    """The matrices of several bases, at once where their kernels are of one kind."""
    if len({jax.tree.structure(basis) for basis in bases}) > 1 or len({_shapes(basis) for basis in bases}) > 1:
        return jnp.stack([basis.matrix() for basis in bases])
    return jax.vmap(lambda basis: basis.matrix())(jax.tree.map(lambda *leaves: jnp.stack(leaves), *bases))


def _shapes(basis: InducingBasis) -> tuple[tuple[int, ...], ...]:
    return tuple(leaf.shape for leaf in jax.tree.leaves(basis))


class PreparedBasis(eqx.Module):
    """A factorised basis: what a(x) needs at every step of a path."""

    kernel: FixedKernel
    whitener: Float[Array, "M M"]
    projector: Float[Array, "M M"]

    @property
    def dtype(self) -> jnp.dtype:
        """What rows are to be given in."""
        return self.projector.dtype

    def project(self, X: Float[Array, "N D"]) -> Float[Array, "N M"]:
        """a(x)ᵀ in rows: k(X, Z) Lz⁻ᵀ. The amplitude of k is part of the projector, not of every row."""
        return self.kernel.matrix(X) @ self.projector.T

    def unexplained(self, X: Float[Array, "N D"], a: Float[Array, "N M"]) -> Float[Array, " N"]:
        """k(x, x) − aᵀa, the prior variance not explained by u; it must not go negative by rounding."""
        return jnp.maximum(self.kernel.diagonal(X) - jnp.sum(a * a, axis=-1), 0.0)


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


class JoinedPosterior(eqx.Module):
    """A basis and a posterior on it for accelerators, where few large products are faster than many small ones: a, Fᵀa
    and all means are linear in k(Z, x), so one product gives them all. R_p = F diag(√λ_p), F being T, Q or I.

    The columns of `product` are Lz⁻ᵀ (I, F, further weights, m), times the amplitude of k, and zeros up to a multiple
    of `N_LANES`. Where F is orthogonal Fᵀa is as long as a, and I is left out.
    """

    KINDS: ClassVar = (StructuredPosterior, RotatedPosterior, DiagonalPosterior)

    kernel: FixedKernel
    product: Float[Array, "M K"]
    variances: Float[Array, "M P"]
    n_further: int = eqx.field(static=True)
    is_orthogonal: bool = eqx.field(static=True)

    @classmethod
    def of(
        cls, basis: InducingBasis, posterior: Any, further: Float[Array, "D M"], dtype: jnp.dtype
    ) -> JoinedPosterior:
        """`further` are weights of a(x) beside those of the posterior, such as a drift's."""
        kernel, W = basis.kernel.fixed(basis.Z, dtype), basis.whitener()
        is_orthogonal = not isinstance(posterior, StructuredPosterior)
        F = posterior.rotation() if is_orthogonal else posterior.factor
        projector = kernel.amplitude.astype(W.dtype) * W.T
        weights = jnp.concatenate([further.T, posterior.mean.T], axis=1)
        if F is None:
            parts = [projector, projector @ weights]
        else:
            right = projector @ jnp.concatenate([F, weights], axis=1)
            parts = [right] if is_orthogonal else [projector, right]
        n_missing = -sum(part.shape[1] for part in parts) % N_LANES
        product = jnp.concatenate([*parts, jnp.zeros((len(W), n_missing), W.dtype)], axis=1)
        variances = jnp.exp(posterior.log_variances).T
        return cls(kernel, product.astype(dtype), variances.astype(dtype), len(further), is_orthogonal)

    def moments(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N D"], Float[Array, "N P"], Float[Array, "N P"]]:
        """The further means, the means and the variances of all outputs at the rows."""
        linear, explained, quadratics = joined_moments(
            self.kernel.matrix(X), self.product, self.variances, self.is_orthogonal
        )
        unexplained = jnp.maximum(self.kernel.diagonal(X) - explained, 0.0)
        further, means = jnp.split(linear[:, : self.n_further + quadratics.shape[1]], (self.n_further,), axis=1)
        return further, means, unexplained[:, None] + quadratics


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def joined_moments(
    K: Float[Array, "N M"], product: Float[Array, "M K"], variances: Float[Array, "M P"], is_orthogonal: bool
) -> tuple[Float[Array, "N L"], Float[Array, " N"], Float[Array, "N P"]]:
    """With (a, b, rest) = K product, a and b of M columns, or (a, rest) and b = a: the rest, ‖a‖² and b² λ.

    The derivative keeps K and that product, and takes two products for all three.
    """
    return _joined_forward(K, product, variances, is_orthogonal)[0]


def _cut(joined, n, is_orthogonal):
    """a, b and the rest."""
    start = 0 if is_orthogonal else n
    return joined[:, :n], joined[:, start : start + n], joined[:, start + n :]


def _joined_forward(K, product, variances, is_orthogonal):
    joined = K @ product
    a, b, rest = _cut(joined, K.shape[1], is_orthogonal)
    # A sum, not a product: b * b is then never written.
    quadratics = jnp.sum((b * b)[:, None] * variances.T, -1)
    return (rest, jnp.sum(a * a, -1), quadratics), (K, joined, product, variances)


def _joined_backward(is_orthogonal, residuals, cotangents):
    K, joined, product, variances = residuals
    linear, explained, quadratics = cotangents
    a, b, _ = _cut(joined, K.shape[1], is_orthogonal)
    by_a, by_b = 2.0 * a * explained[:, None], 2.0 * b * jnp.sum(quadratics[:, :, None] * variances.T, 1)
    inner = jnp.concatenate([by_a + by_b, linear] if is_orthogonal else [by_a, by_b, linear], axis=1)
    return inner @ product.T, over_rows(K, inner), over_rows(b * b, quadratics)


joined_moments.defvjp(_joined_forward, _joined_backward)


class SparseGP(eqx.Module):
    """A P-output sparse Gaussian process: one basis, one posterior for each output."""

    basis: InducingBasis
    posterior: WhitenedPosterior

    @classmethod
    def prior(cls, basis: InducingBasis, n_outputs: int) -> SparseGP:
        return cls(basis, WhitenedPosterior.prior(n_outputs, basis.n_inducing))

    def kl(self) -> Float[Array, " P"]:
        return self.posterior.kl()

    def conditioned(self) -> ConditionedGP:
        """Factorise Kzz once; the result gives marginals."""
        Q = self.posterior.rotation()
        return ConditionedGP(self.basis.prepare(rotation=Q), self.posterior.prepare(self.basis.Z.dtype, Q))

    def projected_marginals(
        self, X: Float[Array, "N D"]
    ) -> tuple[Float[Array, "N M"], Float[Array, "N P"], Float[Array, "N P"]]:
        """a(x), through which no derivative passes, and the marginals; with derivatives in reverse mode alone."""
        if self.posterior.mean.shape[0] > 1:
            gp = self.conditioned()
            a = gp.basis.project(X)
            return jax.lax.stop_gradient(a), *gp.marginals_at(X, a)
        kernel, q = self.basis.kernel.fixed(self.basis.Z, X.dtype), self.posterior
        Kzz, W = self.basis.matrix(), jax.lax.stop_gradient(self.basis.whitener())
        a, mean, variance = single_marginals(
            kernel.matrix(X), kernel.amplitude, kernel.diagonal(X), Kzz, W, q.mean[0], q.factors()[0]
        )
        return jax.lax.stop_gradient(a), mean[:, None], variance[:, None]


class ConditionedGP(eqx.Module):
    """A factorised sparse GP: marginals at any rows."""

    basis: PreparedBasis
    posterior: PreparedPosterior

    def marginals(self, X: Float[Array, "N D"]) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
        """Mean and variance of f(x) with u integrated out: aᵀm and k − aᵀa + ‖Rᵀa‖²."""
        return self.marginals_at(X, self.basis.project(X))

    def marginals_at(self, X: Float[Array, "N D"], a: Float[Array, "N M"]) -> tuple[Array, Array]:
        """The same, for rows whose a(x) is known."""
        variance = self.basis.unexplained(X, a)[:, None] + self.posterior.quadratics(a)
        return self.posterior.means(a), variance


@jax.custom_vjp
def single_marginals(
    K: Float[Array, "N M"],
    amplitude: Scalar,
    diagonal: Float[Array, " N"],
    Kzz: Float[Array, "M M"],
    W: Float[Array, "M M"],
    m: Float[Array, " M"],
    R: Float[Array, "M M"],
) -> tuple[Float[Array, "N M"], Float[Array, " N"], Float[Array, " N"]]:
    """a = s K Wᵀ in rows, s the amplitude and W = Lz⁻¹, the means a m and the variances k − aᵀa + aᵀSa of one output
    with S = RRᵀ.

    No derivative passes through a or W. With g and G the derivatives by means and variances and H = Σ_n G_n a_n a_nᵀ,
    those by what does not depend on rows need no more products with rows:

        ∂K = s A W with A = 2 G a(S − I) + g mᵀ,   ∂R = 2 H R,   ∂m = aᵀg,
        ∂s = tr B / s and ∂Kzz = −Wᵀ Φ(B) W with B = Aᵀa = 2(S − I)H + m ∂mᵀ,

    Φ as in `whitener` (∂W = s Aᵀ K = B Lzᵀ, and the Lzᵀ cancels). That makes four products of size N M² for value and
    derivatives, where the steps one by one take six.
    """
    return _single_forward(K, amplitude, diagonal, Kzz, W, m, R)[0]


def _single_forward(K, amplitude, diagonal, Kzz, W, m, R):
    S = R @ R.T
    a = K @ (amplitude * W).T
    t = a @ S
    variance = jnp.maximum(diagonal - jnp.sum(a * a, -1), 0.0) + jnp.sum(a * t, -1)
    return (a, a @ m, variance), (a, t, S, W, amplitude, m, R)


def _single_backward(residuals, cotangents):
    a, t, S, W, amplitude, m, R = residuals
    _, g, G = cotangents
    # Where k − aᵀa was cut off at zero, by rounding alone, its derivative passes through.
    A = 2.0 * G[:, None] * (t - a) + g[:, None] * m
    H, dm = a.T @ (G[:, None] * a), g @ a
    inner = 2.0 * (S @ H - H) + m[:, None] * dm
    by_Kzz = -W.T @ lower_half(inner) @ W
    return A @ (amplitude * W), jnp.trace(inner) / amplitude, G, by_Kzz, None, dm, 2.0 * H @ R


single_marginals.defvjp(_single_forward, _single_backward)


class PathwiseDraw(eqx.Module):
    """Functions drawn once and evaluated anywhere (Matheron's rule, Wilson et al. 2020).

    f(x) = φ(x)ᵀw + a(x)ᵀ (v − Lz⁻¹(Φ_Z w + √jitter ξ)),  v = m + Rε, one column for each output.
    """

    features: FeatureMap
    weights: Float[Array, "F P"]
    basis: PreparedBasis
    coefficients: Float[Array, "M P"]

    def __call__(self, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        return self.at(X, self.basis.project(X))

    def at(self, X: Float[Array, "N D"], a: Float[Array, "N M"]) -> Float[Array, "N P"]:
        """The values at rows whose a(x) is known."""
        return self.features(X) @ self.weights + a @ self.coefficients


def draw_pathwise(
    key: PRNGKeyArray,
    basis: InducingBasis,
    prepared: PreparedBasis,
    means: Float[Array, "P M"],
    factors: Float[Array, "P M M"],
) -> PathwiseDraw:
    """Draw P independent functions from the posterior q(v_p) = N(m_p, R_p R_pᵀ) on one basis.

    The random features are drawn afresh, so mean and covariance over draws are those of the posterior exactly.
    The prior is noisy at Z (√jitter ξ) because Lz is the factor of Kzz + jitter.
    """
    dtype = prepared.dtype
    n_outputs, n_inducing = means.shape
    k_features, k_weights, k_noise, k_v = jax.random.split(key, 4)
    features = basis.kernel.features(k_features, N_FEATURES)
    at_Z = features(basis.Z.astype(dtype))
    weights = jax.random.normal(k_weights, (at_Z.shape[-1], n_outputs), dtype)
    sd = jnp.sqrt(basis.jitter * basis.kernel.scale).astype(dtype)
    prior_at_Z = at_Z @ weights + sd * jax.random.normal(k_noise, (n_inducing, n_outputs), dtype)
    epsilon = jax.random.normal(k_v, (n_outputs, n_inducing), dtype)
    v = means.astype(dtype).T + jnp.einsum("pmk,pk->mp", factors.astype(dtype), epsilon)
    return PathwiseDraw(features, weights, prepared, v - prepared.whitener @ prior_at_Z)


def draw_jointly(key: PRNGKeyArray, gp: SparseGP, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
    """One draw of f at the rows of X from the joint posterior, by a dense factor: for kernels without features."""
    prepared = gp.basis.prepare()
    a = prepared.project(X)
    prior_part = gp.basis.kernel.matrix(X, X) - a @ a.T
    jitter = 1e-8 * gp.basis.kernel.scale * jnp.eye(X.shape[0], dtype=X.dtype)

    def one(q: tuple[Array, Array, Array]) -> Array:
        mean, sqrt, epsilon = q
        b = a @ sqrt
        return a @ mean + cholesky(prior_part + b @ b.T + jitter) @ epsilon

    epsilon = jax.random.normal(key, (gp.posterior.mean.shape[0], X.shape[0]), X.dtype)
    return each(one, (gp.posterior.mean, gp.posterior.factors(), epsilon)).T


@compiled
def _kernel_matrix(kernel: AbstractKernel, Z: Float[Array, "M D"]):
    return kernel.matrix(Z, Z), kernel.scale


def kernel_matrix_on_host(basis: InducingBasis) -> tuple[np.ndarray, float]:
    """Kzz and the kernel's scale as NumPy values, for the choice of jitter."""
    Kzz, scale = _kernel_matrix(basis.kernel, basis.Z)
    return np.asarray(Kzz), float(scale)
