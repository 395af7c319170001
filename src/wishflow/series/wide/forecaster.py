"""`WideForecaster`: hundreds of series in one model, by common factors with Wishart noise and own dynamics."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from ...errors import DataError, OptionError
from ...numerics.random import noise_seed
from ...specs import checks
from ..choosing import eligible_periods, season_of
from ..data.calendar import harmonics
from ..data.frames import ONLY, Panel, check_form, check_targets, read, with_columns
from ..data.horizons import checked, horizon
from ..data.times import Rows, TimeAxis, on_axis
from ..data.unstamped import following
from ..forecast import Forecast
from ..forecast_frames import ForecastFrames
from ..forecaster import WishartForecaster
from ..specs import chosen_lags
from ..step_scores import counted_once
from . import own
from .factors import Loadings, factor_names
from .summary import summary_of

AUTO = "auto"
# Rows beyond the longest lag that a fit needs.
LEAST_ROWS = 9
# The longest gap of the stamps that is filled with missing rows, in steps.
LONGEST_GAP = 10_000
# Rows that forecasts start from: so many times the memory of the series' own dynamics, and at least so many.
TAIL_MEMORIES, LEAST_TAIL = 3, 48


class WideForecaster(ForecastFrames, BaseEstimator):
    """Hundreds of series in one model: common factors with Wishart noise, and dynamics of each series by itself.

    Time and memory grow with the number of series D, not with its square. For up to about a hundred series see
    `WishartForecaster`, whose drift and noise connect all of them.

    Parameters
    ----------
    n_factors : int or "auto", default="auto"
        Number R of common factors. "auto" counts eigenvalues above the edge of those of noise (Onatski), up to 20, and
        at most one for four series.
    own_lags : int, tuple of int or "auto", default="auto"
        Lags of the auto-regression of what the factors leave of each series. With "auto" each series chooses among
        short and seasonal lags by its held-back rows.
    forecaster : WishartForecaster or None, default=None
        Forecaster of the factors, not fitted. None is one with all defaults, and the `random_state` and `verbose` of
        this one. Its `freq` is that of all series.
    random_state : int, RandomState or None, default=None
        Seed of the fit and of forecasts. None means 0, so that a fit can be repeated.
    verbose : int, default=0
        0 is silent, 1 shows the progress of the fit.

    Attributes
    ----------
    factors_ : WishartForecaster
        The fitted forecaster of the factors.
    loadings_ : Loadings
        Level `mean` and `scale` of each series, the orthonormal loadings `V` of shape (D, R) in these units, and the
        variance of each factor.
    own_ : OwnDynamics
        The auto-regressions of what is left: `lags`, `weights` and `variance`.
    own_periods_ : tuple of str
        Periods of the calendar that these may have: some of "day", "week" and "year".
    n_factors_ : int
        Number of factors.
    explained_ : float
        Share of the variance that the factors explain, averaged over series.
    columns_ : Index
        Names of the series.
    freq_ : str or number
        Frequency of the steps.
    end_ : Timestamp, Period or number
        The last stamp seen; forecasts start after it.
    history_ : DataFrame
        Training of the factors' forecaster, one row for each iteration.
    status_ : str
        How training of the factors' forecaster ended, what was kept and why.
    model_ : DynamicsModel or LatentModel
        The model of the factors.
    units_ : Units
        Time axis and scales of the factors' forecaster.
    tail_ : DataFrame
        The last rows, which forecasts start from.
    seed_ : int
        The seed that `random_state` stood for.
    fh_ : object
        The horizon given to `fit`.
    is_panel_ : bool
        False: the series are columns of one frame.
    is_series_ : bool
        False, as there are several series.
    name_ : object
        None; it is there for the interface of `WishartForecaster`.

    See Also
    --------
    WishartForecaster : For up to about a hundred series.
    Forecast : What `forecast` returns.
    backtest : Score forecasts from many origins.

    Notes
    -----
    In scaled units a row is z = V f + (I − V Vᵀ) x. The factors f = Vᵀ z follow a `WishartForecaster`, with its lags,
    calendar, drift and noise. Each entry of x follows an auto-regression of its own with Gaussian noise. Given the
    past, the drift is of low rank plus diagonal, and the covariance is V Σ Vᵀ + (I − V Vᵀ) S (I − V Vᵀ) with the
    covariance Σ of the factors and a diagonal S. No D × D matrix is formed: a draw takes O(D R), a density O(D R²).

    Loadings are principal components of the rows of `fit`. Columns are scaled so that what the factors leave of each
    has about the same variance; f and what is left are then nearly uncorrelated given the past. The model takes them
    as independent.

    Missing values: factors of a row come from a regression on its other cells. A factor that these do not tell is
    missing in that row. Other factors, and cells, to which such factors may add more than a quarter of their variance
    (of cells: of that of their noise) are missing too, and all others are used. A row without any of them counts as
    missing, with a warning. Missing cells of what is left are at their means given the past, and the variances of what
    follows grow with their number.

    Each series needs a regular grid of time stamps. Covariates, panels and scenarios (`given`) are not supported.

    References
    ----------
    A. Onatski. Determining the number of factors from empirical distribution of eigenvalues. Review of Economics and
    Statistics 92, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import wishflow as wf
    >>> rng = np.random.default_rng(0)
    >>> index = pd.date_range("2024-01-01", periods=120, freq="h")
    >>> walk = rng.normal(size=(120, 1)).cumsum(axis=0)
    >>> y = pd.DataFrame(walk * rng.normal(size=30) + rng.normal(size=(120, 30)), index)
    >>> inner = wf.WishartForecaster(rank=1, n_inducing=5, max_iter=3, validation_fraction=0)
    >>> forecaster = wf.WideForecaster(n_factors=1, forecaster=inner).fit(y)
    >>> forecaster.forecast(fh=3, n_draws=50)
    Forecast(50 draws, 3 times from 2024-01-06 00:00:00 to 2024-01-06 02:00:00, 30 variables)
    >>> forecaster.predict(fh=3).shape
    (3, 30)
    >>> forecaster.log_prob(y).shape
    (120,)
    """

    def __init__(self, n_factors=AUTO, own_lags=AUTO, forecaster=None, random_state=None, verbose=0):
        self.n_factors = n_factors
        self.own_lags = own_lags
        self.forecaster = forecaster
        self.random_state = random_state
        self.verbose = verbose

    # --- fitting ---

    def fit(self, y: Any, X: Any = None, fh: Any = None) -> WideForecaster:
        """Fit to series: loadings, the forecaster of the factors, and the dynamics of each series.

        Parameters
        ----------
        y : DataFrame or array of shape (T, D)
            The series: a column for each, a row for each stamp, NaN where a value is missing.
        X : None
            Covariates are not supported; it is there for the signature of `WishartForecaster`.
        fh : int, str, list or Index, optional
            The horizon that `forecast` and `predict` take where they are given none.

        Returns
        -------
        WideForecaster
            The forecaster itself, fitted. An error, or Ctrl-C, leaves it as it was.

        Raises
        ------
        OptionError
            If an option has a value that is not known.
        DataError
            If there are fewer than three series, `y` is a panel, its stamps are irregular, it has too few rows, or too
            few cells are observed to tell the factors.
        TrainingError
            If training of the factors' forecaster produces non-finite numbers from its very first step.
        """
        fitted = copy.copy(self)
        fitted._fit(y, X, fh)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, y: Any, X: Any, fh: Any) -> None:
        _refuse(X)
        panel = read(y, "y")
        _check_frame(panel)
        check_targets(panel, 1)
        self.seed_ = checks.fixed_seed(self.random_state)
        self.columns_, self.is_series_, self.is_panel_, self.name_ = panel.columns, False, False, None
        inner = self._inner()
        index = panel.tables[ONLY].index
        axis = TimeAxis.of([index], inner.freq)
        rows = _on_grid(axis, panel, {}, inner.freq is not None)
        self.fh_ = None if fh is None else checked(fh, axis, rows.index[-1:])
        n_factors = self._n_factors(len(panel.columns), len(rows.index))
        self.own_periods_ = eligible_periods([rows.index])
        candidates = self._candidates(season_of([rows.index], self.own_periods_), len(rows.index))
        _check_spread(rows.values, panel.columns)
        self.loadings_ = Loadings.learnt(rows.values, n_factors, self.seed_)
        self.n_factors_ = self.loadings_.n_factors
        z = self.loadings_.forward(rows.values)
        f, e = self._parts(rows.values)
        left, whole = (np.nansum(np.where(np.isnan(e), np.nan, part) ** 2, axis=0) for part in (e, z))
        self.explained_ = float(np.mean(1.0 - left / np.maximum(whole, 1e-12)))
        _require_factors(f)
        self.factors_ = inner.fit(self._factor_frame(f, rows.index))
        found = own.fitted(e, self._inputs(rows.index), candidates)
        self.own_ = dataclasses.replace(found, variance=self.loadings_.own_variance(found.variance))
        self.tail_ = self._last(pd.DataFrame(rows.values, rows.index.rename(panel.names[-1]), self.columns_))

    def _inner(self) -> WishartForecaster:
        """The forecaster of the factors, not fitted."""
        verbose = checks.verbosity(self.verbose)
        if self.forecaster is None:
            return WishartForecaster(random_state=self.seed_, verbose=verbose)
        if not isinstance(self.forecaster, WishartForecaster):
            raise OptionError(f"forecaster={self.forecaster!r} given; expected a WishartForecaster, or None for one.")
        return clone(self.forecaster)

    def _n_factors(self, n_columns: int, n_rows: int) -> int | None:
        if isinstance(self.n_factors, str) and self.n_factors == AUTO:
            return None
        return checks.whole_number("n_factors", self.n_factors, 1, min(n_columns - 1, n_rows // 2))

    def _candidates(self, season: int | None, n_rows: int) -> list[tuple[int, ...]]:
        """Sets of lags that a series may have; of those to choose from, the ones that the rows are enough for."""
        if not (isinstance(self.own_lags, str) and self.own_lags == AUTO):
            given = chosen_lags(checks.lags(self.own_lags))
            _require_rows(n_rows, max(given))
            return [given]
        short: list[tuple[int, ...]] = [(1,), (1, 2, 3)]
        seasonal = [] if season is None or season < 4 else [(*one, season, season + 1) for one in short]
        _require_rows(n_rows, 1)
        return [one for one in (*short, *seasonal) if n_rows >= max(one) + LEAST_ROWS]

    def _factor_frame(self, f: Float[np.ndarray, "T R"], index: pd.Index) -> pd.DataFrame:
        return pd.DataFrame(f, index, factor_names(f.shape[1]))

    def _inputs(self, index: pd.Index) -> Float[np.ndarray, "T U"]:
        """1 and harmonics of the calendar."""
        ones = np.ones((len(index), 1))
        return np.concatenate([ones, harmonics(index, self.own_periods_)], axis=1) if self.own_periods_ else ones

    def _last(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.iloc[-max(LEAST_TAIL, TAIL_MEMORIES * self.own_.memory) :]

    # --- forecasting ---

    @property
    def _axis(self) -> TimeAxis:
        return self.factors_.units_.axis

    @property
    def freq_(self) -> Any:
        """Frequency of the steps ("h", "B", "MS", a number), given or inferred."""
        return self.factors_.freq_

    @property
    def end_(self) -> Any:
        """The last stamp seen; forecasts start after it."""
        return self.tail_.index[-1]

    @property
    def status_(self) -> str:
        """How training of the factors' forecaster ended, in words."""
        return self.factors_.status_

    @property
    def units_(self) -> Any:  # type: ignore[override]
        """Axis of time and scales of the factors' forecaster."""
        return self.factors_.units_

    @property
    def history_(self) -> pd.DataFrame:
        """Training of the factors' forecaster, one row for each iteration."""
        return self.factors_.history_

    @property
    def model_(self) -> Any:
        """The model of the factors."""
        return self.factors_.model_

    def forecast(
        self, fh: Any = None, X: Any = None, n_draws: int = 1000, random_state: Any = None, given: Any = None
    ) -> Forecast:
        """Draw joint sample paths over a horizon.

        Parameters
        ----------
        fh : int, str, list or Index, optional
            The horizon. An int h or a time span ("48h") means all steps up to it, a list of ints these steps. Stamps
            are those of the grid. By default the horizon given to `fit`.
        X : None
            Covariates are not supported.
        n_draws : int, default=1000
            Number of paths. They take 8 · n_draws · T · D bytes for T times.
        random_state : int, RandomState or None, default=None
            Seed of the noise. None is the seed of `fit`.
        given : None
            Scenarios are not supported.

        Returns
        -------
        Forecast
            The paths.

        Raises
        ------
        OptionError
            If `fh` is no horizon after the end of the data, or `given` is not None.
        """
        check_is_fitted(self, "own_")
        _refuse(X, given)
        n_draws = checks.positive_int("n_draws", n_draws)
        seed = self.seed_ if random_state is None else checks.any_seed(random_state)
        index = horizon(self._axis, self.fh_ if fh is None else fh, self.end_).rename(self.tail_.index.name)
        steps = self._steps(index)
        factors = self.factors_.forecast(index, n_draws=n_draws, random_state=seed)
        f = factors.samples.values
        e, ages = self._past()
        at = np.array(steps) - 1
        mean, variance = (part[at] for part in self.own_.ahead(e, self._inputs(self._ahead(max(steps))), ages))
        draws = np.empty((n_draws, len(steps), len(self.columns_)))
        for rows, k, deviation in self.own_.deviations(noise_seed(seed, "own", self.end_), n_draws, steps, ages):
            draws[rows, k] = self.loadings_.joined(f[rows, k], mean[k] + deviation)

        def log_density(y: np.ndarray) -> np.ndarray:
            values = np.where(np.isnan(y).any(axis=1, keepdims=True), np.nan, y)
            f, e = self.loadings_.parts(self.loadings_.forward(values))
            of_factors = factors.log_prob(f).to_numpy()
            return of_factors + self.loadings_.left_log_density(e - mean, variance) + self.loadings_.log_jacobian(y)

        return Forecast(draws, index, self.columns_, log_density, axis=self._axis)

    def _ahead(self, n: int) -> pd.Index:
        return self._axis.ahead(self.end_, np.arange(1, n + 1))

    def _steps(self, index: pd.Index) -> list[int]:
        """How many steps each stamp of a horizon lies ahead."""
        units = self._axis.units(index, float(self._axis.numbers(self.tail_.index[-1:])[0]))
        if np.abs(units - np.round(units)).max() > 1e-3:
            k = int(np.abs(units - np.round(units)).argmax())
            raise OptionError(
                f"fh holds {index[k]}, which is {units[k]:g} steps after the end of the data ({self.end_}); expected "
                f"time stamps on the grid, whole steps of {self.freq_}."
            )
        return [int(n) for n in np.round(units)]

    def _past(self) -> tuple[Float[np.ndarray, "T D"], Int[np.ndarray, " D"]]:
        """What the factors leave of the last rows, holes at their means; and the missing cells at the end of each."""
        _, e = self.loadings_.parts(self.loadings_.forward(self.tail_.to_numpy()))
        return self.own_.means(e, self._inputs(self.tail_.index))[1], own.ages_of(e)[-1]

    # --- scores and further rows ---

    def log_prob(self, y: Any, X: Any = None) -> pd.Series:
        """Return the log density of each row given those before it, in the units of y.

        Parameters
        ----------
        y : DataFrame or array of shape (N, D)
            Rows, with the columns of those of `fit`. Where they continue the data seen so far, these are their past.
        X : None
            Covariates are not supported.

        Returns
        -------
        Series
            A log density for each row, joint over the observed cells that are used (see Notes of the class). NaN where
            a row has no past, or no such cell. Where several rows share a step of `freq`, the last one has their score
            and the others NaN.

        Raises
        ------
        DataError
            If `y` has another form or other columns than in `fit`.

        Notes
        -----
        Where cells are missing, the factors of a row are those that a regression on the other cells gives, as if they
        were exact. With many observed cells the difference is small.

        Examples
        --------
        >>> forecaster.log_prob(y)  # doctest: +SKIP
        """
        panel = self._read(y, X)
        rows = self._rows(panel)
        goes_on = rows.index[0] > self.end_
        frame = pd.DataFrame(rows.values, rows.index, self.columns_)
        whole = self._merged(frame) if goes_on else frame
        f, e = self._parts(whole.to_numpy())
        means, _ = self.own_.means(e, self._inputs(whole.index))
        variances = self.own_.variances(own.ages_of(e)[:-1])
        scores = self.loadings_.left_log_density(e - means, variances, ~np.isnan(f))
        scores += self.loadings_.log_jacobian(e)
        if not goes_on:
            scores[: self.own_.memory] = np.nan
        at = whole.index.get_indexer(rows.index)
        scores = scores[at] + self._factor_scores(f[at], rows.index)
        found = counted_once(scores[rows.of_row], rows.of_row)
        return pd.Series(found, index=panel.tables[ONLY].index, name="log_prob")

    def _factor_scores(self, f: Float[np.ndarray, "T R"], index: pd.Index) -> Float[np.ndarray, " T"]:
        """Log densities of the factors that are known; 0 in rows without them."""
        scores = self.factors_.log_prob(self._factor_frame(f, index)).to_numpy()
        return np.where(np.isnan(f).all(axis=1), 0.0, scores)

    def _parts(self, values: Float[np.ndarray, "T D"]) -> tuple[Float[np.ndarray, "T R"], Float[np.ndarray, "T D"]]:
        """Factors of rows and what they leave; a warning where rows have cells that tell neither."""
        f, e = self.loadings_.parts(self.loadings_.forward(values))
        is_lost = ~np.isnan(values).all(axis=1) & np.isnan(e).all(axis=1)
        if is_lost.any():
            warnings.warn(
                f"{is_lost.sum()} of {len(values)} rows have too few observed cells to determine the factors, and "
                "count as missing; fewer factors (n_factors) need fewer cells.",
                stacklevel=4,
            )
        return f, e

    def _read(self, y: Any, X: Any) -> Panel:
        check_is_fitted(self, "own_")
        _refuse(X)
        panel = read(y, "y")
        check_form(panel, is_panel=False)
        panel = following(panel, self._axis, {ONLY: self.end_}, self.columns_, self.tail_.index.name)
        return with_columns(panel, self.columns_, "y")

    def _rows(self, panel: Panel) -> Rows:
        """Rows on the grid of those known so far."""
        return _on_grid(self._axis, panel, {ONLY: self.tail_.index}, self.factors_.units_.has_freq)

    def _merged(self, new: pd.DataFrame) -> pd.DataFrame:
        """The last rows and new ones, on the grid: a new number wins, and a NaN leaves what was known."""
        past = self.tail_
        index = past.index.union(new.index)
        values = np.full((len(index), len(self.columns_)), np.nan)
        values[index.get_indexer(past.index)] = past.to_numpy()
        at, arrived = index.get_indexer(new.index), new.to_numpy()
        values[at] = np.where(np.isnan(arrived), values[at], arrived)
        rows = self._rows(read(pd.DataFrame(values, index, self.columns_), "y"))
        return pd.DataFrame(rows.values, rows.index.rename(past.index.name), self.columns_)

    def update(self, y: Any, X: Any = None, update_params: bool = False) -> WideForecaster:
        """Condition on new rows and move the end of the data.

        Parameters
        ----------
        y : DataFrame or array of shape (N, D)
            New rows, with the columns of those of `fit`. At a stamp that is known already a new number replaces the old
            one, and a NaN leaves it. Rows of an array, which has no stamps, follow the last one seen.
        X : None
            Covariates are not supported.
        update_params : bool, default=False
            True also trains the forecaster of the factors further. Loadings and the series' own dynamics stay.

        Returns
        -------
        WideForecaster
            The forecaster itself. An error leaves it as it was.

        Raises
        ------
        DataError
            If `y` has another form or other columns than in `fit`.

        Warns
        -----
        UserWarning
            Once, where the new factors differ so much from those held back in `fit` that a new fit is due.
        """
        rows = self._rows(self._read(y, X))
        whole = self._merged(pd.DataFrame(rows.values, rows.index, self.columns_))
        # What lies before the last rows is forgotten.
        is_new = whole.index.isin(rows.index)
        f, _ = self._parts(whole.to_numpy()[is_new])
        factors = copy.copy(self.factors_)
        factors.update(self._factor_frame(f, whole.index[is_new]), update_params=update_params)
        self.factors_, self.tail_ = factors, self._last(whole)
        return self

    def save(self, path: str | Path) -> None:
        """Write the fitted forecaster to one file, safetensors with a JSON header.

        Parameters
        ----------
        path : str or path
            The file.

        Raises
        ------
        ModelFileError
            If a transform of the factors is an object: loading a file runs no code.

        See Also
        --------
        wishflow.load : Read the file.
        """
        from .storage import save_wide

        check_is_fitted(self, "own_")
        save_wide(self, path)

    def summary(self) -> str:
        """Describe the fitted forecaster: factors, dynamics of the series, and the forecaster of the factors.

        Returns
        -------
        str
            Several lines, to print.
        """
        check_is_fitted(self, "own_")
        return summary_of(self)


def _refuse(X: Any, given: Any = None) -> None:
    for name, value in (("X", X), ("given", given)):
        if value is not None:
            raise OptionError(
                f"{name} is given; WideForecaster expects None: covariates and scenarios are options of "
                "WishartForecaster."
            )


def _check_frame(panel: Panel) -> None:
    """One frame of at least three columns."""
    if panel.is_panel:
        raise DataError(
            f"y is a panel of {len(panel.tables)} series; WideForecaster expects one frame with a column for each "
            "series: join them side by side, or use WishartForecaster."
        )
    if len(panel.columns) in (1, 2):
        raise DataError(
            f"y has {len(panel.columns)} series; WideForecaster is for many series and expects at least "
            "three: use WishartForecaster."
        )


def _check_spread(values: Float[np.ndarray, "T D"], columns: pd.Index) -> None:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        sd = np.nanstd(values, axis=0)
    is_number = np.isfinite(sd) & (sd > 0.0) & np.isfinite(1.0 / np.where(sd > 0.0, sd, 1.0))
    if not is_number.all():
        k = int(np.flatnonzero(~is_number)[0])
        raise DataError(
            f"the series {columns[k]!r} has values up to {np.nanmax(np.abs(values[:, k])):.1e}, whose variance is too "
            "large or too small for a number; give it in other units."
        )


def _require_factors(f: Float[np.ndarray, "T R"]) -> None:
    n_known = int((~np.isnan(f)).sum(axis=0).min())
    if n_known < LEAST_ROWS:
        raise DataError(
            f"y has {n_known} rows whose observed cells determine all {f.shape[1]} factors; expected at least "
            f"{LEAST_ROWS}: give fewer factors (n_factors), or series that are observed in the same rows."
        )


def _require_rows(n_rows: int, memory: int) -> None:
    if n_rows < memory + LEAST_ROWS:
        raise DataError(
            f"y has {n_rows} rows; lags up to {memory} need at least {memory + LEAST_ROWS}: give more rows, or smaller "
            "own_lags."
        )


def _on_grid(axis: TimeAxis, panel: Panel, past: dict[Any, pd.Index], has_freq: bool) -> Rows:
    """The rows of a panel of one series on a regular grid without holes."""
    if not axis.is_regular:
        raise DataError(
            "the stamps of y are irregular; WideForecaster expects a regular grid: resample y, or give its frequency "
            "as forecaster=WishartForecaster(freq=…)."
        )
    rows = on_axis(axis, panel, None, past, has_freq, 2, LONGEST_GAP)[ONLY]
    gaps = np.diff(rows.times)
    if len(gaps) and gaps.max() > 1.5:
        k = int(gaps.argmax())
        raise DataError(
            f"y has no rows between {rows.index[k]} and {rows.index[k + 1]}, {gaps[k]:.0f} steps; expected gaps of at "
            f"most {LONGEST_GAP} steps: use the rows after the gap."
        )
    return rows
