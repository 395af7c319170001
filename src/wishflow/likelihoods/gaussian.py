"""Normal observation noise: everything in closed form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Num

from ..numerics.parameters import Positive
from .base import AbstractLikelihood, check_columns, require_positive
from .specs import Gaussian

DEFAULT_VARIANCE = 0.01
VARIANCE_FLOOR = 1e-8


class GaussianLikelihood(AbstractLikelihood):
    """Normal noise, y_p = g_p + ε_p with ε_p ~ N(0, σ²_p); everything in closed form.

    Parameters
    ----------
    noise : Positive
        The variances σ², of shape (P,).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import likelihoods
    >>> likelihood = likelihoods.build(likelihoods.Gaussian(variance=1.0), n_outputs=1)
    >>> mean, variance = likelihood.predictive_moments(jnp.zeros((3, 1)), jnp.ones((3, 1)))
    >>> [round(float(v), 1) for v in variance[:, 0]]
    [2.0, 2.0, 2.0]
    """

    noise: Positive  # σ², (P,)

    @classmethod
    def of(cls, spec: Gaussian, n_outputs: int) -> GaussianLikelihood:
        """Make the likelihood, with the same starting σ² for each output.

        Parameters
        ----------
        spec : Gaussian
            The spec.
        n_outputs : int
            Number P of target columns.

        Returns
        -------
        GaussianLikelihood
            The likelihood.
        """
        variance = DEFAULT_VARIANCE if spec.variance is None else require_positive("variance", spec.variance)
        return cls(Positive.of(np.full(n_outputs, variance), VARIANCE_FLOOR))

    @property
    def n_latent(self) -> int:
        return self.noise.raw.shape[-1]

    @property
    def scales_target(self) -> bool:
        return True

    @property
    def variance(self) -> Float[Array, " P"]:
        """The noise variances σ²."""
        return self.noise.value

    def log_density(self, y: Num[Array, "*#batch Q"], g: Float[Array, "*#batch P"]) -> Float[Array, "*batch"]:
        return jnp.sum(normal_log_density(y, g, self.variance.astype(g.dtype)), -1)

    def expected_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
        n_draws: int = 8,
    ) -> Float[Array, "*batch"]:
        """log N(y; mean, σ²) − ½ variance / σ²."""
        noise = self.variance.astype(mean.dtype)
        return jnp.sum(normal_log_density(y, mean, noise) - 0.5 * variance / noise, -1)

    def predictive_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "*batch"]:
        """log N(y; mean, variance + σ²)."""
        return jnp.sum(normal_log_density(y, mean, variance + self.variance.astype(mean.dtype)), -1)

    def predictive_moments(
        self, mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"], key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "*batch P"], Float[Array, "*batch P"]]:
        return mean, variance + self.variance.astype(mean.dtype)

    def predictive_cdf(
        self, y: Num[Array, "*#batch #P"], mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"]
    ) -> Float[Array, "*batch P"]:
        return normal_cdf(y, mean, variance + self.variance.astype(mean.dtype))

    def sample(self, key: Key[Array, ""], g: Float[Array, "*batch P"]) -> Num[Array, "*batch Q"]:
        return g + jnp.sqrt(self.variance.astype(g.dtype)) * jax.random.normal(key, g.shape, g.dtype)

    def noise_summary(self) -> Float[Array, ""]:
        return jnp.mean(self.variance)

    def validate(self, y: np.ndarray) -> None:
        check_columns(np.asarray(y), self.n_latent, "gaussian")


def normal_log_density(
    y: Float[Array, "*#shape"], mean: Float[Array, "*#shape"], variance: Float[Array, "*#shape"]
) -> Float[Array, "*shape"]:
    """log N(y; mean, variance), elementwise, in the dtype of `mean`."""
    residual = jnp.asarray(y, mean.dtype) - mean
    return -0.5 * (jnp.log(2.0 * jnp.pi * variance) + residual**2 / variance)


def normal_cdf(
    y: Float[Array, "*#shape"], mean: Float[Array, "*#shape"], variance: Float[Array, "*#shape"]
) -> Float[Array, "*shape"]:
    """Φ((y − mean) / √variance), elementwise, in the dtype of `mean`."""
    return jax.scipy.special.ndtr((jnp.asarray(y, mean.dtype) - mean) / jnp.sqrt(variance))
