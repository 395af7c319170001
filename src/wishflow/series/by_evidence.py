"""Choices by the evidence of linear auto-regressions, for short series.

Rolled forecasts of a few hundred rows hold few windows that do not overlap, and what they prefer is often chance. The
evidence (`linear_gaussian.log_evidence`) uses all rows, and needs no rows to be held back.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from .linear_gaussian import Moments, Stretch, log_evidence, moments
from .linear_prior import DEFAULT, Prior

# Rolled forecasts decide from so many rows on, or from so many series on, for which the evidence takes long.
SHORT_ROWS, MOST_SERIES = 500, 50
TIGHTNESSES = (0.03, 0.1, 0.3, 1.0, 3.0)
CROSSES = (3.0, 10.0, math.inf)
SUMS = (math.inf, 0.03, 0.0)
# Nats that a logarithm must gain.
LEAST_GAIN = 2.0
# Rank correlation with time from which on a column grows.
LEAST_RANK_CORRELATION = 0.8


def is_short(n_rows: int, dim: int) -> bool:
    """Whether the evidence decides."""
    return n_rows < SHORT_ROWS and dim <= MOST_SERIES


def grows(values: Float[np.ndarray, "T D"]) -> Bool[np.ndarray, " D"]:
    """Columns whose ranks rise with time: growth by percentages need not be skewed."""
    frame = pd.DataFrame(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = frame.rank().corrwith(pd.Series(np.arange(len(frame), dtype=float)))
    return found.to_numpy() > LEAST_RANK_CORRELATION


def priors_of(dim: int) -> list[Prior]:
    """The candidates; one series has no others to see."""
    crosses = CROSSES if dim > 1 else CROSSES[:1]
    return [Prior(*values) for values in itertools.product(TIGHTNESSES, crosses, SUMS)]


def chosen(stretches: Sequence[Stretch], lags: tuple[int, ...]) -> tuple[Prior, float] | None:
    """The prior of the highest evidence, and how many nats it is above the default; None where no row has a past."""
    found = _sums(stretches, lags)
    if found is None:
        return None
    evidence = {prior: log_evidence(found, lags, prior) for prior in priors_of(found.cross.shape[1])}
    best = max(evidence, key=lambda prior: evidence[prior])
    return best, evidence[best] - evidence[DEFAULT]


def by_itself(stretches: Sequence[Stretch], d: int, lags: tuple[int, ...]) -> float:
    """The highest evidence of column d without the others, in units of the stretches."""
    found = _sums(_column(stretches, d), lags)
    return -np.inf if found is None else max(log_evidence(found, lags, prior) for prior in priors_of(1))


def _column(stretches: Sequence[Stretch], d: int) -> list[Stretch]:
    return [Stretch(s.values[:, [d]], s.is_seen[:, [d]], s.u) for s in stretches]


def gains(
    plain: Sequence[Stretch],
    moved: Sequence[Stretch],
    log_slopes: Sequence[Float[np.ndarray, "_ D"]],
    lags: tuple[int, ...],
) -> Float[np.ndarray, " D"]:
    """Nats by which a transform raises the evidence of each column by itself, as densities of the plain values.

    `log_slopes` are logs of the slopes from plain to moved values, NaN where nothing was seen.
    """
    p, dim = max(lags), plain[0].values.shape[1]
    after = np.nanmean(np.concatenate([slopes[p:] for slopes in log_slopes]), axis=0)

    def gain(d: int) -> float:
        # The evidence counts the rows that its sums count.
        n_rows = _sums(_column(plain, d), lags)
        added = 0.0 if n_rows is None else after[d] * float(n_rows.counts[0])
        return by_itself(moved, d, lags) - by_itself(plain, d, lags) + added

    return np.array([gain(d) for d in range(dim)])


def _sums(stretches: Sequence[Stretch], lags: tuple[int, ...]) -> Moments | None:
    parts = [m for s in stretches if (m := moments(s, lags, 0, len(s))) is not None]
    return functools.reduce(operator.add, parts) if parts else None
