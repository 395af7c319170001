"""Result files of the suite: one JSON file for each cell, complete or not there at all."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from wishflow.files.json import plain, read_json
from wishflow.training.specs import TrainingSpec

from .suite import DATA, MODELS, Cell

SCORES = ("mean_log_density_of_paths", "log_density", "rmse", "crps", "coverage_95")
# What a file raises that has lost some of its entries, or has others.
NOT_AS_WRITTEN = (AttributeError, LookupError, TypeError, ValueError)
Results = dict[tuple[str, str], dict[str, Any]]


def cell_path(folder: Path, cell: Cell) -> Path:
    """Where the result of a cell lies; each preset has a folder of its own."""
    return folder / cell.preset / "cells" / f"{cell.data}-{cell.model}.json"


def read_result(path: Path) -> dict[str, Any] | None:
    """The content of a result file; None where there is none, or where it is not one that a finished cell wrote."""
    result = read_json(path)
    return result if _is_complete(result) else None


def _is_complete(result: Any) -> bool:
    """Whether every split that the settings name has every score; a score may be null, where it was not finite."""
    try:
        scores = [row[name] for row in result["splits"] for name in SCORES]
        has_scores = all(score is None or isinstance(score, int | float) for score in scores)
        is_named = all(isinstance(result[name], str) for name in ("data", "model"))
        has_source = isinstance(result["fit_seconds"], float) and isinstance(result["provenance"], dict)
        return is_named and has_scores and has_source and len(result["splits"]) == result["settings"]["n_splits"]
    except NOT_AS_WRITTEN:
        return False


def is_finished(folder: Path, cell: Cell, settings: dict[str, Any]) -> bool:
    """Whether there is a complete result of this cell, made with these settings, of as many splits or more."""
    result = read_result(cell_path(folder, cell))
    try:
        return result is not None and _same(result["settings"], plain(settings))
    except NOT_AS_WRITTEN:
        return False


def _same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether settings are equal; what the rule did not know yet when a result was made had its default, and an option
    that is None says nothing. More splits hold the fewer: asking for five does not throw twenty away.
    """
    known = {field.name: field.default for field in dataclasses.fields(TrainingSpec)}
    missing = {name: known[name] for name in expected["rule"] if name not in found["rule"]}
    n_splits = min(found["n_splits"], expected["n_splits"])
    complete = {**found, "n_splits": n_splits, "rule": {**found["rule"], **missing}}
    return _as_given(complete) == _as_given(expected)


def _as_given(settings: dict[str, Any]) -> dict[str, Any]:
    return {**settings, "options": {name: value for name, value in settings["options"].items() if value is not None}}


def read_results(folder: Path, preset: str) -> Results:
    """The results that are there, by data set and model."""
    grid = {(data, model): cell_path(folder, Cell(data, model, preset)) for data in DATA for model in MODELS}
    found = {key: read_result(path) for key, path in grid.items()}
    return {key: result for key, result in found.items() if result is not None}


def is_kept(result: dict[str, Any]) -> bool:
    """Whether the sparse GP was kept instead of the flow on every split."""
    return bool(statuses(result)) and all(map(is_kept_text, statuses(result)))


def statuses(result: dict[str, Any]) -> list[str]:
    """How fits of a cell ended, each way once."""
    return result.get("status", [])


def is_kept_text(status: str) -> bool:
    """Whether a fit ended so; older results have other sentences for it."""
    sentences = ("weights of candidates: sparse GP 1.00", "the sparse GP was kept", "the sparse GP without a flow")
    return any(sentence in status for sentence in sentences)


def split_scores(result: dict[str, Any], score: str) -> np.ndarray:
    """A score of each split, (n_splits,); NaN where it was not finite."""
    return np.array([row[score] for row in result["splits"]], float)  # None becomes NaN


def paired_scores(first: dict[str, Any], second: dict[str, Any], score: str) -> tuple[np.ndarray, np.ndarray]:
    """A score of two results on the splits both have: split s is the same rows in every file."""
    n = min(len(first["splits"]), len(second["splits"]))
    return split_scores(first, score)[:n], split_scores(second, score)[:n]
