"""What a fitted forecaster says about itself."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ..training.journal import skipped_words
from ..wishart.collapse import mean_variances, noise_ratio, ratio_words
from .data.frames import Panel
from .data.times import TimeAxis, nearly
from .defaults import Settings, is_auto

REMEDY = "the noise is as good as diagonal; compare diffusion='diagonal', which trains faster."
# Columns from which on another forecaster is named: drift and noise of this one connect each series with all others.
MANY = 150
OPTIONS = ("lags", "calendar", "transform", "rank", "white_noise", "n_inducing", "max_iter")


def summary_of(forecaster: Any) -> str:
    """Options with the reasons of those that were chosen, candidates of the validation, and what was kept."""
    lines = [f"WishartForecaster of {len(forecaster.columns_)} series, steps of {forecaster.freq_ or 'any length'}", ""]
    for name in OPTIONS:
        given = getattr(forecaster, name)
        why = forecaster.reasons_.get(name, "") if is_auto(given) else "given"
        lines.append(f"  {name:<12} {_shown(getattr(forecaster, f'{name}_')):<28} {why}")
    for name in ("prior", "options"):
        if name in forecaster.reasons_:
            lines.append(f"  {name:<12} {'':<28} {forecaster.reasons_[name]}")
    if hasattr(forecaster, "members_"):
        pairs = zip(forecaster.members_, forecaster.weights_, strict=True)
        lines += ["", *(f"  member {k:<5} weight {weight:.2f}  {one.name}" for k, (one, weight) in enumerate(pairs))]
    lines += ["", f"status: {forecaster.status_}", *skipped_words(forecaster.history_)]
    ratio = diffusion_ratio(forecaster.model_)
    if ratio is not None:
        lines += [ratio_words(ratio, REMEDY)]
    if forecaster.validation_history_ is not None:
        lines += ["", forecaster.validation_history_.to_string(index=False, float_format=lambda value: f"{value:.4f}")]
    if forecaster.drift_ is not None:
        said = (
            "a new fit is due: " + forecaster.monitor_.words(forecaster.columns_) if forecaster.refit_due_ else "none"
        )
        numbers = forecaster.drift_
        lines += [
            "",
            f"drift in the {numbers['n_rows']:.0f} rows since fit: {said} (statistic {numbers['statistic']:.1f}, ",
        ]
        lines[-1] += f"threshold {numbers['threshold']:.1f})"
    if forecaster.calibration_ is not None:
        lines += ["", f"recalibrated: {forecaster.calibration_.describe()}"]
    return "\n".join(lines)


def diffusion_ratio(model: Any) -> float | None:
    """√(tr Σ̄/D) at the inducing points, divided by the standard deviation of the white noise Λ.

    Of a latent model the latter is that of its observations. None where all noise is white.
    """
    found = None if model.field.noise is None else mean_variances(model.field)
    return None if found is None else noise_ratio(found[0], model)


def warn_of_drift(forecaster: Any) -> None:
    """Say once that a refit is due, and why."""
    monitor = forecaster.monitor_
    warnings.warn(
        f"a new fit is due: {monitor.words(forecaster.columns_)} (row {monitor.alarm} since fit, statistic "
        f"{monitor.sums.max():.1f}, threshold {monitor.threshold:.1f}; drift_). Fit again with recent rows, or try "
        "update(..., update_params=True).",
        stacklevel=3,
    )


def announce(forecaster: Any, ways: Sequence[Settings], panel: Panel | None = None) -> None:
    """What `fit` inferred and chose before it trains: on standard error where `verbose` asks for it, and warnings.

    `panel` is y, whose stamps are looked at; None where there is nothing to say of them.
    """
    units = forecaster.units_
    if forecaster.innovations == "student_t" and units.transforms.grow_exponentially:
        warnings.warn(
            'innovations="student_t" with a logarithmic transform: the exponential of a Student-t has no mean, so '
            "means and variances of forecasts depend on the draws; quantiles and log densities are reliable. Use "
            'innovations="gaussian", or transform="sqrt", if you need means.',
            stacklevel=4,
        )
    if len(forecaster.columns_) > MANY:
        warnings.warn(
            f"y has {len(forecaster.columns_)} series; time and memory of WishartForecaster grow with the square of "
            "their number. WideForecaster is for hundreds of series: common factors, and dynamics of each series.",
            stacklevel=4,
        )
    if panel is not None:
        _warn_of_stamps(units.axis, [table.index for table in panel.tables.values()])
    for failure in {settings.failure for settings in ways if settings.failure}:
        warnings.warn(
            'no rows could be held back, so that options that are "auto" take plain values, and nothing is compared or '
            f"recalibrated: {failure} validation_fraction=0 asks for that without a warning.",
            stacklevel=4,
        )
    if not forecaster.verbose:
        return
    if forecaster.freq is None and units.axis.step_name is not None:
        which = " (business days)" if units.axis.counts_business_days else ""
        print(f"freq={units.axis.step_name!r}{which} was inferred from the stamps.", file=sys.stderr)
    for settings in ways:
        periods = units.periods if settings.periods is None else settings.periods
        values = {"lags": settings.lags, "calendar": periods, "transform": settings.transform}
        chosen = [f"{name}={_shown(value)}" for name, value in values.items() if name in settings.reasons]
        if chosen and settings.is_validated:
            print(f"chosen by {settings.way}: {'; '.join(chosen)}.", file=sys.stderr)


def _warn_of_stamps(axis: TimeAxis, indices: list[Any]) -> None:
    """Say that stamps are nearly on a grid, and how to put them there."""
    found = nearly(axis, indices)
    if found is None:
        return
    grid, remedy = found
    are = (
        "are irregular, so lags above 1 cannot be used, options are not chosen, and a horizon must be given as stamps"
        if axis.step_name is None
        else f"count as steps of {axis.step_name!r}"
    )
    warnings.warn(
        f"the stamps of y are nearly but not quite on a grid with steps of {grid.step_name!r}. They {are}. "
        f"Round them, y.index = {remedy}, and those of X alike; or give freq={grid.step_name!r}, which moves each row "
        "to the nearest step.",
        stacklevel=5,
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        named = [f"{column}: {choice}" for column, choice in value.items() if choice is not None]
        value = ", ".join(named)
    if isinstance(value, tuple) and len(value) > 3 and value == tuple(range(1, len(value) + 1)):
        value = f"1 to {len(value)}"
    return str(value) if value not in ((), "") else "none"
