"""First use: the import, and tracing and compiling of `FlowRegressor().fit` on 500 rows, cold and from a cache.

    python -m studies.benchmarks.first_use            # writes studies/results/first_use.json

The package imports its parts when they are asked for, so the time until there is a regressor stands beside the import.
Every number is of a process of its own. The programs do not depend on the number of iterations, so few are made.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ..paths import RESULTS
from .alone import measured_alone

MODULE = f"{__package__}.first_use"
LIMITS = {"import": 1.5, "cold": 5.0}
MEASURED = ("import", "regressor", "cold", "warm")
REPEATS = 3
N_ROWS, N_INPUTS, N_ITER = 500, 8, 100
# What is reported of a program on its way from Python to the machine.
STAGES = ("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration", "backend_compile_duration")


def import_seconds() -> float:
    started = time.perf_counter()
    import wishflow  # noqa: F401

    return time.perf_counter() - started


def regressor_seconds() -> float:
    """Seconds from nothing to the class of an estimator, with all that it imports."""
    started = time.perf_counter()
    import wishflow

    _ = wishflow.FlowRegressor
    return time.perf_counter() - started


def compile_seconds() -> float:
    """Seconds of tracing, lowering and compiling during a fit."""
    import jax
    import numpy as np

    import wishflow as wf

    found: list[float] = []

    def listen(name: str, seconds: float, **_: object) -> None:
        if name.endswith(STAGES):
            found.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_INPUTS))
    wf.FlowRegressor(max_iter=N_ITER).fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=N_ROWS))
    return sum(found)


ALONE = {
    "import": import_seconds,
    "regressor": regressor_seconds,
    "compile": compile_seconds,
}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", choices=ALONE, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULTS / "first_use.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.one:
        print(ALONE[options.one]())
        return
    runs: dict[str, list[float]] = {name: [] for name in MEASURED}
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as cache:
            runs["import"].append(measured_alone(MODULE, "import"))
            runs["regressor"].append(measured_alone(MODULE, "regressor"))
            runs["cold"].append(measured_alone(MODULE, "compile"))
            measured_alone(MODULE, "compile", cache)  # fills the cache
            runs["warm"].append(measured_alone(MODULE, "compile", cache))
    # Here, so that the import that is measured is the first one.
    from wishflow.files.json import write_json_atomic

    from ..provenance import provenance

    median = {name: statistics.median(values) for name, values in runs.items()}
    write_json_atomic(options.output, {"limits": LIMITS, "median": median, "runs": runs, "provenance": provenance()})
    print(json.dumps(median))


if __name__ == "__main__":
    main()
