"""`WishartForecaster` as a forecaster of sktime, for its pipelines, searches and evaluations."""

from __future__ import annotations

from typing import Any

import pandas as pd

import wishflow as wf

try:
    from sktime.forecasting.base import BaseForecaster
except ImportError as error:
    raise ImportError("wishflow.sktime needs sktime; install it with: pip install 'wishflow[sktime]'") from error


class WishartForecaster(BaseForecaster):
    """`wishflow.WishartForecaster` with the interface of sktime; the parameters are the same.

    Point forecasts, intervals, quantiles, variances and distributions are all those of the same joint sample paths.
    Horizons lie after the end of the data; irregular stamps need one with a frequency, such as
    `ForecastingHorizon([1, 2], freq="h")`. X is known in advance: it has a row for each step up to the end of the
    horizon, without NaN; y may hold NaN. Each series of a panel has a model of its own. `forecaster_` is the fitted
    `wishflow.WishartForecaster`, which gives the paths themselves (`forecast`), log densities and covariances.

    Examples
    --------
    >>> from sktime.datasets import load_longley
    >>> from wishflow.sktime import WishartForecaster
    >>> y, _ = load_longley()
    >>> forecaster = WishartForecaster(rank=1, n_inducing=5, max_iter=3, validation_fraction=0)
    >>> forecaster.fit(y, fh=[1, 2])
    WishartForecaster(...)
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
        super().__init__()

    # --- fitting ---

    def _fit(self, y: pd.DataFrame, X: pd.DataFrame | None, fh: Any) -> WishartForecaster:
        self.forecaster_ = wf.WishartForecaster(**self.get_params(deep=False)).fit(y, X)
        return self

    def _update(self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True) -> WishartForecaster:
        """Condition on the new rows; with `update_params` also go on training."""
        self.forecaster_.update(y, X, update_params=update_params)
        return self

    # --- forecasting ---

    def _stamps(self, fh: Any) -> pd.Index:
        """The stamps of a horizon, as sktime counts them from the end of the data."""
        return fh.to_absolute_index(self.cutoff)

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
            raise NotImplementedError("predict_proba needs skpro; install it with: pip install skpro") from error
        found = self.forecaster_.forecast(self._stamps(fh), X)
        draws, times, variables = found.samples.shape
        rows = pd.MultiIndex.from_product([range(draws), found.index])
        paths = pd.DataFrame(found.samples.values.reshape(draws * times, variables), rows, found.columns)
        return Empirical(paths, time_indep=marginal, index=found.index, columns=found.columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Small models for sktime's own checks."""
        small = {"n_inducing": 5, "max_iter": 3, "rank": 1, "n_train_samples": 1, "validation_fraction": 0}
        return [small, {**small, "drift": "linear", "diffusion": "diagonal", "lags": 2}]
