"""Forecasting: frames in, joint sample paths out."""

from .backtest import backtest as backtest
from .forecaster import WishartForecaster as WishartForecaster
