"""Tables of at most 1,000 rows: `SparseGPRegressor()` beside the exact GP of scikit-learn.

    python -m studies.benchmarks.exact_tables      # writes studies/results/exact_tables.json

The tables are those of `small_tables`, with as many rows as they have, at most 1,000. Each is split twice, as
there. The exact GP has the kernel ConstantKernel * RBF + WhiteKernel with a lengthscale for each input, and two further
starts. Targets are in standard deviations of the training rows. Seconds are those of the CPU, the compilation of
programs included.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance
from .small_tables import TABLES, Table, split

MOST_ROWS = 1000
N_SPLITS = 2


def of_regressor(train: Table, test: Table) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wf.errors.TrainingWarning)  # one table is noise alone
        return wf.SparseGPRegressor().fit(*train).log_prob(*test)


def of_scikit_learn(train: Table, test: Table) -> np.ndarray:
    kernel = kernels.ConstantKernel() * kernels.RBF(np.ones(train[0].shape[1])) + kernels.WhiteKernel()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # parameters at their bounds
        model = GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=0).fit(*train)
    mean, sd = model.predict(test[0], return_std=True)
    return scipy.stats.norm(mean, sd).logpdf(test[1])


METHODS = {"sparse GP": of_regressor, "scikit-learn": of_scikit_learn}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "exact_tables.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results: dict[str, Any] = {}
    for name, load in TABLES.items():
        table, found = load(), {label: {"log_density": [], "cpu_seconds": []} for label in METHODS}
        for seed in range(N_SPLITS):
            train, test = split(table, MOST_ROWS, seed)
            for label, method in METHODS.items():
                started = time.process_time()
                found[label]["log_density"].append(float(method(train, test).mean()))
                found[label]["cpu_seconds"].append(time.process_time() - started)
        results[name] = {"n_rows": len(train[1]), **found}
        words = [
            f"{label} {np.mean(one['log_density']):.3f} ({np.max(one['cpu_seconds']):.1f} s)"
            for label, one in found.items()
        ]
        print(f"{name}, {len(train[1])} rows: {'; '.join(words)}", flush=True)
    write_json_atomic(options.output, {"tables": results, "provenance": provenance()})


if __name__ == "__main__":
    main()
