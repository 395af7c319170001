"""Whether new rows are still of the law that was fitted: sums that grow where they are not (CUSUM; Page 1954).

Each new row has some scores: its log density, and the error of each column a step ahead over its predicted deviation.
The rows held back in `fit` have the same scores, by states that were not trained on them. A new score becomes the
normal deviate z of its rank among those. For each score two sums are kept, for values that are too low and too high:

    S⁻ ← max(0, S⁻ − z/c − k),   S⁺ ← max(0, S⁺ + z/c − k).

A refit is due once a sum exceeds the threshold h. c² = (1 + r)/(1 − r) allows for the autocorrelation r of a score,
one standard error 1/√R above that of the R held-back rows, and k = ½ + 2/√R for the errors of their ranks. h is such
that J scores of independent rows raise one false alarm in 10,000 rows on average: 2J sums with mean time
(eᵇ − b − 1)/(2·½²), b = h + 1.166, each (Siegmund 1985, section II.6). In simulations with 40 to 400 held-back rows, 3
or 13 scores and autocorrelations up to .3, at most 5 of 100 runs of 1,000 rows of the same law had an alarm.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float

# Rows of one law until the first alarm, on average.
ROWS_PER_FALSE_ALARM = 10_000
# Fewer held-back rows say too little.
LEAST_REFERENCE = 30
ALLOWANCE, OF_RANKS, OVERSHOOT = 0.5, 2.0, 1.166
HIGHEST_CORRELATION = 0.9


@dataclasses.dataclass(frozen=True)
class DriftMonitor:
    """Scores of held-back rows, and of the new rows so far.

    `reference` are the sorted scores of R held-back rows, `spread` the factor c of each score, `sums` those for low and
    for high values. `alarm` is the number of the row that raised an alarm, and −1 before.
    """

    reference: Float[np.ndarray, "R J"]
    spread: Float[np.ndarray, " J"]
    sums: Float[np.ndarray, "2 J"]
    n_rows: int = 0
    alarm: int = -1

    @classmethod
    def of(cls, scores: Float[np.ndarray, "R J"] | None) -> DriftMonitor | None:
        """From scores of held-back rows in order of time; None where there are too few of them."""
        scores = None if scores is None else scores[np.isfinite(scores).all(axis=1)]
        if scores is None or len(scores) < LEAST_REFERENCE:
            return None
        reference = np.sort(scores, axis=0)
        z = _deviates(reference, scores)
        r = np.mean(z[1:] * z[:-1], axis=0) / np.maximum(np.mean(z**2, axis=0), 1e-12)
        r = np.clip(r + 1.0 / np.sqrt(len(z)), 0.0, HIGHEST_CORRELATION)
        return cls(reference, np.sqrt((1.0 + r) / (1.0 - r)), np.zeros((2, scores.shape[1])))

    @property
    def threshold(self) -> float:
        """h."""
        wanted = 2.0 * ALLOWANCE**2 * 2.0 * self.sums.shape[1] * ROWS_PER_FALSE_ALARM
        return float(scipy.optimize.brentq(lambda b: np.expm1(b) - b - wanted, 1.0, 50.0)) - OVERSHOOT

    @property
    def is_due(self) -> bool:
        """Whether there was an alarm."""
        return self.alarm >= 0

    def after(self, scores: Float[np.ndarray, "N J"]) -> DriftMonitor:
        """With the scores of further rows; after an alarm the sums stay as they are."""
        sums, alarm, n_rows = self.sums.copy(), self.alarm, self.n_rows
        allowance, threshold = ALLOWANCE + OF_RANKS / np.sqrt(len(self.reference)), self.threshold
        # A density of zero, or an error that is infinite, is the most extreme score.
        for z in _deviates(self.reference, np.nan_to_num(scores, nan=-np.inf)) / self.spread:
            n_rows += 1
            if alarm < 0:
                sums = np.maximum(0.0, sums + np.stack([-z, z]) - allowance)
                alarm = n_rows if sums.max() > threshold else -1
        return dataclasses.replace(self, sums=sums, alarm=alarm, n_rows=n_rows)

    def restarted(self) -> DriftMonitor:
        """With sums of zero, for parameters that have changed."""
        return dataclasses.replace(self, sums=np.zeros_like(self.sums), n_rows=0, alarm=-1)

    def numbers(self) -> dict[str, float]:
        """The largest sum, the threshold, rows seen, the row of the alarm (NaN: none), rows for each false alarm."""
        return {
            "statistic": float(self.sums.max()),
            "threshold": self.threshold,
            "n_rows": float(self.n_rows),
            "alarm": float(self.alarm) if self.is_due else np.nan,
            "rows_per_false_alarm": float(ROWS_PER_FALSE_ALARM),
        }

    def words(self, columns: Any) -> str:
        """What the largest sum says."""
        side, j = np.unravel_index(int(self.sums.argmax()), self.sums.shape)
        if j == 0:
            said = ("less likely", "more likely")[side]
            return f"rows are {said} than those held back in fit were"
        return f"{columns[j - 1]!r} lies {('below', 'above')[side]} its one-step forecasts"


def _deviates(reference: Float[np.ndarray, "R J"], scores: Float[np.ndarray, "N J"]) -> Float[np.ndarray, "N J"]:
    """Normal deviates of ranks among sorted columns, ties in the middle."""
    found = np.empty(scores.shape)
    for j, column in enumerate(reference.T):
        rank = 0.5 * (np.searchsorted(column, scores[:, j], "left") + np.searchsorted(column, scores[:, j], "right"))
        found[:, j] = scipy.special.ndtri((rank + 0.5) / (len(column) + 1.0))
    return found
