"""Joint log densities at irregular stamps with missing cells, beside the law that the data come from.

    python -m studies.benchmarks.irregular            # writes studies/results/irregular.json

A panel of short series of a stationary SDE, observed without noise at stamps whose gaps are exponential. Each query is
a series that was not in training: its first rows are known, and the cells of the next ones are scored together, by the
chain rule of `WishartForecaster().log_prob`. Protocol:

- "linear": four columns, dx = A x dt + B dB with a random A and a full B. 30 % of the cells are missing. The law of the
  queries is that of a Kalman filter.
- "bent": three columns that are a one-to-one function of the state of such an SDE, whose noise is then correlated
  differently in each state (`bend`). 30 % of the cells of the last two columns are missing. The first column is always
  seen, so that the Kalman filter of the state gives the law of the queries here too.

Each seed draws a system, 60 series of 50 rows to train on and 200 queries of 20 known rows and 5 rows to score. The
forecaster has no option but `random_state`. The score is in nats a value: the joint log density of a query over its
number of cells, as the mean over all cells. The bar is .05 nats below the truth, as the mean over the seeds 0 to 4.
Other seeds are for development. Baselines know the training rows alone: "climate" is the Gaussian of all rows,
independent in time, "walk" a Brownian motion with correlated columns, "columns" an Ornstein–Uhlenbeck process for each
column by itself, by maximum likelihood.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.linalg
import scipy.optimize

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance

N_SEEDS = 5
N_SERIES, N_ROWS = 60, 50
N_QUERIES, N_KNOWN, N_SCORED = 200, 20, 5
MISSING = 0.3
BAR = 0.05
TINY = 1e-9

Table = tuple[np.ndarray, np.ndarray]  # stamps (N,), values (N, D) with NaN


@dataclasses.dataclass(frozen=True)
class Linear:
    """dx = A (x − m) dt + B dB in its stationary law N(m, P): A P + P Aᵀ + B Bᵀ = 0."""

    A: np.ndarray
    P: np.ndarray
    m: np.ndarray

    @classmethod
    def of(cls, A: np.ndarray, B: np.ndarray) -> Linear:
        return cls(A, scipy.linalg.solve_continuous_lyapunov(A, -B @ B.T), np.zeros(len(A)))

    @property
    def dim(self) -> int:
        return len(self.A)

    def step(self, gap: float) -> tuple[np.ndarray, np.ndarray]:
        """F = exp(A Δ) and the covariance P − F P Fᵀ of what is added."""
        values, vectors, inverse = self.modes
        F = ((vectors * np.exp(gap * values)) @ inverse).real
        return F, self.P - F @ self.P @ F.T

    @functools.cached_property
    def modes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        values, vectors = np.linalg.eig(self.A)
        return values, vectors, np.linalg.inv(vectors)

    def path(self, times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        x = [self.m + scipy.linalg.cholesky(self.P, lower=True) @ rng.normal(size=self.dim)]
        for gap in np.diff(times):
            F, Q = self.step(gap)
            values, vectors = np.linalg.eigh(Q)
            noise = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=self.dim))
            x.append(self.m + F @ (x[-1] - self.m) + noise)
        return np.stack(x)

    def log_densities(self, times: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Of the cells of each row given the rows before it."""
        mean, P, found = self.m, self.P, []
        for t, row in enumerate(x):
            if t:
                F, Q = self.step(times[t] - times[t - 1])
                mean, P = self.m + F @ (mean - self.m), F @ P @ F.T + Q
            is_seen = ~np.isnan(row)
            found.append(gaussian(row[is_seen], mean[is_seen], P[np.ix_(is_seen, is_seen)]))
            if is_seen.any():
                gain = P[:, is_seen] @ np.linalg.inv(P[np.ix_(is_seen, is_seen)] + TINY * np.eye(is_seen.sum()))
                mean, P = mean + gain @ (row[is_seen] - mean[is_seen]), P - gain @ P[is_seen]
        return np.array(found)


def gaussian(y: np.ndarray, mean: np.ndarray, P: np.ndarray) -> float:
    """log N(y; mean, P); 0 without entries."""
    if not len(y):
        return 0.0
    root = np.linalg.cholesky(P + TINY * np.eye(len(y)))
    white = scipy.linalg.solve_triangular(root, y - mean, lower=True)
    return float(-0.5 * white @ white - np.log(np.diagonal(root)).sum() - 0.5 * len(y) * np.log(2.0 * np.pi))


def random_system(dim: int, rng: np.random.Generator) -> Linear:
    """Rates between .1 and .4 for a median gap of .7, some turning, noise with correlations."""
    skew = 0.3 * rng.normal(size=(dim, dim))
    basis = np.eye(dim) + 0.3 * rng.normal(size=(dim, dim))
    A = basis @ (np.diag(-rng.uniform(0.1, 0.4, size=dim)) + skew - skew.T) @ np.linalg.inv(basis)
    B = np.eye(dim) + 0.5 * rng.normal(size=(dim, dim))
    system = Linear.of(A, B)
    # Columns of variance one, so that nats of all systems are of a kind.
    scale = 1.0 / np.sqrt(np.diagonal(system.P))
    return Linear.of(scale[:, None] * A / scale, scale[:, None] * B)


def plain(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x, np.zeros(len(x))


def bend(x: np.ndarray) -> np.ndarray:
    """y₁ = x₁, y₂ = x₂ exp(.4 x₁), y₃ = x₃ + sin(1.5 x₁)."""
    return np.column_stack([x[:, 0], x[:, 1] * np.exp(0.4 * x[:, 0]), x[:, 2] + np.sin(1.5 * x[:, 0])])


def unbend(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The states, and log |dx/dy| of the cells that are there."""
    x = np.column_stack([y[:, 0], y[:, 1] * np.exp(-0.4 * y[:, 0]), y[:, 2] - np.sin(1.5 * y[:, 0])])
    return x, np.where(np.isnan(y[:, 1]), 0.0, -0.4 * y[:, 0])


@dataclasses.dataclass(frozen=True)
class Problem:
    """A function of the state of a linear SDE; the first `n_whole` columns are always seen."""

    dim: int
    seen: Callable[[np.ndarray], np.ndarray]
    state: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    n_whole: int

    def tables(self, system: Linear, n: int, n_rows: int, rng: np.random.Generator) -> list[Table]:
        return [self._table(system, n_rows, rng) for _ in range(n)]

    def _table(self, system: Linear, n_rows: int, rng: np.random.Generator) -> Table:
        times = np.cumsum(rng.exponential(size=n_rows))
        y = self.seen(system.path(times, rng))
        is_missing = rng.random(y.shape) < MISSING
        is_missing[:, : self.n_whole] = False
        keeps = rng.integers(self.dim, size=n_rows)  # no row is without a cell
        is_missing[np.arange(n_rows), keeps] = False
        return times, np.where(is_missing, np.nan, y)

    def log_densities(self, system: Linear, table: Table) -> np.ndarray:
        x, jacobian = self.state(table[1])
        return system.log_densities(table[0], x) + jacobian


PROBLEMS = {"linear": Problem(4, lambda x: x, plain, 0), "bent": Problem(3, bend, unbend, 1)}


# --- baselines -------------------------------------------------------------------------------------


def climate(tables: Sequence[Table]) -> Callable[[Table], np.ndarray]:
    rows = pd.DataFrame(np.concatenate([y for _, y in tables]))
    mean, P = rows.mean().to_numpy(), rows.cov().to_numpy()

    def scores(table: Table) -> np.ndarray:
        seen = [~np.isnan(row) for row in table[1]]
        return np.array([gaussian(row[s], mean[s], P[np.ix_(s, s)]) for row, s in zip(table[1], seen, strict=True)])

    return scores


def walk(tables: Sequence[Table]) -> Callable[[Table], np.ndarray]:
    """The covariance rate is that of increments between rows that follow each other."""
    moves = [np.diff(y, axis=0) / np.sqrt(np.diff(times))[:, None] for times, y in tables]
    rows = pd.DataFrame(np.concatenate([y for _, y in tables]))
    rate, start = pd.DataFrame(np.concatenate(moves)).cov().to_numpy(), rows.cov().to_numpy()
    values, vectors = np.linalg.eigh(rate)  # of pairs of columns: not always positive
    rate = (vectors * np.maximum(values, 1e-3)) @ vectors.T
    return lambda table: _walked(table, rate, start, rows.mean().to_numpy())


def _walked(table: Table, rate: np.ndarray, start: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """A Kalman filter whose state stays where it is."""
    P, found = start, []
    for t, row in enumerate(table[1]):
        P = P + (table[0][t] - table[0][t - 1]) * rate if t else P
        s = ~np.isnan(row)
        found.append(gaussian(row[s], mean[s], P[np.ix_(s, s)]))
        gain = P[:, s] @ np.linalg.inv(P[np.ix_(s, s)] + TINY * np.eye(s.sum()))
        mean, P = mean + gain @ (row[s] - mean[s]), P - gain @ P[s]
    return np.array(found)


def columns(tables: Sequence[Table]) -> Callable[[Table], np.ndarray]:
    laws = [_one_column([_cells(table, d) for table in tables]) for d in range(tables[0][1].shape[1])]

    def scores(table: Table) -> np.ndarray:
        found = np.zeros(len(table[0]))
        for d, law in enumerate(laws):
            at = ~np.isnan(table[1][:, d])
            found[at] += _of_column(*law, *_cells(table, d))
        return found

    return scores


def _cells(table: Table, d: int) -> Table:
    at = ~np.isnan(table[1][:, d])
    return table[0][at], table[1][at, d]


def _one_column(cells: Sequence[Table]) -> tuple[float, float, float]:
    """Log rate, mean and log variance of the process."""
    rows = np.concatenate([y for _, y in cells])
    start = np.array([np.log(0.3), rows.mean(), np.log(rows.var())])
    law = scipy.optimize.minimize(lambda p: -sum(_of_column(*p, *c).sum() for c in cells), start, method="Nelder-Mead")
    return tuple(law.x)


def _of_column(log_rate: float, mean: float, log_variance: float, times: np.ndarray, y: np.ndarray) -> np.ndarray:
    F = np.concatenate([[0.0], np.exp(-np.exp(log_rate) * np.diff(times))])
    before = np.concatenate([[0.0], y[:-1] - mean])
    variance = np.exp(log_variance) * (1.0 - F**2) + TINY
    return -0.5 * (y - mean - F * before) ** 2 / variance - 0.5 * np.log(2.0 * np.pi * variance)


BASELINES = {"climate": climate, "walk": walk, "columns": columns}


# --- the study -------------------------------------------------------------------------------------


def frames(tables: Sequence[Table]) -> dict[int, pd.DataFrame]:
    return {i: pd.DataFrame(y, index=times) for i, (times, y) in enumerate(tables)}


def ours(model: wf.WishartForecaster, queries: Sequence[Table]) -> list[np.ndarray]:
    scores = model.log_prob(frames(queries))
    return [scores[i].to_numpy() for i in range(len(queries))]


def per_value(scores: Sequence[np.ndarray], queries: Sequence[Table]) -> float:
    """Nats a value of the scored rows."""
    n_cells = sum(int((~np.isnan(y[N_KNOWN:])).sum()) for _, y in queries)
    return float(sum(part[N_KNOWN:].sum() for part in scores) / n_cells)


def run(name: str, seed: int, options: dict[str, Any] | None = None) -> dict[str, Any]:
    problem, rng = PROBLEMS[name], np.random.default_rng([list(PROBLEMS).index(name), seed])
    system = random_system(problem.dim, rng)
    tables = problem.tables(system, N_SERIES, N_ROWS, rng)
    queries = problem.tables(system, N_QUERIES, N_KNOWN + N_SCORED, rng)
    found = {"truth": per_value([problem.log_densities(system, q) for q in queries], queries)}
    for label, make in BASELINES.items():
        law = make(tables)
        found[label] = per_value([law(q) for q in queries], queries)
    started = time.perf_counter()
    model = wf.WishartForecaster(random_state=seed, **(options or {})).fit(frames(tables))
    seconds = time.perf_counter() - started
    found["wishflow"] = per_value(ours(model, queries), queries)
    return {**found, "seconds": seconds, "status": model.status_, "provenance": provenance()}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "irregular.json")
    parser.add_argument("--problems", default=",".join(PROBLEMS), help="names of problems, with commas")
    parser.add_argument("--seeds", default=",".join(map(str, range(N_SEEDS))), help="numbers, with commas")
    parser.add_argument("--options", type=json.loads, default={}, help="of the forecaster, as JSON: for development")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    for name in options.problems.split(","):
        cells = results.setdefault(name, {})
        for seed in options.seeds.split(","):
            if seed not in cells:
                cells[seed] = run(name, int(seed), options.options)
                write_json_atomic(options.output, results)
            shown = {k: round(v, 3) for k, v in cells[seed].items() if isinstance(v, float)}
            print(name, seed, shown, cells[seed]["status"], flush=True)


if __name__ == "__main__":
    main()
