"""Simulated short series of several kinds, each with rows to fit and many later rows to score.

None of them is a set of the benchmark `forecasts`: choices for short series are made and tested on these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pandas as pd

N_LATER = 300


@dataclasses.dataclass(frozen=True)
class Problem:
    """`draw(rng, n)` gives n rows; the first `n_rows` are fitted, N_LATER more are scored."""

    draw: Callable[[np.random.Generator, int], np.ndarray]
    n_rows: int
    freq: str | None = None

    def frame(self, seed: int) -> pd.DataFrame:
        """The rows of a seed."""
        values = self.draw(np.random.default_rng([seed, self.n_rows]), self.n_rows + N_LATER)
        index = None if self.freq is None else pd.date_range("1970-01-01", periods=len(values), freq=self.freq)
        return pd.DataFrame(values, index, [f"s{d}" for d in range(values.shape[1])])


def paths(
    rng: np.random.Generator,
    n: int,
    x: list[float],
    slope: Callable[[np.ndarray], list[float]],
    spread: float | np.ndarray,
    dt: float,
    n_sub: int,
) -> np.ndarray:
    """Rows of an SDE with additive noise, every `n_sub` Euler steps of length dt, after a burn-in of 100 rows."""
    state, rows = np.array(x), np.zeros((n + 100, len(x)))
    for t in range(len(rows)):
        for _ in range(n_sub):
            state = state + dt * np.array(slope(state)) + np.sqrt(dt) * spread * rng.normal(size=len(x))
        rows[t] = state
    return rows[100:]


def lorenz(rng: np.random.Generator, n: int) -> np.ndarray:
    """The Lorenz system of 1963 with little noise, every 0.05 units of time."""

    def slope(x: np.ndarray) -> list[float]:
        return [10.0 * (x[1] - x[0]), x[0] * (28.0 - x[2]) - x[1], x[0] * x[1] - 8.0 / 3.0 * x[2]]

    return paths(rng, n, [*(5.0 * rng.normal(size=2)), 25.0], slope, 0.3, 0.002, 25)


def lotka_volterra(rng: np.random.Generator, n: int) -> np.ndarray:
    """Logarithms of predators and prey, with noise, every half unit of time, exponentiated."""

    def slope(x: np.ndarray) -> list[float]:
        prey, predators = np.exp(x)
        return [1.0 - predators - 0.1 * prey, prey - 1.0]

    return np.exp(paths(rng, n, [0.5, 0.0], slope, 0.1, 0.02, 25))


def pendulum(rng: np.random.Generator, n: int) -> np.ndarray:
    """A damped pendulum that noise drives to wide swings: sine of the angle and speed."""

    def slope(x: np.ndarray) -> list[float]:
        return [x[1], -4.0 * np.sin(x[0]) - 0.1 * x[1]]

    found = paths(rng, n, [1.5, 0.0], slope, np.array([0.0, 0.7]), 0.01, 20)
    return np.column_stack([np.sin(found[:, 0]), found[:, 1]])


def var(order: int, dim: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    """A stationary vector auto-regression with correlated noise."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        A = [0.5 * np.eye(dim) + rng.normal(0.0, 0.3 / np.sqrt(dim), (dim, dim)), 0.3 * np.eye(dim)][:order]
        companion = np.eye(order * dim, k=-dim)
        companion[:dim] = np.concatenate(A, axis=1)
        shrink = min(1.0, 0.95 / np.abs(np.linalg.eigvals(companion)).max())
        L = np.linalg.cholesky(0.6 * np.eye(dim) + 0.4)
        rows = np.zeros((n + 100, dim))
        for t in range(order, len(rows)):
            rows[t] = sum(shrink ** (k + 1) * A[k] @ rows[t - 1 - k] for k in range(order)) + L @ rng.normal(size=dim)
        return rows[100:]

    return draw


def seasonal(drift: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Two monthly series with cycles of the year and auto-correlated noise; with a drift, their levels wander too."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        phases, noise = rng.uniform(0.0, 2.0 * np.pi, 2), np.zeros((n, 2))
        for t in range(1, n):
            noise[t] = 0.8 * noise[t - 1] + 0.4 * rng.normal(size=2)
        level = np.cumsum(drift * (1.0 + 2.0 * rng.normal(size=(n, 2))), axis=0)
        return 10.0 + level + 1.5 * np.sin(2.0 * np.pi * np.arange(n)[:, None] / 12.0 + phases) + noise

    return draw


def changing_noise(rng: np.random.Generator, n: int) -> np.ndarray:
    """A VAR(1) of two series whose noise is three times as wide where the first is above zero."""
    rows = np.zeros((n + 100, 2))
    for t in range(1, len(rows)):
        wide = 0.3 if rows[t - 1, 0] < 0.0 else 0.9
        rows[t] = [0.8 * rows[t - 1, 0], 0.7 * rows[t - 1, 1] + 0.2 * rows[t - 1, 0]] + wide * rng.normal(size=2)
    return rows[100:]


def macro_like(rng: np.random.Generator, n: int) -> np.ndarray:
    """Four indices that grow by percentages with persistent rates, and two rates near a unit root."""
    growth, rates, L = np.zeros((n, 4)), np.zeros((n, 2)), np.linalg.cholesky(0.7 * np.eye(4) + 0.3)
    for t in range(1, n):
        growth[t] = 0.5 * growth[t - 1] + 0.006 * L @ rng.normal(size=4)
        rates[t] = 0.98 * rates[t - 1] + 0.3 * rng.normal(size=2) + 10.0 * growth[t, 0]
    return np.column_stack([100.0 * np.exp(np.cumsum(0.004 + growth, axis=0)), 5.0 + rates])


def walks(rng: np.random.Generator, n: int) -> np.ndarray:
    """Three random walks."""
    return rng.normal(size=(n, 3)).cumsum(axis=0)


PROBLEMS = {
    "lorenz 480": Problem(lorenz, 480),
    "lorenz 300": Problem(lorenz, 300),
    "lotka-volterra 400": Problem(lotka_volterra, 400),
    "pendulum 400": Problem(pendulum, 400),
    "VAR(1) 100": Problem(var(1, 3), 100),
    "VAR(1) 300": Problem(var(1, 5), 300),
    "VAR(2) 200": Problem(var(2, 3), 200),
    "VAR(2) 480": Problem(var(2, 4), 480),
    "seasonal 240": Problem(seasonal(0.0), 240, "MS"),
    "seasonal, drift 400": Problem(seasonal(0.05), 400, "MS"),
    "changing noise 400": Problem(changing_noise, 400),
    "macro-like 200": Problem(macro_like, 200, "QS"),
    "random walks 300": Problem(walks, 300),
}
