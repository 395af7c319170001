"""What a regression model is: inputs are carried somewhere, a sparse GP predicts there, a likelihood observes."""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..errors import OptionError
from ..inducing import InducingBasis, SparseGP, draw_jointly, draw_pathwise
from ..likelihoods import AbstractLikelihood
from ..numerics.meshes import split_rows


class AbstractModel(eqx.Module):
    """An output GP, a likelihood, and the way inputs take to the output GP."""

    output: eqx.AbstractVar[SparseGP]
    likelihood: eqx.AbstractVar[AbstractLikelihood]

    @abc.abstractmethod
    def carry(self, X: Float[Array, "N D"], key: PRNGKeyArray, dtype: DTypeLike | None = None) -> Float[Array, "N D"]:
        """One sample of where the rows arrive; noise is independent between rows."""

    def carry_samples(
        self,
        X: Float[Array, "N D"],
        key: PRNGKeyArray,
        n_samples: int,
        dtype: DTypeLike | None = None,
        mesh: Mesh | None = None,
    ) -> Float[Array, "{n_samples}*N D"]:
        """`n_samples` samples of where the rows arrive, one after another, split over the devices of `mesh`.

        Noise is independent between rows, so samples are rows too: under `vmap` XLA would lay out and copy every array
        of a step anew.
        """
        first = jax.random.split(key, n_samples)[0]  # one sample is the same whatever the way it is asked for
        return split_rows(self.carry(split_rows(jnp.tile(X, (n_samples, 1)), mesh), first, dtype), mesh)

    @property
    @abc.abstractmethod
    def is_stochastic(self) -> bool:
        """Whether `carry` depends on its key."""

    @abc.abstractmethod
    def path_kl(self) -> dict[str, Scalar]:
        """Penalties of the way there, by name."""

    def bases(self) -> list[InducingBasis]:
        """The inducing bases, for the choice of their jitter."""
        return [self.output.basis]

    def noise_summary(self) -> Scalar:
        """One number for the observation noise."""
        return self.likelihood.noise_summary()

    @abc.abstractmethod
    def summary(self) -> dict[str, Scalar]:
        """Numbers worth watching."""


def n_components(model: AbstractModel, n_samples: int) -> int:
    """How many components the predictive mixture has."""
    return n_samples if model.is_stochastic else 1


def carry_shared(
    model: AbstractModel, X: Float[Array, "N D"], key: PRNGKeyArray, n_samples: int
) -> Float[Array, "S N D"]:
    """Samples of where the rows arrive, with the *same* noise for every row.

    Each row is carried on its own with one key, so its samples do not depend on the other rows: predicting one row or a
    thousand, in any order, gives the same numbers.
    """
    keys = jax.random.split(key, n_components(model, n_samples))
    return jax.vmap(lambda k: jax.vmap(lambda x: model.carry(x[None], k)[0])(X))(keys)


def output_components(
    model: AbstractModel, X: Float[Array, "N D"], key: PRNGKeyArray, n_samples: int
) -> tuple[Float[Array, "S N P"], Float[Array, "S N P"]]:
    """Means and variances of g at the rows: the components of the predictive mixture, equally weighted."""
    arrived = carry_shared(model, X, key, n_samples)
    gp = model.output.conditioned()
    means, variances = gp.marginals(arrived.reshape(-1, X.shape[-1]))
    shape = (*arrived.shape[:2], means.shape[-1])
    return means.reshape(shape), variances.reshape(shape)


def predictive_log_density(
    model: AbstractModel,
    X: Float[Array, "N D"],
    y: Float[Array, "N Q"],
    key: PRNGKeyArray,
    n_samples: int,
    mesh: Mesh | None = None,
) -> Float[Array, " N"]:
    """Log of the mean density of each row over paths of its own, joint over outputs."""
    n_samples = n_components(model, n_samples)
    k_path, k_density = jax.random.split(key)
    arrived = model.carry_samples(X, k_path, n_samples, mesh=mesh)
    means, variances = model.output.conditioned().marginals(arrived)
    shape = (n_samples, len(X), means.shape[-1])
    by_path = model.likelihood.predictive_log_density(y, means.reshape(shape), variances.reshape(shape), k_density)
    return jax.nn.logsumexp(by_path, axis=0) - jnp.log(n_samples)


def sample_outputs(model: AbstractModel, X: Float[Array, "N D"], key: PRNGKeyArray) -> Float[Array, "N P"]:
    """One joint draw of y at the rows: one function g for all of them, Brownian and observation noise of their own."""
    k_carry, k_g, k_y = jax.random.split(key, 3)
    return model.likelihood.sample(k_y, sample_latent(model.output, model.carry(X, k_carry), k_g))


def sample_latent(gp: SparseGP, X: Float[Array, "N D"], key: PRNGKeyArray) -> Float[Array, "N P"]:
    """One draw of the functions g at the rows: pathwise where the kernel has features, jointly by a dense factor
    elsewhere.
    """
    try:
        draw = draw_pathwise(key, gp.basis, gp.basis.prepare(), gp.posterior.mean, gp.posterior.factors())
    except OptionError:  # raised by kernels without random features, while tracing
        return draw_jointly(key, gp, X)
    return draw(X)
