"""What cells that are given at later ticks say about a state: a Gaussian law of them, by a linearised model.

Steps are x_t = M_t H_{t−1} + c_t + N(0, Q_t) with the history H = (x, older rows), and cells y_t = G_t x_t + d_t +
N(0, R_t). Seen from H_t, the cells given after tick t are normal, and their density as a function of H_t is

    log ψ_t(H) = −½ ‖s_t − A_t H‖² + constant,

with rows A_t and targets s_t that are whitened. Particles that are drawn towards a high ψ (`guided`) know what is
ahead of them. For linear Gaussian models ψ is exact. Elsewhere weights set right what it gets wrong, so that it
decides how many particles are needed, not what they converge to (Whiteley and Lee 2014; Guarniero, Johansen and Lee
2017).
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg
from jaxtyping import Float

# Cells that a state sees ahead of it, the nearest ones; what is further away says little more.
MOST_CELLS = 128
# Numbers of rows A come in multiples of it, so that a few programs serve all scenarios.
ROWS_CLASS = 16
RELATIVE_JITTER = 1e-10


@dataclasses.dataclass(frozen=True)
class LinearSteps:
    """Steps and cells of a linear Gaussian model; K numbers make a history, D a state, P a row of cells."""

    M: Float[np.ndarray, "T D K"]
    c: Float[np.ndarray, "T D"]
    Q: Float[np.ndarray, "T D D"]
    G: Float[np.ndarray, "T P D"]
    d: Float[np.ndarray, "T P"]
    R: Float[np.ndarray, "T P P"]


@dataclasses.dataclass(frozen=True)
class Ahead:
    """A_t and s_t for t = 0, …, T: at 0 that of the start, at T, where nothing is ahead, zeros.

    `constants` are those of log ψ_t but for the number of cells: −½ log|V_t|, which laws of other noise differ in.
    """

    rows: Float[np.ndarray, "times n K"]
    targets: Float[np.ndarray, "times n"]
    constants: Float[np.ndarray, " times"]

    def widened(self, factor: float) -> Ahead:
        """ψ with a covariance that many times as large: for models that are far from linear."""
        return Ahead(self.rows / np.sqrt(factor), self.targets / np.sqrt(factor), self.constants)

    def log_values(self, history: Float[np.ndarray, "S K"]) -> Float[np.ndarray, " S"]:
        """log ψ_0 without its constant."""
        return -0.5 * np.sum((self.targets[0] - history @ self.rows[0].T) ** 2, axis=-1)

    def log_mass(self, mean: Float[np.ndarray, " K"], covariance: Float[np.ndarray, "K K"]) -> float:
        """log ∫ N(H; m, P) ψ_0(H) dH, with C = A P Aᵀ + I: −½ log |C| − ½ (s − A m)ᵀ C⁻¹ (s − A m)."""
        A, r = self.rows[0], self.targets[0] - self.rows[0] @ mean
        C = A @ covariance @ A.T + np.eye(len(r))
        return float(-0.5 * np.linalg.slogdet(C)[1] - 0.5 * r @ np.linalg.solve(C, r))


def look_ahead(steps: LinearSteps, y: Float[np.ndarray, "T P"], most: int = MOST_CELLS) -> Ahead:
    """ψ_t of the cells of y that are not NaN, from the last tick to the first.

    Seen from H_t the cells are A H_t + noise of covariance V. Those of tick t join with the rows (G_t, 0) and the
    noise R_t; a step leads from H_t to H_{t−1} = (x, rest): A ← A_x M + (A_rest, 0), V ← V + A_x Q A_xᵀ.
    """
    n_ticks, dim, size = steps.M.shape
    A, V, r = np.zeros((0, size)), np.zeros((0, 0)), np.zeros(0)
    found = [_whitened(A, V, r)]
    for t in reversed(range(n_ticks)):
        is_given = ~np.isnan(y[t])
        here = np.zeros((is_given.sum(), size))
        here[:, :dim] = steps.G[t][is_given]
        A = np.concatenate([here, A])[:most]
        V = scipy.linalg.block_diag(steps.R[t][np.ix_(is_given, is_given)], V)[:most, :most]
        r = np.concatenate([(y[t] - steps.d[t])[is_given], r])[:most]
        by_state = A[:, :dim]
        older = np.concatenate([A[:, dim:], np.zeros((len(A), dim))], axis=1)
        r, V = r - by_state @ steps.c[t], V + by_state @ steps.Q[t] @ by_state.T
        A = by_state @ steps.M[t] + older
        found.append(_whitened(A, V, r))
    found = found[::-1]
    n_rows = max(-(-max(len(s) for _, s, _ in found) // ROWS_CLASS) * ROWS_CLASS, ROWS_CLASS)
    rows, targets = np.zeros((n_ticks + 1, n_rows, size)), np.zeros((n_ticks + 1, n_rows))
    for t, (A, s, _) in enumerate(found):
        rows[t, : len(s)], targets[t, : len(s)] = A, s
    return Ahead(rows, targets, np.array([constant for _, _, constant in found]))


def _whitened(A: np.ndarray, V: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """L⁻¹A and L⁻¹r for V = L Lᵀ, and −½ log|V|."""
    if not len(r):
        return A, r, 0.0
    L = np.linalg.cholesky(V + RELATIVE_JITTER * np.diag(np.diagonal(V)))
    both = scipy.linalg.solve_triangular(L, np.column_stack([A, r]), lower=True)
    return both[:, :-1], both[:, -1], -float(np.log(np.diagonal(L)).sum())


def with_cells(steps: LinearSteps, ahead: Ahead, y: Float[np.ndarray, "T P"]) -> Ahead:
    """ψ after each tick together with the law of the cells of the tick itself: rows for t = 1, …, T."""
    n_ticks, n_cells = y.shape
    rows, targets = np.zeros((n_ticks, n_cells, steps.G.shape[-1])), np.zeros((n_ticks, n_cells))
    for t, row in enumerate(y):
        is_given = ~np.isnan(row)
        A, s, _ = _whitened(steps.G[t][is_given], steps.R[t][np.ix_(is_given, is_given)], (row - steps.d[t])[is_given])
        rows[t, : is_given.sum()], targets[t, : is_given.sum()] = A, s
    rows, targets = np.concatenate([rows, ahead.rows[1:]], 1), np.concatenate([targets, ahead.targets[1:]], 1)
    return Ahead(rows, targets, ahead.constants[1:])


def conditional_means(
    steps: LinearSteps, ahead: Ahead, y: Float[np.ndarray, "T P"], start: Float[np.ndarray, " K"]
) -> Float[np.ndarray, "T D"]:
    """E[x_t | start, all given cells] of the linear model: where to linearise a model that is not."""
    (_, dim, size), history, means = steps.M.shape, start, []
    for t, M in enumerate(steps.M):
        x = M @ history + steps.c[t]
        rest = history[: size - dim]
        is_given = ~np.isnan(y[t])
        rows, target = ahead.rows[t + 1], ahead.targets[t + 1]
        B = np.concatenate([steps.G[t][is_given], rows[:, :dim]])
        noise = scipy.linalg.block_diag(steps.R[t][np.ix_(is_given, is_given)], np.eye(len(rows)))
        r = np.concatenate([(y[t] - steps.d[t])[is_given], target - rows[:, dim:] @ rest]) - B @ x
        QB = steps.Q[t] @ B.T
        x = x + QB @ np.linalg.solve(B @ QB + noise, r)
        history = np.concatenate([x, rest])
        means.append(x)
    return np.stack(means)


def conditioned(
    draws: Float[np.ndarray, "S K"],
    covariance: Float[np.ndarray, "K K"],
    ahead: Ahead,
    rng: np.random.Generator,
) -> Float[np.ndarray, "S K"]:
    """Draws of N(m, P) ψ_0 from draws of N(m, P): H + P Aᵀ (A P Aᵀ + I)⁻¹ (s + ε − A H) (Matheron's rule)."""
    A, s = ahead.rows[0], ahead.targets[0]
    PA = covariance @ A.T
    if not PA.any():
        return draws
    r = s + rng.normal(size=(len(draws), len(s))) - draws @ A.T
    return draws + r @ np.linalg.solve(A @ PA + np.eye(len(s)), PA.T)
