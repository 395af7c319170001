"""Which of several candidates is kept, by scores of the same held-back units (rows, origins of forecasts)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

# Scores of units by name, the larger the better. Gains of different scores are added up, so they should be in units of
# one size: nats for each column, shares of a CRPS.
Scores = Mapping[str, Float[np.ndarray, " _units"]]
# The name of log densities among them.
DENSITY = "log density"
# Paired standard errors by which a candidate that is kept may be behind in a score.
MOST_BEHIND = 1.0


def select(candidates: Sequence[Scores], reference: Scores, lead: float = 1.0) -> int | None:
    """The number of the candidate that is kept; None: the reference stays.

    A candidate is kept where it leads the reference in one score by `lead` paired standard errors and is behind in none
    by one; of several that with the largest sum of mean gains.

    Parameters
    ----------
    candidates : sequence of mapping of str to ndarray
        Scores of each candidate. Names that the reference does not have do not count.
    reference : mapping of str to ndarray
        Scores of what is used otherwise, of the same units; NaN for a unit that nothing was observed of.
    lead : float, default=1.0
        Standard errors.

    Returns
    -------
    int or None
        Its place among the candidates.
    """
    gains = [[_gain(one[name], reference[name]) for name in reference if name in one] for one in candidates]
    kept = [k for k, parts in enumerate(gains) if _leads(parts, lead) and not _is_behind(parts)]
    return max(kept, key=lambda k: sum(mean for mean, _ in gains[k])) if kept else None


def is_behind(candidate: Scores, reference: Scores) -> bool:
    """Whether a candidate is behind in a score, so that the others cannot help it."""
    return _is_behind([_gain(candidate[name], reference[name]) for name in reference if name in candidate])


def _leads(gains: Sequence[tuple[float, float]], lead: float) -> bool:
    return any(mean > lead * error for mean, error in gains)


def _is_behind(gains: Sequence[tuple[float, float]]) -> bool:
    return any(mean < -MOST_BEHIND * error for mean, error in gains)


def _gain(candidate: Float[np.ndarray, " N"], reference: Float[np.ndarray, " N"]) -> tuple[float, float]:
    """The mean gain and its standard error; equal infinities are no gain, and an infinite loss has no error.

    Units that the reference has no score for do not count; a candidate that has none for others has lost them.
    """
    has_score = ~np.isnan(reference)
    new, old = np.where(np.isnan(candidate), -np.inf, candidate)[has_score], reference[has_score]
    with np.errstate(invalid="ignore"):
        gains = np.where(new == old, 0.0, new - old)
    if len(gains) < 2:
        return 0.0, np.inf
    if np.isinf(gains).any():
        return (-np.inf if (gains == -np.inf).any() else np.inf), 0.0
    return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
