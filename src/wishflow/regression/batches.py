"""Batches of rows."""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Scalar

from ..numerics.devices import on_device
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
