"""Tables of 25 to 100 rows: the sparse GP with and without the prior on its hyperparameters, and a linear regression.

    python -m studies.benchmarks.small_tables      # writes studies/results/small_tables.json

Real tables come with scikit-learn and statsmodels (the extra `compare`); simulated ones have columns of no relevance, a
short wave, no noise, or nothing but noise. Each table is split five times. A fifth of the rows, at most 500, are
scored, and of the others at most 25, 50 and 100 are taken. Targets are in standard deviations of the training rows.
"linear regression" is scikit-learn's `BayesianRidge`.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from sklearn.datasets import load_diabetes
from sklearn.linear_model import BayesianRidge

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance

N_SPLITS = 5
SIZES = (25, 50, 100)
MOST_SCORED = 500
N_SIMULATED = 700
LEVELS = (0.8, 0.95)

Table = tuple[np.ndarray, np.ndarray]
# Log densities of rows, and quantiles (N, 4) of the two central intervals.
Scored = tuple[np.ndarray, np.ndarray]


def _statsmodels(name: str, target: str, columns: Sequence[str]) -> Table:
    import statsmodels.datasets

    frame = getattr(statsmodels.datasets, name).load_pandas().data.astype(float)
    return frame[list(columns)].to_numpy(), frame[target].to_numpy()


def _schools() -> Table:
    """Part of the pupils above the national median in 303 districts."""
    import statsmodels.datasets

    frame = statsmodels.datasets.star98.load_pandas().data.astype(float)
    share = frame["NABOVE"] / (frame["NABOVE"] + frame["NBELOW"])
    return frame.drop(columns=["NABOVE", "NBELOW"]).iloc[:, :12].to_numpy(), share.to_numpy()


def _simulated(n_inputs: int, mean: Callable[[np.ndarray], np.ndarray], noise: float) -> Table:
    rng = np.random.default_rng(n_inputs)
    X = rng.uniform(-1.7, 1.7, (N_SIMULATED, n_inputs))
    return X, mean(X) + noise * rng.normal(size=N_SIMULATED)


TABLES: dict[str, Callable[[], Table]] = {
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "schools": _schools,
    "credit cards": lambda: _statsmodels("ccard", "AVGEXP", ["AGE", "INCOME", "INCOMESQ", "OWNRENT"]),
    "crime by state": lambda: _statsmodels(
        "statecrime", "murder", ["violent", "hs_grad", "poverty", "single", "white", "urban"]
    ),
    "Scottish votes": lambda: _statsmodels(
        "scotland", "YES", ["COUTAX", "UNEMPF", "MOR", "ACT", "GDP", "AGE", "COUTAX_FEMALEUNEMP"]
    ),
    "linear, 2 of 10 inputs": lambda: _simulated(10, lambda X: X[:, 0] - 0.5 * X[:, 1], 0.5),
    "bent, 2 of 20 inputs": lambda: _simulated(20, lambda X: np.sin(1.5 * X[:, 0]) + X[:, 1], 0.3),
    "short wave, 1 input": lambda: _simulated(1, lambda X: np.sin(5.0 * X[:, 0]), 0.2),
    "smooth, no noise, 3 inputs": lambda: _simulated(3, lambda X: np.sin(X[:, 0]) * X[:, 1] + 0.5 * X[:, 2] ** 2, 0.0),
    "noise alone, 8 inputs": lambda: _simulated(8, lambda X: np.zeros(len(X)), 1.0),
}


def _of_regressor(train: Table, test: Table, hyperprior: str | None) -> Scored:
    model = wf.SparseGPRegressor(hyperprior=hyperprior).fit(*train)
    tails = [0.5 * (1.0 - level) for level in LEVELS]
    return model.log_prob(*test), model.predict_quantiles(test[0], [*tails, *(1.0 - t for t in tails)])


def _of_linear_regression(train: Table, test: Table) -> Scored:
    mean, sd = BayesianRidge().fit(*train).predict(test[0], return_std=True)
    law = scipy.stats.norm(mean, sd)
    tails = [0.5 * (1.0 - level) for level in LEVELS]
    return law.logpdf(test[1]), np.column_stack([law.ppf(p) for p in (*tails, *(1.0 - t for t in tails))])


METHODS: dict[str, Callable[[Table, Table], Scored]] = {
    "default": functools.partial(_of_regressor, hyperprior="auto"),
    "without the prior": functools.partial(_of_regressor, hyperprior=None),
    "linear regression": _of_linear_regression,
}


def split(table: Table, n_rows: int, seed: int) -> tuple[Table, Table]:
    """At most `n_rows` to train on and the rows to score, scaled by the former; without constant columns."""
    X, y = table
    order = np.random.default_rng([seed, len(y)]).permutation(len(y))
    n_test = min(len(y) // 5, MOST_SCORED)
    test, train = order[:n_test], order[n_test:][:n_rows]
    X = X[:, X[train].std(0) > 0.0]
    X, y = (X - X[train].mean(0)) / X[train].std(0), (y - y[train].mean()) / y[train].std()
    return (X[train], y[train]), (X[test], y[test])


def score(table: Table, n_rows: int, method: Callable[[Table, Table], Scored]) -> dict[str, Any]:
    """Mean log density and coverage of each split."""
    found: dict[str, Any] = {"log_density": [], **{f"coverage_{level}": [] for level in LEVELS}}
    for seed in range(N_SPLITS):
        train, test = split(table, n_rows, seed)
        log_density, quantiles = method(train, test)
        found["log_density"].append(float(log_density.mean()))
        for i, level in enumerate(LEVELS):
            low, high = quantiles[:, i], quantiles[:, i + len(LEVELS)]
            found[f"coverage_{level}"].append(float(np.mean((low <= test[1]) & (test[1] <= high))))
    return found


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "small_tables.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results: dict[str, Any] = {}
    for name, load in TABLES.items():
        table = load()
        n_most = len(table[1]) - min(len(table[1]) // 5, MOST_SCORED)
        for n_rows in sorted({min(n, n_most) for n in SIZES}):
            found = {label: score(table, n_rows, method) for label, method in METHODS.items()}
            results[f"{name}, {n_rows} rows"] = found
            words = [
                f"{label} {np.mean(one['log_density']):.3f} ({np.mean(one['coverage_0.95']):.2f})"
                for label, one in found.items()
            ]
            print(f"{name + f', {n_rows} rows':<38} {'; '.join(words)}", flush=True)
    write_json_atomic(options.output, {"tables": results, "provenance": provenance()})


if __name__ == "__main__":
    main()
