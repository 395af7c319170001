"""diffGP (Hegde et al. 2019): drift and diffusion are mean and variance of one Gaussian field f."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..errors import OptionError
from ..inducing import POSTERIORS, AbstractPosterior, InducingBasis, PreparedBasis, PreparedPosterior
from ..numerics.parameters import Positive
from .noise import AbstractNoise, NoiseValues, PreparedNoise
from .specs import GPDiffusion


class GPNoise(AbstractNoise):
    """q(v_f) = N(m, R Rᵀ) for each dimension: μ = ℓ aᵀm, Σ = diag(ℓ² (k − aᵀa + ‖Rᵀa‖²)); ℓ = 1 where there is none.

    The KL of f is counted once, with the drift; there is no separate term for Σ.
    """

    posterior: AbstractPosterior
    amplitude: Positive | None = None

    def kl(self) -> dict[str, Scalar]:
        return {"kl_drift": jnp.sum(self.posterior.kl())}

    def rotation(self) -> Float[Array, "M M"] | None:
        return self.posterior.rotation()

    def draw(self, key: PRNGKeyArray, basis: InducingBasis, prepared: PreparedBasis) -> PreparedNoise:
        raise OptionError(
            "sampling=\"pathwise\" is not available for the 'gp' diffusion, whose Σ is a posterior variance and "
            'cannot be drawn; use sampling="marginal", or diffusion="wishart".'
        )

    def summary(self) -> dict[str, Scalar]:
        return {"drift_norm": jnp.linalg.norm(self.posterior.mean)}

    def prepare(self, dtype: DTypeLike, rotation: Float[Array, "M M"] | None) -> PreparedNoise:
        amplitude = None if self.amplitude is None else self.amplitude.value.astype(dtype)
        return PreparedGPNoise(self.posterior.prepare(dtype, rotation), amplitude)


class PreparedGPNoise(PreparedNoise):
    """Prepared posterior and amplitudes."""

    posterior: PreparedPosterior
    amplitude: Float[Array, " D"] | None

    @property
    def n_normals(self) -> int | None:
        return 0

    @property
    def has_diagonal(self) -> bool:
        return True

    def at(self, inputs: Float[Array, "N K"], a: Float[Array, "N M"], unexplained: Float[Array, " N"]) -> NoiseValues:
        del inputs
        drift, variance = self.posterior.means(a), unexplained[:, None] + self.posterior.quadratics(a)
        if self.amplitude is not None:
            drift, variance = self.amplitude * drift, self.amplitude**2 * variance
        return NoiseValues.of_diagonal(variance, drift)

    def drift_weights(self) -> Float[Array, "M D"] | None:
        return self.posterior.mean if self.amplitude is None else self.posterior.mean * self.amplitude


def start(
    spec: GPDiffusion, basis: InducingBasis, dim: int, key: PRNGKeyArray, covariance: Float[np.ndarray, "D D"] | None
) -> tuple[GPNoise, Float[np.ndarray, "D D"]]:
    """f at its prior. Of a covariance to start from it explains half of the variances."""
    del key
    posterior = POSTERIORS[spec.posterior].prior(dim, basis.n_inducing)
    if covariance is None:
        return GPNoise(posterior), np.zeros((dim, dim))
    share = 0.5 * np.diagonal(covariance)
    return GPNoise(posterior, Positive.of(np.sqrt(share))), np.diag(share)
