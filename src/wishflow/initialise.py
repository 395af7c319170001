"""Where training starts: padded data, inducing points, starting models."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from .objectives import Batch

KMEANS_ROWS = 10_000


def size_class(n: int) -> int:
    """The number of rows that n rows are padded to: 32, 40, 48, 56, 64, 80, 96, … (eight classes for every factor of
    four).

    Few classes mean few compiled programs; a step of at most 25 % wastes little work.
    """
    size = 32
    while size < n:
        size += max(8, 1 << (size.bit_length() - 3))
    return size


def padded_batch(X: np.ndarray, y: np.ndarray, n_rows: int | None = None) -> Batch:
    """All rows as one batch, padded to a size class by repeating rows with weight zero."""
    n = len(X)
    n_rows = size_class(n) if n_rows is None else n_rows
    index = np.arange(n_rows) % n
    weights = (np.arange(n_rows) < n).astype(float)
    return Batch(jnp.asarray(X[index]), jnp.asarray(y[index]), jnp.asarray(weights), jnp.asarray(float(n)))


def inducing_points(X: np.ndarray, n_inducing: int, seed: int) -> np.ndarray:
    """Centres of k-means; all distinct rows where there are no more of them than `n_inducing`."""
    from sklearn.cluster import KMeans

    rng = np.random.default_rng(seed)
    rows = X if len(X) <= KMEANS_ROWS else X[rng.choice(len(X), KMEANS_ROWS, replace=False)]
    distinct = np.unique(rows, axis=0)
    if len(distinct) <= n_inducing:
        return distinct
    return KMeans(n_inducing, n_init=1, max_iter=30, random_state=seed).fit(distinct).cluster_centers_
