"""Quality on the UCI sets: the 20 splits of design section 6, all splits of a data set trained by one `fit_many`.

    python -m benchmarks.uci --models sgp diffwgp --data boston concrete --splits 20

scores the test parts and writes one JSON file for each data set and model under results/uci. With --validation nothing
of the test part is read: a tenth of each training part is held out and scored instead, which is how settings are
chosen. Options of the form --set name=value override fields of the training settings (for tuning only; final tables use
none). The paper's tables are made by `wishflow reproduce uci`, with the same training and the same scores.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import wishflow as wf
from wishflow import specs
from wishflow.datasets import load_uci
from wishflow.experiments.provenance import provenance
from wishflow.experiments.uci.suite import MODELS as SUITE_MODELS
from wishflow.experiments.uci.training import run_splits, split_rows
from wishflow.files import write_json_atomic

MODELS = {
    **{name: model.make for name, model in SUITE_MODELS.items()},
    "diffwgp": wf.FlowRegressor,
    "diffwgp_full": functools.partial(wf.FlowRegressor, diffusion=specs.Wishart(posterior="full")),
}
PARTS = ("bound", "noise", "kl_drift", "kl_diffusion", "kl_output")


def brief_scores(models: Sequence[Any], data: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[dict[str, float]]:
    """What a search for settings looks at."""
    rows = []
    for model, (X, y) in zip(models, data, strict=True):
        tail = model.history_.iloc[-50:]
        parts = {name: float(tail[name].mean()) for name in PARTS if name in tail}
        rows.append({"log_density": float(model.log_prob(X, y).mean()), **parts})
    return rows


def run_cell(
    name: str, model: str, n_splits: int, is_validation: bool, is_brief: bool = False, options: dict | None = None
) -> dict:
    """Train and score all splits of one data set with one model; `options` go to the estimator, for tuning only."""
    data = load_uci(name)
    rows = [split_rows(len(data.X), s, is_validation) for s in range(n_splits)]
    make = functools.partial(MODELS[model], **(options or {}))
    result = run_splits(make, data.X, data.y, rows, score=brief_scores if is_brief else None)
    total = result["fit_seconds"] + result["score_seconds"]
    scored = "validation" if is_validation else "test"
    return {"data": name, "model": model, "scored": scored, "total_seconds": total, **result}


def override(settings: list[str]) -> None:
    """Replace fields of the `fast` rule for this process."""
    changes = {}
    for item in settings:
        key, _, value = item.partition("=")
        try:
            changes[key] = ast.literal_eval(value)
        except ValueError:
            changes[key] = value
    rule = specs.fast_preset
    specs.PRESETS["fast"] = lambda n, d: dataclasses.replace(rule(n, d), **changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["sgp", "diffwgp"], choices=list(MODELS))
    parser.add_argument("--data", nargs="+", default=["boston", "concrete", "kin8nm"])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--output", type=Path, default=Path("results/uci"))
    options = parser.parse_args()
    override(options.set)
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.data:
        for model in options.models:
            result = run_cell(name, model, options.splits, options.validation)
            result["provenance"] = provenance()
            kind = "validation-" if options.validation else ""
            write_json_atomic(options.output / f"{kind}{name}-{model}.json", result)
            print(
                name,
                model,
                json.dumps(result["mean"]),
                f"{result['fit_seconds']:.1f} s",
                jax.default_backend(),
                flush=True,
            )


if __name__ == "__main__":
    main()
