"""What each lever was worth on validation parts: pairs of settings that differ by it alone, made by the same code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from wishflow import specs

from ...report import markdown_table
from ...uci.suite import DATA

# The setting that is the lever, and those that may change with it: more paths in smaller batches, say.
LEVERS: dict[str, tuple[str, ...]] = {
    "density over several paths (predictive objective)": ("path_average", "n_train_samples", "batch_size"),
    "degrees of freedom ν of the noise": ("dof",),
    "inducing points": ("n_inducing",),
    "inducing points of the field alone": ("field_inducing",),
    "flow time T": ("flow_time", "n_steps"),
    "Euler steps": ("n_steps",),
    "longer or shorter training": ("max_iter", "kl_warmup"),
    "KL warm-up": ("kl_warmup",),
    "natural gradients (None: Adam)": ("natural_rate",),
    "independent columns of J": ("columns",),
    "Student-t likelihood": ("likelihood",),
    "kernel": ("kernel",),
    "wider states": ("state_dim", "dof"),
    "several output layers": ("n_layers",),
}
MORE_PATHS = "log_density_of_more_paths"
FEWEST_SPLITS = 5
Line = tuple[str, dict[str, Any], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Pair:
    """A setting with and without a lever: the data set, what was changed, and what the log density gained."""

    data: str
    setting: str
    gain: float


def flat_settings(job: dict[str, Any]) -> dict[str, Any]:
    """Settings and options of a job by name; a spec counts by the fields that it sets to something unusual."""
    flat: dict[str, Any] = {key: job[key] for key in ("state_dim",) if key in job}
    for name, value in {**job.get("set", {}), **job.get("options", {})}.items():
        if isinstance(value, dict):
            usual = {field.name: field.default for field in dataclasses.fields(specs.from_json(value))}
            flat |= {key: part for key, part in value.items() if key != "kind" and part != usual[key]}
        else:
            flat[name] = value
    return flat


def same_code(file: str, line: dict[str, Any]) -> str:
    """What two lines must share to be compared: the commit, or the file where none was written yet."""
    return line.get("provenance", {}).get("commit", file)


def pairs(lines: list[Line], keys: tuple[str, ...]) -> Iterator[Pair]:
    """Lines (file, job, result) that set the first of `keys`, each with one that is equal to it but for the keys."""
    by_settings = {_key(file, job, result, flat_settings(job)): result for file, job, result in lines}
    for file, job, result in lines:
        settings = flat_settings(job)
        changed = {key: value for key, value in settings.items() if key in keys}
        rest = {key: value for key, value in settings.items() if key not in keys}
        base = by_settings.get(_key(file, job, result, rest))
        if keys[0] in changed and base is not None and job.get("splits", 20) >= FEWEST_SPLITS:
            setting = ", ".join(f"{key} {value}" for key, value in changed.items())
            yield Pair(job["data"], setting, _gain(result["mean"], base["mean"]))


def _key(file: str, job: dict[str, Any], result: dict[str, Any], settings: dict[str, Any]) -> tuple[Any, ...]:
    named = tuple(sorted((key, str(value)) for key, value in settings.items()))
    return same_code(file, result), job["data"], job["model"], job.get("splits", 20), named


def _gain(first: dict[str, float], second: dict[str, float]) -> float:
    score = MORE_PATHS if MORE_PATHS in first and MORE_PATHS in second else "log_density"
    return first[score] - second[score]


def lever_table(lines: list[Line]) -> str:
    """For each lever and data set: how many pairs there are and what they gained; then the levers without one."""
    rows, untried = [], []
    for lever, keys in LEVERS.items():
        found = list(pairs(lines, keys))
        untried += [] if found else [lever]
        for data in DATA:
            here = sorted((pair for pair in found if pair.data == data), key=lambda pair: pair.gain)
            if here:
                gains = [pair.gain for pair in here]
                span = f"{gains[0]:+z.3f} to {gains[-1]:+z.3f}" if len(gains) > 1 else "–"
                rows.append((lever, data, str(len(gains)), f"{np.median(gains):+z.3f}", span, here[-1].setting))
    columns = ["lever", "data", "pairs", "median gain", "range of gains", "setting with the highest gain"]
    table = markdown_table(pd.DataFrame(rows, columns=columns))
    return table + (f"\n\nWithout such a pair: {', '.join(untried)}." if untried else "")
