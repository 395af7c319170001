"""From a diffusion spec to a field, once the shapes are known."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import numpy as np
import scipy.special
from jaxtyping import PRNGKeyArray

from ..inducing import POSTERIORS, InducingBasis
from ..noise import host_keys, host_uniform
from ..parameters import Free, Positive, UnitRows, zeros
from ..runtime import on_device
from ..specs import Diagonal, DiffusionSpec, GPDiffusion, NoDiffusion, Wishart
from .base import AbstractField
from .deterministic import ConstantNoiseField
from .gp import GPField
from .wishart import WishartField

# m_Σ = 0 is a stationary point, because Σ is even in each column of J: start beside it.
DIFFUSION_MEAN_SD = 0.1


def build(
    spec: DiffusionSpec, basis: InducingBasis, dim: int, key: PRNGKeyArray, is_time_dependent: bool = False
) -> AbstractField:
    """The field a spec asks for on a given basis, with a drift of zero and the posterior of the diffusion at its
    prior.
    """
    drift_mean = zeros(dim, basis.n_inducing)
    if isinstance(spec, NoDiffusion):
        return ConstantNoiseField(basis, drift_mean, None, is_time_dependent)
    if isinstance(spec, Diagonal):
        return ConstantNoiseField(basis, drift_mean, Positive.of([spec.white] * dim), is_time_dependent)
    if isinstance(spec, GPDiffusion):
        return GPField(basis, POSTERIORS[spec.posterior].prior(dim, basis.n_inducing), is_time_dependent)
    if isinstance(spec, Wishart):
        return _build_wishart(spec, basis, dim, key, is_time_dependent)
    raise TypeError(f"no field is known for the diffusion spec {spec!r}.")


def _build_wishart(spec, basis, dim, key, is_time_dependent) -> WishartField:
    rank = dim if spec.rank is None else min(spec.rank, dim)
    dof = rank if spec.dof is None else spec.dof
    is_shared = spec.columns == "shared"
    posterior = POSTERIORS[spec.posterior].prior(rank if is_shared else rank * dof, basis.n_inducing)
    mean, rows = normals(key, posterior.mean.shape, (dim, rank))
    # The identity for full rank; otherwise random rows of unit norm, so that no two dimensions start glued together.
    L = on_device(np.eye(dim) if rank == dim else rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return WishartField(
        basis,
        zeros(dim, basis.n_inducing),
        eqx.tree_at(lambda q: q.mean, posterior, on_device(DIFFUSION_MEAN_SD * mean)),
        UnitRows(L) if spec.unit_rows else Free(L),
        None if spec.white is None else Positive.of([spec.white] * dim),
        dof,
        is_shared,
        is_time_dependent,
    )


def normals(key: PRNGKeyArray, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Standard normals of the given shapes, a key for each. With JAX's default generator they are those that it would
    draw; on the host, because a program for each shape is long to compile.
    """
    keys = host_keys(np.asarray(jax.random.key_data(key)), len(shapes))
    uniform = [host_uniform(k, math.prod(shape)).reshape(shape) for k, shape in zip(keys, shapes, strict=True)]
    return [math.sqrt(2.0) * scipy.special.erfinv(u) for u in uniform]
