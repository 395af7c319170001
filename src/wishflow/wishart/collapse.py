"""Whether the noise of a field has collapsed: its size beside that of the noise of the observations.

A penalty that is too strong, or data that ask for no noise in the states, let Σ shrink to nothing. Training does not
fail then; the model is one without diffusion, which should be known.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Scalar

from ..numerics.devices import compiled, computing
from .field import Field
from .noise import checked_values

# Below this share of the standard deviation of the observations' noise, that of the diffusion is called collapsed.
COLLAPSED = 0.01


@compiled
def _mean_variances(field: Field) -> tuple[Scalar, Scalar]:
    prepared, Z, zero = field.in_parts(), field.basis.Z, jnp.zeros(())
    a = prepared.basis.project(Z)
    white = zero if prepared.white is None else jnp.mean(prepared.white.at(Z, a))
    if prepared.noise is None:
        return zero, white
    values = prepared.noise.at(Z, a, prepared.basis.unexplained(Z, a))
    drift = jnp.zeros((len(Z), field.layout.dim), Z.dtype)
    rates = prepared.coefficients(drift, None, checked_values(values, *drift.shape)).mean_covariance()
    return jnp.mean(jnp.diagonal(rates, axis1=-2, axis2=-1)), white


def mean_variances(field: Any) -> tuple[float, float] | None:
    """tr Σ̄/D and tr Λ/D, means over the inducing points; None of a field that is none of ours."""
    if not isinstance(field, Field):
        return None
    with computing():
        noise, white = _mean_variances(field)
    return float(noise), float(white)


def noise_ratio(variance: float, model: Any) -> float | None:
    """The standard deviation of the diffusion divided by that of the observations' noise; None where there is none."""
    with computing():
        observed = float(model.noise_summary())
    return float(np.sqrt(variance / observed)) if observed > 0.0 and np.isfinite(variance) else None


def ratio_words(ratio: float, remedy: str) -> str:
    """The ratio in words, and what to do where the diffusion has collapsed."""
    text = f"diffusion: its standard deviation is {ratio:.3g} times that of the observation noise, in scaled units"
    return text if ratio >= COLLAPSED else f"{text}; it has collapsed: {remedy}"
