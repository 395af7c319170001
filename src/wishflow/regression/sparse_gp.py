"""SGP: a sparse GP on the inputs themselves."""

from __future__ import annotations

import dataclasses

from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .. import kernels, likelihoods
from ..inducing import InducingBasis, SparseGP
from ..likelihoods import AbstractLikelihood, Gaussian, LikelihoodSpec
from ..numerics.devices import on_device
from ..training.specs import TrainingSpec
from .models import AbstractModel
from .specs import SparseGPSpec


class SparseGPModel(AbstractModel):
    """y ~ p(y | g(x)), g a sparse GP."""

    output: SparseGP
    likelihood: AbstractLikelihood

    def carry(self, X: Float[Array, "N D"], key: PRNGKeyArray, dtype: DTypeLike | None = None) -> Float[Array, "N D"]:
        del key, dtype
        return X

    @property
    def is_stochastic(self) -> bool:
        return False

    def path_kl(self) -> dict[str, Scalar]:
        return {}

    def summary(self) -> dict[str, Scalar]:
        return {}


def build(spec: SparseGPSpec, training: TrainingSpec, Z: object, n_outputs: int) -> SparseGPModel:
    """The model at its starting values, q(v) at the prior."""
    Z = on_device(Z)
    kernel = kernels.build(
        spec.kernel, Z.shape[1], variance=training.output_variance, lengthscale=training.output_lengthscale
    )
    likelihood = likelihoods.build(_with_noise(spec.likelihood, training.noise_variance), n_outputs)
    return SparseGPModel(SparseGP.prior(InducingBasis.of(kernel, Z), likelihood.n_latent), likelihood)


def _with_noise(spec: LikelihoodSpec, variance: float) -> LikelihoodSpec:
    """A Gaussian likelihood without a starting value of its own takes the one of the training settings."""
    if isinstance(spec, Gaussian) and spec.variance is None:
        return dataclasses.replace(spec, variance=variance)
    return spec
