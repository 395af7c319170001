"""The predictive law of a fitted estimator: candidates, their members and sample paths, recalibrated or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, PRNGKeyArray, PyTree, Scalar

from ..likelihoods import AbstractLikelihood
from ..numerics.devices import AnyArray
from ..training.stacks import unstacked
from .calibration import Calibration
from .models import AbstractModel, output_components


class Candidate(eqx.Module):
    """Members of one kind with equal weights: a model, or K of them with a leading axis; their mixture may be
    recalibrated.
    """

    models: Any
    weight: Float[AnyArray, ""]
    n_members: int = eqx.field(static=True)
    calibration: Calibration | None = None

    @classmethod
    def of(cls, models: list[Any], weight: float, calibration: Calibration | None) -> Candidate:
        # Arrays of NumPy: those of JAX would be of 32 bits outside of our own context.
        joined = models[0] if len(models) == 1 else jax.tree.map(lambda *leaves: np.stack(leaves), *models)
        return cls(joined, np.asarray(weight), len(models), calibration)

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

    def members(self) -> list[AbstractModel]:
        return unstacked(self.models, self.n_members)


class Law(eqx.Module):
    """The predictive law of a fitted estimator: the mixture of its candidates."""

    candidates: tuple[Candidate, ...]

    @classmethod
    def of(cls, model: AbstractModel, calibration: Calibration | None = None) -> Law:
        """That of one model."""
        return cls((Candidate.of([model], 1.0, calibration),))

    @classmethod
    def of_members(
        cls, models: dict[str, list[Any]], weights: dict[str, float], calibrations: dict[str, Calibration | None]
    ) -> Law:
        """That of several candidates with K members each."""
        return cls(tuple(Candidate.of(models[name], weight, calibrations[name]) for name, weight in weights.items()))


class CandidateComponents(eqx.Module):
    """The components of a candidate at rows: moments of g for each member and path, (K, S, N, L).

    `parts` are the log probability and the scale (N, P) of the parts of a recalibrated law about its mean `centre`.
    """

    candidate: Candidate
    means: Float[Array, "K S N L"]
    variances: Float[Array, "K S N L"]
    key: PRNGKeyArray
    centre: Float[Array, "N P"] | None = None
    parts: tuple[tuple[Scalar, Float[Array, "N P"]], ...] = ()

    @classmethod
    def at(cls, candidate: Candidate, X: Float[Array, "N D"], key: PRNGKeyArray, n_samples: int) -> CandidateComponents:
        """`n_samples` are those of all members together."""
        k = candidate.n_members
        keys = key[None] if k == 1 else jax.random.split(key, k)
        rows, n_paths = X[:, : candidate.width], -(-n_samples // k)
        means, variances = candidate.each(lambda model, own: output_components(model, rows, own, n_paths), keys)
        found = cls(candidate, means, variances, key)
        if candidate.calibration is None:
            return found
        centre = found.moments()[0].mean(0)
        return cls(candidate, means, variances, key, centre, candidate.calibration.parts_at(X))

    @property
    def n_paths(self) -> int:
        return self.means.shape[0] * self.means.shape[1]

    def _mapped(self, function: Callable[[AbstractLikelihood, Array, Array], PyTree]) -> PyTree:
        """`function` of likelihood, means and variances of each member, (S, …), joined over the members."""
        if self.candidate.n_members == 1:
            return function(self.candidate.likelihood, self.means[0], self.variances[0])
        found = jax.vmap(function)(self.candidate.likelihood, self.means, self.variances)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)

    def moments(self) -> tuple[Float[Array, "T N P"], Float[Array, "T N P"]]:
        """Mean and variance of y for each path, before recalibration."""
        return self._mapped(lambda likelihood, m, v: likelihood.predictive_moments(m, v, self.key))

    def components(self) -> list[tuple[Scalar | float, Float[Array, "T N P"], Float[Array, "T N P"]]]:
        """Log probability, means and variances of y for each part of the law."""
        means, variances = self.moments()
        if self.centre is None:
            return [(0.0, means, variances)]
        return [(p, self.centre + s * (means - self.centre), s**2 * variances) for p, s in self.parts]

    def log_densities(self, y: Num[Array, "N Q"]) -> Float[Array, "T N"]:
        """Of each path, joint over outputs."""

        def at(y: Num[Array, "N Q"]) -> Float[Array, "T N"]:
            return self._mapped(lambda likelihood, m, v: likelihood.predictive_log_density(y, m, v, self.key))

        if self.centre is None:
            return at(y)
        by_part = [p + at(self.centre + (y - self.centre) / s) - jnp.log(s).sum(-1) for p, s in self.parts]
        return jax.nn.logsumexp(jnp.stack(by_part), axis=0)

    def cdf(self, y: Float[Array, "N P A"]) -> Float[Array, "N P A"]:
        """P(Y ≤ y) for each output, at several points of each."""

        def at(y: Float[Array, "N P A"]) -> Float[Array, "N P A"]:
            points = jnp.moveaxis(y, -1, 0)[:, None]
            by_path = self._mapped(
                lambda likelihood, m, v: jnp.moveaxis(likelihood.predictive_cdf(points, m[None], v[None]), 1, 0)
            )
            return jnp.moveaxis(by_path.mean(0), 0, -1)

        if self.centre is None:
            return at(y)
        middle = self.centre[..., None]
        found = [jnp.exp(p) * at(middle + (y - middle) / s[..., None]) for p, s in self.parts]
        return sum(found[1:], start=found[0])


class Components(eqx.Module):
    """The components of a law at rows."""

    of: tuple[CandidateComponents, ...]

    @classmethod
    def at(cls, law: Law, X: Float[Array, "N D"], key: PRNGKeyArray, n_samples: int) -> Components:
        """`n_samples` are the paths of each candidate."""
        return cls(tuple(CandidateComponents.at(candidate, X, key, n_samples) for candidate in law.candidates))

    @property
    def log_weights(self) -> Float[Array, " T"]:
        """Of the paths."""
        return jnp.concatenate(
            [jnp.full(one.n_paths, jnp.log(one.candidate.weight) - np.log(one.n_paths)) for one in self.of]
        )

    def components(self) -> tuple[Float[Array, "C N P"], Float[Array, "C N P"], Float[Array, " C"]]:
        """Mean and variance of y, and log weight, for each part of each path."""
        found = []
        for one in self.of:
            log_weight = jnp.log(one.candidate.weight) - np.log(one.n_paths)
            for log_share, means, variances in one.components():
                found.append((means, variances, jnp.full(len(means), log_weight + log_share)))
        means, variances, log_weights = (jnp.concatenate(part) for part in zip(*found, strict=True))
        return means, variances, log_weights

    def log_densities(self, y: Num[Array, "N Q"]) -> Float[Array, "T N"]:
        """Of each path, joint over outputs."""
        return jnp.concatenate([one.log_densities(y) for one in self.of])

    def cdf(self, y: Float[Array, "N P A"]) -> Float[Array, "N P A"]:
        """P(Y ≤ y) of the mixture for each output, at several points of each."""
        found = [jnp.asarray(one.candidate.weight) * one.cdf(y) for one in self.of]
        return sum(found[1:], start=found[0])
