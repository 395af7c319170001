"""What is averaged over draws of J matters: a VAR(1) with correlated noise, its covariance recovered in several ways.

python -m studies.benchmarks.averages            # writes studies/results/averages.json
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import multivariate_normal

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance

N_ROWS, DECAY = 2000, 0.9
MIXING = np.array([[0.5, 0.0], [0.4, 0.2]])
WAYS = {
    "logs, 1 draw, nu = 2": {"path_average": "log", "n_train_samples": 1},
    "logs, 1 draw, nu = 10": {"path_average": "log", "n_train_samples": 1, "dof": 10},
    "logs, 1 draw, nu = 30": {"path_average": "log", "n_train_samples": 1, "dof": 30},
    "densities, 8 draws, nu = 2": {"path_average": "density", "n_train_samples": 8},
    "densities, 32 draws, nu = 2": {"path_average": "density", "n_train_samples": 32},
}


def simulated(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    y = np.zeros((N_ROWS, 2))
    for t in range(1, N_ROWS):
        y[t] = DECAY * y[t - 1] + MIXING @ rng.normal(size=2)
    return pd.DataFrame(y)


def measure(train: pd.DataFrame, test: pd.DataFrame, dof: int | None = None, **options) -> dict[str, float]:
    diffusion = wf.diffusions.Wishart(rank=2, dof=dof, unit_rows=False, posterior="structured")
    model = wf.WishartForecaster(
        diffusion=diffusion, n_inducing=20, max_iter=1000, drift="linear", validation_fraction=0, **options
    ).fit(train)
    truth = MIXING @ MIXING.T
    error = np.linalg.norm(model.covariance(train).values - truth, axis=(1, 2)) / np.linalg.norm(truth)
    return {"relative_error_of_covariance": float(np.median(error)), "log_density": float(model.log_prob(test).mean())}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "averages.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    train, test = simulated(0), simulated(1)
    steps = test.to_numpy()[1:] - DECAY * test.to_numpy()[:-1]
    true_density = float(multivariate_normal(np.zeros(2), MIXING @ MIXING.T).logpdf(steps).mean())
    result: dict[str, object] = {"log_density_of_the_truth": true_density, "ways": {}, "provenance": provenance()}
    for name, way in WAYS.items():
        result["ways"][name] = measure(train, test, **way)  # type: ignore[index]
        print(name, result["ways"][name], flush=True)  # type: ignore[index]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(options.output, result)


if __name__ == "__main__":
    main()
