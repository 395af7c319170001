"""Interfaces of a field dx = μ(x, t) dt + √Σ(x, t) dB: all that solver, objectives and filters know of it."""

from __future__ import annotations

import abc

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..numerics.entries import Entries, entries_of
from ..numerics.random import standard_normals
from ..numerics.tails import Tails


class FieldValues(eqx.Module):
    """The coefficients at rows of states; a(x) was computed once for drift and diffusion."""

    drift: eqx.AbstractVar[Float[Array, "N D"]]

    @property
    def tails(self) -> Tails:
        """Tails of the noise; None: it is Gaussian."""
        return None

    @property
    def drift_variances(self) -> Float[Array, "N D"] | None:
        """Variances of a drift that is random; None: it is not."""
        return None

    @abc.abstractmethod
    def increment(self, key: PRNGKeyArray, dt: Scalar | Float[Array, "N 1"] | float) -> Float[Array, "N D"]:
        """A draw of √Σ dB over a time step dt."""

    @abc.abstractmethod
    def factor(self, key: PRNGKeyArray) -> Float[Array, "N D nu"]:
        """A draw of the factor σ with σσᵀ = Σ."""

    def factor_entries(self, key: PRNGKeyArray) -> Entries:
        """The entries of `factor`."""
        return entries_of(self.factor(key))

    @property
    @abc.abstractmethod
    def white(self) -> Float[Array, "N D"]:
        """The diagonal of Λ."""

    @abc.abstractmethod
    def mean_covariance(self) -> Float[Array, "N D D"]:
        """Σ̄ = E_q Σ in closed form."""

    def white_over(self, dt: Float[Array, "N 1"]) -> Float[Array, "N D"]:
        """Independent variances of a step dt: Λ dt, and s² dt² of a drift with variances s²."""
        white = dt * self.white
        return white if self.drift_variances is None else white + dt**2 * self.drift_variances


class DrivenValues(FieldValues):
    """Values whose noise is made of a fixed number of standard normals for each row.

    Where `increment` needs more than those (Student-t noise), the prepared field must not name `n_normals`.
    """

    @property
    @abc.abstractmethod
    def n_normals(self) -> int:
        """How many normals a step takes for each row."""

    @abc.abstractmethod
    def moved(self, normals: Float[Array, "N K"], dt: Scalar | Float[Array, "N 1"] | float) -> Float[Array, "N D"]:
        """√Σ dB over a time step dt, from K = `n_normals` standard normals for each row."""

    def increment(self, key: PRNGKeyArray, dt: Scalar | Float[Array, "N 1"] | float) -> Float[Array, "N D"]:
        # One call for all the noise of a step: each call of the generator is a program part of its own to compile.
        shape = (self.drift.shape[0], self.n_normals)
        return self.moved(standard_normals(key, shape, self.drift.dtype), dt)


class AbstractPreparedField(eqx.Module):
    """A factorised field, ready for every step of a path."""

    @property
    def n_normals(self) -> int | None:
        """That of its values where they are `DrivenValues`, so that a path draws its noise beforehand; None: each step
        draws its own.
        """
        return None

    @abc.abstractmethod
    def at(self, X: Float[Array, "N K"], t: Scalar | float = 0.0) -> FieldValues:
        """Drift and diffusion at states X and time t."""

    def drawn(self, key: PRNGKeyArray, n_rows: int, one_for_each_row: bool) -> AbstractPreparedField:
        """The field with a draw of its drift, where that is random."""
        del key, n_rows, one_for_each_row
        return self


class AbstractField(eqx.Module):
    """Drift and diffusion."""

    @abc.abstractmethod
    def prepare(self, dtype: DTypeLike | None = None) -> AbstractPreparedField:
        """Factorise Kzz once; marginal sampling: the diffusion is drawn afresh at each step."""

    @abc.abstractmethod
    def kl(self) -> dict[str, Scalar]:
        """The penalties of the objective by name: "kl_drift" (weighted c² in warm-up), "kl_diffusion" and
        "kl_white" (c).
        """

    @abc.abstractmethod
    def summary(self) -> dict[str, Scalar]:
        """Numbers worth watching in the history."""

    def draw(self, key: PRNGKeyArray, dtype: DTypeLike | None = None) -> AbstractPreparedField:
        """Draw the random part of the coefficients once (pathwise sampling): a proper random SDE.

        A field whose coefficients are not random is its own draw.
        """
        del key
        return self.prepare(dtype)

    @property
    def has_drift_posterior(self) -> bool:
        """Whether the drift is a random function, which a path draws once."""
        return False


class AbstractLayout(eqx.Module):
    """What a row of states holds, and which part of it the kernel sees."""

    dim: eqx.AbstractVar[int]

    @abc.abstractmethod
    def kernel_inputs(self, X: Float[Array, "N K"], t: Scalar | float = 0.0) -> Float[Array, "N n_kernel_inputs"]:
        """The inputs of the kernel at rows X and time t."""


class StateLayout(AbstractLayout):
    """Rows are states; the kernel sees x, or (x, t) where the field depends on time."""

    dim: int = eqx.field(static=True)
    is_time_dependent: bool = eqx.field(static=True, default=False)

    def kernel_inputs(self, X: Float[Array, "N K"], t: Scalar | float = 0.0) -> Float[Array, "N n_kernel_inputs"]:
        if not self.is_time_dependent:
            return X
        return jnp.concatenate([X, jnp.full((X.shape[0], 1), t, X.dtype)], axis=-1)


def safe_sqrt(variance: Array) -> Array:
    """√v with a finite gradient where rounding left v = 0."""
    return jnp.sqrt(jnp.maximum(variance, jnp.finfo(variance.dtype).tiny * 1e8))
