"""Training steps on batches of transitions and windows."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, Scalar

from ..numerics.platform import unrolls
from ..training.steps import AbstractSteps, Loss, next_rows, shuffled
from .batches import SeriesBatch, TransitionBatch, WindowBatch
from .latent_objectives import negative_encoder_objective, negative_filter_objective
from .objectives import negative_rollout_objective, negative_transition_objective

# By objective and whether the state is latent.
OBJECTIVES: dict[tuple[str, bool], Any] = {
    ("transition", False): negative_transition_objective,
    ("rollout", False): negative_rollout_objective,
    ("transition", True): negative_filter_objective,
    ("rollout", True): negative_encoder_objective,
}


@dataclasses.dataclass(frozen=True)
class SeriesSteps(AbstractSteps):
    """Time series: batches of transitions and of windows, either of which may be absent.

    With `has_fixed_linear` the linear drift stays where it starts: at the solution of a regression, which stochastic
    steps would shake, and forecasts of many steps with it.
    """

    n_transitions: int
    n_windows: int
    objective: str
    is_latent: bool
    has_fixed_linear: bool = dataclasses.field(default=False, kw_only=True)

    def shuffle(self, key: PRNGKeyArray, data: SeriesBatch) -> PyTree:
        parts = (data.transitions, data.windows)
        keys = jax.random.split(key)
        return tuple(None if p is None else shuffled(k, p.weights) for p, k in zip(parts, keys, strict=True))

    def batch(self, data: SeriesBatch, order: PyTree, i: Int[Array, ""]) -> PyTree:
        transitions: TransitionBatch | None = data.transitions
        windows: WindowBatch | None = data.windows
        if transitions is not None:
            transitions = next_rows(transitions, order[0], i, self.n_transitions)
        if windows is not None:
            windows = next_rows(windows, order[1], i, self.n_windows)
        return SeriesBatch(transitions, windows)

    def has_loops(self, model: Any, data: SeriesBatch) -> bool:
        return data.windows is not None and not unrolls(data.windows.h.shape[-1])

    def loss(self, model: Any, batch: SeriesBatch, key: PRNGKeyArray, kl_weight: Scalar | float) -> Loss:
        if self.has_fixed_linear:
            model = eqx.tree_at(lambda m: m.field.linear, model, jax.lax.stop_gradient(model.field.linear))
        value, parts = OBJECTIVES[self.objective, self.is_latent](
            model,
            batch,
            key,
            kl_weight=kl_weight,
            n_samples=self.n_samples,
            dtype=jnp.dtype(self.flow_dtype),
            average=self.average,
        )
        return value, (parts, None)
