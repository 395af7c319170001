"""How far fits of a flow on one device and on eight agree.

    python -m studies.benchmarks.many_devices            # writes studies/results/many_devices.json

The CPU is split into eight devices. Each setting is fitted twice, on one of them and on all. Rounding differs, because
sums over rows are taken in another order. What is left of the difference after all steps says how much training
magnifies it: the largest difference of the objective at any step of the flow, in nats for each row and relative to its
size, and that of predicted means in units of the predicted standard deviation. The relative one is large where the
objective, a sum of log densities, passes zero.

A rotated q starts at equal variances, where its rotation has no effect. "From unequal variances" is a start with
variances that differ by 1 %: the difference that the equal ones make is missing there.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

import wishflow as wf
from wishflow.files.json import write_json_atomic
from wishflow.inducing.posteriors import RotatedPosterior
from wishflow.regression.presets import fast_preset

from ..paths import output
from ..provenance import provenance

N_DEVICES, N_ROWS, N_ITER = 8, 130, 200
CASES: dict[str, dict[str, Any]] = {
    "structured q, float64": {"posterior": "structured", "flow_dtype": "float64", "collapsed": False},
    "rotated q, float64": {"flow_dtype": "float64", "collapsed": False},
    "rotated q, float64, start by L-BFGS": {"flow_dtype": "float64"},
    "… from unequal variances": {"flow_dtype": "float64", "is_spread": True},
    "structured q, float32": {"posterior": "structured", "collapsed": False},
    "rotated q, float32": {"collapsed": False},
    "rotated q, float32, start by L-BFGS": {},
}


def simulated() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (N_ROWS, 2))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=N_ROWS)


def settings(**changes: Any) -> wf.TrainingSpec:
    """Those of `preset="fast"`, with changes, and batches that eight devices do not divide."""
    own = {"batch_size": 51, "warm_iter": 20, "n_train_samples": 2, "path_average": "density", "max_iter": N_ITER}
    plain = {"kl_warmup": N_ITER // 2, "validation_fraction": 0.0, "calibrate": False, "flow_dtype": "float32"}
    return dataclasses.replace(fast_preset(N_ROWS, 2), **{**own, **plain, **changes})


@contextlib.contextmanager
def unequal_variances() -> Iterator[None]:
    """Inside, variances of a rotated q differ by 1 % at the start."""
    equal = RotatedPosterior.prior

    def prior(n_outputs: int, n_inducing: int) -> RotatedPosterior:
        q = equal(n_outputs, n_inducing)
        return RotatedPosterior(q.mean, q.log_variances + 0.005 * np.linspace(-1.0, 1.0, n_inducing), q.below)

    with mock.patch.object(RotatedPosterior, "prior", staticmethod(prior)):
        yield


def compared(is_spread: bool = False, **changes: Any) -> dict[str, float]:
    """Differences of two fits."""
    X, y = simulated()
    with unequal_variances() if is_spread else contextlib.nullcontext():
        fits = [wf.FlowRegressor(n_inducing=8, preset=settings(**changes)) for _ in range(2)]
        models = [fit.fit(X, y, devices=n) for fit, n in zip(fits, (1, N_DEVICES), strict=True)]
    one, all_of_them = (m.history_.query("phase == 'flow'")["objective"].to_numpy() for m in models)
    (mean, sd), (other, _) = (model.predict(X, return_std=True) for model in models)
    difference = np.abs(all_of_them - one)
    worst = int(np.argmax(difference / np.abs(one)))
    return {
        "nats_per_row": float(difference.max() / N_ROWS),
        "relative": float(difference[worst] / np.abs(one[worst])),
        "objective_per_row_there": float(one[worst] / N_ROWS),
        "mean_by_sd": float(np.max(np.abs(other - mean) / sd)),
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=output("many_devices.json"))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    jax.config.update("jax_num_cpu_devices", N_DEVICES)  # before JAX computes anything
    runs = {}
    for name, changes in CASES.items():
        runs[name] = compared(**changes)
        print(name, runs[name], flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    found = {"devices": N_DEVICES, "steps": N_ITER, "rows": N_ROWS, "runs": runs, "provenance": provenance()}
    write_json_atomic(options.output, found)


if __name__ == "__main__":
    main()
