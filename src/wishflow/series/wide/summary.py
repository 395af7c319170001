"""What a fitted `WideForecaster` says about itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np


def summary_of(forecaster: Any) -> str:
    """Factors, own dynamics by how many series have them, and the summary of the factors' forecaster."""
    own, n = forecaster.own_, len(forecaster.columns_)
    is_auto = isinstance(forecaster.n_factors, str)
    why = "eigenvalues above the edge of those of noise" if is_auto else "given"
    lines = [
        f"WideForecaster of {n} series, steps of {forecaster.freq_}",
        "",
        f"  n_factors    {forecaster.n_factors_:<28} {why}",
        f"  explained    {forecaster.explained_:<28.1%} mean share of the variance of a series, by the factors",
        "",
        "dynamics of what is left of each series:",
    ]
    has_lag, has_calendar = own.of_lags != 0.0, (own.weights[len(own.lags) + 1 :] != 0.0).any(axis=0)
    kinds = Counter(
        (tuple(np.array(own.lags)[has_lag[:, d]].tolist()), bool(has_calendar[d])) for d in range(has_lag.shape[1])
    )
    for (lags, calendar), count in kinds.most_common():
        with_calendar = f", {'+'.join(forecaster.own_periods_)}" if calendar else ""
        lines.append(f"  {count:>5} series    lags {', '.join(map(str, lags)) or 'none'}{with_calendar}")
    return "\n".join([*lines, "", "factors: " + forecaster.factors_.summary()])
