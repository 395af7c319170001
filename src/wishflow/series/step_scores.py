"""Scores of single steps under a mixture of models: log densities, and errors over predicted deviations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.special
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..numerics.devices import compiled, computing, random_key
from ..numerics.linalg import low_rank_log_density
from .autoregressive import DynamicsModel
from .batches import TransitionBatch, series_batch
from .data.units import Tail, Units
from .running.base import AbstractRunner
from .windows import Transitions, cut

N_DRAWS = 16


@compiled
def _moments(
    model: DynamicsModel, batch: TransitionBatch, key: PRNGKeyArray, n: int
) -> tuple[Float[Array, " N"], Float[Array, "N D"], Float[Array, "N D"]]:
    """Log density as a mixture over n draws of J, mean and variance of each increment."""
    here, h = model.field.in_parts().at(batch.X), batch.h[:, None]
    white = here.white_over(h)

    def one(k: PRNGKeyArray) -> Float[Array, " N"]:
        factor = jnp.sqrt(h)[..., None] * here.factor(k)
        return low_rank_log_density(batch.increment - h * here.drift, factor, white, here.tails)

    # All draws at once: one after another each of them is a program of a few rows.
    densities = logsumexp(jax.vmap(one)(jax.random.split(key, n)), axis=0) - jnp.log(n)
    variance = h * jnp.diagonal(here.mean_covariance(), axis1=1, axis2=2) + white - h * here.white
    return densities, h * here.drift, variance


def step_scores(
    models: Sequence[DynamicsModel], weights: Float[np.ndarray, " K"], steps: Transitions, seed: int
) -> Float[np.ndarray, "N J"]:
    """Scores of complete steps under a mixture, in model units: log density, then (y − mean)/deviation by column.

    Parameters
    ----------
    models : sequence of DynamicsModel
        The members.
    weights : ndarray of shape (K,)
        Their weights.
    steps : Transitions
        N steps.
    seed : int
        For draws of J.

    Returns
    -------
    ndarray of shape (N, 1 + D)
        One row for each step.
    """
    n = len(steps)
    if not n:
        return np.zeros((0, 1 + steps.increment.shape[1]))
    with computing():
        batch = series_batch(steps, None).transitions
        assert batch is not None
        found = [[np.asarray(a)[:n] for a in _moments(model, batch, random_key(seed), N_DRAWS)] for model in models]
    densities, means, variances = (np.stack(parts) for parts in zip(*found, strict=True))
    w = weights[:, None, None]
    mean = (w * means).sum(0)
    variance = (w * (variances + means**2)).sum(0) - mean**2
    joint = scipy.special.logsumexp(densities + np.log(weights)[:, None], axis=0)
    return np.column_stack([joint, (steps.increment - mean) / np.sqrt(np.maximum(variance, 1e-300))])


def row_scores(
    units: Units, runner: AbstractRunner, tails: Mapping[Any, Tail], seed: int
) -> dict[Any, Float[np.ndarray, " _rows"]]:
    """Log densities of all rows given those before them, in the units of y.

    Series one by one: the draws of J, and so the scores, are those of each series alone.
    """
    found = {}
    for key, tail in tails.items():
        own = units.of_series(key)
        result = runner.row_log_density(own.ticks(tail), len(tail.index), seed)
        found[key] = result + own.log_jacobian(own.inverse(tail.values))
    return found


def new_steps(units: Units, tails: Mapping[Any, Tail], ends: Mapping[Any, pd.Index]) -> Transitions | None:
    """Complete steps to rows after the ends known so far (`ends`: the last stamp of each series, as an index); None
    where no series has an entry.
    """
    found = []
    for key, tail in tails.items():
        ticks = units.ticks(tail)
        if not ticks:
            continue
        steps = cut(ticks, units.lags)[0]
        is_new = tail.index[steps.row] > ends[key][-1] if key in ends else np.ones(len(steps), bool)
        found.append(_some(steps, np.asarray(is_new)))
    if not found:
        return None
    return Transitions(*(np.concatenate([getattr(part, name) for part in found]) for name in vars(found[0])))


def last_steps(
    steps: Transitions, is_held: Bool[np.ndarray, " N"], ages: Int[np.ndarray, " N"], most: int
) -> Transitions:
    """At most so many of the held-back steps, the latest of all series alike; `ages` count steps from their ends."""
    at = np.flatnonzero(is_held)
    keep = np.zeros(len(is_held), bool)
    keep[at[np.argsort(ages[at], kind="stable")[:most]]] = True
    return _some(steps, keep)


def _some(steps: Transitions, keep: np.ndarray) -> Transitions:
    return Transitions(*(value[keep] for value in vars(steps).values()))


def counted_once(scores: Float[np.ndarray, " N"], at: Int[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """The score of each step at the last of its rows, NaN at the others, so that a sum counts it once."""
    return np.where(np.append(at[1:] == at[:-1], False), np.nan, scores)
