"""Intake: frames that have been read become series in model units, once; no later code handles time stamps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Int

from ...numerics.scaling import Scaler
from ..specs import DynamicsSpec
from .calendar import chosen_periods, seconds, with_harmonics
from .effects import series_scalers
from .frames import Panel, check_ids, check_names, with_columns
from .times import TimeAxis, on_axis
from .transforms import ColumnTransforms
from .units import Tail, Units
from .unstamped import beside


def training_data(
    panel: Panel,
    X: Panel | None,
    spec: DynamicsSpec,
    transform: Any,
    calendar: bool | str,
    freq: Any,
    has_effects: bool = False,
    is_scaled: bool = True,
) -> tuple[Units, dict[Any, Tail]]:
    """Training data: what is learnt of them (axis, transforms, scales, calendar), and the series in these units.

    Without scales values are what they were, to the last digit: there and back again a zero need not be one.
    """
    indices = [table.index for table in panel.tables.values()]
    if X is not None:
        check_names(X.columns, "X")
        X = beside(X, panel)
    axis, has_freq = TimeAxis.of(indices, freq), freq is not None
    rows = on_axis(axis, panel, X, {}, has_freq, spec.lags, spec.max_gap * spec.step)
    transforms, z = ColumnTransforms.learnt(transform, panel.columns, np.concatenate([r.values for r in rows.values()]))
    came = z[np.concatenate([r.is_row for r in rows.values()])]
    y_scaler = Scaler.of_seen(came) if is_scaled else Scaler.identity(len(panel.columns))
    parts = dict(zip(rows, np.split(z, np.cumsum([len(r.index) for r in rows.values()])[:-1]), strict=True))
    effects: dict[Any, Scaler] = {}
    if has_effects and is_scaled and len(rows) > 1:
        effects = series_scalers({key: parts[key][r.is_row] for key, r in rows.items()}, y_scaler)
    known = np.concatenate([r.covariates[r.is_row] for r in rows.values()])
    x_scaler = Scaler.identity(0) if X is None else Scaler.of(known, "X")
    periods: tuple[str, ...] = ()
    if calendar:
        gap = axis.unit / 1e9 if axis.kind == "datetime" else float(np.median(np.diff(seconds(indices[0]))))
        periods = chosen_periods(indices, gap, calendar == "seasonal")
    units = Units(
        panel.columns,
        axis,
        transforms,
        y_scaler,
        None if X is None else X.columns,
        None if X is None else x_scaler,
        periods,
        has_freq,
        spec.step,
        spec.lags,
        spec.max_gap,
        panel.names,
        effects,
    )
    scaled = {key: units.of_series(key).y_scaler.forward(part) for key, part in parts.items()}
    return units, {
        key: Tail(r.times, scaled[key], with_harmonics(x_scaler.forward(r.covariates), r.index, periods), r.index)
        for key, r in rows.items()
    }


def further_rows(
    units: Units, panel: Panel, X: Panel | None, past: Mapping[Any, Tail] = MappingProxyType({})
) -> dict[Any, tuple[Tail, Int[np.ndarray, " N"]]]:
    """Further rows in units that are known, and where each row that came is among them: the others are holes of the
    grid, and rows of one step are in one place.

    Stamps are in the zone of the past, and a series that goes on stays on its grid. Columns are found by their names.
    """
    if panel.is_panel and any(key not in past for key in panel.tables):
        check_ids([*past, *panel.tables])
    panel, X = with_columns(panel, units.columns, "y"), units.covariates(X)
    X = None if X is None else beside(X, panel)
    stamps = {key: tail.index for key, tail in past.items()}
    found = {}
    for key, r in on_axis(units.axis, panel, X, stamps, units.has_freq, units.lags, units.max_gap * units.step).items():
        units.transforms.check_support(r.values, units.columns)
        known = r.covariates if units.x_scaler is None else units.x_scaler.forward(r.covariates)
        covariates = with_harmonics(known, r.index, units.periods)
        found[key] = (Tail(r.times, units.of_series(key).forward(r.values), covariates, r.index), r.of_row)
    return found
