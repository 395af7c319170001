"""Recalibration of forecasts by horizon: how much wider or narrower intervals must be to cover what they claim.

Draws at one time are moved about their mean, x ↦ m + s (x − m), in the units of the model, with a factor s for each
column that depends on the horizon; densities are those of the moved draws. A factor is the part of an interval of 80 %
within which 80 % of the errors lay: of forecasts from origins all over the data, so that all seasons count, times what
forecasts of rows that their weights have not seen need more than forecasts of rows that they have (`calibrating`).
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
# Windows of a band's length, side by side, after which errors count as much as the assumption that bands are right
# (those of columns are correlated: √P of P columns count), and after which the rows that weights have not seen count as
# much for a column by itself as for all columns together.
ASSUMED, SHARED = 5.0, 10.0
LOWEST, HIGHEST = 0.5, 3.0


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
    n_rows: int,
) -> HorizonScales | None:
    """The factors that ratios ask for; None where there are too few origins.

    A ratio is |error| over half the width of the central interval of 80 %, NaN where nothing was observed. `ratios` are
    from origins all over the data; `unseen` and `seen` are of the same rows, by weights without them and with them. The
    factor of a column in a band of horizons is the quantile of its ratios at 80 %, drawn towards that of all columns
    together, which is drawn towards one: the more, the fewer windows of the band's length the n_rows rows hold. What
    unseen rows need more is found in the same way: a trend of one series does not widen the bands of others.
    """
    n_columns = ratios.shape[-1]
    if len(unseen) < LEAST_ORIGINS:
        return None
    own, scales = len(ratios) / (len(ratios) + POOLED), []
    for band in bands:
        parts = [part[:, band].reshape(-1, n_columns) for part in (ratios, unseen, seen)]
        if not all(np.isfinite(part).any() for part in parts):
            return None
        windows = n_rows / (band[-1] + 1.0)
        trusted = windows * np.sqrt(n_columns) / (windows * np.sqrt(n_columns) + ASSUMED)
        (here, heres), (honest, honests), (optimistic, optimistics) = (_logs(part) for part in parts)
        gap, gaps = honest - optimistic, honests - optimistics
        own_gaps = windows / (windows + SHARED) * (gaps - gap)
        scales.append(np.exp(trusted * (here + gap) + own * (heres - here) + own_gaps))
    centres = np.array([np.sqrt((band[0] + 1.0) * (band[-1] + 1.0)) for band in bands])
    return HorizonScales(centres, np.clip(np.array(scales), LOWEST, HIGHEST))


def _logs(ratios: Float[np.ndarray, "N P"]) -> tuple[float, Float[np.ndarray, " P"]]:
    """Logs of the quantiles of all ratios together and of each column; a column with few of them has that of all."""
    together = _log_quantile(ratios.ravel())
    has_own = np.isfinite(ratios).sum(axis=0) >= LEAST_ORIGINS
    columns = [_log_quantile(c) if enough else together for c, enough in zip(ratios.T, has_own, strict=True)]
    return together, np.array(columns)


def _log_quantile(ratios: Float[np.ndarray, " N"]) -> float:
    return float(np.log(np.clip(np.nanquantile(ratios, COVERAGE), LOWEST, HIGHEST)))


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
