"""How many iterations the default forecaster needs, on rows before those of any test part.

    python -m studies.benchmarks.iterations             # writes studies/results/iterations.json

Beijing: trained to September 2015, forecasts of October to December (`studies.beijing --validation`). The other sets:
the protocol of `studies.benchmarks.forecasts` within their training parts (`--inner`). Nothing but `max_iter` is given.
Scores are the CRPS in standard deviations of the training part by band or horizon, and the coverage of central 80 %
intervals. Finished cells are kept: a run can be stopped and continued.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..beijing.models import Standardised
from ..beijing.protocol import load_parts, roll
from ..paths import RESULTS
from ..provenance import provenance
from .forecast_sets import SETS
from .forecasts import OURS, run, split_of

BEIJING = "beijing"
NAMES = (BEIJING, "new_york", "ten_minutes", "lorenz", "heavy_tails")
ITERATIONS = (200, 800, 2000)
N_DRAWS = 300


def of_beijing(max_iter: int) -> dict[str, Any]:
    parts = load_parts(is_validation=True)
    forecaster = wf.WishartForecaster(max_iter=max_iter, random_state=0)
    started = time.perf_counter()
    model = Standardised(forecaster, parts.mean, parts.sd).fit(parts.train)
    seconds = time.perf_counter() - started
    bands = roll(model, parts, N_DRAWS)["bands"]
    scores = {name: list(bands[key].values()) for name, key in (("crps", "crps"), ("coverage", "coverage_80"))}
    return {**scores, "seconds": seconds, "model": forecaster.status_, "provenance": provenance()}


def of_set(name: str, max_iter: int) -> dict[str, Any]:
    series = SETS[name]
    found = run(series, split_of(series, is_inner=True), OURS, max_iter=max_iter)
    return {key: found[key] for key in ("crps", "coverage", "seconds", "model", "provenance")}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "iterations.json")
    parser.add_argument("--sets", default=",".join(NAMES), help="names of sets, with commas")
    parser.add_argument("--iterations", default=",".join(map(str, ITERATIONS)), help="numbers, with commas")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    result = json.loads(options.output.read_text()) if options.output.is_file() else {}
    for name in options.sets.split(","):
        for n in options.iterations.split(","):
            cells = result.setdefault(name, {})
            if n in cells:
                continue
            cells[n] = of_beijing(int(n)) if name == BEIJING else of_set(name, int(n))
            write_json_atomic(options.output, result)
            print(name, n, cells[n]["crps"], cells[n]["coverage"], f"{cells[n]['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
