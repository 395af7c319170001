"""What a trained model of a series can do, compiled: filtering, forecasts, densities, covariances."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ..latent import LatentModel
from .autoregressive import AutoRegressiveRunner
from .base import AbstractRunner
from .latent import LatentRunner


def runner_of(model: Any, limits: Float[np.ndarray, "2 P"] | None = None) -> AbstractRunner:
    """`limits` are the lowest and highest values of simulated paths; a latent state has none."""
    return LatentRunner(model) if isinstance(model, LatentModel) else AutoRegressiveRunner(model, limits)
