"""Effects of the series of a panel: a level and a scale for each, shrunk towards those of all series together.

Empirical Bayes, column by column, behind the transforms. Series i has level μ + a_i with a_i ~ N(0, τ²) and a deviation
σ_i within it, log σ_i ~ N(λ, ω²). Its rows show the level with variance σ_i²/n_i and log σ_i with variance
1/(2(n_i − 1)), where n_i is the number of independent rows that say as much: n (1 − r)/(1 + r) of n rows with the
autocorrelation r of one step. τ² and ω² are those by which the levels and scales of the series differ more than such
errors explain. So

    level_i = μ + B_i (mean_i − μ),   B_i = τ²/(τ² + σ_i²/n_i),   scale_i² = σ_i² + (1 − B_i) τ²,

and log σ_i is shrunk in the same way. With many rows these are mean and deviation of the series itself; the fewer its
rows, the nearer it is to what a series without rows has, the mean and deviation of all rows of the panel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ...numerics.scaling import Scaler
from .units import Tail, Units

# Autocorrelations above it would leave nothing of the rows.
HIGHEST_CORRELATION = 0.99
# The least part of a variance that the rows of a short series show, and the smallest deviation beside the others.
LEAST_SHOWN, LEAST_DEVIATION = 0.5, 1e-3


def series_scalers(values: Mapping[Any, Float[np.ndarray, "_n P"]], pooled: Scaler) -> dict[Any, Scaler]:
    """Level and scale of each series of a panel.

    Parameters
    ----------
    values : mapping of ndarray of shape (n, P)
        The rows of each series in order of time, NaN where nothing was observed.
    pooled : Scaler
        Mean and deviation of the rows of all series together.

    Returns
    -------
    dict of Scaler
        One for each series; none where there are fewer than two series.

    Examples
    --------
    >>> import numpy as np
    >>> from wishflow.numerics.scaling import Scaler
    >>> from wishflow.series.data.effects import series_scalers
    >>> rng = np.random.default_rng(0)
    >>> panel = {"low": rng.normal(0.0, 1.0, (500, 1)), "high": rng.normal(8.0, 3.0, (500, 1))}
    >>> found = series_scalers(panel, Scaler.of(np.concatenate(list(panel.values()))))
    >>> found["high"].mean.round(1), found["high"].scale.round(1)
    (array([8.]), array([3.]))
    """
    if len(values) < 2:
        return {}
    rows = list(values.values())
    columns = [
        _column([part[:, d][~np.isnan(part[:, d])] for part in rows], float(pooled.mean[d]))
        for d in range(len(pooled.mean))
    ]
    levels, scales = (np.stack(parts, axis=1) for parts in zip(*columns, strict=True))
    return {key: Scaler(levels[i], scales[i]) for i, key in enumerate(values)}


def with_added_series(units: Units, rows: Mapping[Any, Tail]) -> Units:
    """Units in which series that were not in `fit` have a level and a scale of their own, by the rows seen so far.

    They are shrunk as those of `fit` are, towards the same centre. What series differ by is estimated from all `rows`.

    Parameters
    ----------
    units : Units
        The units so far.
    rows : mapping of Tail
        Rows of all series, in these units.

    Returns
    -------
    Units
        The units; as they were where no series came later, or where series have no levels of their own.
    """
    added = tuple(key for key in rows if key not in units.effects or key in units.added)
    if not units.effects or not added:
        return units
    values = {key: units.of_series(key).y_scaler.inverse(tail.values) for key, tail in rows.items()}
    found = series_scalers(values, units.y_scaler)
    effects = {**units.effects, **{key: found[key] for key in added}}
    return dataclasses.replace(units, effects=effects, added=added)


def in_other_units(rows: Mapping[Any, Tail], old: Units, new: Units) -> dict[Any, Tail]:
    """The same rows where series have other levels and scales; those of other series stay as they are."""
    return {
        key: dataclasses.replace(
            tail, values=new.of_series(key).y_scaler.forward(old.of_series(key).y_scaler.inverse(tail.values))
        )
        if key in new.added
        else tail
        for key, tail in rows.items()
    }


def _column(
    rows: Sequence[Float[np.ndarray, " _n"]], centre: float
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Levels and scales of the series in one column."""
    n = _independent_rows(rows)
    means = np.array([part.mean() if len(part) else centre for part in rows])
    deviations = _shrunk_deviations(rows, n)
    with np.errstate(divide="ignore"):
        errors = np.where(n > 0, deviations**2 / n, np.inf)
    between = _excess(means - centre, errors)
    share = np.where(n > 0, between / np.maximum(between + errors, np.finfo(float).tiny), 0.0)
    return centre + share * (means - centre), np.sqrt(deviations**2 + (1.0 - share) * between)


def _independent_rows(rows: Sequence[Float[np.ndarray, " _n"]]) -> Float[np.ndarray, " K"]:
    """How many independent rows say as much about the level of a series as its own; at least one where there is one."""
    counts = np.array([len(part) for part in rows], float)
    centred = [part - part.mean() for part in rows if len(part) > 1]
    squares, products = sum(float(e @ e) for e in centred), sum(float(e[1:] @ e[:-1]) for e in centred)
    r = products / squares if squares > 0.0 else 0.0
    # Deviations from a mean of the rows themselves seem less correlated than they are (Kendall 1954).
    longest = max(float(counts.max()), 1.0)
    r = float(np.clip(r + (1.0 + 3.0 * r) / longest, 0.0, HIGHEST_CORRELATION))
    return np.where(counts > 0, np.maximum(counts * (1.0 - r) / (1.0 + r), 1.0), 0.0)


def _shrunk_deviations(rows: Sequence[Float[np.ndarray, " _n"]], n: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """The deviation within each series; that of a series with one row is what the others have in common."""
    shown = np.maximum(1.0 - 1.0 / np.maximum(n, 1.0), LEAST_SHOWN)
    raw = np.array([part.std() if len(part) > 1 else 0.0 for part in rows]) / np.sqrt(shown)
    has_spread = raw > 0.0
    if not has_spread.any():
        return np.ones(len(rows))
    logs = np.log(np.maximum(raw, LEAST_DEVIATION * np.median(raw[has_spread])))
    counts = np.array([len(part) for part in rows])
    with np.errstate(divide="ignore"):
        errors = np.where(counts > 1, 0.5 / np.maximum(n - 1.0, 0.5), np.inf)
    centre = float(np.average(logs, weights=1.0 / (1.0 + errors)))
    between = _excess(logs - centre, errors)
    return np.exp(centre + between / np.maximum(between + errors, np.finfo(float).tiny) * (logs - centre))


def _excess(deviations: Float[np.ndarray, " K"], errors: Float[np.ndarray, " K"]) -> float:
    """The variance of true values about their centre: what squares exceed their errors by, and no less than zero.

    Values that are known well count for more.
    """
    is_known = np.isfinite(errors)
    if not is_known.any():
        return 0.0
    d, e = deviations[is_known], errors[is_known]
    typical = max(float(np.median(d**2)), np.finfo(float).tiny)
    return max(0.0, float(np.average(d**2 - e, weights=1.0 / (1.0 + e / typical))))
