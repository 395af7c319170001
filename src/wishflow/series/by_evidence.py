"""Choices by the evidence of linear auto-regressions, for short series.

Rolled forecasts of a few hundred rows hold few windows that do not overlap, and what they prefer is often chance. The
evidence (`linear_gaussian.log_evidence`) uses all rows, and needs no rows to be held back.
"""

from __future__ import annotations

import dataclasses
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

# Rolled forecasts alone decide from so many rows on, or from so many series on, for which the evidence takes long.
SHORT_ROWS, MOST_SERIES = 500, 50
TIGHTNESSES = (0.03, 0.1, 0.3, 1.0, 3.0)
CROSSES = (3.0, 10.0, math.inf)
SUMS = (math.inf, 0.03, 0.0)
# Nats that a logarithm must gain.
LEAST_GAIN = 2.0
# Nats by which levels must be ahead of increments: a random walk whose weights are fitted seems to return to its mean.
LEAST_GAIN_OF_LEVELS = 1.0
# Rank correlation with time from which on a column grows.
LEAST_RANK_CORRELATION = 0.8


def is_short(n_rows: int, dim: int) -> bool:
    """Whether the evidence is asked."""
    return n_rows < SHORT_ROWS and dim <= MOST_SERIES


def grows(values: Float[np.ndarray, "T D"]) -> Bool[np.ndarray, " D"]:
    """Columns whose ranks rise with time: growth by percentages need not be skewed."""
    frame = pd.DataFrame(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = frame.rank().corrwith(pd.Series(np.arange(len(frame), dtype=float)))
    return found.to_numpy() > LEAST_RANK_CORRELATION


def priors_of(dim: int, lags: Sequence[int] = (), season: int | None = None) -> list[Prior]:
    """The candidates; one series has no others to see. Those around increments of a season ago need its two lags."""
    crosses = CROSSES if dim > 1 else CROSSES[:1]
    has_season = season is not None and {season, season + 1} <= set(lags)
    seasons = (None, season) if has_season else (None,)
    return [Prior(*values) for values in itertools.product(TIGHTNESSES, crosses, SUMS, seasons)]


@dataclasses.dataclass(frozen=True)
class Best:
    """Lags and prior of the highest evidence, and how many nats it is above that of the default prior with these lags,
    and above the best of the longest lags.
    """

    lags: tuple[int, ...]
    prior: Prior
    above_default: float
    above_longest: float


def chosen(stretches: Sequence[Stretch], sets: Sequence[tuple[int, ...]], season: int | None = None) -> Best | None:
    """Lags (one of the sets, from short to long) and prior of the highest evidence; None where no row has a past.

    All candidates predict the same rows, those that have a past for each of them. Lags that leave less than half of the
    rows are no candidates.
    """
    n_rows = sum(map(len, stretches))
    usable = [lags for lags in sets if 2 * sum(max(0, len(s) - max(lags)) for s in stretches) >= n_rows] or sets[:1]
    first = max(max(lags) for lags in usable)
    evidence: dict[tuple[int, ...], dict[Prior, float]] = {}
    for lags in usable:
        found = _sums(stretches, lags, first)
        if found is None:
            return None
        priors = priors_of(found.cross.shape[1], lags, season)
        evidence[lags] = {prior: log_evidence(found, lags, prior) for prior in priors}
    highest = {lags: max(values.values()) for lags, values in evidence.items()}
    best = max(highest, key=lambda lags: highest[lags])
    prior = max(evidence[best], key=lambda one: evidence[best][one])
    return Best(best, prior, highest[best] - evidence[best][DEFAULT], highest[best] - highest[usable[-1]])


def by_itself(stretches: Sequence[Stretch], d: int, lags: tuple[int, ...]) -> float:
    """The highest evidence of column d without the others, in units of the stretches."""
    found = _sums(_column(stretches, d), lags)
    return -np.inf if found is None else max(log_evidence(found, lags, prior) for prior in priors_of(1))


def has_unit_root(stretches: Sequence[Stretch], lags: tuple[int, ...]) -> Bool[np.ndarray, " D"]:
    """Series of which, each by itself, an auto-regression of levels does not have a clearly higher evidence than one of
    increments.
    """

    def gain(d: int) -> float:
        found = _sums(_column(stretches, d), lags)
        if found is None:
            return 0.0
        levels, increments = (
            max(log_evidence(found, lags, Prior(tightness, sums=sums)) for tightness in TIGHTNESSES)
            for sums in (math.inf, 0.0)
        )
        return increments - levels

    return np.array([gain(d) > -LEAST_GAIN_OF_LEVELS for d in range(stretches[0].values.shape[1])])


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


def _sums(stretches: Sequence[Stretch], lags: tuple[int, ...], first: int = 0) -> Moments | None:
    """Sums over the steps to the rows from `first` on of each stretch."""
    parts = [m for s in stretches if (m := moments(s, lags, first, len(s))) is not None]
    return functools.reduce(operator.add, parts) if parts else None
