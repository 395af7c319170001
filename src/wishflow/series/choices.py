"""What `"auto"` chooses: lags, calendar, transform and the prior of linear auto-regressions.

Longer series choose by rolled forecasts (`choosing`), short ones by the evidence (`by_evidence`). The evidence knows
linear models alone, so a short series has the rolled choice as an alternative: held-back rows decide (`fitting`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from ..numerics.scaling import Scaler
from . import by_evidence
from . import linear_gaussian as linear
from .choosing import LEAST_ROWS, Config, Judge, eligible_periods, fine_periods
from .data.calendar import FINE
from .data.transforms import SCALED_LOG
from .linear_prior import DEFAULT, Prior

# A candidate that is larger must lower the log of the score by so much, and by so much more for few rows, which are
# described better by one of many candidates by chance.
MARGIN, MARGIN_OF_ROWS = 0.001, 1.0
TIGHTNESSES = (0.1, 0.03, 1.0)
# Models of increments, which never return to a level: a VAR of prices estimates a return where there is none, and its
# forecasts many steps ahead are worse than those of a random walk. The last candidate is a random walk.
INCREMENTS = tuple(Prior(t, sums=0.0) for t in (0.3, 0.1, 0.03))
WALK = Prior(0.01, math.inf, 0.0)
# A series with a unit root by the evidence has increments unless its rolled CRPS is higher by so much, any other series
# if it is lower by so much (docs/decisions.md).
MOST_LOSS, LEAST_GAIN = 0.1, 0.02
# Rows for each weight of a regression, and the most weights.
ROWS_PER_WEIGHT, MOST_WEIGHTS = 4, 700
# The same where the evidence chooses how far weights are from zero.
ROWS_PER_SMALL_WEIGHT = 2
# A column must be as skewed as this for a logarithm to be tried.
LEAST_SKEWNESS = 1.0


def calendar_candidates(periods: tuple[str, ...]) -> list[tuple[str, ...]]:
    """No calendar, then all choices of the periods, the smaller ones first; weekdays and months only beside the
    harmonics of their period.
    """
    choices = [tuple(p for i, p in enumerate(periods) if mask >> i & 1) for mask in range(1 << len(periods))]
    return sorted((c for c in choices if all(FINE[p][0] in c for p in c if p in FINE)), key=len)


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


# Names of the two ways to choose.
EVIDENCE, ROLLED = "evidence", "rolled forecasts"


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen, by which of the two ways, and for each option a sentence that says why."""

    config: Config
    reasons: Mapping[str, str]
    way: str


@dataclasses.dataclass(frozen=True)
class Given:
    """Options that were given, and stay; None: they are to be chosen. `is_linear` says whether the drift has a linear
    part, which alone sees weekdays and months.
    """

    lags: tuple[int, ...] | None = None
    periods: tuple[str, ...] | None = None
    transform: tuple[str | None, ...] | None = None
    is_linear: bool = True


def choose(judge: Judge, given: Given) -> tuple[Choice, ...]:
    """What the rows say: of a short series by the evidence, and by rolled forecasts where these choose otherwise.

    Rolled forecasts alone choose for longer series and for many of them, the evidence alone for those with too few rows
    to roll over.
    """
    if not by_evidence.is_short(judge.n_rows, judge.dim):
        return (by_rolled_forecasts(judge, given),)
    if judge.n_rows < LEAST_ROWS:
        return (by_the_evidence(judge, given),)
    rolled = by_rolled_forecasts(judge, given)
    first = by_the_evidence(judge, given)
    if first.config != rolled.config:
        return (first, rolled)
    said = {"options": "the evidence and rolled forecasts choose the same"}
    return (dataclasses.replace(first, reasons={**first.reasons, **said}),)


def by_rolled_forecasts(judge: Judge, given: Given) -> Choice:
    """The candidates with the lowest scores, option after option."""
    best, reasons = _with_calendar(judge, given)
    if given.lags is None:
        found = lag_candidates(judge.dim, judge.n_rows, judge.season)
        best, said = _best(judge, [dataclasses.replace(best, lags=p) for p in found], _margin(judge))
        reasons["lags"] = f"of {len(found)} candidates: {said}"
    priors = (*(Prior(t) for t in TIGHTNESSES), *INCREMENTS)
    walk = dataclasses.replace(best, lags=given.lags or (1,), periods=given.periods or (), prior=WALK)
    options = [best, *(dataclasses.replace(best, prior=p) for p in priors), walk]
    best, said = _best(judge, options)
    reasons["prior"] = f"{best.prior.describe()}: {said}"
    if best is walk:
        reasons.update({name: f"a random walk: {said}" for name in ("lags", "calendar") if name in reasons})
    best, reasons = _with_increments_of_some(judge, best, reasons)
    if given.transform is None:
        best, reasons["transform"] = _with_logarithms(judge, best)
    return Choice(best, reasons, ROLLED)


def by_the_evidence(judge: Judge, given: Given) -> Choice:
    """The calendar by rolled forecasts, then logarithms, lags and prior of the highest evidence.

    The calendar was chosen with few lags; the lags and prior without it may be better than those beside it.
    """
    config, reasons = _with_calendar(judge, given)
    first = _by_the_evidence(judge, given, config, reasons)
    if given.periods is not None or not config.periods:
        return first
    other = _by_the_evidence(judge, given, dataclasses.replace(config, periods=()), reasons)
    if judge.score(first.config) is None or judge.score(other.config) is None:
        return first
    best, _ = _best(judge, [other.config, first.config], _margin(judge))
    if best is first.config:
        return first
    reasons = {**other.reasons, "calendar": f"with its lags and prior, none is as good as {', '.join(config.periods)}"}
    return dataclasses.replace(other, reasons=reasons)


def _by_the_evidence(judge: Judge, given: Given, config: Config, reasons: Mapping[str, str]) -> Choice:
    """Beside the calendar of a config. Logarithms are compared with the longest of the candidates for the lags."""
    reasons = dict(reasons)
    sets = [config.lags]
    if given.lags is None:
        sets = lag_candidates(judge.dim, judge.n_rows, judge.season, ROWS_PER_SMALL_WEIGHT)
    if given.transform is None:
        longest = dataclasses.replace(config, lags=sets[-1])
        found, reasons["transform"] = _with_evident_logarithms(judge, longest)
        config = dataclasses.replace(config, transform=found.transform)
    best = by_evidence.chosen(judge.stretches(config), sets, judge.season)
    if best is None:
        return Choice(config, reasons | {"prior": "too few rows to compare"}, EVIDENCE)
    if given.lags is None:
        reasons["lags"] = f"of {len(sets)} candidates: evidence {best.above_longest:.0f} nats above that of the longest"
    gain = f"evidence {best.above_default:.0f} nats above that of {DEFAULT.describe()}"
    reasons["prior"] = f"{best.prior.describe()}: {gain}"
    return Choice(dataclasses.replace(config, lags=best.lags, prior=best.prior), reasons, EVIDENCE)


def _margin(judge: Judge) -> float:
    return MARGIN + MARGIN_OF_ROWS / judge.n_rows


def _with_calendar(judge: Judge, given: Given) -> tuple[Config, dict[str, str]]:
    """Few lags, what was given, and the calendar that rolled forecasts choose."""
    indices = [p.index for p in judge.pieces]
    eligible = eligible_periods(indices)
    fine = fine_periods(indices, eligible) if given.is_linear else ()
    start = given.lags or ((1, 2, 3) if judge.n_rows >= 3 * LEAST_ROWS else (1,))
    transform = given.transform if given.transform is not None and any(given.transform) else ()
    config = Config(start, given.periods or (), transform)
    if given.periods is not None:
        return config, {}
    options = [dataclasses.replace(config, periods=p) for p in calendar_candidates((*eligible, *fine))]
    config, said = _best(judge, options, _margin(judge))
    named = ", ".join((*eligible, *fine)) or "no period that the data cover twice"
    return config, {"calendar": f"of {named}: {said}"}


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
    return best, _said_of_gain(gain)


def _said_of_gain(gain: float) -> str:
    below = f"rolled CRPS {gain:.1f} % below that of the simplest candidate"
    return below if gain > 0 else "the simplest candidate is as good"


def _with_increments_of_some(judge: Judge, config: Config, reasons: dict[str, str]) -> tuple[Config, dict[str, str]]:
    """Increments for the series with a unit root, levels for the others: prices often stand beside rates and spreads.

    The evidence of each series by itself says which, unless rolled forecasts clearly say otherwise: few windows of a
    random walk tell whether it returns to a mean.
    """
    plain, walks = (
        dataclasses.replace(config, prior=dataclasses.replace(config.prior, sums=sums)) for sums in (math.inf, 0.0)
    )
    levels, increments = judge.score(plain), judge.score(walks)
    if levels is None or increments is None:
        return config, reasons
    change = np.log(increments.crps + linear.TINY).mean(0) - np.log(levels.crps + linear.TINY).mean(0)
    has_unit_root = by_evidence.has_unit_root(judge.stretches(config), config.lags)
    has_increments = change < np.where(has_unit_root, MOST_LOSS, -LEAST_GAIN)
    if has_increments.all() or not has_increments.any():
        sums: float | tuple[float, ...] = 0.0 if has_increments[0] else math.inf
    else:
        sums = tuple(0.0 if flag else math.inf for flag in has_increments)
    if sums == config.prior.sums:
        return config, reasons
    prior = dataclasses.replace(config.prior, sums=sums)
    said = f"{prior.describe()}: evidence and rolled CRPS of each series"
    return dataclasses.replace(config, prior=prior), reasons | {"prior": said}


def _with_logarithms(judge: Judge, config: Config) -> tuple[Config, str]:
    """Logarithms for skewed columns without negative values whose rolled density and CRPS are better behind it."""
    candidates = _skewed(judge.raw)
    if not candidates.any():
        return config, "no column without negative values is strongly skewed"
    plain, logged = judge.score(config), judge.score(_logged(config, candidates))
    if plain is None or logged is None:
        return config, "too few rows to compare"
    wins = candidates & (logged.log_density > plain.log_density)
    wins &= np.log(logged.crps + linear.TINY).mean(0) < np.log(plain.crps + linear.TINY).mean(0)
    return _logged(config, wins), _said_of(judge, wins, "higher held-out density and lower CRPS")


def _with_evident_logarithms(judge: Judge, config: Config) -> tuple[Config, str]:
    """Logarithms for columns of positive numbers that are skewed or grow, and whose evidence is higher."""
    longest = max((p.values for p in judge.pieces), key=len)
    candidates = (_skewed(judge.raw) | by_evidence.grows(longest)) & (np.nanmin(judge.raw, axis=0) > 0.0)
    if not candidates.any():
        return config, "no column of positive numbers is strongly skewed or grows"
    tried = _logged(config, candidates)
    gains = by_evidence.gains(judge.stretches(config), judge.stretches(tried), judge.log_slopes(tried), config.lags)
    wins = candidates & (gains > by_evidence.LEAST_GAIN)
    return _logged(config, wins), _said_of(judge, wins, "higher evidence")


def _logged(config: Config, flags: Bool[np.ndarray, " D"]) -> Config:
    """With logarithms of these columns alone."""
    transform = tuple(SCALED_LOG if flag else None for flag in flags) if flags.any() else ()
    return dataclasses.replace(config, transform=transform)


def _said_of(judge: Judge, wins: Bool[np.ndarray, " D"], why: str) -> str:
    names = ", ".join(str(c) for c in judge.columns[wins])
    return f"{SCALED_LOG} for {names}: {why}" if wins.any() else f"{SCALED_LOG} did not pay"


def _skewed(values: Float[np.ndarray, "N D"]) -> Bool[np.ndarray, " D"]:
    with np.errstate(invalid="ignore"):
        skewness = np.nanmean(Scaler.of_seen(values).forward(values) ** 3, axis=0)
    return (np.nanmin(values, axis=0) >= 0.0) & (skewness > LEAST_SKEWNESS)
