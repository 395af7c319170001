"""Result files of the comparison: one JSON file for each cell, complete or not there at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wishflow as wf
from wishflow.files.json import plain, read_json
from wishflow.specs import from_json

from .jobs import AFTER, JOINED, PLAIN, TRACED, Job
from .models import MODELS
from .protocol import BANDS, HORIZON, Parts

SCORES = ("crps", "crps_observed", "energy", "coverage_80")
EXTRAS = {"after": AFTER, "traces": TRACED, "joint": JOINED}
# What a file raises that has lost some of its entries, or has others.
NOT_AS_WRITTEN = (AttributeError, LookupError, TypeError, ValueError)
Results = dict[tuple[str, str], dict[str, Any]]


def result_path(folder: Path, cell: str, name: str, is_validation: bool = False) -> Path:
    """Where the result of a cell lies; `name` is the model, with "-missing" where training entries were deleted."""
    return folder / f"{'validation-' * is_validation}{'' if cell == 'scores' else cell + '-'}{name}.json"


def job_path(folder: Path, job: Job, cell: str) -> Path:
    return result_path(folder, cell, job.name, job.is_validation)


def read_result(path: Path) -> dict[str, Any] | None:
    """The content of a result file; None where there is none, or where it is not one that a finished cell wrote."""
    result = read_json(path)
    return result if _is_complete(result) else None


def _is_complete(result: Any) -> bool:
    """Whether everything is there that tables and figures read; a number may be null, where it was not finite."""
    try:
        is_named = all(isinstance(result[name], str) for name in ("cell", "model", "name", "scored"))
        has_source = isinstance(result["fit_seconds"], float) and isinstance(result["provenance"], dict)
        return is_named and has_source and isinstance(result["settings"], dict) and _has_numbers(result)
    except NOT_AS_WRITTEN:
        return False


def _has_numbers(result: dict[str, Any]) -> bool:
    if result["cell"] in ("scores", "after"):
        has_bands = all(set(BANDS) <= set(result["bands"][score]) for score in SCORES)
        has_densities = "log_density_1" in result and len(result["windows"]["log_density_1"]) > 0
        return has_bands and has_densities and (result["cell"] == "after" or _has_hours(result))
    if result["cell"] == "traces":
        return all(len(result[name]) == HORIZON for name in ("mean", "standard_error", "mixture"))
    return [len(hour["draws"]) + len(hour["observed"]) for hour in result["hours"]] == [4] * len(result["hours"])


def _has_hours(result: dict[str, Any]) -> bool:
    return all(len(result["by_hour"][score]) == HORIZON for score in SCORES)


def is_finished(folder: Path, job: Job, cell: str, parts: Parts) -> bool:
    """Whether there is a complete result of this cell, made with these settings, of as many draws or more."""
    result = read_result(job_path(folder, job, cell))
    try:
        return result is not None and _same(result["settings"], job.settings(cell, parts))
    except NOT_AS_WRITTEN:
        return False


def _same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether settings are equal; what options and rule did not know yet when a result was made had its default. More
    draws are a better estimate of the same scores: asking for fewer does not throw them away.
    """
    if "n_draws" in found and "n_draws" in expected:
        found = {**found, "n_draws": min(found["n_draws"], expected["n_draws"])}
    if "rule" not in expected or "rule" not in found:
        return found == expected
    defaults = {**wf.WishartForecaster().get_params(deep=False), **PLAIN}
    options = {**{name: defaults[name] for name in expected["options"] if name in defaults}, **found["options"]}
    rule = plain(from_json(found["rule"]).to_json())
    return {**found, "options": options, "rule": rule} == expected


def read_results(folder: Path, is_validation: bool = False) -> Results:
    """The results that are there, by cell and name."""
    names = [*MODELS, *(f"{model}-missing" for model in MODELS)]
    wanted = [("scores", name) for name in names]
    wanted += [(cell, name) for cell, some in EXTRAS.items() for name in some]
    found = {key: read_result(result_path(folder, *key, is_validation)) for key in wanted}
    return {key: result for key, result in found.items() if result is not None}


def missing_cells(results: Results) -> list[tuple[str, str]]:
    """Cell and model of what the page shows and has no result. Rows with deleted entries are extra."""
    wanted = [(cell, model) for model in MODELS for cell in Job(model).cells]
    return [key for key in wanted if key not in results]
