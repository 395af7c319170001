"""What cells that are given later say where steps may jump: one law for each pattern of jumps on the way to them.

A path to a far cell may get there by one jump or by many small steps, and no single normal law ψ (`ahead`) knows both.
Patterns part all that can happen on the steps up to the last given cell: none of them jumps, one of some does, or two
of a few, or anything else. Given a pattern but the last the steps of a linear model with constant noise are normal, and
ψ is exact. Each particle keeps a pattern, drawn by its probability times the mass of its ψ; those of the last kind draw
their jumps step by step, from their law given that they are of no other pattern. All patterns together are the whole
law.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import scipy.special
from jaxtyping import Bool, Float, Int

from .ahead import Ahead, LinearSteps, conditioned, look_ahead

# Steps that have patterns of their own, in which they alone jump, and in which two of them do: those just before given
# cells.
MOST_SINGLES, MOST_IN_PAIRS = 16, 10
# The least share of particles for the rest, whose ψ says little of how likely it is.
LEAST_REST = 0.1
# Kinds of steps: after the last given cell, in pairs, alone, without a pattern; and the state of a path, after a jump
# at a step of each kind: no jump yet, one that may be of a pair, one alone, a pair, the rest.
AFTER, PAIRED, ALONE, OTHER = range(4)
STATES = np.array([[0, 1, 2, 3, 4], [1, 3, 4, 4, 4], [2, 4, 4, 4, 4], [4, 4, 4, 4, 4]])
# Numbers in the rows of all ψ together; with larger ones there are fewer patterns.
MOST_NUMBERS = 2**24


@dataclasses.dataclass(frozen=True)
class Patterns:
    """C patterns of T steps: sets of steps that alone are wide, and the rest, which is the last one.

    `variances` are the s of each step that ψ takes, `log_shares` the log probabilities that a step is narrow or wide;
    those of the rest depend on the state of a path before it (`rest_shares`). `after_jump` is the state after a jump.
    """

    log_weights: Float[np.ndarray, " C"]
    variances: Float[np.ndarray, "C T"]
    log_shares: Float[np.ndarray, "C T 2"]
    rest_shares: Float[np.ndarray, "T 5 2"]
    after_jump: Int[np.ndarray, "T 5"]


def patterns_of(share: float, width: float, is_given: Bool[np.ndarray, " T"], most: int = 1000) -> Patterns:
    """At most so many patterns of jumps on the way to the given ticks; `share` and `width` as in
    `numerics.tails.Jumps`.
    """
    ticks, given = np.arange(len(is_given)), np.flatnonzero(is_given)
    n = int(given[-1]) + 1 if len(given) else 0  # steps that patterns are about
    nearest = np.argsort(given[np.searchsorted(given, ticks[:n])] - ticks[:n], kind="stable")
    singles = nearest[: int(np.clip(most - 2, 0, MOST_SINGLES))]
    n_paired = max(k for k in range(MOST_IN_PAIRS + 1) if k * (k - 1) // 2 <= max(most - 2 - len(singles), 0))
    paired = singles[:n_paired]
    kinds = np.full(len(ticks), OTHER)
    kinds[n:], kinds[singles], kinds[paired] = AFTER, ALONE, PAIRED
    sets = [(), *((int(t),) for t in singles), *itertools.combinations(map(int, paired), 2)]
    weights = np.array([share ** len(one) * (1.0 - share) ** (n - len(one)) for one in sets])
    rest, rest_shares = rest_of(share, STATES[kinds])
    # The mean number of jumps of the rest, for the mean variance of its steps.
    n_jumps = n * share - weights @ np.array([len(one) for one in sets])
    often = n_jumps / (n * rest) if rest > 0.0 else 0.0
    wide = np.full((len(sets) + 1, len(ticks)), np.clip(often, 0.0, 1.0))
    wide[:-1] = [np.isin(ticks, one) for one in sets]
    wide[:, n:] = share
    with np.errstate(divide="ignore"):
        log_weights = np.log([*weights, rest])
        log_shares = np.log(np.stack([1.0 - wide, wide], axis=-1))
    variances = (1.0 - wide + wide * width**2) / (1.0 - share + share * width**2)
    return Patterns(log_weights, variances, log_shares, rest_shares, STATES[kinds])


def rest_of(share: float, after_jump: Int[np.ndarray, "T 5"]) -> tuple[float, Float[np.ndarray, "T 5 2"]]:
    """The probability that a path ends in the last state, and the log probabilities of a narrow and of a wide step
    given that it does, for each state before the step.

    With r_t(k) the probability to end there from the state k after step t, a wide step t has π r_t(k')/r_{t−1}(k),
    where k' is the state after a jump.
    """
    after, shares = np.array([0.0, 0.0, 0.0, 0.0, 1.0]), np.zeros((len(after_jump), 5, 2))
    for t in reversed(range(len(after_jump))):
        both = np.stack([(1.0 - share) * after, share * after[after_jump[t]]], axis=-1)
        after = both.sum(axis=-1)
        # States that cannot lead there are those of no path: any number will do.
        shares[t] = np.where(after[:, None] > 0.0, both / np.maximum(after, 1e-300)[:, None], [1.0 - share, share])
    with np.errstate(divide="ignore"):
        return float(after[0]), np.log(shares)


@dataclasses.dataclass(frozen=True)
class Guide:
    """ψ of each pattern, and the log probabilities of patterns; a model without jumps has one pattern."""

    aheads: tuple[Ahead, ...]
    log_weights: Float[np.ndarray, " C"]
    patterns: Patterns | None = None

    @classmethod
    def of(
        cls, steps: LinearSteps, ahead: Ahead, y: Float[np.ndarray, "T P"], jumps: tuple[float, float] | None
    ) -> Guide:
        """That of a linearised model, whose ψ without jumps is `ahead`; `jumps` are their share and width."""
        if jumps is None:
            return cls((ahead,), np.zeros(1))
        found = patterns_of(*jumps, ~np.isnan(y).all(axis=1), MOST_NUMBERS // ahead.rows.size)
        each = [dataclasses.replace(steps, Q=steps.Q * s[:, None, None]) for s in found.variances]
        return cls(tuple(look_ahead(one, y) for one in each), found.log_weights, found)

    def widened(self, factor: float) -> Guide:
        """`Ahead.widened` for each pattern."""
        return dataclasses.replace(self, aheads=tuple(ahead.widened(factor) for ahead in self.aheads))

    def started(
        self,
        draws: Float[np.ndarray, "S K"],
        mean: Float[np.ndarray, " K"],
        covariance: Float[np.ndarray, "K K"],
        rng: np.random.Generator,
    ) -> Started:
        """Histories and patterns by their law times ψ_0, from draws of N(m, P)."""
        masses = np.array([ahead.log_mass(mean, covariance) for ahead in self.aheads])
        if self.patterns is None:
            (ahead,) = self.aheads
            draws = conditioned(draws, covariance, ahead, rng)
            return Started(draws, None, ahead.log_values(draws), float(masses[0]))
        logs = self.log_weights + masses + np.array([ahead.constants[0] for ahead in self.aheads])
        shares = scipy.special.softmax(logs)
        if np.isfinite(self.log_weights[-1]):
            shares = (1.0 - LEAST_REST) * shares + LEAST_REST * (np.arange(len(shares)) == len(shares) - 1)
        points = (np.arange(len(draws)) + rng.uniform()) / len(draws)
        pattern = np.searchsorted(np.cumsum(shares), points).clip(max=len(logs) - 1)
        draws, values = draws.copy(), np.zeros(len(draws))
        for c in np.unique(pattern):
            own, ahead = pattern == c, self.aheads[c]
            draws[own] = conditioned(draws[own], covariance, ahead, rng)
            # Weights are divided by ψ_0, and so by the share of the pattern over its mass.
            values[own] = ahead.constants[0] + ahead.log_values(draws[own]) + np.log(shares[c]) - logs[c]
        return Started(draws, pattern, values, 0.0)


@dataclasses.dataclass(frozen=True)
class Started:
    """Histories at the start with their patterns, log ψ_0 of each, and the log of the mass of law times ψ_0, which
    patterns have in `log_ahead`.
    """

    histories: Float[np.ndarray, "S K"]
    pattern: Int[np.ndarray, " S"] | None
    log_ahead: Float[np.ndarray, " S"]
    log_mass: float
