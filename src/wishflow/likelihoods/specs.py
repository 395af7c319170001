"""Likelihood specs, and their names."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..specs import Spec


@dataclasses.dataclass(frozen=True)
class LikelihoodSpec(Spec):
    """p(y | g): how an observation depends on the output of the model."""

    is_part: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class Gaussian(LikelihoodSpec):
    """y = g + ε, ε ~ N(0, σ²), one σ² for each output, in standardised units."""

    variance: float | None = None


@dataclasses.dataclass(frozen=True)
class StudentT(LikelihoodSpec):
    """y = g + s ε, ε Student-t with `dof` degrees of freedom (learnt, above 2)."""

    scale: float = 0.3
    dof: float = 4.0


@dataclasses.dataclass(frozen=True)
class Bernoulli(LikelihoodSpec):
    """P(y = 1) = 1 / (1 + exp(−g))."""


@dataclasses.dataclass(frozen=True)
class Categorical(LikelihoodSpec):
    """P(y = c) = softmax(g)_c, one output of g for each class."""

    n_classes: int = 2


@dataclasses.dataclass(frozen=True)
class Poisson(LikelihoodSpec):
    """y ~ Poisson(exp(log_rate + g)).

    `log_rate` is a number, or one for each target. None stands for 0 in a model; estimators put the log of the mean
    count of each target in its place, so that g, whose prior has mean zero, starts where the data are.
    """

    log_rate: float | tuple[float, ...] | None = None


LIKELIHOODS: dict[str, LikelihoodSpec] = {
    "gaussian": Gaussian(),
    "student_t": StudentT(),
    "bernoulli": Bernoulli(),
    "categorical": Categorical(),
    "poisson": Poisson(),
}
