"""The prior of the weights of linear auto-regressions, after that of Minnesota (Litterman 1986; Doan et al. 1984)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

TIGHTNESS, CROSS = 0.3, 3.0
# The standard deviation that stands for zero: sums of weights vanish to many digits, and matrices keep inverses.
LEAST_DEVIATION = 1e-4


@dataclasses.dataclass(frozen=True)
class Prior:
    """How far weights may be from those of random walks.

    The weight of a series' own row l steps back has the standard deviation τ/l, that of another series τ/(c l): most
    weights of a long regression belong to old rows of other series, and each of them hardly matters. Weights of the
    last row are those of increments, so that the mean of the prior is a random walk.

    Attributes
    ----------
    tightness : float
        τ.
    cross : float
        c; infinity for series that do not see each other.
    sums : float or tuple of float
        The standard deviation of the sum of the weights of one series over all lags. A small one says that the level of
        a series does not matter, and 0 makes the model one of increments; infinity says nothing. A tuple has one for
        each series that is seen, whatever the target: series with 0 enter all equations by their increments.
    season : int, optional
        s: the mean of the prior is x_{t−1} + x_{t−s} − x_{t−s−1} instead of a random walk, so that each series repeats
        its increments of a season ago. Own rows s and s + 1 steps back then have the standard deviation τ.
    is_walk : bool
        Whether the mean of the prior is a random walk. False: rows that know nothing of each other, about a constant
        and what covariates say.
    """

    tightness: float = TIGHTNESS
    cross: float = CROSS
    sums: float | tuple[float, ...] = math.inf
    season: int | None = None
    is_walk: bool = True

    @property
    def is_separate(self) -> bool:
        """Whether series do not see each other."""
        return math.isinf(self.cross)

    def describe(self) -> str:
        """In words."""
        others = "none of other series" if self.is_separate else f"{self.cross:g} times smaller for other series"
        if isinstance(self.sums, tuple):
            sums = f", increments of {sum(value == 0.0 for value in self.sums)} of {len(self.sums)} series"
        else:
            sums = "" if math.isinf(self.sums) else f", sums over lags of scale {self.sums:g}"
        season = "" if self.season is None else f", around increments {self.season} rows back"
        season += "" if self.is_walk else ", around a constant"
        return f"scale {self.tightness:g} of the weights, {others}{sums}{season}"


DEFAULT = Prior()
# Weights of rows are held at zero, so that a row is a constant plus noise.
CONSTANT_MEAN = Prior(LEAST_DEVIATION, cross=1.0, is_walk=False)


def precision(lags: Sequence[int], dim: int, n_inputs: int, prior: Prior) -> Float[np.ndarray, "D K"]:
    """Precisions of single weights in units of the noise variance; those of covariates are zero."""
    found = np.zeros((dim, n_inputs))
    cross = 1.0 if prior.is_separate else prior.cross
    for i, lag in enumerate(lags):
        is_seasonal = prior.season is not None and lag in (prior.season, prior.season + 1)
        own = ((1 if is_seasonal else lag) / prior.tightness) ** 2
        found[:, i * dim : (i + 1) * dim] = np.where(np.eye(dim, dtype=bool), own, own * cross**2)
    return found


def means(lags: Sequence[int], dim: int, n_inputs: int, prior: Prior) -> Float[np.ndarray, "D K"]:
    """Means of single weights."""
    found = np.zeros((dim, n_inputs))
    if not prior.is_walk:
        found[:, :dim] = -np.eye(dim)
    if prior.season is not None:
        for lag, value in ((prior.season, 1.0), (prior.season + 1, -1.0)):
            i = list(lags).index(lag)
            found[:, i * dim : (i + 1) * dim] = value * np.eye(dim)
    return found


def precision_of_sums(n_lags: int, dim: int, n_inputs: int, prior: Prior) -> Float[np.ndarray, "K K"] | None:
    """What the prior of the sums adds to the precision of all weights of a target; None where it says nothing."""
    deviations = np.broadcast_to(np.asarray(prior.sums, float), dim)
    if np.isinf(deviations).all():
        return None
    found = np.zeros((n_inputs, n_inputs))
    same = np.kron(np.ones((n_lags, n_lags)), np.diag(1.0 / np.maximum(deviations, LEAST_DEVIATION) ** 2))
    found[: n_lags * dim, : n_lags * dim] = same
    return found


def inputs_of(d: int, n_lags: int, dim: int, n_inputs: int, prior: Prior) -> Int[np.ndarray, " J"]:
    """The inputs that series d sees: all, or its own rows and what follows them."""
    if not prior.is_separate:
        return np.arange(n_inputs)
    return np.concatenate([np.arange(n_lags) * dim + d, np.arange(n_lags * dim, n_inputs)])
