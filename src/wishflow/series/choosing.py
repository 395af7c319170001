"""What `"auto"` chooses: lags, calendar, transform and the strength of the prior, by rolled validation.

Candidates are linear Gaussian auto-regressions (`linear_gaussian`). Each is fitted to the rows before a fold of the
last part of the data and forecasts that fold from origin after origin, at all horizons. A candidate counts by its CRPS
in the units of y, by bands of horizons, so that an option must pay a day ahead as well as an hour ahead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.special
import scipy.stats
from jaxtyping import Bool, Float, Int

from ..metrics import crps_gaussian
from ..numerics.scaling import Scaler
from . import by_evidence
from . import linear_gaussian as linear
from .data.calendar import PERIODS, harmonics, seconds
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
# A candidate that is larger must lower the log of the score by so much, and by so much more for few rows, which are
# described better by one of many candidates by chance.
MARGIN, MARGIN_OF_ROWS = 0.001, 1.0
# A calendar is asked about periods that the data cover so many times, with at least so many rows in each.
LEAST_CYCLES, LEAST_IN_CYCLE = 2.0, 4
TIGHTNESSES = (0.1, 0.03, 1.0)
# Rows for each weight of a regression, and the most weights.
ROWS_PER_WEIGHT, MOST_WEIGHTS = 4, 700
# The same where the evidence chooses how far weights are from zero.
ROWS_PER_SMALL_WEIGHT = 2
# A column must be as skewed as this for a logarithm to be tried.
LEAST_SKEWNESS = 1.0
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
    """Scores candidates on pieces of series; what candidates have in common is computed once.

    Whether the evidence chooses depends on the numbers of rows and series, unless `has_evidence` says so.
    """

    def __init__(
        self, pieces: Sequence[Piece], columns: pd.Index, fraction: float, has_evidence: bool | None = None
    ) -> None:
        self.pieces, self.columns, self.fraction = list(pieces), columns, fraction
        values = np.concatenate([p.values for p in pieces])
        self.raw = values
        self.has_evidence = by_evidence.is_short(*values.shape) if has_evidence is None else has_evidence
        self.sd = [np.maximum(scaler.scale, linear.TINY) for scaler in scalers_of(self.pieces, values)]
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
    pooled = Scaler(np.nanmean(joined, axis=0), np.maximum(np.nanstd(joined, axis=0), linear.TINY))
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
    guesses = [Stretch(linear.straight(z), ~np.isnan(z), u) for z, u in zip(pieces, none, strict=True)]
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


# --- candidates ------------------------------------------------------------------------------------


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
        if span + gap >= LEAST_CYCLES * period and LEAST_IN_CYCLE * gap <= period * 1.02
    )


def season_of(indices: Sequence[pd.Index], periods: tuple[str, ...]) -> int | None:
    """Rows in the shortest of the periods; None where there is none."""
    if not periods:
        return None
    stamps = seconds(max(indices, key=len))
    return round(PERIODS[periods[0]][0] / float(np.median(np.diff(stamps))))


def calendar_candidates(periods: tuple[str, ...]) -> list[tuple[str, ...]]:
    """No calendar, then all choices of the periods, the smaller ones first."""
    choices = [tuple(p for i, p in enumerate(periods) if mask >> i & 1) for mask in range(1 << len(periods))]
    return sorted(choices, key=len)


def lag_candidates(
    dim: int, n_rows: int, season: int | None, rows_per_weight: int = ROWS_PER_WEIGHT
) -> list[tuple[int, ...]]:
    """From short to long, as many as the rows can tell the weights of."""
    runs = [tuple(range(1, p + 1)) for p in (1, 2, 3, 6, 12)]
    seasonal: list[tuple[int, ...]] = []
    if season is not None and season > 3:
        seasonal = [(1, 2, 3, season), (*range(1, min(season, 7)), season, season + 1)]
        if season <= 31:
            seasonal.append(tuple(range(1, season + 2)))
    found = {lags for lags in (*runs, *seasonal) if len(set(lags)) == len(lags)}
    room = min(n_rows / rows_per_weight, MOST_WEIGHTS)
    fitting = {lags for lags in found if len(lags) * dim <= room and max(lags) <= n_rows // 5}
    return sorted(fitting | {(1,)}, key=lambda lags: (len(lags), lags))


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen, and for each option a sentence that says why."""

    config: Config
    reasons: Mapping[str, str]
    scores: Scores | None


def choose(
    judge: Judge,
    lags: tuple[int, ...] | None,
    periods: tuple[str, ...] | None,
    transform: tuple[str | None, ...] | None,
) -> Choice:
    """The best of the candidates; what is not None was given, and stays."""
    indices = [p.index for p in judge.pieces]
    eligible, reasons = eligible_periods(indices), {}
    margin = MARGIN + MARGIN_OF_ROWS / judge.n_rows
    start = lags or ((1, 2, 3) if judge.n_rows >= 3 * LEAST_ROWS else (1,))
    best = Config(start, periods or (), transform if transform is not None and any(transform) else ())
    if periods is None:
        options = [dataclasses.replace(best, periods=p) for p in calendar_candidates(eligible)]
        best, said = _best(judge, options, margin)
        named = ", ".join(eligible) or "no period that the data cover twice"
        reasons["calendar"] = f"of {named}: {said}"
    if judge.has_evidence:
        best, more = _by_evidence(judge, best, lags is None, transform is None)
        return Choice(best, reasons | more, judge.score(best))
    if lags is None:
        found = lag_candidates(judge.dim, judge.n_rows, judge.season)
        best, said = _best(judge, [dataclasses.replace(best, lags=p) for p in found], margin)
        reasons["lags"] = f"of {len(found)} candidates: {said}"
    options = [best, *(dataclasses.replace(best, prior=Prior(t)) for t in TIGHTNESSES)]
    best, said = _best(judge, options)
    reasons["prior"] = f"{best.prior.describe()}: {said}"
    if transform is None:
        best, reasons["transform"] = _with_logarithms(judge, best)
    return Choice(best, reasons, judge.score(best))


def _by_evidence(judge: Judge, config: Config, is_free: bool, is_plain: bool) -> tuple[Config, dict[str, str]]:
    """Lags (where they are free), prior and logarithms (where no transform was given) of a short series.

    The lags are the longest of the candidates: the prior holds old ones small, as far as the evidence says.
    """
    reasons = {}
    if is_free:
        sets = lag_candidates(judge.dim, judge.n_rows, judge.season, ROWS_PER_SMALL_WEIGHT)
        config = dataclasses.replace(config, lags=sets[-1])
        reasons["lags"] = f"the longest of {len(sets)} candidates"
    if is_plain:
        config, reasons["transform"] = _with_logarithms(judge, config)
    found = by_evidence.chosen(judge.stretches(config), config.lags)
    if found is None:
        return config, reasons | {"prior": "too few rows to compare"}
    prior, gain = found
    said = f"{prior.describe()}: evidence {gain:.0f} nats above that of {DEFAULT.describe()}"
    return dataclasses.replace(config, prior=prior), reasons | {"prior": said}


def _best(judge: Judge, options: Sequence[Config], margin: float = MARGIN) -> tuple[Config, str]:
    """The option with the lowest score; a later, larger one must be better by a margin."""
    best, lowest, first = options[0], np.inf, np.inf
    for option in options:
        found = judge.score(option)
        total = np.inf if found is None else found.total
        if not np.isfinite(first):
            first = total
        if total < lowest - margin:
            best, lowest = option, total
    if not np.isfinite(lowest):
        return options[0], "too few rows to compare"
    gain = 100.0 * (1.0 - np.exp(lowest - first))
    return best, f"rolled CRPS {gain:.1f} % below the smallest" if gain > 0 else "the smallest is as good"


def _with_logarithms(judge: Judge, config: Config) -> tuple[Config, str]:
    """log1p for skewed columns without negative values whose rolled density and CRPS are better behind it; of a short
    series, for columns of positive numbers that are skewed or grow, and whose evidence is higher.
    """
    is_short, candidates = judge.has_evidence, _skewed(judge.raw)
    if is_short:
        longest = max((p.values for p in judge.pieces), key=len)
        candidates = (candidates | by_evidence.grows(longest)) & (np.nanmin(judge.raw, axis=0) > 0.0)
    if not candidates.any():
        return config, "no column without negative values is strongly skewed" + (" or grows" if is_short else "")
    tried = dataclasses.replace(config, transform=tuple("log1p" if flag else None for flag in candidates))
    if is_short:
        gains = by_evidence.gains(judge.stretches(config), judge.stretches(tried), judge.log_slopes(tried), config.lags)
        wins = candidates & (gains > by_evidence.LEAST_GAIN)
    else:
        plain, logged = judge.score(config), judge.score(tried)
        if plain is None or logged is None:
            return config, "too few rows to compare"
        wins = candidates & (logged.log_density > plain.log_density)
        wins &= np.log(logged.crps + linear.TINY).mean(0) < np.log(plain.crps + linear.TINY).mean(0)
    names = ", ".join(str(c) for c in judge.columns[wins])
    why = "higher evidence" if is_short else "higher held-out density and lower CRPS"
    said = f"log1p for {names}: {why}" if wins.any() else "log1p did not pay"
    chosen = tuple("log1p" if flag else None for flag in wins) if wins.any() else ()
    return dataclasses.replace(config, transform=chosen), said


def _skewed(values: Float[np.ndarray, "N D"]) -> Bool[np.ndarray, " D"]:
    with np.errstate(invalid="ignore"):
        centred = values - np.nanmean(values, axis=0)
        skewness = np.nanmean(centred**3, axis=0) / np.maximum(np.nanstd(values, axis=0) ** 3, linear.TINY)
    return (np.nanmin(values, axis=0) >= 0.0) & (skewness > LEAST_SKEWNESS)
