"""Training: pure compiled chunks of steps, and the loop on the host around them."""

from .loop import HELD_OUT as HELD_OUT
from .loop import Problem as Problem
from .loop import SeriesProblem as SeriesProblem
from .loop import Trained as Trained
from .loop import train_series as train_series
from .rows import train as train
