"""Fields of time series: dx = μ(x, lags, u) dt + √(Σ(x, u) + Λ(x, u)) dB (design, sections 1 and 4).

Rows of the input are (x, older lags, u). The kernel sees (x, u); older lags, and those covariates that are said to be,
enter the linear part of the drift only.
Three parts are put together: a drift (linear and GP), correlated noise (Wishart, GP or none) and white noise. The noise
of a step is Gaussian or Student-t.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from ..inducing import AbstractPosterior, InducingBasis, PreparedBasis, PreparedPosterior, turned
from ..parameters import AbstractParameter, Positive, Scaled
from ..specs import chosen_lags, memory_of, run_of
from .base import AbstractField, PreparedField
from .wishart import WishartValues

# |log(Λ/λ)| stays below this: an unbounded exponent explodes in long simulations.
WHITE_BOUND = 3.0
# How far a step of the optimiser moves a weight of the linear drift, against other parameters. Model files hold weights
# in units of these steps: who changes one of the four numbers changes `files.FORMAT_VERSION`.
LINEAR_STEP = 0.03
# From the lag after these on, weights of other series are held the smaller the older they are.
FULL_LAGS = 3
LAG_POWER = 5.0


class Layout(eqx.Module):
    """Where state, lags and covariates stand in a row: (x_t, x_{t−l+1} for the other lags l, u).

    A history is all rows back to the longest lag p, (x_t, x_{t−1}, …, x_{t−p+1}); of these a row of inputs has the
    chosen ones. The last `n_linear` covariates are for the linear drift alone.
    """

    dim: int = eqx.field(static=True)
    lags: tuple[int, ...] = eqx.field(static=True, converter=chosen_lags)
    n_covariates: int = eqx.field(static=True)
    n_linear: int = eqx.field(static=True, default=0)

    @property
    def memory(self) -> int:
        """The longest lag: the number of rows in a history."""
        return memory_of(self.lags)

    @property
    def n_run(self) -> int:
        """How many lags follow each other from the first one on."""
        return run_of(self.lags)

    @property
    def n_history(self) -> int:
        """Numbers in a history."""
        return self.dim * self.memory

    @property
    def n_lagged(self) -> int:
        """Numbers of a history that are inputs."""
        return self.dim * len(self.lags)

    @property
    def n_kernel_inputs(self) -> int:
        """Numbers that the kernel sees, and the noise."""
        return self.dim + self.n_covariates - self.n_linear

    def kernel_inputs(self, X: Float[Array, "N K"]) -> Float[Array, "N n_kernel_inputs"]:
        """(x, u), but for those u that are for the linear drift alone."""
        if len(self.lags) == 1:
            return X[:, : self.n_kernel_inputs] if self.n_linear else X
        covariates = X[:, self.n_lagged : self.n_lagged + self.n_covariates - self.n_linear]
        return jnp.concatenate([X[:, : self.dim], covariates], axis=-1)

    def chosen(self, history: Float[Array, "N pD"]) -> Float[Array, "N lD"]:
        """The rows of a history at the lags."""
        if self.n_run == self.memory:
            return history
        return jnp.concatenate([history[:, self.block(lag)] for lag in self.lags], axis=-1)

    def block(self, lag: int) -> slice:
        """Where a lag stands in a history."""
        return slice((lag - 1) * self.dim, lag * self.dim)

    def row(self, history: Float[Array, "N pD"], u: Float[Array, "N U"]) -> Float[Array, "N K"]:
        chosen = self.chosen(history)
        return jnp.concatenate([chosen, u], axis=-1) if self.n_covariates else chosen

    def shift(self, history: Float[Array, "N pD"], x: Float[Array, "N D"]) -> Float[Array, "N pD"]:
        """The history after a step to x."""
        return jnp.concatenate([x, history[:, : self.n_history - self.dim]], axis=-1)


# --- drift ---------------------------------------------------------------------------------------


def lag_penalty(dim: int, n_lags: int, n_inputs: int) -> Float[np.ndarray, "D K"]:
    """The precision that a prior gives each weight: max(1, i/3)⁵ for what *other* series were at the i-th lag, else 1.

    After the prior of Minnesota (Litterman 1986): most weights of a long regression belong to old rows of other series,
    and each of them hardly matters. The numbers are chosen on hourly series (docs/decisions.md).
    """
    penalty = np.ones((dim, n_inputs))
    for i in range(n_lags):
        growth = max(1.0, (i + 1) / FULL_LAGS) ** LAG_POWER
        penalty[:, i * dim : (i + 1) * dim] = np.where(np.eye(dim, dtype=bool), 1.0, growth)
    return penalty


class LinearDrift(eqx.Module):
    """W (x, lags, u) + b. W starts at a regression, and Adam must not shake it: it is held in `units` of its steps.

    A step is `LINEAR_STEP`/√penalty, so that weights which a prior holds small move by little.
    """

    units: Float[Array, "D K"]
    constant: Float[Array, " D"]
    n_lags: int = eqx.field(static=True, default=1)

    @classmethod
    def of(cls, weights: Float[Array, "D K"], constant: Float[Array, " D"], n_lags: int = 1) -> LinearDrift:
        weights = jnp.asarray(weights)
        return cls(weights / _linear_steps(weights, n_lags), jnp.asarray(constant), n_lags)

    @property
    def weights(self) -> Float[Array, "D K"]:
        return self.units * _linear_steps(self.units, self.n_lags)

    def __call__(self, X: Float[Array, "N K"]) -> Float[Array, "N D"]:
        return X @ self.weights.T.astype(X.dtype) + self.constant.astype(X.dtype)


def _linear_steps(weights: Float[Array, "D K"], n_lags: int) -> Float[np.ndarray, "D K"]:
    dim, n_inputs = weights.shape
    return LINEAR_STEP / np.sqrt(lag_penalty(dim, n_lags, n_inputs))


class GPDrift(eqx.Module):
    """amplitude · a(x)ᵀ m_f, with the log prior ½‖m_f‖²."""

    mean: Float[Array, "D M"]
    amplitude: Positive

    def weights(self) -> Float[Array, "D M"]:
        """What a(x) is multiplied by."""
        return self.mean * self.amplitude.value[:, None]


# --- noise ---------------------------------------------------------------------------------------


class AbstractNoise(eqx.Module):
    """The part of the noise that comes from Gaussian processes on the shared basis."""

    posterior: eqx.AbstractVar[AbstractPosterior]

    @abc.abstractmethod
    def kl(self) -> dict[str, Scalar]:
        """Its penalty by name."""

    @abc.abstractmethod
    def prepare(self, dtype: jnp.dtype, rotation: Float[Array, "M M"] | None) -> PreparedNoise:
        """Ready for rows of a(x), or of Qᵀa(x) with the rotation Q of the posterior."""


class PreparedNoise(eqx.Module):
    """Moments of the noise at rows."""

    @abc.abstractmethod
    def at(self, a: Float[Array, "N M"], unexplained: Float[Array, " N"]) -> NoiseValues:
        """Moments of J, its scale, what comes to the drift and to the diagonal."""


class NoiseValues(eqx.Module):
    """J's moments and L; `drift` and `diagonal` are what a noise adds to μ and Λ (None: nothing)."""

    means: Float[Array, "N rho cols"]
    variances: Float[Array, "N rho cols"]
    scale: Float[Array, "D rho"]
    dof: int = eqx.field(static=True)
    drift: Float[Array, "N D"] | None = None
    diagonal: Float[Array, "N D"] | None = None


class WishartNoise(AbstractNoise):
    """Σ = L J Jᵀ Lᵀ with a free L (D×ρ); columns of J independent or shared as in `WishartField`."""

    posterior: AbstractPosterior
    scale: AbstractParameter
    dof: int = eqx.field(static=True)
    has_shared_columns: bool = eqx.field(static=True)

    def kl(self):
        times = self.dof if self.has_shared_columns else 1
        return {"kl_diffusion": times * jnp.sum(self.posterior.kl())}

    def prepare(self, dtype, rotation):
        posterior = self.posterior.prepare(dtype, rotation)
        return PreparedWishartNoise(posterior, self.scale.value.astype(dtype), self.dof)


class PreparedWishartNoise(PreparedNoise):
    posterior: PreparedPosterior
    scale: Float[Array, "D rho"]
    dof: int = eqx.field(static=True)

    def at(self, a, unexplained):
        shape = (a.shape[0], self.scale.shape[1], -1)
        variances = unexplained[:, None] + self.posterior.quadratics(a)
        return NoiseValues(self.posterior.means(a).reshape(shape), variances.reshape(shape), self.scale, self.dof)


class GPNoise(AbstractNoise):
    """diffGP in dynamics: drift and Σ = diag(ℓ_d² s_d²(x)) are mean and variance of one field ℓ_d f_d."""

    posterior: AbstractPosterior
    amplitude: Positive

    def kl(self):
        return {"kl_drift": jnp.sum(self.posterior.kl())}

    def prepare(self, dtype, rotation):
        return PreparedGPNoise(self.posterior.prepare(dtype, rotation), self.amplitude.value.astype(dtype))


class PreparedGPNoise(PreparedNoise):
    posterior: PreparedPosterior
    amplitude: Float[Array, " D"]

    def at(self, a, unexplained):
        variance = unexplained[:, None] + self.posterior.quadratics(a)
        empty = jnp.zeros((a.shape[0], 0, 1), a.dtype)
        drift = self.amplitude * self.posterior.means(a)
        scale = jnp.zeros((len(self.amplitude), 0), a.dtype)
        return NoiseValues(empty, empty, scale, 0, drift, self.amplitude**2 * variance)


class WhiteNoise(eqx.Module):
    """Λ_d = λ_d exp(3 tanh(h_d/3)), h = C (x, u) + a(x)ᵀ m_h with penalty ½‖m_h‖² + ½‖C‖²; Λ = λ where h is absent."""

    base: Positive
    linear: Float[Array, "D K"] | None
    mean: Float[Array, "D M"] | None

    def kl(self) -> dict[str, Scalar]:
        if self.linear is None or self.mean is None:
            return {}
        return {"kl_white": 0.5 * (jnp.sum(self.linear**2) + jnp.sum(self.mean**2))}

    def turned(self, rotation: Float[Array, "M M"] | None) -> WhiteNoise:
        """The same for rows of Qᵀa(x)."""
        if self.mean is None or rotation is None:
            return self
        return WhiteNoise(self.base, self.linear, turned(self.mean, rotation))

    def at(self, inputs: Float[Array, "N K"], a: Float[Array, "N M"]) -> Float[Array, "N D"]:
        base = self.base.value.astype(inputs.dtype)
        if self.linear is None or self.mean is None:
            return jnp.broadcast_to(base, (inputs.shape[0], len(base)))
        h = inputs @ self.linear.T.astype(inputs.dtype) + a @ self.mean.T.astype(a.dtype)
        return base * jnp.exp(WHITE_BOUND * jnp.tanh(h / WHITE_BOUND))


# --- together ------------------------------------------------------------------------------------


class DynamicField(AbstractField):
    """Drift, noise and white noise on one basis; each of linear drift, GP drift and noise may be absent.

    `tail_dof` are the degrees of freedom of Student-t noise; None: it is Gaussian.
    """

    basis: InducingBasis
    linear: LinearDrift | None
    gp: GPDrift | None
    noise: AbstractNoise | None
    white: WhiteNoise
    layout: Layout
    tail_dof: Scaled | None = None

    def prepare(self, dtype=None):
        dtype = self.basis.Z.dtype if dtype is None else dtype
        Q = None if self.noise is None else self.noise.posterior.rotation()
        return PreparedDynamics(
            self.basis.prepare(dtype, Q),
            self.linear,
            None if self.gp is None else turned(self.gp.weights(), Q).T.astype(dtype),
            None if self.noise is None else self.noise.prepare(dtype, Q),
            self.white.turned(Q),
            self.layout,
            None if self.tail_dof is None else self.tail_dof.value.astype(dtype),
        )

    def kl(self):
        parts = {} if self.gp is None else {"kl_drift": 0.5 * jnp.sum(self.gp.mean**2)}
        for name, value in ({} if self.noise is None else self.noise.kl()).items():
            parts[name] = parts.get(name, 0.0) + value
        return {**parts, **self.white.kl()}

    def summary(self):
        found = {} if self.gp is None else {"drift_norm": jnp.linalg.norm(self.gp.mean)}
        if self.noise is not None:
            found["diffusion_norm"] = jnp.linalg.norm(self.noise.posterior.mean)
        return found if self.tail_dof is None else {**found, "tail_dof": self.tail_dof.value}


class PreparedDynamics(PreparedField):
    """A factorised `DynamicField`."""

    basis: PreparedBasis
    linear: LinearDrift | None
    gp_weights: Float[Array, "M D"] | None
    noise: PreparedNoise | None
    white: WhiteNoise
    layout: Layout
    tail_dof: Scalar | None = None

    def at(self, X: Float[Array, "N K"], t: Scalar | float = 0.0) -> WishartValues:
        del t  # time of day or year comes in as a covariate
        inputs = self.layout.kernel_inputs(X)
        a = self.basis.project(inputs)
        drift = jnp.zeros((X.shape[0], self.layout.dim), X.dtype) if self.linear is None else self.linear(X)
        if self.gp_weights is not None:
            drift = drift + a @ self.gp_weights
        white = self.white.at(inputs, a)
        if self.noise is None:
            empty = jnp.zeros((X.shape[0], 0, 1), X.dtype)
            return WishartValues(drift, empty, empty, jnp.zeros((self.layout.dim, 0), X.dtype), white, 0, self.tail_dof)
        noise = self.noise.at(a, self.basis.unexplained(inputs, a))
        drift = drift if noise.drift is None else drift + noise.drift
        white = white if noise.diagonal is None else white + noise.diagonal
        return WishartValues(drift, noise.means, noise.variances, noise.scale, white, noise.dof, self.tail_dof)

    def drift_jacobian(self, X: Float[Array, "N K"]) -> Float[Array, "N D lD"]:
        """∂μ/∂(x, lags): the linear weights, and the slope of the GP part along x alone.

        The GP part is k(x, Z)/s² c with a fixed c = s² Lz⁻ᵀ m, so its slope needs no product of the size M².
        """
        D, n_lagged = self.layout.dim, self.layout.n_lagged
        shape = (X.shape[0], D, n_lagged)
        weights = jnp.zeros((D, n_lagged)) if self.linear is None else self.linear.weights[:, :n_lagged]
        jacobian = jnp.broadcast_to(weights.astype(X.dtype), shape)
        coefficients = self._kernel_coefficients()
        if coefficients is None:
            return jacobian
        inputs = self.layout.kernel_inputs(X)

        def gp_part(row):
            return (self.basis.kernel.matrix(row[None]) @ coefficients)[0]

        slope = jax.vmap(jax.jacfwd(gp_part))(inputs)[..., :D]
        return jacobian.at[..., :D].add(slope)

    def _kernel_coefficients(self) -> Float[Array, "M D"] | None:
        """c with GP drift(x) = k(x, Z) c / s²; the drift of a `GPNoise` counts too."""
        total = self.gp_weights
        if isinstance(self.noise, PreparedGPNoise):
            of_noise = self.noise.posterior.mean * self.noise.amplitude
            total = of_noise if total is None else total + of_noise
        return None if total is None else self.basis.projector.T @ total
