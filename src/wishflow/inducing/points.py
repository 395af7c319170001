"""Starting locations of inducing points."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import threadpoolctl

from ..numerics.padding import size_class

KMEANS_ROWS = 10_000
# Filters of warnings belong to the process: of two threads that leave such a block out of order, one would leave its
# filter behind.
_FILTERS = threading.Lock()


def inducing_points(X: np.ndarray, n_inducing: int, seed: int) -> np.ndarray:
    """Centres of k-means; all distinct rows, and points between them, where these are no more than `n_inducing`.

    The points between fill up a size class: few rows then share compiled programs, and the objective can only gain.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rng = np.random.default_rng(seed)
    distinct = _distinct(X, rng)
    if len(distinct) <= n_inducing:
        return _filled_up(distinct, min(n_inducing, size_class(len(distinct))), rng)
    # One thread: several programs on one machine would fight for the cores, and little is to be gained at these sizes.
    with _FILTERS, warnings.catch_warnings(), threadpoolctl.threadpool_limits(limits=1, user_api="openmp"):
        # Rows that differ by rounding alone give fewer clusters than asked for; the jitter is there for such points.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(n_inducing, n_init=1, max_iter=30, random_state=seed).fit(distinct).cluster_centers_


def n_points(X: np.ndarray, n_inducing: int, seed: int) -> int:
    """How many points `inducing_points` returns."""
    n_distinct = len(_distinct(X, np.random.default_rng(seed)))
    return n_inducing if n_distinct > n_inducing else min(n_inducing, size_class(n_distinct))


def _distinct(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The distinct rows, or those of a sample."""
    rows = X if len(X) <= KMEANS_ROWS else X[rng.choice(len(X), KMEANS_ROWS, replace=False)]
    return np.unique(rows, axis=0)


def _filled_up(rows: np.ndarray, n_points: int, rng: np.random.Generator) -> np.ndarray:
    """The rows, then points near the middle of random pairs of them."""
    pairs = rng.integers(len(rows), size=(2, n_points - len(rows)))
    noise = rng.normal(size=(n_points - len(rows), rows.shape[1]))
    return np.concatenate([rows, rows[pairs].mean(axis=0) + 0.1 * noise])
