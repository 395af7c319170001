"""Odd tables, drawn by hypothesis: rows for regressors and classifiers, and series.

Each case knows whether its data are valid: at least ten rows of finite numbers in order, and a target that varies.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

MOST_ROWS = 50
# Up to so many rows, programs are the same.
FEW_ROWS, VALID_ROWS = 32, 10
# Few numbers of columns are common: programs are compiled for each.
WIDTHS = (1, 2, 2, 2, 2, 3, 3, 3, 8, 8, 4, 5, 6, 7)
COLUMNS = ("normal", "normal", "constant", "duplicate", "whole numbers", "heavy tails", "two values", "offset")
# Containers whose numbers every estimator must take, and others.
PLAIN_FORMS = ("array", "frame", "float32", "nullable")
OTHER_FORMS = ("category", "text category", "object", "list")
GOOD_LABELS = ("text", "numbers", "truth", "category", "nullable")
HOLES = ("none", "none", "cells", "column", "row", "any", "all")
STAMPS = ("hours", "days", "business days", "irregular", "zone", "zone, irregular", "periods", "numbers", "floats")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
ORDERS = ("sorted", "sorted", "sorted", "unsorted", "repeated", "reversed", "missing stamp")


@dataclasses.dataclass(frozen=True)
class Rows:
    """Inputs and targets, in words too."""

    X: Any
    y: Any
    is_valid: bool
    words: str


@dataclasses.dataclass(frozen=True)
class Hours:
    """Series, in words too."""

    y: Any
    is_valid: bool
    is_regular: bool
    words: str


def exponents() -> st.SearchStrategy[int]:
    return st.integers(-8, 8)


@st.composite
def sizes(draw: Any) -> tuple[bool, int]:
    """Whether data are odd, as three of five are, and their number of rows."""
    is_odd = draw(st.integers(0, 4)) > 1
    least, most = 1 if is_odd else VALID_ROWS, MOST_ROWS if draw(st.integers(0, 9)) == 9 else FEW_ROWS
    return is_odd, draw(st.integers(least, most))


def names(n: int) -> st.SearchStrategy[list[str]]:
    """Names of columns, of any letters."""
    return st.lists(st.text(min_size=1, max_size=6), min_size=n, max_size=n, unique=True)


@st.composite
def matrices(draw: Any, n_rows: int, n_columns: int) -> tuple[np.ndarray, list[str]]:
    """Columns of several kinds, each of a scale of its own; and their kinds."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = [draw(st.sampled_from(COLUMNS)) for _ in range(n_columns)]
    found = rng.normal(size=(n_rows, n_columns))
    for i, kind in enumerate(kinds):
        column = found[:, i]
        if kind == "constant":
            column[:] = draw(st.sampled_from([0.0, 1.0, -3.5]))
        elif kind == "duplicate" and i:
            column[:] = found[:, draw(st.integers(0, i - 1))]
            continue
        elif kind == "whole numbers":
            column[:] = np.round(3.0 * column)
        elif kind == "heavy tails":
            column[:] = rng.standard_t(1.5, n_rows)
        elif kind == "two values":
            column[:] = column > 0
        elif kind == "offset":
            column += 1e4
        column *= 10.0 ** draw(exponents())
    return found, kinds


@st.composite
def holes(draw: Any, values: np.ndarray, is_odd: bool) -> tuple[np.ndarray, str]:
    """The values with NaN somewhere; and where."""
    kind = draw(st.sampled_from(HOLES)) if is_odd else "none"
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    mask = np.zeros(values.shape, bool)
    if kind == "cells":
        mask = rng.random(values.shape) < 0.1
    elif kind == "column":
        mask[:, rng.integers(values.shape[1])] = True
    elif kind == "row":
        mask[rng.integers(len(values))] = True
    elif kind == "any":
        mask = rng.random(values.shape) < draw(st.floats(0.0, 1.0))
    elif kind == "all":
        mask[:] = True
    return np.where(mask, np.nan, values), kind if mask.any() else "none"


@st.composite
def formed(draw: Any, values: np.ndarray, is_odd: bool) -> tuple[Any, str]:
    """The values as an array, or as a frame of some types; and its form."""
    form = draw(st.sampled_from((*PLAIN_FORMS, *OTHER_FORMS) if is_odd else PLAIN_FORMS))
    if form == "array":
        return values, form
    if form == "list":
        return values.tolist(), form
    frame = pd.DataFrame(values, columns=draw(names(values.shape[1])))
    if form == "float32":
        return frame.astype(np.float32), form
    if form == "nullable":
        return frame.astype("Float64"), form
    if form == "object":
        return frame.astype(object), form
    if form == "category":
        return frame.astype("category"), form
    if form == "text category":
        return frame.assign(**{"κ": pd.Categorical(["ä"] * len(frame))}), form
    return frame, form


@st.composite
def rows(draw: Any, is_classifier: bool = False) -> Rows:
    """Inputs with targets, or with labels."""
    is_odd, n = draw(sizes())
    values, kinds = draw(matrices(n, draw(st.sampled_from(WIDTHS))))
    values, hole = draw(holes(values, is_odd))
    X, form = draw(formed(values, is_odd))
    y, target, is_good = draw(labels(n, is_odd)) if is_classifier else draw(targets(n, is_odd))
    is_valid = n >= VALID_ROWS and hole == "none" and form in PLAIN_FORMS and is_good and np.isfinite(values).all()
    return Rows(X, y, bool(is_valid), f"{n} rows, X: {form} of {kinds}, holes: {hole}; y: {target}")


@st.composite
def targets(draw: Any, n: int, is_odd: bool) -> tuple[Any, str, bool]:
    """Targets of a regressor, in words, and whether they are numbers that vary."""
    values, kinds = draw(matrices(n, draw(st.sampled_from((1, 1, 1, 2)))))
    values, hole = draw(holes(values, is_odd))
    is_good = hole == "none" and bool((np.ptp(values, axis=0) > 0).all())
    y, form = draw(formed(values, is_odd))
    if values.shape[1] == 1 and draw(st.booleans()):
        y = y.iloc[:, 0] if isinstance(y, pd.DataFrame) else np.ravel(y)
    return y, f"{form} of {kinds}, holes: {hole}", is_good and form in PLAIN_FORMS


@st.composite
def labels(draw: Any, n: int, is_odd: bool) -> tuple[Any, str, bool]:
    """Labels of a classifier: texts of any letters, numbers, truth values, categories; some are missing."""
    kind = draw(st.sampled_from(GOOD_LABELS + (("missing", "mixed") if is_odd else ())))
    known: list[Any] = draw(names(draw(st.integers(1 if is_odd else 2, 4))))
    if kind in ("numbers", "nullable"):
        known = draw(st.lists(st.integers(-100, 100), min_size=1 if is_odd else 2, max_size=4, unique=True))
    elif kind == "truth":
        known = [True, False]
    elif kind == "mixed":
        known = ["a", 1, None]
    places = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(0, len(known), n)
    found = [known[i] for i in places]
    y: Any = np.array(found, dtype=object if kind in ("text", "mixed") else None)
    if kind == "category":
        y = pd.Series(pd.Categorical(found))
    elif kind == "nullable":
        y = pd.Series(found, dtype="Int64")
    elif kind == "missing":
        y = pd.Series(found, dtype=object).where(np.arange(n) > 0)
    is_good = kind not in ("missing", "mixed") and len(set(found)) > 1
    return y, f"{kind}, {len(set(found))} classes", is_good


# --- series ----------------------------------------------------------------------------------


@st.composite
def indices(draw: Any, n: int, is_odd: bool) -> tuple[Any, str, bool]:
    """Stamps of rows, in words, and whether they are in order, each once."""
    kind, order = draw(st.sampled_from(STAMPS)), draw(st.sampled_from(ORDERS)) if is_odd else "sorted"
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    start, zone = draw(st.sampled_from(["2024-01-01", "2023-03-25 22:00", "1999-12-31 23:00"])), None
    if kind.startswith("zone"):
        zone = draw(st.sampled_from(ZONES))
    if kind in ("numbers", "floats"):
        index: Any = pd.Index(np.arange(n) * (1 if kind == "numbers" else 10.0 ** draw(exponents())))
    elif kind == "periods":
        index = pd.period_range(start, periods=n, freq=draw(st.sampled_from(["h", "D", "M"])))
    elif "irregular" in kind:
        gaps = pd.to_timedelta(np.cumsum(rng.integers(1, 10 ** draw(st.integers(1, 7)), n)), unit="s")
        index = pd.DatetimeIndex(pd.Timestamp(start, tz=zone) + gaps)
    else:
        freq = {"days": "D", "business days": "B"}.get(kind, "h")
        index = pd.date_range(start, periods=n, freq=freq, tz=zone, unit=draw(st.sampled_from(["ns", "us", "ms", "s"])))
    if order == "unsorted":
        index = index[rng.permutation(n)]
    elif order == "reversed":
        index = index[::-1]
    elif order == "repeated" and n > 1:
        index = index[np.sort(rng.integers(0, n, n))]
    elif order == "missing stamp" and isinstance(index, pd.DatetimeIndex):
        index = index.where(np.arange(n) != n // 2)
    is_good = bool(index.is_monotonic_increasing and index.is_unique and not index.hasnans)
    return index, f"{kind}{'' if zone is None else ' ' + zone}, {order}", is_good


@st.composite
def hours(draw: Any) -> Hours:
    """Series with stamps: a frame, a Series, an array, or a panel."""
    is_odd, n = draw(sizes())
    values, kinds = draw(matrices(n, draw(st.sampled_from(WIDTHS))))
    varies = bool((np.ptp(values, axis=0) > 0).all())
    values, hole = draw(holes(values, is_odd))
    y, form = draw(formed(values, is_odd))
    index, stamps, is_good = draw(indices(n, is_odd))
    if isinstance(y, pd.DataFrame):
        y.index = index
    is_valid = n >= VALID_ROWS and hole == "none" and form in PLAIN_FORMS and varies
    is_valid = is_valid and (is_good or form == "array")
    if isinstance(y, pd.DataFrame) and draw(st.integers(0, 4)) == 0:
        y, form = {"ø": y, 2: y.iloc[: max(1, n // 2)]}, f"panel, {form}"
        is_valid = False  # its second part may be constant
    elif isinstance(y, pd.DataFrame) and y.shape[1] == 1 and draw(st.booleans()):
        y, form = y.iloc[:, 0], f"one series, {form}"
    is_regular = "irregular" not in stamps or form == "array"
    return Hours(y, bool(is_valid), is_regular, f"{n} rows, {form} of {kinds}, holes: {hole}; stamps: {stamps}")
