"""Which rows belong together: a row and its copies, or the rows of one subject, stay on one side of each split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ..errors import DataError

# Fewer distinct rows are the cells of a table: held back as a whole they would be other rows than those to come.
LEAST_DISTINCT = 30


def groups_of(X: Float[np.ndarray, "N D"], given: Any = None) -> Int[np.ndarray, " N"] | None:
    """The group of each row: as given, or rows with equal inputs; None where each row is a group of its own."""
    if given is None:
        numbers = _equal_rows(X)
        if numbers.max() + 1 < LEAST_DISTINCT:
            return None
    else:
        numbers = checked_groups(given, len(X))
    return None if len(np.unique(numbers)) == len(X) else numbers


def checked_groups(given: Any, n_rows: int) -> Int[np.ndarray, " N"]:
    """The numbers of groups that a user has named."""
    labels = np.asarray(given)
    if labels.shape != (n_rows,):
        raise DataError(f"groups has shape {labels.shape} for {n_rows} rows; expected one label for each row.")
    numbers, names = pd.factorize(labels)
    if (numbers < 0).any():
        raise DataError(
            f"groups has {int((numbers < 0).sum())} missing labels; expected one for each row: give rows without a "
            "group a label of their own."
        )
    if len(names) < 2:
        raise DataError(
            f"groups has one label for all rows ({names[0]}); expected at least two labels, so that one group can be "
            "held back: pass no groups if all rows belong together."
        )
    return numbers


def _equal_rows(X: Float[np.ndarray, "N D"]) -> Int[np.ndarray, " N"]:
    """Numbers that are equal for equal rows; −0 equals 0."""
    hashes = pd.util.hash_pandas_object(pd.DataFrame(X + 0.0), index=False)
    return pd.factorize(hashes)[0]
