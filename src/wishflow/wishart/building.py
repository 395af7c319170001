"""From a diffusion spec to a noise, and to the field of a flow, once the shapes are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..errors import OptionError
from ..inducing import InducingBasis
from ..numerics.parameters import Positive, zeros
from ..specs import builder_of, checked_part, register
from . import constant, gp, wishart
from .base import StateLayout
from .field import Field, GPDrift
from .noise import AbstractNoise
from .specs import ConstantDiffusion, Diagonal, DiffusionSpec, GPDiffusion, NoDiffusion, Wishart
from .white import WhiteNoise


def _nothing(spec: DiffusionSpec, basis: InducingBasis, dim: int, key: Any, covariance: Any) -> tuple[None, np.ndarray]:
    """All of Σ is white noise."""
    del spec, basis, key, covariance
    return None, np.zeros((dim, dim))


register(NoDiffusion, _nothing)
register(Diagonal, _nothing)
register(ConstantDiffusion, constant.start)
register(GPDiffusion, gp.start)
register(Wishart, wishart.start)


def start_noise(
    spec: DiffusionSpec,
    basis: InducingBasis,
    dim: int,
    key: PRNGKeyArray,
    covariance: Float[np.ndarray, "D D"] | None = None,
) -> tuple[AbstractNoise | None, Float[np.ndarray, "D D"]]:
    """The noise a spec asks for, and what it explains of a covariance to start from."""
    found = builder_of(spec)(spec, basis, dim, key, covariance)
    noise, explained = found if isinstance(found, tuple) else (found, np.zeros((dim, dim)))
    if noise is None and isinstance(spec, NoDiffusion | Diagonal):
        return None, explained
    if np.shape(explained) != (dim, dim):
        raise OptionError(
            f"the builder of {type(spec).__name__} says that it explains an array of shape {np.shape(explained)}; "
            f"expected a part of `covariance`, of shape {(dim, dim)}."
        )
    return checked_part(spec, noise, AbstractNoise), explained


def start_drift(
    dim: int, basis: InducingBasis, posterior: str, has_prior: bool = True, amplitude: Positive | None = None
) -> GPDrift:
    """A drift of zero, or with the posterior "gaussian" at its prior."""
    shape = (dim, basis.n_inducing)
    return GPDrift(zeros(*shape), amplitude, has_prior, zeros(*shape) if posterior == "gaussian" else None)


def build(
    spec: DiffusionSpec,
    basis: InducingBasis,
    dim: int,
    key: PRNGKeyArray,
    is_time_dependent: bool = False,
    drift_posterior: str = "point",
) -> Field:
    """The field of a flow on a given basis, with a drift of zero and the noise near its prior.

    "No noise" has no penalty for a drift that is a point estimate (the paper's ablation).
    """
    noise, _ = start_noise(spec, basis, dim, key)
    white = getattr(spec, "white", None)
    is_drift = isinstance(noise, gp.GPNoise)
    return Field(
        basis,
        None,
        None if is_drift else start_drift(dim, basis, drift_posterior, not isinstance(spec, NoDiffusion)),
        noise,
        None if white is None else WhiteNoise(Positive.of([white] * dim)),
        StateLayout(dim, is_time_dependent),
    )
