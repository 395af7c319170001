"""Simulated regression problems with known laws: y = f(x) + s(x) ε, different in rows, inputs, bends and noise.

No preset was tuned on them. How held-back rows decide (`wishflow.training.validation`) was chosen with these problems
in view.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Float


@dataclasses.dataclass(frozen=True)
class Simulated:
    """A problem: its number of rows to train on, and how rows are drawn."""

    n_rows: int
    draw: Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]

    def data(self, seed: int, n_test: int = 1000) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """X, y to train on and X, y to score."""
        rng = np.random.default_rng(seed)
        X, y = self.draw(self.n_rows + n_test, rng)
        n = self.n_rows
        return X[:n], y[:n], X[n:], y[n:]


def _sigmoid(x: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    return 1.0 / (1.0 + np.exp(-x))


def noise_by_input(n: int, rng: np.random.Generator):
    """Five uniform inputs; the noise grows with one that the function does not know."""
    X = rng.uniform(-2.0, 2.0, (n, 5))
    sd = 0.15 + 0.35 * _sigmoid(2.0 * X[:, 3])
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + sd * rng.normal(size=n)


def heavy_tails(n: int, rng: np.random.Generator):
    """Eight normal inputs, Student-t noise with four degrees of freedom."""
    X = rng.normal(size=(n, 8))
    return X, np.tanh(X[:, 0] + X[:, 1]) + 0.5 * X[:, 2] + 0.4 * rng.standard_t(4, n)


def bends(n: int, rng: np.random.Generator):
    """Two inputs; fast waves on one side and none on the other, constant noise."""
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(6.0 * np.exp(1.2 * X[:, 0])) * (1.0 + X[:, 1]) + 0.1 * rng.normal(size=n)


def smooth(n: int, rng: np.random.Generator):
    """Three inputs, a smooth function, constant noise, few rows."""
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + np.cos(X[:, 1]) + 0.3 * rng.normal(size=n)


def skewed(n: int, rng: np.random.Generator):
    """Ten inputs, an additive function, noise that is skewed and grows with the function."""
    X = rng.uniform(-1.0, 1.0, (n, 10))
    f = np.sin(3.0 * X[:, 0]) + X[:, 1] ** 2 + X[:, 2]
    return X, f + 0.2 * np.exp(0.5 * f) * (rng.gamma(2.0, size=n) - 2.0)


def one_input(n: int, rng: np.random.Generator):
    """One input; the motorcycle's kind of noise: next to none, then much."""
    x = rng.uniform(0.0, 1.0, n)
    sd = 0.05 + 0.5 * _sigmoid(30.0 * (x - 0.4)) * (1.1 - x)
    return x[:, None], np.sin(10.0 * x) * (x > 0.3) + sd * rng.normal(size=n)


def many_inputs(n: int, rng: np.random.Generator):
    """Twelve correlated inputs, a linear function of a few of them, and noise."""
    Z = rng.normal(size=(n, 4))
    X = Z @ rng.normal(size=(4, 12)) + 0.5 * rng.normal(size=(n, 12))
    return X, Z[:, 0] - Z[:, 1] + 0.5 * rng.normal(size=n)


PROBLEMS = {
    "noise_by_input": Simulated(700, noise_by_input),
    "noise_by_input_2000": Simulated(2000, noise_by_input),
    "heavy_tails": Simulated(400, heavy_tails),
    "bends": Simulated(1200, bends),
    "smooth": Simulated(150, smooth),
    "skewed": Simulated(1000, skewed),
    "one_input": Simulated(300, one_input),
    "many_inputs": Simulated(650, many_inputs),
}
