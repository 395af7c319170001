"""Checks of X and y."""

from __future__ import annotations

import contextlib
import datetime
import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from ..errors import DataError, DataTypeError, WishflowError

# Fewer distinct rows are the cells of a table: held back as a whole they would be other rows than those to come.
LEAST_DISTINCT = 30
COMPLEX = (complex, np.complexfloating)
TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64, pd.Period, pd.Interval)


def checked_rows(estimator: Any, *data: Any, **options: Any) -> Any:
    """scikit-learn's checks of X, or of X and y, with X in float64."""
    check_numeric(data[0], "X")
    with our_errors(data[0]):
        # One memory layout: sums over a frame's columns would round differently from those over an array's.
        return validate_data(estimator, *data, dtype=np.float64, order="C", **options)


def check_numeric(data: Any, name: str) -> None:
    """Refuse what NumPy would turn into numbers without a word: times, the values behind a mask, no columns at all, and
    complex numbers among objects.
    """
    check_no_mask(data, name)
    data = _as_array(data) if isinstance(data, list | tuple) else data
    if hasattr(data, "columns") and not len(data.columns):
        raise DataError(f"{name} has no columns; expected at least one, of numbers.")
    dtypes: Any = getattr(data, "dtypes", getattr(data, "dtype", None))
    is_frame = hasattr(data, "columns") and dtypes is not None
    named = list(zip(data.columns, dtypes, strict=True)) if is_frame else [(None, dtypes)]
    for i, (column, dtype) in enumerate(named):
        where = name if column is None else f"column {column!r} of {name}"
        is_of_objects = isinstance(dtype, np.dtype) and dtype.kind == "O"
        kinds = _kinds_of_objects(data if column is None else data.iloc[:, i]) if is_of_objects else set()
        times = str(dtype) if _is_of_times(dtype) else ", ".join(sorted(_names(kinds, TIMES)))
        if times:
            raise DataError(
                f"{where} holds values of type {times}; expected numbers: take the time since a first stamp in units "
                "of your own, such as (t - t[0]) / pd.Timedelta('1h'), or parts of the date, such as t.dt.month."
            )
        if _names(kinds, COMPLEX):
            raise DataTypeError(f"{where} holds complex numbers; expected real ones: pass real and imaginary part.")


def _as_array(data: Any) -> Any:
    """A list with the type that its entries have in common; scikit-learn says what is wrong where there is none."""
    try:
        return np.asarray(data)
    except (TypeError, ValueError, OverflowError):
        return data


def _kinds_of_objects(values: Any) -> set[type]:
    return {type(value) for value in np.asarray(values, object).ravel()}


def _names(kinds: set[type], wanted: tuple[type, ...]) -> set[str]:
    return {kind.__name__ for kind in kinds if issubclass(kind, wanted)}


def _is_of_times(dtype: Any) -> bool:
    """Whether values are stamps, spans of time, periods or intervals, also as categories."""
    dtype = getattr(getattr(dtype, "categories", None), "dtype", dtype)
    return getattr(dtype, "kind", "") in ("M", "m") or str(dtype).startswith(("period", "interval"))


def check_no_mask(data: Any, name: str) -> None:
    """A masked array whose mask hides something has missing values, which other code would read as numbers."""
    parts = [part for part in (data if isinstance(data, list | tuple) else [data]) if np.ma.is_masked(part)]
    if parts:
        what = "is a masked array" if parts[0] is data else "is a list of masked arrays"
        n_masked = sum(int(np.ma.getmaskarray(part).sum()) for part in parts)
        raise DataError(
            f"{name} {what} with {n_masked} masked entries; expected a value "
            "everywhere: drop the rows without one, or fill them in."
        )


def check_labels(y: Any) -> None:
    """Labels can be put in order and saved: all are text, or all are numbers. Times are neither."""
    check_no_mask(y, "y")
    times = {str(dtype) for dtype in np.ravel(getattr(y, "dtypes", getattr(y, "dtype", []))) if _is_of_times(dtype)}
    if not times and (not hasattr(y, "dtype") or y.dtype == object):
        times = {type(label).__name__ for label in np.asarray(y, object).ravel() if isinstance(label, TIMES)}
    if times:
        raise DataError(
            f"y holds times ({', '.join(sorted(times))}); expected labels that are text or numbers: name the classes, "
            "with y.astype(str) or y.dt.day_name() for example."
        )
    is_array = hasattr(y, "dtype") and y.dtype != object
    if is_array and hasattr(y, "isna") and y.isna().any():
        raise DataError(
            f"y contains NaN: {int(y.isna().sum())} of {len(y)} labels are missing. Drop the rows without one, or give "
            "them a label of their own, with y.fillna."
        )
    kinds = set() if is_array else {_kind_of(label) for label in np.asarray(y, object).ravel()}
    if len(kinds) > 1:
        raise DataError(
            f"y holds labels of several types ({', '.join(sorted(kinds))}); expected all text or all numbers, none of "
            "them missing (NaN): convert them, with y.astype(str) for example."
        )


def _kind_of(label: Any) -> str:
    is_number = isinstance(label, numbers.Real | np.bool_) and label == label
    return "number" if is_number else "text" if isinstance(label, str) else type(label).__name__


def checked_numbers(y: Any) -> np.ndarray:
    """Targets in float64."""
    with our_errors():
        return np.asarray(y, float)


@contextlib.contextmanager
def our_errors(X: Any = None) -> Iterator[None]:
    """scikit-learn's errors as ours; text, missing values and rows that do not match get words that say what to do.

    `X` may be a table, whose columns of text are named.
    """
    try:
        yield
    except WishflowError:
        raise
    except TypeError as error:
        if "float() argument" not in str(error):  # scikit-learn's own, of sparse matrices for example
            raise DataTypeError(str(error)) from error
        raise DataTypeError(f"the data hold objects ({error}); expected numbers: convert or drop them.") from error
    except OverflowError as error:
        raise DataError(f"the data hold a number beyond 1.8e308 ({error}); divide it by a constant.") from error
    except ValueError as error:
        first = str(error).partition("\n")[0]
        if "contains NaN" in first:
            raise DataError(f"{first} Drop the rows without a value, or fill them in.") from error
        if "inconsistent numbers of samples" in first:
            raise DataError(f"{first}; expected as many rows of X as of y.") from error
        if "could not convert" not in first:
            raise DataError(str(error)) from error
        raise DataError(
            f"{_column_of_text(X)} text ({error}); expected numbers: encode text columns first, "
            "with scikit-learn's OneHotEncoder for example."
        ) from error


def _column_of_text(X: Any) -> str:
    """The first column of a table whose values are not numbers, as the subject of a sentence."""
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        for k, name in enumerate(X.columns):
            try:
                np.asarray(X.iloc[:, k], float)
            except (TypeError, ValueError):
                return f"column {name!r} of X holds"
    return "the data hold"


def check_no_labels(y: Any) -> None:
    """Words are labels, which a regressor has no use for."""
    values = y if hasattr(y, "dtype") else np.asarray(y, object).ravel()[:1]
    first = next(iter(np.asarray(values, object).ravel()), None)
    if not isinstance(first, str):
        return
    try:
        float(first)
    except ValueError:
        raise DataError(
            f"y holds text, such as {str(first)!r}; expected numbers: use FlowClassifier for labels, or convert it."
        ) from None


def target_names(y: Any) -> list[str] | None:
    """The names of target columns: those of a frame or of a named Series; None where there are none."""
    if hasattr(y, "columns"):
        return [str(name) for name in y.columns]
    name = getattr(y, "name", None)
    return None if name is None else [str(name)]


def names_of_targets(model: Any) -> list[str]:
    """The names of the targets of a fitted model, or y, y1, y2, … where the model knows none."""
    n_targets = 1 if hasattr(model, "classes_") else len(model.y_scaler_.scale)
    known = getattr(model, "target_names_", None)
    return list(known) if known else ["y"] if n_targets == 1 else [f"y{i + 1}" for i in range(n_targets)]


def rows_of(X: Any, n_rows: int) -> pd.Index:
    """The index of a frame; numbers for an array."""
    return X.index if isinstance(X, pd.DataFrame) else pd.RangeIndex(n_rows)


def checked_targets(y: Any, n_rows: int, n_targets: int) -> np.ndarray:
    """Targets to score, (N, P): finite numbers, as many rows as X, as many columns as the model has targets."""
    check_numeric(y, "y")
    with our_errors():
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    y = y[:, None] if y.ndim == 1 else y
    check_same_rows(n_rows, len(y))
    if y.shape[1:] != (n_targets,):
        raise DataError(f"y has shape {y.shape}; the model was fitted to {n_targets} target column(s): pass as many.")
    return y


def check_same_rows(n_inputs: int, n_targets: int) -> None:
    if n_inputs != n_targets:
        raise DataError(f"X has {n_inputs} rows and y has {n_targets}; they must have the same number of rows.")


# --- rows that belong together -----------------------------------------------------------------------


def groups_of(X: Float[np.ndarray, "N D"], given: Any = None) -> Int[np.ndarray, " N"] | None:
    """The group of each row: as given, or rows with equal inputs; None where each row is a group of its own."""
    if given is None:
        numbers = _equal_rows(X)
        if numbers.max() + 1 < LEAST_DISTINCT:
            return None
    else:
        numbers = checked_groups(given, len(X))
    return None if len(np.unique(numbers)) == len(X) else numbers


def checked_groups(
    given: Any,
    n_rows: int,
    remedy: str = "so that one group can be held back: pass no groups if all rows belong together",
) -> Int[np.ndarray, " N"]:
    """The numbers of groups that a user has named; `remedy` says why one group is too few, and what to do."""
    labels = np.asarray(given)
    if labels.shape != (n_rows,):
        raise DataError(f"groups has shape {labels.shape} for {n_rows} rows; expected one label for each row.")
    try:
        numbers, names = pd.factorize(labels)
    except TypeError as error:
        raise DataError(f"groups holds what is no label ({error}); expected text or numbers.") from error
    if (numbers < 0).any():
        raise DataError(
            f"groups has {int((numbers < 0).sum())} missing labels; expected one for each row: give rows without a "
            "group a label of their own."
        )
    if len(names) < 2:
        raise DataError(f"groups has one label for all rows ({names[0]}); expected at least two labels, {remedy}.")
    return numbers


def _equal_rows(X: Float[np.ndarray, "N D"]) -> Int[np.ndarray, " N"]:
    """Numbers that are equal for equal rows; −0 equals 0."""
    hashes = pd.util.hash_pandas_object(pd.DataFrame(X + 0.0), index=False)
    return pd.factorize(hashes)[0]
