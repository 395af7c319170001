"""Training steps on batches of rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, Scalar

from ..numerics.platform import unrolls
from ..training.steps import AbstractSteps, Loss, next_rows, shuffled
from .batches import Batch
from .flow import FlowModel
from .objectives import negative_objective


@dataclasses.dataclass(frozen=True)
class RowSteps(AbstractSteps):
    """Regression and classification: batches of rows."""

    batch_size: int

    def shuffle(self, key: PRNGKeyArray, data: Batch) -> PyTree:
        return shuffled(key, data.weights)

    def batch(self, data: Batch, order: PyTree, i: Int[Array, ""]) -> PyTree:
        return next_rows(data, order, i, self.batch_size)

    def has_loops(self, model: Any, data: PyTree) -> bool:
        return isinstance(model, FlowModel) and not unrolls(model.n_steps)

    def loss(self, model: Any, batch: Batch, key: PRNGKeyArray, kl_weight: Scalar | float) -> Loss:
        return negative_objective(
            model,
            batch,
            key,
            kl_weight=kl_weight,
            n_samples=self.n_samples,
            dtype=jnp.dtype(self.flow_dtype),
            has_sites=self.is_natural,
            average=self.average,
            mesh=self.mesh,
        )
