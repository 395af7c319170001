"""Rows held back from training at the end of series: parts, origins of forecasts, single steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ..errors import DataError
from ..numerics.devices import compiled, random_key
from ..numerics.linalg import low_rank_log_density
from ..training.stacks import stacked
from ..training.validation import AbstractHeldBack
from . import linear_gaussian as linear
from .autoregressive import DynamicsModel
from .batches import TransitionBatch, series_batch
from .choosing import causally_filled, origins_of
from .data.units import Tail, Units
from .rolling import Origins
from .windows import Ticks, Transitions

MOST_ORIGINS = 60
# Steps are scored one by one, on rows with filled holes, where so many of the rows are whole; otherwise by the filter.
LEAST_WHOLE = 0.5
MOST_HELD = 500
N_HELD_DRAWS = 32


@dataclasses.dataclass(frozen=True)
class Part:
    """Ticks of a series without long gaps, in steps of one unit, with holes filled. The ticks first, …, end − 1 are
    held back; `key` is that of the series.
    """

    ticks: Ticks
    rows: linear.Stretch
    first: int
    end: int
    key: Any = None


def parts_of(units: Units, tails: Mapping[Any, Tail], fraction: float) -> list[Part]:
    """All parts, cut where the last rows of each series are held back."""
    found, cuts, keys = [], [], []
    for key, tail in tails.items():
        n = len(tail.index)
        held = max(1, round(fraction * n))
        for ticks in units.ticks(tail):
            row = np.where(ticks.row >= 0, ticks.row, np.iinfo(int).max)
            row = np.minimum.accumulate(row[::-1])[::-1]  # a tick between rows belongs to the next of them
            found.append(ticks)
            keys.append(key)
            first, end = np.searchsorted(row, [n - held, n])
            cuts.append((int(first), int(end)))
    values = causally_filled([ticks.y for ticks in found])
    rows = [linear.Stretch(z, ~np.isnan(t.y), t.u) for z, t in zip(values, found, strict=True)]
    return [Part(t, r, a, b, key) for t, r, (a, b), key in zip(found, rows, cuts, keys, strict=True)]


def origins_in(parts: Sequence[Part], units: Units, lags: tuple[int, ...], n_steps: int) -> Origins | None:
    """Origins among the held-back ticks, spread over all series; None where there is none."""
    memory, found, keys = max(lags), [], []
    n_each = max(1, MOST_ORIGINS // max(1, sum(p.end - p.first >= n_steps for p in parts)))
    for part in parts:
        values, seen = part.rows.values, part.rows.is_seen
        for o in origins_of(max(part.first, memory), part.end, n_steps, n_each):
            z = np.where(seen[o : o + n_steps], values[o : o + n_steps], np.nan)
            history = values[o - memory : o][::-1].reshape(-1)
            found.append((history, part.rows.u[o : o + n_steps], z, units.of_series(part.key).inverse(z)))
            keys.append(part.key)
    if not found:
        return None
    histories, u, z, y = (np.stack(arrays) for arrays in zip(*found, strict=True))
    return Origins(histories, u, z, y, tuple(keys))


def transitions_of(
    parts: Sequence[Part], lags: tuple[int, ...]
) -> tuple[Transitions, Bool[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Steps to rows that were seen whole, with filled histories, which of them lead to the held-back part, and how many
    rows of their part follow them.

    Where few rows are whole, steps to all filled rows.
    """
    memory, X, increments, is_held, is_whole, ages = max(lags), [], [], [], [], []
    for part in parts:
        if len(part.rows) > memory:
            X.append(linear.design(part.rows, lags)[:, :-1])
            increments.append(np.diff(part.rows.values[memory - 1 :], axis=0))
            is_held.append(np.arange(memory, len(part.rows)) >= part.first)
            is_whole.append(part.rows.is_seen[memory:].all(axis=1))
            ages.append(np.arange(len(part.rows) - memory)[::-1])
    inputs, steps, held, whole, age = (np.concatenate(arrays) for arrays in (X, increments, is_held, is_whole, ages))
    keep = whole if whole.mean() >= LEAST_WHOLE else np.ones(len(whole), bool)
    found = Transitions(inputs[keep], steps[keep], np.ones(keep.sum()), np.flatnonzero(keep))
    return found, held[keep], age[keep]


def log_slopes(
    parts: Sequence[Part], units: Units, steps: Transitions, at: Int[np.ndarray, " K"], lags: tuple[int, ...]
) -> Float[np.ndarray, " K"]:
    """log |dz/dy| of the rows that these steps of `transitions_of` lead to, summed over columns; zero where a
    transform has no slope.
    """
    dim, memory = steps.increment.shape[1], max(lags)
    ends = np.cumsum([max(0, len(part.rows) - memory) for part in parts])
    of_part = np.searchsorted(ends, steps.row[at], side="right")
    z = steps.X[at, :dim] + steps.increment[at]
    found = np.zeros(len(at))
    for i in np.unique(of_part):
        own, rows = units.of_series(parts[i].key), of_part == i
        try:
            found[rows] = own.log_jacobian(own.inverse(z[rows]))
        except DataError:
            continue
    return found


def evenly(at: Int[np.ndarray, " N"], most: int) -> Int[np.ndarray, " K"]:
    """At most so many of these places, spread evenly."""
    return at[np.unique(np.linspace(0, len(at) - 1, min(len(at), most)).round().astype(int))]


# --- rows held back ----------------------------------------------------------------------------------


@compiled
def _log_densities(model: DynamicsModel, batch: TransitionBatch, key: PRNGKeyArray, n: int) -> Float[Array, " N"]:
    """Of single steps, as mixtures over n draws of J."""
    here = model.field.in_parts().at(batch.X)
    residual = batch.increment - here.drift

    def one(k: PRNGKeyArray) -> Float[Array, " N"]:
        return low_rank_log_density(residual, here.factor(k), here.white, here.tails)

    return logsumexp(jax.lax.map(one, jax.random.split(key, n)), axis=0) - jnp.log(n)


@compiled
def _log_densities_of_many(models: PyTree, batches: PyTree, keys: PRNGKeyArray, n: int) -> Float[Array, "K N"]:
    """The same for stacked models, on an accelerator."""
    one = _log_densities.__wrapped__  # type: ignore[attr-defined]
    return jax.vmap(lambda model, batch, key: one(model, batch, key, n))(models, batches, keys)


@compiled
def _terms(
    model: DynamicsModel, batch: TransitionBatch, key: PRNGKeyArray, n: int
) -> tuple[Float[Array, "S N"], Float[Array, "S N"]]:
    """log p(0) and rᵀB⁻¹r of the residuals of single steps, for each draw of J, of Gaussian noise."""
    here = model.field.in_parts().at(batch.X)
    residual = batch.increment - here.drift

    def one(k: PRNGKeyArray) -> tuple[Array, Array]:
        F = here.factor(k)
        at_zero = low_rank_log_density(jnp.zeros_like(residual), F, here.white)
        return at_zero, 2.0 * (at_zero - low_rank_log_density(residual, F, here.white))

    return jax.lax.map(one, jax.random.split(key, n))


@dataclasses.dataclass(frozen=True)
class HeldBackSteps(AbstractHeldBack):
    """Single steps that training does not see."""

    batch: TransitionBatch
    n_rows: int
    seed: int

    @classmethod
    def of(cls, transitions: Transitions, at: Int[np.ndarray, " N"], seed: int, most: int = MOST_HELD) -> HeldBackSteps:
        """These steps; of more than `most` some, spread evenly."""
        at = evenly(at, most)
        chosen = Transitions(*(getattr(transitions, f.name)[at] for f in dataclasses.fields(Transitions)))
        batch = series_batch(chosen, None).transitions
        assert batch is not None
        return cls(batch, len(at), seed)

    def terms(
        self, model: DynamicsModel, n_draws: int = N_HELD_DRAWS
    ) -> tuple[Float[np.ndarray, "S N"], Float[np.ndarray, "S N"]]:
        """log p(0) and squared lengths of the residuals of a Gaussian model, for draws of J."""
        at_zero, squares = _terms(model, self.batch, random_key(self.seed), n_draws)
        return np.asarray(at_zero)[:, : self.n_rows], np.asarray(squares)[:, : self.n_rows]

    def log_densities(self, models: PyTree) -> tuple[Float[np.ndarray, " _rows"], ...]:
        return (np.asarray(_log_densities(models, self.batch, random_key(self.seed), N_HELD_DRAWS))[: self.n_rows],)

    @property
    def shape(self) -> Any:
        return [leaf.shape for leaf in jax.tree.leaves(self.batch)]

    def joined(self, others: Sequence[HeldBackSteps]) -> AbstractHeldBack:
        return HeldBackOfMany((self, *others), stacked([one.batch for one in (self, *others)]))


@dataclasses.dataclass(frozen=True)
class HeldBackOfMany(AbstractHeldBack):
    """Steps of several models, which one program scores."""

    parts: tuple[HeldBackSteps, ...]
    batch: TransitionBatch

    def log_densities(self, models: PyTree) -> tuple[Float[np.ndarray, " _rows"], ...]:
        keys = jnp.stack([random_key(one.seed) for one in self.parts])
        found = np.asarray(_log_densities_of_many(models, self.batch, keys, N_HELD_DRAWS))
        return tuple(values[: one.n_rows] for values, one in zip(found, self.parts, strict=True))
