"""How often intervals of short series cover, and what they cost, by way to find the widths.

    python -m studies.benchmarks.short_coverage        # writes studies/results/short_coverage.json

Linear auto-regressions alone, with the options that the evidence chooses, on simulated series of 80 to 400 rows. Each
is fitted once and forecasts up to 24 steps from 20 origins among the fifth of as many rows that follows, as those of
`forecasts`. Coverage is that of central 80 % intervals, CRPS is in units of the model; both are means over 20 draws of
each kind, at steps 1, 6, 12 and 24. `spread` is the standard deviation of the coverage of single series. Ways:

- "bands of the model": no recalibration.
- "posterior of the weights": no recalibration, but each path has weights of its own, drawn from their posterior.
- "default": recalibrated.

Finished kinds are kept: a run can be stopped and continued.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.linalg

from wishflow.files.json import read_json, write_json_atomic
from wishflow.metrics import crps_gaussian
from wishflow.numerics.process import BLAS
from wishflow.series import linear_gaussian as linear
from wishflow.series.calibrating import NORMAL_WIDTH, Rolled, calibrated_bands
from wishflow.series.choices import Given, by_the_evidence
from wishflow.series.choosing import Config, harmonics_of
from wishflow.series.data.frames import read
from wishflow.series.data.intake import training_data
from wishflow.series.defaults import with_periods
from wishflow.series.held_rows import parts_of
from wishflow.series.linear_prior import Prior, inputs_of
from wishflow.series.specs import DynamicsSpec

from ..paths import RESULTS
from ..provenance import provenance
from .short_problems import Problem, changing_noise, macro_like, seasonal, var, walks
from .short_series import FRACTION, judge_of

N_SEEDS, FIRST_SEED = 20, 3000
N_STEPS, N_ORIGINS, N_WEIGHTS = 24, 20, 64
STEPS = (1, 6, 12, 24)
# Deviations of mean paths count up to so many standard deviations: single draws of weights explode.
MOST_DEVIATIONS = 5.0


# --- more kinds --------------------------------------------------------------------------------------


def growing(rng: np.random.Generator, n: int) -> np.ndarray:
    """A level whose slope wanders, with a cycle of the year, and a temperature with another."""
    noise, phases, month = np.zeros((n, 2)), rng.uniform(0.0, 2.0 * np.pi, 2), 2.0 * np.pi * np.arange(n) / 12.0
    for t in range(1, n):
        noise[t] = np.array([0.7, 0.9]) * noise[t - 1] + np.array([0.25, 0.35]) * rng.normal(size=2)
    level = 315.0 + np.cumsum(0.1 + np.cumsum(0.006 * rng.normal(size=n)))
    cycle = 2.5 * np.sin(month + phases[0]) + 0.8 * np.sin(2.0 * month + phases[1])
    return np.column_stack([level + cycle, 23.0 + 2.5 * np.sin(month + phases[1])]) + noise


def cycle(rng: np.random.Generator, n: int) -> np.ndarray:
    """Cycles of about eleven rows with sharp peaks, whose size wanders."""
    x, log_size, rows = np.array([1.0, 0.0]), 0.0, np.zeros((n + 50, 1))
    for t in range(len(rows)):
        angle, log_size = 2.0 * np.pi / 11.0 * (1.0 + 0.1 * rng.normal()), 0.97 * log_size + 0.12 * rng.normal()
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        x = (1.3 - 0.3 * np.hypot(*x)) * turn @ x + 0.05 * rng.normal(size=2)
        rows[t] = 27.0 * np.exp(log_size) * max(0.05, 1.0 + x[0]) ** 1.5 + 4.0 * abs(rng.normal())
    return rows[50:]


def airline(rng: np.random.Generator, n: int) -> np.ndarray:
    """Exponentials of (1 − L)(1 − L¹²) y = (1 − .4 L)(1 − .6 L¹²) e, two monthly series (Box and Jenkins)."""
    e = 0.02 * rng.normal(size=(n + 60, 2))
    moved = e.copy()
    moved[1:] -= 0.4 * e[:-1]
    moved[12:] -= 0.6 * e[:-12]
    moved[13:] += 0.24 * e[:-13]
    y = 0.2 * np.sin(2.0 * np.pi * np.arange(n + 60)[:, None] / 12.0 + rng.uniform(0.0, 6.0, 2))
    for t in range(13, len(y)):
        y[t] = y[t - 1] + y[t - 12] - y[t - 13] + moved[t]
    return np.exp(4.0 + y[60:])


def breaks(rng: np.random.Generator, n: int) -> np.ndarray:
    """Three auto-regressions about levels that jump now and then."""
    levels = np.cumsum((rng.random((n, 3)) < 0.015) * rng.normal(0.0, 2.5, (n, 3)), axis=0)
    noise = np.zeros((n, 3))
    for t in range(1, n):
        noise[t] = 0.6 * noise[t - 1] + rng.normal(size=3)
    return levels + noise


PROBLEMS = {
    "VAR(1), 1 series, 80 rows": Problem(var(1, 1), 80),
    "VAR(1), 3 series, 100 rows": Problem(var(1, 3), 100),
    "VAR(2), 3 series, 200 rows": Problem(var(2, 3), 200),
    "VAR(2), 6 series, 400 rows": Problem(var(2, 6), 400),
    "changing noise, 300 rows": Problem(changing_noise, 300),
    "seasonal, 120 rows": Problem(seasonal(0.0), 120, "MS"),
    "seasonal, 240 rows": Problem(seasonal(0.0), 240, "MS"),
    "seasonal, drift, 400 rows": Problem(seasonal(0.05), 400, "MS"),
    "macro-like, 160 rows": Problem(macro_like, 160, "QS"),
    "random walks, 150 rows": Problem(walks, 150),
    "growing, 300 rows": Problem(growing, 300, "MS"),
    "cycle, 240 rows": Problem(cycle, 240),
    "airline, 180 rows": Problem(airline, 180, "MS"),
    "breaks, 300 rows": Problem(breaks, 300),
}


# --- ways --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A regression with chosen options, and the later rows that it forecasts, in units of the model."""

    rolled: Rolled
    model: linear.LinearModel
    history: np.ndarray
    u: np.ndarray
    z: np.ndarray

    @classmethod
    def of(cls, frame: pd.DataFrame, n: int, config: Config, season: int | None) -> Fitted:
        transform = dict(zip(frame.columns, config.transform, strict=True)) if config.transform else None
        spec = DynamicsSpec(lags=config.lags)
        units, tails = training_data(read(frame.iloc[:n], "y"), None, spec, transform, False, None)
        units, tails = with_periods(units, tails, config.periods)
        rolled = Rolled(units, parts_of(units, tails, FRACTION), config.lags, config.prior, season)
        model = linear.fitted([p.rows for p in rolled.parts], config.lags, config.prior)
        assert model is not None
        z, u, p = units.forward(frame.to_numpy()), harmonics_of(frame.index, config.periods), max(config.lags)
        origins = np.unique(np.linspace(n, n + n // 5, N_ORIGINS).round().astype(int))
        return cls(
            rolled,
            model,
            np.stack([z[o - p : o] for o in origins]),
            np.stack([u[o : o + N_STEPS] for o in origins]),
            np.stack([z[o : o + N_STEPS] for o in origins]),
        )

    @property
    def deviations(self) -> np.ndarray:
        """Those of the model at all steps."""
        return np.sqrt(np.diagonal(self.model.covariances(N_STEPS), axis1=1, axis2=2))

    def recalibrated(self) -> np.ndarray:
        scales = calibrated_bands(self.rolled, None, self.model)
        return self.deviations * (1.0 if scales is None else scales.at(np.arange(1.0, N_STEPS + 1)))

    def with_posterior(self) -> np.ndarray:
        """With the variance of mean paths over draws of the weights, from each origin."""
        weights = weight_draws([p.rows for p in self.rolled.parts], self.model, self.rolled.prior)
        moved = [dataclasses.replace(self.model, weights=w[:, :-1], constant=w[:, -1]) for w in weights]
        mean, sd = self.model.means(self.history, self.u), self.deviations
        most = (MOST_DEVIATIONS * sd) ** 2
        squares = [np.minimum((m.means(self.history, self.u) - mean) ** 2, most) for m in moved]
        return np.sqrt(sd**2 + np.mean(squares, axis=0))

    def scores(self, deviations: np.ndarray) -> dict[str, np.ndarray]:
        at, mean = np.array(STEPS) - 1, self.model.means(self.history, self.u)
        sd = np.broadcast_to(deviations, mean.shape)
        covered = np.abs(self.z - mean) <= NORMAL_WIDTH * sd
        crps = crps_gaussian(self.z, mean, sd)
        return {"coverage": covered.mean(axis=(0, 2))[at], "crps": crps.mean(axis=(0, 2))[at]}


def weight_draws(stretches: Sequence[linear.Stretch], model: linear.LinearModel, prior: Prior) -> np.ndarray:
    """Draws (S, D, K + 1) of the posterior given the covariance Q of the noise: w_d has the covariance Q_dd C_d, with
    the inverse C_d of XᵀX and the ridge of the series d. In pairs of opposite signs.
    """
    sums = [m for s in stretches if (m := linear.moments(s, model.lags, 0, len(s))) is not None]
    found = functools.reduce(operator.add, sums)
    size, dim = found.cross.shape
    ridge, rng = linear._Ridge.of(found, model.lags, prior), np.random.default_rng(0)
    half = rng.normal(size=(N_WEIGHTS // 2, size, dim)) @ np.linalg.cholesky(model.covariance).T
    normal = np.concatenate([half, -half])
    draws = np.repeat(np.column_stack([model.weights, model.constant])[None], len(normal), axis=0)
    for d in range(dim):
        at = inputs_of(d, len(model.lags), dim, size, prior)
        L = np.linalg.cholesky(found.gram_of(d)[np.ix_(at, at)] + ridge.matrix(d, at))
        draws[:, d, at] += scipy.linalg.solve_triangular(L, normal[:, at, d].T, lower=True, trans="T").T
    return draws


def ways(problem: Problem, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """Scores of one series by all ways."""
    frame, n = problem.frame(seed), problem.n_rows
    judge = judge_of(frame, n, FRACTION)
    fit = Fitted.of(frame, n, by_the_evidence(judge, Given()).config, judge.season)
    return {
        "bands of the model": fit.scores(fit.deviations),
        "posterior of the weights": fit.scores(fit.with_posterior()),
        "default": fit.scores(fit.recalibrated()),
    }


def run(problem: Problem) -> dict[str, Any]:
    """Means over seeds, and the spread of the coverage."""
    with BLAS.held():
        found = [ways(problem, seed) for seed in range(FIRST_SEED, FIRST_SEED + N_SEEDS)]
    cells: dict[str, Any] = {}
    for way in found[0]:
        coverage, crps = (np.array([one[way][name] for one in found]) for name in ("coverage", "crps"))
        means = {"coverage": coverage.mean(axis=0).tolist(), "crps": crps.mean(axis=0).tolist()}
        cells[way] = {**means, "spread": coverage.std(axis=0, ddof=1).tolist()}
    return cells


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "short_coverage.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results: dict[str, Any] = read_json(options.output) or {"steps": list(STEPS), "n_series": N_SEEDS, "kinds": {}}
    for name, problem in PROBLEMS.items():
        if name not in results["kinds"]:
            results["kinds"][name] = {"ways": run(problem), "provenance": provenance()}
            write_json_atomic(options.output, results)
        print(name, flush=True)
        for way, cells in results["kinds"][name]["ways"].items():
            numbers = [" ".join(f"{v:.3f}" for v in cells[part]) for part in ("coverage", "crps")]
            print(f"    {way:<28} {numbers[0]} | {numbers[1]}", flush=True)


if __name__ == "__main__":
    main()
