"""The Wishart field dx = μ dt + √(Σ + Λ) dB of flows and time series, diffGP beside it, and the solver."""

from .base import AbstractField as AbstractField
from .base import AbstractLayout as AbstractLayout
from .base import AbstractPreparedField as AbstractPreparedField
from .base import FieldValues as FieldValues
from .base import StateLayout as StateLayout
from .building import build as build
from .building import start_drift as start_drift
from .building import start_noise as start_noise
from .field import Field as Field
from .field import GPDrift as GPDrift
from .field import PreparedField as PreparedField
from .given import GivenField as GivenField
from .gp import GPNoise as GPNoise
from .noise import AbstractNoise as AbstractNoise
from .noise import NoiseValues as NoiseValues
from .noise import PreparedNoise as PreparedNoise
from .white import WhiteNoise as WhiteNoise
from .wishart import WishartNoise as WishartNoise
