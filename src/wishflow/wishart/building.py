"""From a diffusion spec to a noise, and to the field of a flow, once the shapes are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..inducing import InducingBasis
from ..numerics.parameters import Positive, zeros
from . import gp, wishart
from .base import StateLayout
from .field import Field, GPDrift
from .noise import AbstractNoise
from .specs import Diagonal, DiffusionSpec, GPDiffusion, NoDiffusion, Wishart
from .white import WhiteNoise

# (spec, basis, dim, key, covariance to start from or None) → noise, and what it explains of that covariance.
Starter = Callable[..., tuple[AbstractNoise | None, np.ndarray]]


def _nothing(spec: DiffusionSpec, basis: InducingBasis, dim: int, key: Any, covariance: Any) -> tuple[None, np.ndarray]:
    """All of Σ is white noise."""
    del spec, basis, key, covariance
    return None, np.zeros((dim, dim))


STARTS: dict[type[DiffusionSpec], Starter] = {
    NoDiffusion: _nothing,
    Diagonal: _nothing,
    GPDiffusion: gp.start,
    Wishart: wishart.start,
}


def start_noise(
    spec: DiffusionSpec,
    basis: InducingBasis,
    dim: int,
    key: PRNGKeyArray,
    covariance: Float[np.ndarray, "D D"] | None = None,
) -> tuple[AbstractNoise | None, Float[np.ndarray, "D D"]]:
    """The noise a spec asks for, and what it explains of a covariance to start from."""
    if type(spec) not in STARTS:
        raise TypeError(f"no field is known for the diffusion spec {spec!r}.")
    return STARTS[type(spec)](spec, basis, dim, key, covariance)


def build(
    spec: DiffusionSpec, basis: InducingBasis, dim: int, key: PRNGKeyArray, is_time_dependent: bool = False
) -> Field:
    """The field of a flow on a given basis, with a drift of zero and the noise near its prior.

    "No noise" has no penalty for its drift (the paper's ablation).
    """
    noise, _ = start_noise(spec, basis, dim, key)
    white = getattr(spec, "white", None)
    is_drift = isinstance(noise, gp.GPNoise)
    return Field(
        basis,
        None,
        None if is_drift else GPDrift(zeros(dim, basis.n_inducing), None, not isinstance(spec, NoDiffusion)),
        noise,
        None if white is None else WhiteNoise(Positive.of([white] * dim)),
        StateLayout(dim, is_time_dependent),
    )
