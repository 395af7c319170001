"""Paths of all series of a panel: those of many series in one program, with the numbers of one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int, Key

from ...numerics.devices import compiled, computing, on_device
from ..autoregressive import DynamicsModel, simulate
from ..windows import Ticks
from .autoregressive import AutoRegressiveRunner, after_and_before
from .base import TICKS_CLASS, AbstractRunner, padded_ticks

# Draws of y, what each draw knew before its step, and limits: as `AbstractRunner.paths` returns them.
Paths = tuple[Float[np.ndarray, "S T P"], Float[np.ndarray, "S T K"], Float[np.ndarray, "2 P"] | None]
# Paths of one call, of several series together: enough for all cores, and little memory.
MOST_PATHS = 16_384


@dataclasses.dataclass(frozen=True)
class Ahead:
    """From the end of a series to its horizon: ticks of the past, lengths and covariates of those that follow, the one
    at each stamp of the horizon, the seed of its noise, and the stamps.
    """

    ticks: Ticks
    h: Float[np.ndarray, " T"]
    u: Float[np.ndarray, "T U"]
    place: Int[np.ndarray, " H"]
    seed: int
    index: pd.Index


@compiled
def _run_panel(
    model: DynamicsModel,
    histories: Float[Array, "B S K"],
    h: Float[Array, "B T"],
    u: Float[Array, "B T U"],
    keys: Key[Array, " B"],
    limits: Float[Array, "B 2 D"] | None,
) -> tuple[Float[Array, "B S D"], Float[Array, "B T S C"]]:
    """`simulate` for each series; the field is prepared once for all of them."""
    field = model.field.in_parts()

    def one(key: Array, history: Array, h: Array, u: Array, limits: Array | None) -> tuple[Array, Array]:
        return simulate(key, field, history, h, u, limits)

    return jax.vmap(one)(keys, histories, h, u, limits)


def panel_paths(runners: Sequence[AbstractRunner], ways: Sequence[Ahead], n_draws: int) -> list[Paths]:
    """Paths of each series by its own runner and noise.

    Series of one auto-regressive model whose horizons have about as many ticks are simulated together. The numbers are
    those of `runner.paths` for each of them. Mixtures and latent states are simulated one by one.

    Parameters
    ----------
    runners : sequence of AbstractRunner
        One for each series; those of one model differ by limits alone.
    ways : sequence of Ahead
        Where they start and how far they go.
    n_draws : int
        Paths of each series.

    Returns
    -------
    list of tuple
        What `AbstractRunner.paths` returns, for each series.
    """
    found: list[Paths | None] = [None] * len(ways)
    for group in _groups(runners, ways, max(1, MOST_PATHS // n_draws)):
        if len(group) == 1:
            way = ways[group[0]]
            found[group[0]] = runners[group[0]].paths(way.ticks, way.h, way.u, n_draws, way.seed)
            continue
        together = [runner for i in group if isinstance(runner := runners[i], AutoRegressiveRunner)]
        for i, paths in zip(group, _together(together, [ways[i] for i in group], n_draws), strict=True):
            found[i] = paths
    return [paths for paths in found if paths is not None]


def _groups(runners: Sequence[AbstractRunner], ways: Sequence[Ahead], most: int) -> list[list[int]]:
    """Series that one program serves, at most so many; the others are alone."""
    by_length: dict[int, list[int]] = {}
    alone = []
    for i, (runner, way) in enumerate(zip(runners, ways, strict=True)):
        if isinstance(runner, AutoRegressiveRunner):
            by_length.setdefault(-(-len(way.h) // TICKS_CLASS), []).append(i)
        else:
            alone.append([i])
    parts = [group[k : k + most] for group in by_length.values() for k in range(0, len(group), most)]
    return parts + alone


def _together(runners: Sequence[AutoRegressiveRunner], ways: Sequence[Ahead], n_draws: int) -> list[Paths]:
    """Paths of series that share a model and a number of ticks; their number is filled up to one of a few."""
    starts, limits = zip(*(r.starts(w.ticks, n_draws, w.seed) for r, w in zip(runners, ways, strict=True)), strict=True)
    lengths, inputs = zip(*(padded_ticks(TICKS_CLASS, way.h, way.u) for way in ways), strict=True)
    rows = np.arange(1 << (len(ways) - 1).bit_length()) % len(ways)
    known = [part for part in limits if part is not None]
    with computing():
        arrays = (on_device(np.stack(part)[rows]) for part in (starts, lengths, inputs))
        keys = jax.numpy.stack([jax.random.key(ways[int(i)].seed) for i in rows])
        on_limits = on_device(np.stack(known)[rows]) if known else None
        ends, befores = (np.asarray(part) for part in _run_panel(runners[0].model, *arrays, keys, on_limits))
    return [(*after_and_before(ends[i], befores[i], len(way.h)), limits[i]) for i, way in enumerate(ways)]
