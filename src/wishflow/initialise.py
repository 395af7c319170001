"""Where training starts: padded data, inducing points, starting models."""

from __future__ import annotations

import warnings

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
    """Centres of k-means; all distinct rows, and points between them, where these are no more than `n_inducing`.

    The points between fill up a size class: few rows then share compiled programs, and the bound can only gain.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rng = np.random.default_rng(seed)
    rows = X if len(X) <= KMEANS_ROWS else X[rng.choice(len(X), KMEANS_ROWS, replace=False)]
    distinct = np.unique(rows, axis=0)
    if len(distinct) <= n_inducing:
        return _filled_up(distinct, min(n_inducing, size_class(len(distinct))), rng)
    with warnings.catch_warnings():
        # Rows that differ by rounding alone give fewer clusters than asked for; the jitter is there for such points.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(n_inducing, n_init=1, max_iter=30, random_state=seed).fit(distinct).cluster_centers_


def _filled_up(rows: np.ndarray, n_points: int, rng: np.random.Generator) -> np.ndarray:
    """The rows, then points near the middle of random pairs of them."""
    pairs = rng.integers(len(rows), size=(2, n_points - len(rows)))
    noise = rng.normal(size=(n_points - len(rows), rows.shape[1]))
    return np.concatenate([rows, rows[pairs].mean(axis=0) + 0.1 * noise])
