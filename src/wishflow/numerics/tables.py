"""A predictive law as columns of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float


def law_columns(
    names: Sequence[str],
    mean: Float[np.ndarray, "N P"],
    sd: Float[np.ndarray, "N P"],
    quantiles: Float[np.ndarray, "N P A"],
    levels: Sequence[float],
    index: pd.Index,
) -> pd.DataFrame:
    """A table with name_mean, name_sd and name_q05, … for each name."""
    columns: dict[str, np.ndarray] = {}
    for j, name in enumerate(names):
        columns |= {f"{name}_mean": mean[:, j], f"{name}_sd": sd[:, j]}
        columns |= {f"{name}_{level_name(level)}": quantiles[:, j, i] for i, level in enumerate(levels)}
    return pd.DataFrame(columns, index)


def level_name(level: float) -> str:
    """q05 for 0.05, q2.5 for 0.025."""
    percent = round(100 * level, 6)
    return f"q{percent:02.0f}" if float(percent).is_integer() else f"q{percent:g}"


def in_words(value: float) -> str:
    """Four digits, without an exponent for sizes that people write in full: 13460, 0.0123, 1.2e-07."""
    if not np.isfinite(value) or (value != 0.0 and not 1e-4 <= abs(value) < 1e9):
        return f"{value:.4g}"
    return np.format_float_positional(value, 4, unique=False, fractional=False, trim="-")
