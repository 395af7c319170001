"""`FlowClassifier`: two classes by a Bernoulli likelihood, more by a softmax."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..errors import DataError
from ..likelihoods import Bernoulli, Categorical, LikelihoodSpec
from ..training.specs import TrainingSpec
from . import plots, presets
from .data import (
    check_labels,
    check_same_rows,
    checked_rows,
    groups_of,
    names_of_targets,
    our_errors,
    rows_of,
    target_names,
)
from .estimator import ModelEstimator, Validated, check_average
from .flow_options import flow_spec, flow_training
from .problems import Problem


class FlowClassifier(Validated, ClassifierMixin, ModelEstimator):
    """Inputs flow through a stochastic differential equation before a sparse GP classifies.

    Two classes have a Bernoulli likelihood, more a softmax. Probabilities are means over sample paths and over the
    posterior of g.

    Parameters
    ----------
    diffusion : str or DiffusionSpec, default="wishart"
        Noise of the flow: "wishart" (diffWGP), "gp" (diffGP), "diagonal" (constant), "none" (No noise), or a spec such
        as `wf.diffusions.Wishart(rank=5, white=0.01)`.
    rank : int or None, default=5
        Rank ρ of the diffusion "wishart". It acts as the dimensions of the state where it is larger or None: full rank.
    columns : {"shared", "independent"}, default="shared"
        Whether the columns of J in the diffusion "wishart" share one posterior or have their own.
    kernel : str or KernelSpec, default="rbf"
        Kernel of the output GP and, with starting values of its own, of the field: "rbf", "matern12", "matern32",
        "matern52", "linear", "periodic", or a spec from `wishflow.kernels`.
    n_inducing : int, default=100
        Number M of inducing points, of the output GP and of the field.
    flow_time : float, default=1.0
        Length T of the flow. 0 leaves the inputs where they are.
    state_dim : int, optional
        Dimensions of the state of the flow, at least D: the inputs, and random directions of them. By default the
        inputs.
    sampling : {"marginal", "pathwise"}, default="marginal"
        How J is drawn along a path: afresh at each step from its marginals, or once as a function for the whole path,
        which needs a kernel with random features.
    time_dependent : bool, default=False
        Whether drift and diffusion depend on the flow time too.
    preset : {"fast", "paper"} or TrainingSpec, default="fast"
        How the model is trained. A name is a rule of N and D alone. Options that are None come from it.
    n_steps : int, optional
        Euler steps of the flow.
    max_iter : int, optional
        The most iterations of the flow. The warm-up of the penalties keeps its share of them.
    batch_size : int, optional
        Rows of a batch, each with `n_train_samples` paths.
    learning_rate : float or callable, optional
        Learning rate of Adam, or an optax schedule.
    tol : float, optional
        Least rise of the objective, in nats per row. Where the best mean over 100 iterations has not risen by it in
        five times 100 iterations, the learning rate starts to fall; where it falls already, training ends. 0 switches
        this off.
    n_train_samples : int, optional
        Sample paths for each row in training.
    path_average : {"log", "density"}, optional
        What is averaged over the sample paths of a row in training: log probabilities, or probabilities.
    n_predict_samples : int, default=100
        Sample paths for each row in predictions.
    random_state : int, RandomState or None, default=None
        Seed of initialisation, training and prediction. None means 0, so that a fit can be repeated.
    callbacks : Callback or list of Callback, optional
        Callbacks of training, from `wishflow.callbacks` or of your own.
    verbose : int, default=0
        0 is silent, 1 shows a progress bar.
    n_members : int, default=1
        K > 1 fits K members, each without one fold of the rows. Probabilities are then also means over the members.
    validation_fraction : float, optional
        Part of the rows that is held back from training, as in `FlowRegressor` (rows of a group together): these rows
        weigh the flow and a sparse GP. The preset `fast` holds back a tenth from 600 rows on, `paper` none.
    drift_posterior : {"point", "gaussian"}, default="point"
        Whether the weights of the drift are fitted or have a posterior, as in `FlowRegressor`.
    checkpoint_dir : str, path or Checkpointing, optional
        Folder for checkpoints of training, so that the same fit goes on where it was killed. Ctrl-C then ends training
        at the next chunk of steps, with `status_` "interrupted" (docs/reliability.md). `wf.Checkpointing` also says how
        often a state is written and how many are kept.
    backend : {None, "loky", "ray", "dask", "slurm"}, default=None
        Where members are trained, one by one: in this process, or as in `wishflow.fit_many`. On a backend they have
        no callbacks.
    backend_params : dict, optional
        Options of the backend.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels, sorted.
    model_ : FlowModel
        The fitted flow, of scaled inputs; with several members the first. With few held-back rows a SparseGPModel.
    spec_ : FlowSpec or SparseGPSpec
        What `model_` is.
    training_ : TrainingSpec
        How the model was trained: the preset with the options that were given.
    history_ : DataFrame
        One row for each iteration: `objective` and its parts.
    validation_history_ : DataFrame
        Mean log probability of the held-back labels after each chunk of training: `step`, `log_density`.
    n_iter_ : int
        Number of iterations.
    status_ : str
        How training ended, and the weights of the candidates.
    x_scaler_ : Scaler
        Scales of the inputs.
    seed_ : int
        The seed that `random_state` stood for.
    n_features_in_ : int
        Number D of inputs.
    target_names_ : list of str or None
        Names of the targets; None where `y` had none.
    members_ : dict of str to list
        Models of all members by candidate. Only where there were several candidates or members, as the following ones.
    member_specs_ : dict of str to Spec
        Specs of the candidates.
    weights_ : dict of str to float
        Weights of the candidates.
    oof_predictions_ : ndarray of shape (N, C)
        Probabilities of each row by the member that has not seen it.
    oof_log_prob_ : ndarray of shape (N,)
        Log probability of each label by the member that has not seen it.

    See Also
    --------
    FlowRegressor : The same for numbers and counts.

    Examples
    --------
    >>> import numpy as np
    >>> import wishflow as wf
    >>> X = np.random.default_rng(0).uniform(-2.0, 2.0, (40, 1))
    >>> labels = np.where(X[:, 0] > 0.0, "right", "left")
    >>> model = wf.FlowClassifier(n_inducing=5, max_iter=20, n_steps=2, n_predict_samples=8).fit(X, labels)
    >>> model.classes_.tolist()
    ['left', 'right']
    >>> model.predict_proba(X).shape
    (40, 2)
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
        checkpoint_dir=None,
        backend=None,
        backend_params=None,
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
        self.checkpoint_dir = checkpoint_dir
        self.backend = backend
        self.backend_params = backend_params

    def _training(self, n_rows: int, n_inputs: int) -> TrainingSpec:
        return flow_training(self, presets.CLASS_PRESETS, n_rows, n_inputs)

    def _model_spec(self, training: TrainingSpec, likelihood: LikelihoodSpec) -> Any:
        return flow_spec(self, training, likelihood)

    def fit(self, X: Any, y: Any, *, groups: Any = None, devices: Any = None) -> FlowClassifier:
        """Fit to inputs and labels.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs. Frames keep the names of their columns.
        y : array-like of shape (N,)
            Labels, of at least two classes.
        groups : array-like of shape (N,), optional
            Labels of rows that belong together, such as the rows of one subject. They stay on one side of all splits
            inside `fit`: into held-back rows and others, and into the folds of members. By default rows with equal
            inputs are a group, if there are at least 30 distinct ones.
        devices : "all", int or list of jax.Device, optional
            Devices over which the rows of each batch are split: all that JAX has, the first of them, or a list. With
            several processes (`wishflow launch`) all of them call `fit` with the same data. The result does not depend
            on the number of devices, up to rounding. By default one device.

        Returns
        -------
        FlowClassifier
            The estimator itself, fitted. An error, or Ctrl-C, leaves it as it was.

        Raises
        ------
        OptionError
            If an option has a value that is not known.
        DataError
            If the data cannot be used as they are, or there is only one class.
        TrainingError
            If training produces non-finite numbers from its very first step.
        """
        fitted = copy.copy(self)
        return self._trained(fitted, fitted._prepare(X, y, groups), devices)

    def _prepare(self, X: Any, y: Any, groups: Any = None) -> Problem:
        check_labels(y)
        self.target_names_ = target_names(y)
        X, y = checked_rows(self, X, y, ensure_min_samples=2)
        with our_errors():
            check_classification_targets(y)
            self.classes_, labels = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(
                f"y holds one class only ({self.classes_[0]!r}); a classifier needs rows of at least two classes."
            )
        n_classes = len(self.classes_)
        likelihood = Bernoulli() if n_classes == 2 else Categorical(n_classes)
        return self._problem(X, labels[:, None].astype(float), likelihood, groups_of(X, groups))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.

        Returns
        -------
        ndarray of shape (N, C)
            Probabilities, in the order of `classes_`.
        """
        check_is_fitted(self, "model_")
        return self._probabilities(self._moments(X)[0])

    def _out_of_fold(self, mean: np.ndarray) -> np.ndarray:
        return self._probabilities(mean)

    def _probabilities(self, mean: np.ndarray) -> np.ndarray:
        """Probabilities of all classes, from that of the second of two or those of more."""
        p = np.column_stack([1.0 - mean[:, 0], mean[:, 0]]) if len(self.classes_) == 2 else mean
        return p / p.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Predict the logarithms of the class probabilities.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.

        Returns
        -------
        ndarray of shape (N, C)
            Log probabilities, in the order of `classes_`.
        """
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.

        Returns
        -------
        ndarray of shape (N,)
            Labels.
        """
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]

    def predict_frame(self, X: Any) -> pd.DataFrame:
        """Predict the class and the probabilities of all classes as a DataFrame.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.

        Returns
        -------
        DataFrame
            The columns NAME_class, with NAME the name of the target (y where it has none), and p_LABEL for each class.
            The index is that of `X` where it has one.

        Examples
        --------
        >>> model.predict_frame(X_test).to_csv("classes.csv")  # doctest: +SKIP
        """
        p = self.predict_proba(X)
        columns = {f"{names_of_targets(self)[0]}_class": self.classes_[p.argmax(axis=1)]}
        columns |= {f"p_{label}": p[:, i] for i, label in enumerate(self.classes_)}
        return pd.DataFrame(columns, rows_of(X, len(p)))

    def plot_calibration(self, X: Any, y: Any, ax: Any = None) -> Any:
        """Draw how often classes occurred against the probabilities that they were given.

        Rows are grouped by tenths of the probability. Of two classes the second is drawn.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs that took no part in training.
        y : array-like of shape (N,)
            Their labels.
        ax : Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        Axes
            The axes.

        Examples
        --------
        >>> model.plot_calibration(X_test, y_test)  # doctest: +SKIP
        """
        return plots.plot_reliability(self, X, y, ax)

    def log_prob(self, X: Any, y: Any, average: str = "density") -> np.ndarray:
        """Return the log probability of the label of each row.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.
        y : array-like of shape (N,)
            Labels that were in the training data.
        average : {"density", "log"}, default="density"
            What is averaged over sample paths: probabilities, or their logarithms, as in `FlowRegressor.log_prob`.

        Returns
        -------
        ndarray of shape (N,)
            Log probability of each label.

        Raises
        ------
        OptionError
            If `average` is not known.
        DataError
            If a label was not in the training data, or `y` has another number of rows than `X`.
        """
        check_average(average)
        Z = self._scaled(X)
        return self._log_prob(Z, self._labels(y, len(Z)), average)

    def _labels(self, y: Any, n_rows: int) -> np.ndarray:
        """The positions of labels in `classes_`, (N, 1)."""
        with our_errors():
            y = column_or_1d(y)
        check_same_rows(n_rows, len(y))
        is_known = np.isin(y, self.classes_)
        if not is_known.all():
            raise DataError(
                f"y holds the label {y[~is_known][0]!r}, which was not in the training data; expected one of "
                f"{self.classes_.tolist()}."
            )
        return np.searchsorted(self.classes_, y)[:, None].astype(float)
