"""Which rows train, test and validate. The rules are fixed, so that numbers from different programs compare."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from ..errors import OptionError

TEST_SHARE = 0.1
SPLIT_SEED = 1000
VALIDATION_SEED = 2000


def split(n: int, index: int) -> tuple[Int[np.ndarray, " n_train"], Int[np.ndarray, " n_test"]]:
    """Split rows into a training and a test part by a fixed rule.

    Parameters
    ----------
    n : int
        Number of rows, at least 10.
    index : int
        Which split, from 0 on.

    Returns
    -------
    train : ndarray of int
        Rows of the training part.
    test : ndarray of int
        Rows of the test part, a tenth of all.

    Raises
    ------
    OptionError
        If there are fewer than 10 rows, or `index` is negative.

    Notes
    -----
    p = numpy.random.default_rng(1000 + index).permutation(n); the first int(0.1 n) of p are the test part, the rest is
    for training. The rule is fixed, so that numbers from different programs compare.

    Examples
    --------
    >>> from wishflow.datasets import split
    >>> train, test = split(100, index=0)
    >>> len(train), len(test)
    (90, 10)
    """
    return _first_share(np.arange(n), SPLIT_SEED, index)


def validation_split(
    train_idx: ArrayLike, index: int
) -> tuple[Int[np.ndarray, " n_fit"], Int[np.ndarray, " n_validation"]]:
    """Split the rows of a training part into those to fit and those to choose settings by.

    No choice is ever made on the test part.

    Parameters
    ----------
    train_idx : array-like of int
        Rows of a training part, at least 10.
    index : int
        Which split, from 0 on.

    Returns
    -------
    fit : ndarray of int
        Rows for fitting.
    validation : ndarray of int
        Rows for choices, a tenth of `train_idx`.

    Raises
    ------
    OptionError
        If there are fewer than 10 rows, or `index` is negative.

    Notes
    -----
    p = numpy.random.default_rng(2000 + index).permutation(n) with n = len(train_idx); the first int(0.1 n) of
    train_idx[p] are the validation part, the rest is for fitting.

    Examples
    --------
    >>> from wishflow.datasets import split, validation_split
    >>> train, test = split(100, index=0)
    >>> fit, validation = validation_split(train, index=0)
    >>> len(fit), len(validation)
    (81, 9)
    """
    return _first_share(np.asarray(train_idx), VALIDATION_SEED, index)


def _first_share(rows: np.ndarray, seed: int, index: int) -> tuple[np.ndarray, np.ndarray]:
    n_first = int(TEST_SHARE * len(rows))
    if n_first < 1:
        raise OptionError(f"{len(rows)} rows given to split; expected at least 10, so that a tenth is one row or more.")
    if index < 0:
        raise OptionError(f"index={index!r} given to split; expected 0 or a greater whole number.")
    shuffled = rows[np.random.default_rng(seed + index).permutation(len(rows))]
    return shuffled[n_first:], shuffled[:n_first]
