"""Checks of what a model file says before anything is built from it: files may come from strangers.

A checksum tells damage, not malice: whoever writes a file can write its checksum too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ModelFileError

# Levels of lists and objects inside each other. Sums of products of kernels have less than ten.
MOST_NESTED = 60
# Counts up to here need no array of such a length in the file: ranks, lags and steps of ordinary models.
USUAL_COUNT = 1000
# Counts that no array is made of.
OTHER_COUNTS = ("max_gap", "n_steps")
# Parameters are of order one, in units of scaled data; squares of those beyond overflow in float32.
LARGEST = 1e15
# Logarithms of variances beyond this overflow where they are squared.
LARGEST_LOG = 300.0
# The same for scales of data: sums of a few of them must not overflow.
LARGEST_SCALE = 1e300
# Steps of all paths of a prediction, which a fit does not exceed either.
MOST_PATH_STEPS = 20_000_000
# Steps that the rows of a series take.
MOST_TICKS = 1_000_000
REMEDY = "the file was changed after it was written, or by another program; save the model again."


def check_depth(value: Any, most: int = MOST_NESTED) -> None:
    """Refuse JSON of so many levels that a function that follows them would run out of stack."""
    level = [value]
    for _ in range(most):
        level = [part for item in level for part in _parts(item)]
        if not level:
            return
    raise ModelFileError(f"the header nests lists or objects more than {most} levels deep; {REMEDY}")


def longest_of(arrays: Mapping[str, np.ndarray]) -> int:
    """The most that a count or a length may be. An empty array may have any length, and takes no room in the file."""
    return max([USUAL_COUNT, *(n for array in arrays.values() for n in array.shape if array.size)])


def check_empty(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse empty arrays longer than all others: a sum over an axis of no entries would make an array of the rest."""
    longest = longest_of(arrays)
    for name, array in arrays.items():
        if max(array.shape, default=0) > longest:
            raise ModelFileError(f"the array {name!r} has shape {array.shape} and no entries; {REMEDY}")


def check_counts(said: Any, arrays: Mapping[str, np.ndarray], name: str = "header") -> None:
    """Refuse counts beyond the lengths of the arrays in the file: arrays would be made of them."""
    longest = longest_of(arrays)
    stack: list[tuple[str, Any]] = [(name, said)]
    while stack:
        where, value = stack.pop()
        if isinstance(value, dict):
            stack += [(key, part) for key, part in value.items() if key not in OTHER_COUNTS]
        elif isinstance(value, list):
            stack += [(where, part) for part in value]
        elif isinstance(value, int) and not isinstance(value, bool) and not 0 <= value <= longest:
            raise ModelFileError(f"the header says {where}={value}; the longest array has {longest} rows: {REMEDY}")


def check_finite(arrays: Mapping[str, np.ndarray], prefixes: Iterable[str], largest: float = np.inf) -> None:
    """Refuse NaN and infinity, and more than `largest`, among the arrays with these prefixes; complex ones anywhere."""
    for name, array in arrays.items():
        require(array.dtype.kind != "c", f"array {name!r} holds complex numbers")
        if not name.startswith(tuple(prefixes)) or array.dtype.kind != "f":
            continue
        if not np.isfinite(array).all() or (array.size and np.abs(array.astype(float)).max() > largest):
            raise ModelFileError(f"array {name!r} holds numbers that are not finite, or far too large; {REMEDY}")
        is_small = not name.endswith("log_variances") or not array.size or array.max() <= LARGEST_LOG
        require(is_small, f"array {name!r} holds logarithms that are far too large")
        require(not name.endswith(".jitter") or (array >= 0).all(), f"array {name!r} holds negative numbers")


def require(is_so: Any, what: str) -> None:
    """An error that says what does not fit, unless it is so."""
    if not is_so:
        raise ModelFileError(f"{what}; {REMEDY}")


def check_weights(weights: Sequence[Any]) -> None:
    """Refuse weights of members that are no shares of one; a model without members has none."""
    is_share = all(isinstance(w, float) and 0.0 <= w <= 1.0 for w in weights) and abs(sum(weights) - 1.0) < 1e-6
    require(is_share or not weights, f"the weights of members are {weights}")


def check_seed(seed: Any) -> None:
    """Refuse what is no seed of 32 bits."""
    require(isinstance(seed, int) and 0 <= seed < 2**32, f"seed_ is {seed!r}")


def check_limits(limits: np.ndarray | None, n_columns: int) -> None:
    """Refuse what is no lowest and highest value of each column; None stands for no limits."""
    if limits is not None:
        is_range = limits.shape == (2, n_columns) and bool((limits[0] <= limits[1]).all())
        require(is_range and np.isfinite(limits).all(), f"the limits are no range of {n_columns} columns")


def check_ticks(gaps: np.ndarray, step: float, max_gap: float, key: Any) -> None:
    """Refuse rows whose gaps take more steps than forecasts may; gaps above `max_gap` steps cut the rows."""
    n_steps = np.asarray(gaps) / step
    total = np.where(n_steps > max_gap, 1.0, n_steps).sum()
    require(total <= MOST_TICKS, f"the last rows of {key!r} take {total:.3g} steps of length {step}")


def check_size(what: str, size: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse a product of counts beyond all numbers of a model, where the model has an array of that size."""
    total = sum(array.size for array in arrays.values())
    require(size <= total, f"{what} would have {size} numbers, and the arrays of the model have {total}")


def text_list(value: Any, n: int, what: str) -> list[str]:
    """A list of n texts."""
    require(isinstance(value, list) and all(isinstance(item, str) for item in value), f"{what} are no list of names")
    require(len(value) == n, f"there are {len(value)} {what}, expected {n}")
    return value


def template_of(build: Callable[..., Any], *sizes: int) -> Any:
    """The shapes and types of what `build(*sizes)` would return, without arrays of these sizes.

    Each axis is linear in the sizes, and nothing but the axes depends on them: small ones tell how. A size of 0 stays.
    """
    import jax

    small = [min(n, 2) for n in sizes]
    base = build(*small)
    structure: Any = jax.tree.structure(base)
    shapes = [np.array(leaf.shape, int) for leaf in jax.tree.leaves(base)]
    found = [shape.copy() for shape in shapes]
    for i, n in enumerate(sizes):
        if n == small[i]:
            continue
        other = build(*(size + (k == i) for k, size in enumerate(small)))
        require(structure == jax.tree.structure(other), "the model has a form of its own for each size")
        for shape, before, leaf in zip(found, shapes, jax.tree.leaves(other), strict=True):
            shape += (np.array(leaf.shape, int) - before) * (n - small[i])
    leaves = [
        jax.ShapeDtypeStruct(tuple(map(int, shape)), leaf.dtype)
        for shape, leaf in zip(found, jax.tree.leaves(base), strict=True)
    ]
    return jax.tree.unflatten(structure, leaves)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
