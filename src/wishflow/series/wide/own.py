"""What the factors leave of each series: an auto-regression of its own, all of them in closed form at once."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

# Part of the rows, the last ones, that choose lags and calendar, and the fewest rows for that.
HELD = 0.1
LEAST_ROWS = 100
# Part of the squared error that a candidate may lose to larger ones.
SLACK = 0.01
# Rows of the average series that count as rows of each: with little data of their own, series behave as the others.
SHARED_ROWS = 20.0
LEAST_VARIANCE = 1e-8
# Rounds of a bisection that shrinks explosive dynamics until no root is outside the unit circle.
N_HALVINGS = 20
# Draws that are made together; the noise of a draw does not depend on how many there are.
CHUNK = 100


@dataclasses.dataclass(frozen=True)
class OwnDynamics:
    """x_t = Σ_l a_l x_{t−l} + wᵀ u_t + s ε_t for each series by itself; u_t is 1 and harmonics of the calendar.

    `weights` has a row for each lag, then for each entry of u; a weight that was not chosen is 0.
    """

    lags: tuple[int, ...]
    weights: Float[np.ndarray, "K D"]
    variance: Float[np.ndarray, " D"]

    @property
    def memory(self) -> int:
        return max(self.lags)

    @property
    def of_lags(self) -> Float[np.ndarray, "L D"]:
        return self.weights[: len(self.lags)]

    def means(
        self, e: Float[np.ndarray, "T D"], u: Float[np.ndarray, "T U"]
    ) -> tuple[Float[np.ndarray, "T D"], Float[np.ndarray, "T D"]]:
        """Mean of each row given those before it, and the rows with their missing cells at their means.

        What lies before the first row counts as 0, the mean.
        """
        constant, rows = u @ self.weights[len(self.lags) :], e.copy()
        if not np.isnan(rows).any():
            return constant + sum(w * _shifted(rows, lag) for lag, w in self._used()), rows
        means = np.empty_like(rows)
        for t in range(len(rows)):
            means[t] = constant[t] + sum(w * rows[t - lag] for lag, w in self._used() if lag <= t)
            rows[t] = np.where(np.isnan(rows[t]), means[t], rows[t])
        return means, rows

    def ahead(
        self, past: Float[np.ndarray, "T D"], u: Float[np.ndarray, "H U"], ages: Int[np.ndarray, " D"]
    ) -> tuple[Float[np.ndarray, "H D"], Float[np.ndarray, "H D"]]:
        """Means and variances of the rows after `past`, in which the last `ages` cells of each series are means."""
        n = len(past)
        path = np.concatenate([past, u @ self.weights[len(self.lags) :]])
        for h in range(len(u)):
            path[n + h] += sum(w * path[n + h - lag] for lag, w in self._used() if lag <= n + h)
        return path[n:], self.variances(np.arange(len(u))[:, None] + ages)

    def variances(self, ages: Int[np.ndarray, "T D"]) -> Float[np.ndarray, "T D"]:
        """Variance of each cell, so many missing cells after the last one that was observed.

        Exact where all lags before the hole were observed.
        """
        responses = np.zeros((1 + int(ages.max(initial=0)), ages.shape[1]))
        responses[0] = 1.0
        for h in range(1, len(responses)):
            responses[h] = sum(w * responses[h - lag] for lag, w in self._used() if lag <= h)
        return np.take_along_axis(self.variance * np.cumsum(responses**2, axis=0), ages, axis=0)

    def deviations(
        self, seed: int, n_draws: int, steps: Sequence[int], ages: Int[np.ndarray, " D"]
    ) -> Iterator[tuple[slice, int, Float[np.ndarray, "N D"]]]:
        """Draws of paths minus their mean at some steps ahead: which draws, the place among the steps, and values.

        The last `ages` cells of each series are missing, and deviate from their means too.
        """
        sd = np.sqrt(self.variance)
        for k, first in enumerate(range(0, n_draws, CHUNK)):
            rng, n = np.random.default_rng([seed, k]), min(CHUNK, n_draws - first)
            recent = self._missing(rng, n, ages)
            for h in range(1, max(steps) + 1):
                now = sd * rng.standard_normal((CHUNK, len(sd)))[:n]
                for lag, w in self._used():
                    if lag <= len(recent):
                        now += w * recent[-lag]
                recent.append(now)
                if h in steps:
                    yield slice(first, first + n), steps.index(h), now

    def _missing(self, rng: np.random.Generator, n: int, ages: Int[np.ndarray, " D"]) -> deque:
        """Deviations of the last rows: those of missing cells at the end are drawn, others are 0."""
        at, recent = np.flatnonzero(ages), deque(maxlen=self.memory)  # type: ignore[var-annotated]
        sd = np.sqrt(self.variance[at])
        for age in range(int(ages.max(initial=0)), 0, -1):
            now = np.where(age <= ages[at], sd, 0.0) * rng.standard_normal((CHUNK, len(at)))[:n]
            for lag, w in self._used():
                if lag <= len(recent):
                    now += w[at] * recent[-lag][:, at]
            recent.append(np.zeros((n, len(ages))))
            recent[-1][:, at] = now
        return recent

    def _used(self) -> list[tuple[int, Float[np.ndarray, " D"]]]:
        return [(lag, w) for lag, w in zip(self.lags, self.of_lags, strict=True) if w.any()]


def fitted(
    e: Float[np.ndarray, "T D"], u: Float[np.ndarray, "T U"], candidates: Sequence[Sequence[int]]
) -> OwnDynamics:
    """The dynamics of all series: each has the smallest candidate, a set of lags with or without the calendar, that
    predicts its held-back rows as well as the best. `u` is 1 and, to the right of it, harmonics.
    """
    lags = tuple(sorted({lag for one in candidates for lag in one}))
    first = max(1, round((1.0 - HELD) * len(e)))
    before, held = _Moments.of(e, u, lags, 0, first), _Moments.of(e, u, lags, first, len(e))
    whole, L = before.added(held), len(lags)
    calendars = [[L], list(range(L, L + u.shape[1]))][: 1 + (u.shape[1] > 1)]
    choices = [[lags.index(lag) for lag in one] + calendar for one in candidates for calendar in calendars]
    chosen = np.zeros(e.shape[1], int)
    if len(e) >= LEAST_ROWS:
        choices.sort(key=len)
        errors = np.array([held.error(before.weights(np.array(c))) for c in choices])
        chosen = np.argmax(errors <= (1.0 + SLACK) * errors.min(axis=0), axis=0)
    weights = np.zeros((L + u.shape[1], e.shape[1]))
    for k, choice in enumerate(choices):
        if (chosen == k).any():
            weights[:, chosen == k] = whole.weights(np.array(choice))[:, chosen == k]
    weights[:L] = _bounded(weights[:L], lags)
    n_used = np.count_nonzero(weights, axis=0)
    total = whole.error(weights) * whole.n
    shared = SHARED_ROWS * total.sum() / max(whole.n.sum(), 1.0)
    variance = (total + shared) / (np.maximum(whole.n - n_used, 0.0) + SHARED_ROWS)
    return OwnDynamics(lags, weights, np.maximum(variance, LEAST_VARIANCE))


def _bounded(w: Float[np.ndarray, "L D"], lags: tuple[int, ...]) -> Float[np.ndarray, "L D"]:
    """Weights whose paths do not explode: those of lag l times c^l, which multiplies all roots by c ≤ 1."""
    explodes = ~is_stable(w, lags)
    if not explodes.any():
        return w
    powers, some = np.array(lags)[:, None], w[:, explodes]
    low, high = np.zeros(some.shape[1]), np.ones(some.shape[1])
    for _ in range(N_HALVINGS):
        middle = 0.5 * (low + high)
        is_calm = is_stable(some * middle**powers, lags)
        low, high = np.where(is_calm, middle, low), np.where(is_calm, high, middle)
    found = w.copy()
    found[:, explodes] = some * low**powers
    return found


def is_stable(w: Float[np.ndarray, "L D"], lags: tuple[int, ...]) -> Bool[np.ndarray, " D"]:
    """Whether all roots lie inside the unit circle: all reflection coefficients are below 1 (Levinson, backwards)."""
    a, is_inside = np.zeros((max(lags), w.shape[1])), np.ones(w.shape[1], bool)
    a[np.array(lags) - 1] = w
    for m in range(len(a) - 1, -1, -1):
        is_inside &= np.abs(a[m]) < 1.0
        k = np.where(is_inside, a[m], 0.0)
        a[:m] = np.where(is_inside, (a[:m] + k * a[:m][::-1]) / (1.0 - k**2), 0.0)
    return is_inside


def ages_of(e: Float[np.ndarray, "T D"]) -> Int[np.ndarray, "T_1 D"]:
    """How many cells are missing just before each row, in each series; at last, before the next row."""
    ages = np.zeros((len(e) + 1, e.shape[1]), int)
    for t, row in enumerate(e):
        ages[t + 1] = np.where(np.isnan(row), ages[t] + 1, 0)
    return ages


@dataclasses.dataclass(frozen=True)
class _Moments:
    """Sums over the rows of each series of inputs x and targets y: x xᵀ, x y, y²; and the number of rows.

    A row counts where it and all its lags are there.
    """

    xx: Float[np.ndarray, "D K K"]
    xy: Float[np.ndarray, "D K"]
    yy: Float[np.ndarray, " D"]
    n: Float[np.ndarray, " D"]

    @classmethod
    def of(cls, e: np.ndarray, u: np.ndarray, lags: tuple[int, ...], first: int, end: int) -> _Moments:
        """Of the rows from `first` to `end`; lags may lie before."""
        first, L = max(first, max(lags)), len(lags)
        end = max(first, end)
        parts = [e[first:end], *(e[first - lag : end - lag] for lag in lags)]
        is_there = ~np.isnan(sum(parts))
        has_holes = not is_there.all()
        y, *x = (np.where(is_there, part, 0.0) for part in parts) if has_holes else parts
        u, w = u[first:end], is_there.astype(float)
        D, K = e.shape[1], L + u.shape[1]
        xx, xy = np.zeros((D, K, K)), np.zeros((D, K))
        xx[:, L:, L:] = (w.T @ (u[:, :, None] * u[:, None]).reshape(len(u), -1)).reshape(D, K - L, K - L)
        xy[:, L:] = y.T @ u
        for i, one in enumerate(x):
            xx[:, i, L:] = xx[:, L:, i] = one.T @ u
            xy[:, i] = np.einsum("td,td->d", one, y)
            for j in range(i + 1):
                xx[:, i, j] = xx[:, j, i] = np.einsum("td,td->d", one, x[j])
        return cls(xx, xy, np.einsum("td,td->d", y, y), w.sum(axis=0))

    def added(self, other: _Moments) -> _Moments:
        return _Moments(self.xx + other.xx, self.xy + other.xy, self.yy + other.yy, self.n + other.n)

    def weights(self, choice: Int[np.ndarray, " C"]) -> Float[np.ndarray, "K D"]:
        """Weights of some inputs by least squares, those of the others 0, with rows of the average series added."""
        n = np.maximum(self.n, 1.0)
        mean_xx, mean_xy = (self.xx / n[:, None, None]).mean(axis=0), (self.xy / n[:, None]).mean(axis=0)
        xx, xy = self.xx + SHARED_ROWS * mean_xx, self.xy + SHARED_ROWS * mean_xy
        xx = xx[:, choice[:, None], choice] + 1e-6 * np.eye(len(choice))
        found = np.zeros((self.xx.shape[1], len(n)))
        found[choice] = np.linalg.solve(xx, xy[:, choice, None])[:, :, 0].T
        return found

    def error(self, weights: Float[np.ndarray, "K D"]) -> Float[np.ndarray, " D"]:
        """Mean squared errors of these weights on the rows; 0 where there are none."""
        w = weights.T
        total = self.yy - 2.0 * np.sum(w * self.xy, axis=1) + np.einsum("di,dij,dj->d", w, self.xx, w)
        return np.maximum(total, 0.0) / np.maximum(self.n, 1.0)


def _shifted(rows: Float[np.ndarray, "T D"], lag: int) -> Float[np.ndarray, "T D"]:
    found = np.zeros_like(rows)
    found[lag:] = rows[:-lag]
    return found
