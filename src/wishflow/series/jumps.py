"""Jumps of the next row: whether a share of the steps is some times as wide as the others.

A law with jumps has the covariance of the law without them (`numerics.tails`), so that forecasts many steps ahead,
whose noise adds up, hardly change. Share and width are those of highest density at the rows that training has seen.
Rows held back decide whether jumps are used: the likelihood ratio there, of two laws that know nothing of these rows,
is above 1/α with a probability of at most α where the law without jumps is right, whatever the dependence of rows. The
bound is approximate: the same rows chose the state of training and the lags.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.special import logsumexp

from ..numerics.devices import on_device
from ..numerics.tails import Jumps
from ..training.journal import Trained
from .autoregressive import DynamicsModel
from .held_rows import HeldBackSteps
from .windows import Transitions

SHARES = (0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.07, 0.1)
WIDTHS = (2.0, 2.5, 3.0, 4.0, 5.0, 6.5, 8.0, 12.0)
# Jumps are found with a probability of at most this where the law without them is right.
LEVEL = 0.01
# Fewer rows to estimate from say too little of what is rare; more of them would say no more.
LEAST_ROWS, MOST_ROWS = 100, 2000


@dataclasses.dataclass(frozen=True)
class Steps:
    """log p(0) and rᵀB⁻¹r of the residuals r of single steps, for each draw of J: densities of D entries."""

    at_zero: Float[np.ndarray, "S N"]
    squares: Float[np.ndarray, "S N"]
    dim: int

    def log_densities(self, variance: float = 1.0) -> Float[np.ndarray, " N"]:
        """Of noise that is wider by a factor of its variance, as mixtures over draws of J."""
        each = self.at_zero - 0.5 * self.dim * np.log(variance) - 0.5 * self.squares / variance
        return logsumexp(each, axis=0) - np.log(len(each))

    def with_jumps(self, share: float, width: float) -> Float[np.ndarray, " N"]:
        """Log densities of the law with jumps."""
        narrow = 1.0 / (1.0 - share + share * width**2)
        parts = self.log_densities(narrow), self.log_densities(narrow * width**2)
        return np.logaddexp(np.log1p(-share) + parts[0], np.log(share) + parts[1])


def best_jumps(steps: Steps) -> tuple[float, float]:
    """Share and width of highest density."""
    candidates = [(share, width) for share in SHARES for width in WIDTHS]
    return max(candidates, key=lambda pair: float(steps.with_jumps(*pair).sum()))


def jumps_in(seen: Steps, held: Steps) -> Jumps | None:
    """Jumps that the seen rows ask for; None where the held-back rows are not better described by them."""
    if seen.squares.shape[1] < LEAST_ROWS:
        return None
    share, width = best_jumps(seen)
    gain = float(np.sum(held.with_jumps(share, width) - held.log_densities()))
    return Jumps(on_device(share), on_device(width)) if gain > -np.log(LEVEL) else None


def jumps_of(
    model: DynamicsModel, transitions: Transitions, is_held: Bool[np.ndarray, " N"], seed: int
) -> Jumps | None:
    """The jumps of a model that was trained without the held-back steps; None too where its noise has other tails."""
    if model.field.tail_dof is not None or not is_held.any() or is_held.all():
        return None
    parts = [HeldBackSteps.of(transitions, np.flatnonzero(flags), seed, MOST_ROWS) for flags in (~is_held, is_held)]
    seen, held = (Steps(*part.terms(model), model.layout.dim) for part in parts)
    return jumps_in(seen, held)


def with_jumps(model: DynamicsModel, jumps: Jumps) -> DynamicsModel:
    """A model whose noise has these jumps."""
    return eqx.tree_at(lambda m: m.field.jumps, model, jumps, is_leaf=lambda leaf: leaf is None)


def trained_with(trained: Trained, jumps: Jumps) -> Trained:
    """What was trained, with jumps in its noise."""
    said = f"{float(jumps.share):.1%} of the steps jump, {float(jumps.width):g} times as wide"
    return dataclasses.replace(
        trained,
        model=jax.tree.map(np.asarray, with_jumps(trained.model, jumps)),
        status=f"{trained.status}; {said}",
        spec=dataclasses.replace(trained.spec, innovations="jumps"),
    )
