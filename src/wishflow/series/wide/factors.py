"""Common factors of many series: loadings by principal components, rows in two parts, densities without D × D matrices.

In scaled units z = V f + e with orthonormal loadings V (D, R), factors f = Vᵀ z, and what is left e = (I − V Vᵀ) z. The
two parts are orthogonal, so the density of a row is that of f times that of e within the complement of V: no variance
counts twice, whatever the law of f is.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils.extmath import randomized_svd

# The most factors that are considered where their number is chosen, in all and in parts of the number of series.
MOST_FACTORS, LEAST_SERIES_PER_FACTOR = 20, 4
# Eigenvalues after those of the factors that tell how fast those of noise fall.
EDGE = 5
# Series are weighed by what is left of them; the share of their variance that is left counts at least as so much.
LEAST_LEFT = 0.05
# Factors of a row are known where the observed cells hold so much of each direction of the loadings.
LEAST_SEEN = 0.05
# Rounds in which missing cells are filled by the factors of the others, or the number of factors is corrected.
N_ROUNDS = 8


@dataclasses.dataclass(frozen=True)
class Loadings:
    """Level and scale of each series, and orthonormal loadings V of the factors in these units."""

    mean: Float[np.ndarray, " D"]
    scale: Float[np.ndarray, " D"]
    V: Float[np.ndarray, "D R"]

    @classmethod
    def learnt(cls, y: Float[np.ndarray, "T D"], n_factors: int | None, seed: int) -> Loadings:
        """By principal components in units of what the factors leave of each series; None: as many as `n_factors_of`.

        Series with little noise of their own say more about the factors. In these units their noise has variances near
        one, so that factors and what is left of a row are uncorrelated given the past.
        """
        mean, sd = np.nanmean(y, axis=0), np.nanstd(y, axis=0)
        z = (y - mean) / sd
        known = z if not np.isnan(z).any() else _completed(z, n_factors, seed)
        V = _loadings(known, n_factors, seed)
        left = np.mean((known - (known @ V) @ V.T) ** 2, axis=0) / np.maximum(np.mean(known**2, axis=0), 1e-12)
        weight = np.sqrt(np.maximum(left, LEAST_LEFT))
        return cls(mean, sd * weight, _loadings(known / weight, V.shape[1], seed))

    @property
    def n_factors(self) -> int:
        return self.V.shape[1]

    def forward(self, y: Float[np.ndarray, "... D"]) -> Float[np.ndarray, "... D"]:
        return (y - self.mean) / self.scale

    def parts(self, z: Float[np.ndarray, "T D"]) -> tuple[Float[np.ndarray, "T R"], Float[np.ndarray, "T D"]]:
        """Factors of each row, and what they leave of it; NaN where a cell is missing.

        Factors of a row with missing cells are those of a regression on its other cells. A row whose cells say too
        little of some factor has neither part.
        """
        is_seen = ~np.isnan(z)
        if is_seen.all():
            f = z @ self.V
            return f, z - f @ self.V.T
        f = np.where(is_seen, z, 0.0) @ self.V
        holes = np.flatnonzero(~is_seen.all(axis=1))
        gram = self._gram(is_seen[holes].astype(float))
        is_known = np.linalg.eigvalsh(gram)[:, 0] >= LEAST_SEEN
        f[holes[~is_known]] = np.nan
        at = holes[is_known]
        f[at] = np.linalg.solve(gram[is_known], f[at][:, :, None])[:, :, 0]
        return f, z - f @ self.V.T

    def joined(self, f: Float[np.ndarray, "... R"], x: Float[np.ndarray, "... D"]) -> Float[np.ndarray, "... D"]:
        """Rows in the units of y with factors f and the part of x that no factor reaches: z = V f + (I − V Vᵀ) x."""
        return self.mean + self.scale * (x + (f - x @ self.V) @ self.V.T)

    def left_log_density(
        self, d: Float[np.ndarray, "T D"], variance: Float[np.ndarray, "#T D"]
    ) -> Float[np.ndarray, " T"]:
        """Log density of (I − V Vᵀ) x for x ~ N(0, S), S diagonal, within the complement of V; d is a value of it.

        With A = Vᵀ S⁻¹ V it is −½ (dᵀ S⁻¹ d − dᵀ S⁻¹ V A⁻¹ Vᵀ S⁻¹ d + log det S + log det A + (D − R) log 2π).

        Where cells are missing (NaN), V, S and d are those of the others, and the number is the one to be added to the
        log density of the factors that `parts` finds. NaN where there is nothing but missing cells.
        """
        is_seen = ~np.isnan(d)
        variance = np.broadcast_to(variance, d.shape)
        precision = np.where(is_seen, 1.0 / variance, 0.0)
        scaled = np.where(is_seen, d, 0.0) * precision
        A, b = self._gram(precision), scaled @ self.V
        is_known = is_seen.any(axis=1)
        A[~is_known] = np.eye(self.n_factors)
        inner = np.einsum("tr,tr->t", b, np.linalg.solve(A, b[:, :, None])[:, :, 0])
        quadratic = np.sum(np.where(is_seen, d, 0.0) * scaled, axis=1) - inner
        log_det = np.sum(np.where(is_seen, np.log(variance), 0.0), axis=1) + np.linalg.slogdet(A)[1]
        constant = (is_seen.sum(axis=1) - self.n_factors) * np.log(2.0 * np.pi)
        return np.where(is_known, -0.5 * (quadratic + log_det + constant), np.nan)

    def log_jacobian(self, y: Float[np.ndarray, "T D"]) -> Float[np.ndarray, " T"]:
        """log |dz/dy| of the cells that are there."""
        return -np.sum(np.where(np.isnan(y), 0.0, np.log(self.scale)), axis=1)

    def _gram(self, weights: Float[np.ndarray, "T D"]) -> Float[np.ndarray, "T R R"]:
        """Vᵀ W V for diagonal weights of each row."""
        R = self.n_factors
        products = (self.V[:, :, None] * self.V[:, None, :]).reshape(len(self.V), R * R)
        return (weights @ products).reshape(len(weights), R, R)


def n_factors_of(eigenvalues: Float[np.ndarray, " K"], most: int) -> int:
    """The number of eigenvalues, largest first, above the last gap that noise does not make; at least one.

    By the edge distribution of Onatski (Review of Economics and Statistics 92, 2010): eigenvalues λ_i of noise fall
    about linearly in i^⅔ after its largest one, also where noise is correlated in time. A gap λ_i − λ_{i+1} of twice
    the slope of the five after the factors belongs to a factor. `most` factors are considered.
    """
    n, gaps = most, (eigenvalues[:-1] - eigenvalues[1:])[:most]
    for _ in range(N_ROUNDS):
        edge = eigenvalues[n : n + EDGE]
        slope = np.polyfit(np.arange(n, n + len(edge)) ** (2.0 / 3.0), edge, 1)[0] if len(edge) > 1 else 0.0
        is_factor = np.flatnonzero(gaps >= 2.0 * abs(slope))
        found = int(is_factor[-1]) + 1 if len(is_factor) else 0
        if found == n:
            break
        n = found
    return max(n, 1)


def _loadings(z: Float[np.ndarray, "T D"], n_factors: int | None, seed: int) -> Float[np.ndarray, "D R"]:
    """Right singular vectors of the rows; for None as many as their squared singular values say."""
    if n_factors is None:
        most = max(1, min(MOST_FACTORS, min(z.shape) // LEAST_SERIES_PER_FACTOR))
        n_factors = n_factors_of(_svd(z, min(most + EDGE, *z.shape), seed)[1] ** 2, most)
    return np.ascontiguousarray(_svd(z, n_factors, seed)[2].T)


def _svd(z: np.ndarray, n: int, seed: int) -> Any:
    return randomized_svd(z, n, n_iter=7, random_state=seed)


def _completed(z: Float[np.ndarray, "T D"], n_factors: int | None, seed: int) -> Float[np.ndarray, "T D"]:
    """Rows whose missing cells are those of the factors of the others, in turns with the loadings."""
    is_seen = ~np.isnan(z)
    known = np.where(is_seen, z, 0.0)
    for _ in range(N_ROUNDS):
        V = _loadings(known, n_factors, seed)
        known = np.where(is_seen, z, (known @ V) @ V.T)
    return known
