"""How long a person waits: default estimators on concrete (927 × 8), compilation included, then 200 rows of prediction.

    python -m studies.benchmarks.waiting            # writes studies/results/waiting.json

Each measurement runs in a process of its own with no compilation cache, so that it is the first use after an import.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance
from .alone import measured_alone

MODULE = f"{__package__}.waiting"
LIMITS = {
    "SparseGPRegressor()": {"fit": 10.0, "predict": 3.0},
    "FlowRegressor()": {"fit": 90.0, "predict": 3.0},
    "FlowRegressor(n_members=5)": {"fit": 450.0, "predict": 15.0},
}


def measure(name: str) -> dict[str, float]:
    """Seconds of `fit`, and of `predict(return_std)` for 200 rows once compiled (median of three)."""
    import wishflow as wf

    data = wf.datasets.load_uci("concrete")
    train, _ = wf.datasets.split(len(data.X), 0)
    models: dict[str, Callable[[], Any]] = {
        "SparseGPRegressor()": wf.SparseGPRegressor,
        "FlowRegressor()": wf.FlowRegressor,
        "FlowRegressor(n_members=5)": functools.partial(wf.FlowRegressor, n_members=5),
    }
    model = models[name]()
    started = time.perf_counter()
    model.fit(data.X[train], data.y[train])
    fitted = time.perf_counter()
    rows = data.X[:200]
    model.predict(rows, return_std=True)
    seconds = []
    for _ in range(3):
        again = time.perf_counter()
        model.predict(rows, return_std=True)
        seconds.append(time.perf_counter() - again)
    return {"fit": fitted - started, "predict": sorted(seconds)[1], "n_iter": model.n_iter_}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS / "waiting.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    runs: dict[str, list] = {name: [] for name in LIMITS}
    for _ in range(options.repeats):
        for name in LIMITS:
            runs[name].append(measured_alone(MODULE, name))
            print(name, runs[name][-1], flush=True)
    result = {"limits": LIMITS, "runs": runs, "provenance": provenance()}
    result["median"] = {n: {k: sorted(r[k] for r in rs)[len(rs) // 2] for k in rs[0]} for n, rs in runs.items()}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(options.output, result)
    print(json.dumps(result["median"], indent=1))


if __name__ == "__main__":
    main()
