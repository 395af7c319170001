"""Two wells in the plane with correlated noise; `make_double_well` states the law."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool

from ...errors import OptionError
from ...numerics.arrays import NumPyArray
from .base import SyntheticSDE, euler_maruyama_step, stack_symmetric


@dataclasses.dataclass(frozen=True, eq=False)
class DoubleWell(SyntheticSDE):
    """The SDE of `make_double_well`, which states the law."""

    noise: float

    name = "double_well"
    dim = 2

    @property
    def attractors(self) -> np.ndarray:
        return np.array([[-1.0, -0.5], [1.0, 0.5]])

    def _is_inside(self, x: np.ndarray) -> Bool[NumPyArray, "*batch"]:
        return np.ones(x.shape[:-1], bool)

    def _drift(self, x: np.ndarray) -> np.ndarray:
        x1, x2 = x[..., 0], x[..., 1]
        return np.stack([0.5 * (x1 - x1**3), 0.5 * x1 - x2], axis=-1)

    def _covariance(self, x: np.ndarray) -> np.ndarray:
        x1, x2 = x[..., 0], x[..., 1]
        s1, s2 = self.noise * (1 + 0.4 * np.tanh(x2)), self.noise * (1 - 0.4 * np.tanh(x1))
        return stack_symmetric(s1**2, 0.8 * np.tanh(2 * x1) * s1 * s2, s2**2)

    def _step(self, x: np.ndarray, h: float, rng: np.random.Generator) -> np.ndarray:
        # Tamed: a plain Euler step overshoots the cubic drift far out and then explodes (Hutzenthaler, Jentzen and
        # Kloeden, Ann. Appl. Probab. 22, 2012). In the wells h ‖μ‖ is far below one.
        drift = self._drift(x)
        tamed = drift / (1 + h * np.linalg.norm(drift, axis=-1, keepdims=True))
        return euler_maruyama_step(x, tamed, self._covariance(x), h, rng)

    def _sample_start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self._burnt_in(n, rng)


def make_double_well(noise: float = 0.4) -> DoubleWell:
    """Make an SDE with two wells in the plane and correlated noise.

    The noise is correlated one way in the left well and the other way in the right one.

    Parameters
    ----------
    noise : float, default=0.4
        Standard deviation σ of the noise per √time, about, above 0. At 0.4 paths change wells every few relaxation
        times.

    Returns
    -------
    DoubleWell
        The SDE, a `SyntheticSDE`.

    Raises
    ------
    OptionError
        If `noise` is not above 0.

    Notes
    -----
    - μ(x) = (½ (x₁ − x₁³), ½ x₁ − x₂),
    - Σ(x) = [[s₁², r s₁ s₂], [r s₁ s₂, s₂²]],
    - s₁ = σ (1 + 0.4 tanh x₂), s₂ = σ (1 − 0.4 tanh x₁), r = 0.8 tanh 2x₁.

    The attractors are (−1, −½) and (1, ½); the relaxation time is 1 in both.

    Examples
    --------
    >>> from wishflow.datasets import make_double_well
    >>> make_double_well(noise=0.4).attractors.tolist()
    [[-1.0, -0.5], [1.0, 0.5]]
    """
    if not (np.isfinite(noise) and noise > 0):
        raise OptionError(f"noise={noise!r}; expected a number above 0.")
    return DoubleWell(float(noise))
