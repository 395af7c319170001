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
    """A regression problem in original units.

    Parameters
    ----------
    name : str
        Name of the data set.
    X : ndarray or DataFrame of shape (N, D)
        Inputs.
    y : ndarray or Series of shape (N,)
        Target.
    feature_names : tuple of str
        Names of the inputs.
    target_name : str
        Name of the target.
    description : str
        What the data are.

    Examples
    --------
    >>> import wishflow as wf
    >>> data = wf.datasets.load_uci("boston")  # doctest: +SKIP
    >>> data.X.shape  # doctest: +SKIP
    (506, 13)
    """

    name: str
    X: Any
    y: Any
    feature_names: tuple[str, ...]
    target_name: str
    description: str


def load_uci(name: str, return_frame: bool = False) -> Dataset:
    """Load a data set of the published comparisons by name.

    Parameters
    ----------
    name : str
        One of `UCI_NAMES`.
    return_frame : bool, default=False
        Whether X is a DataFrame and y a Series, rather than arrays.

    Returns
    -------
    Dataset
        The data, in original units.

    Raises
    ------
    OptionError
        If the name is not known.
    DatasetError
        If the data set is not found and cannot be downloaded.

    Warns
    -----
    UserWarning
        For "bike_paper", whose inputs hold the target.

    Notes
    -----
    The table is read from `uci/<name>.csv.gz` in the folder named by the environment variable `WISHFLOW_DATA`, else in
    the user's cache folder, else made from the original, which is downloaded, checked (SHA-256) and kept in the cache.

    Examples
    --------
    >>> import wishflow as wf
    >>> "boston" in wf.datasets.UCI_NAMES
    True
    >>> data = wf.datasets.load_uci("boston")  # doctest: +SKIP
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
