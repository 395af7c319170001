"""Estimators in the manner of scikit-learn."""

from .classification import FlowClassifier as FlowClassifier
from .forecasting import WishartForecaster as WishartForecaster
from .forecasting import backtest as backtest
from .many import fit_many as fit_many
from .regression import FlowRegressor as FlowRegressor
from .regression import SparseGPRegressor as SparseGPRegressor
from .storage import load as load
