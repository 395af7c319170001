"""`FlowClassifier`: two classes by a Bernoulli likelihood, more by a softmax."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..errors import DataError
from ..likelihoods import Bernoulli, Categorical, LikelihoodSpec
from ..training.specs import TrainingSpec
from . import presets
from .data import check_same_rows, checked_rows
from .estimator import ModelEstimator, Validated, check_average
from .flow_options import flow_spec, flow_training
from .training import Problem


class FlowClassifier(Validated, ClassifierMixin, ModelEstimator):
    """Inputs flow through a stochastic differential equation before a sparse GP classifies.

    The options are those of `FlowRegressor`; states are the inputs unless `state_dim` says otherwise. Probabilities
    are means over sample paths and over the posterior of g. `validation_fraction` is 0.1 from 600 rows on and 0 below,
    where it is None. With n_members=K they are also means over K members, each
    fitted without one fold of the rows; `oof_predictions_` are the probabilities of each row by the member that has not
    seen it.
    """

    def __init__(
        self,
        diffusion="wishart",
        rank=5,
        columns="shared",
        kernel="rbf",
        n_inducing=100,
        flow_time=1.0,
        state_dim=None,
        sampling="marginal",
        time_dependent=False,
        preset="fast",
        n_steps=None,
        max_iter=None,
        batch_size=None,
        learning_rate=None,
        tol=None,
        n_train_samples=None,
        path_average=None,
        n_predict_samples=100,
        random_state=None,
        callbacks=None,
        verbose=0,
        n_members=1,
        validation_fraction=None,
        drift_posterior="point",
    ):
        self.diffusion = diffusion
        self.rank = rank
        self.columns = columns
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.flow_time = flow_time
        self.state_dim = state_dim
        self.sampling = sampling
        self.time_dependent = time_dependent
        self.preset = preset
        self.n_steps = n_steps
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.n_train_samples = n_train_samples
        self.path_average = path_average
        self.n_predict_samples = n_predict_samples
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose
        self.n_members = n_members
        self.validation_fraction = validation_fraction
        self.drift_posterior = drift_posterior

    def _training(self, n_rows: int, n_inputs: int) -> TrainingSpec:
        return flow_training(self, presets.CLASS_PRESETS, n_rows, n_inputs)

    def _model_spec(self, training: TrainingSpec, likelihood: LikelihoodSpec) -> Any:
        return flow_spec(self, training, likelihood)

    def fit(self, X: Any, y: Any) -> FlowClassifier:
        """Fit to inputs X (N, D) and labels y (N,)."""
        fitted = copy.copy(self)
        return self._trained(fitted, fitted._prepare(X, y))

    def _prepare(self, X: Any, y: Any, n_rows: int | None = None) -> Problem:
        X, y = checked_rows(self, X, y, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, labels = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(
                f"y holds one class only ({self.classes_[0]!r}); a classifier needs rows of at least two classes."
            )
        n_classes = len(self.classes_)
        likelihood = Bernoulli() if n_classes == 2 else Categorical(n_classes)
        return self._problem(X, labels[:, None].astype(float), likelihood, n_rows)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, (N, C), in the order of `classes_`."""
        check_is_fitted(self, "model_")
        return self._probabilities(self._moments(X)[0])

    def _out_of_fold(self, mean: np.ndarray) -> np.ndarray:
        return self._probabilities(mean)

    def _probabilities(self, mean: np.ndarray) -> np.ndarray:
        """Probabilities of all classes, from that of the second of two or those of more."""
        p = np.column_stack([1.0 - mean[:, 0], mean[:, 0]]) if len(self.classes_) == 2 else mean
        return p / p.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]

    def log_prob(self, X: Any, y: Any, average: str = "density") -> np.ndarray:
        """Log probability of the label of each row, (N,); `average` as in `FlowRegressor.log_prob`."""
        check_average(average)
        Z = self._scaled(X)
        return self._log_prob(Z, self._labels(y, len(Z)), average)

    def _labels(self, y: Any, n_rows: int) -> np.ndarray:
        """The positions of labels in `classes_`, (N, 1)."""
        y = column_or_1d(y)
        check_same_rows(n_rows, len(y))
        is_known = np.isin(y, self.classes_)
        if not is_known.all():
            raise DataError(
                f"y holds the label {y[~is_known][0]!r}, which was not in the training data; expected one of "
                f"{self.classes_.tolist()}."
            )
        return np.searchsorted(self.classes_, y)[:, None].astype(float)
