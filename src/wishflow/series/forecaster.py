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
from ..specs import checks
from ..training.options import TrainingOptions, preset_spec, with_options
from ..training.specs import TrainingSpec
from ..wishart.specs import DIFFUSIONS, DiffusionSpec, GPDiffusion, Wishart
from . import defaults, updating
from .data.frames import ONLY, Panel, check_form, check_targets, named_as, read
from .data.given import cells, of_series
from .data.horizons import horizon
from .data.intake import further_rows, training_data
from .data.times import noise_seed
from .data.units import Tail
from .drift import DriftMonitor
from .fitting import FitTask, train
from .forecast import Forecast
from .forecast_frames import ForecastFrames
from .members import Member, joined, status_of
from .noise_frames import NoiseFrames, read_covariates
from .presets import SERIES_PRESETS
from .recalibration import Moved
from .running import runner_of
from .running.base import AbstractRunner, limits_with, sides
from .running.mixture import MixedRunner, member_seed
from .scenarios import Way, scenario
from .specs import DynamicsSpec, Lags, chosen_lags
from .step_scores import new_steps, step_scores
from .summary import announce, summary_of, warn_of_drift
from .validated import Validated
from .windows import Series, value_range


class WishartForecaster(ForecastFrames, NoiseFrames, BaseEstimator):
    """An SDE with Wishart noise for multivariate time series: irregular stamps, missing values, joint forecasts.

    Options that are "auto" are chosen in `fit`: lags, calendar and transform by rolled forecasts of linear models over
    the last rows, the sizes by the number of rows and series. `summary()` says what was chosen and why, and attributes
    with a trailing underscore (`lags_`, `calendar_`, `transform_`, `rank_`, …) hold it. The last `validation_fraction`
    of the rows also decides when training ends, and what is kept of it: the linear auto-regression that training starts
    from, the Wishart noise beside it, or the GP drift too (`status_`, `validation_history_`). What is kept then sees
    all rows. `validation_fraction=0` turns all of this off: "auto" is then lags=1, calendar=False, transform=None,
    rank=10, white_noise="constant", n_inducing=100 and the iterations of the preset. So it is for latent states,
    rollouts, irregular stamps and fewer than 50 rows. `calibrate="auto"` widens or narrows forecasts by horizon and
    column so that intervals cover what they claim in these rolled forecasts (`calibration_`; None: as the model says).

    drift: "linear+gp", "gp", "linear" or "none". diffusion: "wishart", "gp", "constant" (correlated, the same
    everywhere), "diagonal", "none" or a spec. white_noise: "auto", "constant" or "state". innovations: "gaussian", or
    "student_t" for noise with heavier tails (its degrees of freedom are learnt). `lags`: a number p for the rows 1, …,
    p steps back, or chosen ones that begin with 1, such as (1, 2, 3, 24); above 1 they need a regular grid and count
    its rows. `freq` ("h"; a number where stamps are numbers) makes one: every row goes to the step nearest to it.
    Without it the stamps say what a step is, and `freq_` holds it after `fit` (None: they are irregular). Daily stamps
    that leave out every weekend are business days ("B"), and holidays missing rows; `freq="D"` makes weekends steps
    too, and `freq=pd.offsets.CustomBusinessDay(holidays=…)` leaves out holidays. Rows of one step of `freq` are merged
    cell by cell. `step`: the longest Euler step in units of time, the median gap of the stamps (or `freq`); a gap of
    length g is cut into ⌈g/step⌉ equal steps wherever the model is used, and gaps above `max_gap` steps cut the series,
    so a smaller step needs a larger `max_gap`. `calendar=True` adds harmonics of day, week and year; "seasonal" also
    products of those of the day with those of the year, for the linear drift: a daily cycle that changes with the
    season. `verbose=1` shows progress and says what was inferred. `transform`: a name ("log1p", "log", "sqrt",
    "asinh"), a transformer, or a dict of them by column. Draws are mapped back and not cut, so behind "log1p" they lie
    above −1 and behind "sqrt" some may be slightly negative: where that has no meaning, use `limits=0`, or
    `np.maximum(draws, 0)` (log densities are then of the uncut law). `latent_dim`: the series is seen through a readout
    of a state of that size (or a `wf.series.Latent`); None: it is the state itself. `objective`: "transition" scores
    each row given those before it (a latent state by particles), "rollout" free simulations from the first row of a
    window (from its first rows, encoded), as in the paper. `limits` keeps simulated paths near what was seen: 0 within
    the range of each column in training (of all series of a panel together), 0.1 a tenth of that range beyond it; None
    lets them go anywhere. Steps end at the limit they would cross, and log densities of forecasts know these point
    masses: what comes beyond the limits has none (−∞). Forecasts with limits are not recalibrated. `drift_posterior`:
    "point", a fitted GP drift, or "gaussian": its weights have a posterior with its full KL divergence, and each
    simulated path draws a function.

    `n_members=K` mixes K models that are trained from different starts (`members_`, `weights_`). Options are chosen
    once. Each member keeps what the held-back rows keep of it, and every second one has Student-t innovations where the
    others are Gaussian and no transform is a logarithm. The weights are those of the highest density of the held-back
    rows, which no member was trained on by then; without such rows they are equal. Each path of a forecast is one of a
    member, densities are those of the mixture, and the recalibration is estimated for it. `model_` and `spec_` are
    those of the first member; `history_` and `validation_history_` have a column "member".

    `reservoir_size`: how many rows of the past are kept for `update(update_params=True)`: all of them up to this
    number, of more the latest half and blocks spread over the time before. The series of a panel share the number, with
    192 rows or more for each. These rows are part of the fitted forecaster, its pickles and its model files; with 0
    there are none, and such updates train on the new rows and the last ones before them, which forecasts start from and
    files always hold.

    With chosen lags complete rows are scored and forecast exactly as with all of them. Holes are integrated out within
    six lags without a gap, and within longer memories where the longest lag times the number of series is at most 160;
    elsewhere a hole that has grown old (with 26 series: older than six rows) counts with its own mean and covariance,
    independent of other rows. From the fourth lag on weights of *other* series start, and stay, the smaller the further
    back their lag is in the list.

    `history_` has one row for each iteration: `objective` and its parts, and `bound`, the same number, only where it is
    a lower bound of the log evidence (`series.objectives.is_bound`; with the defaults it is a predictive objective).
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

    # --- fitting ---

    def fit(self, y: Any, X: Any = None, fh: Any = None) -> WishartForecaster:
        """Fit to series y and covariates X known in advance; `fh` is kept for `predict` without one.

        An error, or Ctrl-C, leaves the forecaster exactly as it was.
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
        size = checks.whole_number("reservoir_size", self.reservoir_size, 0, updating.MOST_RESERVOIR)
        settings = defaults.plain_settings(self.get_params(deep=False), "validation_fraction=0: no rows to choose by")
        if fraction > 0.0:
            settings = defaults.settings_of(self.get_params(deep=False), panel, covariates, fraction)
        lags = settings.lags
        check_targets(panel, lags)
        self.spec_ = self._spec(lags, settings)
        self.seed_ = checks.fixed_seed(self.random_state)
        self.columns_, self.is_series_, self.is_panel_ = panel.columns, panel.is_series, panel.is_panel
        self.name_: Any = y.name if isinstance(y, pd.Series) else None
        data = training_data(panel, covariates, self.spec_, settings.transform, settings.calendar, self.freq)
        self.units_, tails = data if settings.periods is None else defaults.with_periods(*data, settings.periods)
        announce(self, settings)
        self.fh_ = fh
        series: list[Series] = list(tails.values())
        seen = None if self.limits is None else value_range(self.units_.in_common(tails))
        self.limits_ = self._limits(seen)
        n_rows = sum(len(s) for s in series)
        self.training_ = self._training(n_rows, len(panel.columns), settings.max_iter)
        if defaults.validates(self.spec_, settings):
            self.training_ = defaults.quick(self.training_, fraction, self.n_train_samples is not None)
        task = FitTask(self.spec_, self.training_, self.units_, tails, settings, self.seed_, self._schedule, n_members)
        n_steps = n_members * self.training_.max_iter
        found = train(task, self.calibrate is not None, lambda n_items: make_callbacks(self, n_items, n_steps))
        self._accept(found, n_members)
        self.monitor_: DriftMonitor | None = DriftMonitor.of(found.held_scores)
        self.validation_history_, self.calibration_ = found.candidates, found.calibration
        self.tails_ = {key: self.units_.last_rows(tail) for key, tail in tails.items()}
        self.reservoir_: dict[Any, Tail] | None = updating.reservoir_of(self.units_, tails, size)
        self._keep(settings)

    def _accept(self, found: Validated, n_members: int) -> None:
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
        self.status_ = status_of(found.members, found.weights)

    def _keep(self, settings: defaults.Settings) -> None:
        """What was chosen, as attributes."""
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
                f"limits={self.limits!r} given with latent_dim={self.latent_dim!r}; expected one of the two alone: "
                "limits are of the series themselves, and a latent state has none."
            )
        low, high = seen
        return np.stack([low - share * (high - low), high + share * (high - low)])

    @property
    def _schedule(self) -> Callable | None:
        return self.learning_rate if callable(self.learning_rate) else None

    def _runner(self, key: Any = ONLY) -> AbstractRunner:
        """What the model can do, for one series."""
        limits = None if self.limits_ is None else self.units_.from_common(key, self.limits_)
        if not hasattr(self, "members_"):
            return runner_of(self.model_, limits)
        return MixedRunner([runner_of(member.model, limits) for member in self.members_], self.weights_)

    # --- forecasting ---

    @property
    def freq_(self) -> Any:
        """The frequency of the steps ("h", "B", "MS", a number), given or inferred; None where stamps are irregular."""
        return self.units_.axis.step_name

    @property
    def end_(self) -> Any:
        """The last stamp seen: forecasts start after it (of a panel the latest of all)."""
        return max(tail.index[-1] for tail in self.tails_.values())

    def forecast(
        self, fh: Any = None, X: Any = None, n_draws: int = 1000, random_state: Any = None, given: Any = None
    ) -> Any:
        """Joint sample paths over the horizon: a `Forecast`, or a dict of them for a panel.

        An int h or a time span ("48h") means all steps up to it; a list of ints these steps; stamps (one, or several)
        are taken as they are, in the time zone of the data. Whatever the order of fh, that of a forecast is time. The
        noise comes from the seed of `fit` unless `random_state` is given; it is another one for each series of a panel
        and each end of the data, so that errors of few draws do not repeat from one forecast to the next.

        `given` makes a scenario: a frame of values in the units of y, known or assumed, at some stamps of the horizon
        and for some of the columns (NaN: free), or an array with a row for each stamp. Of a panel it is a dict by id,
        or one frame for all series. Paths are then draws from their joint law given all these cells. Given cells are in
        them as they are, and act on the other series of their time, on later times and on earlier ones. This is exact
        for a linear drift with constant Gaussian noise; elsewhere draws come from weighted particles, and a warning
        says so where they are worth few independent ones. The law that is conditioned is that of the forecast without
        `given`, recalibrated where that is. With `limits`, a cell given at a limit means that the step went there or
        beyond; a cell given beyond a limit counts as if there were none, and paths may go as far. `log_prob` of such a
        forecast knows kind="moments" alone.
        """
        check_is_fitted(self, "model_")
        n_draws = checks.positive_int("n_draws", n_draws)
        seed = self.seed_ if random_state is None else checks.any_seed(random_state)
        covariates = self.units_.covariates(read_covariates(X))
        fh = self.fh_ if fh is None else fh
        scenarios = of_series(given, list(self.tails_))
        found = {}
        for key, tail in self.tails_.items():
            found[key] = self._forecast(key, tail, fh, covariates, n_draws, seed, scenarios[key])
        return found if self.is_panel_ else found[ONLY]

    def _forecast(
        self, key: Any, tail: Tail, fh: Any, X: Panel | None, n_draws: int, seed: int, given: Any
    ) -> Forecast:
        units, runner = self.units_.of_series(key), self._runner(key)
        index = horizon(units.axis, fh, tail.index[-1]).rename(units.index_names[-1])
        ticks = units.ticks(tail)[-1]
        seed = noise_seed(seed, key, tail.index[-1])
        h, u, place = units.future_ticks(key, tail, int(ticks.row[-1]), index, X)
        known = cells(given, key, units.axis, index, self.columns_)
        if known is not None:
            draws = scenario(units, runner, self.calibration_, Way(ticks, h, u, place), known, n_draws, seed)
            return Forecast(draws, index, self.columns_, given=known)
        values, before, limits = runner.paths(ticks, h, u, n_draws, seed)
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

        return Forecast(units.draws(law.draws), index, self.columns_, log_density)

    # --- scores and covariances of given data ---

    def log_prob(self, y: Any, X: Any = None) -> pd.Series:
        """Log density of each row given those before it, in the units of y, as the model has it (not recalibrated).

        NaN where a row has no past. Where y goes on after the end of the data seen so far, that end is its past. Of
        rows that share a step (`freq`) the last one has the score of them all. Series of a panel may be ones that were
        not there in `fit`.
        """
        panel = self._read(y)
        tails = self._with_past(panel, read_covariates(X))
        scores = {key: _counted_once(self._log_prob(key, tail)[at], at) for key, (tail, at) in tails.items()}
        found = {key: pd.Series(values, index=panel.tables[key].index) for key, values in scores.items()}
        names = named_as(panel.names, self.units_.index_names)
        result = pd.concat(found, names=names) if self.is_panel_ else found[ONLY]
        return result.rename("log_prob")

    def _read(self, y: Any) -> Panel:
        """Further rows, in the form of those of `fit`."""
        check_is_fitted(self, "model_")
        panel = read(y, "y")
        check_form(panel, self.is_panel_)
        return panel

    def _log_prob(self, key: Any, tail: Tail) -> np.ndarray:
        units = self.units_.of_series(key)
        result = self._runner(key).row_log_density(units.ticks(tail), len(tail.index), self.seed_)
        return result + units.log_jacobian(units.inverse(tail.values))

    def _with_past(self, panel: Panel, X: Panel | None) -> dict[Any, tuple[Tail, np.ndarray]]:
        """New rows in model units after the known past where they go on from it, and where they are in the whole."""
        tails = {}
        for key, (new, of_row) in further_rows(self.units_, panel, X, self.tails_).items():
            past = self.tails_.get(key)
            goes_on = past is not None and new.index[0] > past.index[-1]
            whole = self.units_.joined(past, new) if past is not None and goes_on else new
            tails[key] = (whole, whole.index.get_indexer(new.index[of_row]))
        return tails

    def update(self, y: Any, X: Any = None, update_params: bool = False) -> WishartForecaster:
        """Condition on new rows and move the end of the data; with `update_params` also train on.

        At a stamp that is known already a new number replaces the old one, and a NaN leaves it. Training goes on with
        the new rows and a reservoir of the past (`reservoir_size`). The latest quarter of the new rows, those after the
        last known one, is held back from training. The parameters change only if neither these rows nor the latest of
        the known rows, which training does use, are described worse. `status_` says what happened, and `history_` calls
        the iterations "update" or "rejected update". An error leaves the forecaster as it was. A panel gets the series
        that were not known before, too.

        New rows are also compared with those held back in `fit`: `drift_` has the numbers, and a warning says once that
        a new fit is due (`refit_due_`). Complete rows after complete ones count.
        """
        trains, was_due = checks.flag("update_params", update_params), self.refit_due_
        panel = self._read(y)
        admitted = further_rows(self.units_, panel, read_covariates(X), self.tails_)
        self.units_.check_data(panel)
        new = {key: tail for key, (tail, _) in admitted.items()}
        tails, kept = updating.merged(self.units_, self.tails_, new), getattr(self, "reservoir_", None)
        past = kept or self.tails_
        rows = updating.merged(self.units_, kept, new) if kept else tails
        changed: dict[str, Any] = {"tails_": {key: self.units_.last_rows(tail) for key, tail in tails.items()}}
        if kept is not None:
            changed["reservoir_"] = updating.reservoir_of(self.units_, rows, self.reservoir_size)
        changed |= self._watch(tails, new)
        if trains:
            if kept is None:
                warnings.warn(
                    "the model file holds no rows of the past, as files of older versions do: training goes on with "
                    "the new rows and the last ones before them alone. Fit again for more.",
                    stacklevel=2,
                )
            changed |= self._train_on(rows, past)
        for name, value in changed.items():
            setattr(self, name, value)
        if self.refit_due_ and not was_due:
            warn_of_drift(self)
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
        """Whether rows since `fit` are of its law, as numbers; None where no rows were held back to compare with.

        "statistic" is the largest of some sums (CUSUM) of how much scores of new rows differ from those of held-back
        rows, "threshold" what it stays below: one false alarm is expected in "rows_per_false_alarm" rows. "n_rows"
        counts the rows since `fit`, or since an update that changed the parameters; "alarm" is the one at which the
        threshold was passed, NaN before.
        """
        monitor = getattr(self, "monitor_", None)
        return None if monitor is None else monitor.numbers()

    @property
    def refit_due_(self) -> bool:
        """Whether rows since `fit` differ so much from those held back in it that a new fit is due."""
        monitor = getattr(self, "monitor_", None)
        return monitor is not None and monitor.is_due

    def _train_on(self, rows: dict[Any, Tail], past: dict[Any, Tail]) -> dict[str, Any]:
        """The attributes that change when training goes on with these rows."""
        members = self._members()
        found = [
            updating.train_further(
                member.model,
                member.spec,
                self.training_,
                self.units_,
                rows,
                past,
                member_seed(self.seed_, k) + self.n_iter_,
                self._schedule,
                lambda n_items: make_callbacks(self, n_items),
            )
            for k, member in enumerate(members)
        ]
        limits = None if self.limits_ is None else self._limits(value_range(self.units_.in_common(rows)))
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

    def report(self, path: str | Path, y: Any = None, fh: Any = None, scores: Any = None) -> Path:
        """Write what was trained, and on request forecasts, correlations and scores, to one HTML file.

        y: rows of the past, for their correlations and the fan charts. fh: a horizon, for a forecast after the end of
        the data. scores: scores of `backtest`, or a dict of them by the name of the model. The page needs no network.
        """
        from ..report import write_report

        check_is_fitted(self, "model_")
        forecast = None if fh is None or self.is_panel_ else self.forecast(fh)
        return write_report(path, forecast=forecast, history=y, model=self, scores=scores)

    def save(self, path: str | Path) -> None:
        """Write the fitted forecaster to one file; `wishflow.load` reads it."""
        from .storage import save_forecaster

        check_is_fitted(self, "model_")
        save_forecaster(self, path)

    def summary(self) -> str:
        """What was chosen, and why: options, candidates of the validation, recalibration; prints as a page."""
        check_is_fitted(self, "model_")
        return summary_of(self)


def _counted_once(scores: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The score of each step at the last of its rows, NaN at the others, so that a sum counts it once."""
    return np.where(np.append(at[1:] == at[:-1], False), np.nan, scores)
