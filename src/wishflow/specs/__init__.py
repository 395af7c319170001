"""Specs: what a user asks for, as frozen dataclasses of plain values; their registry, and checks of options.

Specs of kernels, likelihoods, diffusions, models and training stand with what they are of (`wishflow.kernels.specs`,
`wishflow.series.specs`, …).
"""

from .base import Spec as Spec
from .base import resolve as resolve
from .registry import builder_of as builder_of
from .registry import checked_part as checked_part
from .registry import from_json as from_json
from .registry import known as known
from .registry import register as register
