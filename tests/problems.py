"""SDEs with known answers, and Brownian increments that several step sizes share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import scipy.linalg

from wishflow.wishart.given import GivenField


@dataclasses.dataclass(frozen=True)
class Problem:
    """dx = drift(x, t) dt + sigma(x, t) dB from x0, over [0, 1]."""

    drift: Callable
    sigma: Callable
    x0: tuple[float, ...]
    n_noises: int = 2

    @property
    def field(self) -> GivenField:
        return GivenField(self.drift, self.sigma)

    def start(self, n_paths: int) -> np.ndarray:
        return np.tile(self.x0, (n_paths, 1))


# --- correlated geometric Brownian motion: dx_i = r_i x_i dt + x_i (C dB)_i --------------------

RATES = np.array([-0.9, 0.8])
LOADINGS = np.array([[0.4, 0.0], [-0.2, 0.3]])

GEOMETRIC = Problem(lambda x, t: RATES * x, lambda x, t: x[:, None] * LOADINGS, (1.0, 0.7))


def geometric_end(B: np.ndarray) -> np.ndarray:
    """x_1 given B_1, path by path: x0 exp(r − ½ diag(CCᵀ) + C B_1)."""
    return np.asarray(GEOMETRIC.x0) * np.exp(RATES - 0.5 * np.sum(LOADINGS**2, 1) + B @ LOADINGS.T)


def geometric_second_moment() -> np.ndarray:
    """E[x_1 x_1ᵀ]."""
    exponent = RATES[:, None] + RATES[None, :] + LOADINGS @ LOADINGS.T
    return np.outer(GEOMETRIC.x0, GEOMETRIC.x0) * np.exp(exponent)


def geometric_euler_second_moment(n_steps: int) -> np.ndarray:
    """E[x xᵀ] after n Euler steps: each multiplies the entry (i, j) by (1 + r_i h)(1 + r_j h) + h (CCᵀ)_ij."""
    h = 1.0 / n_steps
    factor = np.outer(1 + RATES * h, 1 + RATES * h) + h * LOADINGS @ LOADINGS.T
    return np.outer(GEOMETRIC.x0, GEOMETRIC.x0) * factor**n_steps


# --- a linear SDE whose noises do not commute: dx = A x dt + B_1 x dB_1 + B_2 x dB_2 -------------

A = np.array([[-0.5, 0.4], [-0.4, -0.3]])
B_1 = np.array([[0.6, 0.0], [0.0, -0.6]])
B_2 = np.array([[0.0, 0.7], [0.7, 0.0]])

NON_COMMUTATIVE = Problem(lambda x, t: A @ x, lambda x, t: jnp.stack([B_1 @ x, B_2 @ x], -1), (1.0, 0.5))


def commutator() -> np.ndarray:
    """B_1 B_2 − B_2 B_1: zero would make the noises commute, and Euler–Maruyama's strong error smaller."""
    return B_1 @ B_2 - B_2 @ B_1


def non_commutative_second_moment() -> np.ndarray:
    """E[x_1 x_1ᵀ] from dS/dt = AS + SAᵀ + Σ_k B_k S B_kᵀ."""
    identity = np.eye(2)
    generator = np.kron(A, identity) + np.kron(identity, A) + np.kron(B_1, B_1) + np.kron(B_2, B_2)
    start = np.outer(NON_COMMUTATIVE.x0, NON_COMMUTATIVE.x0)
    return (scipy.linalg.expm(generator) @ start.ravel()).reshape(2, 2)


# --- an iterated integral: dx_1 = dB_1, dx_2 = x_1 dB_2, so x_2 = ∫ B_1 dB_2 ------------------------

ITERATED = Problem(
    lambda x, t: jnp.zeros_like(x),
    lambda x, t: jnp.stack([jnp.stack([jnp.ones_like(t * x[0]), 0 * x[0]]), jnp.stack([0 * x[0], x[0]])]),
    (0.0, 0.0),
)


def iterated_mean_square_gap(h: float, fine: float) -> float:
    """E(x_2^h − x_2^fine)² at time 1 = ½ (h − fine): left sums miss ∫(B_1 − B_1(t_k)) dB_2 on each step."""
    return 0.5 * (h - fine)


# --- Brownian increments -------------------------------------------------------------------------


def brownian_increments(seed: int, n_steps: int, n_paths: int, n_noises: int = 2) -> np.ndarray:
    """dB over n equal steps of [0, 1], (T, N, ν)."""
    return np.random.default_rng(seed).normal(size=(n_steps, n_paths, n_noises)) / np.sqrt(n_steps)


def coarser(dB: np.ndarray, n_steps: int) -> np.ndarray:
    """The increments of the same Brownian paths over fewer steps."""
    return dB.reshape(n_steps, -1, *dB.shape[1:]).sum(1)


def slope(steps: np.ndarray, errors: np.ndarray) -> float:
    """The order p in error ∝ hᵖ, by least squares on logarithms."""
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])
