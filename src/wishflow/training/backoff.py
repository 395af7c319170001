"""What is done about steps that are not finite: they are skipped and counted; then more jitter; then smaller steps from
the last good state with more jitter; then the end, at the last good state.
"""

from __future__ import annotations

import warnings

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from ..errors import FactorisationError, TrainingWarning
from ..numerics.devices import on_device
from ..numerics.linalg import LAST_JITTER
from .chunk import TrainState
from .jitter import with_fresh_jitter
from .stacks import stacked, unstacked

# So many skipped steps in a row, the last of a chunk among them, are more than bad luck.
SKIPPED_LIMIT = 20
# Steps are then made smaller by this factor, so many times at most.
SHRINK = 0.1
MOST_TRIES = 3
# A warning is given where more than this share of the steps was skipped.
MANY_SKIPPED = 0.05


class Trouble(eqx.Module):
    """Of each of K models the number of steps that were skipped, and how often steps were made smaller."""

    n_skipped: Int[np.ndarray, " K"]
    n_tries: Int[np.ndarray, " K"]

    @classmethod
    def of(cls, n_models: int) -> Trouble:
        return cls(np.zeros(n_models, int), np.zeros(n_models, int))

    @property
    def rate_share(self) -> Float[np.ndarray, " K"]:
        """What is left of the learning rates; 1 where no step was made smaller."""
        return SHRINK**self.n_tries

    def counted(self, skipped: Float[np.ndarray, "K n"], tries_again: Bool[np.ndarray, " K"]) -> Trouble:
        """After a chunk of n steps, some of them skipped, and another try of some models."""
        return Trouble(self.n_skipped + skipped.sum(axis=1).astype(int), self.n_tries + tries_again)

    @property
    def may_try_again(self) -> Bool[np.ndarray, " K"]:
        return self.n_tries < MOST_TRIES


def with_jitter_that_works(train: TrainState, n_models: int) -> tuple[TrainState, Bool[np.ndarray, " K"]]:
    """After skipped steps choose the jitter anew; which models take no step all the same."""
    skipped = np.asarray(train.skipped).reshape(-1)
    if not skipped.any():
        return train, np.zeros(len(skipped), bool)
    is_stuck = skipped >= SKIPPED_LIMIT
    before = [np.asarray(b.jitter) for b in train.model.bases()]
    try:
        train = eqx.tree_at(lambda s: s.model, train, with_fresh_jitter(train.model, n_models))
    except FactorisationError:
        return train, is_stuck
    after = [np.asarray(b.jitter) for b in train.model.bases()]
    is_changed = np.any([np.reshape(a != b, -1) for a, b in zip(after, before, strict=True)], axis=0)
    return train, is_stuck & ~is_changed


def another_try(sound: TrainState, n_models: int) -> TrainState:
    """The last good state with ten times the jitter of each basis, up to the largest."""
    return stacked([_with_more_jitter(state) for state in unstacked(sound, n_models)])


def _with_more_jitter(state: PyTree) -> PyTree:
    jitters = [on_device(min(10.0 * float(b.jitter), LAST_JITTER), b.jitter.dtype) for b in state.model.bases()]
    state = eqx.tree_at(lambda s: [b.jitter for b in s.model.bases()], state, jitters)
    return eqx.tree_at(lambda s: s.skipped, state, on_device(np.int32(0)))


def warn_of_skipped_steps(trouble: Trouble, n_steps: int, phase: str, who: tuple[int, ...]) -> None:
    """Say where many steps were skipped, or smaller ones had to be taken; `who` are the models this is about."""
    for i in who:
        n_skipped, n_tries = int(trouble.n_skipped[i]), int(trouble.n_tries[i])
        if n_skipped <= MANY_SKIPPED * n_steps and not n_tries:
            continue
        smaller = f", and the learning rate was lowered to {SHRINK**n_tries:g} of what was asked for" if n_tries else ""
        warnings.warn(
            f"{n_skipped} of {n_steps} steps of phase {phase!r} were not finite and were skipped{smaller} "
            "(history_['skipped'] says which); lower learning_rate or check the scale of the data.",
            TrainingWarning,
            stacklevel=4,
        )
