"""Training: phases as values, compiled chunks of steps, and the loop on the host around them."""

from .checkpoints import Checkpointing as Checkpointing
from .journal import Journal as Journal
from .journal import Trained as Trained
from .loop import HELD_OUT as HELD_OUT
from .loop import StochasticPhase as StochasticPhase
from .phases import AbstractPhase as AbstractPhase
from .phases import run_phases as run_phases
from .specs import TrainingSpec as TrainingSpec
