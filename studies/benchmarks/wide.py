"""500 hourly series over a year in one model, beside forecasters of pairs and of single series.

    python -m studies.benchmarks.wide              # writes studies/results/wide.json

The series are `forecast_sets.five_hundred_hourly`: five factors with daily cycles, and noise of each series. Each
forecaster is fitted once to the first 80 % of the rows and then forecasts from 20 origins spread over the rest, given
all rows before them. Scores are those of `forecasts`: the CRPS divided by the standard deviation of each column in
training, and the coverage of central 80 % intervals, at 1, 6 and 24 hours. `WideForecaster` has no option but its 500
draws; the others are Gaussian. Vector auto-regressions are of pairs of neighbours (columns 1 and 2, 3 and 4, …).
AutoETS is scored where statsforecast is installed (`single_series`), on every tenth series; all forecasters have scores
of these 50 too. Each forecaster runs in a process of its own, and the largest memory of that process is its peak.
`--inner` runs the same protocol within the training part alone, for development. Finished cells are kept.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import json
import multiprocessing
import resource
import time
from collections.abc import Sequence
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
from .forecast_sets import Split, five_hundred_hourly, last_fifth
from .forecasts import COVERAGE, MOST_LAGS, N_DRAWS, WIDTH, Normal, naive, one_by_one, random_walk, summed

HORIZONS, SEASON, N_ORIGINS = (1, 6, 24), 24, 20
# Every tenth series, for forecasters that take minutes for each of them.
EVERY = 10
OURS = "WideForecaster()"
ON_GPU = f"{OURS}, on a GPU"
ETS = "AutoETS"


def order_by_aic(y: np.ndarray, exog: np.ndarray, most: int) -> int:
    """The order that `VAR.select_order` of statsmodels finds, from one matrix of products in place of a fit for each.

    AIC = log det Σ̂ + 2 (p D² + D m)/n on the rows after the first `most`, for D series and m other inputs.
    """
    n, D = len(y) - most, y.shape[1]
    inputs = np.concatenate([exog[most:], *(y[most - lag : len(y) - lag] for lag in range(1, most + 1))], axis=1)
    joint = np.concatenate([inputs, y[most:]], axis=1)
    products = joint.T @ joint
    scores = []
    for p in range(1, most + 1):
        k = exog.shape[1] + p * D
        xx, xy = products[:k, :k], products[:k, -D:]
        left = products[-D:, -D:] - xy.T @ np.linalg.solve(xx, xy)
        scores.append(np.linalg.slogdet(left / n)[1] + 2.0 / n * D * k)
    return 1 + int(np.argmin(scores))


def of_pair(y: pd.DataFrame, split: Split, exog: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Means and standard deviations of a pair, and the order; as `forecasts.var`, whose search takes far longer."""
    from statsmodels.tsa.api import VAR

    longest, at = max(HORIZONS), np.array(HORIZONS) - 1
    values, n = y.to_numpy(), split.n_train
    ones = np.ones((len(values), 1))
    order = order_by_aic(values[:n], np.concatenate([ones, exog], axis=1)[:n], MOST_LAGS)
    found = VAR(values[:n], exog=exog[:n] if exog.size else None).fit(order)
    means = [
        found.forecast(values[o - order : o], longest, exog_future=exog[o : o + longest] if exog.size else None)[at]
        for o in split.origins
    ]
    return np.array(means), np.sqrt(np.diagonal(found.mse(longest), axis1=1, axis2=2)[at]), order


def pairs(split: Split, has_harmonics: bool) -> Normal:
    """A vector auto-regression of statsmodels for each pair of neighbours, its order by AIC."""
    index, D = split.y.index, split.y.shape[1]
    exog = harmonics(index, eligible_periods([index[: split.n_train]]) if has_harmonics else ())
    found = [of_pair(split.y.iloc[:, d : d + 2], split, exog) for d in range(0, D, 2)]
    means, sds, orders = zip(*found, strict=True)
    said = f"{len(found)} pairs, orders {min(orders)} to {max(orders)}, median {np.median(orders):g}"
    mean = np.concatenate(means, axis=2)
    return mean, np.broadcast_to(np.concatenate(sds, axis=1), mean.shape), said


BASELINES = {
    "random walk": functools.partial(random_walk, horizons=HORIZONS, season=SEASON),
    "seasonal naive": functools.partial(naive, horizons=HORIZONS, season=SEASON),
    "VAR of pairs": functools.partial(pairs, has_harmonics=False),
    "VAR of pairs + harmonics": functools.partial(pairs, has_harmonics=True),
    ETS: functools.partial(one_by_one, ETS, horizons=HORIZONS, season=SEASON),
}


def split_of(is_inner: bool, n_rows: int | None, n_series: int | None) -> Split:
    y = five_hundred_hourly().iloc[:n_rows, :n_series]
    split = last_fifth(y, max(HORIZONS), N_ORIGINS)
    return last_fifth(y.iloc[: split.n_train], max(HORIZONS), N_ORIGINS) if is_inner else split


def targets_of(split: Split) -> np.ndarray:
    values = split.y.to_numpy()
    return np.stack([values[[o + h - 1 for h in HORIZONS]] for o in split.origins])


def of_baseline(label: str, split: Split) -> dict[str, Any]:
    started = time.perf_counter()
    means, sds, words = BASELINES[label](split)
    targets = targets_of(split)
    covered = (np.abs(targets - means) <= WIDTH * sds).astype(float)
    return {
        "crps": crps_gaussian(targets, means, np.maximum(sds, 1e-12)),
        "covered": covered,
        "seconds": time.perf_counter() - started,
        "model": words,
    }


def of_ours(split: Split) -> dict[str, Any]:
    started = time.perf_counter()
    model = wf.WideForecaster().fit(split.y.iloc[: split.n_train])
    seconds, fit_peak, seen, targets = time.perf_counter() - started, peak_mib(), split.n_train, targets_of(split)
    crps, covered = np.zeros(targets.shape), np.zeros(targets.shape)
    for i, origin in enumerate(split.origins):
        if origin > seen:
            model.update(split.y.iloc[seen:origin])
            seen = origin
        draws = model.forecast(list(HORIZONS), n_draws=N_DRAWS).samples.values
        low, high = np.quantile(draws, [0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2], axis=0)
        crps[i], covered[i] = crps_samples(targets[i], draws), (low <= targets[i]) & (targets[i] <= high)
    total = time.perf_counter() - started
    return {
        "crps": crps,
        "covered": covered,
        "seconds": seconds,
        "forecast_seconds": (total - seconds) / len(split.origins),
        "fit_peak_mib": fit_peak,
        "n_factors": model.n_factors_,
        "model": model.factors_.status_,
        "summary": model.summary(),
    }


def peak_mib() -> float:
    """The largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def scored(label: str, is_inner: bool, n_rows: int | None, n_series: int | None) -> dict[str, Any]:
    """A cell of the results; in a process of its own."""
    split = split_of(is_inner, n_rows, n_series)
    start, every = peak_mib(), slice(None, None, EVERY)
    if label == ETS:
        split = Split(split.y.iloc[:, every], split.n_train, split.origins)
    found = of_ours(split) if label == OURS else of_baseline(label, split)
    sd = split.y.iloc[: split.n_train].std().to_numpy()
    crps, covered = found.pop("crps"), found.pop("covered")
    some = slice(None) if label == ETS else every
    return {
        **({} if label == ETS else summed(crps, covered, sd)),
        "some": summed(crps[:, :, some], covered[:, :, some], sd[some]),
        **found,
        "start_mib": start,
        "peak_mib": peak_mib(),
        "horizons": list(HORIZONS),
        "n_series": split.y.shape[1],
        "n_train": split.n_train,
        "n_origins": len(split.origins),
        "origin_step": split.origins[1] - split.origins[0],
    }


def alone(*arguments: Any) -> dict[str, Any]:
    """In a process of its own, whose memory is that of one forecaster."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(scored, *arguments).result()


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "wide.json")
    installed = [name for name in BASELINES if name != ETS or single_series.is_installed()]
    parser.add_argument("--forecasters", default=",".join([*installed, OURS]), help="names, with commas")
    parser.add_argument("--gpu", action="store_true", help="what runs on a GPU is a row of its own")
    parser.add_argument("--inner", action="store_true", help="within the training part alone")
    parser.add_argument("--rows", type=int, help="the first rows alone, for a trial")
    parser.add_argument("--series", type=int, help="the first series alone, for a trial")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    for label in options.forecasters.split(","):
        name = ON_GPU if label == OURS and options.gpu else label
        if name not in results:
            found = alone(label, options.inner, options.rows, options.series)
            results[name] = {**found, "pandas": pd.__version__, "provenance": provenance()}
            write_json_atomic(options.output, results)
        cell = results[name]
        numbers = [" ".join(f"{value:.4f}" for value in cell["some"][key]) for key in ("crps", "coverage")]
        print(
            f"{name:<26} {numbers[0]} | {numbers[1]} | {cell['seconds']:.1f} s, {cell['peak_mib']:.0f} MiB", flush=True
        )


if __name__ == "__main__":
    main()
