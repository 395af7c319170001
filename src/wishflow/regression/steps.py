"""Training steps on batches of rows."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from ..numerics.platform import unrolls
from ..training.steps import AbstractSteps, next_rows, shuffled
from .batches import Batch
from .flow import FlowModel
from .objectives import negative_bound


@dataclasses.dataclass(frozen=True)
class RowSteps(AbstractSteps):
    """Regression and classification: batches of rows."""

    batch_size: int

    def shuffle(self, key, data: Batch):
        return shuffled(key, data.weights)

    def batch(self, data: Batch, order, i):
        return next_rows(data, order, i, self.batch_size)

    def has_loops(self, model, data):
        return isinstance(model, FlowModel) and not unrolls(model.n_steps)

    def loss(self, model, batch: Batch, key, kl_weight):
        return negative_bound(
            model,
            batch,
            key,
            kl_weight=kl_weight,
            n_samples=self.n_samples,
            dtype=jnp.dtype(self.flow_dtype),
            has_sites=self.is_natural,
            average=self.average,
        )
