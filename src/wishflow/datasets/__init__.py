"""Data: regression sets of the published comparisons and their splits, time series, and problems with known truth."""

from .beijing import beijing_periods, load_beijing
from .sdes.base import SyntheticSDE
from .sdes.double_well import make_double_well
from .sdes.lotka_volterra import make_lotka_volterra
from .sdes.ornstein_uhlenbeck import make_ornstein_uhlenbeck
from .sdes.wishart_volatility import make_wishart_volatility
from .simulated import SimulatedFlow, make_heteroskedastic_2d
from .splits import split, validation_split
from .uci import UCI_NAMES, Dataset, load_uci
from .weather import load_nyc_weather

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
