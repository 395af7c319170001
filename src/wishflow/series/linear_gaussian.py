"""Linear Gaussian auto-regressions in closed form: regressions with a prior, forecasts, and their scores.

Everything that `"auto"` decides is decided on these models first (`choosing`): a regression takes milliseconds, and its
forecasts at every horizon are normal laws that need no draws.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.linalg.lapack
from jaxtyping import Bool, Float, Int

from .linear_prior import Prior, inputs_of, means, precision, precision_of_sums

# Ridge of covariates and the constant, as a share of the rows: only so that harmonics that coincide can be told apart.
SMALL_RIDGE = 1e-6
# Smallest eigenvalue of a covariance as a share of the mean one.
FLOOR = 1e-8
TINY = 1e-12
# Smaller weights are those that a prior holds at zero.
LEAST_WEIGHT = 1e-6
# From this share of seen targets on, rows filled by a model count as rows.
FEW_HOLES = 0.97
# Below this share of seen values holes are on average longer than one row.
MANY_HOLES = 0.5


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Rows of a grid without long gaps: values with holes filled causally, which of them were seen, covariates."""

    values: Float[np.ndarray, "T D"]
    is_seen: Bool[np.ndarray, "T D"]
    u: Float[np.ndarray, "T U"]

    def __len__(self) -> int:
        return len(self.values)


@dataclasses.dataclass(frozen=True)
class LinearModel:
    """x_t − x_{t−1} = W (lags, u_t) + b + noise of covariance Q; the layout of W is that of `Layout`."""

    lags: tuple[int, ...]
    weights: Float[np.ndarray, "D K"]
    constant: Float[np.ndarray, " D"]
    covariance: Float[np.ndarray, "D D"]

    @property
    def dim(self) -> int:
        return len(self.constant)

    def step(self, history: Float[np.ndarray, "N T D"], u: Float[np.ndarray, "N U"]) -> Float[np.ndarray, "N D"]:
        """The mean of the next row; the last row of a history is the latest."""
        inputs = np.concatenate([history[:, -lag] for lag in self.lags] + [u], axis=1)
        return history[:, -1] + inputs @ self.weights.T + self.constant

    def means(self, history: Float[np.ndarray, "N p D"], u: Float[np.ndarray, "N H U"]) -> Float[np.ndarray, "N H D"]:
        """Means at all horizons."""
        n, p, _ = history.shape
        path = np.concatenate([history, np.zeros((n, u.shape[1], self.dim))], axis=1)
        for h in range(u.shape[1]):
            path[:, p + h] = self.step(path[:, h : p + h], u[:, h])
        return path[:, p:]

    def covariances(self, n_steps: int) -> Float[np.ndarray, "H D D"]:
        """Σ_{j<h} Ψ_j Q Ψ_jᵀ for h = 1, …, H, with the responses Ψ_j to a shock j steps ago."""
        dim = self.dim
        A = {lag: self.weights[:, i * dim : (i + 1) * dim] for i, lag in enumerate(self.lags)}
        A[1] = A[1] + np.eye(dim)
        responses = [np.eye(dim)]
        for h in range(1, n_steps):
            responses.append(np.sum([A[lag] @ responses[h - lag] for lag in A if lag <= h], axis=0))
        return np.cumsum([psi @ self.covariance @ psi.T for psi in responses], axis=0)


# --- regressions -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Moments:
    """Sums over rows that regressions need: XᵀX for each target (rows without it are left out), XᵀY, YᵀY, counts.

    Sums over parts of the rows add up, so that models of growing parts share their work.
    """

    gram: Float[np.ndarray, "K K"]
    left_out: dict[int, Float[np.ndarray, "K K"]]
    cross: Float[np.ndarray, "K D"]
    squares: Float[np.ndarray, " D"]
    counts: Float[np.ndarray, " D"]

    def __add__(self, other: Moments) -> Moments:
        columns = set(self.left_out) | set(other.left_out)
        zero = np.zeros(())
        left_out = {d: self.left_out.get(d, zero) + other.left_out.get(d, zero) for d in columns}
        sums = (getattr(self, name) + getattr(other, name) for name in ("cross", "squares", "counts"))
        return Moments(self.gram + other.gram, left_out, *sums)

    def gram_of(self, d: int) -> Float[np.ndarray, "K K"]:
        return self.gram - self.left_out[d] if d in self.left_out else self.gram

    def about(self, weights: Float[np.ndarray, "D K"]) -> Moments:
        """The sums of what these weights leave of the targets."""
        if not weights.any():
            return self
        told = np.stack([self.gram_of(d) @ row for d, row in enumerate(weights)], axis=1)
        squares = self.squares - np.sum(weights.T * (2.0 * self.cross - told), axis=0)
        return dataclasses.replace(self, cross=self.cross - told, squares=squares)


def design(stretch: Stretch, lags: Sequence[int]) -> Float[np.ndarray, "N K"]:
    """Rows (lags, u, 1) of all steps that have a whole past; the first of them leads to row max(lags)."""
    p, n = max(lags), len(stretch)
    parts = [stretch.values[p - lag : n - lag] for lag in lags]
    return np.concatenate([*parts, stretch.u[p:], np.ones((max(n - p, 0), 1))], axis=1)


def moments(stretch: Stretch, lags: Sequence[int], first: int, end: int) -> Moments | None:
    """The sums over the steps that lead to the rows first, …, end − 1 of a stretch; None where there is none."""
    p = max(lags)
    first, end = max(first, p), min(end, len(stretch))
    if end <= first:
        return None
    part = Stretch(stretch.values[first - p : end], stretch.is_seen[first - p : end], stretch.u[first - p : end])
    X, seen = design(part, lags), part.is_seen[p:]
    # The factorisation of a series with few holes is worth more than the rows that it was filled at.
    seen = seen | (seen.mean(axis=0) >= FEW_HOLES)
    Y = np.where(seen, part.values[p:] - part.values[p - 1 : -1], 0.0)
    left_out = {d: X[~seen[:, d]].T @ X[~seen[:, d]] for d in range(Y.shape[1]) if not seen[:, d].all()}
    return Moments(X.T @ X, left_out, X.T @ Y, (Y**2).sum(0), seen.sum(0).astype(float))


def regression(found: Moments, lags: Sequence[int], prior: Prior) -> LinearModel:
    """Posterior means of the weights, given the noise variances of a regression without a prior.

    Noise variances are rounded to powers of two, which a prior does not notice: series that share one, and their rows,
    also share a factorisation. The covariance is diagonal: `with_covariance` finds that of the residuals.
    """
    K, dim = found.cross.shape
    start = means(lags, dim, K, prior)
    found = found.about(start)
    ridge = _Ridge.of(found, lags, prior)
    weights = np.zeros((dim, K))
    alone = range(dim) if prior.is_separate else found.left_out
    for d in alone:
        at = inputs_of(d, len(lags), dim, K, prior)
        weights[d, at] = _solved(found.gram_of(d)[np.ix_(at, at)] + ridge.matrix(d, at), found.cross[at, d])
    shared = np.array([d for d in range(dim) if d not in alone], int)
    for value in np.unique(ridge.noise[shared]):
        group = shared[ridge.noise[shared] == value]
        weights[group] = _shared_solutions(found, ridge, group)
    weights += start
    return LinearModel(tuple(lags), weights[:, :-1], weights[:, -1], np.diag(ridge.variances))


def log_evidence(found: Moments, lags: Sequence[int], prior: Prior) -> float:
    """log p(increments | prior), up to a constant, summed over the series, each with an unknown noise variance σ².

    With the ridge R of the prior, −½ log|XᵀX + R| + ½ log|R| − ½ n log(yᵀy − yᵀX (XᵀX + R)⁻¹ Xᵀy) for each: the
    weights and σ² are integrated out (Giannone, Lenza and Primiceri 2015), R being a guess of σ² times the precision.
    """
    K, dim = found.cross.shape
    found = found.about(means(lags, dim, K, prior))
    ridge, total = _Ridge.of(found, lags, prior), 0.0
    for d in range(dim):
        at = inputs_of(d, len(lags), dim, K, prior)
        small, right = ridge.matrix(d, at), found.cross[at, d]
        factor, solution, info = scipy.linalg.lapack.dposv(found.gram_of(d)[np.ix_(at, at)] + small, right, lower=True)
        if info != 0:
            return -np.inf
        squares = max(float(found.squares[d] - right @ solution), TINY)
        half = ridge.log_det(d, at, dim) / 2.0 - np.log(np.diagonal(factor)).sum()
        total += float(half - 0.5 * found.counts[d] * np.log(squares))
    return total


@dataclasses.dataclass(frozen=True)
class _Ridge:
    """What a prior adds to XᵀX: `own` for single weights, and `sums` times a noise variance."""

    own: Float[np.ndarray, "D K"]
    sums: Float[np.ndarray, "K K"] | None
    variances: Float[np.ndarray, " D"]
    noise: Float[np.ndarray, " D"]

    @classmethod
    def of(cls, found: Moments, lags: Sequence[int], prior: Prior) -> _Ridge:
        K, dim = found.cross.shape
        small = SMALL_RIDGE * max(float(found.counts.max()), 1.0)
        variances = _noise_variances(found, small)
        noise = 2.0 ** np.round(np.log2(variances))
        own = noise[:, None] * precision(lags, dim, K, prior) + small
        return cls(own, precision_of_sums(len(lags), dim, K, prior), variances, noise)

    def matrix(self, d: int, at: Int[np.ndarray, " J"]) -> Float[np.ndarray, "J J"]:
        """Of the series d and these inputs."""
        found = np.diag(self.own[d, at])
        return found if self.sums is None else found + self.noise[d] * self.sums[np.ix_(at, at)]

    def log_det(self, d: int, at: Int[np.ndarray, " J"], dim: int) -> float:
        """log|R|: for each series, of a diagonal and a multiple of a matrix of ones (determinant lemma)."""
        own = self.own[d, at]
        found = float(np.log(own).sum())
        if self.sums is None:
            return found
        scale = self.noise[d] * np.diagonal(self.sums)[at]
        by_series = np.bincount(at % dim, np.where(scale > 0.0, scale / own, 0.0), dim)
        return found + float(np.log1p(by_series).sum())


def _shared_solutions(found: Moments, ridge: _Ridge, group: Int[np.ndarray, " G"]) -> Float[np.ndarray, "G K"]:
    """Solutions of (XᵀX + R_d) w_d = (XᵀY)_d of series with one noise, by one factorisation with the largest ridges,
    from which each differs at the few weights of its own rows (Woodbury).
    """
    ridges = ridge.own[group]
    most = ridges.max(axis=0)
    matrix, right = found.gram + np.diag(most), found.cross[:, group]
    if ridge.sums is not None:
        matrix = matrix + ridge.noise[group[0]] * ridge.sums
    if len(group) == 1:
        return _solved(matrix, right).T
    inverse = np.linalg.inv(matrix)
    solutions = (inverse @ right).T
    for row, own in zip(solutions, ridges, strict=True):
        at = np.flatnonzero(most - own > 0.0)
        if len(at):
            small = np.diag(1.0 / (most - own)[at]) - inverse[np.ix_(at, at)]
            row += inverse[:, at] @ np.linalg.solve(small, row[at])
    return solutions


def _solved(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The solution of a positive definite system; of one that is not, by rounding, that of least squares."""
    factor, solution, info = scipy.linalg.lapack.dposv(matrix, right, lower=True)
    del factor
    return solution if info == 0 else np.linalg.lstsq(matrix, right, rcond=None)[0]


def _noise_variances(found: Moments, small: float) -> Float[np.ndarray, " D"]:
    """Of residuals of least squares; with few rows for each weight, half of the variance of the target."""
    K, _dim = found.cross.shape
    whole = found.squares / np.maximum(found.counts, 1.0) + TINY
    if found.counts.min() < 2.0 * K:
        return 0.5 * whole
    ridge = small * np.eye(K)
    solved = _solved(found.gram + ridge, found.cross)
    for d in found.left_out:
        solved[:, d] = _solved(found.gram_of(d) + ridge, found.cross[:, d])
    residual = found.squares - np.sum(found.cross * solved, axis=0)
    return np.clip(residual / (found.counts - K), 1e-6 * whole, whole)


def with_covariance(model: LinearModel, stretches: Sequence[Stretch], ends: Sequence[int] | None = None) -> LinearModel:
    """The model with the covariance of its residuals, over steps to rows before `ends` that were seen whole.

    Where there are too few of them, variances of what was seen and correlations of the filled rows.
    """
    residuals, seen = residuals_of(model, stretches, ends)
    is_whole = seen.all(axis=1)
    enough = is_whole.sum() >= max(10 * model.dim, 0.2 * len(seen))
    rows = residuals[is_whole] if enough else residuals
    # One weight of each series is lost for each row that fits it: as in least squares, at most half of the rows.
    n_weights = np.count_nonzero(np.abs(model.weights) > LEAST_WEIGHT, axis=1).max(initial=0)
    n_rows = max(len(rows) - n_weights, len(rows) / 2, 1.0)
    covariance = rows.T @ rows / n_rows
    if not enough:
        seen_variance = np.sum(residuals**2 * seen, 0) / np.maximum(seen.sum(0), 1)
        factor = np.sqrt(seen_variance / np.maximum(np.diagonal(covariance), TINY))
        covariance = covariance * np.outer(factor, factor)
    floor = FLOOR * max(np.trace(covariance) / model.dim, FLOOR)
    return dataclasses.replace(model, covariance=covariance + floor * np.eye(model.dim))


def residuals_of(
    model: LinearModel, stretches: Sequence[Stretch], ends: Sequence[int] | None = None
) -> tuple[Float[np.ndarray, "N D"], Bool[np.ndarray, "N D"]]:
    """Errors of one step, and which of the targets were seen."""
    p, errors, seen = max(model.lags), [np.zeros((0, model.dim))], [np.zeros((0, model.dim), bool)]
    weights = np.column_stack([model.weights, model.constant])
    for stretch, end in zip(stretches, ends if ends is not None else [len(s) for s in stretches], strict=True):
        if end > p:
            part = Stretch(stretch.values[:end], stretch.is_seen[:end], stretch.u[:end])
            errors.append(np.diff(part.values[p - 1 :], axis=0) - design(part, model.lags) @ weights.T)
            seen.append(part.is_seen[p:])
    return np.concatenate(errors), np.concatenate(seen)


def fitted(
    stretches: Sequence[Stretch], lags: Sequence[int], prior: Prior, ends: Sequence[int] | None = None
) -> LinearModel | None:
    """The model of all steps to rows before `ends`; None where there is no such step."""
    ends = [len(s) for s in stretches] if ends is None else ends
    found = [m for s, end in zip(stretches, ends, strict=True) if (m := moments(s, lags, 0, end)) is not None]
    if not found:
        return None
    total = found[0]
    for more in found[1:]:
        total = total + more
    return with_covariance(regression(total, lags, prior), stretches, ends)


# --- holes -----------------------------------------------------------------------------------------


def filled(
    values: Float[np.ndarray, "T D"], u: Float[np.ndarray, "T U"], model: LinearModel
) -> Float[np.ndarray, "T D"]:
    """Rows whose holes are what the model expects there, given the rows before and what was seen of the row itself.

    No hole is filled from what came later, so that forecasts from filled rows are honest. The first rows, which have no
    past, are filled by straight lines.
    """
    p, is_seen = max(model.lags), ~np.isnan(values)
    rows = straight(values)
    gains: dict[bytes, np.ndarray] = {}
    for t in np.flatnonzero(~is_seen.all(axis=1)):
        if t < p:
            continue
        expected = model.step(rows[None, t - p : t], u[None, t])[0]
        seen = is_seen[t]
        if seen.any():
            key = seen.tobytes()
            if key not in gains:
                Q = model.covariance
                gains[key] = np.linalg.solve(Q[np.ix_(seen, seen)], Q[np.ix_(seen, ~seen)]).T
            expected[~seen] += gains[key] @ (values[t, seen] - expected[seen])
        rows[t, ~seen] = expected[~seen]
    return rows


def guessed(values: Float[np.ndarray, "T D"]) -> Float[np.ndarray, "T D"]:
    """Rows to learn from what a model expects in holes: straight lines, but steps where most of a column is missing.

    A line leads to the next value that was seen. Where it is long, the row before that value is nearly as large, and
    each increment looks like growth of what was there before: models of such lines explode.
    """
    rows, is_seen = straight(values), ~np.isnan(values)
    for d in np.flatnonzero(is_seen.mean(axis=0) < MANY_HOLES):
        last = np.maximum.accumulate(np.where(is_seen[:, d], np.arange(len(rows)), 0))
        rows[:, d] = rows[last, d]
    return rows


def straight(values: Float[np.ndarray, "T D"]) -> Float[np.ndarray, "T D"]:
    """Holes filled by straight lines, ends by the nearest value."""
    rows, at = values.copy(), np.arange(len(values))
    for column in rows.T:
        is_there = ~np.isnan(column)
        column[:] = np.interp(at, at[is_there], column[is_there]) if is_there.any() else 0.0
    return rows


# --- scores ----------------------------------------------------------------------------------------


def rolled(
    model: LinearModel, stretch: Stretch, origins: Int[np.ndarray, " N"], n_steps: int
) -> tuple[Float[np.ndarray, "N H D"], Float[np.ndarray, "H D"]]:
    """Means and standard deviations of forecasts of the rows origin, …, origin + H − 1 given those before."""
    p = max(model.lags)
    history = np.stack([stretch.values[o - p : o] for o in origins])
    u = np.stack([stretch.u[o : o + n_steps] for o in origins])
    sd = np.sqrt(np.diagonal(model.covariances(n_steps), axis1=1, axis2=2))
    return model.means(history, u), sd
