"""The jitter of a model's bases: chosen before a phase, and again where steps were not finite."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import PyTree

from ..inducing import kernel_matrix_on_host
from ..numerics import linalg
from ..numerics.devices import on_device
from .stacks import stacked, unstacked


def with_fresh_jitter(models: PyTree, n_models: int) -> PyTree:
    """The smallest jitter that factorises each Kzz, never below the one the model was built with."""
    refreshed = []
    for model in unstacked(models, n_models):
        jitters = []
        for basis in model.bases():
            Kzz, scale = kernel_matrix_on_host(basis)
            needed = linalg.choose_jitter(Kzz, scale, f"Kzz of {basis.n_inducing} inducing points")
            jitters.append(on_device(max(needed, float(basis.jitter)), basis.jitter.dtype))
        refreshed.append(eqx.tree_at(lambda m: [b.jitter for b in m.bases()], model, jitters))
    return stacked(refreshed)
