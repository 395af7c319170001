"""Student-t observation noise: robust regression."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Num

from ..errors import OptionError
from ..numerics.parameters import Positive
from .base import AbstractLikelihood, check_columns, require_positive
from .gaussian import normal_cdf, normal_log_density
from .quadrature import expectation, log_gamma_rule
from .specs import StudentT

SCALE_FLOOR = 1e-4  # its square is the floor of a noise variance


class StudentTLikelihood(AbstractLikelihood):
    """Student-t noise, y_p = g_p + s_p ε_p with ν_p > 2 degrees of freedom, so that the variance exists.

    Parameters
    ----------
    noise_scale : Positive
        The scales s, of shape (P,).
    excess_dof : Positive
        Degrees of freedom above two, ν − 2, of shape (P,).

    Notes
    -----
    Predictions use ε = N(0, 1/λ), λ ~ Gamma(ν/2, ν/2): given λ the integral over g is a normal density, and the one
    over log λ is smooth for every ratio of s² to the variance of g. Nodes in g would miss a noise narrower than their
    gaps.

    Examples
    --------
    >>> from wishflow import likelihoods
    >>> likelihood = likelihoods.build(likelihoods.StudentT(dof=5.0), n_outputs=1)
    >>> round(float(likelihood.dof[0]), 1)
    5.0
    """

    noise_scale: Positive  # s, (P,)
    excess_dof: Positive  # ν − 2, (P,)

    @classmethod
    def of(cls, spec: StudentT, n_outputs: int) -> StudentTLikelihood:
        """Make the likelihood, with the same starting scale and degrees of freedom for each output.

        Parameters
        ----------
        spec : StudentT
            The spec.
        n_outputs : int
            Number P of target columns.

        Returns
        -------
        StudentTLikelihood
            The likelihood.

        Raises
        ------
        OptionError
            If the scale is not above 0, or the degrees of freedom are not above 2.
        """
        scale = require_positive("scale", spec.scale)
        if not (np.isfinite(spec.dof) and spec.dof > 2):
            raise OptionError(f"dof={spec.dof!r} given to the Student-t likelihood; expected a finite number above 2.")
        excess = Positive.of(np.full(n_outputs, spec.dof - 2.0))
        return cls(Positive.of(np.full(n_outputs, scale), SCALE_FLOOR), excess)

    @property
    def n_latent(self) -> int:
        return self.noise_scale.raw.shape[-1]

    @property
    def is_damped(self) -> bool:
        return True

    @property
    def scales_target(self) -> bool:
        return True

    @property
    def scale(self) -> Float[Array, " P"]:
        """The scales s."""
        return self.noise_scale.value

    @property
    def dof(self) -> Float[Array, " P"]:
        """The degrees of freedom ν."""
        return 2.0 + self.excess_dof.value

    def log_density(self, y: Num[Array, "*#batch Q"], g: Float[Array, "*#batch P"]) -> Float[Array, "*batch"]:
        return jnp.sum(student_t_log_density(g, y, self.scale.astype(g.dtype), self.dof.astype(g.dtype)), -1)

    def expected_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
        n_draws: int = 8,
    ) -> Float[Array, "*batch"]:
        scale, dof = self.scale.astype(mean.dtype), self.dof.astype(mean.dtype)
        return jnp.sum(expectation(student_t_log_density, mean, variance, y, scale, dof), -1)

    def predictive_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "*batch"]:
        """log Σ_j w_j N(y; mean, variance + s² / λ_j)."""
        variances, log_weights = self._mixture(variance)
        log_parts = normal_log_density(jnp.asarray(y)[..., None], mean[..., None], variances)
        return jnp.sum(jax.nn.logsumexp(log_weights + log_parts, axis=-1), -1)

    def predictive_moments(
        self, mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"], key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "*batch P"], Float[Array, "*batch P"]]:
        """Var y = variance + s² ν / (ν − 2)."""
        excess = self.excess_dof.value.astype(mean.dtype)
        return mean, variance + self.scale.astype(mean.dtype) ** 2 * (2.0 + excess) / excess

    def predictive_cdf(
        self, y: Num[Array, "*#batch #P"], mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"]
    ) -> Float[Array, "*batch P"]:
        """Σ_j w_j Φ((y − mean) / √(variance + s² / λ_j))."""
        variances, log_weights = self._mixture(variance)
        return jnp.sum(jnp.exp(log_weights) * normal_cdf(jnp.asarray(y)[..., None], mean[..., None], variances), -1)

    def sample(self, key: Key[Array, ""], g: Float[Array, "*batch P"]) -> Num[Array, "*batch Q"]:
        noise = jax.random.t(key, self.dof.astype(g.dtype), g.shape, g.dtype)
        return g + self.scale.astype(g.dtype) * noise

    def noise_summary(self) -> Float[Array, ""]:
        return jnp.mean(self.scale**2)

    def validate(self, y: np.ndarray) -> None:
        check_columns(np.asarray(y), self.n_latent, "student_t")

    def _mixture(self, variance: Float[Array, "*batch P"]) -> tuple[Float[Array, "*batch P n"], Float[Array, "P n"]]:
        """Variances and log weights of the normal mixture y comes from."""
        log_precision, log_weights = log_gamma_rule(0.5 * self.dof.astype(variance.dtype))
        noise = self.scale.astype(variance.dtype)[:, None] ** 2 * jnp.exp(-log_precision)
        return variance[..., None] + noise, log_weights


def student_t_log_density(
    g: Float[Array, "*#shape"], y: Float[Array, "*#shape"], scale: Float[Array, "*#shape"], dof: Float[Array, "*#shape"]
) -> Float[Array, "*shape"]:
    """log Γ((ν+1)/2) − log Γ(ν/2) − ½ log(πν s²) − ½(ν+1) log(1 + (y − g)² / νs²), elementwise."""
    gammaln = jax.scipy.special.gammaln
    constant = gammaln(0.5 * (dof + 1.0)) - gammaln(0.5 * dof) - 0.5 * jnp.log(jnp.pi * dof) - jnp.log(scale)
    z = (jnp.asarray(y, g.dtype) - g) / scale
    return constant - 0.5 * (dof + 1.0) * jnp.log1p(z**2 / dof)
