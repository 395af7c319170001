"""The models of the comparison: random walk and VARs, ours, and ours with a part taken away."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

import wishflow as wf
from wishflow import plotting
from wishflow.cli.rivals import RandomWalk, VectorAutoregression
from wishflow.series.forecast import Forecast

# Chosen on October to December 2015 (docs/decisions.md).
BASE = {
    "kernel": "matern32",
    "lags": 24,
    "rank": 15,
    "calendar": True,
    "n_inducing": 300,
    "max_iter": 3000,
    "batch_size": 1024,
}
POLLUTANTS = ("PM2.5", "PM10", "SO2", "NO2", "CO", "O3")
# The model sees concentrations and rain on a logarithmic scale; scores are of the data's own units.
TRANSFORMS = {POLLUTANTS: "log1p", ("RAIN",): "log1p"}


@dataclasses.dataclass(frozen=True)
class Model:
    """A row of the table: its name for readers, how it is drawn, and the options of ours or how a rival is made.

    With `chooses` the options that are not given are those of `WishartForecaster()`, which chooses by rows it holds
    back; without it they are plain ones and the transforms of the study.
    """

    label: str
    colour: str
    line: str = "-"
    options: Mapping[str, Any] | None = None
    make: Callable[[], Any] | None = None
    n_members: int = 1
    chooses: bool = False

    @property
    def is_ours(self) -> bool:
        return self.options is not None


def _ours(label: str, colour: str, line: str = "-", **options: Any) -> Model:
    return Model(label, colour, line, {**BASE, **options})


def _var(lags: int, line: str) -> Model:
    label = f"VAR({lags}) + harmonics"
    return Model(label, "#000000", line, make=lambda: VectorAutoregression(lags, ("day", "year")))


# The paper's objective: free simulations from the first row of a window, its score the mean of logs. A window is many
# rows, so the batch is that of the preset.
ROLLOUT = {
    "drift": "gp",
    "lags": 1,
    "objective": "rollout",
    "path_average": "log",
    "n_train_samples": 2,
    "batch_size": None,
}
MODELS = {
    "walk": Model("random walk", "#7F7F7F", ":", make=RandomWalk),
    "var3": _var(3, "--"),
    "var24": _var(24, "-"),
    "ensemble": dataclasses.replace(
        _ours("Wishart, white noise by state, ensemble", "#CC79A7", "--", white_noise="state"),
        # Fits of one kind differ by as much as kinds do (docs/decisions.md).
        n_members=16,
    ),
    "members": Model("WishartForecaster(n_members=4)", "#8C564B", "--", options={}, n_members=4, chooses=True),
    "default": Model("WishartForecaster()", "#8C564B", options={}, chooses=True),
    "wishart_state": _ours("Wishart, white noise by state", "#CC79A7", white_noise="state"),
    "wishart": _ours("Wishart (diffWGP)", plotting.colour_of("diffWGP")),
    "diagonal_state": _ours("diagonal noise by state", "#56B4E9", diffusion="diagonal", white_noise="state"),
    "diagonal": _ours("diagonal noise", "#0072B2", diffusion="diagonal"),
    "nodrift": _ours("no drift", "#009E73", drift="none", lags=1),
    "linear": _ours("Wishart, linear drift", "#E69F00", drift="linear"),
    "rollout": _ours("Wishart, the paper's objective", plotting.colour_of("diffWGP"), ":", **ROLLOUT),
}


def transform_by_kind(choices: Mapping[tuple[str, ...], str], columns: Iterable[str]) -> dict[str, str]:
    """One transform for all columns of some kinds ("Shunyi PM2.5" is of the kind "PM2.5"), none for the others."""
    by_kind = {kind: name for kinds, name in choices.items() for kind in kinds}
    return {column: by_kind[column.split()[-1]] for column in columns if column.split()[-1] in by_kind}


class Standardised:
    """A forecaster of the data's own units, seen in standardised ones: y = mean + sd · value.

    Ours scale by themselves, so this changes nothing but for transforms, which need the data's own units. Draws of
    series with a transform, which are concentrations and rain, are cut at zero; log densities are of the uncut law.
    """

    def __init__(self, forecaster: wf.WishartForecaster, mean: pd.Series, sd: pd.Series) -> None:
        self.forecaster, self.mean, self.sd = forecaster, mean, sd

    def __copy__(self) -> Standardised:
        return Standardised(copy.copy(self.forecaster), self.mean, self.sd)

    @property
    def end_(self) -> Any:
        return self.forecaster.end_

    @property
    def history_(self) -> pd.DataFrame:
        return self.forecaster.history_

    def fit(self, y: pd.DataFrame) -> Standardised:
        self.forecaster.fit(self._data_units(y))
        return self

    def update(self, y: pd.DataFrame, X: Any = None) -> Standardised:
        self.forecaster.update(self._data_units(y), X)
        return self

    def forecast(self, fh: Any, X: Any = None, n_draws: int = 1000, random_state: Any = None) -> Forecast:
        found = self.forecaster.forecast(fh, X, n_draws=n_draws, random_state=random_state)
        mean, sd = self.mean.to_numpy(), self.sd.to_numpy()

        def log_density(z: np.ndarray) -> np.ndarray:
            return found.log_prob(mean + sd * z).to_numpy() + np.log(sd).sum()

        # Behind log1p and sqrt draws may lie below zero, where no concentration does: the study knows, and scores draws
        # (CRPS, energy) with what it knows. A density of the cut law would have a point mass.
        draws = np.maximum(found.samples.values, np.where(self._is_transformed(found.columns), 0.0, -np.inf))
        return Forecast((draws - mean) / sd, found.index, found.columns, log_density)

    def _is_transformed(self, columns: pd.Index) -> np.ndarray:
        chosen = self.forecaster.transform_
        by_column = chosen if isinstance(chosen, Mapping) else dict.fromkeys(columns, chosen)
        return np.array([by_column.get(column) in ("log1p", "sqrt") for column in columns])

    def _data_units(self, z: pd.DataFrame) -> pd.DataFrame:
        # Rounding may lead just below zero, where a logarithm takes nothing.
        return z.mul(self.sd).add(self.mean).round(9)
