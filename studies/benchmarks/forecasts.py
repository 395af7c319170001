"""Forecasters with no option beside random walks, seasonal naive forecasts and vector auto-regressions.

    python -m studies.benchmarks.forecasts              # writes studies/results/forecasts.json

Series, splits and horizons are those of `studies.benchmarks.forecast_sets`. Each forecaster is fitted once to the
training part and then forecasts from every origin, given all rows before it. Scores are the CRPS divided by the
standard deviation of each column in training, averaged over origins and columns, and the coverage of central 80 %
intervals, at each horizon; the CRPS of single origins is kept too, for paired standard errors. `WishartForecaster` has
no option but its 500 draws; the others are Gaussian, with their CRPS in closed form. AutoARIMA and AutoETS are scored
where statsforecast is installed (`single_series`). Holes of the rows that baselines see are filled by straight lines,
at an origin by the last value.
`--inner` runs the same protocol within the training parts alone, for development. Finished cells are kept: a run can be
stopped and continued.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.files.json import write_json_atomic
from wishflow.metrics import crps_gaussian, crps_samples
from wishflow.series.choosing import eligible_periods
from wishflow.series.data.calendar import harmonics

from ..paths import RESULTS
from ..provenance import provenance
from . import single_series
from .forecast_sets import SETS, SeriesSet, Split, last_fifth

N_DRAWS = 500
COVERAGE, WIDTH = 0.8, 1.2815515655446004
# Rows before those that a baseline sees, to fill holes by.
N_MORE = 100
MOST_LAGS, ROWS_PER_LAG = 25, 10
# Means and standard deviations at the horizons, (origin, horizon, column), and words about the model.
Normal = tuple[np.ndarray, np.ndarray, str]


def filled(y: pd.DataFrame) -> np.ndarray:
    """Holes filled by straight lines; those at the ends by the nearest value."""
    return y.interpolate(limit_area="inside").ffill().bfill().to_numpy(float)


def pasts(split: Split, n_rows: int) -> list[np.ndarray]:
    """The last rows before each origin, filled by what was known there."""
    starts = [max(0, o - n_rows - N_MORE) for o in split.origins]
    return [filled(split.y.iloc[a:o])[-n_rows:] for a, o in zip(starts, split.origins, strict=True)]


# --- baselines -----------------------------------------------------------------------------------------


def naive(split: Split, horizons: tuple[int, ...], season: int) -> Normal:
    """The row a season before, or its latest repetition; variances grow with the number of seasons ahead."""
    train = filled(split.y.iloc[: split.n_train])
    variance = np.var(train[season:] - train[:-season], axis=0)
    ahead = [-(-h // season) for h in horizons]
    rows = pasts(split, season)
    means = [[past[h - 1 - k * season] for h, k in zip(horizons, ahead, strict=True)] for past in rows]
    sd = np.sqrt(np.outer(ahead, variance))
    return np.array(means), np.broadcast_to(sd, np.shape(means)), f"season {season}"


def random_walk(split: Split, horizons: tuple[int, ...], season: int) -> Normal:
    del season
    return naive(split, horizons, 1)


def var(split: Split, horizons: tuple[int, ...], has_harmonics: bool) -> Normal:
    """A vector auto-regression of statsmodels, its order by AIC; of one series, an auto-regression."""
    from statsmodels.tsa.api import VAR

    if split.y.shape[1] == 1:
        return _ar(split, horizons)
    y, longest = split.y, max(horizons)
    periods = eligible_periods([y.index[: split.n_train]]) if has_harmonics else ()
    exog = harmonics(y.index, periods) if periods else None
    n_most = int(np.clip(split.n_train // (ROWS_PER_LAG * y.shape[1]), 2, MOST_LAGS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        past = None if exog is None else exog[: split.n_train]
        found = VAR(filled(y.iloc[: split.n_train]), exog=past).fit(maxlags=n_most, ic="aic")
        means = []
        for o, rows in zip(split.origins, pasts(split, max(found.k_ar, 1)), strict=True):
            ahead = None if exog is None else exog[o : o + longest]
            means.append(found.forecast(rows, longest, exog_future=ahead))
        variances = np.diagonal(found.mse(longest), axis1=1, axis2=2)
    at = np.array(horizons) - 1
    values = np.array(means)[:, at]
    words = f"order {found.k_ar} of at most {n_most}" + (f", {'+'.join(periods)}" if periods else "")
    return values, np.broadcast_to(np.sqrt(variances[at]), values.shape), words


def _ar(split: Split, horizons: tuple[int, ...]) -> Normal:
    """One series: y_t = c + Σ a_l y_{t−l} + noise, the order by AIC."""
    from statsmodels.tsa.ar_model import ar_select_order

    longest = max(horizons)
    found = ar_select_order(filled(split.y.iloc[: split.n_train])[:, 0], MOST_LAGS, ic="aic").model.fit()
    order = len(found.params) - 1
    constant, a = found.params[0], found.params[1:]
    path = np.stack([np.concatenate([past[:, 0], np.zeros(longest)]) for past in pasts(split, order)])
    responses = np.concatenate([[1.0], np.zeros(longest - 1)])
    for h in range(longest):
        path[:, order + h] = constant + path[:, h : order + h][:, ::-1] @ a
        if h:
            known = responses[max(0, h - order) : h][::-1]
            responses[h] = known @ a[: len(known)]
    sd = np.sqrt(found.sigma2 * np.cumsum(responses**2))
    at = np.array(horizons) - 1
    values = path[:, order:][:, at, None]
    return values, np.broadcast_to(sd[at][:, None], values.shape), f"order {order} of at most {MOST_LAGS}"


def one_by_one(name: str, split: Split, horizons: tuple[int, ...], season: int) -> Normal:
    """A model of statsforecast for each series by itself."""
    train = filled(split.y.iloc[: split.n_train])
    return single_series.forecasts(name, train, pasts(split, single_series.N_ROWS), horizons, season)


BASELINES: dict[str, Callable[[Split, tuple[int, ...], int], Normal]] = {
    "random walk": random_walk,
    "seasonal naive": naive,
    "VAR by AIC": lambda split, horizons, season: var(split, horizons, False),
    "VAR by AIC + harmonics": lambda split, horizons, season: var(split, horizons, True),
    **{name: functools.partial(one_by_one, name) for name in single_series.NAMES},
}
OURS = "WishartForecaster()"


# --- scores --------------------------------------------------------------------------------------------


def summed(crps: np.ndarray, covered: np.ndarray, sd: np.ndarray) -> dict[str, list[Any]]:
    """By horizon, over origins and columns, and the CRPS of each origin too, over columns; cells that were not observed
    are NaN.
    """
    by_column = np.nanmean(crps, axis=0) / sd
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an origin without any observation
        by_origin = np.nanmean(crps / sd, axis=2)
    return {
        "crps": np.nanmean(by_column, axis=1).tolist(),
        "coverage": np.nanmean(covered, axis=(0, 2)).tolist(),
        "origins": [[None if np.isnan(v) else float(v) for v in row] for row in by_origin],
    }


def paired_block_error(first: np.ndarray, second: np.ndarray, length: int) -> float:
    """The standard error of the mean difference of two scores of the same origins, in order of time, one a row.

    Windows that overlap are correlated, so the error is that of means over blocks of `length` origins, side by side;
    blocks are shorter where there would be fewer than five. Origins that one of them has no score of (NaN) do not
    count.
    """
    difference = (first - second)[~np.isnan(first - second)]
    n_blocks = max(len(difference) // max(length, 1), min(5, len(difference)))
    if n_blocks < 2:
        return float("nan")
    means = [part.mean() for part in np.array_split(difference, n_blocks)]
    return float(np.std(means, ddof=1) / np.sqrt(n_blocks))


def of_baseline(name: str, series: SeriesSet, split: Split, targets: np.ndarray, sd: np.ndarray) -> dict[str, Any]:
    started = time.perf_counter()
    means, sds, words = BASELINES[name](split, series.horizons, series.season)
    seconds = time.perf_counter() - started
    is_there = ~np.isnan(targets)
    crps = crps_gaussian(np.where(is_there, targets, 0.0), means, np.maximum(sds, 1e-12))
    covered = np.abs(targets - means) <= WIDTH * sds
    found = summed(np.where(is_there, crps, np.nan), np.where(is_there, covered, np.nan), sd)
    return {**found, "seconds": seconds, "model": words}


def of_ours(
    series: SeriesSet, split: Split, targets: np.ndarray, sd: np.ndarray, options: Mapping[str, Any]
) -> dict[str, Any]:
    started = time.perf_counter()
    model = wf.WishartForecaster(**options).fit(split.y.iloc[: split.n_train])
    seconds, seen = time.perf_counter() - started, split.n_train
    crps, covered = np.full(targets.shape, np.nan), np.full(targets.shape, np.nan)
    for i, origin in enumerate(split.origins):
        if origin > seen:
            model.update(split.y.iloc[seen:origin])
            seen = origin
        draws = model.forecast(list(series.horizons), n_draws=N_DRAWS).samples.values
        is_there = ~np.isnan(targets[i])
        low, high = np.quantile(draws, [0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2], axis=0)
        crps[i] = np.where(is_there, crps_samples(np.where(is_there, targets[i], 0.0), draws), np.nan)
        covered[i] = np.where(is_there, (low <= targets[i]) & (targets[i] <= high), np.nan)
    total = time.perf_counter() - started
    return {**summed(crps, covered, sd), "seconds": seconds, "forecast_seconds": total - seconds, **chosen(model)}


def chosen(model: Any) -> dict[str, Any]:
    names = ("lags", "calendar", "transform", "rank", "white_noise", "n_inducing", "max_iter")
    values = {name: repr(getattr(model, f"{name}_")) for name in names}
    return {"model": model.status_, "chosen": values, "options": model.reasons_.get("options")}


def run(series: SeriesSet, split: Split, label: str, **options: Any) -> dict[str, Any]:
    """The scores of a forecaster; `options` of ours are for comparisons with the defaults."""
    values = split.y.to_numpy(float)
    targets = np.stack([values[[o + h - 1 for h in series.horizons]] for o in split.origins])
    sd = np.nanstd(values[: split.n_train], axis=0)
    parts = (series, split, targets, sd)
    found = of_ours(*parts, options) if label == OURS else of_baseline(label, *parts)
    step = split.origins[1] - split.origins[0]
    facts = {"horizons": list(series.horizons), "n_origins": len(split.origins), "origin_step": step}
    return {**found, **facts, "provenance": provenance()}


def split_of(series: SeriesSet, is_inner: bool) -> Split:
    y = series.make()
    split = series.split(y, max(series.horizons))
    return last_fifth(y.iloc[: split.n_train], max(series.horizons)) if is_inner else split


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "forecasts.json")
    parser.add_argument("--sets", default=",".join(SETS), help="names of sets, with commas")
    installed = [name for name in BASELINES if name not in single_series.NAMES or single_series.is_installed()]
    parser.add_argument("--forecasters", default=",".join([*installed, OURS]), help="names, with commas")
    parser.add_argument("--inner", action="store_true", help="within the training parts alone")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    for name in options.sets.split(","):
        split = split_of(SETS[name], options.inner)
        for label in options.forecasters.split(","):
            cells = results.setdefault(name, {})
            if label not in cells:
                cells[label] = run(SETS[name], split, label)
                write_json_atomic(options.output, results)
            found = cells[label]
            numbers = [" ".join(f"{value:.4f}" for value in found[key]) for key in ("crps", "coverage")]
            print(f"{name:<14} {label:<24} {numbers[0]} | {numbers[1]} | {found['seconds']:.1f} s", flush=True)


if __name__ == "__main__":
    main()
