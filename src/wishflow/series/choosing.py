"""Scores of linear candidates by rolled validation, which options that are `"auto"` are chosen by (`choices`).

Candidates are linear Gaussian auto-regressions (`linear_gaussian`). Each is fitted to the rows before a fold of the
last part of the data and forecasts that fold from origin after origin, at all horizons. A candidate counts by its CRPS
in the units of y, by bands of horizons, so that an option must pay a day ahead as well as an hour ahead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.special
import scipy.stats
from jaxtyping import Float, Int

from ..metrics import crps_gaussian
from ..numerics.scaling import Scaler
from . import linear_gaussian as linear
from .data.calendar import FINE, PERIODS, harmonics, seconds
from .data.effects import series_scalers
from .data.transforms import ColumnTransforms
from .linear_gaussian import LinearModel, Stretch
from .linear_prior import DEFAULT, Prior

# Rows below which nothing is chosen.
LEAST_ROWS = 50
# Folds of the validation fraction each, and origins in each.
N_FOLDS, MOST_ORIGINS = 3, 60
# The longest horizon that is scored is a season, within these.
SHORTEST_SEASON, LONGEST_SEASON = 24, 168
# A calendar is asked about periods that the data cover so many times, with at least so many rows in each.
LEAST_CYCLES, LEAST_IN_CYCLE = 2.0, 4
# Two calendar years of 365 days are half a day short of two cycles of 365.25 days.
SHORT_YEAR = 365.0 / 365.25
# Longer gaps, in median ones, are no steps.
LONGEST_STEP = 4.0
LEVELS = (np.arange(25) + 0.5) / 25
NORMALS = scipy.special.ndtri(LEVELS)


@dataclasses.dataclass(frozen=True)
class Piece:
    """A stretch of one series without long gaps, in the units of y: values, stamps, covariates, and where it begins
    among the rows of its series, of which there are `n_rows`; `key` is that of the series.
    """

    values: Float[np.ndarray, "T D"]
    index: pd.Index
    covariates: Float[np.ndarray, "T U"]
    first: int
    n_rows: int
    key: Any = None


@dataclasses.dataclass(frozen=True)
class Config:
    """One candidate."""

    lags: tuple[int, ...]
    periods: tuple[str, ...] = ()
    transform: tuple[str | None, ...] = ()
    prior: Prior = DEFAULT


@dataclasses.dataclass(frozen=True)
class Scores:
    """Mean CRPS by band and column, in standard deviations of y, and log densities of one step by column."""

    crps: Float[np.ndarray, "B D"]
    log_density: Float[np.ndarray, " D"]

    @property
    def by_band(self) -> Float[np.ndarray, " B"]:
        return self.crps.mean(axis=1)

    @property
    def total(self) -> float:
        """The mean over bands of the log of the CRPS: a hundredth is about a percent."""
        return float(np.log(np.maximum(self.by_band, linear.TINY)).mean())


def horizon_of(n_held: int, season: int | None = None) -> int:
    """The longest horizon that so many held-back rows can judge: a season, or 24 steps where that is more."""
    most = int(np.clip(season or 0, SHORTEST_SEASON, LONGEST_SEASON))
    return int(np.clip(n_held // 3, 1, most))


def bands_of(n_steps: int) -> list[np.ndarray]:
    """Places of horizons: the first step, the rest of the first quarter, and what follows."""
    quarter = max(1, n_steps // 4)
    parts = [np.arange(1), np.arange(1, quarter), np.arange(quarter, n_steps)]
    return [part for part in parts if len(part)]


def band_names(n_steps: int) -> list[str]:
    ends = [(int(part[0]) + 1, int(part[-1]) + 1) for part in bands_of(n_steps)]
    return [str(a) if a == b else f"{a}-{b}" for a, b in ends]


def origins_of(first: int, end: int, n_steps: int, most: int = MOST_ORIGINS) -> Int[np.ndarray, " N"]:
    """Rows to forecast from: at most `most`, spread evenly, each with n_steps rows before `end`."""
    last = end - n_steps
    if last < first:
        return np.zeros(0, int)
    return np.unique(np.linspace(first, last, min(most, last - first + 1)).round().astype(int))


class Judge:
    """Scores candidates on pieces of series; what candidates have in common is computed once."""

    def __init__(self, pieces: Sequence[Piece], columns: pd.Index, fraction: float) -> None:
        self.pieces, self.columns, self.fraction = list(pieces), columns, fraction
        values = np.concatenate([p.values for p in pieces])
        self.raw = values
        self.sd = [scaler.scale for scaler in scalers_of(self.pieces, values)]
        indices = [p.index for p in pieces]
        self.season = season_of(indices, eligible_periods(indices))
        n_held = max(self._fold(p.n_rows, 0)[1] - self._fold(p.n_rows, 0)[0] for p in pieces)
        self.n_steps = horizon_of(n_held, self.season)
        self.n_folds = next(
            k for k in range(N_FOLDS, 0, -1) if k == 1 or (1.0 - k * fraction) * len(values) >= LEAST_ROWS // 2
        )
        self._filled: dict[tuple, tuple] = {}
        self._scores: dict[Config, Scores] = {}
        self._last_moments: tuple[Any, list[linear.Moments | None]] = (None, [])

    @property
    def dim(self) -> int:
        return len(self.columns)

    @property
    def n_rows(self) -> int:
        return len(self.raw)

    def _fold(self, n_rows: int, k: int) -> tuple[int, int]:
        """The rows of the fold k from the end of a series."""
        size = max(1, round(self.fraction * n_rows))
        return n_rows - (k + 1) * size, n_rows - k * size

    # --- data of a candidate ---

    def _with_transform(self, transform: tuple) -> tuple[ColumnTransforms, list[Scaler], list[np.ndarray]]:
        """The transforms, level and scale of each piece behind them, and the pieces in these units with holes filled
        causally.
        """
        if transform not in self._filled:
            choice = dict(zip(self.columns, transform, strict=True)) if transform else None
            parts = ColumnTransforms.learnt(choice, self.columns, self.raw)[0]
            z = [dataclasses.replace(p, values=parts.forward(p.values)) for p in self.pieces]
            scalers = scalers_of(z, np.concatenate([p.values for p in z]))
            scaled = [scaler.forward(p.values) for scaler, p in zip(scalers, z, strict=True)]
            self._filled[transform] = (parts, scalers, causally_filled(scaled))
        return self._filled[transform]

    def stretches(self, config: Config) -> list[Stretch]:
        rows = self._with_transform(config.transform)[2]
        return [
            Stretch(
                z, ~np.isnan(p.values), np.concatenate([p.covariates, harmonics_of(p.index, config.periods)], axis=1)
            )
            for z, p in zip(rows, self.pieces, strict=True)
        ]

    def log_slopes(self, config: Config) -> list[Float[np.ndarray, "_ D"]]:
        """Logs of the slopes from values in standard deviations of y to those of `stretches`."""
        transforms, scalers, _ = self._with_transform(config.transform)
        with np.errstate(invalid="ignore", divide="ignore"):
            return [
                np.log(transforms.slope(p.values) * sd / scaler.scale)
                for p, scaler, sd in zip(self.pieces, scalers, self.sd, strict=True)
            ]

    # --- scores ---

    def models(self, stretches: list[Stretch], config: Config) -> list[LinearModel | None]:
        """One model for each fold, of all rows before it; the folds come from the earliest on."""
        found: list[LinearModel | None] = []
        for k, total in zip(self._folds, self._moments(stretches, config), strict=True):
            if total is None:
                found.append(None)
                continue
            model = linear.regression(total, config.lags, config.prior)
            found.append(linear.with_covariance(model, stretches, [self._end(p, k) for p in self.pieces]))
        return found

    @property
    def _folds(self) -> range:
        return range(self.n_folds - 1, -1, -1)

    def _moments(self, stretches: list[Stretch], config: Config) -> list[linear.Moments | None]:
        """Sums over the rows before each fold; those of the last candidate are kept, for priors of other strength."""
        key = (config.lags, config.periods, config.transform)
        if self._last_moments[0] == key:
            return self._last_moments[1]
        found: list[linear.Moments | None] = []
        total: linear.Moments | None = None
        done = [0] * len(stretches)
        for k in self._folds:
            for i, (stretch, piece) in enumerate(zip(stretches, self.pieces, strict=True)):
                end = self._end(piece, k)
                more = linear.moments(stretch, config.lags, done[i], end)
                total = more if total is None else total if more is None else total + more
                done[i] = max(done[i], end)
            found.append(total)
        self._last_moments = (key, found)
        return found

    def _end(self, piece: Piece, k: int) -> int:
        """Where the rows before fold k end in a piece."""
        return int(np.clip(self._fold(piece.n_rows, k)[0] - piece.first, 0, len(piece.values)))

    def score(self, config: Config) -> Scores | None:
        """None where no origin has the past that the lags need."""
        if config not in self._scores:
            found = self._score(config)
            if found is None:
                return None
            self._scores[config] = found
        return self._scores[config]

    def _score(self, config: Config) -> Scores | None:
        transforms, scalers, _ = self._with_transform(config.transform)
        stretches, memory = self.stretches(config), max(config.lags)
        crps, densities = [], []
        for k, model in zip(self._folds, self.models(stretches, config), strict=True):
            if model is None:
                continue
            for piece, stretch, scaler, sd_of_y in zip(self.pieces, stretches, scalers, self.sd, strict=True):
                first = max(self._end(piece, k), memory)
                end = int(np.clip(self._fold(piece.n_rows, k)[1] - piece.first, 0, len(stretch)))
                origins = origins_of(first, end, self.n_steps)
                if not len(origins):
                    continue
                at, sd = linear.rolled(model, stretch, origins, self.n_steps)
                y = np.stack([piece.values[o : o + self.n_steps] for o in origins])
                mean, scale = scaler.mean, scaler.scale
                crps.append(_crps(y, at, sd, mean, scale, transforms) / sd_of_y)
                densities.append(_log_density(y[:, 0], at[:, 0], sd[0], mean, scale, transforms))
        if not crps or not np.isfinite(np.concatenate(crps)).any():
            return None
        cells = np.concatenate(crps)
        bands = np.stack([_mean(cells[:, band].reshape(-1, self.dim)) for band in bands_of(self.n_steps)])
        return Scores(bands, _mean(np.concatenate(densities)))


def scalers_of(pieces: Sequence[Piece], joined: Float[np.ndarray, "N D"]) -> list[Scaler]:
    """Level and scale of each piece: those of its series in a panel, else of all rows."""
    pooled = Scaler.of_seen(joined)
    by_key: dict[Any, list[np.ndarray]] = {}
    for piece in pieces:
        by_key.setdefault(piece.key, []).append(piece.values)
    own = series_scalers({key: np.concatenate(parts) for key, parts in by_key.items()}, pooled)
    return [own.get(piece.key, pooled) for piece in pieces]


def _mean(cells: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " D"]:
    """Means of what is there; zero for a column without any cell."""
    count = (~np.isnan(cells)).sum(axis=0)
    return np.nansum(cells, axis=0) / np.maximum(count, 1)


def harmonics_of(index: pd.Index, periods: tuple[str, ...]) -> np.ndarray:
    return harmonics(index, periods) if periods else np.zeros((len(index), 0))


def causally_filled(pieces: Sequence[Float[np.ndarray, "_ D"]]) -> list[Float[np.ndarray, "_ D"]]:
    """Pieces whose holes are filled by what a short auto-regression expects there (`linear_gaussian.filled`)."""
    none = [np.zeros((len(z), 0)) for z in pieces]
    if not any(np.isnan(z).any() for z in pieces):
        return [z.copy() for z in pieces]
    guesses = [Stretch(linear.guessed(z), ~np.isnan(z), u) for z, u in zip(pieces, none, strict=True)]
    longest = max(len(z) for z in pieces)
    lags = (1, 2, 3) if longest > 30 else (1,)
    model = linear.fitted(guesses, lags, DEFAULT)
    if model is None:
        return [guess.values for guess in guesses]
    return [linear.filled(z, u, model) for z, u in zip(pieces, none, strict=True)]


def _crps(
    y: Float[np.ndarray, "N H D"],
    at: Float[np.ndarray, "N H D"],
    sd: Float[np.ndarray, "H D"],
    mean: np.ndarray,
    scale: np.ndarray,
    transforms: ColumnTransforms,
) -> Float[np.ndarray, "N H D"]:
    """CRPS in the units of y, NaN where nothing was seen: in closed form, behind a transform from quantiles."""
    is_there = ~np.isnan(y)
    known = np.where(is_there, y, 0.0)
    found = crps_gaussian((known - mean) / scale, at, np.broadcast_to(sd, at.shape)) * scale
    for d, choice in enumerate(transforms.choices):
        if choice is not None:
            part = transforms.parts[d]
            z = (at[..., d] + NORMALS[:, None, None] * sd[:, d]) * scale[d] + mean[d]
            errors = known[..., d] - part.inverse(z)
            levels = LEVELS[:, None, None]
            found[..., d] = 2.0 * np.mean(np.maximum(levels * errors, (levels - 1.0) * errors), axis=0)
    return np.where(is_there, found, np.nan)


def _log_density(
    y: Float[np.ndarray, "N D"],
    at: Float[np.ndarray, "N D"],
    sd: Float[np.ndarray, " D"],
    mean: np.ndarray,
    scale: np.ndarray,
    transforms: ColumnTransforms,
) -> Float[np.ndarray, "N D"]:
    """Of each entry by itself, in the units of y; NaN where nothing was seen."""
    with np.errstate(invalid="ignore", divide="ignore"):
        z = (transforms.forward(y) - mean) / scale
        slope = np.log(transforms.slope(y) / scale)
    return scipy.stats.norm.logpdf(z, at, sd) + slope


# --- periods ---------------------------------------------------------------------------------------


def eligible_periods(indices: Sequence[pd.Index]) -> tuple[str, ...]:
    """Periods that the longest of the series covers twice, with at least four rows in each."""
    longest = max(indices, key=len)
    if not isinstance(longest, pd.DatetimeIndex | pd.PeriodIndex) or len(longest) < 2:
        return ()
    stamps = seconds(longest)
    gap, span = float(np.median(np.diff(stamps))), float(stamps[-1] - stamps[0])
    return tuple(
        name
        for name, (period, _) in PERIODS.items()
        if span + gap >= LEAST_CYCLES * period * SHORT_YEAR and LEAST_IN_CYCLE * gap <= period * 1.02
    )


def fine_periods(indices: Sequence[pd.Index], periods: tuple[str, ...]) -> tuple[str, ...]:
    """Weekdays of days and months of the year, where the period has so few rows."""
    return tuple(fine for fine, (name, n, _) in FINE.items() if name in periods and _rows_in(indices, name) == n)


def season_of(indices: Sequence[pd.Index], periods: tuple[str, ...]) -> int | None:
    """Rows in the shortest of the periods; None where there is none."""
    return _rows_in(indices, periods[0]) if periods else None


def _rows_in(indices: Sequence[pd.Index], period: str) -> int:
    """The mean gap counts the weekends that business days leave out, five rows being a week, but no long gap."""
    gaps = np.diff(seconds(max(indices, key=len)))
    return round(PERIODS[period][0] / float(gaps[gaps <= LONGEST_STEP * np.median(gaps)].mean()))
