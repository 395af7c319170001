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
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import logsumexp

import wishflow as wf
from benchmarks.record import provenance
from wishflow.datasets import beijing_periods, load_beijing
from wishflow.estimators.forecasting.calendar import DAY, PERIODS, seconds
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
# A forecaster for a window: the rows before the origin, and the stamps to forecast; draws (S, T, D), log density of the
# first row as a function of it.
Draw = Callable[[pd.DataFrame, pd.Index], tuple[np.ndarray, Callable[[np.ndarray], float]]]


def standardised(is_validation: bool, missing: float = 0.0) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Training part (with a share of entries deleted), the same complete, and the rows to score, in training units."""
    frame = load_beijing(interpolate=True)
    names = ("fit", "validation") if is_validation else ("train", "test")
    train, rest = (frame.loc[beijing_periods()[name]] for name in names)
    mean, sd = train.mean(), train.std(ddof=0)
    train, rest = (train - mean) / sd, (rest - mean) / sd
    holes = np.random.default_rng(0).uniform(size=train.shape) < missing
    return train.mask(holes), train, rest


def score(draw: Draw, train: pd.DataFrame, rest: pd.DataFrame, n_windows: int) -> dict[str, object]:
    """CRPS, energy score, 80 % coverage by hour ahead, and the log density of the first hour."""
    whole = pd.concat([train, rest])
    crps, energy, covered, density = [], [], [], []
    for window in range(n_windows):
        origin = len(train) + window * HORIZON
        y = whole.iloc[origin : origin + HORIZON]
        samples, log_density = draw(whole.iloc[:origin], y.index)
        values = y.to_numpy()
        low, high = np.quantile(samples, [0.1, 0.9], axis=0)
        crps.append(wf.metrics.crps_samples(values, samples).mean(axis=1))
        energy.append(wf.metrics.energy_score(values, samples))
        covered.append(((low <= values) & (values <= high)).mean(axis=1))
        density.append(log_density(values[0]))
    by_hour = {"crps": np.mean(crps, 0), "energy": np.mean(energy, 0), "coverage_80": np.mean(covered, 0)}
    bands = {name: {band: float(v[part].mean()) for band, part in BANDS.items()} for name, v in by_hour.items()}
    return {
        "bands": bands,
        "log_density_1": float(np.mean(density)),
        "by_hour": {name: v.tolist() for name, v in by_hour.items()},
        "windows": {"crps_1": [float(c[0]) for c in crps], "log_density_1": [float(d) for d in density]},
    }


# --- what ours is compared with -----------------------------------------------------------------


def walk(train: pd.DataFrame, n_draws: int) -> Draw:
    """A random walk with the increments of the training part, drawn hour by hour."""
    steps = np.diff(train.to_numpy(), axis=0)
    covariance = np.cov(steps.T)
    rng = np.random.default_rng(0)

    def draw(past, index):
        last = past.iloc[-1].to_numpy()
        noise = steps[rng.integers(len(steps), size=(n_draws, len(index)))]
        return last + np.cumsum(noise, axis=1), lambda y: _gaussian(y - last, covariance)

    return draw


def harmonics(index: pd.Index) -> np.ndarray:
    """Sine and cosine, orders 1–3 of the day and 1–2 of the year."""
    t = seconds(index)
    angles = [2 * np.pi * k * t / DAY for k in (1, 2, 3)] + [2 * np.pi * k * t / PERIODS["year"][0] for k in (1, 2)]
    return np.column_stack([f(a) for a in angles for f in (np.cos, np.sin)])


def var(train: pd.DataFrame, lags: int, n_draws: int) -> Draw:
    """VAR(p) with harmonics by statsmodels; paths with Gaussian noise."""
    from statsmodels.tsa.api import VAR

    fitted = VAR(train.to_numpy(), exog=harmonics(train.index)).fit(lags, trend="c")
    dim = train.shape[1]
    n_exogenous = harmonics(train.index[:1]).shape[1]
    parameters = np.asarray(fitted.params)  # constant, harmonics, lags
    constant, exogenous = parameters[0], parameters[1 : 1 + n_exogenous]
    coefficients = parameters[1 + n_exogenous :].reshape(lags, dim, dim)
    covariance = np.asarray(fitted.sigma_u)
    root = np.linalg.cholesky(covariance)
    rng = np.random.default_rng(0)

    def draw(past, index):
        level = constant + harmonics(index) @ exogenous
        history = np.repeat(past.iloc[-lags:].to_numpy()[::-1][None], n_draws, 0)  # newest first
        paths = np.empty((n_draws, len(index), dim))
        for t in range(len(index)):
            mean = level[t] + np.einsum("slj,lji->si", history, coefficients)
            if t == 0:
                first = mean[0]
            paths[:, t] = mean + rng.normal(size=(n_draws, dim)) @ root.T
            history = np.concatenate([paths[:, t : t + 1], history[:, :-1]], axis=1)
        return paths, lambda y: _gaussian(y - first, covariance)

    return draw


def _gaussian(r: np.ndarray, covariance: np.ndarray) -> float:
    log_det = np.linalg.slogdet(covariance)[1]
    return float(-0.5 * (len(r) * np.log(2 * np.pi) + log_det + r @ np.linalg.solve(covariance, r)))


# --- ours ----------------------------------------------------------------------------------------


def ours(
    train: pd.DataFrame, options: dict, n_draws: int, n_members: int = 1
) -> tuple[Draw, list[wf.WishartForecaster]]:
    """The forecaster, or the equal mixture of several that differ by their seeds."""
    fitted = [wf.WishartForecaster(**{"random_state": s, **options}).fit(train) for s in range(n_members)]

    def draw(past, index):
        found = []
        for model in fitted:
            rows = past.loc[past.index > model.tails_[None].index[-1]]
            if len(rows):
                model.update(rows)
            found.append(model.forecast(len(index), n_draws=n_draws // n_members))
        first = lambda y: float(  # noqa: E731
            logsumexp([_first_density(f, y) for f in found]) - np.log(n_members)
        )
        return np.concatenate([f.samples.values for f in found]), first

    return draw, fitted


def _first_density(forecast: wf.Forecast, y: np.ndarray) -> float:
    rows = np.full((len(forecast.index), len(y)), np.nan)
    rows[0] = y
    return float(forecast.log_prob(rows).iloc[0])


def with_complete_history(fitted: list[wf.WishartForecaster], train: pd.DataFrame) -> None:
    """Forecasts start from complete rows, whatever was deleted for training."""
    for model in fitted:
        model.update(train.iloc[-len(model.tails_[None].index) :])


def run(
    name: str, is_validation: bool, changes: dict, n_draws: int, n_members: int, missing: float
) -> dict[str, object]:
    """Fit and score one model."""
    holed, train, rest = standardised(is_validation, missing)
    n_windows = min(N_TEST_WINDOWS, len(rest) // HORIZON)
    started = time.perf_counter()
    extra: dict[str, object] = {}
    if name == "walk":
        draw = walk(train, n_draws)
    elif name.startswith("var"):
        draw = var(train, int(name[3:]), n_draws)
    else:
        options = {**BASE, **OURS[name], **changes}
        draw, fitted = ours(holed, options, n_draws, n_members)
        if missing:
            with_complete_history(fitted, train)
        tail = fitted[0].history_.iloc[-100:].mean(numeric_only=True)
        extra = {"options": options, "n_members": n_members, "bound_per_row": float(tail["bound"]) / len(train)}
    fit_seconds = time.perf_counter() - started
    scores = score(draw, train, rest, n_windows)
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
