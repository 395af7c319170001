"""The Wishart process: Σ(x) = L J(x) J(x)ᵀ Lᵀ with J a ρ×ν matrix of Gaussian processes (the paper, section 3.1).

Posteriors of J: `independent` columns have one q for each entry (r, v); `shared` columns have one q for each row r, the
ν entries being independent draws of it.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..inducing import (
    POSTERIORS,
    AbstractPosterior,
    InducingBasis,
    PathwiseDraw,
    PreparedBasis,
    PreparedPosterior,
    draw_pathwise,
    kernel_matrix_on_host,
)
from ..numerics.devices import on_device
from ..numerics.parameters import AbstractParameter, Free, UnitRows
from ..numerics.random import host_keys, host_uniform
from .noise import AbstractNoise, NoiseValues, PreparedNoise
from .specs import Wishart

# Σ is even in J, so a mean of zero is a saddle: q(J) starts beside it.
DIFFUSION_MEAN_SD = 0.1
# Where the noise is constant a start beside the saddle is slow to leave it. Given a covariance to start from, J is
# DIFFUSION_MEAN · [I 0] on average, whose square is as large as the variances.
DIFFUSION_MEAN = 1.0
# How large 1ᵀ Kzz⁻¹ 1 may be, in units of M/k(z, z), for a constant to be in reach of a kernel.
FARTHEST_CONSTANT = 2.0


class WishartNoise(AbstractNoise):
    """Σ = L J Jᵀ Lᵀ.

    `posterior` has ρ·ν outputs in the order (r, v) where columns are independent, ρ where they are shared.
    """

    posterior: AbstractPosterior
    scale: AbstractParameter
    dof: int = eqx.field(static=True)
    has_shared_columns: bool = eqx.field(static=True)

    @property
    def multiplicity(self) -> int:
        """How many entries of J each output of the posterior stands for."""
        return self.dof if self.has_shared_columns else 1

    def kl(self) -> dict[str, Scalar]:
        """KL_Σ, which for shared columns counts each row's KL ν times: they are ν independent draws."""
        return {"kl_diffusion": self.multiplicity * jnp.sum(self.posterior.kl())}

    def rotation(self) -> Float[Array, "M M"] | None:
        return self.posterior.rotation()

    def summary(self) -> dict[str, Scalar]:
        return {"diffusion_norm": jnp.linalg.norm(self.posterior.mean)}

    def prepare(self, dtype: DTypeLike, rotation: Float[Array, "M M"] | None) -> PreparedNoise:
        return PreparedWishart(self.scale.value.astype(dtype), self.dof, self.posterior.prepare(dtype, rotation))

    def draw(self, key: PRNGKeyArray, basis: InducingBasis, prepared: PreparedBasis) -> PreparedNoise:
        means = jnp.repeat(self.posterior.mean, self.multiplicity, axis=0)
        factors = jnp.repeat(self.posterior.factors(), self.multiplicity, axis=0)
        J = draw_pathwise(key, basis, prepared, means, factors)
        return DrawnWishart(self.scale.value.astype(prepared.dtype), self.dof, J)


class AbstractPreparedWishart(PreparedNoise):
    """What all ways to find J have in common: L and ν."""

    scale: Float[Array, "D rho"]
    dof: int = eqx.field(static=True)

    @property
    def n_normals(self) -> int | None:
        return self.dof + self.scale.shape[1]

    def values(self, means: Float[Array, "N P"], variances: Float[Array, "N P"]) -> NoiseValues:
        return wishart_values(means, variances, self.scale, self.dof)


def wishart_values(
    means: Float[Array, "N P"], variances: Float[Array, "N P"], scale: Float[Array, "D rho"], dof: int
) -> NoiseValues:
    """With moments of the entries of J in the order (r, v)."""
    shape = (len(means), scale.shape[1], -1)
    return NoiseValues(means.reshape(shape), variances.reshape(shape), scale, dof)


class PreparedWishart(AbstractPreparedWishart):
    """Marginal sampling, the paper's way: J is drawn afresh at each row and step."""

    posterior: PreparedPosterior

    def at(self, inputs: Float[Array, "N K"], a: Float[Array, "N M"], unexplained: Float[Array, " N"]) -> NoiseValues:
        del inputs
        return self.values(self.posterior.means(a), unexplained[:, None] + self.posterior.quadratics(a))


class DrawnWishart(AbstractPreparedWishart):
    """One draw of J(·), shared by all rows and steps: a proper random SDE given the draw."""

    J: PathwiseDraw

    def at(self, inputs: Float[Array, "N K"], a: Float[Array, "N M"], unexplained: Float[Array, " N"]) -> NoiseValues:
        del unexplained
        J = self.J.at(inputs, a)
        return self.values(J, jnp.zeros_like(J))


# --- starting values -----------------------------------------------------------------------------


def n_outputs(spec: Wishart, dim: int) -> int:
    """How many functions q(J) is a posterior of: the rows of J, or all its entries where columns are independent."""
    rank, dof = spec.rank_and_dof(dim)
    return rank if spec.columns == "shared" else rank * dof


def start(
    spec: Wishart, basis: InducingBasis, dim: int, key: PRNGKeyArray, covariance: Float[np.ndarray, "D D"] | None
) -> tuple[WishartNoise, Float[np.ndarray, "D D"]]:
    """The noise near its prior, and what it explains of a covariance to start from.

    Without one L has rows of unit norm and q(J) is beside zero. With one E[Σ] is the part of the covariance that its
    rank allows, at the inducing points.
    """
    rank, dof = spec.rank_and_dof(dim)
    is_shared = spec.columns == "shared"
    q = POSTERIORS[spec.posterior].prior(n_outputs(spec, dim), basis.n_inducing)
    if covariance is None:
        mean, rows = (_normals(k, shape) for k, shape in zip(_keys(key, 2), (q.mean.shape, (dim, rank)), strict=True))
        # The identity for full rank; otherwise random rows, so that no two dimensions start glued together.
        L = np.eye(dim) if rank == dim else rows / np.linalg.norm(rows, axis=1, keepdims=True)
        constant, second, explained = np.zeros(len(q.mean)), np.ones(rank), np.zeros((dim, dim))
        one = np.zeros(basis.n_inducing)
    else:
        mean = _normals(_words(key), q.mean.shape)
        values, vectors = np.linalg.eigh(covariance)
        order = np.argsort(values)[::-1][:rank]
        L = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
        explained = L @ L.T
        one = _whitened_one(basis)
        constant, second = _constant_mean(rank, dof, is_shared, DIFFUSION_MEAN if one.any() else 0.0)
    q = eqx.tree_at(lambda q: q.mean, q, on_device(DIFFUSION_MEAN_SD * mean + constant[:, None] * one))
    L = on_device(L / np.sqrt(second))
    # A covariance to start from gives L its size; rows of unit norm are for flows.
    has_unit_rows = spec.unit_rows and covariance is None
    return WishartNoise(q, UnitRows(L) if has_unit_rows else Free(L), dof, is_shared), explained


def _constant_mean(rank: int, dof: int, is_shared: bool, size: float) -> tuple[np.ndarray, np.ndarray]:
    """What J is on average at the start, one number for each output of q, and the diagonal of E[JJᵀ].

    Columns that share their mean have one of rank one: it goes to the first row, where L has most of the noise.
    """
    if is_shared:
        first = size * np.eye(rank)[0]
        return first / np.sqrt(dof), 1.0 + first**2
    mean = size * np.eye(rank, dof)
    return mean.ravel(), 1.0 + np.sum(mean**2, 1)


def _whitened_one(basis: InducingBasis) -> Float[np.ndarray, " M"]:
    """v = Lz⁻¹ 1, a function that is one at the inducing points; zero where the kernel knows no such function.

    ‖v‖² = 1ᵀ Kzz⁻¹ 1 is M/k(z, z) at most for values that are independent or correlated by one positive number. A
    linear kernel, in whose span there is no constant, has thousands of times that.
    """
    Kzz, scale = kernel_matrix_on_host(basis)
    Lz = np.linalg.cholesky(Kzz + float(basis.jitter) * scale * np.eye(len(Kzz)))
    v = np.linalg.solve(Lz, np.ones(len(Kzz)))
    return v if v @ v * scale <= FARTHEST_CONSTANT * len(v) else np.zeros_like(v)


def _words(key: PRNGKeyArray) -> np.ndarray:
    return np.asarray(jax.random.key_data(key))


def _keys(key: PRNGKeyArray, n: int) -> np.ndarray:
    return host_keys(_words(key), n)


def _normals(words: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normals. With JAX's default generator they are those that it would draw; on the host, because a program
    for each shape is long to compile.
    """
    return math.sqrt(2.0) * scipy.special.erfinv(host_uniform(words, math.prod(shape)).reshape(shape))
