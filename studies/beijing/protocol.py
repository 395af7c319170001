"""The rolling comparison on the Beijing data: what is trained on, what is scored, and how the scores are summed up.

26 distinct series, interpolated, in units of the training part's standard deviations. Training on 2014 and 2015, then
a forecast of 48 hours every 48 hours of 2016, and with the same fits of January and February 2017; or, for choices,
training to September 2015 and forecasts of the three months after it, or training on all before 2015 and forecasts of
that year, so that nothing of 2016 is read.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float

import wishflow as wf
from wishflow.datasets import beijing_periods, load_beijing

HORIZON = 48
N_TEST_WINDOWS = 182
BANDS = {"1": slice(0, 1), "2-6": slice(1, 6), "7-24": slice(6, 24), "25-48": slice(24, 48)}


@dataclasses.dataclass(frozen=True)
class Parts:
    """Rows to train on and rows to score, in training units: y = mean + sd × value leads back to those of the data.

    `is_observed` says which cells of `rest` were measured; the others are interpolated. `after` has the rows that
    follow those of the test year, which is part of their past; the parts to choose on have none.
    """

    train: pd.DataFrame
    rest: pd.DataFrame
    is_observed: pd.DataFrame
    mean: pd.Series
    sd: pd.Series
    is_validation: bool = False
    after: Parts | None = None

    @property
    def n_windows(self) -> int:
        return min(N_TEST_WINDOWS, len(self.rest) // HORIZON)

    @property
    def first_window(self) -> pd.DataFrame:
        return self.rest.iloc[:HORIZON]


def load_parts(is_validation: bool = False) -> Parts:
    """The two parts of the comparison; with `is_validation` those on which choices are made."""
    return _parts(*(("fit", "validation") if is_validation else ("train", "test")), is_validation)


def load_validation_year() -> Parts:
    """A year of all seasons to make choices on, as long as that of the comparison, and what came before it."""
    return _parts("fit_year", "validation_year", True)


def _parts(fitted: str, scored: str, is_validation: bool) -> Parts:
    filled, measured = load_beijing(interpolate=True), load_beijing()
    train, rest = (filled.loc[beijing_periods()[name]] for name in (fitted, scored))
    mean, sd = train.mean(), train.std(ddof=0)

    def cut(past: pd.DataFrame, coming: pd.DataFrame, after: Parts | None) -> Parts:
        is_observed = measured.notna().loc[coming.index]
        return Parts((past - mean) / sd, (coming - mean) / sd, is_observed, mean, sd, is_validation, after)

    later = filled.loc[filled.index > rest.index[-1]]
    return cut(train, rest, None if is_validation else cut(pd.concat([train, rest]), later, None))


def with_holes(train: pd.DataFrame, missing: float) -> pd.DataFrame:
    """The training part with a share of its entries deleted, the same ones every time."""
    return train.mask(np.random.default_rng(0).uniform(size=train.shape) < missing)


def roll(forecaster: Any, parts: Parts, n_draws: int) -> dict[str, Any]:
    """Scores of a fitted forecaster over all windows, summed up."""
    whole = pd.concat([parts.train, parts.rest.iloc[: parts.n_windows * HORIZON]])
    scores = wf.backtest(forecaster, whole, fh=HORIZON, initial=len(parts.train), n_draws=n_draws, n_densities=1)
    is_observed = parts.is_observed.to_numpy()[: parts.n_windows * HORIZON]
    return summary(scores, is_observed.reshape(parts.n_windows, HORIZON, -1))


def summary(scores: xr.Dataset, is_observed: Bool[np.ndarray, "W H P"]) -> dict[str, Any]:
    """Mean scores by hour ahead and in bands of hours, and the log density of hour 1; also for each window.

    CRPS is the mean over series. "crps_observed" leaves interpolated cells out: the mean over series of the mean over
    the windows in which the hour was measured. "coverage_80" is the share of cells in central 80 % intervals.
    """
    by_hour = {
        "crps": scores["crps"].mean(("origin", "variable")).values,
        "crps_observed": scores["crps"].where(is_observed).mean("origin").mean("variable").values,
        "energy": scores["energy"].mean("origin").values,
        "coverage_80": scores["covered"].mean(("origin", "variable")).values,
    }
    if "log_density_moments" in scores:  # few draws have none
        # Windows whose draws have no covariance count: a model is not scored on those alone where it did not explode.
        by_hour["log_density_moments"] = scores["log_density_moments"].mean("origin", skipna=False).values
    by_window = {"crps": scores["crps"].mean("variable").values, "energy": scores["energy"].values}
    first = scores["log_density"].values[:, 0]
    return {
        "bands": {name: {band: float(value) for band, value in in_bands(v).items()} for name, v in by_hour.items()},
        "log_density_1": float(first.mean()),
        "by_hour": {name: values.tolist() for name, values in by_hour.items()},
        "windows": {
            **{name: {band: v.tolist() for band, v in in_bands(values).items()} for name, values in by_window.items()},
            "log_density_1": first.tolist(),
        },
    }


def in_bands(values: Float[np.ndarray, "*shape H"]) -> dict[str, Float[np.ndarray, "*shape"]]:
    """Means over the hours of each band, hours on the last axis."""
    return {band: values[..., hours].mean(axis=-1) for band, hours in BANDS.items()}
