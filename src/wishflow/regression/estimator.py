"""What the scikit-learn estimators share: options, scaling, training, prediction, files."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .. import likelihoods
from ..callbacks import make_callbacks
from ..errors import OptionError, unknown_option
from ..files.trust import MOST_PATH_STEPS
from ..files.writing import write_bytes_atomic
from ..likelihoods import LikelihoodSpec, Poisson, StudentT
from ..numerics.devices import computing
from ..numerics.meshes import data_mesh, is_first_process
from ..numerics.scaling import Scaler, random_directions, with_directions
from ..specs import checks
from ..training.backends import Workers
from ..training.checkpoints import checkpoints_of, interruptible, told, watched
from ..training.loop import HELD_OUT, went_wrong
from ..training.specs import TrainingSpec
from . import explained, plots, prediction
from .data import checked_rows
from .law import Law
from .members import Mixture, train_mixtures
from .problems import Problem, placed
from .summary import summary_of

# Rows further than this from the training data, in standard deviations, are moved here: squares must not overflow.
FARTHEST = 1e30
# What a mixture has beside one model.
OF_MIXTURES = ("members_", "member_specs_", "weights_", "oof_log_prob_", "oof_predictions_")


class ModelEstimator(BaseEstimator, abc.ABC):
    """Base of the regressors and the classifier; subclasses say what model they are and what y is."""

    # Options that a subclass may leave out of its own signature.
    n_steps: Any = None
    max_iter: Any = None
    batch_size: Any = None
    n_train_samples: Any = None
    learning_rate: Any = None
    path_average: Any = None
    tol: Any = None
    state_dim: Any = None
    validation_fraction: Any = None
    calibrate: Any = "auto"
    hyperprior: Any = "auto"
    n_members: Any = 1
    checkpoint_dir: Any = None
    backend: Any = None
    backend_params: Any = None

    # --- what a subclass fills in ---

    @abc.abstractmethod
    def _prepare(self, X: Any, y: Any, groups: Any = None) -> Problem:
        """Check X and y and say what is to be trained; `groups` are those of `fit`."""

    @abc.abstractmethod
    def _training(self, n_rows: int, n_inputs: int) -> TrainingSpec:
        """How the model is trained: the preset, and the options that were given in its place."""

    @abc.abstractmethod
    def _model_spec(self, training: TrainingSpec, likelihood: LikelihoodSpec) -> Any:
        """The model that the options describe."""

    # --- fitting ---

    def _trained(self, fitted: Any, problem: Problem, devices: Any = None) -> Any:
        """Train a copy and take over what it learnt at the very end.

        An error leaves the estimator exactly as it was, and so does Ctrl-C without `checkpoint_dir`.
        """
        n_members = checks.positive_int("n_members", self.n_members)
        workers = Workers.of(self.backend, self.backend_params, self.checkpoint_dir)
        mesh = data_mesh(devices)
        problem = placed(problem, mesh)
        folder = self.checkpoint_dir if n_members == 1 else workers.checkpoints_here
        checkpoints = checkpoints_of(folder, type(self).__name__, problem, n_members)
        # Of several processes with one fit the first one talks, and decides for all.
        talks = mesh is None or is_first_process()
        callbacks = watched(make_callbacks(self, problem.n_rows) if talks else [], checkpoints)
        with computing(), interruptible(checkpoints):
            fitted._accept(train_mixtures([problem], n_members, callbacks, workers)[0])
        fitted.status_ = told(fitted.status_, checkpoints)
        self.__dict__ = fitted.__dict__
        return self

    def _problem(
        self,
        X: np.ndarray,
        y: np.ndarray,
        likelihood: LikelihoodSpec,
        groups: np.ndarray | None = None,
        n_rows: int | None = None,
        scalers: tuple[Scaler, Scaler] | None = None,
    ) -> Problem:
        """Check the options, scale, and say what is to be trained.

        `groups` are numbers of groups of rows. X and y may be a sample of `n_rows` rows, whose scales are `scalers`.
        """
        checks.verbosity(self.verbose)
        n_inducing = checks.positive_int_or_auto("n_inducing", self.n_inducing)
        self.training_ = self._training(len(X) if n_rows is None else n_rows, X.shape[1])
        self.spec_ = self._model_spec(self.training_, likelihood)
        self.seed_ = checks.fixed_seed(self.random_state)
        known_x, known_y = (None, None) if scalers is None else scalers
        self.x_scaler_ = Scaler.of(X, "X") if known_x is None else known_x
        self.y_scaler_ = target_scaler(y, likelihood, known_y)
        schedule = self.learning_rate if callable(self.learning_rate) else None
        X, y = self.x_scaler_.forward(X), self.y_scaler_.forward(y)
        n_inputs, state_dim = X.shape[1], self.training_.state_dim
        self.directions_ = random_directions(X, n_inputs if state_dim is None else state_dim, self.seed_)
        X = with_directions(X, self.directions_)
        n_paths = self._n_predict()
        return Problem(
            self.spec_, self.training_, X, y, n_inducing, self.seed_, schedule, n_inputs, n_paths, groups=groups
        )

    def _accept(self, found: Mixture) -> None:
        """Keep what training gave; `model_` is the first flow, or the first sparse GP without flows."""
        for name in OF_MIXTURES:  # of an earlier fit
            self.__dict__.pop(name, None)
        first, n_members = found.first, len(next(iter(found.trained.values())))
        self.model_, self.history_, self.n_iter_, self.spec_ = first.model, first.history, first.n_iter, first.spec
        # A sparse GP that was fitted instead of a flow is one of the inputs.
        self.directions_ = self.directions_[:, : self.model_.output.basis.Z.shape[1] - len(self.directions_)]
        if not found.why:
            self.calibration_: Any = first.calibration
            self.status_ = first.status
            explained.warn_of([first.status])
            self.status_ += "" if first.calibration is None else f"; {first.calibration.describe()}"
            return
        self.members_ = {name: [one.model for one in trained] for name, trained in found.trained.items()}
        self.member_specs_ = {name: trained[0].spec for name, trained in found.trained.items()}
        self.weights_, self.calibration_ = found.weights, found.calibrations
        self.status_ = first.status if n_members == 1 else f"{n_members} members"
        self.status_ += f"; weights of candidates: {found.why}"
        for name, calibration in found.calibrations.items():
            self.status_ += "" if calibration is None else f"; {name} {calibration.describe()}"
        if explained.warn_of([one.status for trained in found.trained.values() for one in trained]):
            self.status_ += f"; {explained.NOTHING}"
        bad = [one.status for trained in found.trained.values() for one in trained if went_wrong(one.status)]
        if bad and n_members > 1:
            self.status_ += f"; {len(bad)} fits of members went wrong, the first: {bad[0]}"
        if found.log_density is not None and found.mean is not None:
            self.oof_log_prob_ = found.log_density - np.log(self.y_scaler_.scale).sum()
            self.oof_predictions_ = self._out_of_fold(self.y_scaler_.inverse(found.mean))

    def _out_of_fold(self, mean: np.ndarray) -> np.ndarray:
        """Out-of-fold means (N, P) in the form of predictions."""
        return mean

    # --- prediction ---

    def _scaled(self, X: Any) -> np.ndarray:
        """States of rows at time 0."""
        check_is_fitted(self, "model_")
        with np.errstate(over="ignore"):
            scaled = self.x_scaler_.forward(checked_rows(self, X, reset=False))
        return with_directions(np.clip(scaled, -FARTHEST, FARTHEST), self.directions_)

    def _n_predict(self) -> int:
        n_paths = checks.positive_int("n_predict_samples", getattr(self, "n_predict_samples", 1))
        n_steps = getattr(self.spec_, "n_steps", 1)
        if n_paths * n_steps > MOST_PATH_STEPS:
            raise OptionError(
                f"n_predict_samples={n_paths} given with n_steps={n_steps}; expected a product of at most "
                f"{MOST_PATH_STEPS}: pass fewer paths, or fewer steps."
            )
        return n_paths

    def _law(self) -> Law:
        """The predictive law of scaled targets."""
        if not hasattr(self, "members_"):
            return Law.of(self.model_, self.calibration_)
        return Law.of_members(self.members_, self.weights_, self.calibration_)

    def _moments(self, X: Any) -> tuple[np.ndarray, ...]:
        return prediction.predictive_moments(self._law(), self._scaled(X), self.seed_, self._n_predict())

    def _log_prob(self, X: np.ndarray, y: np.ndarray, average: str) -> np.ndarray:
        """Log density of scaled targets at scaled rows, (N,)."""
        mixture, mean_log = prediction.predictive_log_prob(self._law(), X, y, self.seed_, self._n_predict())
        return mixture if average == "density" else mean_log

    def summary(self) -> str:
        """Describe the fit: iterations and how they ended, steps that were skipped, and the size of the diffusion.

        Returns
        -------
        str
            Several lines, to print. Of a flow with Gaussian noise they say how large the diffusion is beside that
            noise, and whether it has collapsed.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, np.sin(X[:, 0]))
        >>> print(model.summary())  # doctest: +ELLIPSIS
        SparseGPRegressor, 1 inputs, ... iterations
        status: ...
        """
        check_is_fitted(self, "model_")
        return summary_of(self)

    # --- files ---

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file, safetensors with a JSON header.

        Callbacks, schedules and random generators among the options are no part of it.

        Parameters
        ----------
        path : str or path
            The file.

        See Also
        --------
        wishflow.load : Read the file.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, y)
        >>> model.save("model.wishflow")
        >>> bool((wf.load("model.wishflow").predict(X) == model.predict(X)).all())
        True
        """
        from .storage import save_estimator

        check_is_fitted(self, "model_")
        save_estimator(self, path)

    def export(self, path: str | Path, platforms: Sequence[str] | None = None) -> None:
        """Write predictions of mean and standard deviation as one program that runs without this package.

        The file holds StableHLO as `jax.export` serialises it. `jax.export.deserialize(bytes).call(X)` takes a float32
        array X (N, D), for any N, and returns the mean and the standard deviation, both (N, P), in the units of the
        training targets. For a classifier the mean is the probability of the second of two classes, or of each of more.
        Missing values and names of columns are not checked.

        Parameters
        ----------
        path : str or path
            The file.
        platforms : sequence of str, optional
            Where the program is to run, among "cpu", "cuda", "rocm" and "tpu". By default where this is called.

        Raises
        ------
        ImportError
            If `flatbuffers` is not installed (`pip install "wishflow[export]"`).

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, np.sin(X[:, 0]))
        >>> model.export("predictor.bin")  # doctest: +SKIP
        """
        from .exporting import exported_moments

        check_is_fitted(self, "model_")
        law, scalers = self._law(), (self.x_scaler_, self.y_scaler_)
        program = exported_moments(law, *scalers, self.directions_, self.seed_, self._n_predict(), platforms)
        write_bytes_atomic(path, program)

    def report(self, path: str | Path, X: Any = None, y: Any = None) -> Path:
        """Write what was trained, and how rows that took no part in it are predicted, to one HTML file.

        Parameters
        ----------
        path : str or path
            The file. The page needs no network.
        X : array-like of shape (N, D), optional
            Inputs of rows that took no part in training.
        y : array-like of shape (N,) or (N, P), optional
            Their targets.

        Returns
        -------
        path
            The file.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, y)
        >>> model.report("report.html", X, y).name
        'report.html'
        """
        from ..report import write_report

        check_is_fitted(self, "model_")
        return write_report(path, model=self, rows=None if X is None or y is None else (X, y))

    # --- pictures ---

    def plot_training(self, axes: Any = None) -> np.ndarray:
        """Draw how the fit went: the objective, its penalties, and the log density of held-back rows.

        Parameters
        ----------
        axes : sequence of Axes, optional
            Where to draw, as many as there are panels. By default a new figure.

        Returns
        -------
        ndarray of Axes
            One for the objective; one for the penalties of flows; one for held-back rows where there were some.

        Raises
        ------
        ImportError
            If matplotlib is not installed (`pip install "wishflow[plot]"`), as all methods `plot_*`.

        See Also
        --------
        wishflow.plotting.plot_training : What this method calls.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> from matplotlib.figure import Figure
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, np.sin(X[:, 0]))
        >>> [ax.get_title() for ax in model.plot_training(Figure().subplots())]
        ['Objective']
        """
        return plots.plot_training(self, axes)


class Validated:
    """What estimators of flows have beside the others."""

    history_: pd.DataFrame
    y_scaler_: Scaler

    @property
    def validation_history_(self) -> pd.DataFrame:
        """Mean log density of the held-back rows in the units of y, after each chunk of training.

        A frame with the columns `step` and `log_density`. Without rows where none were held back.
        """
        check_is_fitted(self, "model_")
        history = self.history_
        scores = history[HELD_OUT] if HELD_OUT in history else pd.Series(np.nan, history.index)
        found = pd.DataFrame({"step": history["step"] + 1, "log_density": scores - np.log(self.y_scaler_.scale).sum()})
        return found[scores.notna()].reset_index(drop=True)


def target_scaler(y: np.ndarray, likelihood: LikelihoodSpec, known: Scaler | None = None) -> Scaler:
    """The scale of targets (N, P): none for counts and labels; where outliers are part of the model, not by them.

    Mean and standard deviation may be known.
    """
    if isinstance(likelihood, StudentT):
        return Scaler.robust(y, "y")
    has_scale = likelihoods.build(likelihood, y.shape[1]).scales_target
    if not has_scale:
        return Scaler.identity(y.shape[1])
    return Scaler.of(y, "y") if known is None else known


def check_average(average: Any) -> None:
    if average not in ("density", "log"):
        raise unknown_option("average", average, ("density", "log"))


def with_log_rate(likelihood: LikelihoodSpec, y: np.ndarray) -> LikelihoodSpec:
    """A Poisson likelihood without log rates of its own gets log((Σ y + ½) / N) of each target (N, P).

    The ½ is for targets without any count.
    """
    if not isinstance(likelihood, Poisson) or likelihood.log_rate is not None:
        return likelihood
    log_rate = np.log((y.sum(axis=0) + 0.5) / len(y))
    return dataclasses.replace(likelihood, log_rate=tuple(log_rate.tolist()))
