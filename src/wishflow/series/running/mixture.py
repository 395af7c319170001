"""Several models at once: a mixture whose paths belong to one of them each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from ...numerics.mixtures import draws_of_each
from ..windows import Ticks
from .base import AbstractRunner
from .scenarios import Scenario

# Quantiles that stand for a member in the quantiles of the mixture.
N_QUANTILES = 50


def member_seed(seed: int, k: int) -> int:
    """The seed of member k; that of the first is the seed itself."""
    return seed if k == 0 else int(np.random.SeedSequence([seed, k]).generate_state(1)[0])


class MixedRunner(AbstractRunner):
    """The mixture Σ_k w_k p_k of models with the same lags and covariates.

    Each draw is a path of one member. The weights do not change along a path, and neither do they with the rows seen;
    cells that are given of the future change them.
    """

    def __init__(self, runners: Sequence[AbstractRunner], weights: Float[np.ndarray, " K"]) -> None:
        self.runners, self.weights = list(runners), np.asarray(weights)

    def paths(
        self, ticks: Ticks, h: np.ndarray, u: np.ndarray, n_draws: int, seed: int
    ) -> tuple[Float[np.ndarray, "S T P"], Float[np.ndarray, "S T K"], Float[np.ndarray, "2 P"] | None]:
        found = [
            runner.paths(ticks, h, u, int(n), member_seed(seed, k))
            for k, (runner, n) in enumerate(zip(self.runners, self._counts(n_draws, seed), strict=True))
            if n > 0
        ]
        values, before, limits = zip(*found, strict=True)
        # Limits hold what the members believe of the last row, which differs where entries of it are missing.
        known = [part for part in limits if part is not None]
        joined = np.stack([np.min([a[0] for a in known], 0), np.max([a[1] for a in known], 0)]) if known else None
        return np.concatenate(values), np.concatenate(before), joined

    def paths_given(
        self, ticks: Ticks, h: np.ndarray, u: np.ndarray, y: Float[np.ndarray, "T P"], n_draws: int, seed: int
    ) -> Scenario:
        """The given cells reweigh the members, w_k p_k(cells); a path is one of its member's."""
        found = [r.paths_given(ticks, h, u, y, n_draws, member_seed(seed, k)) for k, r in enumerate(self.runners)]
        evidence = np.array([one.log_evidence for one in found])
        with np.errstate(divide="ignore"):
            logs = np.log(self.weights) + evidence
        weights, rng = scipy.special.softmax(logs), np.random.default_rng(seed)
        counts = draws_of_each(n_draws, weights, float(rng.random()))
        draws = np.concatenate([one.draws[:n] for one, n in zip(found, counts, strict=True)])
        n_effective = 1.0 / np.sum(weights**2 / np.array([one.n_effective for one in found]))
        return Scenario(rng.permutation(draws), float(n_effective), float(scipy.special.logsumexp(logs)))

    def _counts(self, n_draws: int, seed: int) -> Int[np.ndarray, " K"]:
        """The draws of each member; which of them gives a single draw is random."""
        return draws_of_each(n_draws, self.weights, float(np.random.default_rng(seed).random()))

    def step_log_density(
        self,
        before: Float[np.ndarray, "N K"],
        y: Float[np.ndarray, "N P"],
        h: np.ndarray,
        u: np.ndarray,
        seed: int,
        side: Int[np.ndarray, "N P"],
    ) -> Float[np.ndarray, " N"]:
        each = [r.step_log_density(before, y, h, u, member_seed(seed, k), side) for k, r in enumerate(self.runners)]
        return self._mixed(each, self.weights)

    def horizon_log_density(
        self,
        before: Float[np.ndarray, "S T K"],
        y: Float[np.ndarray, "T P"],
        h: np.ndarray,
        u: np.ndarray,
        seed: int,
        limits: Float[np.ndarray, "2 P"] | None = None,
    ) -> Float[np.ndarray, " T"]:
        """Each member scores from its own draws (`seed` is that of `paths`); those without a draw do not count."""
        counts = self._counts(len(before), seed)
        ends = np.cumsum(counts)
        each = [
            runner.horizon_log_density(before[end - n : end], y, h, u, member_seed(seed, k), limits)
            for k, (runner, n, end) in enumerate(zip(self.runners, counts, ends, strict=True))
            if n > 0
        ]
        return self._mixed(each, self.weights[counts > 0])

    def row_log_density(self, ticks: list[Ticks], n_rows: int, seed: int) -> Float[np.ndarray, " R"]:
        each = [r.row_log_density(ticks, n_rows, member_seed(seed, k)) for k, r in enumerate(self.runners)]
        return self._mixed(each, self.weights)

    def covariances(self, ticks: Ticks) -> tuple[Float[np.ndarray, "T P"], Float[np.ndarray, "T P P"]]:
        """Weighted means: over short steps the covariance of a mixture is the mean of those of its members."""
        values, rates = zip(*(runner.covariances(ticks) for runner in self.runners), strict=True)
        return np.tensordot(self.weights, np.stack(values), 1), np.tensordot(self.weights, np.stack(rates), 1)

    def field(
        self, ticks: Ticks, values: Float[np.ndarray, "N P"]
    ) -> tuple[Float[np.ndarray, "N P"], Float[np.ndarray, "N P P"]]:
        """Weighted means."""
        drift, rates = zip(*(runner.field(ticks, values) for runner in self.runners), strict=True)
        return np.tensordot(self.weights, np.stack(drift), 1), np.tensordot(self.weights, np.stack(rates), 1)

    def correlation_quantiles(
        self, ticks: Ticks, levels: tuple[float, ...], n_draws: int, seed: int
    ) -> Float[np.ndarray, "T L P P"]:
        """Quantiles of the mixture, each member being there with N_QUANTILES of its own."""
        own = tuple((np.arange(N_QUANTILES) + 0.5) / N_QUANTILES)
        each = [r.correlation_quantiles(ticks, own, n_draws, member_seed(seed, k)) for k, r in enumerate(self.runners)]
        values = np.concatenate(each, axis=1)
        order = np.argsort(values, axis=1)
        mass = np.repeat(self.weights / self.weights.sum(), N_QUANTILES)[order] / N_QUANTILES
        below, found = np.cumsum(mass, axis=1), np.take_along_axis(values, order, axis=1)
        at = [np.argmax(below >= level - 1e-9, axis=1)[:, None] for level in levels]
        return np.concatenate([np.take_along_axis(found, i, axis=1) for i in at], axis=1)

    @staticmethod
    def _mixed(each: Sequence[np.ndarray], weights: Float[np.ndarray, " K"]) -> np.ndarray:
        with np.errstate(divide="ignore"):
            logs = np.stack(each) + np.log(weights / weights.sum())[:, None]
        with np.errstate(invalid="ignore"):
            return np.asarray(scipy.special.logsumexp(logs, axis=0))
