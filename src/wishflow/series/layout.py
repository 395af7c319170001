"""Where state, lags and covariates stand in the rows of a time series."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..numerics.devices import AnyArray
from ..wishart import AbstractLayout
from .specs import chosen_lags, memory_of, run_of


class Layout(AbstractLayout):
    """Where state, lags and covariates stand in a row: (x_t, x_{t−l+1} for the other lags l, u).

    A history is all rows back to the longest lag p, (x_t, x_{t−1}, …, x_{t−p+1}); of these a row of inputs has the
    chosen ones. The last `n_linear` covariates are for the linear drift alone.
    """

    dim: int = eqx.field(static=True)
    lags: tuple[int, ...] = eqx.field(static=True, converter=chosen_lags)
    n_covariates: int = eqx.field(static=True)
    n_linear: int = eqx.field(static=True, default=0)

    @property
    def memory(self) -> int:
        """The longest lag: the number of rows in a history."""
        return memory_of(self.lags)

    @property
    def n_run(self) -> int:
        """How many lags follow each other from the first one on."""
        return run_of(self.lags)

    @property
    def n_history(self) -> int:
        """Numbers in a history."""
        return self.dim * self.memory

    @property
    def n_lagged(self) -> int:
        """Numbers of a history that are inputs."""
        return self.dim * len(self.lags)

    @property
    def n_kernel_inputs(self) -> int:
        """Numbers that the kernel sees, and the noise."""
        return self.dim + self.n_covariates - self.n_linear

    def kernel_inputs(self, X: Float[Array, "N K"], t: Scalar | float = 0.0) -> Float[Array, "N n_kernel_inputs"]:
        """(x, u), but for those u that are for the linear drift alone; time of day or year is a covariate."""
        del t
        if len(self.lags) == 1:
            return X[:, : self.n_kernel_inputs] if self.n_linear else X
        covariates = X[:, self.n_lagged : self.n_lagged + self.n_covariates - self.n_linear]
        return jnp.concatenate([X[:, : self.dim], covariates], axis=-1)

    def chosen(self, history: Float[AnyArray, "N pD"]) -> Float[AnyArray, "N lD"]:
        """The rows of a history at the lags."""
        if self.n_run == self.memory:
            return history
        return jnp.concatenate([history[:, self.block(lag)] for lag in self.lags], axis=-1)

    def block(self, lag: int) -> slice:
        """Where a lag stands in a history."""
        return slice((lag - 1) * self.dim, lag * self.dim)

    def row(self, history: Float[Array, "N pD"], u: Float[Array, "N U"]) -> Float[Array, "N K"]:
        chosen = jnp.asarray(self.chosen(history))
        return jnp.concatenate([chosen, u], axis=-1) if self.n_covariates else chosen

    def shift(self, history: Float[Array, "N pD"], x: Float[Array, "N D"]) -> Float[Array, "N pD"]:
        """The history after a step to x."""
        return jnp.concatenate([x, history[:, : self.n_history - self.dim]], axis=-1)
