"""Where stamps are among others, which they may differ from by rounding where they are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

# Stamps that are numbers are the same if they differ by less than this share of a step.
ROUNDING = 1e-6


def places_of(stamps: pd.Index, known: pd.Index, unit: float | None = None) -> Int[np.ndarray, " N"]:
    """Where stamps are among those that are known; −1 where they are not. `unit` is the length of a step of stamps that
    are numbers, by default the median gap.
    """
    if stamps.dtype.kind not in "iuf" or known.dtype.kind not in "iuf":
        return known.get_indexer(stamps)
    if unit is None:
        gaps = np.abs(np.diff(np.asarray(known if len(known) > 1 else stamps, float)))
        unit = float(np.median(gaps)) if len(gaps) else 0.0
    return _nearest(np.asarray(stamps, float), np.asarray(known, float), unit)


def _nearest(stamps: Any, known: Any, unit: float) -> Int[np.ndarray, " N"]:
    order = np.argsort(known, kind="stable")
    # Large numbers with small steps have no more digits than a few units in the last place.
    tolerance = max(ROUNDING * unit, 4.0 * np.spacing(np.abs(known).max(initial=0.0)))
    at = pd.Index(known[order]).get_indexer(pd.Index(stamps), method="nearest", tolerance=tolerance)
    return np.where(at < 0, -1, order[at])
