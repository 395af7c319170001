"""Rows held back from training: how well models predict them, and the state that predicted them best.

A flow's objective can rise while its predictions get worse (the drift is a point estimate). So iterations, and the
choice between a flow and the sparse GP alone, are decided by the log density of rows that took no part in training.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, PyTree

from .stacks import choose

# An early state must be ahead of the last one by this many standard errors: it is the best of many, and the best of
# many equal ones is ahead by chance.
LEAD = 1.0
# More rows would decide no better: their mean is already known to some hundredths of a nat.
MOST_ROWS = 500
LEAST_ROWS = 10


def held_back(n_rows: int, fraction: float, seed: int) -> Bool[np.ndarray, " N"]:
    """Which rows to hold back: the given fraction of them, at random, at least 10 and at most 500.

    Never more than a third of the rows, and never none: what fewer rows than that decide, they decide by chance.
    """
    wanted = max(LEAST_ROWS, round(fraction * n_rows))
    n = max(1, min(wanted, n_rows // 3, MOST_ROWS))
    chosen = np.random.default_rng(np.random.SeedSequence([seed, n_rows])).permutation(n_rows)[:n]
    return np.isin(np.arange(n_rows), chosen)


class BestState:
    """The state of each model that predicted the held-back rows best, as training goes on.

    `stale` counts the chunks since then.
    """

    def __init__(self, rows: Any, models: PyTree) -> None:
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
