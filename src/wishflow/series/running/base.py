"""The interface of a trained model, and rows in blocks of few sizes."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from ...metrics import mixture_log_density
from ...numerics.devices import computing, on_device
from ..windows import Ticks

BLOCK = 2048
TICKS_CLASS = 8


class AbstractRunner(abc.ABC):
    """A trained model of a series in model units; P is the number of observed columns."""

    @abc.abstractmethod
    def paths(
        self, ticks: Ticks, h: np.ndarray, u: np.ndarray, n_draws: int, seed: int
    ) -> tuple[Float[np.ndarray, "S T P"], Float[np.ndarray, "S T K"]]:
        """Draws of y at the ticks that follow those given, and what each draw knew before its step there."""

    @abc.abstractmethod
    def step_log_density(
        self, before: Float[np.ndarray, "N K"], y: Float[np.ndarray, "N P"], h: np.ndarray, u: np.ndarray, seed: int
    ) -> Float[np.ndarray, " N"]:
        """log p(y | what was known before the step)."""

    @abc.abstractmethod
    def row_log_density(self, ticks: list[Ticks], n_rows: int, seed: int) -> Float[np.ndarray, " R"]:
        """log p of each row given those before it; NaN where a row has no past."""

    @abc.abstractmethod
    def covariances(self, ticks: Ticks) -> tuple[Float[np.ndarray, "T P"], Float[np.ndarray, "T P P"]]:
        """Filtered values of y and the mean covariance rate of its increments, at every tick."""

    def horizon_log_density(
        self, before: Float[np.ndarray, "S T K"], y: Float[np.ndarray, "T P"], h: np.ndarray, u: np.ndarray, seed: int
    ) -> Float[np.ndarray, " T"]:
        """The mixture over draws of the densities of the last step; NaN where y is not complete."""
        n_draws, n_times, _ = before.shape
        times = np.flatnonzero(~np.isnan(y).any(axis=1))
        result = np.full(n_times, np.nan)
        if len(times):
            past = np.swapaxes(before[:, times], 0, 1).reshape(len(times) * n_draws, -1)
            y, h, u = (np.repeat(x[times], n_draws, axis=0) for x in (y, h, u))
            each = self.step_log_density(past, y, h, u, seed)
            result[times] = mixture_log_density(each.reshape(len(times), n_draws).T)
        return result


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
