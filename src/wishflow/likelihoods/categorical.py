"""Several classes, softmax link."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Key, Num

from ..errors import OptionError
from .base import AbstractLikelihood, check_all, check_columns, no_cdf, no_noise
from .quadrature import safe_sqrt
from .specs import Categorical


class CategoricalLikelihood(AbstractLikelihood):
    """Several classes, P(y = c) = softmax(g)_c, one output of g for each class.

    y is one column of labels 0 … C − 1. Integrals over g are found by antithetic draws m ± √v ε: odd terms cancel, so
    the error vanishes with v, not with √v.

    Parameters
    ----------
    n_classes : int
        Number C of classes.
    n_predict_draws : int, default=100
        Draws for predictions.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import likelihoods
    >>> likelihood = likelihoods.build(likelihoods.Categorical(3), n_outputs=1)
    >>> likelihood.log_density(jnp.zeros((5, 1)), jnp.zeros((5, 3))).shape
    (5,)
    """

    n_classes: int = eqx.field(static=True)
    n_predict_draws: int = eqx.field(static=True, default=100)

    @classmethod
    def of(cls, spec: Categorical, n_outputs: int) -> CategoricalLikelihood:
        """Make the likelihood.

        Parameters
        ----------
        spec : Categorical
            The spec.
        n_outputs : int
            Number of target columns, which must be 1.

        Returns
        -------
        CategoricalLikelihood
            The likelihood.

        Raises
        ------
        OptionError
            If there are several columns, or fewer than two classes.
        """
        if n_outputs != 1:
            raise OptionError(
                f"{n_outputs} target columns given to the categorical likelihood; expected 1 column of class labels. "
                "Fit one model for each column."
            )
        if int(spec.n_classes) != spec.n_classes or spec.n_classes < 2:
            raise OptionError(f"n_classes={spec.n_classes!r} given; expected a whole number of at least 2.")
        return cls(int(spec.n_classes))

    @property
    def n_latent(self) -> int:
        return self.n_classes

    @property
    def scales_target(self) -> bool:
        return False

    def log_density(self, y: Num[Array, "*#batch Q"], g: Float[Array, "*#batch P"]) -> Float[Array, "*batch"]:
        return pick_class(y, g) - jax.nn.logsumexp(g, axis=-1)

    def expected_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
        n_draws: int = 8,
    ) -> Float[Array, "*batch"]:
        """mean_y − E logsumexp(g); draws of their own for each row. Gradients are those of `expected_logsumexp`."""
        noise = antithetic_normals(require_key(key), n_draws, mean.shape, mean.dtype)
        return pick_class(y, mean) - expected_logsumexp(mean, variance, noise)

    def predictive_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "*batch"]:
        return pick_class(y, self._log_probabilities(mean, variance, key))

    def predictive_moments(
        self, mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"], key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "*batch P"], Float[Array, "*batch P"]]:
        """Class probabilities p and p (1 − p)."""
        p = jnp.exp(self._log_probabilities(mean, variance, key))
        return p, p * (1.0 - p)

    def predictive_cdf(
        self, y: Num[Array, "*#batch #P"], mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"]
    ) -> Float[Array, "*batch P"]:
        raise no_cdf("categorical")

    def sample(self, key: Key[Array, ""], g: Float[Array, "*batch P"]) -> Num[Array, "*batch Q"]:
        return jax.random.categorical(key, g, axis=-1)[..., None]

    def noise_summary(self) -> Float[Array, ""]:
        return no_noise()

    def validate(self, y: np.ndarray) -> None:
        y = np.asarray(y)
        check_columns(y, 1, "categorical")
        known = (y >= 0) & (y < self.n_classes) & (y == np.floor(y))
        check_all(known, y, f"class labels 0 to {self.n_classes - 1}: encode the classes so")

    def _log_probabilities(
        self, mean: Float[Array, "*batch C"], variance: Float[Array, "*batch C"], key: Key[Array, ""] | None
    ) -> Float[Array, "*batch C"]:
        """log E softmax(g), with draws shared by all rows: a row's numbers do not depend on its neighbours."""
        shape = (1,) * (mean.ndim - 1) + (self.n_classes,)
        noise = antithetic_normals(require_key(key), self.n_predict_draws, shape, mean.dtype)
        log_p = jax.nn.log_softmax(mean + safe_sqrt(variance) * noise, axis=-1)
        return jax.nn.logsumexp(log_p, axis=0) - jnp.log(noise.shape[0])


def pick_class(y: Num[Array, "*#batch 1"], values: Float[Array, "*#batch C"]) -> Float[Array, "*batch"]:
    """values_c at c = y, as a masked sum: labels of any dtype, leading axes broadcast."""
    chosen = jnp.asarray(y) == jnp.arange(values.shape[-1])
    return jnp.sum(jnp.where(chosen, values, 0), -1)


def antithetic_normals(key: Key[Array, ""], n_draws: int, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Standard normals (n, *shape) in pairs ε, −ε; an odd number of draws is raised to the next even one."""
    half = jax.random.normal(key, ((n_draws + 1) // 2, *shape), dtype)
    return jnp.concatenate([half, -half])


def require_key(key: Key[Array, ""] | None) -> Key[Array, ""]:
    """The key, or an error that says why one is needed."""
    if key is None:
        raise OptionError("key=None given to the categorical likelihood, which integrates by draws; pass a PRNG key.")
    return key


@jax.custom_jvp
def expected_logsumexp(
    mean: Float[Array, "*batch C"], variance: Float[Array, "*batch C"], noise: Float[Array, "n *batch C"]
) -> Float[Array, "*batch"]:
    """E logsumexp(g) over the draws g = mean + √variance noise.

    Derivatives: E p by the mean, ½ E p (1 − p) by the variance, p = softmax(g) (½ E ∂², equal in expectation to the
    derivative of the draws, but between 0 and ⅛ for every draw, where the latter is of size 1/√variance).
    """
    return jnp.mean(jax.nn.logsumexp(mean + safe_sqrt(variance) * noise, axis=-1), axis=0)


@expected_logsumexp.defjvp
def _expected_logsumexp_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    mean, variance, noise = primals
    mean_dot, variance_dot, _ = tangents
    p = jax.nn.softmax(mean + safe_sqrt(variance) * noise, axis=-1)
    slope, curvature = jnp.mean(p, axis=0), jnp.mean(p * (1.0 - p), axis=0)
    return expected_logsumexp(mean, variance, noise), jnp.sum(slope * mean_dot + 0.5 * curvature * variance_dot, -1)
