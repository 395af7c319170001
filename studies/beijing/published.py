"""Numbers of random walk and VARs as published before (`published.json` says where), to compare our own runs with."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any


@functools.cache
def _printed() -> dict[str, Any]:
    return json.loads((resources.files(__package__) / "published.json").read_text(encoding="utf-8"))


def source() -> str:
    """Where the numbers are printed."""
    return _printed()["source"]


def is_published(model: str) -> bool:
    return model in _printed()["rows"]


def printed_bands(score: str, model: str) -> list[str] | None:
    """A score in the four bands, as text; None where none is printed."""
    return _printed()["rows"].get(model, {}).get(score)


def printed_log_density(model: str) -> str | None:
    """The log density of hour 1, as text; None where none is printed."""
    return _printed()["rows"].get(model, {}).get("log_density_1")
