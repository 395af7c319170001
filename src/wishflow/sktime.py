"""`WishartForecaster` as a forecaster of sktime, for its pipelines, searches and evaluations."""

from __future__ import annotations

import copy
from typing import Any

import pandas as pd

import wishflow as wf
from wishflow.errors import OptionError
from wishflow.specs.rollback import rolled_back

try:
    from sktime.forecasting.base import BaseForecaster
except ImportError as error:
    raise ImportError("wishflow.sktime needs sktime; install it with: pip install 'wishflow[sktime]'") from error


class WishartForecaster(BaseForecaster):
    """`wishflow.WishartForecaster` with the interface of sktime.

    The parameters are those of `wishflow.WishartForecaster`, whose documentation says more about each of them.

    Parameters
    ----------
    drift : {"linear+gp", "gp", "linear", "none"}, default="linear+gp"
        Parts of the drift.
    diffusion : str or DiffusionSpec, default="wishart"
        Noise: "wishart", "gp", "constant", "diagonal", "none", or a spec.
    white_noise : {"auto", "constant", "state"}, default="auto"
        Whether the diagonal noise beside the diffusion is constant or depends on the state.
    innovations : {"gaussian", "student_t"}, default="gaussian"
        Law of the noise of a step.
    rank : int, "auto" or None, default="auto"
        Rank of the diffusion "wishart".
    columns : {"independent", "shared"}, default="independent"
        Whether the columns of J in the diffusion "wishart" have posteriors of their own or share one.
    latent_dim : int, Latent or None, default=None
        Dimensions of a latent state. None: the series is the state itself.
    lags : int, tuple of int or "auto", default="auto"
        Rows that a step looks back at.
    calendar : bool, "seasonal" or "auto", default="auto"
        Whether harmonics of day, week and year are inputs.
    freq : str, offset, number or None, default=None
        Frequency of a regular grid. None: it is inferred from the stamps.
    transform : str, transformer, dict, "auto" or None, default="auto"
        Transform of the columns before the model sees them.
    objective : {"transition", "rollout"}, default="transition"
        Whether single steps or free simulations are scored in training.
    kernel : str or KernelSpec, default="rbf"
        Kernel of the Gaussian processes.
    n_inducing : int or "auto", default="auto"
        Number of inducing points.
    step : float, default=1.0
        The longest Euler step, in units of time.
    max_gap : int, default=24
        Gaps above this number of steps cut the series.
    limits : float or None, default=None
        How far simulated paths may leave the range of the data, as a share of that range. None: anywhere.
    preset : {"fast", "paper"} or TrainingSpec, default="fast"
        How the model is trained. Options that are None come from it.
    max_iter : int, "auto" or None, default="auto"
        The most iterations.
    batch_size : int, optional
        Steps, or windows of rows, of a batch.
    learning_rate : float or callable, optional
        Learning rate of Adam, or an optax schedule.
    tol : float, optional
        Least rise of the objective, in nats per row, for training to continue.
    n_train_samples : int, optional
        Draws of the diffusion for each step in training.
    path_average : {"log", "density"}, optional
        What is averaged over these draws.
    random_state : int, RandomState or None, default=None
        Seed of initialisation, training and forecasts. None means 0.
    callbacks : Callback or list of Callback, optional
        Callbacks of training.
    verbose : int, default=0
        0 is silent, 1 shows progress and says what was inferred and chosen.
    drift_posterior : {"point", "gaussian"}, default="point"
        Whether the weights of the GP drift are a point estimate or have a posterior.
    validation_fraction : float, default=0.1
        Part of the rows, the last ones, that is held back to choose options and to decide what is kept.
    calibrate : {"auto", None}, default="auto"
        Whether forecasts are recalibrated, and Gaussian noise may get heavier tails, by held-back rows.
    n_members : int, default=1
        How many models are trained and mixed.
    reservoir_size : int, default=4096
        How many rows of the past are kept for updates of the parameters.
    panel_effects : bool, default=False
        Whether each series of a panel has its own level and scale.
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
    forecaster_ : wishflow.WishartForecaster
        The fitted forecaster, which gives the sample paths themselves (`forecast`), log densities and covariances.

    See Also
    --------
    wishflow.WishartForecaster : The forecaster itself.

    Notes
    -----
    Point forecasts, intervals, quantiles, variances and distributions all come from the same joint sample paths.

    Horizons lie after the end of the data. Irregular stamps need a horizon with a frequency, such as
    `ForecastingHorizon([1, 2], freq="h")`.

    Scenarios (`given` of `wishflow.WishartForecaster.forecast`) have no place in the signatures of sktime, and a path
    belongs to a horizon, not to the parameters of a model. `forecaster_.predict(fh, given=…)` and the methods beside it
    take them; for a panel, `forecasters_` has the fitted adapter of each series.

    X is known in advance: it has a row for each step up to the end of the horizon, without NaN. y may hold NaN. Each
    series of a panel has a model of its own.

    Examples
    --------
    >>> from sktime.datasets import load_longley
    >>> from wishflow.sktime import WishartForecaster
    >>> y, _ = load_longley()
    >>> forecaster = WishartForecaster(rank=1, n_inducing=5, max_iter=3, validation_fraction=0).fit(y, fh=[1, 2])
    >>> forecaster.predict_interval(coverage=0.8).shape
    (2, 2)
    """

    _tags = {  # noqa: RUF012  (sktime reads them from the class)
        "authors": "wishflow authors",
        "maintainers": "wishflow authors",
        "python_dependencies": "wishflow",
        "y_inner_mtype": "pd.DataFrame",
        "X_inner_mtype": "pd.DataFrame",
        "requires-fh-in-fit": False,
        "capability:multivariate": True,
        "capability:exogenous": True,
        "capability:non_contiguous_X": False,
        "capability:categorical_in_X": False,
        "capability:missing_values": True,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:update": True,
        "capability:random_state": True,
        "property:randomness": "deterministic",  # random_state=None means a seed of 0
    }

    # `forecaster_` keeps the rows that forecasts start from; sktime's own copy of the data starts empty.
    _config = {"remember_data": False}  # noqa: RUF012
    _y = None
    _X = None

    def __init__(
        self,
        drift="linear+gp",
        diffusion="wishart",
        white_noise="auto",
        innovations="gaussian",
        rank="auto",
        columns="independent",
        latent_dim=None,
        lags="auto",
        calendar="auto",
        freq=None,
        transform="auto",
        objective="transition",
        kernel="rbf",
        n_inducing="auto",
        step=1.0,
        max_gap=24,
        limits=None,
        preset="fast",
        max_iter="auto",
        batch_size=None,
        learning_rate=None,
        tol=None,
        n_train_samples=None,
        path_average=None,
        random_state=None,
        callbacks=None,
        verbose=0,
        drift_posterior="point",
        validation_fraction=0.1,
        calibrate="auto",
        n_members=1,
        reservoir_size=4096,
        panel_effects=False,
        checkpoint_dir=None,
        backend=None,
        backend_params=None,
    ):
        self.drift = drift
        self.diffusion = diffusion
        self.white_noise = white_noise
        self.innovations = innovations
        self.rank = rank
        self.columns = columns
        self.latent_dim = latent_dim
        self.lags = lags
        self.calendar = calendar
        self.freq = freq
        self.transform = transform
        self.objective = objective
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.step = step
        self.max_gap = max_gap
        self.limits = limits
        self.preset = preset
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.n_train_samples = n_train_samples
        self.path_average = path_average
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose
        self.drift_posterior = drift_posterior
        self.validation_fraction = validation_fraction
        self.calibrate = calibrate
        self.n_members = n_members
        self.reservoir_size = reservoir_size
        self.panel_effects = panel_effects
        self.checkpoint_dir = checkpoint_dir
        self.backend = backend
        self.backend_params = backend_params
        super().__init__()

    # --- fitting ---

    # sktime forgets the last fit, and moves the end of the data, before it calls `_fit` and `_update`: without undoing
    # that, forecasts after an error would be for other stamps than those that are asked for.

    def fit(self, y: Any, X: Any = None, fh: Any = None) -> WishartForecaster:
        """Fit to series, as all forecasters of sktime; an error, or Ctrl-C, leaves the forecaster as it was.

        Parameters
        ----------
        y : time series of sktime
            The series.
        X : time series of sktime, optional
            Covariates.
        fh : int, list or ForecastingHorizon, optional
            The horizon of forecasts.

        Returns
        -------
        WishartForecaster
            The forecaster itself, fitted.
        """
        with rolled_back(self):
            return super().fit(y, X=X, fh=fh)

    def update(self, y: Any, X: Any = None, update_params: bool = True) -> WishartForecaster:
        """Take in new rows, as all forecasters of sktime; an error, or Ctrl-C, leaves the forecaster as it was.

        Parameters
        ----------
        y : time series of sktime
            The new rows.
        X : time series of sktime, optional
            Covariates at these rows.
        update_params : bool, default=True
            Whether to train on.

        Returns
        -------
        WishartForecaster
            The forecaster itself.
        """
        parts = getattr(self, "forecasters_", pd.DataFrame()).to_numpy().ravel()  # one for each series of a panel
        with rolled_back(self, *parts):
            return super().update(y, X=X, update_params=update_params)

    def update_predict_single(self, y: Any = None, fh: Any = None, X: Any = None, update_params: bool = True) -> Any:
        """Update and forecast, as all forecasters of sktime; an error, or Ctrl-C, leaves the forecaster as it was.

        Parameters
        ----------
        y : time series of sktime, optional
            The new rows.
        fh : int, list or ForecastingHorizon, optional
            The horizon of forecasts.
        X : time series of sktime, optional
            Covariates.
        update_params : bool, default=True
            Whether to train on.

        Returns
        -------
        time series of sktime
            Point forecasts.
        """
        parts = getattr(self, "forecasters_", pd.DataFrame()).to_numpy().ravel()
        with rolled_back(self, *parts):
            return super().update_predict_single(y=y, fh=fh, X=X, update_params=update_params)

    def _fit(self, y: pd.DataFrame, X: pd.DataFrame | None, fh: Any) -> WishartForecaster:
        # A horizon that cannot be forecast is refused before training.
        stamps = None if fh is None else self._stamps(fh)
        self.forecaster_ = wf.WishartForecaster(**self.get_params(deep=False)).fit(y, X, stamps)
        return self

    def _update(self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True) -> WishartForecaster:
        """Condition on the new rows; with `update_params` also continue training."""
        # A copy: where another series of a panel fails, this one is as it was too.
        self.forecaster_ = copy.copy(self.forecaster_).update(y, X, update_params=update_params)
        return self

    # --- forecasting ---

    def _stamps(self, fh: Any) -> pd.Index:
        """The stamps of a horizon, as sktime counts them from the end of the data."""
        try:
            return fh.to_absolute_index(self.cutoff)
        except (TypeError, ValueError, AssertionError) as error:
            raise OptionError(
                f"fh={fh!r} has no stamps after the end of the data, {self.cutoff[0]!r} ({error}); expected stamps of "
                "the kind of the data, or steps, which irregular stamps need a frequency for: "
                "ForecastingHorizon([1, 2], freq='h')."
            ) from error

    def _predict(self, fh: Any, X: pd.DataFrame | None) -> pd.DataFrame:
        return self.forecaster_.predict(self._stamps(fh), X)

    def _predict_quantiles(self, fh: Any, X: pd.DataFrame | None, alpha: list[float]) -> pd.DataFrame:
        return self.forecaster_.predict_quantiles(self._stamps(fh), X, alpha=alpha)

    def _predict_interval(self, fh: Any, X: pd.DataFrame | None, coverage: list[float]) -> pd.DataFrame:
        return self.forecaster_.predict_interval(self._stamps(fh), X, coverage=coverage)

    def _predict_var(self, fh: Any, X: pd.DataFrame | None = None, cov: bool = False) -> pd.DataFrame:
        return self.forecaster_.predict_var(self._stamps(fh), X, cov=cov)

    def _predict_proba(self, fh: Any, X: pd.DataFrame | None, marginal: bool = True) -> Any:
        """The sample paths as a distribution of skpro; with `marginal=False` its samples are whole paths."""
        try:
            from skpro.distributions import Empirical
        except ImportError as error:
            raise NotImplementedError(
                "predict_proba needs skpro; install it with: pip install 'wishflow[sktime]'"
            ) from error
        found = self.forecaster_.forecast(self._stamps(fh), X)
        draws, times, variables = found.samples.shape
        rows = pd.MultiIndex.from_product([range(draws), found.index])
        paths = pd.DataFrame(found.samples.values.reshape(draws * times, variables), rows, found.columns)
        return Empirical(paths, time_indep=marginal, index=found.index, columns=found.columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return small models for sktime's own checks.

        Parameters
        ----------
        parameter_set : str, default="default"
            Name of a set of parameters, which has no effect.

        Returns
        -------
        list of dict
            Parameters of each model.
        """
        few = {"n_inducing": 5, "max_iter": 3, "rank": 1, "n_train_samples": 1, "validation_fraction": 0}
        return [{**few, "lags": 1}, {**few, "lags": 2, "drift": "linear", "diffusion": "diagonal"}]
