"""Sparse GPs that end as noise alone, and further starts for them.

With many inputs the kernel may tell no row anything about another at the usual start. The first steps then raise the
noise until it explains all, and no gradient leads back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ..training.journal import Trained
from ..training.loop import CONVERGED, STOPPED
from ..training.specs import TrainingSpec
from .hyperprior import LOG_LENGTHSCALE

# Nats that a fit must be ahead of noise alone, and another fit of the first.
LEAST_GAIN = 1.0
# Starting lengthscales in units of √D. At the longer one functions are nearly linear over the data.
LONG = (1.0, float(np.exp(LOG_LENGTHSCALE)))
# The phase of such a fit, for callbacks and histories.
LONG_START = "long lengthscale"


def best_of_starts(
    first: Trained,
    training: TrainingSpec,
    X: Float[np.ndarray, "N D"],
    y: Float[np.ndarray, "N P"],
    fit: Callable[[TrainingSpec], Trained],
) -> Trained:
    """The first fit, or, where it ends as noise alone, the best of it and of fits from long lengthscales."""
    if not first.status.startswith(CONVERGED) or _objective(first) > _of_noise(y) + LEAST_GAIN:
        return first
    best, starts = first, [long * X.shape[1] ** 0.5 for long in LONG]
    for start in (one for one in starts if one > training.output_lengthscale):
        found = fit(dataclasses.replace(training, output_lengthscale=start))
        if _objective(found) > _objective(best) + LEAST_GAIN:
            said = f"{found.status} from a long lengthscale; from the usual one all is noise"
            best = dataclasses.replace(found, status=said)
        if found.status.startswith(STOPPED):
            break
    return best


def _objective(trained: Trained) -> float:
    return float(trained.history["objective"].iloc[-1])


def _of_noise(y: Float[np.ndarray, "N P"]) -> float:
    """The highest log density of the targets by normal distributions around zero, one for each output; −∞ where an
    output is constant, because there noise is not what a fit has missed.
    """
    variances = np.mean(y**2, axis=0)
    if not variances.all():
        return -np.inf
    return -0.5 * len(y) * float(np.sum(np.log(2.0 * np.pi * variances) + 1.0))
