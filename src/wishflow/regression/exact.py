"""Exact GPs: kernel and noise that maximise the log marginal likelihood of the rows.

They are the fit of a sparse GP whose inducing points are all rows, and on a sample of the rows the start of other fits:
with many inputs the bound of a sparse GP leads from the usual start to noise alone, and no gradient leads back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jaxtyping import Array, Float, PyTree, Scalar

from ..errors import TrainingError
from ..kernels import AbstractKernel
from ..likelihoods import GaussianLikelihood
from ..numerics.devices import compiled, on_device
from ..numerics.linalg import cholesky, each, inverse_from_factor
from ..numerics.meshes import agreed, on_all
from ..numerics.parameters import Positive
from ..training.jitter import with_fresh_jitter
from ..training.journal import Journal
from ..training.loop import CONVERGED, REACHED, STOPPED
from ..training.phases import AbstractPhase, Outcome
from ..training.stacks import stacked, unstacked
from .batches import Batch, padded_batch
from .hyperprior import LOG_LENGTHSCALE, hyperprior_penalty, is_stationary
from .lbfgs import collapsed_end, minimise_on_host
from .sparse_gp import SparseGPModel

# Up to here the inducing points of a sparse GP are all distinct rows by default: where noise is small they predict far
# better than a few hundred that move, and take no longer. Time grows with N³.
EXACT_ROWS = 1500
# Beyond, as many inducing points as N M² allows, which is what an evaluation of the bound costs; at least `FEWEST`.
# This is 200 for 4,000 rows, at about twice the time of 100.
MOST_WORK = 1.6e8
FEWEST = 100
# A column of few values may ask for a lengthscale of zero, each value apart from the others. Squared distances over far
# shorter ones than this are rounding, and a matrix of them is not positive definite.
LEAST_LENGTHSCALE = 1e-4
# Rows of which a start is found: with 32 inputs of which 4 matter, a few hundred are needed to find them.
START_ROWS = 500
START_ITERATIONS = 100
# The longer of the two starting lengthscales, in units of √D: the mode of the prior, where functions are nearly linear.
LONG = float(np.exp(LOG_LENGTHSCALE))


def automatic_inducing(n_rows: int) -> int:
    """How many inducing points a sparse GP has by default, at most."""
    return EXACT_ROWS if n_rows <= EXACT_ROWS else max(FEWEST, int((MOST_WORK / n_rows) ** 0.5))


class ExactGP(eqx.Module):
    """Kernel and noise: all parameters of an exact GP."""

    kernel: AbstractKernel
    likelihood: GaussianLikelihood

    @classmethod
    def of(cls, model: SparseGPModel) -> ExactGP:
        """With the kernel and the noise of a sparse GP."""
        assert isinstance(model.likelihood, GaussianLikelihood)
        return cls(_with_floor(model.output.basis.kernel, LEAST_LENGTHSCALE), model.likelihood)

    def put_into(self, model: SparseGPModel) -> SparseGPModel:
        """The sparse GP with this kernel and this noise."""
        parts = jax.tree.leaves(model.output.basis.kernel, is_leaf=is_stationary)
        floor = next((part.lengthscale.floor for part in parts if is_stationary(part)), 0.0)
        kernel = _with_floor(self.kernel, floor)
        return eqx.tree_at(lambda m: (m.output.basis.kernel, m.likelihood), model, (kernel, self.likelihood))


def _with_floor(kernel: AbstractKernel, floor: float) -> AbstractKernel:
    """The kernel with another floor under its lengthscales."""

    def changed(part: Any) -> Any:
        if not is_stationary(part):
            return part
        return eqx.tree_at(lambda k: k.lengthscale, part, Positive.of(np.asarray(part.lengthscale.value), floor))

    return jax.tree.map(changed, kernel, is_leaf=is_stationary)


@jax.custom_vjp
def log_density_of_rows(
    K: Float[Array, "N N"], noise: Scalar, y: Float[Array, " N"], weights: Float[Array, " N"]
) -> Scalar:
    """log N(y; 0, K + σ²I) of the rows with weight 1, without −N/2 log 2π; the others have no part in it.

    The derivative by K + σ²I is ½ (ααᵀ − (K + σ²I)⁻¹), α = (K + σ²I)⁻¹ y.
    """
    return _forward(K, noise, y, weights)[0]


def _forward(
    K: Float[Array, "N N"], noise: Scalar, y: Float[Array, " N"], weights: Float[Array, " N"]
) -> tuple[Scalar, tuple[Array, Array, Array]]:
    # Rows of padding are independent of all others, with variance 1 and the value 0: they add log 1.
    both = weights[:, None] * weights
    L = cholesky(both * K + jnp.diag(noise * weights + 1.0 - weights))
    inverse = inverse_from_factor(L)[1]
    y = y * weights
    alpha = inverse @ y
    value = -0.5 * y @ alpha - jnp.sum(jnp.log(jnp.diagonal(L)))
    return value, (alpha, inverse, both)


def _backward(kept: tuple[Array, Array, Array], g: Scalar) -> tuple[Array, Array, None, None]:
    alpha, inverse, both = kept
    by_K = 0.5 * g * both * (alpha[:, None] * alpha - inverse)
    return by_K, jnp.sum(jnp.diagonal(by_K)), None, None


log_density_of_rows.defvjp(_forward, _backward)


def log_marginal_likelihood(gp: ExactGP, batch: Batch) -> Scalar:
    """log N(y_p; 0, K + σ²_p I), summed over outputs."""
    K = gp.kernel.matrix(batch.X, batch.X)
    noise = gp.likelihood.variance

    def one(output: tuple[Array, Array]) -> Scalar:
        y, noise = output
        return log_density_of_rows(K, noise, y, batch.weights)

    constant = 0.5 * batch.n_data * len(noise) * jnp.log(2.0 * jnp.pi)
    return jnp.sum(each(one, (batch.y.T, noise))) - constant


@compiled
def _value_and_grad(
    vector: Float[Array, " n"], gp: ExactGP, batch: Batch, prior: Scalar
) -> tuple[Scalar, Float[Array, " n"], Scalar]:
    """−log marginal likelihood / N with the prior, its gradient and the noise, at parameters as one vector."""

    def loss(vector: Float[Array, " n"]) -> tuple[Scalar, Scalar]:
        at = ravel_pytree(gp)[1](vector)
        value = prior * hyperprior_penalty(at.kernel, at.likelihood) - log_marginal_likelihood(at, batch)
        return value / batch.n_data, at.likelihood.noise_summary()

    (value, noise), gradient = jax.value_and_grad(loss, has_aux=True)(vector)
    return value, gradient, noise


def maximised(
    gp: ExactGP,
    batch: Batch,
    n_iter: int,
    on_chunk: Callable[[int, dict[str, np.ndarray]], bool],
    has_prior: bool = False,
) -> tuple[ExactGP, bool]:
    """The GP of highest marginal likelihood from a start, and whether L-BFGS converged."""
    prior = on_device(float(has_prior))

    def evaluate(vector: Array) -> tuple[Scalar, Array, Scalar]:
        return _value_and_grad(vector, gp, batch, prior)

    return minimise_on_host(evaluate, gp, float(batch.n_data), n_iter, on_chunk)


def sample_of(X: Float[np.ndarray, "N D"], y: Float[np.ndarray, "N P"], seed: int, mesh: Mesh | None) -> Batch:
    """At most `START_ROWS` rows, chosen at random."""
    rows = np.random.default_rng(seed).permutation(len(X))[:START_ROWS]
    return on_all(padded_batch(X[rows], y[rows]), mesh)


def best_of_starts(starts: Sequence[ExactGP], sample: Batch, n_iter: int) -> ExactGP:
    """The GP of highest posterior density of kernel and noise over the starts, each after L-BFGS on a sample; the first
    start itself where the likelihood of none can be computed.
    """
    best, highest = starts[0], -np.inf
    for start in starts:
        heights: list[float] = []

        def on_chunk(step: int, records: dict[str, np.ndarray], heights: list[float] = heights) -> bool:
            heights.append(records["objective"][-1])
            return False

        try:
            found, _ = maximised(start, sample, min(n_iter, START_ITERATIONS), on_chunk, has_prior=True)
        except TrainingError:  # not finite at this start
            continue
        if heights[-1] > highest:
            best, highest = found, heights[-1]
    return best


@dataclasses.dataclass(frozen=True)
class ExactPhase(AbstractPhase):
    """L-BFGS on the log marginal likelihood of all rows, then the best q: the whole fit of a sparse GP whose inducing
    points are the rows. Models have their turn one after another, each with a batch of its own.

    With `has_prior` the penalty of the hyperparameters is subtracted.
    """

    data: tuple[Batch, ...]
    n_iter: int
    mesh: Mesh | None = None
    has_prior: bool = False

    def run(self, models: PyTree, journal: Journal) -> Outcome:
        journal.begin(self.name, self.n_iter)
        ended = [self._run_one(i, m, journal) for i, m in enumerate(unstacked(models, self.n_models))]
        return Outcome(stacked([model for model, _ in ended]), tuple(status for _, status in ended))

    def _run_one(self, i: int, model: SparseGPModel, journal: Journal) -> tuple[SparseGPModel, str]:
        model, data, is_stopped = on_all(model, self.mesh), on_all(self.data[i], self.mesh), [False]
        is_open = np.arange(self.n_models) == i

        def on_chunk(step: int, records: dict[str, np.ndarray]) -> bool:
            n = len(records["objective"])
            shaped = {k: np.tile(v, (self.n_models, 1)) for k, v in records.items()} if self.n_models > 1 else records
            stop = journal.add(self.name, step, self.n_iter, shaped, n, self.is_bound, is_open)
            is_stopped[0] = bool(agreed(stop, self.mesh)[i])
            return is_stopped[0]

        gp, is_converged = maximised(ExactGP.of(model), data, self.n_iter, on_chunk, self.has_prior)
        status = CONVERGED if is_converged else STOPPED if is_stopped[0] else REACHED
        return collapsed_end(with_fresh_jitter(gp.put_into(model), 1), data), status
