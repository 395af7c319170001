"""Recalibration of forecasts by horizon: how much wider or narrower intervals must be to cover what they claim.

Draws at one time are moved about their mean, x ↦ m + s (x − m), in the units of the model, with a factor s for each
column that depends on the horizon; densities are those of the moved draws. A factor is the part of an interval of 80 %
within which 80 % of the errors lay: of forecasts from origins all over the data, so that all seasons count, times what
forecasts of rows that their weights have not seen need more than forecasts of rows that they have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

COVERAGE = 0.8
# Fewer origins say too little.
LEAST_ORIGINS = 15
# Origins after which the errors of a column count as much as those of all columns together.
POOLED = 80.0
# Errors after which they count as much as the assumption that bands are right. Those of columns are correlated: √P of P
# columns count.
ASSUMED = 35.0
LOWEST, HIGHEST = 0.5, 2.0


@dataclasses.dataclass(frozen=True)
class HorizonScales:
    """Factors for each column at some horizons (in steps); between them the logarithm is interpolated in log h."""

    horizons: Float[np.ndarray, " B"]
    scales: Float[np.ndarray, "B P"]

    def at(self, steps: Float[np.ndarray, " T"]) -> Float[np.ndarray, "T P"]:
        logs = [np.interp(np.log(steps), np.log(self.horizons), column) for column in np.log(self.scales).T]
        return np.exp(np.stack(logs, axis=1))

    def describe(self) -> str:
        means = np.exp(np.log(self.scales).mean(axis=1))
        parts = [f"{s:.2f} at step {h:.0f}" for h, s in zip(self.horizons, means, strict=True)]
        return "deviations from the mean are multiplied by " + ", ".join(parts) + " (means over columns)"


def horizon_scales(
    ratios: Float[np.ndarray, "N H P"],
    unseen: Float[np.ndarray, "K H P"],
    seen: Float[np.ndarray, "K H P"],
    bands: Sequence[np.ndarray],
) -> HorizonScales | None:
    """The factors that ratios ask for; None where there are too few origins.

    A ratio is |error| over half the width of the central interval of 80 %, NaN where nothing was observed. `ratios` are
    from origins all over the data; `unseen` and `seen` are of the same rows, by weights without them and with them. The
    factor of a column in a band of horizons is the quantile of its ratios at 80 %, drawn towards that of all columns
    together, which is drawn towards one.
    """
    n, n_columns = len(unseen), ratios.shape[-1]
    if n < LEAST_ORIGINS:
        return None
    own, errors = len(ratios) / (len(ratios) + POOLED), n * np.sqrt(n_columns)
    scales = []
    for band in bands:
        cells = ratios[:, band].reshape(-1, n_columns)
        parts = [part[:, band].ravel() for part in (ratios, unseen, seen)]
        if not all(np.isfinite(part).any() for part in parts):
            return None
        pooled, honest, optimistic = (np.log(_quantile(part)) for part in parts)
        columns = [np.log(_quantile(c)) if np.isfinite(c).sum() >= LEAST_ORIGINS else pooled for c in cells.T]
        drawn = errors / (errors + ASSUMED) * (pooled + honest - optimistic)
        scales.append(np.exp(drawn + own * (np.array(columns) - pooled)))
    centres = np.array([np.sqrt((band[0] + 1.0) * (band[-1] + 1.0)) for band in bands])
    return HorizonScales(centres, np.clip(np.array(scales), LOWEST, HIGHEST))


def _quantile(ratios: Float[np.ndarray, " N"]) -> float:
    return float(np.clip(np.nanquantile(ratios, COVERAGE), LOWEST, HIGHEST))


def ratios_of(draws: Float[np.ndarray, "S N H P"], z: Float[np.ndarray, "N H P"]) -> Float[np.ndarray, "N H P"]:
    """|z − m| over the quantile at 80 % of |x − m| among the draws, m their mean."""
    mean = draws.mean(axis=0)
    widths = np.quantile(np.abs(draws - mean), COVERAGE, axis=0)
    return np.abs(z - mean) / np.maximum(widths, 1e-300)


@dataclasses.dataclass(frozen=True)
class Moved:
    """Draws after recalibration, and how values go back to the law before it."""

    draws: Float[np.ndarray, "S T P"]
    mean: Float[np.ndarray, "T P"]
    scale: Float[np.ndarray, "T P"]

    @classmethod
    def of(
        cls,
        scales: HorizonScales | None,
        draws: Float[np.ndarray, "S T P"],
        steps: Float[np.ndarray, " T"],
    ) -> Moved:
        """Draws about their means."""
        mean = draws.mean(axis=0)
        if scales is None:
            return cls(draws, mean, np.ones_like(mean))
        scale = scales.at(np.maximum(steps, 1e-9))
        return cls(mean + scale * (draws - mean), mean, scale)

    def forward(self, z: Float[np.ndarray, "*S T P"]) -> Float[np.ndarray, "*S T P"]:
        """Values of the law before recalibration, moved."""
        return self.mean + self.scale * (z - self.mean)

    def backward(self, z: Float[np.ndarray, "T P"]) -> Float[np.ndarray, "T P"]:
        return self.mean + (z - self.mean) / self.scale

    @property
    def log_scale(self) -> Float[np.ndarray, " T"]:
        """What densities lose, joint over columns."""
        return np.log(self.scale).sum(axis=1)
