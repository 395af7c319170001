"""SDEs with Wishart diffusions, learnt by variational inference (Jørgensen, Deisenroth, Salimbeni, ICML 2020)."""

from typing import TYPE_CHECKING

from .deferred import deferred

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

if TYPE_CHECKING:  # for type checkers and editors, what `__all__` names
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
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "estimators": (
                "FlowClassifier",
                "FlowRegressor",
                "SparseGPRegressor",
                "WishartForecaster",
                "backtest",
                "fit_many",
                "load",
            ),
            "forecast": ("Forecast",),
            "runtime": ("enable_compilation_cache",),
        },
        modules=(
            *("callbacks", "datasets", "diffusions", "kernels", "likelihoods", "metrics"),
            *("errors", "estimators", "fields", "files", "filtering", "forecast", "inducing", "initialise", "linalg"),
            *("models", "noise", "objectives", "parameters", "particles", "plotting", "presets", "runtime", "series"),
            *("solver", "specs", "training"),
        ),
    )
