"""What a fitted forecaster says about itself."""

from __future__ import annotations

from typing import Any

OPTIONS = ("lags", "calendar", "transform", "rank", "white_noise", "n_inducing", "max_iter")


def summary_of(forecaster: Any) -> str:
    """Options with the reasons of those that were chosen, candidates of the validation, and what was kept."""
    lines = [f"WishartForecaster of {len(forecaster.columns_)} series, steps of {forecaster.freq_ or 'any length'}", ""]
    for name in OPTIONS:
        given = getattr(forecaster, name)
        is_chosen = isinstance(given, str) and given == "auto"
        why = forecaster.reasons_.get(name, "") if is_chosen else "given"
        lines.append(f"  {name:<12} {_shown(getattr(forecaster, f'{name}_')):<28} {why}")
    if "prior" in forecaster.reasons_:
        lines.append(f"  {'prior':<12} {'':<28} {forecaster.reasons_['prior']}")
    lines += ["", f"status: {forecaster.status_}"]
    if forecaster.validation_history_ is not None:
        lines += ["", forecaster.validation_history_.to_string(index=False, float_format=lambda value: f"{value:.4f}")]
    if forecaster.calibration_ is not None:
        lines += ["", f"recalibrated: {forecaster.calibration_.describe()}"]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        named = [f"{column}: {choice}" for column, choice in value.items() if choice is not None]
        value = ", ".join(named)
    if isinstance(value, tuple) and len(value) > 3 and value == tuple(range(1, len(value) + 1)):
        value = f"1 to {len(value)}"
    return str(value) if value not in ((), "") else "none"
