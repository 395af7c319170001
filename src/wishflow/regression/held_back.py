"""Log densities of rows held back from training."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from ..numerics.devices import compiled, random_key
from ..numerics.meshes import kept_whole, on_all
from ..numerics.padding import size_class
from ..training.stacks import stacked
from ..training.validation import AbstractHeldBack, BestState
from .batches import Batch, over_devices, padded_batch
from .models import AbstractModel, predictive_log_density

# Rows times paths of a prediction.
MOST_PATHS = 100_000


@compiled
def _row_scores(
    model: AbstractModel, batch: Batch, key: PRNGKeyArray, n_paths: int, mesh: Mesh | None
) -> Float[Array, " N"]:
    return kept_whole(predictive_log_density(model, batch.X, batch.y, key, n_paths, mesh), mesh)


@compiled
def _row_scores_many(
    models: AbstractModel, batches: Batch, keys: Key[Array, " R"], n_paths: int, mesh: Mesh | None
) -> Float[Array, "R N"]:
    """One model after another: all at once would need as many times the memory, and each fills a device."""

    def one(args: tuple[AbstractModel, Batch, PRNGKeyArray]) -> Float[Array, " N"]:
        model, batch, key = args
        return predictive_log_density(model, batch.X, batch.y, key, n_paths, mesh)

    return kept_whole(jax.lax.map(one, (models, batches, keys)), mesh)


@dataclasses.dataclass(frozen=True)
class HeldBack(AbstractHeldBack):
    """The rows held back from each of one or several models, padded and stacked as the models are.

    A density is a mixture over `n_paths`, as many as predictions will have, because a mixture of fewer scores lower;
    fewer only where rows times paths, which are in memory together, would be too many.
    """

    batch: Batch
    keys: PyTree
    n_rows: tuple[int, ...]
    n_paths: int
    mesh: Mesh | None = None

    @classmethod
    def of(
        cls, rows: list[tuple[np.ndarray, np.ndarray]], seeds: list[int], n_paths: int, mesh: Mesh | None = None
    ) -> HeldBack:
        """The rows (X, y) of each model; the seeds are those of their predictions."""
        size = size_class(max(len(X) for X, _ in rows))
        n_paths = min(n_paths, MOST_PATHS // size)
        batches = [padded_batch(X, y, size) for X, y in rows]
        keys = [random_key(seed) for seed in seeds]
        batch, keys = over_devices(on_all(stacked(batches), mesh), mesh), on_all(stacked(keys), mesh)
        return cls(batch, keys, tuple(len(X) for X, _ in rows), n_paths, mesh)

    def log_densities(self, models: PyTree) -> tuple[Float[np.ndarray, " _rows"], ...]:
        run = _row_scores_many if len(self.n_rows) > 1 else _row_scores
        found = np.asarray(run(models, self.batch, self.keys, self.n_paths, self.mesh)).reshape(len(self.n_rows), -1)
        return tuple(values[:n] for values, n in zip(found, self.n_rows, strict=True))


def words(best: BestState, i: int) -> str:
    """How well the kept state of a model predicts the held-back rows."""
    density = best.densities[i]
    return f"log density of {len(density)} held-back rows {density.mean():.4f} after {best.step[i]} iterations"
