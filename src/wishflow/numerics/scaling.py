"""Standardisation and widening inside the estimators: training statistics only, constant columns safe."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..errors import DataError

FENCE = 10.0
# A column is constant if its deviation is no more than this part of its largest entry. Rounding makes deviations of
# about 1e-16 of a constant. Numbers that differ in their twelfth digit are not constant.
ROUNDING = 1e-13
# In spreads of the quartiles: squares must not overflow.
FARTHEST_OUTLIER = 1e100


@dataclasses.dataclass(frozen=True)
class Scaler:
    """z = (x − mean) / scale, column by column."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, name: str = "X") -> Scaler:
        """Mean and standard deviation of the columns; a constant column is centred and left at scale one.

        "Constant" allows for rounding: the deviation of a large constant is of the order of its last digit.
        """
        # In units of the largest entry squares neither overflow nor vanish.
        unit = np.abs(values).max(axis=0)
        unit = np.where(unit > np.finfo(float).tiny, unit, 1.0)
        mean, sd = (values / unit).mean(axis=0), (values / unit).std(axis=0)
        scaler = cls(mean * unit, np.where(sd <= ROUNDING, 1.0, sd * unit))
        scaler._check_span(values, name)
        return scaler

    @classmethod
    def of_seen(cls, values: np.ndarray) -> Scaler:
        """`of` without entries that are missing (NaN), in any unit: powers of two are taken out, which rounds nothing.

        A column without any entry has mean zero and scale one.
        """
        is_seen = ~np.isnan(values)
        known, count = np.where(is_seen, values, 0.0), np.maximum(is_seen.sum(axis=0), 1)
        exponent = np.frexp(np.abs(known).max(axis=0, initial=0.0))[1]
        small = np.ldexp(known, -exponent)
        mean = small.sum(axis=0) / count
        sd = np.sqrt((np.where(is_seen, small - mean, 0.0) ** 2).sum(axis=0) / count)
        return cls(np.ldexp(mean, exponent), np.where(sd <= ROUNDING, 1.0, np.ldexp(sd, exponent)))

    @classmethod
    def robust(cls, values: np.ndarray, name: str = "X") -> Scaler:
        """`of` with entries beyond the fences put at the nearer fence: those of outliers that have no limits.

        The fences lie FENCE times the distance of the quartiles beyond them; within them this is `of`. A column whose
        quartiles are equal, or to which its largest entry is out of all proportion, is left as it is.
        """
        with np.errstate(over="ignore"):
            low, high = np.quantile(values, [0.25, 0.75], axis=0)
            spread = high - low
            has_fences = (spread > 0) & (np.abs(values).max(axis=0) <= FARTHEST_OUTLIER * spread)
            reach = np.where(has_fences, FENCE * spread, np.inf)
        scaler = cls.of(np.clip(values, low - reach, high + reach), name)
        scaler._check_span(values, name)
        return scaler

    @classmethod
    def identity(cls, n_columns: int) -> Scaler:
        return cls(np.zeros(n_columns), np.ones(n_columns))

    def forward(self, values: np.ndarray) -> np.ndarray:
        return (values - self.mean) / self.scale

    def inverse(self, values: np.ndarray) -> np.ndarray:
        return values * self.scale + self.mean

    def _check_span(self, values: np.ndarray, name: str) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            is_good = np.isfinite(self.forward(values)).all(axis=0)
        if not is_good.all():
            column = int(np.flatnonzero(~is_good)[0])
            raise DataError(
                f"column {column} of {name} spans {values[:, column].min():g} to {values[:, column].max():g}, "
                "more than a double can hold; divide it by a constant."
            )


def random_directions(X: np.ndarray, state_dim: int, seed: int) -> np.ndarray:
    """Directions R (D, K), K = state_dim − D, along each of which the standardised rows (N, D) have variance one."""
    directions = np.random.default_rng(seed).normal(size=(X.shape[1], state_dim - X.shape[1]))
    return directions / Scaler.of(X @ directions).scale


def with_directions(X: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """The state (x, x R) in which a flow starts, (N, D + K)."""
    return np.hstack([X, X @ directions])
