"""Estimators in the manner of scikit-learn."""

from typing import TYPE_CHECKING

from ..deferred import deferred

if TYPE_CHECKING:  # for type checkers and editors, the same names as below
    from .classification import FlowClassifier as FlowClassifier
    from .forecasting import WishartForecaster as WishartForecaster
    from .forecasting.backtest import backtest as backtest
    from .many import fit_many as fit_many
    from .regression import FlowRegressor as FlowRegressor
    from .regression import SparseGPRegressor as SparseGPRegressor
    from .storage import load as load
else:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "classification": ("FlowClassifier",),
            "forecasting": ("WishartForecaster",),
            "forecasting.backtest": ("backtest",),
            "many": ("fit_many",),
            "regression": ("FlowRegressor", "SparseGPRegressor"),
            "storage": ("load",),
        },
        modules=(
            "base",
            "checks",
            "classification",
            "forecasting",
            "many",
            "prediction",
            "regression",
            "scaling",
            "storage",
        ),
    )
