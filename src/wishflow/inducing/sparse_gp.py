"""A sparse GP of several outputs: marginals and KL."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..numerics.linalg import lower_half
from .basis import InducingBasis, PreparedBasis
from .posteriors import AbstractPosterior, PreparedPosterior, WhitenedPosterior


class SparseGP(eqx.Module):
    """A P-output sparse Gaussian process: one basis, one posterior for each output."""

    basis: InducingBasis
    posterior: AbstractPosterior

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

    def means(self, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        """The means alone."""
        return self.posterior.means(self.basis.project(X))

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

    No derivative passes through a or W. With g and G the derivatives by means and variances, u = a(S − I)W in rows and
    H = Σ_n G_n a_n a_nᵀ,

        ∂K = s (2 G u + g mᵀW),   ∂R = 2 H R,   ∂m = aᵀg,
        ∂s = tr B / s and ∂Kzz = −Wᵀ Φ(B) W with B = 2(S − I)H + m ∂mᵀ,

    Φ as in `whitener` (∂W = s ∂aᵀ K = B Lzᵀ for B = ∂aᵀa, and the Lzᵀ cancels). In float64 the variances are found from
    u too, as k + uᵀ(s K): three products of size N M² for value and derivatives, where the steps one by one take six.
    That loses digits where W is large, but no more than a does. In float32 it may lose all of them: there are four, and
    no variance is below aᵀSa.
    """
    return _single_forward(K, amplitude, diagonal, Kzz, W, m, R)[0]


def _single_forward(
    K: Array, amplitude: Array, diagonal: Array, Kzz: Array, W: Array, m: Array, R: Array
) -> tuple[tuple[Array, Array, Array], tuple[Array, ...]]:
    S = R @ R.T
    a = K @ (amplitude * W).T
    if a.dtype == jnp.float64:
        product = a @ (S @ W - W)  # u
        # What is left of a variance below the rounding of k is anybody's guess, but it is positive.
        least = jnp.finfo(a.dtype).eps * diagonal
        variance = jnp.maximum(diagonal + amplitude * jnp.sum(product * K, -1), least)
    else:
        product = a @ S
        variance = jnp.maximum(diagonal - jnp.sum(a * a, -1), 0.0) + jnp.sum(a * product, -1)
    return (a, a @ m, variance), (a, product, S, W, amplitude, m, R, jnp.zeros((), K.dtype))


def _single_backward(residuals: tuple[Array, ...], cotangents: tuple[Array, Array, Array]) -> tuple[Array | None, ...]:
    a, product, S, W, amplitude, m, R, like_K = residuals
    _, g, G = cotangents
    # Where rounding was cut off the derivative passes through.
    if a.dtype == jnp.float64:
        by_K = (2.0 * amplitude * G)[:, None] * product + g[:, None] * (amplitude * (m @ W))
    else:
        by_K = (2.0 * G[:, None] * (product - a) + g[:, None] * m) @ (amplitude * W)
    H, dm = a.T @ (G[:, None] * a), g @ a
    inner = 2.0 * (S @ H - H) + m[:, None] * dm
    by_Kzz = -W.T @ lower_half(inner) @ W
    return by_K.astype(like_K.dtype), jnp.trace(inner) / amplitude, G, by_Kzz, None, dm, 2.0 * H @ R


single_marginals.defvjp(_single_forward, _single_backward)
