"""Sparse GPs that explain nothing of their targets, and what is said of them."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..errors import TrainingWarning
from ..training.journal import Trained
from .law import Law
from .prediction import predictive_moments

# A fit that explains something is this many nats ahead of noise alone.
LEAST_GAIN = 1.0
# Fewer rows than these have as little to say of a function that is there.
LEAST_ROWS = 20
# Predictions with less than this share of the variance of the targets are their mean, to a tenth of their deviation.
LEAST_SHARE = 0.01
NOTHING = "explains nothing: the predictions are the mean of the targets"


def told(trained: Trained, X: Float[np.ndarray, "N D"], y: Float[np.ndarray, "N P"]) -> Trained:
    """The fit, with a status that says so where it ended as noise alone."""
    if len(y) < LEAST_ROWS or float(trained.history["objective"].iloc[-1]) > of_noise(y) + LEAST_GAIN:
        return trained
    means = predictive_moments(Law.of(trained.model), X, 0, 1)[0]
    if (means.var(axis=0) > LEAST_SHARE * y.var(axis=0)).any():
        return trained
    return dataclasses.replace(trained, status=f"{trained.status}; {NOTHING}")


def of_noise(y: Float[np.ndarray, "N P"]) -> float:
    """The highest log density of the targets by normal distributions around zero, one for each output; −∞ where an
    output is constant, because there noise is not what a fit has missed.
    """
    variances = np.mean(y**2, axis=0)
    if not variances.all():
        return -np.inf
    return -0.5 * len(y) * float(np.sum(np.log(2.0 * np.pi * variances) + 1.0))


def warn_of(statuses: Sequence[str]) -> bool:
    """Warn where all fits with these statuses explain nothing; whether that is so."""
    is_nothing = all(NOTHING in status for status in statuses)
    if is_nothing:
        warnings.warn(
            f"the fit {NOTHING}. Either no column of X says anything about them, or the rows are too few to see it.",
            TrainingWarning,
            stacklevel=2,
        )
    return is_nothing
