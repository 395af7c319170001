"""Factors of the bands of a forecaster, from rolled forecasts over its training rows (`recalibration` applies them).

Forecasts from origins all over the data say how wide bands must be in all seasons, but their weights have seen the
rows. So three blocks, each a fifth of the rows, are also forecast by weights of the rows before them: a forecaster is
often fitted once and used for as long. What these forecasts need more is added.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..numerics.devices import on_device
from . import linear_gaussian as linear
from .autoregressive import DynamicsModel
from .choosing import bands_of, horizon_of
from .data.units import Units
from .held_rows import Part, origins_in
from .linear import LinearDrift
from .linear_prior import Prior
from .recalibration import HorizonScales, horizon_scales, ratios_of
from .rolling import Origins

# Begin and end of the blocks, as parts of a series; earlier rows are too few to fit to.
BLOCKS = ((0.4, 0.6), (0.6, 0.8), (0.8, 1.0))
HALVES = ((0.0, 0.5), (0.5, 1.0))
NORMAL_WIDTH = 1.2815515655446004

# The regression of some rows by a prior.
Fit = Callable[[Prior], linear.LinearModel]
Draws = Callable[[Fit, Origins], Float[np.ndarray, "S N H D"]]


@dataclasses.dataclass(frozen=True)
class Rolled:
    """The rows that forecasts are rolled over, and the regression that is fitted to parts of them."""

    units: Units
    parts: Sequence[Part]
    lags: tuple[int, ...]
    prior: Prior
    season: int | None

    @property
    def n_steps(self) -> int:
        """The longest horizon that a block can judge."""
        first, end = BLOCKS[-1]
        return horizon_of(round((end - first) * max(len(p.rows) for p in self.parts)), self.season)

    def between(self, first: float, end: float) -> list[Part]:
        """The parts with other rows held back."""
        sizes = [len(p.rows) for p in self.parts]
        return [
            dataclasses.replace(p, first=round(first * n), end=round(end * n))
            for p, n in zip(self.parts, sizes, strict=True)
        ]

    def origins(self, parts: Sequence[Part]) -> Origins | None:
        return origins_in(parts, self.units, self.lags, self.n_steps)

    def fit(self, own: linear.LinearModel, ends: Sequence[int] | None = None) -> Fit:
        """Regressions of the rows before `ends`, of which that by the prior is known."""

        def fit(prior: Prior) -> linear.LinearModel:
            return own if prior == self.prior else self.fitted(prior, ends) or own

        return fit

    def fitted(self, prior: Prior, ends: Sequence[int] | None = None) -> linear.LinearModel | None:
        return linear.fitted([p.rows for p in self.parts], self.lags, prior, ends)


def with_weights(model: DynamicsModel, fit: linear.LinearModel) -> DynamicsModel:
    """With the linear drift of another regression."""
    drift = LinearDrift.of(on_device(fit.weights), on_device(fit.constant), len(fit.lags))
    return eqx.tree_at(lambda m: m.field.linear, model, drift)


def calibrated_bands(rolled: Rolled, draws: Draws | None, whole: linear.LinearModel) -> HorizonScales | None:
    """Factors of the bands of a trained model, or of the linear model (None), with weights of all rows.

    `draws` are those of the model with the weights of a regression, from given origins. Each block is forecast with the
    weights of the rows before it and with those of all rows. (The noise of a trained model has seen the rows of the
    blocks.)
    """

    def ratios(
        fit: linear.LinearModel, origins: Origins, ends: Sequence[int] | None = None
    ) -> Float[np.ndarray, "N H P"]:
        if draws is not None:
            return ratios_of(draws(rolled.fit(fit, ends), origins), origins.z)
        history = origins.histories.reshape(len(origins), max(rolled.lags), -1)[:, ::-1]
        sd = np.sqrt(np.diagonal(fit.covariances(origins.u.shape[1]), axis1=1, axis2=2))
        return np.abs(origins.z - fit.means(history, origins.u)) / (NORMAL_WIDTH * sd)

    unseen, seen = [], []
    for block in BLOCKS:
        parts = rolled.between(*block)
        ends = [p.first for p in parts]
        fit, origins = rolled.fitted(rolled.prior, ends), rolled.origins(parts)
        if fit is not None and origins is not None:
            unseen.append(ratios(fit, origins, ends))
            seen.append(ratios(whole, origins))
    if not unseen:
        return None
    everywhere = [found for half in HALVES if (found := rolled.origins(rolled.between(*half))) is not None]
    spread = [ratios(whole, origins) for origins in everywhere]
    n_rows = sum(len(p.rows) for p in rolled.parts)
    together = np.concatenate(spread or seen)
    return horizon_scales(together, np.concatenate(unseen), np.concatenate(seen), bands_of(rolled.n_steps), n_rows)
