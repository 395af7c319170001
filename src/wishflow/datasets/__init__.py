"""Data: the regression sets of the published comparisons, their splits, and simulated problems with known truth."""

from .simulated import SimulatedFlow as SimulatedFlow
from .simulated import make_heteroskedastic_2d as make_heteroskedastic_2d
from .splits import split as split
from .splits import validation_split as validation_split
from .uci import UCI_NAMES as UCI_NAMES
from .uci import Dataset as Dataset
from .uci import load_uci as load_uci

__all__ = [
    "UCI_NAMES",
    "Dataset",
    "SimulatedFlow",
    "load_uci",
    "make_heteroskedastic_2d",
    "split",
    "validation_split",
]
