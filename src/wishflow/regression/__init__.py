"""Regression and classification: sparse GPs and flows, their objectives, training, presets and estimators."""

import warnings
from typing import Any

from .classifier import FlowClassifier as FlowClassifier
from .regions import JointRegion as JointRegion
from .regressors import FlowRegressor as FlowRegressor
from .regressors import SparseGPRegressor as SparseGPRegressor


def __getattr__(name: str) -> Any:
    if name != "fit_many":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    text = "wishflow.regression.fit_many is deprecated and will be removed in 0.3; use wishflow.fit_many."
    warnings.warn(text, DeprecationWarning, stacklevel=2)
    from .. import fit_many

    return fit_many
