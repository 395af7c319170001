"""Training: pure compiled chunks of steps, and the loop on the host around them."""

from .loop import Problem as Problem
from .loop import Trained as Trained
from .loop import train as train
