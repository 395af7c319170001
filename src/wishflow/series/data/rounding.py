"""Stamps that are nearly on a grid: how to round them, and what they then are."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from .offsets import inferred, naive

# Stamps are nearly regular where rounding to one of these leaves them on a grid and moves none by more than `NEARLY`
# steps. Those that are moved by less than `AS_GOOD` are steps of that grid as they are.
ROUNDINGS = ("D", "h", "30min", "15min", "10min", "5min", "min", "s")
NEARLY, AS_GOOD = 0.1, 5e-4


@dataclasses.dataclass(frozen=True)
class Rounded:
    """Rounded stamps of all series, what was done to the index of y, and how far they were moved, earlier and later, in
    steps. `offset` is what the stamps say themselves; None where only their gaps can tell.
    """

    indices: list[Any]
    how: str
    earlier: float
    later: float
    offset: Any = None

    @property
    def is_other(self) -> bool:
        return max(self.earlier, self.later) > 0.0 and all(index.is_unique for index in self.indices)


def rounded_numbers(indices: list[Any], unit: float) -> Rounded | None:
    """Numbers at multiples of a power of ten; None where that is far from them, or where they are that."""
    power = 10.0 ** np.floor(np.log10(unit))
    for step in (power, power / 10.0):
        found = [pd.Index((np.asarray(index, float) / step).round() * step) for index in indices]
        how = f"(y.index / {step:g}).round() * {step:g}"
        result = Rounded(found, how, *_moves(indices, found, unit))
        if result.is_other and max(result.earlier, result.later) <= NEARLY and _is_even(found, 1e-9 * step):
            return result
    return None


def rounded_stamps(indices: list[Any], tolerance: float) -> Rounded | None:
    """Stamps rounded to days, hours, …; None where no rounding leaves them on a grid and moves some of them, none by
    more than a share of a step.
    """
    zone, day = indices[0].tz, int(pd.Timedelta("1D").value)
    clock = [naive(index).as_unit("ns") for index in indices]
    world = clock if zone is None else [naive(index.tz_convert("UTC")).as_unit("ns") for index in indices]
    gaps = np.concatenate([np.diff(index.asi8) for index in world])
    unit = int(np.median(gaps)) if len(gaps) else 0
    if unit < 1 or not (gaps % unit).any():
        return None
    for name in ROUNDINGS:
        # Steps of days or more are those of the wall clock, all others of UTC.
        has_days = zone is not None and (name == "D" or unit > 0.9 * day)
        stamps = clock if has_days else world
        found = [index.round(name) for index in stamps]
        said = "" if zone is None or has_days else "tz_convert('UTC')."
        moves = _moves([index.asi8 for index in stamps], [index.asi8 for index in found], unit)
        result = Rounded(found, f"y.index.{said}round({name!r})", *moves)
        if not result.is_other or max(moves) > tolerance:
            continue
        offset = inferred(found) if zone is None or has_days else None
        if offset is None and has_days and _is_even(found, 0.0, day):
            offset = pd.offsets.Day(_step(found) // day)
        if offset is not None or (not has_days and _is_even(found)):
            return dataclasses.replace(result, offset=offset)
    return None


def _moves(before: list[Any], after: list[Any], unit: float) -> tuple[float, float]:
    moved = np.concatenate([np.asarray(b, float) - np.asarray(a, float) for a, b in zip(before, after, strict=True)])
    return float(-moved.min(initial=0.0)) / unit, float(moved.max(initial=0.0)) / unit


def _gaps(indices: list[Any]) -> np.ndarray:
    return np.concatenate([np.diff(index.asi8 if isinstance(index, pd.DatetimeIndex) else index) for index in indices])


def _step(indices: list[Any]) -> Any:
    return np.median(_gaps(indices)).astype(_gaps(indices).dtype)


def _is_even(indices: list[Any], slack: float = 0.0, unit: int = 1) -> bool:
    """Whether all gaps are multiples of their median, and that is one of a unit."""
    gaps, step = _gaps(indices), _step(indices)
    if not step > slack:
        return False
    rest = np.abs(gaps - np.round(gaps / step) * step)
    return bool((rest <= slack).all() and (slack > 0 or step % unit == 0))
