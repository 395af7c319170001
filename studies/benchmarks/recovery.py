"""How well Σ(x) of known SDEs is recovered: 20 000 transitions from 1000 short paths, Δ = .02 relaxation times.

    python -m studies.benchmarks.recovery            # writes studies/results/recovery.json

The number is the median over visited states of ‖Σ̄ − Σ‖/‖Σ‖ (Frobenius).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance

TRUTHS = {
    "double well": wf.datasets.make_double_well,
    "Lotka–Volterra": wf.datasets.make_lotka_volterra,
    "Wishart volatility": wf.datasets.make_wishart_volatility,
    "Ornstein–Uhlenbeck": wf.datasets.make_ornstein_uhlenbeck,
}
WAYS = {
    "independent columns, state-dependent white noise": {"columns": "independent", "white_noise": "state"},
    "shared columns, state-dependent white noise": {"columns": "shared", "white_noise": "state"},
    "independent columns, constant white noise": {"columns": "independent", "white_noise": "constant"},
}


def measure(truth, options: dict) -> dict[str, float]:
    dt = 0.02 * truth.relaxation_time
    paths = truth.simulate(1000, 20, dt, random_state=0)
    series = {i: pd.DataFrame(path, index=dt * np.arange(21)) for i, path in enumerate(paths)}
    started = time.perf_counter()
    model = wf.WishartForecaster(rank=truth.dim, max_iter=1000, n_inducing=50, validation_fraction=0, **options).fit(
        series
    )
    seconds = time.perf_counter() - started
    visited = truth.simulate(200, 1, dt, random_state=1)[:, 0]
    # Stamps far apart make every row a series of its own; a rate is per unit of time, which is the median gap.
    found = model.covariance({0: pd.DataFrame(visited, index=1000.0 * np.arange(len(visited)))})[0].values / dt
    expected = truth.covariance(visited)
    error = np.linalg.norm(found - expected, axis=(1, 2)) / np.linalg.norm(expected, axis=(1, 2))
    objective = float(model.history_["objective"].iloc[-100:].mean()) / (1000 * 20)
    return {"median_error": float(np.median(error)), "objective_per_transition": objective, "seconds": seconds}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "recovery.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    found: dict[str, dict] = {}
    for name, make in TRUTHS.items():
        found[name] = {way: measure(make(), settings) for way, settings in WAYS.items()}
        print(name, {way: round(result["median_error"], 3) for way, result in found[name].items()}, flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(options.output, {"sdes": found, "provenance": provenance()})


if __name__ == "__main__":
    main()
