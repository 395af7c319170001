"""From a diffusion spec to a field, once the shapes are known."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import numpy as np
import scipy.special
from jaxtyping import Array, Float, PRNGKeyArray

from ..inducing import POSTERIORS, InducingBasis
from ..parameters import Free, Positive, UnitRows, zeros
from ..runtime import compiled, on_device
from ..specs import Diagonal, DiffusionSpec, GPDiffusion, NoDiffusion, Wishart
from .base import AbstractField
from .deterministic import ConstantNoiseField
from .gp import GPField
from .wishart import WishartField

# m_Σ = 0 is a stationary point, because Σ is even in each column of J: start beside it.
DIFFUSION_MEAN_SD = 0.1
FEWEST_NORMALS = 1024


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
    """Standard normals of the given shapes, a key for each, out of vectors of 1024, 2048, … draws: a generator for
    each shape is long to compile.
    """
    numbers = [math.prod(shape) for shape in shapes]
    size = max(FEWEST_NORMALS, 1 << (max(numbers) - 1).bit_length())
    # The quantile of JAX's own normals, by SciPy: of the generator it would be the most to compile.
    draws = math.sqrt(2.0) * scipy.special.erfinv(np.asarray(_draws(key, len(shapes), size)))
    return [x[:n].reshape(shape) for x, n, shape in zip(draws, numbers, shapes, strict=True)]


@compiled
def _draws(key: PRNGKeyArray, n_keys: int, size: int) -> Float[Array, "n_keys size"]:
    """Uniform on (−1, 1), a row for each key."""
    low = np.nextafter(np.float64(-1.0), 0.0)
    return jax.vmap(lambda k: jax.random.uniform(k, (size,), minval=low))(jax.random.split(key, n_keys))
