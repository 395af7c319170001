"""What the scikit-learn estimators share: options, scaling, training, prediction, files."""

from __future__ import annotations

import dataclasses
import numbers
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import specs
from ..callbacks import ProgressBar
from ..errors import DataError, OptionError, unknown_option
from ..runtime import computing
from ..training import Problem, Trained, train
from . import prediction
from .scaling import Scaler

OPTION_TO_TRAINING = {
    "n_steps": "n_steps",
    "max_iter": "max_iter",
    "batch_size": "batch_size",
    "learning_rate": "learning_rate",
    "n_train_samples": "n_train_samples",
}


class ModelEstimator(BaseEstimator):
    """Base of the regressors and the classifier; subclasses say what model they are and what y is."""

    # --- what a subclass fills in ---

    def _model_spec(self, training: specs.TrainingSpec, likelihood: specs.LikelihoodSpec) -> Any:
        raise NotImplementedError

    # --- fitting ---

    def _problem(self, X: np.ndarray, y: np.ndarray, likelihood: specs.LikelihoodSpec) -> Problem:
        """Scale, choose settings, and say what is to be trained."""
        training = self._training(len(X), X.shape[1])
        spec = self._model_spec(training, likelihood)
        self.x_scaler_ = Scaler.of(X)
        is_scaled = isinstance(likelihood, specs.Gaussian | specs.StudentT)
        self.y_scaler_ = Scaler.of(y) if is_scaled else Scaler.identity(y.shape[1])
        self.training_, self.spec_ = training, spec
        self.seed_ = self._seed()
        rate = self.__dict__.get("learning_rate")
        return Problem(
            spec,
            training,
            self.x_scaler_.forward(X),
            self.y_scaler_.forward(y),
            _positive_int("n_inducing", self.n_inducing),
            self.seed_,
            rate if callable(rate) else None,
        )

    def _seed(self) -> int:
        """The seed of initialisation, training and prediction. `random_state=None` means 0: a fit can be repeated."""
        if self.random_state is None or isinstance(self.random_state, numbers.Integral):
            return int(self.random_state or 0)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _training(self, n_rows: int, n_inputs: int) -> specs.TrainingSpec:
        """The preset's rule for N and D; options that were given win."""
        preset = getattr(self, "preset", "fast")
        if preset not in specs.PRESETS:
            raise unknown_option("preset", preset, list(specs.PRESETS))
        chosen = specs.PRESETS[preset](n_rows, n_inputs)
        given = {}
        for option, field in OPTION_TO_TRAINING.items():
            value = getattr(self, option, None)
            if value is None or (option == "learning_rate" and callable(value)):
                continue
            given[field] = (
                _positive_number(option, value) if option == "learning_rate" else _positive_int(option, value)
            )
        return dataclasses.replace(chosen, **given)

    def _accept(self, trained: Trained) -> None:
        """Keep what training gave."""
        self.model_, self.history_, self.n_iter_ = trained.model, trained.history, trained.n_iter
        self.status_ = trained.status

    def _run(self, problem: Problem) -> None:
        with computing():
            self._accept(train([problem], _callbacks(self, len(problem.X)))[0])

    # --- prediction ---

    def _scaled(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        return self.x_scaler_.forward(_checked_inputs(self, X, reset=False))

    def _n_predict(self) -> int:
        return _positive_int("n_predict_samples", getattr(self, "n_predict_samples", 1))

    def _moments(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        return prediction.predictive_moments(self.model_, self._scaled(X), self.seed_, self._n_predict())

    # --- files ---

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file (safetensors with a JSON header); `wishflow.load` reads it."""
        from .storage import save_estimator

        check_is_fitted(self, "model_")
        save_estimator(self, path)


def _callbacks(estimator: Any, n_points: int) -> list:
    given = estimator.callbacks
    callbacks = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    return [*callbacks, ProgressBar(n_points=n_points)] if estimator.verbose else callbacks


def _checked_inputs(estimator: Any, X: Any, reset: bool) -> np.ndarray:
    return validate_data(estimator, X, reset=reset, dtype=np.float64, ensure_all_finite=True)


def _positive_int(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise OptionError(f"{name}={value!r} given; expected a whole number of at least 1.")
    return int(value)


def _positive_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not np.isfinite(value) or value <= 0:
        raise OptionError(
            f"{name}={value!r} given; expected a positive number (or, for learning_rate, an optax schedule)."
        )
    return float(value)


def check_levels(name: str, values: Any) -> np.ndarray:
    """Probabilities strictly between 0 and 1."""
    levels = np.atleast_1d(np.asarray(values, float))
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
        raise OptionError(f"{name}={values!r} given; expected probabilities strictly between 0 and 1.")
    return levels


def check_same_rows(X: np.ndarray, y: np.ndarray) -> None:
    if len(X) != len(y):
        raise DataError(f"X has {len(X)} rows and y has {len(y)}; they must have the same number of rows.")
