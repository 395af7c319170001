"""`WishartForecaster`: multivariate series with correlated noise that changes with the state; joint forecasts."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .. import specs
from ..callbacks import make_callbacks
from ..errors import OptionError, unknown_option
from ..kernels.specs import KERNELS, KernelSpec
from ..numerics.random import noise_seed
from ..specs import checks
from ..training.backends import Workers
from ..training.checkpoints import Checkpoints, checkpoints_of, interruptible, told, watched
from ..training.options import TrainingOptions, preset_spec, with_options
from ..training.specs import TrainingSpec
from ..wishart.specs import DIFFUSIONS, DiffusionSpec, GPDiffusion, Wishart
from . import defaults, updating
from .data.effects import in_other_units, with_added_series
from .data.frames import ONLY, Panel, check_form, check_targets, named_as, read
from .data.given import cells, of_series
from .data.horizons import checked, horizon
from .data.intake import further_rows, training_data
from .data.units import Tail, Units
from .drift import DriftMonitor
from .fitting import FitTask, train
from .forecast import Forecast
from .forecast_frames import ForecastFrames
from .members import Member, joined, status_of
from .noise_frames import read_covariates
from .noise_plots import NoisePlots
from .presets import SERIES_PRESETS
from .recalibration import Moved
from .running import runner_of
from .running.base import AbstractRunner, limits_with, sides
from .running.mixture import MixedRunner, member_seed
from .running.panels import Ahead, Paths, panel_paths
from .scenarios import Way, scenario
from .specs import DynamicsSpec, Lags, chosen_lags
from .step_scores import counted_once, new_steps, row_scores, step_scores
from .summary import announce, summary_of, warn_of_drift
from .validated import Validated
from .windows import value_range


class WishartForecaster(ForecastFrames, NoisePlots, BaseEstimator):
    """An SDE with Wishart noise for multivariate time series: irregular stamps, missing values, joint forecasts.

    Options that are "auto" are chosen in `fit`; `summary()` says what was chosen and why. See Notes.

    Parameters
    ----------
    drift : {"linear+gp", "gp", "linear", "none"}, default="linear+gp"
        Parts of the drift: a linear auto-regression, a Gaussian process, both, or nothing.
    diffusion : str or DiffusionSpec, default="wishart"
        Noise: "wishart", "gp", "constant" (correlated, the same everywhere), "diagonal", "none", or a spec such as
        `wf.diffusions.Wishart(rank=5, unit_rows=False)`.
    white_noise : {"auto", "constant", "state"}, default="auto"
        Whether the diagonal noise Λ beside the diffusion is constant or depends on the state. "auto" is "state" from
        1000 rows on.
    innovations : {"gaussian", "student_t"}, default="gaussian"
        Law of the noise of a step. "student_t" has heavier tails, and its degrees of freedom are learnt. Gaussian noise
        may get heavier tails in `fit`, see `calibrate`.
    rank : int, "auto" or None, default="auto"
        Rank ρ of the diffusion "wishart". It acts as the number of series where it is larger or None: full rank. "auto"
        is 5, or the number of series where that is smaller.
    columns : {"independent", "shared"}, default="independent"
        Whether the columns of J in the diffusion "wishart" have posteriors of their own or share one.
    latent_dim : int, Latent or None, default=None
        Dimensions of a latent state. The series is then seen through a readout of it, linear for a number; see
        `wf.series.Latent`. None: the series is the state itself.
    lags : int, tuple of int or "auto", default="auto"
        Rows that a step looks back at: a number p for the rows 1, …, p steps back, or chosen ones that begin with 1,
        such as (1, 2, 3, 24). Above 1 they need a regular grid and count its rows.
    calendar : bool, "seasonal" or "auto", default="auto"
        Whether harmonics of day, week and year are inputs. "seasonal" adds products of the harmonics of the day with
        those of the year, for the linear drift: a daily cycle that changes with the season.
    freq : str, offset, number or None, default=None
        Frequency of a regular grid, such as "h"; a number where stamps are numbers. Every row goes to the step nearest
        to it, and rows of one step are merged cell by cell. None: the stamps say what a step is (`freq_`).
    transform : str, transformer, dict, "auto" or None, default="auto"
        Transform of the columns before the model sees them: a name ("log1p", "scaled_log1p", "log", "sqrt", "asinh"),
        an object with `transform` and `inverse_transform`, or a dict of them by column.
    objective : {"transition", "rollout"}, default="transition"
        "transition" scores each row given those before it (with a latent state: by particles). "rollout" scores free
        simulations from the first row of a window (with a latent state: from its first rows, encoded), as in the paper.
    kernel : str or KernelSpec, default="rbf"
        Kernel of the Gaussian processes: "rbf", "matern12", "matern32", "matern52", "linear", "periodic", or a spec
        from `wishflow.kernels`.
    n_inducing : int or "auto", default="auto"
        Number M of inducing points. "auto" is one for every 20 rows, at least 10 and at most 100.
    step : float, default=1.0
        The longest Euler step, in units of time. A unit is `freq`, or else the median gap of the stamps. A gap of
        length g is cut into ⌈g/step⌉ equal steps wherever the model is used. Other values than 1 need `lags=1`.
    max_gap : int, default=24
        Gaps above this number of steps cut the series. A smaller `step` needs a larger `max_gap`.
    limits : float or None, default=None
        How far simulated paths may leave the range of each column in training (of a panel: of all its series together).
        0 keeps them within it, 0.1 lets them go a tenth of the range beyond it, None lets them go anywhere.
    preset : {"fast", "paper"} or TrainingSpec, default="fast"
        How the model is trained. "paper" has the paper's settings as far as they are known; use `objective="rollout"`
        with it. Options that are None come from the preset.
    max_iter : int, "auto" or None, default="auto"
        The most iterations. "auto" is one for every 10 rows, from 200 to 800, where options are chosen by held-back
        rows (200 above 50 series), and the preset's number elsewhere.
    batch_size : int, optional
        Steps, or windows of rows, of a batch.
    learning_rate : float or callable, optional
        Learning rate of Adam, or an optax schedule.
    tol : float, optional
        Least rise of the objective, in nats per row. Where the best mean over 100 iterations has not risen by it in
        five times 100 iterations, the learning rate starts to fall; where it falls already, training ends. 0 switches
        this off.
    n_train_samples : int, optional
        Draws of the diffusion for each step in training; simulated paths or particles with a latent state or rollouts.
    path_average : {"log", "density"}, optional
        What is averaged over these draws: log densities, or densities. "log" alone takes one draw.
    random_state : int, RandomState or None, default=None
        Seed of initialisation, training and forecasts. None means 0, so that a fit can be repeated.
    callbacks : Callback or list of Callback, optional
        Callbacks of training, from `wishflow.callbacks` or of your own.
    verbose : int, default=0
        0 is silent, 1 shows progress and says what was inferred and chosen.
    drift_posterior : {"point", "gaussian"}, default="point"
        "point" is a fitted GP drift. With "gaussian" its weights have a posterior with its full KL divergence, and each
        simulated path draws a function.
    validation_fraction : float, default=0.1
        Part of the rows, the last ones, that is held back to choose options and to decide what is kept. 0 turns both
        off.
    calibrate : {"auto", None}, default="auto"
        With "auto" forecasts are recalibrated by horizon and column, and Gaussian noise may get heavier tails, where
        rows are held back. None turns both off.
    n_members : int, default=1
        K > 1 mixes K models that are trained from different starts.
    reservoir_size : int, default=4096
        How many rows of the past are kept for `update(update_params=True)`, from 0 to 1,000,000.
    panel_effects : bool, default=False
        Whether each series of a panel has its own level and scale, shrunk towards those of all rows. True is for series
        of different size that move alike, such as sales of several stores. False is for paths of one system, whose
        dynamics depend on the values themselves.
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
    model_ : DynamicsModel or LatentModel
        The fitted model, in scaled units; with several members the first of them.
    spec_ : DynamicsSpec
        The model that was kept, which may be simpler than the one asked for. `spec_.innovations` is "jumps" or
        "student_t" where its noise has such tails. With several members that of the first.
    training_ : TrainingSpec
        How the model was trained: the preset with the options that were given.
    history_ : DataFrame
        One row for each iteration, none where nothing was trained: `objective` and its parts. See Notes on `bound`.
        With several members it has a column "member".
    validation_history_ : DataFrame or None
        The candidates that were compared on the held-back rows: CRPS by band of horizons, mean log density of a row
        given those before it, coverage of 80 % intervals, and which one was kept. None where nothing was compared. With
        several members it has a column "member", and where two choices of options were compared a column "options by".
    n_iter_ : int
        Number of iterations, of all members together.
    status_ : str
        How training ended, what was kept and why, and the tails of the noise. After `update` with `update_params`:
        whether the new parameters were accepted.
    calibration_ : HorizonScales or None
        Factors by horizon and column that deviations from the mean of a forecast are multiplied by. None: forecasts are
        as the model gives them.
    lags_ : tuple of int
        The lags.
    calendar_ : tuple of str
        The periods of the calendar: some of "day", "week", "year", "day*year", "weekdays" and "months".
    transform_ : str, transformer, dict or None
        The transform, as given, or as chosen by column.
    rank_ : int or None
        The rank of the diffusion "wishart".
    white_noise_ : str
        The kind of white noise.
    n_inducing_ : int
        Number of inducing points.
    max_iter_ : int
        The most iterations.
    reasons_ : dict of str to str
        Why the values of options that were "auto" were chosen, by option; "prior" is that of the linear weights, and
        "options" says which of two choices was kept.
    freq_ : str, number or None
        Frequency of the steps, given or inferred. None: stamps are irregular.
    end_ : Timestamp, Period or number
        The last stamp seen; forecasts start after it.
    limits_ : ndarray of shape (2, P) or None
        The lowest and highest values of paths, in scaled units.
    drift_ : dict of str to float or None
        Whether rows since `fit` follow the fitted law, as numbers.
    refit_due_ : bool
        Whether rows since `fit` differ so much from held-back rows that a new fit is due.
    monitor_ : DriftMonitor or None
        What `drift_` and `refit_due_` are computed from.
    columns_ : Index
        Names of the P series.
    is_series_ : bool
        Whether `y` was one Series.
    is_panel_ : bool
        Whether `y` was a panel.
    name_ : object
        Name of `y` where it was a Series, else None.
    fh_ : object
        The horizon given to `fit`.
    seed_ : int
        The seed that `random_state` stood for.
    units_ : Units
        Time axis, scales, transforms and covariates: from the units of the data to those of the model and back.
    tails_ : dict
        The last rows of each series, which forecasts start from.
    reservoir_ : dict or None
        Rows of the past that are kept for training in `update`. None in forecasters loaded from files of older
        versions.
    members_ : tuple of Member
        Model and spec of each member with a weight above 0. Only with `n_members` above 1, as the following one.
    weights_ : ndarray
        Weights of these members.

    See Also
    --------
    Forecast : What `forecast` returns.
    backtest : Score forecasts from many origins.
    wishflow.diffusions : Specs of diffusions.
    wishflow.sktime.WishartForecaster : The same with the interface of sktime.

    Notes
    -----
    The model is dx = μ(x, lags, u) dt + √(Σ(x, u) + Λ) dB, in Euler steps from row to row. u are covariates and
    harmonics of the calendar. For "wishart" Σ = L J Jᵀ Lᵀ with a matrix J of Gaussian processes.

    Choice of options: lags, calendar and transform that are "auto" are chosen by rolled forecasts of linear models over
    the last rows, the sizes by the number of rows and series. Below 500 rows the evidence of the linear model chooses
    lags, transform and prior too. Where the two differ, both are trained, which takes twice as long. The held-back rows
    decide: the choice of the evidence is kept unless the other one is clearly ahead. Below 50 rows the evidence alone
    chooses. Above 50 series it is not asked. Choices do not depend on the unit of y, nor, but for logarithms, on where
    its zero is.

    Held-back rows: the last `validation_fraction` of the rows also decides when training ends and what is kept of it:
    the linear auto-regression that training starts from, or a constant mean in its place, the Wishart noise beside it,
    or the GP drift too. A candidate is kept if its log density or its CRPS in a band of horizons is better by a paired
    standard error, and none of these is worse by one. What is kept then sees all rows. Only models with a linear drift
    and the diffusion "wishart" are compared in this way. Where the held-back rows have fewer than 15 origins of
    forecasts (below about 195 rows) the linear auto-regression is kept, and nothing is trained.

    Plain values: with `validation_fraction=0` nothing is chosen, and "auto" means `lags=1`, `calendar=False`,
    `transform=None`, `rank=10`, `white_noise="constant"`, `n_inducing=100` and the iterations of the preset. The same
    holds for latent states, rollouts, irregular stamps and a `step` other than 1, and below 50 rows for a drift without
    a linear part and for other diffusions than "wishart".

    Recalibration: forecasts become wider or narrower by horizon and column, so that intervals cover what they claim in
    rolled forecasts. `Forecast.log_prob` is of the recalibrated law, `log_prob` of the forecaster of the model.

    Tails: with `calibrate="auto"` and `innovations="gaussian"` the noise may have heavier tails, where held-back rows
    ask for it: Student-t steps, or jumps, which are a share of the steps, at most a tenth, that is some times as wide
    as the others. `spec_.innovations` is then "student_t" or "jumps", and `status_` gives degrees of freedom, or share
    and width. The covariance of trained noise stays the same; that of constant noise with Student-t steps is the one of
    highest likelihood. With a logarithmic transform steps are not Student-t, so that forecasts have means. Tails are
    part of the model: `log_prob` and draws include them.

    Frequency: daily stamps that leave out every weekend are business days ("B"), and holidays are missing rows.
    `freq="D"` makes weekends steps too, and `freq=pd.offsets.CustomBusinessDay(holidays=…)` leaves out holidays.

    Transforms: draws are mapped back and not cut. With "log1p" they lie above −1, with "scaled_log1p", log(1 + y/c) in
    a unit c of the column, above −c, and with "sqrt" some may be slightly negative. Where that has no meaning use
    `limits=0`, or `np.maximum(draws, 0)` (log densities are then of the uncut law).

    Limits: steps end at the limit they would cross. Log densities of forecasts include these point masses, and are −∞
    for values beyond the limits. Forecasts with limits are not recalibrated.

    Lags: with chosen lags complete rows are scored and forecast exactly as with all lags up to the longest. Missing
    values are integrated out within six lags without a gap, and within longer memories where the longest lag times the
    number of series is at most 160. Elsewhere an old missing value (with 26 series: older than six rows) counts with
    its own mean and covariance, independent of other rows. From the fourth lag on, weights of *other* series start
    small and stay small: the further back their lag is in the list, the smaller.

    Members: options are chosen once. Each member keeps what the held-back rows support. Every second one has Student-t
    innovations where the others are Gaussian and no transform is a logarithm. The weights are those of highest density
    of the held-back rows, before any member has seen them; without such rows they are equal. Each path of a forecast
    comes from one member, densities are those of the mixture, and the recalibration is estimated for the mixture.

    Reservoir: all rows are kept up to `reservoir_size`. Of more rows the latest half of that number is kept, and blocks
    spread over the time before. The series of a panel share the number, with 192 rows or more for each. These rows are
    part of the fitted forecaster, its pickles and its model files. With 0 there are none, and updates train on the new
    rows and the last ones before them (`tails_`), which files always hold.

    Objective: the column `bound` of `history_` is the same number as `objective`, and is there only where that is a
    lower bound of the log evidence (`series.objectives.is_bound`). With the defaults it is a predictive objective.

    References
    ----------
    M. Jørgensen, M. P. Deisenroth and H. Salimbeni. Stochastic differential equations with variational Wishart
    diffusions. ICML 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import wishflow as wf
    >>> index = pd.date_range("2024-01-01", periods=40, freq="h")
    >>> walks = np.random.default_rng(0).normal(size=(40, 2)).cumsum(axis=0)
    >>> y = pd.DataFrame(walks, index, columns=["a", "b"])
    >>> forecaster = wf.WishartForecaster(rank=1, n_inducing=5, max_iter=3, validation_fraction=0).fit(y)
    >>> forecaster.forecast(fh=3, n_draws=50)
    Forecast(50 draws, 3 times from 2024-01-02 16:00:00 to 2024-01-02 18:00:00, 2 variables)
    >>> forecaster.predict_interval(fh=3, coverage=0.8).shape
    (3, 4)
    >>> forecaster.log_prob(y).shape
    (40,)
    """

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
        reservoir_size=updating.RESERVOIR,
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

    # --- fitting ---

    def fit(self, y: Any, X: Any = None, fh: Any = None) -> WishartForecaster:
        """Fit to series, and to covariates known in advance.

        Parameters
        ----------
        y : DataFrame, Series, array or dict
            The series: a column for each, a row for each stamp, NaN where a value is missing. A panel is a dict of
            frames by id, or a frame with a MultiIndex (id, time). The index holds increasing time stamps, periods or
            numbers.
        X : DataFrame, Series, array or dict, optional
            Covariates that are known in advance, without NaN: a row for each stamp of y. Of a panel a dict by id, or
            one frame for all series. Row i of an array belongs to row i of y, where rows of one stamp count as one.
            Where y has no value, and rows with values follow, covariates may be missing: those of the next row stand
            in.
        fh : int, str, list or Index, optional
            The horizon that `forecast` and `predict` take where they are given none. It is checked before training.

        Returns
        -------
        WishartForecaster
            The forecaster itself, fitted. An error, or Ctrl-C, leaves it as it was.

        Raises
        ------
        OptionError
            If an option has a value that is not known, or that does not go with another one, or if `fh` is no horizon.
        DataError
            If the data cannot be used as they are, for instance an index that is not sorted, or too few rows.
        TrainingError
            If training produces non-finite numbers from its very first step.

        Warns
        -----
        UserWarning
            With Student-t innovations and a logarithmic transform: forecasts then have no mean. Where stamps are nearly
            but not quite on a grid. Where rows are enough and regular, but none can be held back to choose options.
        TrainingWarning
            If forecasts of held-back rows are off by more than five standard deviations of y on average, or 80 %
            intervals one step ahead cover less than 60 % of them.
        """
        fitted = copy.copy(self)
        fitted._fit(y, X, fh)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, y: Any, X: Any, fh: Any) -> None:
        panel = read(y, "y")
        checks.verbosity(self.verbose)
        if self.calibrate not in ("auto", None):
            raise OptionError(f"calibrate={self.calibrate!r} given; expected 'auto' or None.")
        covariates = read_covariates(X)
        fraction = checks.fraction("validation_fraction", self.validation_fraction)
        n_members = checks.positive_int("n_members", self.n_members)
        workers = Workers.of(self.backend, self.backend_params, self.checkpoint_dir)
        size = checks.whole_number("reservoir_size", self.reservoir_size, 0, updating.MOST_RESERVOIR)
        plain = defaults.plain_settings(self.get_params(deep=False), "validation_fraction=0: no rows to choose by")
        ways: tuple[defaults.Settings, ...] = (plain,)
        if fraction > 0.0:
            ways = defaults.settings_of(self.get_params(deep=False), panel, covariates, fraction)
        self.seed_ = checks.fixed_seed(self.random_state)
        self.columns_, self.is_series_, self.is_panel_ = panel.columns, panel.is_series, panel.is_panel
        self.name_: Any = y.name if isinstance(y, pd.Series) else None
        has_effects, tasks = checks.flag("panel_effects", self.panel_effects), []
        for way in ways:
            check_targets(panel, way.lags)
            spec = self._spec(way.lags, way)
            units, tails = training_data(panel, covariates, spec, way.transform, way.calendar, self.freq, has_effects)
            if way.periods is not None:
                units, tails = defaults.with_periods(units, tails, way.periods)
            training = self._training(sum(len(s) for s in tails.values()), len(panel.columns), way.max_iter)
            if defaults.validates(spec, way):
                training = defaults.quick(training, fraction, self.n_train_samples is not None)
            tasks.append(FitTask(spec, training, units, tails, way, self.seed_, self._schedule, n_members))
        self._take(tasks[0])
        self.fh_ = None if fh is None else checked(fh, self.units_.axis, [t.index[-1] for t in tasks[0].tails.values()])
        announce(self, ways, panel if self.freq is None else None)
        n_steps = sum(n_members * task.training.max_iter for task in tasks)
        calibrates = self.calibrate is not None
        kept = checkpoints_of(workers.checkpoints_here, type(self).__name__, tasks, calibrates)
        with interruptible(kept):
            callbacks = lambda n_items: watched(make_callbacks(self, n_items, n_steps), kept)  # noqa: E731
            task, found = train(tasks, calibrates, callbacks, workers)
        self._take(task)
        self._accept(found, n_members, kept)
        self.monitor_: DriftMonitor | None = DriftMonitor.of(found.held_scores)
        self.validation_history_, self.calibration_ = found.candidates, found.calibration
        self.tails_ = {key: self.units_.last_rows(tail) for key, tail in task.tails.items()}
        self.reservoir_: dict[Any, Tail] | None = updating.reservoir_of(self.units_, task.tails, size)
        self._keep(task.settings)

    def _take(self, task: FitTask) -> None:
        """Keep spec, training, units and limits of a task."""
        self.spec_, self.training_, self.units_ = task.spec, task.training, task.units
        self.limits_ = self._limits(None if self.limits is None else value_range(task.units.in_common(task.tails)))

    def _accept(self, found: Validated, n_members: int, kept: Checkpoints | None) -> None:
        """The trained members; `model_` and `spec_` are those of the first."""
        for name in ("members_", "weights_"):
            self.__dict__.pop(name, None)
        if n_members > 1:
            self.members_ = tuple(Member(one.spec, one.model) for one in found.members)
            self.weights_ = found.weights
        self.model_, self.spec_ = found.members[0].model, found.members[0].spec
        history = joined([one.history for one in found.members])
        assert history is not None
        self.history_, self.n_iter_ = history, sum(one.n_iter for one in found.members)
        self.status_ = told(status_of(found.members, found.weights), kept)

    def _keep(self, settings: defaults.Settings) -> None:
        """Keep the chosen options as attributes."""
        self.lags_, self.calendar_ = chosen_lags(settings.lags), self.units_.periods
        self.transform_, self.rank_, self.white_noise_ = settings.transform, settings.rank, settings.white_noise
        self.n_inducing_, self.max_iter_ = settings.n_inducing, self.training_.max_iter
        self.reasons_ = dict(settings.reasons)

    def _spec(self, lags: Lags, settings: defaults.Settings | None = None) -> DynamicsSpec:
        settings = defaults.plain_settings(self.get_params(deep=False)) if settings is None else settings
        if self.innovations not in ("gaussian", "student_t"):  # a spec may have jumps too, which `fit` finds
            raise unknown_option("innovations", self.innovations, ("gaussian", "student_t"))
        # Steps of training cost the same with either cheap form of q (docs/performance.md).
        form = "structured"
        wishart = Wishart(rank=settings.rank, columns=self.columns, unit_rows=False, posterior=form)
        names = {**DIFFUSIONS, "wishart": wishart, "gp": GPDiffusion(form)}
        return DynamicsSpec(
            kernel=specs.resolve("kernel", self.kernel, KERNELS, KernelSpec),
            drift=self.drift,
            diffusion=specs.resolve("diffusion", self.diffusion, names, DiffusionSpec),
            white_noise=settings.white_noise,
            innovations=self.innovations,
            lags=lags,
            step=checks.positive_number("step", self.step),
            max_gap=float(checks.positive_int("max_gap", self.max_gap)),
            objective=self.objective,
            latent=defaults.latent_of(self.latent_dim),
            drift_posterior=self.drift_posterior,
        )

    def _training(self, n_rows: int, n_columns: int, max_iter: Any = defaults.AUTO) -> TrainingSpec:
        simulates = self.objective == "rollout" or self.latent_dim is not None
        options = TrainingOptions(
            max_iter=next((n for n in (max_iter, self.max_iter) if not defaults.is_auto(n)), None),
            batch_size=self.batch_size,
            n_train_samples=self.n_train_samples,
            learning_rate=self.learning_rate,
            path_average=self.path_average,
            tol=self.tol,
        )
        return with_options(preset_spec(self.preset, SERIES_PRESETS, n_rows, n_columns, simulates=simulates), options)

    def _limits(self, seen: Float[np.ndarray, "2 P"] | None) -> Float[np.ndarray, "2 P"] | None:
        """The lowest and highest values of a path, by those of all series, in the units that these have in common."""
        share = checks.share_or_none("limits", self.limits)
        if share is None or seen is None:
            return None
        if self.spec_.latent is not None:
            raise OptionError(
                f"limits={self.limits!r} given with latent_dim={self.latent_dim!r}; expected only one of them: "
                "limits apply to the series themselves, not to a latent state."
            )
        low, high = seen
        return np.stack([low - share * (high - low), high + share * (high - low)])

    @property
    def _schedule(self) -> Callable | None:
        return self.learning_rate if callable(self.learning_rate) else None

    def _runner(self, key: Any = ONLY) -> AbstractRunner:
        """The model with its limits in the units of one series; of several members their mixture."""
        limits = None if self.limits_ is None else self.units_.from_common(key, self.limits_)
        if not hasattr(self, "members_"):
            return runner_of(self.model_, limits)
        return MixedRunner([runner_of(member.model, limits) for member in self.members_], self.weights_)

    # --- forecasting ---

    @property
    def freq_(self) -> Any:
        """Frequency of the steps ("h", "B", "MS", a number), given or inferred; None where stamps are irregular."""
        return self.units_.axis.step_name

    @property
    def end_(self) -> Any:
        """The last stamp seen, of a panel the latest of all; forecasts start after it."""
        return max(tail.index[-1] for tail in self.tails_.values())

    def forecast(
        self, fh: Any = None, X: Any = None, n_draws: int = 1000, random_state: Any = None, given: Any = None
    ) -> Any:
        """Draw joint sample paths over a horizon.

        Parameters
        ----------
        fh : int, str, list or Index, optional
            The horizon. An int h or a time span ("48h") means all steps up to it, a list of ints these steps. Stamps,
            one or several, are taken as they are, in the time zone of the data. By default the horizon given to `fit`.
            A forecast is in order of time, whatever the order of `fh`.
        X : DataFrame, Series, array or dict, optional
            Covariates, as in `fit`, for each step up to the end of the horizon. Required where `fit` had some. An array
            has a row for each of these steps, or, where rows of y are numbered 0, 1, …, for each row of y and each of
            these steps.
        n_draws : int, default=1000
            Number of paths.
        random_state : int, RandomState or None, default=None
            Seed of the noise. None is the seed of `fit`. The noise differs between the series of a panel, and between
            ends of the data, so that errors of few draws do not repeat from one forecast to the next.
        given : DataFrame, Series, array or dict, optional
            Values in the units of y, known or assumed, at some stamps of the horizon and for some of the columns (NaN:
            free). An array has a row for each stamp and all columns. Of a panel it is a dict by id, or one frame for
            all series. See Notes.

        Returns
        -------
        Forecast or dict of Forecast
            The paths. A dict by id for a panel.

        Raises
        ------
        OptionError
            If `fh` is no horizon after the end of the data.
        DataError
            If `X` does not cover the horizon, `given` has unknown columns or stamps, or a series of a panel that came
            by `update` has no value yet.
        NumericalError
            If paths grow beyond all numbers before the end of the horizon.

        Warns
        -----
        UserWarning
            Where the draws of a scenario are worth few independent ones.

        Notes
        -----
        With `given` a forecast is a scenario: paths are draws from their joint law given all these cells. Given cells
        are in the paths as they are. They change the other series at their time, later times and earlier ones.

        This is exact for a linear drift with constant Gaussian noise. Elsewhere draws come from weighted particles.

        The law that is conditioned is that of the forecast without `given`, recalibrated where that is.

        With `limits`, a cell given at a limit means that the step went there or beyond. A cell given beyond a limit
        counts as if there were no limit, and paths may go as far.

        `Forecast.log_prob` of a scenario has `kind="moments"` only.
        """
        check_is_fitted(self, "model_")
        n_draws = checks.positive_int("n_draws", n_draws)
        seed = self.seed_ if random_state is None else checks.any_seed(random_state)
        covariates = self.units_.covariates(read_covariates(X))
        fh = self.fh_ if fh is None else fh
        scenarios = of_series(given, list(self.tails_))
        ahead = {key: self._ahead(key, tail, fh, covariates, seed) for key, tail in self.tails_.items()}
        found, free = {}, []
        for key, way in ahead.items():
            known = cells(scenarios[key], key, self.units_.axis, way.index, self.columns_)
            found[key] = None if known is None else self._scenario(key, way, known, n_draws)
            free += [key] if known is None else []
        runners = [self._runner(key) for key in free]
        for key, runner, paths in zip(
            free, runners, panel_paths(runners, [ahead[k] for k in free], n_draws), strict=True
        ):
            found[key] = self._forecast(key, runner, ahead[key], paths)
        return found if self.is_panel_ else found[ONLY]

    def _ahead(self, key: Any, tail: Tail, fh: Any, X: Panel | None, seed: int) -> Ahead:
        """The way from the end of a series to its horizon."""
        units = self.units_.of_series(key)
        index = horizon(units.axis, fh, tail.index[-1]).rename(units.index_names[-1])
        ticks = units.last_ticks(key, tail)
        h, u, place = units.future_ticks(key, tail, int(ticks.row[-1]), index, X)
        return Ahead(ticks, h, u, place, noise_seed(seed, key, tail.index[-1]), index)

    def _scenario(self, key: Any, ahead: Ahead, known: np.ndarray, n_draws: int) -> Forecast:
        units, way = self.units_.of_series(key), Way(ahead.ticks, ahead.h, ahead.u, ahead.place)
        draws = scenario(units, self._runner(key), self.calibration_, way, known, n_draws, ahead.seed)
        return Forecast(draws, ahead.index, self.columns_, given=known, axis=units.axis)

    def _forecast(self, key: Any, runner: AbstractRunner, ahead: Ahead, paths: Paths) -> Forecast:
        units, (values, before, limits) = self.units_.of_series(key), paths
        h, u, place, seed = ahead.h, ahead.u, ahead.place, ahead.seed
        before, values = before[:, place], values[:, place]
        # A law with point masses at limits has no wider or narrower form.
        law = Moved.of(self.calibration_ if limits is None else None, values, np.cumsum(h)[place])

        def log_density(y: np.ndarray) -> np.ndarray:
            is_outside = ~units.transforms.is_supported(y)
            inside = np.where(is_outside, np.nan, y)
            z = law.backward(units.forward(inside))
            density = runner.horizon_log_density(before, z, h[place], u[place], seed, limits) - law.log_scale
            # A probability has no Jacobian.
            density = density + units.log_jacobian(np.where(sides(z, limits)[0] == 0, inside, np.nan))
            # No draw is ever outside, and rows with an entry missing have no density at all.
            return np.where(is_outside.any(axis=1) & ~np.isnan(y).any(axis=1), -np.inf, density)

        return Forecast(units.draws(law.draws), ahead.index, self.columns_, log_density, axis=units.axis)

    # --- scores and covariances of given data ---

    def log_prob(self, y: Any, X: Any = None) -> pd.Series:
        """Return the log density of each row given those before it, in the units of y.

        It is that of the model, without recalibration.

        Parameters
        ----------
        y : DataFrame, Series, array or dict
            Rows, in the form of those of `fit`. Where they continue the data seen so far, these are their past. A panel
            may hold series that were not in `fit`. Rows of an array follow the last one seen, as in `update`.
        X : DataFrame, Series, array or dict, optional
            Covariates at these rows, as in `fit`.

        Returns
        -------
        Series
            A log density for each row, joint over the columns. NaN where a row has no past. Where several rows share a
            step of `freq`, the last one has their score and the others NaN.

        Raises
        ------
        DataError
            If `y` or `X` has another form or other columns than in `fit`.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> index = pd.date_range("2024-01-01", periods=40, freq="h")
        >>> walks = np.random.default_rng(0).normal(size=(40, 2)).cumsum(axis=0)
        >>> y = pd.DataFrame(walks, index, columns=["a", "b"])
        >>> forecaster = wf.WishartForecaster(rank=1, n_inducing=5, max_iter=3, validation_fraction=0).fit(y)
        >>> forecaster.log_prob(y).shape
        (40,)
        """
        panel = self._read(y)
        tails = self._with_past(panel, read_covariates(X))
        # Rows know no limits, the one thing in which runners of series differ.
        rows = row_scores(self.units_, self._runner(), {key: tail for key, (tail, _) in tails.items()}, self.seed_)
        scores = {key: counted_once(rows[key][at], at) for key, (_, at) in tails.items()}
        found = {key: pd.Series(values, index=panel.tables[key].index) for key, values in scores.items()}
        names = named_as(panel.names, self.units_.index_names)
        result = pd.concat(found, names=names) if self.is_panel_ else found[ONLY]
        return result.rename("log_prob")

    def _read(self, y: Any) -> Panel:
        """Further rows, in the form of those of `fit`."""
        check_is_fitted(self, "model_")
        panel = read(y, "y")
        check_form(panel, self.is_panel_)
        return self.units_.following(panel, self.tails_)

    def _with_past(self, panel: Panel, X: Panel | None) -> dict[Any, tuple[Tail, np.ndarray]]:
        """New rows in model units after the known past where they continue it, and where they are in the whole."""
        tails = {}
        for key, (new, of_row) in further_rows(self.units_, panel, X, self.tails_).items():
            past = self.tails_.get(key)
            goes_on = past is not None and new.index[0] > past.index[-1]
            whole = self.units_.joined(past, new) if past is not None and goes_on else new
            tails[key] = (whole, whole.index.get_indexer(new.index[of_row]))
        return tails

    def update(self, y: Any, X: Any = None, update_params: bool = False) -> WishartForecaster:
        """Condition on new rows and move the end of the data; on request also continue training.

        Parameters
        ----------
        y : DataFrame, Series, array or dict
            New rows, in the form of those of `fit`. At a stamp that is known already a new number replaces the old one,
            and a NaN leaves it. A panel may hold new series. With `panel_effects` these have a level and a scale of
            their own too, which follow their rows until the next fit. An array has no stamps: its rows follow the last
            one seen, step by step, which irregular stamps do not allow.
        X : DataFrame, Series, array or dict, optional
            Covariates at these rows, as in `fit`.
        update_params : bool, default=False
            Whether to train on. See Notes.

        Returns
        -------
        WishartForecaster
            The forecaster itself. An error leaves it as it was.

        Raises
        ------
        OptionError
            If `update_params` is no bool.
        DataError
            If `y` or `X` has another form or other columns than in `fit`.

        Warns
        -----
        UserWarning
            Once, where the new rows differ so much from those held back in `fit` that a new fit is due. With
            `update_params` also where the model file of an older version holds no rows of the past.

        Notes
        -----
        Training uses the new rows and a reservoir of the past (`reservoir_size`). The latest quarter of the new rows,
        those after the last known one, is held back from it. The parameters change only if neither these rows nor the
        latest of the known rows, which training does use, are described worse. `status_` says whether they changed, and
        `history_` names the phase of these iterations "update" or "rejected update".

        New rows are also compared with those held back in `fit`. `drift_` has the numbers, and `refit_due_` says
        whether a new fit is due. Only complete rows after complete rows count.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> index = pd.date_range("2024-01-01", periods=40, freq="h")
        >>> walks = np.random.default_rng(0).normal(size=(40, 2)).cumsum(axis=0)
        >>> y = pd.DataFrame(walks, index, columns=["a", "b"])
        >>> forecaster = wf.WishartForecaster(rank=1, n_inducing=5, max_iter=3, validation_fraction=0).fit(y)
        >>> later = pd.DataFrame([[1.0, 2.0]], [index[-1] + pd.Timedelta("1h")], y.columns)
        >>> forecaster.update(later).end_
        Timestamp('2024-01-02 16:00:00')
        """
        trains, panel = checks.flag("update_params", update_params), self._read(y)
        admitted = further_rows(self.units_, panel, read_covariates(X), self.tails_)
        self.units_.check_data(panel)
        new = {key: tail for key, (tail, _) in admitted.items()}
        tails, kept = updating.merged(self.units_, self.tails_, new), getattr(self, "reservoir_", None)
        past = kept or self.tails_
        rows = updating.merged(self.units_, kept, new) if kept else tails
        units = with_added_series(self.units_, rows)
        tails, rows, past = (in_other_units(part, self.units_, units) for part in (tails, rows, past))
        changed: dict[str, Any] = {
            "units_": units,
            "tails_": {key: units.last_rows(tail) for key, tail in tails.items()},
        }
        if kept is not None:
            changed["reservoir_"] = updating.reservoir_of(units, rows, self.reservoir_size)
        changed |= self._watch(tails, new)
        if trains:
            if kept is None:
                warnings.warn(
                    "the model file was written by an older version and holds no past rows: training continues with "
                    "only the new rows and the last ones before them. Fit again to use more rows.",
                    stacklevel=2,
                )
            changed |= self._train_on(units, rows, past)
        updated = copy.copy(self)
        updated.__dict__.update(changed)
        if updated.refit_due_ and not self.refit_due_:
            warn_of_drift(updated)  # before the rows are taken over: warnings may be errors
        self.__dict__ = updated.__dict__
        return self

    def _watch(self, tails: dict[Any, Tail], new: dict[Any, Tail]) -> dict[str, Any]:
        """The monitor of drift with the scores of the new rows."""
        monitor = getattr(self, "monitor_", None)
        if monitor is None:
            return {}
        ends = {key: tail.index[-1:] for key, tail in self.tails_.items()}
        steps = new_steps(self.units_, {key: tails[key] for key in new}, ends)
        if steps is None:
            return {}
        weights = getattr(self, "weights_", np.ones(1))
        return {"monitor_": monitor.after(step_scores([m.model for m in self._members()], weights, steps, self.seed_))}

    def _members(self) -> tuple[Member, ...]:
        return getattr(self, "members_", (Member(self.spec_, self.model_),))

    @property
    def drift_(self) -> dict[str, float] | None:
        """Whether rows since `fit` follow the fitted law, as numbers; None where no rows were held back for it.

        "statistic" is the largest of some sums (CUSUM) of how much the scores of new rows differ from those of
        held-back rows. It stays below "threshold" where nothing has changed: one false alarm is expected in
        "rows_per_false_alarm" rows. "n_rows" counts the rows since `fit`, or since an update that changed the
        parameters. "alarm" is the number of the row at which the threshold was passed, NaN before.
        """
        monitor = getattr(self, "monitor_", None)
        return None if monitor is None else monitor.numbers()

    @property
    def refit_due_(self) -> bool:
        """Whether rows since `fit` differ so much from those held back in it that a new fit is due."""
        monitor = getattr(self, "monitor_", None)
        return monitor is not None and monitor.is_due

    def _train_on(self, units: Units, rows: dict[Any, Tail], past: dict[Any, Tail]) -> dict[str, Any]:
        """The attributes that change when training continues with these rows."""
        members = self._members()
        found = [
            updating.train_further(
                member.model,
                member.spec,
                self.training_,
                units,
                rows,
                past,
                member_seed(self.seed_, k) + self.n_iter_,
                self._schedule,
                lambda n_items: make_callbacks(self, n_items),
            )
            for k, member in enumerate(members)
        ]
        limits = None if self.limits_ is None else self._limits(value_range(units.in_common(rows)))
        history = pd.concat([self.history_, joined([one.history for one in found])], ignore_index=True)
        trained = tuple(Member(member.spec, one.model) for member, one in zip(members, found, strict=True))
        monitor = getattr(self, "monitor_", None)
        has_changed = any(one.model is not member.model for member, one in zip(members, found, strict=True))
        return {
            **({"monitor_": monitor.restarted()} if monitor is not None and has_changed else {}),
            **({"members_": trained} if hasattr(self, "members_") else {}),
            "model_": found[0].model,
            "history_": history,
            "n_iter_": len(history) if len(found) > 1 else self.n_iter_ + len(found[0].history),
            "status_": status_of(found, getattr(self, "weights_", np.ones(1))),
            "limits_": self.limits_ if limits is None or self.limits_ is None else limits_with(self.limits_, limits),
        }

    def save(self, path: str | Path) -> None:
        """Write the fitted forecaster to one file, safetensors with a JSON header.

        Callbacks, schedules and random generators among the options are no part of it. The last rows and the reservoir
        of the past are.

        Parameters
        ----------
        path : str or path
            The file.

        Raises
        ------
        ModelFileError
            If a transform is an object: loading a file runs no code.

        See Also
        --------
        wishflow.load : Read the file.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> index = pd.date_range("2024-01-01", periods=40, freq="h")
        >>> walks = np.random.default_rng(0).normal(size=(40, 2)).cumsum(axis=0)
        >>> y = pd.DataFrame(walks, index, columns=["a", "b"])
        >>> forecaster = wf.WishartForecaster(rank=1, n_inducing=5, max_iter=3, validation_fraction=0).fit(y)
        >>> forecaster.save("series.wishflow")
        >>> wf.load("series.wishflow").end_ == forecaster.end_
        True
        """
        from .storage import save_forecaster

        check_is_fitted(self, "model_")
        save_forecaster(self, path)

    def summary(self) -> str:
        """Describe the fitted forecaster: options and why they were chosen, candidates, members, drift, recalibration.

        Returns
        -------
        str
            Several lines, to print.
        """
        check_is_fitted(self, "model_")
        return summary_of(self)
