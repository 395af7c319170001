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
from .selection import DENSITY, Scores, select

# Standard errors by which a candidate must be ahead of what is kept without it.
LEAD = 1.0


@dataclasses.dataclass(frozen=True)
class Trial:
    """A candidate: its CRPS at each origin, horizon and column, in standard deviations of y, its draws' ratios, the
    values of y that it was scored on (None: not kept), and joint log densities of held-back rows given those before
    them, in the units of y (None: rows have holes, and are not scored one by one).
    """

    name: str
    crps: Float[np.ndarray, "N H P"]
    ratios: Float[np.ndarray, "N H P"]
    damping: float | None = None
    y: Float[np.ndarray, "N H P"] | None = None
    densities: Float[np.ndarray, " R"] | None = None

    def by_band(self) -> Float[np.ndarray, " B"]:
        return np.array([np.nanmean(self.crps[:, band]) for band in bands_of(self.crps.shape[1])])

    def scores(self, unit: Float[np.ndarray, " B"] | None) -> Scores:
        """Log densities of rows for each column, and minus the CRPS of each origin by band, in given units (None:
        without it).
        """
        found = {} if self.densities is None else {DENSITY: self.densities / self.crps.shape[2]}
        if unit is None:
            return found
        names, bands = band_names(self.crps.shape[1]), bands_of(self.crps.shape[1])
        crps = {f"CRPS {n}": -_mean_of(self.crps[:, b]) / u for n, b, u in zip(names, bands, unit, strict=True)}
        return {**found, **crps}


def _mean_of(crps: Float[np.ndarray, "N H P"]) -> Float[np.ndarray, " N"]:
    """NaN for an origin after which nothing was observed."""
    count = np.sum(~np.isnan(crps), axis=(1, 2))
    return np.where(count > 0, np.nansum(crps, axis=(1, 2)) / np.maximum(count, 1), np.nan)


def trial_of(
    name: str,
    model: Any,
    origins: Origins,
    units: Units,
    sd: np.ndarray,
    seed: int,
    densities: Float[np.ndarray, " R"] | None = None,
    damping: float | None = None,
) -> Trial:
    draws = simulated(model, origins, seed)
    is_there = ~np.isnan(origins.y)
    with np.errstate(all="ignore"):
        y = units.inverse_each(origins.keys, np.clip(draws, -1e6, 1e6))
        crps = crps_samples(np.where(is_there, origins.y, 0.0), np.nan_to_num(y, nan=np.inf)) / sd
    return Trial(name, np.where(is_there, crps, np.nan), ratios_of(draws, origins.z), damping, origins.y, densities)


def choose(trials: Sequence[Trial], lead: float = LEAD) -> Trial:
    """The best of the candidates that are kept beside the first, the reference (`selection`): by the log density and,
    where there are origins enough, by the CRPS of each band of horizons.
    """
    reference = trials[0]
    unit = np.maximum(reference.by_band(), linear.TINY) if len(reference.crps) >= LEAST_ORIGINS else None
    found = select([trial.scores(unit) for trial in trials[1:]], reference.scores(unit), lead)
    return reference if found is None else trials[1 + found]


def table_of(trials: Sequence[Trial], kept: Trial) -> pd.DataFrame:
    """The CRPS of all candidates by band, their log density and coverage, and which of them was kept."""
    names = band_names(trials[0].crps.shape[1])
    rows = []
    for trial in trials:
        covered = np.nanmean(np.where(np.isnan(trial.ratios), np.nan, trial.ratios <= 1.0))
        scores = {f"crps {name}": value for name, value in zip(names, trial.by_band(), strict=True)}
        scores |= {} if trial.densities is None else {DENSITY: float(np.mean(trial.densities))}
        rows.append({"candidate": trial.name, **scores, f"coverage {COVERAGE:.0%}": covered, "kept": trial is kept})
    return pd.DataFrame(rows)


def numbers_of(trial: Trial) -> str:
    """The CRPS by band and the log density, in words."""
    crps = "/".join(f"{value:.4f}" for value in trial.by_band())
    return crps if trial.densities is None else f"{crps}, log density {np.mean(trial.densities):.3f}"
