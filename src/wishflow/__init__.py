"""SDEs with Wishart diffusions, learnt by variational inference (Jørgensen, Deisenroth, Salimbeni, ICML 2020)."""

from . import callbacks, datasets, diffusions, kernels, likelihoods, metrics
from .estimators import (
    FlowClassifier,
    FlowRegressor,
    SparseGPRegressor,
    WishartForecaster,
    backtest,
    fit_many,
    load,
)
from .forecast import Forecast
from .runtime import enable_compilation_cache

__version__ = "0.1.0"

__all__ = [
    "FlowClassifier",
    "FlowRegressor",
    "Forecast",
    "SparseGPRegressor",
    "WishartForecaster",
    "backtest",
    "callbacks",
    "datasets",
    "diffusions",
    "enable_compilation_cache",
    "fit_many",
    "kernels",
    "likelihoods",
    "load",
    "metrics",
]
