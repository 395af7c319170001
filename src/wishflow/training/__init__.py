"""Training: pure compiled chunks of steps, and the loop on the host around them."""

from .loop import HELD_OUT as HELD_OUT
from .loop import Trained as Trained
from .specs import TrainingSpec as TrainingSpec
