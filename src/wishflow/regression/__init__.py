"""Regression and classification: sparse GPs and flows, their objectives, training, presets and estimators."""

from .classifier import FlowClassifier as FlowClassifier
from .regions import JointRegion as JointRegion
from .regressors import FlowRegressor as FlowRegressor
from .regressors import SparseGPRegressor as SparseGPRegressor
