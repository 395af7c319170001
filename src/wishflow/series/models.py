"""Which function builds the model of a spec."""

from __future__ import annotations

from collections.abc import Callable

from . import autoregressive as dynamics
from . import latent
from .specs import DynamicsSpec


def model_builder(spec: DynamicsSpec) -> Callable:
    """The function (spec, layout, start, Z, key) that builds the model of a series."""
    return dynamics.build if spec.latent is None else latent.build
