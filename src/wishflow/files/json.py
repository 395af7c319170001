"""JSON files, and plain values for them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .writing import write_bytes_atomic


def read_json(path: Path) -> Any:
    """The content of a JSON file; None where there is no file, or one that is not JSON, or nested without end."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def write_json_atomic(path: str | os.PathLike[str], data: Any) -> None:
    """Write results as an indented JSON file, atomically; NaN and infinities, which JSON lacks, become null."""
    text = json.dumps(finite_or_none(plain(data)), allow_nan=False, ensure_ascii=False, indent=2)
    write_bytes_atomic(path, (text + "\n").encode())


def plain(value: Any) -> Any:
    """The value in JSON types alone: NumPy arrays and tuples become lists, NumPy numbers Python numbers, paths text."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise TypeError(f"key {wrong[0]!r} is a {type(wrong[0]).__name__}, expected text")
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r} is a {type(value).__name__}, which JSON lacks")


def finite_or_none(value: Any) -> Any:
    """The value in JSON types, with None in place of NaN and infinities."""
    if isinstance(value, dict):
        return {key: finite_or_none(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite_or_none(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
