"""Flows: inputs follow dx = μ(x) dt + √Σ(x) dB over [0, T] before a sparse GP predicts (the paper, section 3)."""

from __future__ import annotations

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .. import kernels, wishart
from ..inducing import InducingBasis, SparseGP
from ..likelihoods import AbstractLikelihood
from ..numerics.meshes import split_rows
from ..training.specs import TrainingSpec
from ..wishart.base import AbstractField, AbstractPreparedField
from ..wishart.solver import simulate_paths
from .models import AbstractModel
from .sparse_gp import SparseGPModel
from .specs import FlowSpec

# The field may be evaluated in float32: with this jitter, rounding of k(Z, x) moves a(x) by 1e-4 at most.
FIELD_JITTER = 1e-6


class FlowModel(AbstractModel):
    """x_0 = x, x_T by Euler–Maruyama, y ~ p(y | g(x_T))."""

    output: SparseGP
    likelihood: AbstractLikelihood
    field: AbstractField
    flow_time: float = eqx.field(static=True)
    n_steps: int = eqx.field(static=True)
    is_pathwise: bool = eqx.field(static=True)
    has_noise: bool = eqx.field(static=True)

    def _prepared(self, key: PRNGKeyArray, dtype: DTypeLike | None, n_rows: int) -> AbstractPreparedField:
        """The field of one sample: with a draw of J where it is pathwise, and of a drift that is random."""
        field = self.field.draw(key, dtype) if self.is_pathwise else self.field.prepare(dtype)
        if not self.field.has_drift_posterior:
            return field
        return field.drawn(jax.random.fold_in(key, 1), n_rows, one_for_each_row=False)

    def carry(self, X: Float[Array, "N D"], key: PRNGKeyArray, dtype: DTypeLike | None = None) -> Float[Array, "N D"]:
        return self._carried(X, key, dtype, n_copies=1)

    def _carried(
        self, X: Float[Array, "N D"], key: PRNGKeyArray, dtype: DTypeLike | None, n_copies: int
    ) -> Float[Array, "N D"]:
        """`carry` as one of `n_copies` calls under `vmap`."""
        dtype = X.dtype if dtype is None else dtype
        k_field, k_path = jax.random.split(key)
        field = self._prepared(k_field, dtype, len(X))
        end, _ = simulate_paths(k_path, field, X.astype(dtype), self.flow_time, self.n_steps, n_copies)
        return end.astype(X.dtype)

    def carry_samples(
        self,
        X: Float[Array, "N D"],
        key: PRNGKeyArray,
        n_samples: int,
        dtype: DTypeLike | None = None,
        mesh: Mesh | None = None,
    ) -> Float[Array, "{n_samples}*N D"]:
        if not (self.is_pathwise or self.field.has_drift_posterior) or n_samples == 1:
            return super().carry_samples(X, key, n_samples, dtype, mesh)
        # Each sample is a draw of the field, shared by its rows.
        keys, X = jax.random.split(key, n_samples), split_rows(X, mesh)
        arrived = jax.vmap(lambda k: self._carried(X, k, dtype, n_samples))(keys)
        return split_rows(arrived.reshape(-1, X.shape[-1]), mesh)

    def paths(self, X: Float[Array, "N D"], key: PRNGKeyArray) -> Float[Array, "T N D"]:
        """The states after each step, (T, N, D), for figures."""
        k_field, k_path = jax.random.split(key)
        return simulate_paths(k_path, self._prepared(k_field, X.dtype, len(X)), X, self.flow_time, self.n_steps)[1]

    @property
    def is_stochastic(self) -> bool:
        return self.has_noise

    def path_kl(self) -> dict[str, Scalar]:
        return self.field.kl()

    def bases(self) -> list[InducingBasis]:
        return [self.output.basis, *([self.field.basis] if hasattr(self.field, "basis") else [])]

    def summary(self) -> dict[str, Scalar]:
        return self.field.summary()


def build(spec: FlowSpec, training: TrainingSpec, start: SparseGPModel, Z: object, key: PRNGKeyArray) -> FlowModel:
    """A flow that starts from a (trained) sparse GP: its output GP and likelihood, and a field near the identity
    flow on Z.
    """
    dim = start.output.basis.Z.shape[1]
    Z = np.asarray(Z, float)
    if spec.time_dependent:
        # Times spread evenly over (0, T), in random order so that time and place are not tied.
        order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 1), len(Z)))
        Z = np.column_stack([Z, spec.flow_time * (order + 0.5) / len(Z)])
    kernel = kernels.build(
        spec.kernel, Z.shape[1], variance=training.field_variance, lengthscale=training.field_lengthscale
    )
    basis = InducingBasis.of(kernel, Z, FIELD_JITTER)
    field = wishart.build(spec.diffusion, basis, dim, key, spec.time_dependent, spec.drift_posterior)
    return FlowModel(
        start.output,
        start.likelihood,
        field,
        float(spec.flow_time),
        int(spec.n_steps),
        spec.sampling == "pathwise",
        spec.is_stochastic,
    )
