"""Which of two fits to a short series is kept: that of the evidence, or that of rolled forecasts.

The evidence uses all rows, but it knows linear models alone. Where a GP drift matters, other lags may suit it better.
Both fits have forecast the same held-back rows, and these decide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..numerics.scaling import ROUNDING, Scaler
from .recalibration import LEAST_ORIGINS
from .trials import Trial, choose, numbers_of
from .validated import Validated

# Standard errors by which the second fit must be ahead: of a GP drift, of which the evidence says nothing, and of a
# linear drift, of which it has said more than few windows can.
LEAD_OF_GP, LEAD_OF_LINEAR = 1.0, 2.0
# The part of the CRPS, or nats for each column, that it must gain: fits that are nearly the same differ by little, but
# by many standard errors.
LEAST_GAIN = 0.01
# The part of the spread of a column within which two values are the same.
SAME = 1e-6


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The number of the fit that is kept, the fit with the candidates of both, and why, in words."""

    which: int
    kept: Validated
    why: str


def compared(found: Sequence[Validated], ways: Sequence[str]) -> Verdict:
    """The first of two fits, or the second where it is clearly ahead.

    It must be behind in no score, as any candidate beside the linear model (`trials.choose`), and gain a percent in
    one. Fits that were scored on different rows are not compared: the first is kept.
    """
    first, second = (one.rolled for one in found)
    which, said = 0, f"not compared with {ways[1]}, which have other held-back rows"
    if first is not None and second is not None and _are_alike(first, second):
        lead = LEAD_OF_GP if any("gp" in one.spec.drift for one in found[1].members) else LEAD_OF_LINEAR
        is_ahead = choose([first, second], lead) is second and _gain(first, second) >= LEAST_GAIN
        which = int(is_ahead and len(first.crps) >= LEAST_ORIGINS)
        scores = [f"{way} {numbers_of(one)}" for way, one in zip(ways, (first, second), strict=True)]
        said = f"CRPS on held-back rows: {'; '.join(scores)}"
        said += "" if which else ", not clearly better, or worse in a score"
    tables = [
        _table(one.candidates, way, k == which)
        for k, (one, way) in enumerate(zip(found, ways, strict=True))
        if one.candidates is not None
    ]
    kept = dataclasses.replace(found[which], candidates=pd.concat(tables, ignore_index=True) if tables else None)
    return Verdict(which, kept, f"by {ways[which]}: {said}")


def _gain(first: Trial, second: Trial) -> float:
    """The part of the CRPS that the second fit gains, or nats for each column, whichever is more."""
    gain = 1.0 - float(np.mean(second.by_band() / first.by_band()))
    if first.densities is None or second.densities is None:
        return gain
    return max(gain, float(np.mean(second.densities - first.densities)) / first.crps.shape[2])


def _are_alike(first: Trial, second: Trial) -> bool:
    """Whether two fits were scored on the same values, which have been through the units of each, and round there.

    Values may differ by a small part of the spread of their column, in any unit and beside any offset.
    """
    if first.y is None or second.y is None or first.y.shape != second.y.shape:
        return False
    if _n_rows(first) != _n_rows(second):
        return False
    if not np.array_equal(np.isnan(first.y), np.isnan(second.y)):
        return False
    columns = first.y.reshape(-1, first.y.shape[-1])
    near = SAME * Scaler.of_seen(columns).scale + ROUNDING * np.abs(np.nan_to_num(first.y))
    return bool((np.abs(np.nan_to_num(first.y - second.y)) <= near).all())


def _n_rows(trial: Trial) -> int:
    return 0 if trial.densities is None else len(trial.densities)


def _table(candidates: pd.DataFrame, way: str, is_kept: bool) -> pd.DataFrame:
    """The candidates of a fit; of a fit that is not kept none was."""
    table = candidates.assign(kept=candidates["kept"] & is_kept)
    table.insert(0, "options by", way)
    return table
