"""The interface of a trained model, and rows in blocks of few sizes."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ...errors import OptionError
from ...metrics import mixture_log_density
from ...numerics.devices import computing, on_device
from ..windows import Ticks
from .scenarios import Scenario

BLOCK = 2048
TICKS_CLASS = 8
# What is as near to a limit as this share of the range between limits is at it: values go to the units of y and back.
ROUNDING = 1e-9


class AbstractRunner(abc.ABC):
    """A trained model of a series in model units; P is the number of observed columns."""

    @abc.abstractmethod
    def paths(
        self, ticks: Ticks, h: np.ndarray, u: np.ndarray, n_draws: int, seed: int
    ) -> tuple[Float[np.ndarray, "S T P"], Float[np.ndarray, "S T K"], Float[np.ndarray, "2 P"] | None]:
        """Draws of y at the ticks that follow those given, what each draw knew before its step there, and the limits
        that steps ended at.
        """

    @abc.abstractmethod
    def paths_given(
        self, ticks: Ticks, h: np.ndarray, u: np.ndarray, y: Float[np.ndarray, "T P"], n_draws: int, seed: int
    ) -> Scenario:
        """Draws of y at the ticks that follow those given, from their law given the cells of y that are not NaN."""

    @abc.abstractmethod
    def step_log_density(
        self,
        before: Float[np.ndarray, "N K"],
        y: Float[np.ndarray, "N P"],
        h: np.ndarray,
        u: np.ndarray,
        seed: int,
        side: Int[np.ndarray, "N P"],
    ) -> Float[np.ndarray, " N"]:
        """log p(y | what was known before the step); `side` as that of `sides`."""

    @abc.abstractmethod
    def row_log_density(self, ticks: list[Ticks], n_rows: int, seed: int) -> Float[np.ndarray, " R"]:
        """log p of each row given those before it; NaN where a row has no past."""

    @abc.abstractmethod
    def covariances(self, ticks: Ticks) -> tuple[Float[np.ndarray, "T P"], Float[np.ndarray, "T P P"]]:
        """Filtered values of y and the mean covariance rate of its increments, at every tick."""

    def field(
        self, ticks: Ticks, values: Float[np.ndarray, "N P"]
    ) -> tuple[Float[np.ndarray, "N P"], Float[np.ndarray, "N P P"]]:
        """Drift and mean covariance rate where the rows up to the last tick are moved so that it has these values."""
        raise OptionError("the field of a latent state is not in the units of the series; fit without latent_dim.")

    def correlation_quantiles(
        self, ticks: Ticks, levels: tuple[float, ...], n_draws: int, seed: int
    ) -> Float[np.ndarray, "T L P P"]:
        """Quantiles of the correlations of the increments of y over draws of the noise, at every tick."""
        raise OptionError("there are no draws of correlations between series with latent_dim; fit without latent_dim.")

    def horizon_log_density(
        self,
        before: Float[np.ndarray, "S T K"],
        y: Float[np.ndarray, "T P"],
        h: np.ndarray,
        u: np.ndarray,
        seed: int,
        limits: Float[np.ndarray, "2 P"] | None = None,
    ) -> Float[np.ndarray, " T"]:
        """The mixture over draws of the densities of the last step; NaN where y is not complete.

        At a limit a column has a probability, within limits a density, beyond them neither (−∞).
        """
        side, is_beyond = sides(y, limits)
        n_draws, n_times, _ = before.shape
        times = np.flatnonzero(~np.isnan(y).any(axis=1))
        result = np.full(n_times, np.nan)
        if len(times):
            past = np.swapaxes(before[:, times], 0, 1).reshape(len(times) * n_draws, -1)
            y, h, u, side = (np.repeat(x[times], n_draws, axis=0) for x in (y, h, u, side))
            each = self.step_log_density(past, y, h, u, seed, side)
            result[times] = mixture_log_density(each.reshape(len(times), n_draws).T)
        return np.where(is_beyond.any(axis=1) & ~np.isnan(result), -np.inf, result)


def sides(
    y: Float[np.ndarray, "T P"], limits: Float[np.ndarray, "2 P"] | None
) -> tuple[Int[np.ndarray, "T P"], Bool[np.ndarray, "T P"]]:
    """1 at the high limit, −1 at the low one (but for rounding), 0 elsewhere; and what is beyond them."""
    if limits is None:
        return np.zeros(y.shape, int), np.zeros(y.shape, bool)
    slack = ROUNDING * (limits[1] - limits[0])
    is_low, is_high = (np.abs(y - limit) <= slack for limit in limits)
    is_beyond = ~is_low & ~is_high & ((y < limits[0]) | (y > limits[1]))
    return is_high.astype(int) - is_low.astype(int), is_beyond


def limits_with(limits: Float[np.ndarray, "2 D"], rows: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "2 D"]:
    """Limits of paths that hold these rows too: what is seen after training may lie outside of what was seen in it."""
    return np.stack([np.minimum(limits[0], rows.min(axis=0)), np.maximum(limits[1], rows.max(axis=0))])


def in_blocks(function: Callable, *arrays: np.ndarray, size: int = BLOCK) -> np.ndarray:
    """Rows in blocks padded to powers of two, so that a few programs serve all numbers of rows."""
    n, parts = len(arrays[0]), []
    for start in range(0, n, size):
        rows = [a[start : start + size] for a in arrays]
        n_rows = len(rows[0])
        padded = np.arange(max(32, 1 << (n_rows - 1).bit_length())) % n_rows
        with computing():
            parts.append(np.asarray(function(*(on_device(a[padded]) for a in rows)))[:n_rows])
    return np.concatenate(parts)


def padded_ticks(n_class: int, h: np.ndarray, *others: np.ndarray) -> tuple[Any, ...]:
    """Ticks of length zero at the end, up to a multiple of `n_class`; of the other arrays the last row is repeated."""
    n_more = -len(h) % n_class
    more = [np.concatenate([x, np.repeat(x[-1:], n_more, axis=0)]) for x in others]
    return (np.concatenate([h, np.zeros(n_more)]), *more)
