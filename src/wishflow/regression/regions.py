"""Joint regions for the targets of a row: ellipsoids of the predictive law, their size by split conformal prediction.

The region at x is {y: (y − m(x))ᵀ Σ(x)⁻¹ (y − m(x)) ≤ r²}. m and Σ are mean and covariance of the predictive law. r is
a quantile of these distances at calibration rows, which took no part in training and are exchangeable with new ones.
Whatever the law is, the region then contains the targets of a new row with a probability of at least c, and of less
than c + 1/(n + 1) where no distances are equal (Lei et al. 2018; for ellipsoids Johnstone and Cox 2021, Messoudi et al.
2022).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from ..errors import DataError
from ..specs import checks
from .data import checked_groups, checked_targets

# Ranks leave rounding aside: 100 · 0.55 is a little more than 55, and 5/6 as a double a little more than 5/6.
ROUNDING = 1e-12

# Why one group is too few: without groups the region would seem to hold its coverage, but its rows are not independent.
MORE_GROUPS = "because one row of each group counts: pass calibration rows of more groups"

Moments = Callable[[Any], tuple[np.ndarray, np.ndarray]]


def conformal_rank(n_rows: int, coverage: float) -> int:
    """⌈(n + 1) c⌉: which of n ordered scores is the radius; n + 1 where none of them is large enough."""
    return math.ceil((n_rows + 1) * coverage * (1.0 - ROUNDING))


def rows_needed(coverage: float) -> int:
    """The fewest calibration rows that have a radius: the smallest n with ⌈(n + 1) c⌉ ≤ n."""
    coverage = coverage * (1.0 - ROUNDING)
    return math.ceil(coverage / (1.0 - coverage))


def conformal_radius(distances: Float[np.ndarray, " N"], coverage: float) -> float:
    """The smallest radius that holds ⌈(n + 1) c⌉ of n calibration rows."""
    n_rows, rank = len(distances), conformal_rank(len(distances), coverage)
    if rank > n_rows:
        raise DataError(
            f"{n_rows} calibration rows given for coverage={coverage}; expected at least {rows_needed(coverage)}: "
            f"pass more rows, or a coverage of at most {n_rows}/{n_rows + 1}."
        )
    radius = float(np.sort(distances)[rank - 1])
    if not math.isfinite(radius):  # NaN is sorted behind all numbers
        n_bad = int((~np.isfinite(distances)).sum())
        raise DataError(
            f"{n_bad} of {n_rows} calibration rows have no finite distance to their prediction; expected rows like "
            "those of training: check their inputs and targets."
        )
    return radius


def distances(
    y: Float[np.ndarray, "N P"], mean: Float[np.ndarray, "N P"], covariance: Float[np.ndarray, "N P P"]
) -> Float[np.ndarray, " N"]:
    """Mahalanobis distances √((y − m)ᵀ Σ⁻¹ (y − m))."""
    sd, factors = _standardised(covariance)
    errors = (y - mean) / sd
    return np.linalg.norm(np.linalg.solve(factors, errors[..., None])[..., 0], axis=-1)


def log_volumes(covariance: Float[np.ndarray, "N P P"], radius: float) -> Float[np.ndarray, " N"]:
    """log of π^{P/2} r^P √|Σ| / Γ(P/2 + 1)."""
    n_outputs = covariance.shape[-1]
    sd, factors = _standardised(covariance)
    log_root = np.log(sd).sum(-1) + np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(-1)
    log_ball = 0.5 * n_outputs * np.log(np.pi) - scipy.special.gammaln(0.5 * n_outputs + 1.0)
    with np.errstate(divide="ignore"):  # a radius of zero
        return log_ball + n_outputs * np.log(radius) + log_root


def _standardised(
    covariance: Float[np.ndarray, "N P P"],
) -> tuple[Float[np.ndarray, "N P"], Float[np.ndarray, "N P P"]]:
    """Standard deviations, and Cholesky factors of correlations: targets may be of very different size."""
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    return sd, np.linalg.cholesky(covariance / (sd[:, :, None] * sd[:, None, :]))


def _one_of_each(groups: Int[np.ndarray, " N"]) -> Int[np.ndarray, " G"]:
    """The place of one row of each group, chosen at random, with a fixed seed."""
    order = np.random.default_rng(0).permutation(len(groups))
    return order[np.unique(groups[order], return_index=True)[1]]


@dataclasses.dataclass(frozen=True)
class JointRegion:
    """Ellipsoids that contain the targets of new rows with a given probability.

    `conformal_region` of a regressor makes them. A region does not change when its estimator is fitted again. It can be
    pickled.

    Parameters
    ----------
    coverage : float
        The probability c that was asked for.
    radius : float
        The radius r, in units of the predictive law. For P targets whose law is normal and right it is near the root of
        the c-quantile of χ²_P. A larger one says that the law is too narrow.
    n_rows : int
        The number n of calibration rows, or of their groups. The coverage of one region varies with them: it has a Beta
        law with parameters k = ⌈(n + 1) c⌉ and n + 1 − k.
    moments : callable
        The predictive mean (N, P) and covariance over targets (N, P, P) of rows X, in the units of y.

    Notes
    -----
    The region at x is {y: (y − m(x))ᵀ Σ(x)⁻¹ (y − m(x)) ≤ r²}, with the mean m and the covariance Σ of the predictive
    law. r is a quantile of these distances at calibration rows, which took no part in training (split conformal
    prediction). Whatever the law is, the region contains the targets of a new row with a probability of at least c, and
    of less than c + 1/(n + 1) where no distances are equal.

    Examples
    --------
    >>> import numpy as np
    >>> import wishflow as wf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2.0, 2.0, (80, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X[:40], y[:40])
    >>> region = model.conformal_region(X[40:], y[40:], coverage=0.9)
    >>> region.n_rows, bool(region.contains(X[40:], y[40:]).mean() >= 0.9)
    (40, True)
    """

    coverage: float
    radius: float
    n_rows: int
    moments: Moments = dataclasses.field(repr=False)

    @classmethod
    def of(cls, moments: Moments, X: Any, y: Any, coverage: float, groups: Any = None) -> JointRegion:
        """Make the region of a law with these moments whose radius comes from calibration rows.

        Parameters
        ----------
        moments : callable
            The predictive mean (N, P) and covariance over targets (N, P, P) of rows X, in the units of y.
        X : array-like of shape (n, D)
            Inputs of the calibration rows.
        y : array-like of shape (n,) or (n, P)
            Their targets.
        coverage : float
            The probability, strictly between 0 and 1.
        groups : array-like of shape (n,), optional
            Labels of rows that belong together, such as the rows of one subject or copies of a row. One row of each
            group is used, chosen at random: groups are exchangeable with new ones where their rows are not.

        Returns
        -------
        JointRegion
            The region.

        Raises
        ------
        OptionError
            If `coverage` is not one number between 0 and 1.
        DataError
            If there are too few rows for the coverage, or they are at no finite distance from their predictions.
        """
        level = checks.level("coverage", coverage, "call again for each of several")
        mean, covariance = moments(X)
        found = distances(checked_targets(y, *mean.shape), mean, covariance)
        if groups is not None:
            found = found[_one_of_each(checked_groups(groups, len(found), MORE_GROUPS))]
        return cls(level, conformal_radius(found, level), len(found), moments)

    def ellipsoids(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return centres and covariances of the ellipsoids, in the units of y.

        Along target p an ellipsoid reaches from m_p − r √Σ_pp to m_p + r √Σ_pp. With one target that is the region.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.

        Returns
        -------
        centres : ndarray of shape (N, P)
            The predictive means m.
        covariances : ndarray of shape (N, P, P)
            The predictive covariances Σ. The ellipsoid has the matrix r² Σ.
        """
        return self.moments(X)

    def contains(self, X: Any, y: Any) -> np.ndarray:
        """Tell whether targets lie in the region of their row.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.
        y : array-like of shape (N,) or (N, P)
            Targets.

        Returns
        -------
        ndarray of bool of shape (N,)
            True for rows whose targets all lie inside.
        """
        mean, covariance = self.moments(X)
        return distances(checked_targets(y, *mean.shape), mean, covariance) <= self.radius

    def volume(self, X: Any) -> np.ndarray:
        """Return the logarithm of the volume of each ellipsoid, in the units of y.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.

        Returns
        -------
        ndarray of shape (N,)
            Log volumes.
        """
        return log_volumes(self.moments(X)[1], self.radius)
