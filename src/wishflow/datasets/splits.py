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
    """Rows of training and test part `index` (0, 1, …) of n rows.

    p = numpy.random.default_rng(1000 + index).permutation(n); test = the first int(0.1 n) of p, training = the rest.
    """
    return _first_share(np.arange(n), SPLIT_SEED, index)


def validation_split(
    train_idx: ArrayLike, index: int
) -> tuple[Int[np.ndarray, " n_fit"], Int[np.ndarray, " n_validation"]]:
    """The rows of a training part, cut into those to fit and those to choose settings by.

    p = numpy.random.default_rng(2000 + index).permutation(n), n = len(train_idx); validation = the first int(0.1 n) of
    train_idx[p], the rest is for fitting. No choice is ever made on the test part.
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
