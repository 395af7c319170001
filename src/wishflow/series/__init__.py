"""Time series: windows, models, filters, objectives, presets; forecaster, forecasts, backtests."""

from .backtesting import backtest as backtest
from .forecast import Forecast as Forecast
from .forecaster import WishartForecaster as WishartForecaster
from .specs import DynamicsSpec as DynamicsSpec
from .specs import Latent as Latent
from .wide import WideForecaster as WideForecaster
