"""What all synthetic SDEs share: checks, simulation, and points of the region they visit."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from ...errors import DataError, OptionError
from ...numerics.arrays import NumPyArray

# Between the draw of a first point and the path: long enough to forget it, in steps that are fine enough.
BURN_IN = 10.0
BURN_IN_STEP = 0.05

RandomState = int | np.random.Generator


@dataclasses.dataclass(frozen=True, eq=False)
class SyntheticSDE(abc.ABC):
    """Base of the synthetic SDEs, dx = μ(x) dt + √Σ(x) dB in R^D with known μ and Σ.

    Points `x` have shape (..., D).

    Attributes
    ----------
    name : str
        Name of the SDE.
    domain : str
        The state space, in words.

    See Also
    --------
    make_ornstein_uhlenbeck : Linear drift, constant noise.
    make_double_well : Two wells with correlated noise.
    make_lotka_volterra : Prey and predators.
    make_wishart_volatility : Volatility of two assets.

    Examples
    --------
    >>> from wishflow.datasets import make_double_well
    >>> sde = make_double_well()
    >>> sde.simulate(n_paths=5, n_steps=20, dt=0.1, random_state=0).shape
    (5, 21, 2)
    """

    name: ClassVar[str]
    domain: ClassVar[str] = "finite coordinates"

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """The number D of dimensions."""

    def drift(self, x: ArrayLike) -> Float[np.ndarray, "... D"]:
        """Return the drift μ(x).

        Parameters
        ----------
        x : array-like of shape (..., D)
            Points.

        Returns
        -------
        ndarray of shape (..., D)
            The drift.
        """
        return self._drift(self._points(x))

    def covariance(self, x: ArrayLike) -> Float[np.ndarray, "... D D"]:
        """Return Σ(x), the covariance rate.

        Parameters
        ----------
        x : array-like of shape (..., D)
            Points.

        Returns
        -------
        ndarray of shape (..., D, D)
            The covariance rate.
        """
        return self._covariance(self._points(x))

    @property
    def relaxation_time(self) -> float:
        """1 / max |λ| over the eigenvalues λ of ∂μ/∂x at the attractors: the time of the fastest mode.

        A time step that is a small part of it is small for all modes.
        """
        rates = [np.abs(np.linalg.eigvals(_jacobian(self._drift, point))).max() for point in self.attractors]
        return 1.0 / float(max(rates))

    def simulate(
        self,
        n_paths: int,
        n_steps: int,
        dt: float,
        random_state: RandomState,
        x0: ArrayLike | None = None,
        substeps: int = 10,
    ) -> Float[np.ndarray, "{n_paths} {n_steps}+1 D"]:
        """Simulate independent paths at the times 0, dt, …, n_steps dt, the start included.

        Parameters
        ----------
        n_paths : int
            Number of paths.
        n_steps : int
            Number of time steps.
        dt : float
            Length of a time step, above 0.
        random_state : int or numpy.random.Generator
            Seed, or a generator.
        x0 : array-like of shape (D,) or (n_paths, D), optional
            Starting points. By default they are drawn by `sample_start`.
        substeps : int, default=10
            Steps of the solver in each dt.

        Returns
        -------
        ndarray of shape (n_paths, n_steps + 1, D)
            The paths.

        Raises
        ------
        OptionError
            If a number is outside its range.
        DataError
            If `x0` is no state, or the paths grow beyond all bounds.
        """
        _check_counts(n_paths=n_paths, n_steps=n_steps, substeps=substeps)
        if not (np.isfinite(dt) and dt > 0):
            raise OptionError(f"dt={dt!r}; expected a number above 0.")
        rng = np.random.default_rng(random_state)
        start = self.sample_start(n_paths, rng) if x0 is None else self._starts(x0, n_paths)
        paths = np.empty((n_paths, n_steps + 1, self.dim))
        paths[:, 0] = start
        with np.errstate(all="ignore"):  # what went wrong is said below
            for i in range(n_steps):
                paths[:, i + 1] = self._advance(paths[:, i], dt, substeps, rng)
        if not np.isfinite(paths).all():
            raise DataError(
                f"{self.name}: the paths diverged with steps of {dt / substeps:.3g}; use a smaller dt "
                f"or more substeps (the relaxation time is {self.relaxation_time:.3g}), or start closer to the "
                f"attractors {self.attractors.tolist()}."
            )
        return paths

    def sample_start(self, n: int, random_state: RandomState) -> Float[np.ndarray, "n D"]:
        """Draw independent points of the region that the SDE visits.

        They are stationary draws where their law is known, else the ends of paths that started at the attractors ten
        relaxation times ago.

        Parameters
        ----------
        n : int
            Number of points.
        random_state : int or numpy.random.Generator
            Seed, or a generator.

        Returns
        -------
        ndarray of shape (n, D)
            The points.
        """
        _check_counts(n=n)
        return self._sample_start(n, np.random.default_rng(random_state))

    def contains(self, x: ArrayLike) -> Bool[NumPyArray, "*batch"]:
        """Tell whether points lie in the state space, where Σ(x) is positive definite.

        Parameters
        ----------
        x : array-like of shape (..., D)
            Points.

        Returns
        -------
        ndarray of bool of shape (...)
            True for points inside.
        """
        points = self._points(x)
        return np.isfinite(points).all(-1) & self._is_inside(points)

    @property
    @abc.abstractmethod
    def attractors(self) -> Float[np.ndarray, "K D"]:
        """The stable zeros of the drift."""

    @abc.abstractmethod
    def _is_inside(self, x: np.ndarray) -> Bool[NumPyArray, "*batch"]:
        """Whether finite points lie in the state space."""

    @abc.abstractmethod
    def _drift(self, x: np.ndarray) -> np.ndarray: ...

    @abc.abstractmethod
    def _covariance(self, x: np.ndarray) -> np.ndarray: ...

    @abc.abstractmethod
    def _step(self, x: np.ndarray, h: float, rng: np.random.Generator) -> np.ndarray:
        """One step of length h of the solver that suits the state space."""

    @abc.abstractmethod
    def _sample_start(self, n: int, rng: np.random.Generator) -> np.ndarray: ...

    def _burnt_in(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Ends of paths from randomly chosen attractors, after a time in which these are forgotten."""
        x = rng.permutation(np.resize(self.attractors, (n, self.dim)))
        return self._advance(x, BURN_IN * self.relaxation_time, round(BURN_IN / BURN_IN_STEP), rng)

    def _advance(self, x: np.ndarray, duration: float, n_steps: int, rng: np.random.Generator) -> np.ndarray:
        for _ in range(n_steps):
            x = self._step(x, duration / n_steps, rng)
        return x

    def _points(self, x: ArrayLike) -> np.ndarray:
        points = np.asarray(x, float)
        if points.ndim < 1 or points.shape[-1] != self.dim:
            raise DataError(f"points have shape {points.shape}; expected (..., {self.dim}) for {self.name}.")
        return points

    def _starts(self, x0: ArrayLike, n_paths: int) -> np.ndarray:
        points = self._points(x0)
        if points.shape not in ((self.dim,), (n_paths, self.dim)):
            raise DataError(f"x0 has shape {points.shape}; expected ({self.dim},) or ({n_paths}, {self.dim}).")
        inside = np.atleast_1d(self.contains(points))
        if not inside.all():
            first = np.atleast_2d(points)[np.argmin(inside)]
            raise DataError(f"x0 holds {first}, which is not a state of {self.name}; expected {self.domain}.")
        return np.broadcast_to(points, (n_paths, self.dim))


def euler_maruyama_step(
    x: np.ndarray, drift: np.ndarray, covariance: np.ndarray, h: float, rng: np.random.Generator
) -> np.ndarray:
    """x + μh + √h C ε with Σ = C Cᵀ, ε ~ N(0, I)."""
    return x + drift * h + noise(covariance, h, rng)


def noise(covariance: np.ndarray, h: float, rng: np.random.Generator) -> np.ndarray:
    """√h C ε with Σ = C Cᵀ, ε ~ N(0, I).

    Column by column of the Cholesky factor C, for all points at once; LAPACK goes through them one by one.
    """
    normal = rng.standard_normal(covariance.shape[:-1])
    rest, total = covariance.copy(), np.zeros_like(normal)
    for j in range(covariance.shape[-1]):
        column = rest[..., j:, j] / np.sqrt(rest[..., j, j])[..., None]
        total[..., j:] += column * normal[..., j, None]
        rest[..., j:, j:] -= column[..., :, None] * column[..., None, :]
    return np.sqrt(h) * total


def stack_symmetric(
    s11: Float[NumPyArray, "*batch"], s12: Float[NumPyArray, "*batch"], s22: Float[NumPyArray, "*batch"]
) -> Float[np.ndarray, "*batch 2 2"]:
    """Matrices (..., 2, 2) from their three distinct entries."""
    return np.stack([np.stack([s11, s12], axis=-1), np.stack([s12, s22], axis=-1)], axis=-2)


def _jacobian(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """∂f_i/∂x_j by central differences; exact up to rounding for polynomials of degree two."""
    shifts = step * np.eye(len(x))
    return ((function(x + shifts) - function(x - shifts)) / (2 * step)).T


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise OptionError(f"{name}={value!r}; expected 1 or more.")
