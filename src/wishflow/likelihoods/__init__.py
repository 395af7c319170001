"""Likelihoods p(y | g): log density, expectation under a Gaussian g, predictive moments.

A spec (`Gaussian`, `StudentT`, …) says which one; `build` makes the module once the number of target columns is known.
"""

from __future__ import annotations

from ..errors import OptionError
from ..specs import builder_of, checked_part, register, resolve
from .base import AbstractLikelihood as AbstractLikelihood
from .base import check_columns as check_columns
from .bernoulli import BernoulliLikelihood as BernoulliLikelihood
from .categorical import CategoricalLikelihood as CategoricalLikelihood
from .gaussian import GaussianLikelihood as GaussianLikelihood
from .poisson import PoissonLikelihood as PoissonLikelihood
from .quadrature import N_PREDICT_NODES as N_PREDICT_NODES
from .quadrature import expectation as expectation
from .quadrature import log_expectation as log_expectation
from .specs import LIKELIHOODS as LIKELIHOODS
from .specs import Bernoulli as Bernoulli
from .specs import Categorical as Categorical
from .specs import Gaussian as Gaussian
from .specs import LikelihoodSpec as LikelihoodSpec
from .specs import Poisson as Poisson
from .specs import StudentT as StudentT
from .student_t import StudentTLikelihood as StudentTLikelihood

register(Gaussian, GaussianLikelihood.of)
register(StudentT, StudentTLikelihood.of)
register(Bernoulli, BernoulliLikelihood.of)
register(Categorical, CategoricalLikelihood.of)
register(Poisson, PoissonLikelihood.of)


def build(spec: str | LikelihoodSpec, n_outputs: int) -> AbstractLikelihood:
    """Make the likelihood that a name or a spec asks for.

    Parameters
    ----------
    spec : str or LikelihoodSpec
        "gaussian", "student_t", "bernoulli", "categorical", "poisson", or a spec.
    n_outputs : int
        Number of target columns, 1 for class labels.

    Returns
    -------
    AbstractLikelihood
        The likelihood.

    Raises
    ------
    OptionError
        If the name or the spec is not known, or `n_outputs` is below 1.

    Examples
    --------
    >>> from wishflow import likelihoods
    >>> likelihoods.build("gaussian", n_outputs=2).n_latent
    2
    """
    wanted: LikelihoodSpec = resolve("likelihood", spec, LIKELIHOODS, LikelihoodSpec)
    if n_outputs < 1:
        raise OptionError(f"n_outputs={n_outputs!r} given to a likelihood; expected at least 1 target column.")
    return checked_part(wanted, builder_of(wanted)(wanted, n_outputs), AbstractLikelihood)
