"""Linear drift, constant noise: dx = −A (x − m) dt + √Σ dB, whose transitions are known exactly."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from ...errors import OptionError
from ...numerics.arrays import NumPyArray
from .base import SyntheticSDE, euler_maruyama_step

REVERSION = ((1.0, 0.5), (-0.5, 1.0))
MEAN = (1.0, -1.0)
COVARIANCE_RATE = ((0.5, 0.3), (0.3, 0.4))


@dataclasses.dataclass(frozen=True, eq=False)
class OrnsteinUhlenbeck(SyntheticSDE):
    """dx = −A (x − m) dt + √Σ dB with A = `reversion` (D, D), m = `mean` (D,), Σ = `covariance_rate` (D, D)."""

    reversion: Float[np.ndarray, "D D"]
    mean: Float[np.ndarray, " D"]
    covariance_rate: Float[np.ndarray, "D D"]

    name = "ornstein_uhlenbeck"

    @property
    def dim(self) -> int:
        return len(self.mean)

    @property
    def attractors(self) -> np.ndarray:
        return self.mean[None]

    @property
    def stationary_covariance(self) -> Float[np.ndarray, "D D"]:
        """P with A P + P Aᵀ = Σ."""
        return stationary_covariance(self.reversion, self.covariance_rate)

    def transition(self, x: ArrayLike, dt: float) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of x(t + dt) given x(t) = x, exactly.

        Parameters
        ----------
        x : array-like of shape (..., D)
            Points.
        dt : float
            Length of the step.

        Returns
        -------
        mean : ndarray of shape (..., D)
            m + E (x − m), with E = exp(−A dt).
        covariance : ndarray of shape (D, D)
            P − E P Eᵀ, with the stationary covariance P.
        """
        decay, covariance = exact_transition(self.reversion, self.covariance_rate, dt)
        return self.mean + (self._points(x) - self.mean) @ decay.T, covariance

    def _is_inside(self, x: np.ndarray) -> Bool[NumPyArray, "*batch"]:
        return np.ones(x.shape[:-1], bool)

    def _drift(self, x: np.ndarray) -> np.ndarray:
        return -(x - self.mean) @ self.reversion.T

    def _covariance(self, x: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.covariance_rate, (*x.shape, self.dim)).copy()

    def _step(self, x: np.ndarray, h: float, rng: np.random.Generator) -> np.ndarray:
        return euler_maruyama_step(x, self._drift(x), self._covariance(x), h, rng)

    def _sample_start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.multivariate_normal(self.mean, self.stationary_covariance, size=n, method="cholesky")


def make_ornstein_uhlenbeck(
    reversion: ArrayLike = REVERSION, mean: ArrayLike = MEAN, covariance_rate: ArrayLike = COVARIANCE_RATE
) -> OrnsteinUhlenbeck:
    """Make an Ornstein–Uhlenbeck process, dx = −A (x − m) dt + √Σ dB.

    It may have any dimension; by default it is a damped turn in the plane. Its transitions are known exactly.

    Parameters
    ----------
    reversion : array-like of shape (D, D), default=((1.0, 0.5), (-0.5, 1.0))
        The matrix A, whose eigenvalues have positive real parts.
    mean : array-like of shape (D,), default=(1.0, -1.0)
        The mean m.
    covariance_rate : array-like of shape (D, D), default=((0.5, 0.3), (0.3, 0.4))
        The matrix Σ, symmetric and positive definite.

    Returns
    -------
    OrnsteinUhlenbeck
        The SDE, a `SyntheticSDE`.

    Raises
    ------
    OptionError
        If the shapes do not belong together, or a matrix is not as it must be.

    Examples
    --------
    >>> from wishflow.datasets import make_ornstein_uhlenbeck
    >>> sde = make_ornstein_uhlenbeck()
    >>> mean, covariance = sde.transition([0.0, 0.0], dt=0.1)
    >>> mean.shape, covariance.shape
    ((2,), (2, 2))
    """
    A, m, sigma = (np.array(value, float) for value in (reversion, mean, covariance_rate))
    square = (*m.shape, *m.shape)
    if m.ndim != 1 or not len(m) or A.shape != square or sigma.shape != square:
        raise OptionError(
            f"reversion, mean and covariance_rate have shapes {A.shape}, {m.shape} and {sigma.shape}; "
            "expected (D, D), (D,) and (D, D)."
        )
    check_stable(-A, "−reversion")
    check_positive_definite(sigma, "covariance_rate")
    return OrnsteinUhlenbeck(A, m, sigma)


def stationary_covariance(reversion: np.ndarray, covariance_rate: np.ndarray) -> np.ndarray:
    """P with A P + P Aᵀ = Σ."""
    covariance = scipy.linalg.solve_continuous_lyapunov(reversion, covariance_rate)
    return 0.5 * (covariance + covariance.T)


def exact_transition(reversion: np.ndarray, covariance_rate: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """E = exp(−A dt) and ∫₀^dt exp(−A s) Σ exp(−Aᵀ s) ds.

    P − E P Eᵀ loses digits for small dt; there Van Loan's block exponential gives the integral (IEEE Trans. Automat.
    Control 23, 1978), which in turn loses digits for large dt, because it contains exp(A dt).
    """
    if np.linalg.norm(reversion, 2) * dt > 1:
        decay = scipy.linalg.expm(-reversion * dt)
        stationary = stationary_covariance(reversion, covariance_rate)
        covariance = stationary - decay @ stationary @ decay.T
    else:
        dim = len(reversion)
        block = np.block([[reversion, covariance_rate], [np.zeros((dim, dim)), -reversion.T]])
        exponential = scipy.linalg.expm(block * dt)
        decay = exponential[dim:, dim:].T
        covariance = decay @ exponential[:dim, dim:]
    return decay, 0.5 * (covariance + covariance.T)


def check_stable(matrix: np.ndarray, name: str) -> None:
    """An error where the eigenvalues of dx = matrix · x dt do not all have a negative real part."""
    largest = np.linalg.eigvals(matrix).real.max() if np.isfinite(matrix).all() else np.nan
    if not largest < 0:
        raise OptionError(f"{name} has an eigenvalue with real part {largest:.3g}; expected all below 0.")


def check_positive_definite(matrix: np.ndarray, name: str) -> None:
    """An error where a matrix is not symmetric and positive definite."""
    is_symmetric = np.isfinite(matrix).all() and np.allclose(matrix, matrix.T, rtol=1e-12, atol=0)
    if not (is_symmetric and np.linalg.eigvalsh(matrix).min() > 0):
        raise OptionError(f"{name} is {matrix.tolist()}; expected a symmetric, positive definite matrix.")
