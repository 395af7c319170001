"""Likelihoods p(y | g): log density, expectation under a Gaussian g, predictive moments.

A spec (`Gaussian`, `StudentT`, …) says which one; `build` makes the module once the number of target columns is known.
"""

from __future__ import annotations

from ..errors import OptionError
from ..specs import builder_of, checked_part, register, resolve
from .base import AbstractLikelihood, check_columns
from .bernoulli import BernoulliLikelihood
from .categorical import CategoricalLikelihood
from .gaussian import GaussianLikelihood
from .poisson import PoissonLikelihood
from .quadrature import N_PREDICT_NODES, expectation, log_expectation
from .specs import LIKELIHOODS, Bernoulli, Categorical, Gaussian, LikelihoodSpec, Poisson, StudentT
from .student_t import StudentTLikelihood

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
