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
    """The likelihood a name or a spec asks for, for `n_outputs` target columns (1 for class labels)."""
    wanted: LikelihoodSpec = resolve("likelihood", spec, LIKELIHOODS, LikelihoodSpec)
    if n_outputs < 1:
        raise OptionError(f"n_outputs={n_outputs!r} given to a likelihood; expected at least 1 target column.")
    return checked_part(wanted, builder_of(wanted)(wanted, n_outputs), AbstractLikelihood)
