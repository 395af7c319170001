"""Where stamps are among others, which they may differ from by rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

# Stamps that are numbers are the same if they differ by less than this share of a step.
ROUNDING = 1e-6


def places_of(
    stamps: pd.Index, known: pd.Index, unit: float | None = None, share: float = ROUNDING
) -> Int[np.ndarray, " N"]:
    """Where stamps are among those that are known; −1 where they are not. They may differ by a share of a step.

    `unit` is the length of a step, in nanoseconds for time stamps. By default it is the median gap of numbers, and time
    stamps must be equal.
    """
    if unit is not None and _are_times(stamps, known):
        return _nearest(_nanoseconds(stamps), _nanoseconds(known), int(share * unit))
    if stamps.dtype.kind not in "iuf" or known.dtype.kind not in "iuf":
        return known.get_indexer(stamps)
    if unit is None:
        gaps = np.abs(np.diff(np.asarray(known if len(known) > 1 else stamps, float)))
        unit = float(np.median(gaps)) if len(gaps) else 0.0
    stamps_, known_ = np.asarray(stamps, float), np.asarray(known, float)
    # Large numbers with small steps have no more digits than a few units in the last place.
    return _nearest(stamps_, known_, max(share * unit, 4.0 * np.spacing(np.abs(known_).max(initial=0.0))))


def _are_times(stamps: Any, known: Any) -> bool:
    """Whether both are time stamps that can be compared: with time zones, or without."""
    are_times = isinstance(stamps, pd.DatetimeIndex) and isinstance(known, pd.DatetimeIndex)
    return are_times and (stamps.tz is None) == (known.tz is None)


def _nanoseconds(index: Any) -> np.ndarray:
    return index.as_unit("ns").asi8


def _nearest(stamps: np.ndarray, known: np.ndarray, tolerance: Any) -> Int[np.ndarray, " N"]:
    order = np.argsort(known, kind="stable")
    at = pd.Index(known[order]).get_indexer(pd.Index(stamps), method="nearest", tolerance=tolerance)
    return np.where(at < 0, -1, order[at])
