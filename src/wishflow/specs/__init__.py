"""Specs: what a user asks for, as frozen dataclasses of plain values; and checks of options.

Specs of kernels, likelihoods, diffusions, models and training stand with what they are of (`wishflow.kernels.specs`,
`wishflow.series.specs`, …).
"""

from .base import Spec as Spec
from .base import from_json as from_json
from .base import resolve as resolve
