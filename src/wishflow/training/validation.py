"""Rows held back from training: how well models predict them, and the state that predicted them best.

A flow's objective can rise while its predictions get worse (the drift is a point estimate). So iterations, and the
choice between a flow and the sparse GP alone, are decided by the log density of rows that took no part in training.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jaxtyping import Bool, Float, PyTree

from ..initialise import padded_batch, size_class
from ..models.base import predictive_log_density
from ..objectives import Batch
from ..runtime import compiled, random_key
from .stacks import choose, stacked

# An early state must be ahead of the last one by this many standard errors: it is the best of many, and the best of
# many equal ones is ahead by chance.
LEAD = 1.0
# More rows would decide no better: their mean is already known to some hundredths of a nat.
MOST_ROWS = 500
LEAST_ROWS = 10
# Rows times paths of a prediction.
MOST_PATHS = 100_000


def held_back(n_rows: int, fraction: float, seed: int) -> Bool[np.ndarray, " N"]:
    """Which rows to hold back: the given fraction of them, at random, at least 10 and at most 500.

    Never more than a third of the rows, and never none: what fewer rows than that decide, they decide by chance.
    """
    wanted = max(LEAST_ROWS, round(fraction * n_rows))
    n = max(1, min(wanted, n_rows // 3, MOST_ROWS))
    chosen = np.random.default_rng(np.random.SeedSequence([seed, n_rows])).permutation(n_rows)[:n]
    return np.isin(np.arange(n_rows), chosen)


@compiled
def _row_scores(model, batch, key, n_paths):
    return predictive_log_density(model, batch.X, batch.y, key, n_paths)


@compiled
def _row_scores_many(models, batches, keys, n_paths):
    """One model after another: all at once would need as many times the memory, and each fills a device."""

    def one(args):
        model, batch, key = args
        return predictive_log_density(model, batch.X, batch.y, key, n_paths)

    return jax.lax.map(one, (models, batches, keys))


@dataclasses.dataclass(frozen=True)
class HeldBack:
    """The rows held back from each of one or several models, padded and stacked as the models are.

    A density is a mixture over `n_paths`, as many as predictions will have, because a mixture of fewer scores lower;
    fewer only where rows times paths, which are in memory together, would be too many.
    """

    batch: Batch
    keys: PyTree
    n_rows: tuple[int, ...]
    n_paths: int

    @classmethod
    def of(cls, rows: list[tuple[np.ndarray, np.ndarray]], seeds: list[int], n_paths: int) -> HeldBack:
        """The rows (X, y) of each model; the seeds are those of their predictions."""
        size = size_class(max(len(X) for X, _ in rows))
        n_paths = min(n_paths, MOST_PATHS // size)
        batches = [padded_batch(X, y, size) for X, y in rows]
        keys = [random_key(seed) for seed in seeds]
        return cls(stacked(batches), stacked(keys), tuple(len(X) for X, _ in rows), n_paths)

    def log_densities(self, models: PyTree) -> list[Float[np.ndarray, " R"]]:
        """The log predictive density of each row, for each model."""
        run = _row_scores_many if len(self.n_rows) > 1 else _row_scores
        found = np.asarray(run(models, self.batch, self.keys, self.n_paths)).reshape(len(self.n_rows), -1)
        return [values[:n] for values, n in zip(found, self.n_rows, strict=True)]


class BestState:
    """The state of each model that predicted the held-back rows best, as training goes on.

    `stale` counts the chunks since then.
    """

    def __init__(self, rows: HeldBack, models: PyTree) -> None:
        self.rows = rows
        self.models = models
        self.densities = rows.log_densities(models)
        self.step = np.zeros(len(rows.n_rows), int)
        self.stale = np.zeros(len(rows.n_rows), int)
        self.last = (models, self.densities, 0)

    def score(self, models: PyTree, step: int) -> Float[np.ndarray, " K"]:
        """The mean log density of each model at this step; better states are kept."""
        found = self.rows.log_densities(models)
        means = np.array([values.mean() for values in found])
        # Comparisons with NaN are false: a state that predicts none is never the best.
        is_better = means > np.array([values.mean() for values in self.densities])
        is_better |= ~np.isfinite([values.mean() for values in self.densities]) & np.isfinite(means)
        self.models = choose(is_better, models, self.models)
        self.densities = [new if b else old for b, new, old in zip(is_better, found, self.densities, strict=True)]
        self.step = np.where(is_better, step, self.step)
        self.stale = np.where(is_better, 0, self.stale + 1)
        self.last = (models, found, step)
        return means

    def settle(self) -> None:
        """Keep the last state of each model instead of its best one, unless the best is ahead by `LEAD`."""
        models, found, step = self.last
        is_last = np.array([not is_ahead(a, b, LEAD) for a, b in zip(self.densities, found, strict=True)])
        is_last &= [bool(np.isfinite(values).all()) for values in found]
        self.models = choose(is_last, models, self.models)
        self.densities = [new if b else old for b, new, old in zip(is_last, found, self.densities, strict=True)]
        self.step = np.where(is_last, step, self.step)


def is_ahead(candidate: Float[np.ndarray, " R"], reference: Float[np.ndarray, " R"], lead: float) -> bool:
    """Whether the mean log density of a candidate is above that of a reference by more than `lead` standard errors.

    The error is that of the mean of the paired differences. A candidate that predicts some row not at all is never
    ahead; a reference that does is always behind.
    """
    if not np.isfinite(candidate).all() or len(candidate) < 2:
        return False
    if not np.isfinite(reference).all():
        return True
    difference = candidate - reference
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return bool(difference.mean() > lead * error)
