"""The interface of a likelihood p(y | g), and the checks its variants share."""

from __future__ import annotations

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Num

from ..errors import DataError, OptionError


class AbstractLikelihood(eqx.Module):
    """Base of the likelihoods p(y | g).

    All methods are batched over leading axes. The last axis holds the outputs of y and g. g is (..., P) with P =
    `n_latent`. y has as many columns as g; for the categorical likelihood it has one column of class labels. Leading
    axes of y broadcast against those of g. Outputs are independent given g, and in every expectation g ~ N(mean,
    diag(variance)). Results follow the dtype of g (or of `mean`).

    See Also
    --------
    build : Make a likelihood from its spec.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import likelihoods
    >>> likelihood = likelihoods.build("gaussian", n_outputs=2)
    >>> likelihood.log_density(jnp.zeros((5, 2)), jnp.zeros((5, 2))).shape
    (5,)
    """

    @property
    @abc.abstractmethod
    def n_latent(self) -> int:
        """Number of outputs P of g."""

    @property
    @abc.abstractmethod
    def scales_target(self) -> bool:
        """Whether y lives on a scale of its own, so that it should be standardised before a fit."""

    @property
    def is_damped(self) -> bool:
        """Whether natural-gradient steps are checked, and shortened where they lower the objective.

        For curvatures ∂² log p that grow without limit or change their sign. With those of a normal, which are
        constant, and of classes, which lie between −¼ and 0, steps of 0.1 rise from every start that was tried.
        """
        return False

    @abc.abstractmethod
    def log_density(self, y: Num[Array, "*#batch Q"], g: Float[Array, "*#batch P"]) -> Float[Array, "*batch"]:
        """Return log p(y | g), joint over outputs.

        Parameters
        ----------
        y : Array of shape (..., Q)
            Targets.
        g : Array of shape (..., P)
            Outputs of the model.

        Returns
        -------
        Array of shape (...)
            Log densities.
        """

    @abc.abstractmethod
    def expected_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
        n_draws: int = 8,
    ) -> Float[Array, "*batch"]:
        """Return E log p(y | g), joint over outputs.

        Derivatives by mean and variance are finite for every variance ≥ 0 and agree with E ∂ log p and ½ E ∂² log p.

        Parameters
        ----------
        y : Array of shape (..., Q)
            Targets.
        mean : Array of shape (..., P)
            Mean of g.
        variance : Array of shape (..., P)
            Variance of g.
        key : PRNGKeyArray, optional
            Key of the draws. It matters only where draws are needed.
        n_draws : int, default=8
            Number of draws, where they are needed.

        Returns
        -------
        Array of shape (...)
            Expectations.
        """

    @abc.abstractmethod
    def predictive_log_density(
        self,
        y: Num[Array, "*#batch Q"],
        mean: Float[Array, "*#batch P"],
        variance: Float[Array, "*#batch P"],
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "*batch"]:
        """Return log E p(y | g), joint over outputs.

        Parameters
        ----------
        y : Array of shape (..., Q)
            Targets.
        mean : Array of shape (..., P)
            Mean of g.
        variance : Array of shape (..., P)
            Variance of g.
        key : PRNGKeyArray, optional
            Key of the draws, where they are needed. They are shared by all rows.

        Returns
        -------
        Array of shape (...)
            Log densities.
        """

    @abc.abstractmethod
    def predictive_moments(
        self, mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"], key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "*batch P"], Float[Array, "*batch P"]]:
        """Return mean and variance of y for each output, g integrated out.

        Parameters
        ----------
        mean : Array of shape (..., P)
            Mean of g.
        variance : Array of shape (..., P)
            Variance of g.
        key : PRNGKeyArray, optional
            Key of the draws, where they are needed.

        Returns
        -------
        mean : Array of shape (..., P)
            Mean of y.
        variance : Array of shape (..., P)
            Variance of y.
        """

    @abc.abstractmethod
    def predictive_cdf(
        self, y: Num[Array, "*#batch #P"], mean: Float[Array, "*#batch P"], variance: Float[Array, "*#batch P"]
    ) -> Float[Array, "*batch P"]:
        """Return P(Y ≤ y) for each output, g integrated out.

        Parameters
        ----------
        y : Array of shape (..., P)
            Points.
        mean : Array of shape (..., P)
            Mean of g.
        variance : Array of shape (..., P)
            Variance of g.

        Returns
        -------
        Array of shape (..., P)
            Probabilities.

        Raises
        ------
        OptionError
            If targets are labels, which have no order.
        """

    @abc.abstractmethod
    def sample(self, key: Key[Array, ""], g: Float[Array, "*batch P"]) -> Num[Array, "*batch Q"]:
        """Draw one y for each g.

        Parameters
        ----------
        key : PRNGKeyArray
            Key of the draws.
        g : Array of shape (..., P)
            Outputs of the model.

        Returns
        -------
        Array of shape (..., Q)
            Draws of y.
        """

    @abc.abstractmethod
    def noise_summary(self) -> Float[Array, ""]:
        """Return one number for the progress bar.

        Returns
        -------
        scalar Array
            The mean noise variance, NaN where there is none.
        """

    @abc.abstractmethod
    def validate(self, y: np.ndarray) -> None:
        """Check that targets can come from this likelihood.

        Parameters
        ----------
        y : ndarray
            Targets, on the host.

        Raises
        ------
        DataError
            If they cannot.
        """


def no_cdf(name: str) -> OptionError:
    """The error of likelihoods whose y are labels without an order."""
    return OptionError(
        f"predictive_cdf was asked of the {name} likelihood, whose targets are labels; expected an ordered target. "
        "Use predictive_moments for the class probabilities."
    )


def require_positive(option: str, value: float) -> float:
    """The value, or an error when it is not a positive finite number."""
    if not (np.isfinite(value) and value > 0):
        raise OptionError(f"{option}={value!r} given to a likelihood; expected a positive finite number.")
    return float(value)


def check_columns(y: np.ndarray, n_columns: int, name: str) -> None:
    """Check that targets are finite numbers in the right number of columns.

    Parameters
    ----------
    y : ndarray of shape (..., P)
        Targets.
    n_columns : int
        The number of columns that is expected.
    name : str
        Name of the likelihood, for the words of the error.

    Raises
    ------
    DataError
        If there are other columns, no numbers, or numbers that are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from wishflow.likelihoods import check_columns
    >>> check_columns(np.zeros((5, 2)), 2, "gaussian")
    """
    if y.ndim == 0 or y.shape[-1] != n_columns:
        raise DataError(
            f"targets of shape {y.shape} given to the {name} likelihood; expected {n_columns} in the last axis: "
            "reshape the targets, or build the likelihood for as many columns as they have."
        )
    if y.dtype.kind not in "biuf":
        raise DataError(f"targets of type {y.dtype} given to the {name} likelihood; expected numbers: encode them.")
    n_bad = np.count_nonzero(~np.isfinite(y))
    if n_bad:
        raise DataError(
            f"{n_bad} of {y.size} targets are NaN or infinite; the {name} likelihood expects finite numbers: "
            "drop or fill those rows."
        )


def check_all(allowed: np.ndarray, y: np.ndarray, expected: str) -> None:
    """Raise when an entry is not allowed, naming the first one."""
    if not np.all(allowed):
        n_bad = np.count_nonzero(~allowed)
        raise DataError(
            f"{n_bad} of {y.size} targets cannot be used; the first is {y[~allowed][0]}; expected {expected}."
        )


def no_noise() -> Float[Array, ""]:
    """The summary of likelihoods without a noise parameter."""
    return jnp.asarray(jnp.nan)
