"""SDEs with Wishart diffusions, learnt by variational inference (Jørgensen, Deisenroth, Salimbeni, ICML 2020)."""

from . import callbacks, datasets, diffusions, kernels, likelihoods, metrics
from .estimators import FlowClassifier, FlowRegressor, SparseGPRegressor, fit_many, load
from .runtime import enable_compilation_cache

__version__ = "0.1.0"

__all__ = [
    "FlowClassifier",
    "FlowRegressor",
    "SparseGPRegressor",
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
