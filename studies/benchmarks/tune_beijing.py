"""The search for settings of the Beijing comparison, on October to December 2015 alone: one setting after another.

    python -m studies.benchmarks.tune_beijing studies/results/tuning/jobs/beijing-18.json --minutes 9

The file is a list of {"model", "set": {option: value}, "members", "draws"}, specs as their JSON; the options
`pollutants`, `rain`, … (GROUPS) stand for transforms of all such columns. Each finished job is one line of the result
file, studies/results/tuning/beijing-18.jsonl; jobs that are there already are skipped.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wishflow import specs

from ..beijing.jobs import Job, run
from ..beijing.models import MODELS, POLLUTANTS, transform_by_kind
from ..beijing.protocol import Parts, load_parts
from ..paths import tuning_output

# A later one wins over an earlier one.
GROUPS = {"pollutants": POLLUTANTS, "rain": ("RAIN",), "ozone": ("O3",), "nitrogen": ("NO2",), "carbon": ("CO",)}
SCORES = ("bands", "log_density_1", "objective_per_row", "fit_seconds", "total_seconds")


def made(job: dict[str, Any], parts: Parts) -> Job:
    changes = {name: specs.from_json(value) for name, value in job.get("set", {}).items()}
    transforms = {kinds: changes.pop(name) for name, kinds in GROUPS.items() if name in changes}
    if transforms:
        changes["transform"] = transform_by_kind(transforms, parts.train.columns)
    return Job(
        job["model"],
        is_validation=True,
        n_draws=job.get("draws", 300),
        n_members=job.get("members", MODELS[job["model"]].n_members),
        changes=tuple(changes.items()),
    )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--output", type=Path, help="studies/results/tuning/JOBS.jsonl if not given")
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args(arguments)
    options.output = options.output or tuning_output(options.jobs, ".jsonl")
    return options


def main() -> None:
    options = parse()
    started, parts = time.perf_counter(), load_parts(is_validation=True)
    lines = options.output.read_text().splitlines() if options.output.exists() else []
    done = [json.loads(text)["job"] for text in lines]
    for job in json.loads(options.jobs.read_text()):
        if job in done:
            continue
        if time.perf_counter() - started > 60 * options.minutes:
            print("out of time before", job, flush=True)
            break
        try:
            (result,) = run(made(job, parts), parts)
        except Exception:
            traceback.print_exc()
            continue
        kept = {name: result[name] for name in (*SCORES, "provenance") if name in result}
        line = json.dumps({"job": job, **kept})
        with options.output.open("a") as file:
            file.write(line + "\n")
        bands = {name: [round(v, 4) for v in result["bands"][name].values()] for name in ("crps", "energy")}
        print(json.dumps(job), round(result["log_density_1"], 3), bands, f"{result['fit_seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
