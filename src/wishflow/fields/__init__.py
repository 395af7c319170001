"""Drift and diffusion behind one interface; a new diffusion is one file."""

from .base import AbstractField as AbstractField
from .base import FieldValues as FieldValues
from .base import PreparedField as PreparedField
from .build import build as build
from .deterministic import ConstantNoiseField as ConstantNoiseField
from .dynamic import DynamicField as DynamicField
from .given import GivenField as GivenField
from .gp import GPField as GPField
from .wishart import WishartField as WishartField
