"""The search for the `fast` rule, on validation parts alone: a list of settings for each data set, scored one after
another.

    python -m benchmarks.tune_uci JOBS.json OUT.jsonl --minutes 9

JOBS.json is a list of {"data", "model", "splits", "set": {field: value}, "options": {name: value}}: `set` changes
fields of the rule, `options` go to the estimator (specs as their JSON). Each finished job is one line of OUT.jsonl.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
import traceback
from pathlib import Path

from benchmarks.uci import run_cell
from wishflow import specs
from wishflow.experiments.provenance import provenance

RULE = specs.fast_preset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    started = time.perf_counter()
    for job in json.loads(options.jobs.read_text()):
        if time.perf_counter() - started > 60 * options.minutes:
            print("out of time before", job, flush=True)
            break
        changes = job.get("set", {})
        specs.PRESETS["fast"] = lambda n, d, changes=changes: dataclasses.replace(RULE(n, d), **changes)
        try:
            given = {name: specs.from_json(value) for name, value in job.get("options", {}).items()}
            result = run_cell(job["data"], job["model"], job.get("splits", 20), True, is_brief=True, options=given)
        except Exception:
            traceback.print_exc()
            continue
        line = {
            "job": job,
            "mean": result["mean"],
            "sd": result["sd"],
            "seconds": result["fit_seconds"],
            "status": result["status"],
            "provenance": provenance(),
        }
        with options.output.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), f"total {result['total_seconds']:.1f}", flush=True)


if __name__ == "__main__":
    main()
