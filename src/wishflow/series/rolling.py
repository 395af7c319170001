"""Rolled validation of trained models: many origins at once, by simulation, in one program."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..inducing import for_prediction
from ..numerics.devices import compiled, computing, on_device, random_key
from ..numerics.padding import size_class

N_DRAWS, FEWEST_DRAWS = 100, 40
# Draws times origins times steps of one call: as many as 100 draws from 60 origins over 24 steps.
MOST_CELLS = 144_000


@dataclasses.dataclass(frozen=True)
class Origins:
    """Where forecasts of a validation part start: histories in model units (the latest row first), the covariates of
    the steps ahead, what was observed there (model units and units of y), NaN where nothing was, and keys of series.
    """

    histories: Float[np.ndarray, "N pD"]
    u: Float[np.ndarray, "N H U"]
    z: Float[np.ndarray, "N H D"]
    y: Float[np.ndarray, "N H D"]
    keys: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.histories)


@compiled
def _simulate(
    model: Any, history: Float[Array, "N pD"], u: Float[Array, "H N U"], key: PRNGKeyArray
) -> Float[Array, "H N D"]:
    """Paths in steps of one unit, each row with covariates of its own."""
    field = for_prediction(model.field.in_parts(), history.shape[0] * u.shape[0])
    layout = field.layout

    def tick(history: Array, inputs: tuple[PRNGKeyArray, Array]) -> tuple[Array, Array]:
        k, u = inputs
        here = field.at(layout.row(history, u))
        x = history[:, : layout.dim] + here.drift + here.increment(k, 1.0)
        return layout.shift(history, x), x

    return jax.lax.scan(tick, history, (jax.random.split(key, u.shape[0]), u))[1]


def simulated(model: Any, origins: Origins, seed: int, n_draws: int = N_DRAWS) -> Float[np.ndarray, "S N H D"]:
    """Draws from every origin, in model units; the same seed gives models of one shape the same noise."""
    n, n_steps = len(origins), origins.u.shape[1]
    n_draws = max(FEWEST_DRAWS, min(n_draws, MOST_CELLS // max(n * n_steps, 1)))
    rows = np.arange(size_class(n * n_draws)) % (n * n_draws) // n_draws
    with computing():
        history, u = on_device(origins.histories[rows]), on_device(np.swapaxes(origins.u[rows], 0, 1))
        paths = np.asarray(_simulate(model, history, u, random_key(seed)))[:, : n * n_draws]
    return paths.reshape(n_steps, n, n_draws, -1).transpose(2, 1, 0, 3)
