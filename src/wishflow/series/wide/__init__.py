"""Many series in one model: common factors and, for each series, dynamics of its own."""

from .forecaster import WideForecaster as WideForecaster
