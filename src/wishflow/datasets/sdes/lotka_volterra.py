"""Prey and predators with the noise of random births and deaths; `make_lotka_volterra` states the law."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool

from ...errors import OptionError
from ...numerics.arrays import NumPyArray
from .base import SyntheticSDE, noise, stack_symmetric

GROWTH, CAPACITY, PREDATION, DEATH, IMMIGRATION = 1.9, 2.0, 1.0, 1.05, 0.05
SMALLEST_SYSTEM = 50.0


@dataclasses.dataclass(frozen=True, eq=False)
class LotkaVolterra(SyntheticSDE):
    """The SDE of `make_lotka_volterra`, which states the law."""

    system_size: float

    name = "lotka_volterra"
    domain = "positive populations"
    dim = 2

    @property
    def attractors(self) -> np.ndarray:
        return np.array([[1.0, 1.0]])

    def _is_inside(self, x: np.ndarray) -> Bool[NumPyArray, "*batch"]:
        return (x[..., 0] > 0) & (x[..., 1] > 0)

    def _drift(self, x: np.ndarray) -> np.ndarray:
        birth, competition, predation, death = _rates(x)
        return np.stack([birth - competition - predation, predation - death], axis=-1) + IMMIGRATION

    def _covariance(self, x: np.ndarray) -> np.ndarray:
        birth, competition, predation, death = _rates(x)
        return stack_symmetric(birth + competition + predation, -predation, predation + death) / self.system_size

    def _step(self, x: np.ndarray, h: float, rng: np.random.Generator) -> np.ndarray:
        """Euler–Maruyama for log x, which keeps x positive: d log x_i = (μ_i/x_i − Σ_ii/2x_i²) dt + (√Σ dB)_i/x_i."""
        covariance = self._covariance(x)
        variance = np.diagonal(covariance, axis1=-2, axis2=-1)
        log_drift = self._drift(x) / x - 0.5 * variance / x**2
        return x * np.exp(log_drift * h + noise(covariance, h, rng) / x)

    def _sample_start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self._burnt_in(n, rng)


def make_lotka_volterra(system_size: float = 50.0) -> LotkaVolterra:
    """Make a stochastic Lotka–Volterra system of prey and predators.

    Populations are in units of Ω animals, with the noise of random births and deaths.

    Parameters
    ----------
    system_size : float, default=50.0
        The size Ω of the populations, at least 50. The noise falls with it.

    Returns
    -------
    LotkaVolterra
        The SDE, a `SyntheticSDE`.

    Raises
    ------
    OptionError
        If `system_size` is below 50: smaller populations may die out.

    Notes
    -----
    - μ(x) = (a x₁ (1 − x₁/K) − b x₁x₂ + ι, b x₁x₂ − c x₂ + ι),
    - Σ(x) = Ω⁻¹ [[a x₁ + a x₁²/K + b x₁x₂, −b x₁x₂], [−b x₁x₂, b x₁x₂ + c x₂]],
    - a = 1.9, K = 2, b = 1, c = 1.05, ι = 0.05.

    Births, competition, predation and deaths are independent events, each with a variance equal to its rate; an event
    of predation takes a prey and makes a predator, hence the correlation (chemical Langevin equation: D. T. Gillespie,
    J. Chem. Phys. 113, 2000). The steady immigration ι keeps both above zero: near x_i = 0, Σ_ii ≤ 2 ι x_i (Feller's
    condition) as long as b x₂ ≤ 2ιΩ − a and b x₁ ≤ 2ιΩ − c. The attractor is (1, 1), its eigenvalues are −0.53 ± 0.88
    i.

    Examples
    --------
    >>> from wishflow.datasets import make_lotka_volterra
    >>> make_lotka_volterra().attractors.tolist()
    [[1.0, 1.0]]
    """
    if not (np.isfinite(system_size) and system_size >= SMALLEST_SYSTEM):
        raise OptionError(
            f"system_size={system_size!r}; expected {SMALLEST_SYSTEM:g} or more: smaller populations may die out."
        )
    return LotkaVolterra(float(system_size))


def _rates(x: np.ndarray) -> tuple[NumPyArray, NumPyArray, NumPyArray, NumPyArray]:
    """Rates of birth, competition, predation and death."""
    x1, x2 = x[..., 0], x[..., 1]
    return GROWTH * x1, GROWTH * x1**2 / CAPACITY, PREDATION * x1 * x2, DEATH * x2
