"""Likelihood specs, and their names."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..specs import Spec


@dataclasses.dataclass(frozen=True)
class LikelihoodSpec(Spec):
    """Base of the specs of likelihoods p(y | g): how an observation depends on the output of the model.

    A subclass that is registered is an option of the estimators (docs/extend.md).

    See Also
    --------
    build : Make the likelihood that a spec describes.
    wishflow.register : Add a spec of your own.

    Examples
    --------
    >>> from wishflow.likelihoods import Gaussian, LikelihoodSpec
    >>> isinstance(Gaussian(), LikelihoodSpec)
    True
    """

    is_part: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class Gaussian(LikelihoodSpec):
    """Normal noise, y = g + ε with ε ~ N(0, σ²), one σ² for each output.

    Parameters
    ----------
    variance : float, optional
        Starting value of σ², in standardised units. None leaves it to the model.

    Examples
    --------
    >>> import wishflow as wf
    >>> model = wf.FlowRegressor(likelihood=wf.likelihoods.Gaussian(variance=0.1))
    """

    variance: float | None = None


@dataclasses.dataclass(frozen=True)
class StudentT(LikelihoodSpec):
    """Student-t noise, y = g + s ε, for data with outliers.

    Parameters
    ----------
    scale : float, default=0.3
        Starting value of s, in standardised units.
    dof : float, default=4.0
        Starting value of the degrees of freedom of ε, above 2. They are learnt.

    Examples
    --------
    >>> import wishflow as wf
    >>> model = wf.FlowRegressor(likelihood=wf.likelihoods.StudentT(dof=5.0))
    """

    scale: float = 0.3
    dof: float = 4.0


@dataclasses.dataclass(frozen=True)
class Bernoulli(LikelihoodSpec):
    """Two classes, P(y = 1) = 1 / (1 + exp(−g)).

    See Also
    --------
    wishflow.FlowClassifier : The estimator that uses it.

    Examples
    --------
    >>> from wishflow import likelihoods
    >>> likelihoods.build(likelihoods.Bernoulli(), n_outputs=1).n_latent
    1
    """


@dataclasses.dataclass(frozen=True)
class Categorical(LikelihoodSpec):
    """Several classes, P(y = c) = softmax(g)_c, one output of g for each class.

    Parameters
    ----------
    n_classes : int, default=2
        Number of classes, at least 2.

    See Also
    --------
    wishflow.FlowClassifier : The estimator that uses it.

    Examples
    --------
    >>> from wishflow import likelihoods
    >>> likelihoods.build(likelihoods.Categorical(3), n_outputs=1).n_latent
    3
    """

    n_classes: int = 2


@dataclasses.dataclass(frozen=True)
class Poisson(LikelihoodSpec):
    """Counts, y ~ Poisson(exp(log_rate + g)).

    Parameters
    ----------
    log_rate : float, tuple of float, or None, default=None
        A number, or one for each target. None stands for 0 in a model. Estimators put the log of the mean count of each
        target in its place, so that g, whose prior has mean zero, starts where the data are.

    Examples
    --------
    >>> import wishflow as wf
    >>> model = wf.SparseGPRegressor(likelihood="poisson")
    """

    log_rate: float | tuple[float, ...] | None = None


LIKELIHOODS: dict[str, LikelihoodSpec] = {
    "gaussian": Gaussian(),
    "student_t": StudentT(),
    "bernoulli": Bernoulli(),
    "categorical": Categorical(),
    "poisson": Poisson(),
}
