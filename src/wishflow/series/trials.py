"""Candidates that have forecast the same held-back rows: their scores, and which of them is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from ..metrics import crps_samples
from . import linear_gaussian as linear
from .choosing import band_names, bands_of
from .data.units import Units
from .recalibration import COVERAGE, LEAST_ORIGINS, ratios_of
from .rolling import Origins, simulated

# A candidate may lose so much of its CRPS in a band: the error of the draws.
SLACK = 0.001
# Standard errors by which the best candidate must be ahead of the linear model.
LEAD = 1.0


@dataclasses.dataclass(frozen=True)
class Trial:
    """A candidate: its CRPS at each origin, horizon and column, in standard deviations of y, its draws' ratios, and the
    values of y that it was scored on (None: not kept).
    """

    name: str
    crps: Float[np.ndarray, "N H P"]
    ratios: Float[np.ndarray, "N H P"]
    damping: float | None = None
    y: Float[np.ndarray, "N H P"] | None = None

    def by_band(self) -> Float[np.ndarray, " B"]:
        return np.array([np.nanmean(self.crps[:, band]) for band in bands_of(self.crps.shape[1])])

    def by_origin(self, unit: Float[np.ndarray, " B"]) -> Float[np.ndarray, " N"]:
        """The mean over bands of the CRPS in given units."""
        bands = [np.nanmean(self.crps[:, band], axis=(1, 2)) for band in bands_of(self.crps.shape[1])]
        return np.nanmean(np.stack(bands, axis=1) / unit, axis=1)


def trial_of(
    name: str, model: Any, origins: Origins, units: Units, sd: np.ndarray, seed: int, damping: float | None = None
) -> Trial:
    draws = simulated(model, origins, seed)
    is_there = ~np.isnan(origins.y)
    with np.errstate(all="ignore"):
        y = units.inverse_each(origins.keys, np.clip(draws, -1e6, 1e6))
        crps = crps_samples(np.where(is_there, origins.y, 0.0), np.nan_to_num(y, nan=np.inf)) / sd
    return Trial(name, np.where(is_there, crps, np.nan), ratios_of(draws, origins.z), damping, origins.y)


def choose(trials: Sequence[Trial], lead: float = LEAD) -> Trial:
    """The best of the candidates that lose to the first, the reference, at no band of horizons and are `lead` standard
    errors ahead of it; the reference where there are few origins.
    """
    reference = trials[0]
    if len(reference.crps) < LEAST_ORIGINS:
        return reference
    unit = np.maximum(reference.by_band(), linear.TINY)
    fair = [t for t in trials[1:] if np.all(t.by_band() <= (1.0 + SLACK) * unit)]
    ahead = []
    for trial in fair:
        gain = reference.by_origin(unit) - trial.by_origin(unit)
        gain = gain[np.isfinite(gain)]
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
        if gain.mean() > lead * error:
            ahead.append((float(gain.mean()), trial))
    return max(ahead, key=lambda pair: pair[0])[1] if ahead else reference


def table_of(trials: Sequence[Trial], kept: Trial) -> pd.DataFrame:
    """The CRPS of all candidates by band, their coverage, and which of them was kept."""
    names = band_names(trials[0].crps.shape[1])
    rows = []
    for trial in trials:
        covered = np.nanmean(np.where(np.isnan(trial.ratios), np.nan, trial.ratios <= 1.0))
        scores = {f"crps {name}": value for name, value in zip(names, trial.by_band(), strict=True)}
        rows.append({"candidate": trial.name, **scores, f"coverage {COVERAGE:.0%}": covered, "kept": trial is kept})
    return pd.DataFrame(rows)


def numbers_of(trial: Trial) -> str:
    """The CRPS by band, in words."""
    return "/".join(f"{value:.4f}" for value in trial.by_band())
