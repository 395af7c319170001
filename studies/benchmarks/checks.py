"""How long scikit-learn's `check_estimator` takes with the defaults, and what it says.

    python -m studies.benchmarks.checks             # writes studies/results/checks.json

Each estimator runs in a process of its own with no compilation cache. The limit is 240 seconds each, without failures.
"""

from __future__ import annotations

import argparse
import collections
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sklearn.utils.estimator_checks import check_estimator

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance
from .alone import measured_alone

MODULE = f"{__package__}.checks"
LIMIT = 240.0
ESTIMATORS = ("SparseGPRegressor", "FlowRegressor", "FlowClassifier")


def measure(name: str) -> dict[str, Any]:
    """Seconds, and how many checks passed, failed or were skipped."""
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    found = check_estimator(getattr(wf, name)(), on_fail=None, on_skip=None)
    statuses = collections.Counter(check["status"] for check in found)
    return {"seconds": time.perf_counter() - started, **statuses}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULTS / "checks.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    runs = {}
    for name in ESTIMATORS:
        runs[name] = measured_alone(MODULE, name)
        print(name, runs[name], flush=True)
    write_json_atomic(options.output, {"limit": LIMIT, "runs": runs, "provenance": provenance()})


if __name__ == "__main__":
    main()
