"""Forecasts given some of their cells, in the units of y: transforms, recalibration, a warning where draws are few."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
from jaxtyping import Float, Int

from .data.units import Units
from .recalibration import HorizonScales, Moved
from .running.base import AbstractRunner
from .windows import Ticks

# Draws that are worth fewer independent ones than this, and than this share of their number, are named in a warning.
FEW = 100
FEW_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Way:
    """The ticks of the past, those of a forecast (lengths, covariates), and the one at each stamp of the forecast."""

    past: Ticks
    h: Float[np.ndarray, " T"]
    u: Float[np.ndarray, "T U"]
    place: Int[np.ndarray, " H"]


def scenario(
    units: Units,
    runner: AbstractRunner,
    calibration: HorizonScales | None,
    way: Way,
    given: Float[np.ndarray, "H P"],
    n_draws: int,
    seed: int,
) -> Float[np.ndarray, "S H P"]:
    """Draws at the stamps of a forecast given the cells that are not NaN, which they hold as they are.

    The law is that of the forecast without given cells, conditioned. Where that is recalibrated, x ↦ m + s (x − m) with
    the means m of its draws, given cells go back to the law of the model, and draws of that come forward.
    """
    units.transforms.check_data(given, units.columns)
    z = units.forward(given)
    law: Moved | None = None
    if calibration is not None:
        values, _, limits = runner.paths(way.past, way.h, way.u, n_draws, seed)
        # A law with point masses at limits has no wider or narrower form.
        if limits is None:
            law = Moved.of(calibration, values[:, way.place], np.cumsum(way.h)[way.place])
            z = law.backward(z)
    cells = np.full((len(way.h), z.shape[1]), np.nan)
    cells[way.place] = z
    found = runner.paths_given(way.past, way.h, way.u, cells, n_draws, seed)
    _warn_of_few(found.n_effective, n_draws)
    draws = found.draws[:, way.place]
    draws = units.draws(draws if law is None else law.forward(draws))
    # As they were given, without the rounding of transforms.
    return np.where(np.isnan(given), draws, given)


def _warn_of_few(n_effective: float, n_draws: int) -> None:
    if n_effective < min(FEW, FEW_SHARE * n_draws):
        warnings.warn(
            f"the {n_draws} draws of this scenario are worth about {n_effective:.0f} independent ones, because few "
            "paths of the model lead through the given cells. Means and intervals are rough. Check the values and "
            "units of given, give fewer cells, or raise n_draws.",
            stacklevel=5,
        )
