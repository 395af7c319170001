"""Standardisation inside the estimators: training statistics only, constant columns safe."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Scaler:
    """z = (x − mean) / scale, column by column."""

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Scaler:
        """Mean and standard deviation of the columns; a constant column is centred and left at scale one.

        "Constant" allows for rounding: the deviation of a large constant is of the order of its last digit.
        """
        mean = values.mean(axis=0)
        sd = values.std(axis=0)
        is_constant = sd <= 1e-10 * np.maximum(np.abs(mean), np.abs(values).max(axis=0)) + np.finfo(float).tiny
        return cls(mean, np.where(is_constant, 1.0, sd))

    @classmethod
    def identity(cls, n_columns: int) -> Scaler:
        return cls(np.zeros(n_columns), np.ones(n_columns))

    def forward(self, values: np.ndarray) -> np.ndarray:
        return (values - self.mean) / self.scale

    def inverse(self, values: np.ndarray) -> np.ndarray:
        return values * self.scale + self.mean
