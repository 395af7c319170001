"""Train many regressors or classifiers of equal shape at once."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

from ..callbacks import CallbackList
from ..errors import DataError
from ..likelihoods import Poisson
from ..numerics import platform
from ..numerics.devices import computing
from ..specs import checks
from ..training.checkpoints import checkpointing_of, checkpoints_of, interruptible, told, watched
from .estimator import ModelEstimator
from .members import train_members
from .training import Problem, train


def fit_together(
    estimators: Sequence[ModelEstimator], data: Sequence[tuple[Any, Any]], callbacks: Any = None
) -> list[ModelEstimator]:
    """Fit regressors or classifiers of equal shape at once: in one program on an accelerator (`wishflow.fit_many`).

    Where they are trained together, the preset's rule is asked for the number of rows of the first data set: folds may
    differ by a row. An error in one fit leaves all of them as they were.
    """
    n_members = _n_members(estimators)
    # Those that are trained together have one rule, that of the first: folds may differ by a row.
    n_rows = len(data[0][0]) if platform.trains_together(len(data)) else None
    # Copies are fitted: an error in one fit leaves all estimators as they were.
    fitted = [copy.copy(estimator) for estimator in estimators]
    problems = [estimator._prepare(X, y, n_rows) for estimator, (X, y) in zip(fitted, data, strict=True)]
    _check_alike(problems)
    folder = _checkpoint_dir(estimators)
    checkpoints = checkpoints_of(folder, [type(estimator).__name__ for estimator in estimators], problems, n_members)
    callbacks = watched(list(CallbackList(callbacks).callbacks), checkpoints)
    with computing(), interruptible(checkpoints):
        if n_members == 1:
            for copied, trained in zip(fitted, train(problems, callbacks), strict=True):
                copied._accept(trained)
        else:
            for copied, members in zip(fitted, train_members(problems, n_members, callbacks), strict=True):
                copied._accept_members(members)
    if checkpoints is not None and checkpoints.is_interrupted:
        status = told("", checkpoints)
        for copied in fitted:
            copied.status_ = status
    for estimator, copied in zip(estimators, fitted, strict=True):
        estimator.__dict__ = copied.__dict__
    return list(estimators)


def _n_members(estimators: Sequence[ModelEstimator]) -> int:
    found = {checks.positive_int("n_members", estimator.n_members) for estimator in estimators}
    if len(found) > 1:
        raise DataError(
            f"estimators with n_members of {sorted(found)} were given; fit_many trains models of equal shape: fit the "
            "others in calls of their own."
        )
    return found.pop()


def _checkpoint_dir(estimators: Sequence[ModelEstimator]) -> Any:
    found = {str(checkpointing_of(e.checkpoint_dir)) for e in estimators}
    if len(found) > 1:
        raise DataError(
            f"estimators with several checkpoint_dir were given ({', '.join(sorted(found))}); expected one for all."
        )
    return estimators[0].checkpoint_dir


def _shape(problem: Problem) -> tuple[Any, ...]:
    """What must be equal: the model, but for the log rates of counts, which are numbers in its arrays, and columns."""
    spec = problem.spec
    if isinstance(spec.likelihood, Poisson):
        spec = dataclasses.replace(spec, likelihood=Poisson())
    return spec, problem.n_inputs, problem.y.shape[1]


def _check_alike(problems: list) -> None:
    first = problems[0]
    for i, problem in enumerate(problems):
        if _shape(problem) != _shape(first):
            raise DataError(
                f"problem {i} differs from problem 0 in its model or its number of columns; fit_many trains models of "
                "equal shape: fit the others in calls of their own."
            )
