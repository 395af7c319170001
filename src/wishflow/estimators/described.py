"""Estimators that are not fitted as plain JSON values, and back; jobs are made of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from .. import specs
from ..errors import OptionError
from ..files.json import plain
from ..specs import checks
from ..training.checkpoints import Checkpointing, for_workers
from .loading import REGISTRY

# Options about what a fit tells, to whom, and where it runs: workers have none of their own.
SILENT = {"callbacks": None, "verbose": 0, "backend": None, "backend_params": None}


def to_json(estimator: Any) -> dict[str, Any]:
    """Class and options of an estimator as plain values.

    Parameters
    ----------
    estimator : estimator
        An estimator of this package. Its callbacks and `verbose` are left out, and a random generator becomes a seed.

    Returns
    -------
    dict
        "class" and "parameters".

    Raises
    ------
    OptionError
        If it is of another class, or an option cannot be written as JSON.
    """
    kind: type = type(estimator)
    name = kind.__name__
    if REGISTRY.get(name) is not kind:
        raise OptionError(
            f"a {kind.__module__}.{name} was given; expected an estimator of this package: {', '.join(REGISTRY)}."
        )
    options = {**estimator.get_params(deep=False), **SILENT}
    return {"class": name, "parameters": {key: _option_to_json(key, value) for key, value in options.items()}}


def from_json(spec: dict[str, Any]) -> Any:
    """The estimator that `to_json` described."""
    options = {key: _option(value) for key, value in spec["parameters"].items()}
    return REGISTRY[spec["class"]](**options)


def _option_to_json(name: str, value: Any) -> Any:
    if name == "random_state":
        return value if value is None else checks.fixed_seed(value)
    if isinstance(value, specs.Spec):
        return value.to_json()
    kept = for_workers(value) if name == "checkpoint_dir" else None
    if kept is not None:
        return {"checkpointing": plain(dataclasses.asdict(kept))}
    try:
        if isinstance(value, dict):
            return {"by_column": [[plain(column), plain(choice)] for column, choice in value.items()]}
        return plain(value)
    except TypeError as error:
        raise OptionError(
            f"{name}={value!r} cannot be written as JSON, the format of jobs; expected a name, a number, a "
            "spec, or a list of them. Fit this estimator with backend=None and without a folder."
        ) from error


def _option(value: Any) -> Any:
    if isinstance(value, dict) and "by_column" in value:
        return {column: choice for column, choice in value["by_column"]}
    if isinstance(value, dict) and "checkpointing" in value:
        return Checkpointing(**value["checkpointing"])
    return specs.from_json(value)
