"""Counts, exponential link."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, Num

from ..errors import OptionError
from .base import AbstractLikelihood, check_all, check_columns, no_noise
from .gaussian import normal_cdf
from .quadrature import N_PREDICT_NODES, expectation, log_expectation, log_gamma_rule, safe_sqrt
from .specs import Poisson

LOG_RATE_CAP = 40.0
"""Rates beyond exp(40), more than any count a double can hold exactly, grow linearly: gradients stay finite."""


class PoissonLikelihood(AbstractLikelihood):
    """Counts, y_p ~ Poisson(exp(o_p + g_p)) with fixed log rates o.

    Parameters
    ----------
    n_outputs : int
        Number P of target columns.
    log_rate : Array of shape (P,), optional
        The log rates o. None: zero (as in model files from before there were any). They are an array, not part of the
        program: fits to other counts use the same compiled code.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import likelihoods
    >>> likelihood = likelihoods.build(likelihoods.Poisson(log_rate=0.0), n_outputs=1)
    >>> mean, variance = likelihood.predictive_moments(jnp.zeros((1, 1)), jnp.zeros((1, 1)))
    >>> round(float(mean[0, 0]), 1), round(float(variance[0, 0]), 1)
    (1.0, 1.0)
    """

    n_outputs: int = eqx.field(static=True)
    log_rate: Float[Array, " P"] | None = None  # o

    @classmethod
    def of(cls, spec: Poisson, n_outputs: int) -> PoissonLikelihood:
        """Make the likelihood.

        Parameters
        ----------
        spec : Poisson
            The spec.
        n_outputs : int
            Number P of target columns.

        Returns
        -------
        PoissonLikelihood
            The likelihood.

        Raises
        ------
        OptionError
            If `log_rate` is not finite, or not one number for each column.
        """
        if spec.log_rate is None:
            return cls(n_outputs)
        log_rate = np.asarray(spec.log_rate, float)
        if log_rate.shape not in ((), (n_outputs,)) or not np.isfinite(log_rate).all():
            raise OptionError(
                f"log_rate={spec.log_rate!r} given to the Poisson likelihood of {n_outputs} target columns; expected a "
                "finite number, a tuple of one for each column, or None."
            )
        return cls(n_outputs, jnp.asarray(np.broadcast_to(log_rate, (n_outputs,))))

    def _log_rates(self, g: Float[Array, "*batch P"]) -> Float[Array, "*batch P"]:
        """o + g; no gradient reaches o, so that Adam leaves it where it is."""
        return g if self.log_rate is None else g + jax.lax.stop_gradient(self.log_rate).astype(g.dtype)

    @property
    def n_latent(self) -> int:
        return self.n_outputs

    @property
    def is_damped(self) -> bool:
        return True

    @property
    def scales_target(self) -> bool:
        return False

    def log_density(self, y: Num[Array, "*#batch Q"], g: Float[Array, "*#batch P"]) -> Float[Array, "*batch"]:
        return jnp.sum(poisson_log_density(self._log_rates(g), y), -1)

    def expected_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
        n_draws: int = 8,
    ) -> Float[Array, "*batch"]:
        """y mean − exp(mean + ½ variance) − log y!, here and below with o + mean for the mean."""
        y, mean = jnp.asarray(y, mean.dtype), self._log_rates(mean)
        terms = y * mean - bounded_exp(mean + 0.5 * variance) - jax.scipy.special.gammaln(y + 1.0)
        return jnp.sum(terms, -1)

    def predictive_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "*batch"]:
        """Gauss–Hermite about the mode of p(y | g) N(g; mean, variance): a large count pins g far below √variance."""
        mean = self._log_rates(mean)
        centre, width = posterior_location(y, mean, variance)
        log_p = log_expectation(poisson_log_density, mean, variance, y, centre=centre, width=width)
        return jnp.sum(log_p, -1)

    def predictive_moments(
        self, mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"], key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "*batch P"], Float[Array, "*batch P"]]:
        """E y = r = exp(mean + ½ variance), Var y = r + r² (exp(variance) − 1)."""
        rate = bounded_exp(self._log_rates(mean) + 0.5 * variance)
        return rate, rate + rate**2 * jnp.expm1(variance)

    def predictive_cdf(
        self, y: Num[Array, "*#batch #P"], mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"]
    ) -> Float[Array, "*batch P"]:
        """P(Y ≤ y) = E Q(a, exp(g)) = E Φ((log T − mean) / √variance), a = ⌊y⌋ + 1, T ~ Gamma(a, 1).

        The first integrand is smooth on the scale of g's law while variance ≤ 1/a, the second on that of log T beyond.
        """
        mean = self._log_rates(mean)
        count = jnp.floor(jnp.asarray(y, mean.dtype))
        a = jnp.maximum(count, 0.0) + 1.0
        narrow = expectation(_survival_of_gamma, mean, variance, a, n_nodes=N_PREDICT_NODES)
        log_t, log_weights = log_gamma_rule(a)
        log_t = log_t + jnp.log(a)[..., None]
        parts = normal_cdf(log_t, mean[..., None], safe_sqrt(variance)[..., None] ** 2)
        wide = jnp.sum(jnp.exp(log_weights) * parts, -1)
        return jnp.where(count < 0, 0.0, jnp.where(variance * a > 1.0, wide, narrow))

    def sample(self, key: Key[Array, ""], g: Float[Array, "*batch P"]) -> Num[Array, "*batch Q"]:
        return jax.random.poisson(key, bounded_exp(self._log_rates(g))).astype(g.dtype)

    def noise_summary(self) -> Float[Array, ""]:
        return no_noise()

    def validate(self, y: np.ndarray) -> None:
        y = np.asarray(y)
        check_columns(y, self.n_outputs, "poisson")
        check_all((y >= 0) & (y == np.floor(y)), y, "non-negative whole numbers, as counts are")


def bounded_exp(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """exp(x), continued by its tangent above the cap so that value and slope stay finite and keep their sign."""
    low = jnp.minimum(x, LOG_RATE_CAP)
    return jnp.exp(low) * (1.0 + jnp.maximum(x - LOG_RATE_CAP, 0.0))


def poisson_log_density(g: Float[Array, "*#shape"], y: Num[Array, "*#shape"]) -> Float[Array, "*shape"]:
    """y g − exp(g) − log y!, elementwise."""
    y = jnp.asarray(y, g.dtype)
    return y * g - bounded_exp(g) - jax.scipy.special.gammaln(y + 1.0)


def _survival_of_gamma(g: Float[Array, "*#shape"], a: Float[Array, "*#shape"]) -> Float[Array, "*shape"]:
    """Q(a, exp(g)) = P(T > exp(g)), T ~ Gamma(a, 1)."""
    return jax.scipy.special.gammaincc(a, bounded_exp(g))


def posterior_location(
    y: Num[Array, "*#shape"], mean: Float[Array, "*#shape"], variance: Float[Array, "*#shape"], n_newton: int = 40
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Mode and width of t given y, where g = mean + √v t: the root of F(d) = d + v exp(mean + d) − v y for d = √v t.

    F is convex and increasing, and d = max(0, log y − mean) has F ≥ 0, so Newton's method comes down monotonically.
    Where it is cut short the rule is less sharp, not wrong; the integral does not depend on them: no gradient.
    """
    y, mean, variance = jax.lax.stop_gradient((jnp.asarray(y, mean.dtype), mean, variance))
    root = safe_sqrt(variance)
    v = root**2

    def newton(_: Int[Array, ""], d: Array) -> Array:
        pull = v * bounded_exp(mean + d)
        return d - (d + pull - v * y) / (1.0 + pull)

    start = jnp.maximum(jnp.log(jnp.maximum(y, 1.0)) - mean, 0.0)
    shape = jnp.broadcast_shapes(y.shape, v.shape, mean.shape)
    d = jax.lax.fori_loop(0, n_newton, newton, jnp.broadcast_to(start, shape))
    return d / root, jnp.sqrt(1.0 / (1.0 + v * bounded_exp(mean + d)))
