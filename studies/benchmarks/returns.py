"""Daily returns, one day ahead: forecasters with no option beside a constant Student-t.

    python -m studies.benchmarks.returns        # writes studies/results/returns.json

Both are fitted once, to the rows before the test part. The log density is that of a row given those before it, joint
over the columns, at every row of the test part (`log_prob`). The CRPS, in standard deviations of each column in
training, and the coverage of central 80 % intervals are those of forecasts from at most 400 origins, spread evenly. The
Student-t has the mean, scatter and degrees of freedom of highest likelihood in training (EM). Standard errors of
differences are of means over blocks of 20 rows.

`indices` (arch) and `stocks` (skfolio) need these packages, and `factors` needs the folder WISHFLOW_DATA: what is
missing is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.special
import scipy.stats

import wishflow as wf
from wishflow.files.json import write_json_atomic
from wishflow.metrics import crps_samples

from ..paths import RESULTS
from ..provenance import provenance
from .forecasts import COVERAGE, paired_block_error

N_DRAWS, MOST_ORIGINS, BLOCK = 1000, 400, 20
# Test rows of the indices and the stocks, training rows of the factors: a fifth of the first, 1990 to 2022 of the last.
LAST_INDICES, LAST_STOCKS, FIRST_FACTORS = 1003, 3017, 6664


def indices() -> tuple[pd.DataFrame, int]:
    """S&P 500, Nasdaq and West Texas crude oil: 100 × log differences."""
    from arch.data import nasdaq, sp500, wti

    prices = pd.concat(
        {"sp500": sp500.load()["Adj Close"], "nasdaq": nasdaq.load()["Adj Close"], "wti": wti.load()["DCOILWTICO"]},
        axis=1,
        sort=True,
    ).dropna()
    y = 100.0 * np.log(prices).diff().dropna()
    return y, len(y) - LAST_INDICES


def factors() -> tuple[pd.DataFrame, int]:
    """Five Fama-French factors, raw."""
    path = Path(os.environ["WISHFLOW_DATA"]) / "covariance" / "ff5_daily.csv.gz"
    return pd.read_csv(path, index_col=0, parse_dates=True), FIRST_FACTORS


def stocks() -> tuple[pd.DataFrame, int]:
    """Twenty stocks, simple returns."""
    spec = importlib.util.find_spec("skfolio")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'skfolio'")
    path = Path(spec.origin).parent / "datasets" / "data" / "sp500_dataset.csv.gz"
    y = pd.read_csv(path, index_col=0, parse_dates=True).pct_change().dropna()
    return y, len(y) - LAST_STOCKS


SETS: dict[str, Callable[[], tuple[pd.DataFrame, int]]] = {"indices": indices, "factors": factors, "stocks": stocks}


# --- the constant Student-t ------------------------------------------------------------------------------


def student_t(rows: np.ndarray, n_iter: int = 200) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, scatter and degrees of freedom of highest likelihood, by EM with an exact search for the latter."""
    mean, scatter, dof = rows.mean(axis=0), np.cov(rows.T), 5.0
    for _ in range(n_iter):
        weights = (dof + rows.shape[1]) / (dof + squares(rows, mean, scatter))
        mean = weights @ rows / weights.sum()
        scatter = (weights[:, None] * (rows - mean)).T @ (rows - mean) / len(rows)
        found = squares(rows, mean, scatter)
        loss = lambda log_dof, r2=found: -np.mean(log_radial(r2, rows.shape[1], np.exp(log_dof)))  # noqa: E731
        dof = float(np.exp(scipy.optimize.minimize_scalar(loss, bounds=(0.0, 5.0), method="bounded").x))
    return mean, scatter, dof


def squares(rows: np.ndarray, mean: np.ndarray, scatter: np.ndarray) -> np.ndarray:
    r = np.linalg.solve(np.linalg.cholesky(scatter), (rows - mean).T)
    return (r**2).sum(axis=0)


def log_radial(r2: np.ndarray, dim: int, dof: float) -> np.ndarray:
    """The log density but for the determinant of the scatter."""
    constant = scipy.special.gammaln((dof + dim) / 2) - scipy.special.gammaln(dof / 2) - dim / 2 * np.log(np.pi * dof)
    return constant - (dof + dim) / 2 * np.log1p(r2 / dof)


def of_student_t(y: np.ndarray, n_train: int) -> dict[str, Any]:
    started = time.perf_counter()
    mean, scatter, dof = student_t(y[:n_train])
    seconds = time.perf_counter() - started
    density = scipy.stats.multivariate_t(mean, scatter, dof).logpdf(y[n_train:])
    sd = np.sqrt(np.diagonal(scatter))
    at = origins_of(len(y), n_train)
    z, half = (y[at] - mean) / sd, scipy.stats.t(dof).ppf(0.5 + COVERAGE / 2)
    crps = t_crps(z, dof) * sd / y[:n_train].std(axis=0)
    return scores(density, crps, np.abs(z) <= half, seconds, f"{dof:.2f} degrees of freedom")


def t_crps(z: np.ndarray, dof: float) -> np.ndarray:
    """The CRPS of a standard Student-t in closed form (Jordan, Krüger and Lerch 2019)."""
    law, beta = scipy.stats.t(dof), scipy.special.beta
    spread = 2.0 * np.sqrt(dof) / (dof - 1.0) * beta(0.5, dof - 0.5) / beta(0.5, dof / 2.0) ** 2
    return z * (2.0 * law.cdf(z) - 1.0) + 2.0 * law.pdf(z) * (dof + z**2) / (dof - 1.0) - spread


# --- ours ------------------------------------------------------------------------------------------------


def of_ours(frame: pd.DataFrame, n_train: int) -> dict[str, Any]:
    y, train = frame.to_numpy(), frame.iloc[:n_train]
    started = time.perf_counter()
    model = wf.WishartForecaster().fit(train)
    seconds, seen = time.perf_counter() - started, n_train
    density = model.log_prob(frame.iloc[n_train:]).to_numpy()
    crps, covered = [], []
    for origin in origins_of(len(y), n_train):
        if origin > seen:
            model.update(frame.iloc[seen:origin])
            seen = origin
        draws = model.forecast(frame.index[[origin]], n_draws=N_DRAWS).samples.values[:, 0]
        low, high = np.quantile(draws, [0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2], axis=0)
        crps.append(crps_samples(y[origin], draws))
        covered.append((low <= y[origin]) & (y[origin] <= high))
    sd = y[:n_train].std(axis=0)
    return scores(density, np.array(crps) / sd, np.array(covered), seconds, model.status_)


def origins_of(n: int, n_train: int) -> np.ndarray:
    return np.unique(np.linspace(n_train, n - 1, min(MOST_ORIGINS, n - n_train)).round().astype(int))


# --- scores ----------------------------------------------------------------------------------------------


def scores(density: np.ndarray, crps: np.ndarray, covered: np.ndarray, seconds: float, model: str) -> dict[str, Any]:
    found = {"log_density": float(density.mean()), "crps": float(crps.mean()), "coverage": float(covered.mean())}
    rows = {"log_densities": density.round(4).tolist(), "crps_rows": crps.mean(axis=1).round(5).tolist()}
    return {**found, "seconds": seconds, "model": model, **rows}


def compared(frame: pd.DataFrame, n_train: int) -> dict[str, Any]:
    ours, other = of_ours(frame, n_train), of_student_t(frame.to_numpy(), n_train)
    pairs = {
        key: tuple(np.array(one.pop(rows)) for one in (ours, other))
        for key, rows in (("log_density", "log_densities"), ("crps", "crps_rows"))
    }
    errors = {key: paired_block_error(*pair, BLOCK) for key, pair in pairs.items()}
    sizes = {"n_train": n_train, "n_test": len(frame) - n_train, "dim": frame.shape[1]}
    return {**sizes, "WishartForecaster()": ours, "constant Student-t": other, "errors": errors}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "returns.json")
    parser.add_argument("--sets", default=",".join(SETS), help="names of sets, with commas")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results: dict[str, Any] = {}
    for name in options.sets.split(","):
        try:
            frame, n_train = SETS[name]()
        except (ImportError, KeyError, FileNotFoundError) as error:
            print(f"{name:<10} left out: {error!r}", flush=True)
            continue
        results[name] = compared(frame, n_train)
        for label in ("WishartForecaster()", "constant Student-t"):
            found = results[name][label]
            numbers = " ".join(f"{found[key]:.4f}" for key in ("log_density", "crps", "coverage"))
            print(f"{name:<10} {label:<20} {numbers} {found['seconds']:6.1f} s  {found['model']}", flush=True)
        print(f"{'':<10} errors of differences {results[name]['errors']}", flush=True)
    write_json_atomic(options.output, {"sets": results, "provenance": provenance()})


if __name__ == "__main__":
    main()
