"""Forecasting on the Beijing data: rolling 48-hour forecasts, ours beside random walk and VARs (design, section 7).

    python -m studies.benchmarks.beijing --models walk var3 var24 wishart_state  # test year 2016, results/beijing
    python -m studies.benchmarks.beijing --validation --models wishart_state --set rank=15 # October to December 2015

26 distinct series, interpolated, in units of the training part's standard deviations; a window every 48 hours. With
--validation nothing of 2016 is read: the models are trained to September 2015 and scored on the last three months.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path

from wishflow.files.json import write_json_atomic

from ..beijing.jobs import run
from ..beijing.models import MODELS
from ..beijing.protocol import load_parts
from ..beijing.reproduce import asked_jobs
from ..beijing.results import job_path


def line(result: dict) -> str:
    """One line for the terminal."""
    bands = result["bands"]
    parts = [" ".join(f"{v:.3f}" for v in bands[name].values()) for name in ("crps", "energy", "coverage_80")]
    times = f"fit {result['fit_seconds']:.1f} s, all {result['total_seconds']:.1f} s"
    scores = f"log density {result['log_density_1']:7.3f} | crps {parts[0]} | energy {parts[1]} | coverage {parts[2]}"
    return f"{result['model']:15s} {scores} | {times}"


def parse(settings: list[str]) -> dict[str, object]:
    """NAME=VALUE pairs; values are Python literals where they can be."""
    changes: dict[str, object] = {}
    for item in settings:
        key, _, value = item.partition("=")
        try:
            changes[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            changes[key] = value
    return changes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, metavar="NAME", default=["walk", "var3", "var24", "wishart_state"]
    )
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--members", type=int)
    parser.add_argument("--missing", type=float, default=0.0)
    parser.add_argument("--output", type=Path, default=Path("results/beijing"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    parts, changes = load_parts(options.validation), tuple(parse(options.set).items())
    jobs = asked_jobs(options.models, options.validation, options.draws, options.members, options.missing, changes)
    for job in jobs:
        [result] = run(job, parts)
        write_json_atomic(job_path(options.output, job, "scores"), result)
        print(line(result), json.dumps(dict(changes)), flush=True)


if __name__ == "__main__":
    main()
