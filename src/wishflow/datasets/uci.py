"""`load_uci`: the regression data sets of the published comparisons, as arrays or frames."""

from __future__ import annotations

import dataclasses
import io
import warnings
from typing import Any

import numpy as np

from .registry import ENTRIES, Entry, entry_of
from .storage import read_table

UCI_NAMES: tuple[str, ...] = tuple(ENTRIES)


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A regression problem: inputs X (N, D) and target y (N,), in original units; pandas objects where asked for."""

    name: str
    X: Any
    y: Any
    feature_names: tuple[str, ...]
    target_name: str
    description: str


def load_uci(name: str, return_frame: bool = False) -> Dataset:
    """A data set by name; `UCI_NAMES` lists the names.

    The table is read from `uci/<name>.csv.gz` in the folder named by the environment variable `WISHFLOW_DATA`, else in
    the user's cache folder, else made from the original, which is downloaded, checked (SHA-256) and kept in the cache.
    With `return_frame`, X is a DataFrame and y a Series.
    """
    entry = entry_of(name)
    text = read_table(entry.table)
    if entry.warning is not None:
        warnings.warn(entry.warning, UserWarning, stacklevel=2)
    X, y = (_as_frames if return_frame else _as_arrays)(_parse(text, entry), entry)
    return Dataset(entry.name, X, y, entry.features, entry.target, entry.description)


def _parse(text: str, entry: Entry) -> np.ndarray:
    """The columns that are used, the target last."""
    places = [entry.table.columns.index(column) for column in (*entry.features, entry.target)]
    return np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1, usecols=places)


def _as_arrays(values: np.ndarray, entry: Entry) -> tuple[Any, Any]:
    return np.ascontiguousarray(values[:, :-1]), values[:, -1].copy()


def _as_frames(values: np.ndarray, entry: Entry) -> tuple[Any, Any]:
    import pandas as pd

    return pd.DataFrame(values[:, :-1], columns=list(entry.features)), pd.Series(values[:, -1], name=entry.target)
