"""Whether the predictive law of a regressor fits rows it has not seen, as numbers, in words and as a figure."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..numerics.tables import in_words
from ..wishart.collapse import ratio_words
from .summary import REMEDY

LEVELS = (0.5, 0.8, 0.95)
N_BINS = 10
# Intervals that cover so much less than their level, beyond two standard errors, are called over-confident.
TOLERANCE = 0.02


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` of a regressor has found.

    Parameters
    ----------
    pit : ndarray of shape (N, P)
        P(Y ≤ y) by the predictive law, of counts P(Y < y) + u P(Y = y) with u uniform: uniform where the law is right.
    histogram : ndarray of shape (10,)
        How many of these values lie in each tenth.
    coverage : dict of float to float
        The part of the rows inside the central interval of each level.
    width : dict of float to float
        The mean width of these intervals in the units of y.
    rmse : float
        Root mean squared error of the mean.
    log_density : float
        Mean log density of the rows.
    correlation : ndarray of shape (P, P) or None
        Correlation of the errors of several targets.
    whitened_correlation : ndarray of shape (P, P) or None
        Correlation of the errors whitened by the predictive covariance of each row: near the identity where that
        covariance is right.
    warnings : tuple of str
        What is wrong, in words.
    diffusion_ratio : float or None
        Standard deviation of a flow's diffusion, √(T tr Σ̄/D) at its inducing points, divided by that of the noise of
        targets, in scaled units. Near 0 the diffusion has collapsed. None where there is no such flow.
    """

    pit: Float[np.ndarray, "N P"]
    histogram: Int[np.ndarray, " bins"]
    coverage: dict[float, float]
    width: dict[float, float]
    rmse: float
    log_density: float
    correlation: Float[np.ndarray, "P P"] | None
    whitened_correlation: Float[np.ndarray, "P P"] | None
    warnings: tuple[str, ...]
    diffusion_ratio: float | None = None

    def __str__(self) -> str:
        lines = [f"{len(self.pit)} rows: log density {self.log_density:.3f}, RMSE {in_words(self.rmse)}"]
        for level, inside in self.coverage.items():
            width = self.width[level]
            lines.append(f"{level:.0%} intervals contain {inside:.1%} of the values, mean width {in_words(width)}")
        if self.diffusion_ratio is not None:
            lines.append(ratio_words(self.diffusion_ratio, REMEDY))
        return "\n".join([*lines, *self.warnings])

    def plot(self, axes: Any = None) -> Any:
        """Draw the histogram of the PIT and the coverage.

        Parameters
        ----------
        axes : sequence of two Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        ndarray of two Axes
            The axes.
        """
        from ..plotting import plot_calibration

        return plot_calibration(self.histogram, self.coverage, axes)


def diagnosis_of(
    y: Float[np.ndarray, "N P"],
    mean: Float[np.ndarray, "N P"],
    covariance: Float[np.ndarray, "N P P"],
    pit: Float[np.ndarray, "N P"],
    intervals: dict[float, tuple[Float[np.ndarray, "N P"], Float[np.ndarray, "N P"]]],
    log_prob: Float[np.ndarray, " N"],
    diffusion_ratio: float | None = None,
) -> Diagnosis:
    """From the predictions of rows and their targets; `intervals` has the two ends for each level."""
    coverage = {level: float(np.mean((low <= y) & (y <= high))) for level, (low, high) in intervals.items()}
    widths = {level: float(np.mean(high - low)) for level, (low, high) in intervals.items()}
    errors = y - mean
    correlation = whitened = None
    if y.shape[1] > 1:
        factors = np.linalg.cholesky(covariance)
        correlation = np.corrcoef(errors.T)
        whitened = np.corrcoef(np.linalg.solve(factors, errors[..., None])[..., 0].T)
    return Diagnosis(
        pit,
        np.histogram(pit, N_BINS, (0.0, 1.0))[0],
        coverage,
        widths,
        float(np.sqrt(np.mean(errors**2))),
        float(np.mean(log_prob)),
        correlation,
        whitened,
        tuple(_warnings(coverage, pit.shape[0])),
        diffusion_ratio,
    )


def _warnings(coverage: dict[float, float], n_rows: int) -> list[str]:
    """Levels whose intervals hold too little."""
    found = []
    for level, inside in coverage.items():
        error = np.sqrt(level * (1.0 - level) / n_rows)
        if inside < level - TOLERANCE - 2.0 * error:
            found.append(
                f"over-confident: {level:.0%} intervals contain {inside:.1%} of the targets of {n_rows} rows; use "
                "n_members=5, keep calibrate='auto', or check that these rows are like those of training."
            )
    return found
