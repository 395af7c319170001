"""Two classes, logistic link."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Num

from .base import AbstractLikelihood, check_all, check_columns, no_cdf, no_noise
from .quadrature import N_PREDICT_NODES, expectation, log_expectation
from .specs import Bernoulli


class BernoulliLikelihood(AbstractLikelihood):
    """Two classes, P(y_p = 1) = 1 / (1 + exp(−g_p)), y in {0, 1}.

    Integrals over g are found by Gauss–Hermite quadrature.

    Parameters
    ----------
    n_outputs : int
        Number P of target columns.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import likelihoods
    >>> likelihood = likelihoods.build("bernoulli", n_outputs=1)
    >>> round(float(likelihood.predictive_moments(jnp.zeros((1, 1)), jnp.ones((1, 1)))[0][0, 0]), 1)
    0.5
    """

    n_outputs: int = eqx.field(static=True)

    @classmethod
    def of(cls, spec: Bernoulli, n_outputs: int) -> BernoulliLikelihood:
        """Make the likelihood.

        Parameters
        ----------
        spec : Bernoulli
            The spec.
        n_outputs : int
            Number P of target columns.

        Returns
        -------
        BernoulliLikelihood
            The likelihood.
        """
        return cls(n_outputs)

    @property
    def n_latent(self) -> int:
        return self.n_outputs

    @property
    def scales_target(self) -> bool:
        return False

    def log_density(self, y: Num[Array, "*#batch Q"], g: Float[Array, "*#batch P"]) -> Float[Array, "*batch"]:
        return jnp.sum(bernoulli_log_density(g, y), -1)

    def expected_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
        n_draws: int = 8,
    ) -> Float[Array, "*batch"]:
        return jnp.sum(expectation(bernoulli_log_density, mean, variance, y), -1)

    def predictive_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "*batch"]:
        return jnp.sum(log_expectation(bernoulli_log_density, mean, variance, y), -1)

    def predictive_moments(
        self, mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"], key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "*batch P"], Float[Array, "*batch P"]]:
        """p = E σ(g) and p (1 − p), the second factor as E σ(−g) so that it keeps its digits near p = 1."""
        p = expectation(jax.nn.sigmoid, mean, variance, n_nodes=N_PREDICT_NODES)
        return p, p * expectation(jax.nn.sigmoid, -mean, variance, n_nodes=N_PREDICT_NODES)

    def predictive_cdf(
        self, y: Num[Array, "*#batch #P"], mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"]
    ) -> Float[Array, "*batch P"]:
        raise no_cdf("bernoulli")

    def sample(self, key: Key[Array, ""], g: Float[Array, "*batch P"]) -> Num[Array, "*batch Q"]:
        return jax.random.bernoulli(key, jax.nn.sigmoid(g)).astype(g.dtype)

    def noise_summary(self) -> Float[Array, ""]:
        return no_noise()

    def validate(self, y: np.ndarray) -> None:
        y = np.asarray(y)
        check_columns(y, self.n_outputs, "bernoulli")
        check_all((y == 0) | (y == 1), y, "0 or 1 in every entry: encode the two classes so")


def bernoulli_log_density(g: Float[Array, "*#shape"], y: Num[Array, "*#shape"]) -> Float[Array, "*shape"]:
    """log σ(g) where y = 1, log σ(−g) where y = 0, elementwise."""
    return jax.nn.log_sigmoid((2.0 * jnp.asarray(y, g.dtype) - 1.0) * g)
