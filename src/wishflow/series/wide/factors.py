"""Common factors of many series: loadings by principal components, rows in two parts, densities without D × D matrices.

In scaled units z = V f + e with orthonormal loadings V (D, R), factors f = Vᵀ z, and what is left e = (I − V Vᵀ) z. The
two parts are orthogonal, so the density of a row is that of f times that of e within the complement of V: no variance
counts twice, whatever the law of f is.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from sklearn.utils.extmath import randomized_svd

# The most factors that are considered where their number is chosen, in all and in parts of the number of series.
MOST_FACTORS, LEAST_SERIES_PER_FACTOR = 20, 4
# Eigenvalues after those of the factors that tell how fast those of noise fall.
EDGE = 5
# Series are weighed by what is left of them; the share of their variance that is left counts at least as so much.
LEAST_LEFT = 0.05
# Factors of a row are known where the observed cells hold so much of each direction of their loadings.
LEAST_SEEN = 0.05
# The most that factors which are not known may add: to another factor, as a part of its variance, and to what is left
# of a cell, as a part of the variance 1 of its noise.
MOST_UNKNOWN = 0.25
# Rounds in which variances of the own parts are found from those of what the factors leave, and the largest of them.
N_VARIANCE_ROUNDS, LARGEST_VARIANCE = 20, 100.0
# Rounds in which missing cells are filled by the factors of the others, or the number of factors is corrected.
N_ROUNDS = 8


@dataclasses.dataclass(frozen=True)
class Loadings:
    """Level and scale of each series, orthonormal loadings V of the factors in these units, and their variances."""

    mean: Float[np.ndarray, " D"]
    scale: Float[np.ndarray, " D"]
    V: Float[np.ndarray, "D R"]
    variance: Float[np.ndarray, " R"]

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
        # Over observed cells alone: the filled ones have no noise. Their mean square is 1.
        left = np.nanmean((z - (known @ V) @ V.T) ** 2, axis=0)
        weight = np.sqrt(np.maximum(left, LEAST_LEFT))
        V = _loadings(known / weight, V.shape[1], seed)
        return cls(mean, sd * weight, V, np.mean((known / weight @ V) ** 2, axis=0))

    @property
    def n_factors(self) -> int:
        return self.V.shape[1]

    def forward(self, y: Float[np.ndarray, "... D"]) -> Float[np.ndarray, "... D"]:
        return (y - self.mean) / self.scale

    def parts(self, z: Float[np.ndarray, "T D"]) -> tuple[Float[np.ndarray, "T R"], Float[np.ndarray, "T D"]]:
        """Factors of each row, and what they leave of it; NaN where a cell is missing.

        Factors of a row with missing cells are those of a regression on its other cells. Factors that these do not tell
        are NaN, and so is what is left of the cells that such factors reach.
        """
        is_seen = ~np.isnan(z)
        if is_seen.all():
            f = z @ self.V
            return f, z - f @ self.V.T
        holes = np.flatnonzero(~is_seen.all(axis=1))
        is_used, is_known = self._told(is_seen[holes])
        f = np.where(is_seen, z, 0.0) @ self.V
        right = np.where(is_used, z[holes], 0.0) @ self.V * is_known
        found = np.linalg.solve(_among(self._gram(is_used.astype(float)), is_known), right[:, :, None])[:, :, 0]
        f[holes] = np.where(is_known, found, np.nan)
        e = z - np.nan_to_num(f) @ self.V.T
        e[holes] = np.where(is_used, e[holes], np.nan)
        return f, e

    def _told(self, is_seen: Bool[np.ndarray, "T D"]) -> tuple[Bool[np.ndarray, "T D"], Bool[np.ndarray, "T R"]]:
        """Which cells are used and which factors are known, where some cells are observed.

        One by one factors are given up: the one with the largest part in a direction of the loadings that the cells
        hardly see, or else the one to which those given up add most. Then cells to which these add too much are not
        used, and so on until nothing changes.
        """
        is_used, is_known = is_seen.copy(), np.ones((len(is_seen), self.n_factors), bool)
        at = np.arange(len(is_seen))
        while len(at):
            used, known = is_used[at], is_known[at]
            gram = self._gram(used.astype(float))
            values, vectors = np.linalg.eigh(_among(gram, known))
            added = self._added(gram, known)
            of_factors = np.diagonal(added, axis1=1, axis2=2) / self.variance * known
            is_blind, is_biased = values[:, 0] < LEAST_SEEN, of_factors.max(axis=1) > MOST_UNKNOWN
            worst = np.argmax(np.where(is_blind[:, None], np.abs(vectors[:, :, 0]) * known, of_factors), axis=1)
            is_changed = is_blind | is_biased
            is_known[at[is_changed], worst[is_changed]] = False
            of_cells = added.reshape(len(at), -1) @ self._products().T
            is_fouled = used & (of_cells > MOST_UNKNOWN) & ~is_changed[:, None]
            is_used[at] = used & ~is_fouled
            at = at[is_changed | is_fouled.any(axis=1)]
        return is_used, is_known

    def _added(self, gram: Float[np.ndarray, "T R R"], is_known: Bool[np.ndarray, "T R"]) -> Float[np.ndarray, "T R R"]:
        """Covariance of what factors that are not known add to all, where a regression finds the known ones.

        With B = G_kk⁻¹ G_ku the known ones move by B f_u, and a cell is left with (v_u − Bᵀ v_k)ᵀ f_u.
        """
        is_lost = ~is_known
        right = gram * (is_known[:, :, None] & is_lost[:, None, :])
        # A row that sees next to nothing of the known factors gives them up anyway.
        regular = _among(gram, is_known) + 1e-9 * np.eye(self.n_factors)
        moved = np.eye(self.n_factors) * is_lost[:, None, :] - np.linalg.solve(regular, right)
        return (moved * self.variance) @ moved.transpose(0, 2, 1)

    def own_variance(self, left: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
        """Variances S of independent x for which (I − V Vᵀ) x has the variances `left`, in O(D R²) a round.

        By rounds of S ← S · left / diag(P S P) with P = I − V Vᵀ. Where no S has exactly these variances, as a series
        is nearly a factor, the one that is reached.
        """
        found, lost = left.copy(), 2.0 * np.sum(self.V**2, axis=1)
        for _ in range(N_VARIANCE_ROUNDS):
            added = np.einsum("dr,rs,ds->d", self.V, (self.V.T * found) @ self.V, self.V)
            reached = np.maximum(found * (1.0 - lost) + added, 1e-12)
            found = np.minimum(found * np.clip(left / reached, 0.5, 2.0), LARGEST_VARIANCE * left.max())
        return found

    def joined(self, f: Float[np.ndarray, "... R"], x: Float[np.ndarray, "... D"]) -> Float[np.ndarray, "... D"]:
        """Rows in the units of y with factors f and the part of x that no factor reaches: z = V f + (I − V Vᵀ) x."""
        return self.mean + self.scale * (x + (f - x @ self.V) @ self.V.T)

    def left_log_density(
        self,
        d: Float[np.ndarray, "T D"],
        variance: Float[np.ndarray, "#T D"],
        is_known: Bool[np.ndarray, "T R"] | None = None,
    ) -> Float[np.ndarray, " T"]:
        """Log density of (I − V Vᵀ) x for x ~ N(0, S), S diagonal, within the complement of V; d is a value of it.

        With A = Vᵀ S⁻¹ V it is −½ (dᵀ S⁻¹ d − dᵀ S⁻¹ V A⁻¹ Vᵀ S⁻¹ d + log det S + log det A + (D − R) log 2π).

        Where cells are missing (NaN), V, S and d are those of the others; V has the columns of the factors that are
        known, by default of all. The number is the one to be added to the log density of the factors that `parts`
        finds. NaN where there is nothing but missing cells.
        """
        is_seen = ~np.isnan(d)
        is_known = np.ones((len(d), self.n_factors), bool) if is_known is None else is_known
        variance = np.broadcast_to(variance, d.shape)
        precision = np.where(is_seen, 1.0 / variance, 0.0)
        scaled = np.where(is_seen, d, 0.0) * precision
        has_any = is_seen.any(axis=1)
        is_known = is_known & has_any[:, None]
        A, b = _among(self._gram(precision), is_known), scaled @ self.V * is_known
        inner = np.einsum("tr,tr->t", b, np.linalg.solve(A, b[:, :, None])[:, :, 0])
        quadratic = np.sum(np.where(is_seen, d, 0.0) * scaled, axis=1) - inner
        log_det = np.sum(np.where(is_seen, np.log(variance), 0.0), axis=1) + np.linalg.slogdet(A)[1]
        constant = (is_seen.sum(axis=1) - is_known.sum(axis=1)) * np.log(2.0 * np.pi)
        return np.where(has_any, -0.5 * (quadratic + log_det + constant), np.nan)

    def log_jacobian(self, y: Float[np.ndarray, "T D"]) -> Float[np.ndarray, " T"]:
        """log |dz/dy| of the cells that are there."""
        return -np.sum(np.where(np.isnan(y), 0.0, np.log(self.scale)), axis=1)

    def _gram(self, weights: Float[np.ndarray, "T D"]) -> Float[np.ndarray, "T R R"]:
        """Vᵀ W V for diagonal weights of each row."""
        return (weights @ self._products()).reshape(len(weights), self.n_factors, self.n_factors)

    def _products(self) -> Float[np.ndarray, "D RR"]:
        return (self.V[:, :, None] * self.V[:, None, :]).reshape(len(self.V), -1)


def factor_names(n: int) -> list[str]:
    """Names of the factors in frames: "factor 1" and so on."""
    return [f"factor {k + 1}" for k in range(n)]


def _among(gram: Float[np.ndarray, "T R R"], is_known: Bool[np.ndarray, "T R"]) -> Float[np.ndarray, "T R R"]:
    """The matrices of the known factors alone; others have a 1 on the diagonal."""
    R = is_known.shape[1]
    return np.where(is_known[:, :, None] & is_known[:, None, :], gram, np.eye(R))


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
