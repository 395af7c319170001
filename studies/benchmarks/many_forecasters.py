"""Forecasters trained together by `fit_many` against one by one: steps and fits a second, without compilation.

    python -m studies.benchmarks.many_forecasters            # writes studies/results/many_forecasters.json
    python -m studies.benchmarks.many_forecasters --quick    # a trial on any machine

100 forecasters of 5 series with 400 rows, in two settings: training alone (`validation_fraction=0`, where a fit is
little else), and the forecaster without options, which also chooses lags, tries candidates and recalibrates, one
forecaster after another. Both ways run twice, and the second run counts: programs are compiled in the first. The bar is
for the rate of training, in steps. On a CPU both are the same, one by one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.callbacks import Callback, ChunkEvent
from wishflow.files.json import write_json_atomic
from wishflow.numerics.platform import on_accelerator

from ..paths import output
from ..provenance import provenance

LIMIT = 15.0
CASES: dict[str, dict[str, Any]] = {
    "training alone": {"validation_fraction": 0, "lags": 1, "n_inducing": 50, "max_iter": 1000, "tol": 0.0},
    "WishartForecaster()": {},
}
N_MODELS, N_ALONE, N_ROWS, N_SERIES = 100, 5, 400, 5


class Training(Callback):
    """Seconds from the first to the last chunk of training, and the steps in between, of all models."""

    def __init__(self) -> None:
        self.ends: dict[tuple[int, str], list[tuple[float, int]]] = {}

    def on_chunk(self, event: ChunkEvent) -> None:
        self.ends.setdefault((event.model_index, event.phase), []).append((time.perf_counter(), event.step))

    def rate(self, is_together: bool) -> float:
        """Steps of models a second, between the ends of chunks; NaN where phases have one chunk alone."""
        spans = [(ends[-1][0] - ends[0][0], ends[-1][1] - ends[0][1]) for ends in self.ends.values() if len(ends) > 1]
        n_steps = sum(steps for _, steps in spans)
        seconds = self._together() if is_together else sum(s for s, _ in spans)
        return n_steps / seconds if seconds > 0.0 else float("nan")

    def _together(self) -> float:
        """Seconds of phases that all models have at the same time, and that follow each other."""
        phases = {phase for _, phase in self.ends}
        of = {phase: [ends for (_, other), ends in self.ends.items() if other == phase] for phase in phases}
        return sum(max(ends[-1][0] for ends in one) - min(ends[0][0] for ends in one) for one in of.values())


def simulated(n_rows: int, seed: int) -> pd.DataFrame:
    """Hourly series: a stable auto-regression whose noise grows with the first of them."""
    rng = np.random.default_rng(seed)
    y, mixing = np.zeros((n_rows, N_SERIES)), 0.4 * rng.normal(size=(N_SERIES, 2))
    for t in range(1, n_rows):
        noise = mixing @ rng.normal(size=2) + 0.3 * rng.normal(size=N_SERIES)
        y[t] = 0.8 * y[t - 1] + np.exp(0.3 * np.tanh(y[t - 1, 0])) * noise
    return pd.DataFrame(y, pd.date_range("2024-01-01", periods=n_rows, freq="h"), list("abcde"))


def timed(models: list[wf.WishartForecaster], data: list[pd.DataFrame], is_together: bool) -> dict[str, Any]:
    """Fits a second, and steps of training a second."""
    watch, started = Training(), time.perf_counter()
    if is_together:
        wf.fit_many(models, data, watch)
    else:
        for i, (model, y) in enumerate(zip(models, data, strict=True)):
            own = Training()
            wf.fit_many([model], [y], own)
            watch.ends |= {(i, phase): ends for (_, phase), ends in own.ends.items()}
    fits = len(models) / (time.perf_counter() - started)
    return {"n_models": len(models), "fits_per_second": fits, "steps_per_second": watch.rate(is_together)}


def run(options: dict[str, Any], n_models: int, n_alone: int, n_rows: int) -> dict[str, Any]:
    """One by one and together, each twice."""
    data = [simulated(n_rows, seed) for seed in range(n_models)]

    def models(n: int) -> list[wf.WishartForecaster]:
        return [wf.WishartForecaster(random_state=seed, **options) for seed in range(n)]

    alone, together = models(n_alone), models(n_models)
    found = {}
    for name, fitted, is_together in (("alone", alone, False), ("together", together, True)):
        for _ in range(2):
            found[name] = timed(fitted, data[: len(fitted)], is_together)
    rates = ("fits_per_second", "steps_per_second")
    ratios = {f"{name}_ratio": found["together"][name] / found["alone"][name] for name in rates}
    # The same fits, up to rounding: the objective where training ends, in nats per row.
    ends = [[model.history_["objective"].iloc[-20:].mean() / n_rows for model in ms] for ms in (alone, together)]
    differences = np.abs(np.array(ends[0]) - np.array(ends[1][:n_alone]))
    return {**found, **ratios, "largest_difference": float(differences.max())}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=output("many_forecasters.json"))
    parser.add_argument("--quick", action="store_true", help="three forecasters of 80 rows, few steps")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    about = {"device": str(jax.devices()[0].device_kind), "is_together": on_accelerator(), "limit": LIMIT}
    found = {}
    for name, case in CASES.items():
        small = {**case, "n_inducing": 5, "max_iter": 40}
        found[name] = run(small, 3, 2, 80) if options.quick else run(case, N_MODELS, N_ALONE, N_ROWS)
        print(name, found[name], flush=True)
        if not options.quick:
            write_json_atomic(options.output, {"runs": found, **about, "provenance": provenance()})


if __name__ == "__main__":
    main()
