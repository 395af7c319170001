"""What a trained model of a series can do, compiled: filtering, forecasts, densities, covariances."""

from typing import Any

from ....models import LatentModel
from .autoregressive import AutoRegressiveRunner
from .base import AbstractRunner as AbstractRunner
from .latent import LatentRunner


def runner_of(model: Any, lags: int) -> AbstractRunner:
    return LatentRunner(model) if isinstance(model, LatentModel) else AutoRegressiveRunner(model, lags)
