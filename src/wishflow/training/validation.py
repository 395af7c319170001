"""Rows held back from training: which rows, and the state that predicted them best.

A flow's objective can rise while its predictions get worse (the drift is a point estimate). So iterations, and the
weights of a flow and a sparse GP, are decided by the log density of rows that took no part in training.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from .stacks import choose

# An early state must be ahead of the last one by this many standard errors: it is the best of many, and the best of
# many equal ones is ahead by chance.
LEAD = 1.0
# More rows would decide no better: their mean is already known to some hundredths of a nat.
MOST_ROWS = 500
LEAST_ROWS = 10


def held_back(
    n_rows: int, fraction: float, seed: int, groups: Int[np.ndarray, " N"] | None = None
) -> Bool[np.ndarray, " N"]:
    """Which rows to hold back: the given fraction of them, at random, at least 10 and at most 500.

    Never more than a third of the rows, and never none: what fewer rows than that decide, they decide by chance. Rows
    with equal numbers in `groups` are held back together: groups are taken in random order until there are enough rows,
    without those that would exceed a limit. Where that leaves fewer than five rows, the smallest of the other groups is
    held back too, beyond the limits, but no more than half of the rows.
    """
    wanted, most = max(LEAST_ROWS, round(fraction * n_rows)), min(n_rows // 3, MOST_ROWS)
    n = max(1, min(wanted, most))
    rng = np.random.default_rng(np.random.SeedSequence([seed, n_rows]))
    if groups is None:
        return np.isin(np.arange(n_rows), rng.permutation(n_rows)[:n])
    _, numbers, counts = np.unique(groups, return_inverse=True, return_counts=True)
    chosen: list[int] = []
    n_chosen = 0
    for group in rng.permutation(len(counts)):
        if n_chosen < n and n_chosen + counts[group] <= most:
            chosen.append(group)
            n_chosen += counts[group]
    if 2 * n_chosen < min(LEAST_ROWS, n):
        others = np.setdiff1d(np.arange(len(counts)), chosen)
        smallest = others[counts[others].argmin()]
        chosen += [smallest] if 2 * (n_chosen + counts[smallest]) <= n_rows else []
    return np.isin(numbers, chosen)


class AbstractHeldBack(abc.ABC):
    """Rows held back from each of K models."""

    @abc.abstractmethod
    def log_densities(self, models: PyTree) -> tuple[Float[np.ndarray, " _rows"], ...]:
        """The log predictive density of each row, for each model."""

    @property
    def shape(self) -> Any:
        """What is equal for rows that can be joined."""
        return None

    def joined(self, others: Sequence[Any]) -> AbstractHeldBack:
        """The rows of several models, which are stacked."""
        raise NotImplementedError


# The models, the log densities of held-back rows by each of them, and the step.
LastState = tuple[PyTree, tuple[Float[np.ndarray, " _rows"], ...], Int[np.ndarray, ""]]


class BestState(eqx.Module):
    """The state of each of K models that predicted the held-back rows best, and the last one.

    `densities` are those of the rows of each model, `step` its number of iterations, `stale` counts the chunks since.
    """

    models: PyTree
    densities: tuple[Float[np.ndarray, " _rows"], ...]
    step: Int[np.ndarray, " K"]
    stale: Int[np.ndarray, " K"]
    last: LastState

    @classmethod
    def of(cls, rows: AbstractHeldBack, models: PyTree) -> BestState:
        found = rows.log_densities(models)
        zeros = np.zeros(len(found), int)
        return cls(models, found, zeros, zeros, (models, found, np.zeros((), int)))

    def scored(self, rows: AbstractHeldBack, models: PyTree, step: int) -> tuple[BestState, Float[np.ndarray, " K"]]:
        """With the states at a later step, where they are better; and their mean log densities."""
        found = rows.log_densities(models)
        means = np.array([values.mean() for values in found])
        best = np.array([values.mean() for values in self.densities])
        # Comparisons with NaN are false: a state that predicts none is never the best.
        is_better = (means > best) | (~np.isfinite(best) & np.isfinite(means))
        return self._taken(is_better, models, found, step, (models, found, np.asarray(step))), means

    def settled(self) -> BestState:
        """The last state of each model instead of its best one, unless the best is ahead by `LEAD`."""
        models, found, step = self.last
        is_last = np.array([not is_ahead(a, b, LEAD) for a, b in zip(self.densities, found, strict=True)])
        is_last &= [bool(np.isfinite(values).all()) for values in found]
        return self._taken(is_last, models, found, int(step), self.last)

    def _taken(
        self, where: np.ndarray, models: PyTree, found: tuple[np.ndarray, ...], step: int, last: LastState
    ) -> BestState:
        return BestState(
            choose(where, models, self.models),
            tuple(new if b else old for b, new, old in zip(where, found, self.densities, strict=True)),
            np.where(where, step, self.step),
            np.where(where, 0, self.stale + 1),
            last,
        )


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
