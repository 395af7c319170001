"""Likelihoods p(y | g): log density, expectation under a Gaussian g, predictive moments.

A spec (`Gaussian`, `StudentT`, …) says which one; `build` makes the module once the number of target columns is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import OptionError, unknown_option
from ..specs.base import resolve
from .base import AbstractLikelihood
from .bernoulli import BernoulliLikelihood
from .categorical import CategoricalLikelihood
from .gaussian import GaussianLikelihood
from .poisson import PoissonLikelihood
from .specs import LIKELIHOODS, Bernoulli, Categorical, Gaussian, LikelihoodSpec, Poisson, StudentT
from .student_t import StudentTLikelihood

_MAKERS: dict[type[LikelihoodSpec], Callable[[Any, int], AbstractLikelihood]] = {
    Gaussian: GaussianLikelihood.of,
    StudentT: StudentTLikelihood.of,
    Bernoulli: BernoulliLikelihood.of,
    Categorical: CategoricalLikelihood.of,
    Poisson: PoissonLikelihood.of,
}


def build(spec: str | LikelihoodSpec, n_outputs: int) -> AbstractLikelihood:
    """The likelihood a name or a spec asks for, for `n_outputs` target columns (1 for class labels)."""
    wanted: LikelihoodSpec = resolve("likelihood", spec, LIKELIHOODS, LikelihoodSpec)
    if n_outputs < 1:
        raise OptionError(f"n_outputs={n_outputs!r} given to a likelihood; expected at least 1 target column.")
    if type(wanted) not in _MAKERS:
        raise unknown_option("likelihood", wanted, sorted(cls.__name__ for cls in _MAKERS))
    return _MAKERS[type(wanted)](wanted, n_outputs)
