"""The linear part of the drift, W (x, lags, u) + b, and the prior of its weights."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..numerics.devices import AnyArray

# How far a step of the optimiser moves a weight of the linear drift, against other parameters. Model files hold weights
# in units of these steps: a change of one of the three numbers is a change of `files.FORMAT_VERSION`.
LINEAR_STEP = 0.03
# From the lag after these on, weights of other series are held the smaller the older they are.
FULL_LAGS = 3
LAG_POWER = 5.0


def lag_penalty(dim: int, n_lags: int, n_inputs: int) -> Float[np.ndarray, "D K"]:
    """The precision that a prior gives each weight: max(1, i/3)⁵ for what *other* series were at the i-th lag, else 1.

    After the prior of Minnesota (Litterman 1986): most weights of a long regression belong to old rows of other series,
    and each of them hardly matters. The numbers are chosen on hourly series (docs/decisions.md).
    """
    penalty = np.ones((dim, n_inputs))
    for i in range(n_lags):
        growth = max(1.0, (i + 1) / FULL_LAGS) ** LAG_POWER
        penalty[:, i * dim : (i + 1) * dim] = np.where(np.eye(dim, dtype=bool), 1.0, growth)
    return penalty


class LinearDrift(eqx.Module):
    """W (x, lags, u) + b. W starts at a regression, and Adam must not shake it: it is held in `units` of its steps.

    A step is `LINEAR_STEP`/√penalty, so that weights which a prior holds small move by little.
    """

    units: Float[Array, "D K"]
    constant: Float[Array, " D"]
    n_lags: int = eqx.field(static=True, default=1)

    @classmethod
    def of(cls, weights: Float[AnyArray, "D K"], constant: Float[AnyArray, " D"], n_lags: int = 1) -> LinearDrift:
        weights = jnp.asarray(weights)
        return cls(weights / _linear_steps(weights, n_lags), jnp.asarray(constant), n_lags)

    @property
    def weights(self) -> Float[AnyArray, "D K"]:
        return self.units * _linear_steps(self.units, self.n_lags)

    def __call__(self, X: Float[Array, "N K"]) -> Float[Array, "N D"]:
        return X @ self.weights.T.astype(X.dtype) + self.constant.astype(X.dtype)


def _linear_steps(weights: Float[AnyArray, "D K"], n_lags: int) -> Float[np.ndarray, "D K"]:
    dim, n_inputs = weights.shape
    return LINEAR_STEP / np.sqrt(lag_penalty(dim, n_lags, n_inputs))
