"""The paper's own numbers, as printed (`paper.json` says where)."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any


@functools.cache
def _printed() -> dict[str, Any]:
    return json.loads((resources.files(__package__) / "paper.json").read_text(encoding="utf-8"))


def source() -> str:
    """Where the numbers are printed."""
    return _printed()["source"]


def printed_score(score: str, data: str, model: str) -> tuple[str, str] | None:
    """Mean and standard deviation over splits, as text; None where the paper has none."""
    pair = _printed()["scores"].get(score, {}).get(data, {}).get(model)
    return None if pair is None else (pair[0], pair[1])


def printed_p_value(first: str, second: str, data: str) -> str | None:
    """The p-value of Table 1 for "`first` is better than `second`", as text; None where the paper has none."""
    return _printed()["p_values"].get(f"{first}-{second}", {}).get(data)
