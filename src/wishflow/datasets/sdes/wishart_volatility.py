"""The three factors of a 2 × 2 Wishart process, observed; `make_wishart_volatility` states the law."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from ...errors import OptionError
from ...numerics.arrays import NumPyArray
from .base import SyntheticSDE, stack_symmetric
from .ornstein_uhlenbeck import exact_transition, stationary_covariance

M = np.array([[-0.5, 0.2], [-0.2, -0.5]])
A = np.array([[0.20, 0.08], [0.08, 0.15]])
PAIRS = ((0, 0), (0, 1), (1, 1))


@dataclasses.dataclass(frozen=True, eq=False)
class WishartVolatility(SyntheticSDE):
    """The SDE of `make_wishart_volatility`, which states the law; the state is (V₁₁, V₁₂, V₂₂)."""

    degrees_of_freedom: int

    name = "wishart_volatility"
    domain = "a positive definite V = [[x₁, x₂], [x₂, x₃]]"
    dim = 3

    @property
    def attractors(self) -> np.ndarray:
        return factors(self.degrees_of_freedom * stationary_covariance(-M, A))[None]

    def _is_inside(self, x: np.ndarray) -> Bool[NumPyArray, "*batch"]:
        return (x[..., 0] > 0) & (x[..., 0] * x[..., 2] > x[..., 1] ** 2)

    def _drift(self, x: np.ndarray) -> np.ndarray:
        turned = M @ matrices(x)
        return factors(self.degrees_of_freedom * A + turned + np.swapaxes(turned, -1, -2))

    def _covariance(self, x: np.ndarray) -> np.ndarray:
        V = matrices(x)
        rows = [np.stack([_covariation(V, *left, *right) for right in PAIRS], axis=-1) for left in PAIRS]
        return np.stack(rows, axis=-2)

    def _step(self, x: np.ndarray, h: float, rng: np.random.Generator) -> np.ndarray:
        """An exact draw: V = X Xᵀ with X (2, n) = [chol V, 0], then X' = E X + C ε column by column, V' = X' X'ᵀ."""
        decay, covariance = exact_transition(-M, A, h)
        X = np.linalg.cholesky(covariance) @ rng.standard_normal((len(x), 2, self.degrees_of_freedom))
        X[..., :2] += decay @ np.linalg.cholesky(matrices(x))
        return factors(X @ np.swapaxes(X, -1, -2))

    def _sample_start(self, n: int, rng: np.random.Generator) -> np.ndarray:
        root = np.linalg.cholesky(stationary_covariance(-M, A))
        X = root @ rng.standard_normal((n, 2, self.degrees_of_freedom))
        return factors(X @ np.swapaxes(X, -1, -2))


def make_wishart_volatility(degrees_of_freedom: int = 6) -> WishartVolatility:
    """Make the three factors (V₁₁, V₁₂, V₂₂) of a 2 × 2 Wishart process, the volatility of two assets.

    Parameters
    ----------
    degrees_of_freedom : int, default=6
        Degrees of freedom n, at least 3. Fewer make heavier tails.

    Returns
    -------
    WishartVolatility
        The SDE, a `SyntheticSDE`; the state is (V₁₁, V₁₂, V₂₂).

    Raises
    ------
    OptionError
        If `degrees_of_freedom` is below 3, where V may become singular.

    Notes
    -----
    - dV = (n A + M V + V Mᵀ) dt + √V dW Q + Qᵀ dWᵀ √V with A = QᵀQ,
    - Σ_(ij),(kl)(V) = V_ik A_jl + V_il A_jk + V_jk A_il + V_jl A_ik,
    - M = [[−0.5, 0.2], [−0.2, −0.5]], A = [[0.20, 0.08], [0.08, 0.15]].

    V is the sum of X_k X_kᵀ over n independent Ornstein–Uhlenbeck processes dX = M X dt + Qᵀ dB, which gives its exact
    transitions and its stationary law, a Wishart law with n degrees of freedom. Its mean is n P with M P + P Mᵀ + A =
    0. For n ≥ 3 V stays positive definite (M.-F. Bru, J. Theoret. Probab. 4, 1991; in finance C. Gourieroux and R.
    Sufana, 2010).

    Examples
    --------
    >>> from wishflow.datasets import make_wishart_volatility
    >>> make_wishart_volatility().simulate(n_paths=2, n_steps=10, dt=0.1, random_state=0).shape
    (2, 11, 3)
    """
    if int(degrees_of_freedom) != degrees_of_freedom or degrees_of_freedom < 3:
        raise OptionError(
            f"degrees_of_freedom={degrees_of_freedom!r}; expected a whole number, 3 or more: below 3, V may become "
            "singular."
        )
    return WishartVolatility(int(degrees_of_freedom))


def matrices(x: np.ndarray) -> np.ndarray:
    """V (..., 2, 2) from its factors (..., 3)."""
    return stack_symmetric(x[..., 0], x[..., 1], x[..., 2])


def factors(V: np.ndarray) -> np.ndarray:
    """(V₁₁, V₁₂, V₂₂) (..., 3) of symmetric matrices (..., 2, 2)."""
    return np.stack([V[..., i, j] for i, j in PAIRS], axis=-1)


def _covariation(V: np.ndarray, i: int, j: int, k: int, m: int) -> Float[NumPyArray, "*batch"]:
    """d⟨V_ij, V_km⟩/dt, in an order of operations that makes Σ symmetric to the last bit."""
    straight = V[..., i, k] * A[j, m] + V[..., j, m] * A[i, k]
    crossed = V[..., i, m] * A[j, k] + V[..., j, k] * A[i, m]
    return straight + crossed
