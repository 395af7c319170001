"""Slopes of functions that are known by their values alone."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

# The first step as a share of the value, or of a typical one if that is larger; how much shorter each next one is, and
# how many are tried.
FIRST, SHORTER, N_STEPS = 1e-3, 0.2, 16
# Two steps that agree as well as this give the slope.
AGREEMENT = 1e-5

Function = Callable[[np.ndarray], np.ndarray]


def where_defined(function: Function, values: np.ndarray) -> np.ndarray:
    """f of each value, NaN where it has none; a function that refuses all of them for one is asked one by one."""
    result = np.full(values.shape, np.nan)
    is_there = np.isfinite(values)
    if not is_there.any():
        return result
    with np.errstate(all="ignore"):
        try:
            result[is_there] = function(values[is_there])
        except ValueError:
            result[is_there] = [_value_or_nan(function, value) for value in values[is_there]]
    return np.where(np.isfinite(result), result, np.nan)


def _value_or_nan(function: Function, value: float) -> float:
    try:
        return float(function(np.array([value]))[0])
    except ValueError:
        return np.nan


def numeric_slope(function: Function, y: np.ndarray, scale: float) -> np.ndarray:
    """df/dy at each y by central differences, at the edge of where f is defined by one-sided ones.

    Steps get shorter, from a small share of |y| or of `scale` on, whichever is larger, until two of them agree; then
    Richardson's extrapolation of the two is taken. Where none agree the slope is NaN: f has none there.
    """
    longest = FIRST * np.maximum(np.abs(y), scale)
    found = _converged(functools.partial(_central, function), y, longest)
    for side in (1.0, -1.0):
        is_missing = np.isnan(found) & np.isfinite(y)
        if is_missing.any():
            found[is_missing] = _converged(
                functools.partial(_one_sided, function, side), y[is_missing], longest[is_missing]
            )
    return found


def _central(function: Function, y: np.ndarray, h: np.ndarray) -> np.ndarray:
    above, below = y + h, y - h
    return (where_defined(function, above) - where_defined(function, below)) / (above - below)


def _one_sided(function: Function, side: float, y: np.ndarray, h: np.ndarray) -> np.ndarray:
    """(−3f(y) + 4f(y + h) − f(y + 2h))/2h, h to one side: its error is of the order h² too."""
    h = side * h
    here, near, far = (where_defined(function, y + k * h) for k in (0, 1, 2))
    return (-3.0 * here + 4.0 * near - far) / (2.0 * h)


def _converged(difference: Callable[[np.ndarray, np.ndarray], np.ndarray], y: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The limit of a difference of second order as its step gets shorter, from h on; NaN where there is none.

    Differences over short steps can be zero by rounding. A slope of zero is one only where f is flat over the longest
    step it is defined on, too.
    """
    found, last, first = (np.full(y.shape, np.nan) for _ in range(3))
    for _ in range(N_STEPS):
        is_open = np.isnan(found) & np.isfinite(y)
        if not is_open.any():
            return found
        now = difference(y[is_open], h[is_open])
        before = last[is_open]
        first[is_open] = np.where(np.isnan(first[is_open]), now, first[is_open])
        is_plausible = (now != 0.0) | (first[is_open] == 0.0)
        agree = is_plausible & (np.abs(now - before) <= AGREEMENT * np.abs(now))
        better = (now - SHORTER**2 * before) / (1.0 - SHORTER**2)
        found[is_open] = np.where(agree, better, np.nan)
        last[is_open] = now
        h = SHORTER * h
    return found
