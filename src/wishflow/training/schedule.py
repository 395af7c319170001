"""What changes from step to step: learning rate, natural-gradient step, weight of the KL terms."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import optax

from ..specs import TrainingSpec
from .chunk import CHUNK, Rates

LOWEST_NATURAL_SHARE = 0.1


def rate_shape(training: TrainingSpec, n_iter: int) -> Callable:
    """The learning rate as a share of its peak: linear warm-up, constant, then a cosine down to zero."""
    n_decay = round(training.decay * n_iter)
    n_warm = min(training.rate_warmup, n_iter - n_decay)
    parts, boundaries = [optax.constant_schedule(1.0)], []
    if n_warm:
        parts.insert(0, optax.linear_schedule(0.0, 1.0, n_warm))
        boundaries.append(n_warm)
    if n_decay:
        parts.append(optax.cosine_decay_schedule(1.0, n_decay))
        boundaries.append(n_iter - n_decay)
    return optax.join_schedules(parts, boundaries)


def decay_start(training: TrainingSpec, n_iter: int) -> int:
    """The position at which the rate starts to fall."""
    return n_iter - round(training.decay * n_iter)


def rates_from(training: TrainingSpec, peak: float | Callable, n_iter: int, positions: np.ndarray) -> Rates:
    """Rates for the steps at `positions` of the schedule, padded to the size of a chunk; past the end all rates are
    zero.

    `peak` is a number, or an optax schedule, which then replaces the shape of ours.
    """
    positions = np.pad(positions, (0, CHUNK - len(positions)), constant_values=n_iter)
    shape = np.asarray(rate_shape(training, n_iter)(jnp.asarray(positions)))
    adam = np.asarray(peak(jnp.asarray(positions))) if callable(peak) else peak * shape
    natural = (training.natural_rate or 0.0) * np.maximum(shape, LOWEST_NATURAL_SHARE)
    kl_weight = np.minimum(1.0, (positions + 1) / max(training.kl_warmup, 1))
    is_live = positions < n_iter
    return Rates(*(jnp.asarray(np.where(is_live, values, 0.0)) for values in (adam, natural, kl_weight)))
