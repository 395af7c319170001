"""Paths given some of their cells: where particles look ahead, and whole paths of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from ..ahead import Ahead, LinearSteps, conditional_means, look_ahead

# Particles of one run, and at most so many runs: they are added until draws are worth enough independent ones.
N_PARTICLES = 1000
MOST_RUNS = 8
ENOUGH_SHARE = 0.25
# Where weights differ much, runs take turns with laws ahead of them that are so many times as wide.
WIDTHS = (1.0, 2.0, 4.0)
# How often a model is linearised: about its plain means first, then about the means given the cells.
N_ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Draws of paths given some of their cells, how many independent draws they are worth, and an estimate of the log
    density of these cells.
    """

    draws: Float[np.ndarray, "S T P"]
    n_effective: float
    log_evidence: float


@dataclasses.dataclass(frozen=True)
class Swarm:
    """Particles: values after each tick, the particle before it that each comes from, the first one that it comes from,
    and log weights. The mean of the weights is an estimate of the density of the given cells.
    """

    values: Float[np.ndarray, "T N P"]
    parents: Int[np.ndarray, "T N"]
    origin: Int[np.ndarray, " N"]
    log_weights: Float[np.ndarray, " N"]

    @property
    def weights(self) -> Float[np.ndarray, " N"]:
        weights = np.exp(self.log_weights - self.log_weights.max())
        return weights / weights.sum()

    @property
    def n_effective(self) -> float:
        """Paths that share an early part are worth less than as many independent ones: with the weight w_a of all paths
        that come from the first particle a, they are worth 1/Σ w_a².
        """
        return float(1.0 / np.sum(np.bincount(self.origin, self.weights) ** 2))

    def joined(self, other: Swarm) -> Swarm:
        """The particles of two runs."""
        n = len(self.origin)
        return Swarm(
            np.concatenate([self.values, other.values], axis=1),
            np.concatenate([self.parents, n + other.parents], axis=1),
            np.concatenate([self.origin, n + other.origin]),
            np.concatenate([self.log_weights, other.log_weights]),
        )

    def paths(self, n_draws: int, rng: np.random.Generator) -> Float[np.ndarray, "S T P"]:
        """Whole paths by the weights of their last particles, in random order."""
        points = (np.arange(n_draws) + rng.uniform()) / n_draws
        at = np.minimum(np.searchsorted(np.cumsum(self.weights), points), len(self.origin) - 1)
        at, found = rng.permutation(at), np.empty((n_draws, *self.values.shape[::2]))
        for t in reversed(range(len(self.values))):
            found[:, t] = self.values[t, at]
            at = self.parents[t, at]
        return found


def gathered(run: Callable[[int, float], Swarm], n_draws: int, rng: np.random.Generator) -> Scenario:
    """Draws from as many runs as are needed; a run knows its number and how much wider ψ is to be."""
    swarm = run(0, WIDTHS[0])
    for k in range(1, max(MOST_RUNS, -(-n_draws // N_PARTICLES))):
        n_effective, n = swarm.n_effective, len(swarm.origin)
        if n >= n_draws and n_effective >= ENOUGH_SHARE * n_draws:
            break
        is_poor = n_effective < ENOUGH_SHARE * n
        swarm = swarm.joined(run(k, WIDTHS[k % len(WIDTHS)] if is_poor else WIDTHS[0]))
    log_evidence = float(scipy.special.logsumexp(swarm.log_weights) - np.log(len(swarm.log_weights)))
    return Scenario(swarm.paths(n_draws, rng), min(swarm.n_effective, float(n_draws)), log_evidence)


def ahead_of(
    linearised: Callable[[Float[np.ndarray, "T D"]], LinearSteps],
    means: Float[np.ndarray, "T D"],
    y: Float[np.ndarray, "T P"],
    start: Float[np.ndarray, " K"],
) -> tuple[LinearSteps, Ahead]:
    """The steps of a model that is linearised about `means`, and then about its means given the cells; their ψ."""
    for _ in range(N_ROUNDS - 1):
        steps = linearised(means)
        means = conditional_means(steps, look_ahead(steps, y), y, start)
    steps = linearised(means)
    return steps, look_ahead(steps, y)
