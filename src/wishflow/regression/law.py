"""The predictive law of a fitted estimator: candidates, their members and sample paths, recalibrated or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray, PyTree

from ..likelihoods import AbstractLikelihood
from ..numerics.devices import AnyArray
from ..training.stacks import unstacked
from .calibration import Calibration
from .models import AbstractModel, output_components


class Candidate(eqx.Module):
    """Members of one kind with equal weights: a model, or K of them with a leading axis."""

    models: Any
    weight: Float[AnyArray, ""]
    n_members: int = eqx.field(static=True)

    @property
    def likelihood(self) -> AbstractLikelihood:
        """That of the members, with their axis where there are several."""
        return self.models.likelihood

    @property
    def width(self) -> int:
        """How many of the columns of a state the members take."""
        return self.models.output.basis.Z.shape[-1]

    def each(self, function: Callable[..., PyTree], *arrays: Array) -> PyTree:
        """`function` of each member and its part of the arrays; results have a leading axis of members.

        One after another: batched factorisations can hang on the CPU.
        """
        if self.n_members == 1:
            parts = (self.models, *(array[0] for array in arrays))
            return jax.tree.map(lambda leaf: leaf[None], function(*parts))
        return jax.lax.map(lambda part: function(*part), (self.models, *arrays))


class Law(eqx.Module):
    """The predictive law of a fitted estimator."""

    candidates: tuple[Candidate, ...]
    calibration: Calibration | None = None

    @classmethod
    def of(cls, model: AbstractModel, calibration: Calibration | None = None) -> Law:
        """That of one model."""
        return cls((Candidate(model, np.ones(()), 1),), calibration)

    @classmethod
    def of_members(
        cls, models: dict[str, list[Any]], weights: dict[str, float], calibration: Calibration | None = None
    ) -> Law:
        """That of several candidates with K members each."""
        candidates = tuple(
            Candidate(_side_by_side(models[name]), np.asarray(weight), len(models[name]))
            for name, weight in weights.items()
        )
        return cls(candidates, calibration)

    def members(self) -> list[tuple[AbstractModel, float]]:
        """All members with their weights."""
        return [
            (member, float(candidate.weight) / candidate.n_members)
            for candidate in self.candidates
            for member in unstacked(candidate.models, candidate.n_members)
        ]


def _side_by_side(models: list[Any]) -> Any:
    """`stacked` for arrays of NumPy: those of JAX would be of 32 bits outside of our own context."""
    return models[0] if len(models) == 1 else jax.tree.map(lambda *leaves: np.stack(leaves), *models)


class Components(eqx.Module):
    """The components of a law at rows: moments of g for each candidate, (K, S, N, L), and weights of all T = Σ K S."""

    of: tuple[tuple[Candidate, Float[Array, "_K _S N L"], Float[Array, "_K _S N L"]], ...]
    log_weights: Float[Array, " T"]
    key: PRNGKeyArray

    @classmethod
    def at(cls, law: Law, X: Float[Array, "N D"], key: PRNGKeyArray, n_samples: int) -> Components:
        """`n_samples` are those of a candidate; its members share them."""
        found, log_weights = [], []
        for candidate in law.candidates:
            k = candidate.n_members
            keys = key[None] if k == 1 else jax.random.split(key, k)
            rows, n_paths = X[:, : candidate.width], -(-n_samples // k)
            means, variances = candidate.each(
                lambda model, own, rows=rows, n=n_paths: output_components(model, rows, own, n), keys
            )
            found.append((candidate, means, variances))
            n_components = means.shape[0] * means.shape[1]
            log_weights.append(jnp.full(n_components, jnp.log(candidate.weight) - np.log(n_components)))
        return cls(tuple(found), jnp.concatenate(log_weights), key)

    def _mapped(self, function: Callable[[AbstractLikelihood, Array, Array], PyTree]) -> PyTree:
        """`function` of likelihood, means and variances of each member, (K, S, …), joined over all components."""
        parts = []
        for candidate, means, variances in self.of:
            if candidate.n_members == 1:
                found = function(candidate.likelihood, means[0], variances[0])
            else:
                found = jax.vmap(function)(candidate.likelihood, means, variances)
                found = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)
            parts.append(found)
        return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)

    def moments(self) -> tuple[Float[Array, "T N P"], Float[Array, "T N P"]]:
        """Mean and variance of y for each component."""
        return self._mapped(lambda likelihood, m, v: likelihood.predictive_moments(m, v, self.key))

    def log_densities(self, y: Num[Array, "N Q"]) -> Float[Array, "T N"]:
        """Joint over outputs."""
        return self._mapped(lambda likelihood, m, v: likelihood.predictive_log_density(y, m, v, self.key))

    def cdf(self, y: Float[Array, "N P A"]) -> Float[Array, "N P A"]:
        """P(Y ≤ y) of the mixture for each output, at several points of each."""
        at = jnp.moveaxis(y, -1, 0)[:, None]
        found = self._mapped(
            lambda likelihood, m, v: jnp.moveaxis(likelihood.predictive_cdf(at, m[None], v[None]), 1, 0)
        )
        return jnp.moveaxis(jnp.einsum("t,tanp->anp", jnp.exp(self.log_weights), found), 0, -1)

    def mean(self, values: Float[Array, "T ..."]) -> Array:
        """The weighted mean over components."""
        return jnp.einsum("t,t...->...", jnp.exp(self.log_weights), values)
