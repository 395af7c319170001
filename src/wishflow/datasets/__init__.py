"""Data: regression sets of the published comparisons and their splits, time series, and problems with known truth."""

from .beijing import beijing_periods as beijing_periods
from .beijing import load_beijing as load_beijing
from .sdes import SyntheticSDE as SyntheticSDE
from .sdes import make_double_well as make_double_well
from .sdes import make_lotka_volterra as make_lotka_volterra
from .sdes import make_ornstein_uhlenbeck as make_ornstein_uhlenbeck
from .sdes import make_wishart_volatility as make_wishart_volatility
from .simulated import SimulatedFlow as SimulatedFlow
from .simulated import make_heteroskedastic_2d as make_heteroskedastic_2d
from .splits import split as split
from .splits import validation_split as validation_split
from .uci import UCI_NAMES as UCI_NAMES
from .uci import Dataset as Dataset
from .uci import load_uci as load_uci
from .weather import load_nyc_weather as load_nyc_weather

__all__ = [
    "UCI_NAMES",
    "Dataset",
    "SimulatedFlow",
    "SyntheticSDE",
    "beijing_periods",
    "load_beijing",
    "load_nyc_weather",
    "load_uci",
    "make_double_well",
    "make_heteroskedastic_2d",
    "make_lotka_volterra",
    "make_ornstein_uhlenbeck",
    "make_wishart_volatility",
    "split",
    "validation_split",
]
