"""`WishartForecaster`: multivariate series with correlated noise that changes with the state; joint forecasts."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ... import specs
from ...errors import DataError, OptionError
from ...fields.dynamic import Layout
from ...forecast import Forecast
from ...initialise import imputed, inducing_points, latent_start, latent_states, ridge_start
from ...runtime import computing
from ...series import Series, Ticks, Transitions, Windows, cut, latent_windows, n_substeps, rollouts, to_ticks
from ...training import SeriesProblem, train_series
from .. import checks
from ..base import chosen_training, make_callbacks
from ..scaling import Scaler
from .calendar import chosen_periods, harmonics
from .frames import ONLY, Panel, Table, align, at_stamps, check_targets, read
from .running import AbstractRunner, runner_of
from .times import TimeAxis
from .transforms import ColumnTransforms

# Rows that are kept to start forecasts from: the belief forgets what is older.
TAIL = 96
LONGEST_TAIL = 2000


@dataclasses.dataclass(frozen=True)
class Tail:
    """The last rows of a series in model units: what forecasts condition on."""

    index: pd.Index
    values: np.ndarray
    covariates: np.ndarray


class WishartForecaster(BaseEstimator):
    """An SDE with Wishart noise for multivariate time series: irregular stamps, missing values, joint forecasts.

    drift: "linear+gp", "gp", "linear" or "none". diffusion: "wishart", "gp", "diagonal", "none" or a spec. white_noise:
    "constant" or "state". `lags` above 1 need a regular grid (`freq` makes one). `calendar` adds harmonics of day, week
    and year. `transform`: a name ("log1p", "log", "sqrt", "asinh"), a transformer, or a dict of them by column.
    `latent_dim`: the series is seen through a readout of a state of that size (or a `specs.Latent`); None: it is the
    state itself. `objective`: "transition" scores each row given those before it (a latent state by particles),
    "rollout" free simulations from the first row of a window (from its first rows, encoded), as in the paper.
    """

    def __init__(
        self,
        drift="linear+gp",
        diffusion="wishart",
        white_noise="constant",
        rank=10,
        columns="independent",
        latent_dim=None,
        lags=1,
        calendar=False,
        freq=None,
        transform=None,
        objective="transition",
        kernel="rbf",
        n_inducing=100,
        max_gap=24,
        preset="fast",
        max_iter=None,
        batch_size=None,
        learning_rate=None,
        tol=None,
        n_train_samples=None,
        path_average=None,
        random_state=None,
        callbacks=None,
        verbose=0,
    ):
        self.drift = drift
        self.diffusion = diffusion
        self.white_noise = white_noise
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
        self.max_gap = max_gap
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

    # --- fitting ---

    def fit(self, y: Any, X: Any = None, fh: Any = None) -> WishartForecaster:
        """Fit to series y and covariates X known in advance; `fh` is kept for `predict` without one."""
        panel = read(y, "y")
        lags = checks.positive_int("lags", self.lags)
        checks.verbosity(self.verbose)
        check_targets(panel, lags)
        self.spec_ = self._spec(lags)
        self.seed_ = checks.fixed_seed(self.random_state)
        self.columns_, self.is_series_, self.is_panel_ = panel.columns, panel.is_series, panel.is_panel
        self.name_: Any = y.name if isinstance(y, pd.Series) else None
        self.axis_ = TimeAxis.of([t.index for t in panel.tables.values()], self.freq)
        self.transforms_ = ColumnTransforms.of(self.transform, panel.columns)
        self._learn_scales(panel, X)
        tails = self._model_units(panel, None if X is None else read(X, "X"))
        self.fh_ = fh
        series = {key: self._series(tail) for key, tail in tails.items()}
        n_rows = sum(len(s) for s in series.values())
        self.training_ = chosen_training(self, specs.SERIES_PRESETS, n_rows, len(panel.columns))
        problem = self._problem(list(series.values()))
        with computing():
            trained = train_series(problem, make_callbacks(self, problem.n_items))
        self.model_, self.history_, self.n_iter_ = trained.model, trained.history, trained.n_iter
        self.status_ = trained.status
        self.tails_ = {key: _last_rows(tail) for key, tail in tails.items()}
        return self

    def _spec(self, lags: int) -> specs.DynamicsSpec:
        rank = checks.rank_or_none(self.rank)
        wishart = specs.Wishart(rank=rank, columns=self.columns, unit_rows=False)
        return specs.DynamicsSpec(
            kernel=specs.resolve("kernel", self.kernel, specs.KERNELS, specs.KernelSpec),
            drift=self.drift,
            diffusion=specs.resolve(
                "diffusion", self.diffusion, {**specs.DIFFUSIONS, "wishart": wishart}, specs.DiffusionSpec
            ),
            white_noise=self.white_noise,
            lags=lags,
            max_gap=float(checks.positive_int("max_gap", self.max_gap)),
            objective=self.objective,
            latent=_latent(self.latent_dim),
        )

    def _problem(self, series: list[Series], model: Any = None) -> SeriesProblem:
        spec = self.spec_
        ticks = self._all_ticks(series)
        states = series if spec.latent is None else latent_states(series, spec.latent.dim)
        layout = Layout(states[0].values.shape[1], spec.lags, series[0].covariates.shape[1])
        whole, _ = cut(self._all_ticks([imputed(s) for s in states]), spec.lags)
        if not len(whole):
            raise DataError("no two rows follow each other closely enough to learn from; raise max_gap, or lower lags.")
        n_inducing = checks.positive_int("n_inducing", self.n_inducing)
        schedule = self.learning_rate if callable(self.learning_rate) else None
        with computing():
            start: Any = ridge_start(whole, "linear" in spec.drift)
            if spec.latent is not None:
                start = latent_start(series, states, start)
            Z = inducing_points(_kernel_inputs(whole.X, layout), n_inducing, self.seed_)
        items = _items(ticks, spec)
        return SeriesProblem(spec, self.training_, layout, *items, start, Z, self.seed_, schedule, model)

    def _all_ticks(self, series: list[Series]) -> list[Ticks]:
        spec = self.spec_
        return [part for s in series for part in to_ticks(s, spec.step, spec.lags, spec.max_gap)]

    # --- units ---

    def _learn_scales(self, panel: Panel, X: Any) -> None:
        values = np.concatenate([t.values for t in panel.tables.values()])
        z = self.transforms_.forward(values, panel.columns)
        self.y_scaler_ = Scaler(np.nanmean(z, axis=0), np.nanstd(z, axis=0))
        self.periods_: tuple[str, ...] = ()
        if checks.flag("calendar", self.calendar):
            gap = self.axis_.unit / 1e9 if self.axis_.kind == "datetime" else _period_seconds(panel)
            self.periods_ = chosen_periods([t.index for t in panel.tables.values()], gap)
        self.x_columns_: pd.Index | None = None
        if X is not None:
            X = read(X, "X")
            self.x_columns_ = X.columns
            aligned = np.concatenate(list(align(X, panel).values()))
            self.x_scaler_ = Scaler.of(aligned, "X")

    def _model_units(self, panel: Panel, X: Panel | None) -> dict[Any, Tail]:
        """Scaled values and covariates, on a grid where one is needed."""
        self._check_covariates(X)
        return {key: self._tail(key, table, X) for key, table in panel.tables.items()}

    def _check_covariates(self, X: Panel | None) -> None:
        if (X is None) != (self.x_columns_ is None):
            came, expected = ("no X", "one with") if X is None else ("an X", "none; it was fitted without")
            raise DataError(f"{came} was given; the forecaster expects {expected} covariates, as in fit.")
        if X is not None and self.x_columns_ is not None and not X.columns.equals(self.x_columns_):
            raise DataError(f"X has columns {list(X.columns)}; fit saw {list(self.x_columns_)}.")

    def _tail(self, key: Any, table: Table, X: Panel | None) -> Tail:
        if self.axis_.is_regular and (self.spec_.lags > 1 or X is None or self.freq is not None):
            table = self._on_grid(table)
        z = self.y_scaler_.forward(self.transforms_.forward(table.values, self.columns_))
        return Tail(table.index, z, self._covariates(key, table.index, X))

    def _on_grid(self, table: Table) -> Table:
        """With rows of NaN for the steps of the grid that are not there, but for those in gaps that cut the series."""
        place = self._grid_places(table.index)
        gaps = np.diff(place)
        if not len(gaps) or (gaps == 1).all():
            return table
        if gaps.min() < 1:
            raise DataError("several rows fall on one step of the grid; resample the series, or give a shorter freq.")
        inside = [np.arange(a + 1, b) for a, b in itertools.pairwise(place) if 1 < b - a <= self.spec_.max_gap]
        if not inside:
            return table
        steps = np.sort(np.concatenate([place, *inside]))
        values = np.full((len(steps), table.values.shape[1]), np.nan)
        where = np.searchsorted(steps, place)
        values[where] = table.values
        index = self.axis_.ahead(table.index[0], [int(k) for k in steps])
        return Table(index, values)

    def _grid_places(self, index: pd.Index) -> np.ndarray:
        """Steps of the grid since the first row."""
        return np.round(self.axis_.units(index, float(self.axis_.numbers(index[:1])[0]))).astype(int)

    def _covariates(self, key: Any, index: pd.Index, X: Panel | None) -> np.ndarray:
        parts = [harmonics(index, self.periods_)]
        if X is not None:
            source = X.tables.get(key, X.tables.get(ONLY))
            if source is None:
                raise DataError(f"X has no rows for the series {key!r}.")
            parts.insert(0, self.x_scaler_.forward(at_stamps(source, index)))
        return np.concatenate(parts, axis=1)

    def _series(self, tail: Tail) -> Series:
        return Series(self.axis_.units(tail.index, self._origin(tail)), tail.values, tail.covariates)

    def _origin(self, tail: Tail) -> float:
        return float(self.axis_.numbers(tail.index[:1])[0])

    def _runner(self) -> AbstractRunner:
        return runner_of(self.model_, self.spec_.lags)

    def _ticks(self, tail: Tail) -> list[Ticks]:
        return self._all_ticks([self._series(tail)])

    # --- forecasting ---

    @property
    def end_(self) -> Any:
        """The last stamp seen: forecasts start after it (of a panel the latest of all)."""
        return max(tail.index[-1] for tail in self.tails_.values())

    def forecast(self, fh: Any = None, X: Any = None, n_draws: int = 1000, random_state: Any = None) -> Any:
        """Joint sample paths over the horizon: a `Forecast`, or a dict of them for a panel.

        An int h or a time span ("48h") means all steps up to it; a list of ints these steps; stamps are taken as they
        are. The noise comes from the seed of `fit` unless `random_state` is given.
        """
        check_is_fitted(self, "model_")
        n_draws = checks.positive_int("n_draws", n_draws)
        seed = self.seed_ if random_state is None else checks.any_seed(random_state)
        covariates = None if X is None else read(X, "X")
        self._check_covariates(covariates)
        fh = self.fh_ if fh is None else fh
        found = {key: self._forecast(key, tail, fh, covariates, n_draws, seed) for key, tail in self.tails_.items()}
        return found if self.is_panel_ else found[ONLY]

    def _forecast(self, key: Any, tail: Tail, fh: Any, X: Panel | None, n_draws: int, seed: int) -> Forecast:
        index = self.axis_.horizon(fh, tail.index[-1])
        ticks = self._ticks(tail)[-1]
        h, u, place = self._future_ticks(tail, int(ticks.row[-1]), index, self._future_covariates(key, tail, index, X))
        runner = self._runner()
        values, before = runner.paths(ticks, h, u, n_draws, seed)
        samples = self.transforms_.inverse(self.y_scaler_.inverse(values[:, place]))
        before = before[:, place]

        def log_density(y: np.ndarray) -> np.ndarray:
            z = self.y_scaler_.forward(self.transforms_.forward(y, self.columns_))
            return runner.horizon_log_density(before, z, h[place], u[place], seed) + self._log_jacobian(y)

        return Forecast(samples, index, self.columns_, log_density)

    def _future_covariates(self, key: Any, tail: Tail, index: pd.Index, X: Panel | None) -> Table:
        """Stamps the forecast passes on its way, every grid step where there is a grid, and the covariates there."""
        if self._is_on_grid(tail, index):
            n = round(float(self._ahead(tail.index[-1:], index)[-1]))
            index = self.axis_.ahead(tail.index[-1], list(range(1, n + 1)))
        elif self.spec_.lags > 1:
            raise OptionError("fh holds stamps off the grid; with lags above 1 a forecast goes from step to step.")
        return Table(index, self._covariates(key, index, X))

    def _ahead(self, start: pd.Index, index: pd.Index) -> np.ndarray:
        return self.axis_.units(index, float(self.axis_.numbers(start)[0]))

    def _is_on_grid(self, tail: Tail, index: pd.Index) -> bool:
        ahead = self._ahead(tail.index[-1:], index)
        return self.axis_.is_regular and bool(np.abs(ahead - np.round(ahead)).max() < 1e-3)

    def _future_ticks(
        self, tail: Tail, last: int, index: pd.Index, future: Table
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ticks from the last row with an entry to the end of the horizon: lengths, covariates, the one at each stamp.

        Rows without entries at the end of the data are on the way.
        """
        stamps = tail.index[last + 1 :].append(future.index)
        covariates = np.concatenate([tail.covariates[last + 1 :], future.values])
        gaps = np.diff(np.concatenate([[0.0], self._ahead(tail.index[last : last + 1], stamps)]))
        counts = n_substeps(gaps, self.spec_.step)
        owner = np.repeat(np.arange(len(stamps)), counts)
        ends = np.cumsum(counts) - 1
        return (gaps / counts)[owner], covariates[owner], ends[stamps.get_indexer(index)]

    def _log_jacobian(self, y: np.ndarray) -> np.ndarray:
        """log |dz/dy|, summed over the entries that are there."""
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = np.log(np.abs(self.transforms_.slope(y)) / self.y_scaler_.scale)
        return np.nansum(np.where(np.isnan(y), 0.0, slopes), axis=-1)

    # --- frames as sktime's ---

    def predict(self, fh: Any = None, X: Any = None) -> Any:
        """Predictive means, a frame (a Series where y was one)."""
        frame = self._by_key(lambda f: f.mean, fh, X)
        return frame.iloc[:, 0].rename(self.name_) if self.is_series_ else frame

    def predict_quantiles(
        self, fh: Any = None, X: Any = None, alpha: Any = (0.1, 0.25, 0.5, 0.75, 0.9)
    ) -> pd.DataFrame:
        """Quantiles with columns (variable, alpha)."""
        levels = checks.levels("alpha", alpha)

        def quantiles(f: Forecast) -> pd.DataFrame:
            values = np.quantile(f.samples.values, levels, axis=0)
            columns = pd.MultiIndex.from_product([self._names(), [float(a) for a in levels]])
            return pd.DataFrame(np.moveaxis(values, 0, -1).reshape(len(f.index), -1), f.index, columns)

        return self._by_key(quantiles, fh, X)

    def predict_interval(self, fh: Any = None, X: Any = None, coverage: Any = 0.9) -> pd.DataFrame:
        """Central intervals with columns (variable, coverage, "lower" or "upper")."""
        levels = checks.levels("coverage", coverage)
        ends = [q for c in levels for q in (0.5 - c / 2, 0.5 + c / 2)]

        def intervals(f: Forecast) -> pd.DataFrame:
            values = np.quantile(f.samples.values, ends, axis=0)
            names = [(v, float(c), side) for v in self._names() for c in levels for side in ("lower", "upper")]
            columns = pd.MultiIndex.from_tuples(names)
            return pd.DataFrame(np.moveaxis(values, 0, -1).reshape(len(f.index), -1), f.index, columns)

        return self._by_key(intervals, fh, X)

    def predict_var(self, fh: Any = None, X: Any = None, cov: bool = False) -> pd.DataFrame:
        """Predictive variances, a column for each variable."""
        if cov:
            raise OptionError("cov=True given; forecast(...).samples holds joint draws over all times.")
        return self._by_key(
            lambda f: pd.DataFrame(f.samples.values.var(axis=0, ddof=1), f.index, pd.Index(self._names())), fh, X
        )

    def _by_key(self, function: Any, fh: Any, X: Any) -> pd.DataFrame:
        found = self.forecast(fh, X)
        if not self.is_panel_:
            return function(found)
        return pd.concat({key: function(f) for key, f in found.items()})

    def _names(self) -> list:
        return list(self.columns_)

    # --- scores and covariances of given data ---

    def log_prob(self, y: Any, X: Any = None) -> pd.Series:
        """Log density of each row given the rows before it, in the units of y; NaN where a row has no past.

        Where y goes on after the end of the data seen so far, that end is its past.
        """
        check_is_fitted(self, "model_")
        tails = self._with_past(read(y, "y"), None if X is None else read(X, "X"))
        found = {key: self._log_prob(tail, index) for key, (tail, index) in tails.items()}
        result = pd.concat(found) if self.is_panel_ else found[ONLY]
        return result.rename("log_prob")

    def _log_prob(self, tail: Tail, index: pd.Index) -> pd.Series:
        result = self._runner().row_log_density(self._ticks(tail), len(tail.index), self.seed_)
        y = self.transforms_.inverse(self.y_scaler_.inverse(tail.values))
        result = result + self._log_jacobian(y)
        return pd.Series(result[tail.index.get_indexer(index)], index=index)

    def _with_past(self, panel: Panel, X: Panel | None) -> dict[Any, tuple[Tail, pd.Index]]:
        """New rows in model units after the known past where they go on from it, and the stamps they came with."""
        self._check_columns(panel)
        tails = {}
        for key, new in self._model_units(panel, X).items():
            past = self.tails_.get(key)
            goes_on = past is not None and new.index[0] > past.index[-1]
            tails[key] = (self._joined(past, new) if past is not None and goes_on else new, panel.tables[key].index)
        return tails

    def _check_columns(self, panel: Panel) -> None:
        if not panel.columns.equals(self.columns_):
            raise DataError(f"y has columns {list(panel.columns)}; fit saw {list(self.columns_)}.")

    def _joined(self, past: Tail, new: Tail) -> Tail:
        """Past and new rows in order; new ones win where both have a stamp. Holes of the grid are filled with NaN."""
        keep = ~past.index.isin(new.index)
        index = past.index[keep].append(new.index)
        order = np.argsort(self.axis_.numbers(index), kind="stable")
        index = index[order]
        values = np.concatenate([past.values[keep], new.values])[order]
        covariates = np.concatenate([past.covariates[keep], new.covariates])[order]
        if self.spec_.lags == 1:
            return Tail(index, values, covariates)
        table = self._on_grid(Table(index, values))
        if len(table) == len(index):
            return Tail(index, values, covariates)
        # The covariates of rows that never came are those of the row before them.
        before = np.maximum(index.searchsorted(table.index, side="right") - 1, 0)
        return Tail(table.index, table.values, covariates[before])

    def update(self, y: Any, X: Any = None, update_params: bool = False) -> WishartForecaster:
        """Condition on new rows and move the end of the data; with `update_params` also train on them."""
        check_is_fitted(self, "model_")
        panel = read(y, "y")
        self._check_columns(panel)
        joined = {}
        for key, new in self._model_units(panel, None if X is None else read(X, "X")).items():
            past = self.tails_.get(key)
            joined[key] = new if past is None else self._joined(past, new)
        if checks.flag("update_params", update_params):
            self._train_on([self._series(tail) for tail in joined.values()])
        self.tails_ = {**self.tails_, **{key: _last_rows(tail) for key, tail in joined.items()}}
        return self

    def _train_on(self, series: list[Series]) -> None:
        training = self.training_
        shorter = dataclasses.replace(training, max_iter=max(1, training.max_iter // 5), kl_warmup=0, decay=1.0)
        problem = dataclasses.replace(self._problem(series, self.model_), training=shorter)
        with computing():
            trained = train_series(problem, make_callbacks(self, problem.n_items))
        self.model_ = trained.model
        self.history_ = pd.concat([self.history_, trained.history], ignore_index=True)
        self.n_iter_ += trained.n_iter

    def covariance(self, y: Any, X: Any = None) -> Any:
        """Σ̄ + Λ at each row of y: a rate per unit of time in the units of y, (time, variable, variable_2).

        With a transform it is the rate of the increments of y to first order. Holes are filled by the filter's mean.
        """
        check_is_fitted(self, "model_")
        panel = read(y, "y")
        self._check_columns(panel)
        tails = self._model_units(panel, None if X is None else read(X, "X"))
        found = {key: self._covariance_of(tail, panel.tables[key].index) for key, tail in tails.items()}
        return found if self.is_panel_ else found[ONLY]

    def _covariance_of(self, tail: Tail, index: pd.Index) -> xr.DataArray:
        dim = len(self.columns_)
        rates = np.full((len(tail.index), dim, dim), np.nan)
        for ticks in self._ticks(tail):
            is_row = ticks.row >= 0
            values, rate = self._runner().covariances(ticks)
            state = self.transforms_.inverse(self.y_scaler_.inverse(values[is_row]))
            slope = self.y_scaler_.scale / self.transforms_.slope(state)
            rates[ticks.row[is_row]] = rate[is_row] * slope[:, :, None] * slope[:, None, :]
        names = list(self.columns_)
        coordinates = {"time": index, "variable": names, "variable_2": names}
        rates = rates[tail.index.get_indexer(index)]
        return xr.DataArray(rates, coordinates, dims=("time", "variable", "variable_2"))

    def correlation(self, y: Any, X: Any = None) -> Any:
        """The correlations of `covariance`."""
        found = self.covariance(y, X)
        return {k: _correlation(v) for k, v in found.items()} if self.is_panel_ else _correlation(found)

    def save(self, path: str | Path) -> None:
        """Write the fitted forecaster to one file; `wishflow.load` reads it."""
        from .storage import save_forecaster

        check_is_fitted(self, "model_")
        save_forecaster(self, path)


def _correlation(rate: xr.DataArray) -> xr.DataArray:
    sd = np.sqrt(np.diagonal(rate.values, axis1=1, axis2=2))
    return rate / (sd[:, :, None] * sd[:, None, :])


def _last_rows(tail: Tail) -> Tail:
    """The last `TAIL` rows, or as many more as hold the last value of every column (up to `LONGEST_TAIL`)."""
    n = len(tail.index)
    is_there = ~np.isnan(tail.values)
    last = np.where(is_there.any(axis=0), n - 1 - is_there[::-1].argmax(axis=0), n - 1)
    start = max(min(n - TAIL, int(last.min())), n - LONGEST_TAIL, 0)
    if not is_there[start:].any() and is_there.any():
        start = int(np.flatnonzero(is_there.any(axis=1))[-1])
    return Tail(tail.index[start:], tail.values[start:], tail.covariates[start:])


def _kernel_inputs(X: np.ndarray, layout: Layout) -> np.ndarray:
    return np.concatenate([X[:, : layout.dim], X[:, layout.n_history :]], axis=1)


def _latent(latent_dim: Any) -> specs.Latent | None:
    if latent_dim is None or isinstance(latent_dim, specs.Latent):
        return latent_dim
    return specs.Latent(checks.positive_int("latent_dim", latent_dim))


def _items(ticks: list[Ticks], spec: specs.DynamicsSpec) -> tuple[Transitions | None, Windows]:
    """What the objective is a sum over."""
    if spec.latent is not None:
        return None, latent_windows(ticks)
    return cut(ticks, spec.lags) if spec.objective == "transition" else (None, rollouts(ticks, spec.lags))


def _period_seconds(panel: Panel) -> float:
    index = next(iter(panel.tables.values())).index
    from .calendar import seconds

    return float(np.median(np.diff(seconds(index))))
