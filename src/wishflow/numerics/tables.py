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
