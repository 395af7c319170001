"""Batches of rows."""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Scalar

from ..numerics.devices import on_device
from ..numerics.meshes import on_all, split_over
from ..numerics.padding import size_class


class Batch(eqx.Module):
    """Rows of data; `weights` is 1 for a row and 0 for padding, `n_data` the number of rows the batch stands for."""

    X: Float[Array, "B D"]
    y: Float[Array, "B P"]
    weights: Float[Array, " B"]
    n_data: Scalar


def padded_batch(X: np.ndarray, y: np.ndarray, n_rows: int | None = None) -> Batch:
    """All rows as one batch, padded to a size class by repeating rows with weight zero."""
    n = len(X)
    n_rows = size_class(n) if n_rows is None else n_rows
    index = np.arange(n_rows) % n
    weights = (np.arange(n_rows) < n).astype(float)
    return Batch(on_device(X[index]), on_device(y[index]), on_device(weights), on_device(float(n)))


def over_devices(batch: Batch, mesh: Mesh | None) -> Batch:
    """One batch with its rows split over the devices, where their number divides that of the rows."""
    if mesh is None or batch.weights.ndim > 1 or len(batch.weights) % mesh.size:
        return batch
    X, y, weights = (split_over(np.asarray(part), mesh, 0) for part in (batch.X, batch.y, batch.weights))
    return Batch(X, y, weights, on_all(batch.n_data, mesh))
