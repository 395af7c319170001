"""SDEs with Wishart diffusions, learnt by variational inference (Jørgensen, Deisenroth, Salimbeni, ICML 2020)."""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

__all__ = [
    "Checkpointing",
    "FlowClassifier",
    "FlowRegressor",
    "Forecast",
    "JointRegion",
    "SparseGPRegressor",
    "TrainingSpec",
    "WideForecaster",
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
    "register",
]

if TYPE_CHECKING:  # for type checkers and editors, what `__all__` names
    from . import callbacks, datasets, diffusions, kernels, likelihoods, metrics
    from .estimators import fit_many, load
    from .numerics.devices import enable_compilation_cache
    from .regression import FlowClassifier, FlowRegressor, JointRegion, SparseGPRegressor
    from .series import Forecast, WideForecaster, WishartForecaster, backtest
    from .specs import register
    from .training import Checkpointing, TrainingSpec

# Names are imported on first access (PEP 562): JAX, scikit-learn, pandas and xarray take seconds to import.
_HOMES = {
    "FlowClassifier": "regression",
    "FlowRegressor": "regression",
    "JointRegion": "regression",
    "SparseGPRegressor": "regression",
    "fit_many": "estimators",
    "Forecast": "series",
    "WideForecaster": "series",
    "WishartForecaster": "series",
    "backtest": "series",
    "load": "estimators",
    "enable_compilation_cache": "numerics.devices",
    "register": "specs",
    "Checkpointing": "training",
    "TrainingSpec": "training",
}
_MODULES = (
    *("callbacks", "datasets", "diffusions", "errors", "estimators", "files", "inducing", "kernels", "likelihoods"),
    *("metrics", "numerics", "plotting", "regression", "report", "series", "specs", "training", "wishart"),
)
# Modules under their names of 0.1, which are removed in 0.3.
_MOVED = {"loading": "estimators.loading"}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        text = f"wishflow.{name} is deprecated and will be removed in 0.3; use wishflow.{_MOVED[name]}."
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return importlib.import_module(f".{_MOVED[name]}", __name__)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value  # later accesses do not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
