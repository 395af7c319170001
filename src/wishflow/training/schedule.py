"""What changes from step to step: learning rate, natural-gradient step, weight of the KL terms."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Real

from ..numerics.devices import on_device
from .chunk import CHUNK, Rates
from .specs import TrainingSpec

LOWEST_NATURAL_SHARE = 0.1
PATIENCE = 5


def rate_shape(
    training: TrainingSpec, n_iter: int, positions: Real[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """The learning rate as a share of its peak: linear warm-up, constant, then a cosine down to zero.

    In NumPy: schedules of optax would be computed on the device, and an accelerator would wait for them at each chunk.
    """
    n_decay = round(training.decay * n_iter)
    n_warm = min(training.rate_warmup, n_iter - n_decay)
    shape = np.ones(positions.shape)
    if n_warm:
        shape = np.minimum(shape, positions / n_warm)
    if n_decay:
        falling = np.clip((positions - (n_iter - n_decay)) / n_decay, 0.0, 1.0)
        shape = np.minimum(shape, 0.5 * (1.0 + np.cos(np.pi * falling)))
    return shape


def decay_start(training: TrainingSpec, n_iter: int) -> int:
    """The position at which the rate starts to fall."""
    return n_iter - round(training.decay * n_iter)


def kl_weights(training: TrainingSpec, positions: Real[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The weight c of the KL terms: it rises to one over the first `kl_warmup` steps."""
    return np.minimum(1.0, (positions + 1) / max(training.kl_warmup, 1))


def rates_from(
    training: TrainingSpec,
    peak: float | Callable,
    n_iter: int,
    positions: Real[np.ndarray, "*models n"],
    share: Float[np.ndarray, " K"] | None = None,
) -> Rates:
    """Rates for the steps at `positions` of the schedule, padded to the size of a chunk; past the end all rates are
    zero.

    `peak` is a number, or an optax schedule, which then replaces the shape of ours. Of the
    rates of each model only a `share` may be taken.
    """
    padding = [(0, 0)] * (positions.ndim - 1) + [(0, CHUNK - positions.shape[-1])]
    positions = np.pad(positions, padding, constant_values=n_iter)
    shape = rate_shape(training, n_iter, positions)
    adam = np.asarray(peak(jnp.asarray(np.rint(positions).astype(int)))) if callable(peak) else peak * shape
    natural = (training.natural_rate or 0.0) * np.maximum(shape, LOWEST_NATURAL_SHARE)
    if share is not None and (share < 1.0).any():
        share = share[:, None] if positions.ndim > 1 else share
        adam, natural = adam * share, natural * share
    kl_weight = kl_weights(training, positions)
    is_live = positions < n_iter
    return Rates(*(on_device(np.where(is_live, values, 0.0)) for values in (adam, natural, kl_weight)))


class Watch(eqx.Module):
    """Of each of K models the best mean objective of a chunk so far, and the number of chunks without a better one."""

    best: Float[np.ndarray, " K"]
    stale: Int[np.ndarray, " K"]

    @classmethod
    def of(cls, n_models: int) -> Watch:
        return cls(np.full(n_models, -np.inf), np.zeros(n_models, int))

    def advanced(
        self,
        training: TrainingSpec,
        n_iter: int,
        n_rows: Real[np.ndarray, " K"],
        position: Float[np.ndarray, " K"],
        objective: Float[np.ndarray, " K"],
    ) -> tuple[Watch, Float[np.ndarray, " K"]]:
        """New positions in the schedule, given the mean objectives of the chunk that ended at `position`.

        A model is flat when its best chunk mean, once the KL terms have their full weight, has not risen by `tolerance`
        nats for each row over `PATIENCE` chunks. In the constant part it then jumps to the decay of the rate; in the
        decay it is done. A tolerance of zero switches this off.
        """
        is_watched = (position > training.kl_warmup) & (training.tolerance > 0)
        is_better = objective > self.best + training.tolerance * n_rows
        best = np.where(is_watched & is_better, objective, self.best)
        stale = np.where(is_watched & ~is_better, self.stale + 1, 0)
        is_flat = stale >= PATIENCE
        start = decay_start(training, n_iter)
        moved = np.where(is_flat, np.where(position < start, start, n_iter), position)
        return Watch(best, np.where(is_flat, 0, stale)), moved
