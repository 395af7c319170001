"""A simulated regression problem whose truth is known; `make_heteroskedastic_2d` states its law."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..errors import DataError, OptionError
from ..numerics.arrays import NumPyArray

N_STEPS = 50
ASPECT = 0.3
HALF_WIDTH = 2.0

Pair = tuple[NumPyArray, NumPyArray]


@dataclasses.dataclass(frozen=True, eq=False)
class SimulatedFlow:
    """Data from a flow in the plane, and the law they come from.

    Parameters
    ----------
    X : ndarray of shape (N, 2)
        Inputs.
    y : ndarray of shape (N,) or (N, 2)
        Targets.
    noise_std : float
        Standard deviation σ of the noise of the targets.
    n_outputs : int
        Number of targets, 1 or 2.

    See Also
    --------
    make_heteroskedastic_2d : Make it; the law stands there.

    Examples
    --------
    >>> from wishflow.datasets import make_heteroskedastic_2d
    >>> problem = make_heteroskedastic_2d(100)
    >>> problem.covariance(problem.X).shape
    (100, 2, 2)
    >>> problem.sample(problem.X[:3], n=10, seed=0).shape
    (10, 3)
    """

    X: Float[np.ndarray, "N 2"]
    y: Float[np.ndarray, " N"] | Float[np.ndarray, "N 2"]
    noise_std: float
    n_outputs: int

    def drift(self, x: ArrayLike) -> Float[np.ndarray, "... 2"]:
        """Return the drift μ(x).

        Parameters
        ----------
        x : array-like of shape (..., 2)
            Points.

        Returns
        -------
        ndarray of shape (..., 2)
            The drift.
        """
        return np.stack(drift(*_coordinates(x)), axis=-1)

    def covariance(self, x: ArrayLike) -> Float[np.ndarray, "... 2 2"]:
        """Return Σ(x), the covariance rate of the flow.

        Parameters
        ----------
        x : array-like of shape (..., 2)
            Points.

        Returns
        -------
        ndarray of shape (..., 2, 2)
            The covariance rate.
        """
        root = np.stack([np.stack(row, axis=-1) for row in diffusion_root(*_coordinates(x))], axis=-2)
        return root @ np.swapaxes(root, -1, -2)

    def output(self, x: ArrayLike) -> np.ndarray:
        """Return g(x), the target without noise.

        Parameters
        ----------
        x : array-like of shape (..., 2)
            Points, at the end of the flow.

        Returns
        -------
        ndarray of shape (...) or (..., 2)
            The targets, for one output or for two.
        """
        values = output(*_coordinates(x))
        return values[0] if self.n_outputs == 1 else np.stack(values, axis=-1)

    def sample(self, x: ArrayLike, n: int, seed: int) -> Float[np.ndarray, "n N *P"]:
        """Draw fresh, independent y given each of the points.

        Parameters
        ----------
        x : array-like of shape (N, 2)
            Inputs.
        n : int
            Number of draws for each of them.
        seed : int
            Seed of the draws.

        Returns
        -------
        ndarray of shape (n, N) or (n, N, 2)
            The draws.
        """
        rng = np.random.default_rng(seed)
        return self._observe(simulate_endpoints(_rows(x), n, rng), rng)

    def log_prob(self, x: ArrayLike, y: ArrayLike, n_paths: int = 1000, seed: int = 0) -> Float[np.ndarray, " N"]:
        """Return log p(y | x), by Monte Carlo.

        Parameters
        ----------
        x : array-like of shape (N, 2)
            Inputs.
        y : array-like of shape (N,) or (N, 2)
            Targets.
        n_paths : int, default=1000
            Simulated paths for each row.
        seed : int, default=0
            Seed of the paths.

        Returns
        -------
        ndarray of shape (N,)
            Log densities, joint over outputs.

        Raises
        ------
        DataError
            If the shapes do not belong together.

        Notes
        -----
        It is the log of the mean of N(y; g(x(1)), σ²) over simulated paths. The logarithm makes it slightly too small,
        by about half the relative variance of the mean.
        """
        ends = self.output(simulate_endpoints(_rows(x), n_paths, np.random.default_rng(seed)))
        if np.shape(y) != ends.shape[1:]:
            raise DataError(f"y has shape {np.shape(y)}; expected {ends.shape[1:]}, as many rows as x.")
        z = (np.asarray(y, float) - ends) / self.noise_std
        log_density = -0.5 * z**2 - np.log(self.noise_std) - 0.5 * np.log(2.0 * np.pi)
        log_density = log_density if self.n_outputs == 1 else log_density.sum(-1)
        return np.logaddexp.reduce(log_density, axis=0) - np.log(n_paths)

    def _observe(self, x_end: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        values = self.output(x_end)
        return values + self.noise_std * rng.standard_normal(values.shape)


def make_heteroskedastic_2d(
    n: int = 600, *, n_outputs: int = 1, noise_std: float = 0.05, random_state: int | None = 0
) -> SimulatedFlow:
    """Simulate a regression problem whose truth is known: inputs carried by an SDE, then observed.

    Parameters
    ----------
    n : int, default=600
        Number of rows. Inputs are uniform on [−2, 2]², with one draw of y for each.
    n_outputs : int, default=1
        Number of targets, 1 or 2. With one output the data tell about Σ only along the gradient of g; with two outputs
        they tell about all of Σ.
    noise_std : float, default=0.05
        Standard deviation σ of the noise of the targets, above 0.
    random_state : int or None, default=0
        Seed of the data.

    Returns
    -------
    SimulatedFlow
        The data and their law.

    Raises
    ------
    OptionError
        If an option is outside its range.

    Notes
    -----
    dx = μ(x) dt + √Σ(x) dB on [0, 1], x(0) = the input, y = g(x(1)) + σ ε, with

    - μ(x) = ½ (−x₂, x₁) − x/10, a slow turn about the origin;
    - Σ(x) = R(θ) diag(s², (0.3 s)²) R(θ)ᵀ with θ = x₁/2 and s(x) = 0.1 + 0.7 / (1 + exp(−2.5 x₂)), ellipses that turn
      from left to right and grow from bottom to top;
    - g(x) = (tanh 2x₁ + 0.3 x₂, x₂ − 0.3 sin 2x₁), steep at x₁ = 0, so that y is bimodal where Σ is large.

    Given the input, y has a standard deviation between 0.05 and 0.8 and is skewed or has two modes in places.

    Examples
    --------
    >>> from wishflow.datasets import make_heteroskedastic_2d
    >>> problem = make_heteroskedastic_2d(100, n_outputs=2)
    >>> problem.X.shape, problem.y.shape
    ((100, 2), (100, 2))
    """
    if n < 1:
        raise OptionError(f"n={n!r} rows asked for; expected 1 or more.")
    if n_outputs not in (1, 2):
        raise OptionError(f"n_outputs={n_outputs!r}; expected 1 or 2.")
    if not noise_std > 0:
        raise OptionError(f"noise_std={noise_std!r}; expected a number above 0.")
    rng = np.random.default_rng(random_state)
    X = rng.uniform(-HALF_WIDTH, HALF_WIDTH, (n, 2))
    law = SimulatedFlow(X, np.empty(n), noise_std, n_outputs)
    return dataclasses.replace(law, y=law._observe(simulate_endpoints(X, 1, rng)[0], rng))


def simulate_endpoints(
    x: Float[np.ndarray, "N 2"], n_paths: int, rng: np.random.Generator, n_steps: int = N_STEPS
) -> Float[np.ndarray, "{n_paths} N 2"]:
    """x(1) of `n_paths` paths from each point, by Euler–Maruyama. The two coordinates are kept apart for speed."""
    x1, x2 = (np.broadcast_to(x[:, d], (n_paths, len(x))) for d in range(2))
    dt = 1.0 / n_steps
    for _ in range(n_steps):
        (mu1, mu2), ((b11, b12), (b21, b22)) = drift(x1, x2), diffusion_root(x1, x2)
        w1, w2 = np.sqrt(dt) * rng.standard_normal((2, *x1.shape))
        x1, x2 = x1 + mu1 * dt + b11 * w1 + b12 * w2, x2 + mu2 * dt + b21 * w1 + b22 * w2
    return np.stack([x1, x2], axis=-1)


def drift(x1: NumPyArray, x2: NumPyArray) -> Pair:
    """μ(x) = ½ (−x₂, x₁) − x/10, by coordinate."""
    return -0.5 * x2 - 0.1 * x1, 0.5 * x1 - 0.1 * x2


def diffusion_root(x1: NumPyArray, x2: NumPyArray) -> tuple[Pair, Pair]:
    """The rows of a matrix with Σ(x) = root rootᵀ: R(θ) diag(s, 0.3 s)."""
    cosine, sine = np.cos(0.5 * x1), np.sin(0.5 * x1)
    size = 0.1 + 0.7 / (1.0 + np.exp(-2.5 * x2))
    return (cosine * size, -ASPECT * sine * size), (sine * size, ASPECT * cosine * size)


def output(x1: NumPyArray, x2: NumPyArray) -> Pair:
    """g(x) = (tanh 2x₁ + 0.3 x₂, x₂ − 0.3 sin 2x₁), by output."""
    return np.tanh(2.0 * x1) + 0.3 * x2, x2 - 0.3 * np.sin(2.0 * x1)


def _points(x: ArrayLike) -> np.ndarray:
    points = np.asarray(x, float)
    if points.ndim < 1 or points.shape[-1] != 2:
        raise DataError(f"points have shape {points.shape}; expected (..., 2): the flow lives in the plane.")
    return points


def _rows(x: ArrayLike) -> np.ndarray:
    points = _points(x)
    if points.ndim != 2:
        raise DataError(f"points have shape {points.shape}; expected (N, 2), one point in each row.")
    return points


def _coordinates(x: ArrayLike) -> Pair:
    points = _points(x)
    return points[..., 0], points[..., 1]
