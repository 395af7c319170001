"""Train many regressors or classifiers at once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ..callbacks import CallbackList
from ..errors import DataError
from ..numerics.devices import computing
from ..specs import checks
from ..training.checkpoints import checkpointing_of, checkpoints_of, interruptible, told, watched
from .estimator import ModelEstimator
from .members import train_mixtures


def fit_together(
    estimators: Sequence[ModelEstimator], data: Sequence[tuple[Any, ...]], callbacks: Any = None
) -> list[ModelEstimator]:
    """Fit regressors or classifiers with equally many members (`wishflow.fit_many`).

    On an accelerator those whose options and shapes are alike are trained in one program. An error in one fit leaves
    all of them as they were.
    """
    n_members = checks.positive_int("n_members", estimators[0].n_members)
    # Copies are fitted: an error in one fit leaves all estimators as they were.
    fitted = [copy.copy(estimator) for estimator in estimators]
    problems = [estimator._prepare(*part) for estimator, part in zip(fitted, data, strict=True)]
    folder = _checkpoint_dir(estimators)
    checkpoints = checkpoints_of(folder, [type(estimator).__name__ for estimator in estimators], problems, n_members)
    callbacks = watched(list(CallbackList(callbacks).callbacks), checkpoints)
    with computing(), interruptible(checkpoints):
        for copied, found in zip(fitted, train_mixtures(problems, n_members, callbacks), strict=True):
            copied._accept(found)
    if checkpoints is not None and checkpoints.is_interrupted:
        status = told("", checkpoints)
        for copied in fitted:
            copied.status_ = status
    for estimator, copied in zip(estimators, fitted, strict=True):
        estimator.__dict__ = copied.__dict__
    return list(estimators)


def _checkpoint_dir(estimators: Sequence[ModelEstimator]) -> Any:
    found = {str(checkpointing_of(e.checkpoint_dir)) for e in estimators}
    if len(found) > 1:
        raise DataError(
            f"estimators with several checkpoint_dir were given ({', '.join(sorted(found))}); expected one for all."
        )
    return estimators[0].checkpoint_dir
