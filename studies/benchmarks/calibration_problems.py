"""Simulated regression problems with known laws, for the benchmark `calibration`.

y = f(x) + s(x) ε with ε normal, Student-t or skewed, or no noise at all. Rows from 100 to 5000, inputs from 1 to 20. No
setting was chosen with these problems in view. The list was committed before any of them was scored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.stats
from jaxtyping import Float

Rows = Float[np.ndarray, "N D"]
Column = Float[np.ndarray, " N"]


NORMAL = scipy.stats.norm()


@dataclasses.dataclass(frozen=True)
class Problem:
    """`kind` says what a model has to find: "plain", "noise" (it depends on the input), "bend", "tails" or "exact"."""

    n_rows: int
    inputs: Callable[[np.random.Generator, int], Rows]
    mean: Callable[[Rows], Column]
    scale: Callable[[Rows], Column]
    noise: scipy.stats.rv_continuous = NORMAL
    kind: str = "plain"

    def data(self, seed: int, n_test: int = 1000) -> tuple[Rows, Column, Rows, Column, float]:
        """X, y to train on, X, y to score, and the mean log density that the true law has on the latter."""
        rng = np.random.default_rng([seed, self.n_rows])
        X = self.inputs(rng, self.n_rows + n_test)
        noise = self.noise.rvs(size=len(X), random_state=rng)
        y, n = self.mean(X) + self.scale(X) * noise, self.n_rows
        scale = self.scale(X[n:])
        true = np.mean(self.noise.logpdf(noise[n:]) - np.log(scale)) if (scale > 0).all() else np.inf
        return X[:n], y[:n], X[n:], y[n:], float(true)


def uniform(n_inputs: int, half_width: float = 1.0) -> Callable[[np.random.Generator, int], Rows]:
    return lambda rng, n: rng.uniform(-half_width, half_width, (n, n_inputs))


def normal(n_inputs: int) -> Callable[[np.random.Generator, int], Rows]:
    return lambda rng, n: rng.normal(size=(n, n_inputs))


def correlated(n_inputs: int, n_factors: int) -> Callable[[np.random.Generator, int], Rows]:
    """Inputs that a few factors explain for the most part."""
    loadings = np.random.default_rng(n_inputs).normal(size=(n_factors, n_inputs))
    return lambda rng, n: rng.normal(size=(n, n_factors)) @ loadings + 0.3 * rng.normal(size=(n, n_inputs))


def skewed_inputs(n_inputs: int) -> Callable[[np.random.Generator, int], Rows]:
    return lambda rng, n: rng.lognormal(0.0, 0.6, (n, n_inputs))


def constant(value: float) -> Callable[[Rows], Column]:
    return lambda X: np.full(len(X), value)


def _sigmoid(x: Column) -> Column:
    return 1.0 / (1.0 + np.exp(-x))


def _heavy(dof: float) -> scipy.stats.rv_continuous:
    return scipy.stats.t(dof)


# Gamma noise with mean 0 and variance 1.
_SKEWED = scipy.stats.gamma(2.0, loc=-(2.0**0.5), scale=2.0**-0.5)

PROBLEMS = {
    "wave_100": Problem(100, uniform(1, 3.0), lambda X: np.sin(2.0 * X[:, 0]), constant(0.2)),
    "plane_150": Problem(150, normal(4), lambda X: X @ np.array([1.0, -0.5, 0.25, 0.0]), constant(0.5)),
    "funnel_250": Problem(
        250, uniform(1), lambda X: np.cos(4.0 * X[:, 0]), lambda X: 0.05 + 0.5 * X[:, 0] ** 2, kind="noise"
    ),
    "log_scale_600": Problem(
        600,
        normal(3),
        lambda X: np.sin(1.5 * X[:, 0]) + X[:, 1],
        lambda X: np.exp(-1.5 + 0.8 * X[:, 2]),
        kind="noise",
    ),
    "switch_2000": Problem(
        2000,
        uniform(6),
        lambda X: 2.0 * X[:, 0] * X[:, 1] + np.sin(3.0 * X[:, 2]),
        lambda X: 0.1 + 0.6 * _sigmoid(8.0 * X[:, 3]),
        kind="noise",
    ),
    "chirp_500": Problem(
        500, uniform(2), lambda X: np.sin(4.0 / (0.35 + X[:, 0] ** 2)) + 0.5 * X[:, 1], constant(0.1), kind="bend"
    ),
    "ridge_3000": Problem(
        3000,
        uniform(4),
        lambda X: np.tanh(15.0 * (X[:, 0] + X[:, 1])) * (1.0 + 0.5 * X[:, 2]),
        constant(0.15),
        kind="bend",
    ),
    "tails_300": Problem(
        300, normal(3), lambda X: np.tanh(X[:, 0]) + 0.5 * X[:, 1] ** 2, constant(0.3), _heavy(3.0), kind="tails"
    ),
    "tails_by_input_1500": Problem(
        1500,
        normal(8),
        lambda X: X[:, 0] * np.cos(X[:, 1]) + 0.3 * X[:, 2],
        lambda X: 0.1 + 0.3 * _sigmoid(2.0 * X[:, 0]),
        _heavy(5.0),
        kind="noise",
    ),
    "skewed_800": Problem(
        800,
        skewed_inputs(5),
        lambda X: np.log(X[:, 0]) + 0.5 * X[:, 1],
        lambda X: 0.1 + 0.25 * X[:, 2],
        _SKEWED,
        kind="noise",
    ),
    "exact_200": Problem(
        200, uniform(3), lambda X: np.sin(2.0 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2, constant(0.0), kind="exact"
    ),
    "wide_400": Problem(400, correlated(20, 5), lambda X: X[:, 0] - 0.5 * np.abs(X[:, 1]), constant(0.6)),
    "wide_by_input_1000": Problem(
        1000,
        normal(15),
        lambda X: np.sin(X[:, 0]) + X[:, 1] - 0.5 * X[:, 2],
        lambda X: 0.15 + 0.5 * _sigmoid(2.0 * X[:, 3] + X[:, 4]),
        kind="noise",
    ),
    "both_5000": Problem(
        5000,
        uniform(5),
        lambda X: np.sin(5.0 * np.exp(0.7 * X[:, 0])) + X[:, 1] * X[:, 2],
        lambda X: 0.05 + 0.4 * _sigmoid(6.0 * X[:, 3]) * (1.2 + X[:, 0]),
        kind="noise",
    ),
}
