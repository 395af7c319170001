"""Forecasting on the Beijing data: rolling 48-hour forecasts, ours beside random walk and VARs (design, section 7).

    python -m benchmarks.beijing --models walk var3 var24 wishart_state            # test year 2016, results/beijing
    python -m benchmarks.beijing --validation --models wishart_state --set rank=15 # October to December 2015

26 distinct series, interpolated, in units of the training part's standard deviations; a window every 48 hours. With
--validation nothing of 2016 is read: the models are trained to September 2015 and scored on the last three months.
"""

from __future__ import annotations

import argparse
import ast
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

import wishflow as wf
from wishflow.datasets import beijing_periods, load_beijing
from wishflow.experiments.provenance import provenance
from wishflow.experiments.rivals import RandomWalk, VectorAutoregression
from wishflow.files import write_json_atomic

HORIZON = 48
N_TEST_WINDOWS = 182
BANDS = {"1": slice(0, 1), "2-6": slice(1, 6), "7-24": slice(6, 24), "25-48": slice(24, 48)}
BASE = {"lags": 3, "rank": 15, "calendar": True}
OURS = {
    "wishart": {},
    "wishart_state": {"white_noise": "state"},
    "diagonal": {"diffusion": "diagonal"},
    "diagonal_state": {"diffusion": "diagonal", "white_noise": "state"},
    "nodrift": {"drift": "none", "lags": 1},
    "linear": {"drift": "linear"},
    "rollout": {"drift": "gp", "lags": 1, "objective": "rollout", "path_average": "log", "n_train_samples": 2},
}
RIVALS = {
    "walk": RandomWalk,
    "var3": lambda: VectorAutoregression(3, ("day", "year")),
    "var24": lambda: VectorAutoregression(24, ("day", "year")),
}


def standardised(is_validation: bool, missing: float = 0.0) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Training part (with a share of entries deleted), the same complete, and the rows to score, in training units."""
    frame = load_beijing(interpolate=True)
    names = ("fit", "validation") if is_validation else ("train", "test")
    train, rest = (frame.loc[beijing_periods()[name]] for name in names)
    mean, sd = train.mean(), train.std(ddof=0)
    train, rest = (train - mean) / sd, (rest - mean) / sd
    holes = np.random.default_rng(0).uniform(size=train.shape) < missing
    return train.mask(holes), train, rest


def observed_crps(scores: xr.Dataset) -> np.ndarray:
    """CRPS by hour ahead over cells that were observed, not interpolated: mean over series of the mean of each."""
    raw = load_beijing()[list(scores["variable"].values)]
    rows = raw.index.get_indexer(scores["origin"].values)[:, None] + scores["horizon"].values - 1
    is_observed = ~np.isnan(raw.to_numpy(float)[rows])
    return scores["crps"].where(is_observed).mean("origin").mean("variable").values


def summary(scores: xr.Dataset) -> dict[str, object]:
    """CRPS (mean over series), energy score and 80 % coverage by hour ahead and in bands; log density of hour 1."""
    by_hour = {
        "crps": scores["crps"].mean(("origin", "variable")).values,
        "crps_observed": observed_crps(scores),
        "energy": scores["energy"].mean("origin").values,
        "coverage_80": scores["covered"].mean(("origin", "variable")).values,
        "log_density_moments": scores["log_density_moments"].mean("origin").values,
    }
    bands = {name: {band: float(v[part].mean()) for band, part in BANDS.items()} for name, v in by_hour.items()}
    first = scores["log_density"].values[:, 0]
    return {
        "bands": bands,
        "log_density_1": float(first.mean()),
        "by_hour": {name: v.tolist() for name, v in by_hour.items()},
        "windows": {
            "crps_1": scores["crps"].values[:, 0].mean(axis=1).tolist(),
            "log_density_1": first.tolist(),
        },
    }


class Ensemble:
    """The equal mixture of forecasters that differ by their seeds."""

    def __init__(self, members: list[wf.WishartForecaster]) -> None:
        self.members = members

    @property
    def end_(self):
        return self.members[0].end_

    def update(self, y, X=None):
        for member in self.members:
            member.update(y, X)

    def forecast(self, fh, X=None, n_draws=1000):
        found = [member.forecast(fh, X, n_draws=n_draws // len(self.members)) for member in self.members]

        def log_density(y):
            return wf.metrics.mixture_log_density([f.log_prob(y).to_numpy() for f in found])

        samples = np.concatenate([f.samples.values for f in found])
        return wf.Forecast(samples, found[0].index, found[0].columns, log_density)


def fitted_ours(train: pd.DataFrame, options: dict, n_members: int) -> Ensemble:
    return Ensemble([wf.WishartForecaster(**{"random_state": s, **options}).fit(train) for s in range(n_members)])


def run(
    name: str, is_validation: bool, changes: dict, n_draws: int, n_members: int, missing: float
) -> dict[str, object]:
    """Fit and score one model."""
    holed, train, rest = standardised(is_validation, missing)
    n_windows = min(N_TEST_WINDOWS, len(rest) // HORIZON)
    started = time.perf_counter()
    extra: dict[str, object] = {}
    if name in RIVALS:
        forecaster = RIVALS[name]().fit(train)
    else:
        options = {**BASE, **OURS[name], **changes}
        forecaster = fitted_ours(holed, options, n_members)
        if missing:  # forecasts start from complete rows, whatever was deleted for training
            forecaster.update(train.iloc[-96:])
        tail = forecaster.members[0].history_.iloc[-100:].mean(numeric_only=True)
        extra = {"options": options, "n_members": n_members, "bound_per_row": float(tail["bound"]) / len(train)}
    fit_seconds = time.perf_counter() - started
    whole = pd.concat([train, rest.iloc[: n_windows * HORIZON]])
    scores = summary(wf.backtest(forecaster, whole, fh=HORIZON, initial=len(train), n_draws=n_draws, n_densities=1))
    return {
        "model": name,
        "scored": "validation" if is_validation else "test",
        "n_windows": n_windows,
        "n_draws": n_draws,
        "missing": missing,
        "fit_seconds": fit_seconds,
        "total_seconds": time.perf_counter() - started,
        **extra,
        **scores,
    }


def line(result: dict) -> str:
    """One line for the terminal."""
    bands = result["bands"]
    parts = [" ".join(f"{v:.3f}" for v in bands[name].values()) for name in ("crps", "energy", "coverage_80")]
    times = f"fit {result['fit_seconds']:.1f} s, all {result['total_seconds']:.1f} s"
    scores = f"log density {result['log_density_1']:7.3f} | crps {parts[0]} | energy {parts[1]} | coverage {parts[2]}"
    return f"{result['model']:15s} {scores} | {times}"


def parse(settings: list[str]) -> dict[str, object]:
    """NAME=VALUE pairs; values are Python literals where they can be."""
    changes: dict[str, object] = {}
    for item in settings:
        key, _, value = item.partition("=")
        try:
            changes[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            changes[key] = value
    return changes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["walk", "var3", "var24", "wishart_state"])
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--missing", type=float, default=0.0)
    parser.add_argument("--output", type=Path, default=Path("results/beijing"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.models:
        result = run(name, options.validation, parse(options.set), options.draws, options.members, options.missing)
        result["provenance"] = provenance()
        kind = ("validation-" if options.validation else "") + name + ("-missing" if options.missing else "")
        write_json_atomic(options.output / f"{kind}.json", result)
        print(line(result), json.dumps(parse(options.set)), flush=True)


if __name__ == "__main__":
    main()
