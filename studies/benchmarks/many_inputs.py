"""8,000 rows of 32 inputs, of which four matter: `SparseGPRegressor()` beside an exact GP of 2,000 of the rows.

    python -m studies.benchmarks.many_inputs      # writes studies/results/many_inputs.json

The function is nonlinear in each of its four inputs and two of them interact; the standard deviation of the noise is
.3, 1 and 3 times that of the function. The exact GP knows which inputs matter: its kernel and noise are those of an
exact GP of the four alone, with lengthscales of 100 for the others. Errors are over 2,000 further rows, of the targets
and of the function without noise, in units of the targets' standard deviation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance

N_ROWS, N_EXACT, N_TEST, N_INPUTS = 8000, 2000, 2000, 32
N_MATTER = 4
NOISES = (0.3, 1.0, 3.0)
# Lengthscale of an input of no relevance, in standard deviations.
IRRELEVANT = 100.0


def simulated(noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets and the function, in units of the targets' standard deviation."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS + N_TEST, N_INPUTS))
    f = np.sin(1.5 * X[:, 0]) * X[:, 1] + np.tanh(2.0 * X[:, 2]) + 0.5 * X[:, 3] ** 2
    f = (f - f.mean()) / f.std()
    y = f + noise * rng.normal(size=len(f))
    return X, (y - y.mean()) / y.std(), (f - y.mean()) / y.std()


def exact_gp(X: np.ndarray, y: np.ndarray) -> GaussianProcessRegressor:
    """The exact GP of all inputs, from that of the inputs that matter."""
    white = kernels.WhiteKernel()
    few = GaussianProcessRegressor(kernels.ConstantKernel() * kernels.RBF(np.ones(N_MATTER)) + white)
    found = few.fit(X[:, :N_MATTER], y).kernel_
    lengthscales = np.r_[found.k1.k2.length_scale, np.full(N_INPUTS - N_MATTER, IRRELEVANT)]
    kernel = kernels.ConstantKernel(found.k1.k1.constant_value) * kernels.RBF(lengthscales)
    return GaussianProcessRegressor(kernel, alpha=found.k2.noise_level, optimizer=None).fit(X, y)


def score(noise: float) -> dict[str, Any]:
    """Errors of both."""
    X, y, f = simulated(noise)
    test = slice(N_ROWS, None)
    started = time.process_time()
    model = wf.SparseGPRegressor().fit(X[:N_ROWS], y[:N_ROWS])
    found: dict[str, Any] = {"cpu_seconds": time.process_time() - started, "status": model.status_}
    found["n_inducing"] = len(model.model_.output.basis.Z)
    means = {"sparse GP": model.predict(X[test]), "exact GP": exact_gp(X[:N_EXACT], y[:N_EXACT]).predict(X[test])}
    for name, mean in means.items():
        found[name] = {
            "rmse": float(np.sqrt(np.mean((mean - y[test]) ** 2))),
            "rmse_of_function": float(np.sqrt(np.mean((mean - f[test]) ** 2))),
        }
    return found


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "many_inputs.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results: dict[str, Any] = {}
    for noise in NOISES:
        results[f"noise {noise}"] = found = score(noise)
        print(f"noise {noise}: {found}", flush=True)
    write_json_atomic(options.output, {"noises": results, "provenance": provenance()})


if __name__ == "__main__":
    main()
