"""The result of a forecast: joint sample paths in the units and time zone of the data, and summaries of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import ndtri

from .. import metrics
from ..errors import DataError, OptionError, unknown_option
from ..numerics.tables import law_columns
from ..specs import checks
from .data.frames import column_order
from .data.interchange import as_inference_data, draws_as_dataset
from .data.matching import places_of
from .data.times import TimeAxis

# Of `plot_calibration`.
LEVELS = (0.5, 0.8, 0.95)
N_BINS = 10


class Forecast:
    """Joint sample paths over a horizon, with their means, quantiles, covariances and log densities.

    `WishartForecaster.forecast` returns it. Means, quantiles and covariances are those of the draws.

    Parameters
    ----------
    samples : ndarray of shape (S, T, P)
        Draws, by draw, time and variable.
    index : Index
        The T times.
    columns : Index
        Names of the P variables.
    log_density : callable, optional
        Function from values (T, P) to the log density of each time. Without it `log_prob` has `kind="moments"` only.
    given : ndarray of shape (T, P), optional
        Cells that the draws are conditioned on, NaN elsewhere.
    axis : TimeAxis, optional
        The axis of the times, which says how far the stamps of rows in `log_prob` may be from them. Without it time
        stamps must be equal.

    Attributes
    ----------
    samples : DataArray
        The draws, (draw, time, variable).
    index : Index
        The times.
    columns : Index
        Names of the variables.
    given : DataFrame or None
        Cells that the draws are conditioned on, NaN elsewhere. None where there are none.
    mean : DataFrame
        Mean of each variable at each time.
    covariance : DataArray
        Covariances between variables at each time.
    correlation : DataArray
        Correlations between variables at each time.

    See Also
    --------
    WishartForecaster : Makes forecasts.
    wishflow.metrics : Scores of draws.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import wishflow as wf
    >>> draws = np.random.default_rng(0).normal(size=(200, 3, 2))
    >>> index = pd.date_range("2024-01-01", periods=3, freq="h")
    >>> forecast = wf.Forecast(draws, index, pd.Index(["a", "b"]))
    >>> forecast.mean.shape
    (3, 2)
    >>> low, high = forecast.interval(0.8)
    >>> bool((low < high).all(axis=None))
    True
    >>> forecast.correlation.shape
    (3, 2, 2)
    >>> forecast.log_prob(np.zeros((3, 2)), kind="moments").shape
    (3,)
    """

    def __init__(
        self,
        samples: np.ndarray,
        index: pd.Index,
        columns: pd.Index,
        log_density: Callable[[np.ndarray], np.ndarray] | None = None,
        given: np.ndarray | None = None,
        axis: TimeAxis | None = None,
    ) -> None:
        self._axis = axis
        self.index, self.columns = index, columns
        self.given: pd.DataFrame | None = None if given is None else self._frame(given)
        self._log_density = log_density
        coordinates = {"draw": np.arange(len(samples)), "time": index.rename("time"), "variable": list(columns)}
        self.samples = xr.DataArray(samples, coordinates, dims=("draw", "time", "variable"))

    def __repr__(self) -> str:
        draws, times, variables = self.samples.shape
        return f"Forecast({draws} draws, {times} times from {self.index[0]} to {self.index[-1]}, {variables} variables)"

    @property
    def mean(self) -> pd.DataFrame:
        """Mean of each variable at each time."""
        return self._frame(self.samples.values.mean(axis=0))

    @property
    def covariance(self) -> xr.DataArray:
        """Covariances between variables at each time, (time, variable, variable_2)."""
        centred = self.samples.values - self.samples.values.mean(axis=0)
        values = np.einsum("std,ste->tde", centred, centred) / max(len(centred) - 1, 1)
        names = list(self.columns)
        coordinates = {"time": self.index.rename("time"), "variable": names, "variable_2": names}
        return xr.DataArray(values, coordinates, dims=("time", "variable", "variable_2"))

    def quantile(self, q: Any) -> pd.DataFrame:
        """Return quantiles of each variable at each time.

        Parameters
        ----------
        q : float or array-like of shape (A,)
            Probabilities, strictly between 0 and 1.

        Returns
        -------
        DataFrame
            The quantiles, a row for each time. Of one probability it has a column for each variable, of a list the
            columns (variable, q), as those of `predict_quantiles`.

        Raises
        ------
        OptionError
            If `q` holds no probability, or one that is not between 0 and 1.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> draws = np.random.default_rng(0).normal(size=(200, 3, 2))
        >>> forecast = wf.Forecast(draws, pd.date_range("2024-01-01", periods=3), pd.Index(["a", "b"]))
        >>> forecast.quantile(0.9).shape
        (3, 2)
        >>> forecast.quantile([0.1, 0.9])["a"].columns.tolist()
        [0.1, 0.9]
        """
        levels = checks.levels("q", q)
        values = np.quantile(self.samples.values, levels, axis=0)
        if np.ndim(q) == 0:
            return self._frame(values[0])
        columns = pd.MultiIndex.from_product([list(self.columns), levels.tolist()])
        return pd.DataFrame(np.moveaxis(values, 0, -1).reshape(len(self.index), -1), self.index, columns)

    def interval(self, coverage: float = 0.9) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the central interval of each variable at each time.

        Parameters
        ----------
        coverage : float, default=0.9
            Probability inside the interval, strictly between 0 and 1.

        Returns
        -------
        low : DataFrame
            Lower ends, the quantiles at ½ − coverage/2.
        high : DataFrame
            Upper ends, the quantiles at ½ + coverage/2.

        Raises
        ------
        OptionError
            If `coverage` is not between 0 and 1.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> draws = np.random.default_rng(0).normal(size=(200, 3, 2))
        >>> forecast = wf.Forecast(draws, pd.date_range("2024-01-01", periods=3), pd.Index(["a", "b"]))
        >>> low, high = forecast.interval(0.8)
        >>> bool((low < high).all(axis=None))
        True
        """
        if not 0.0 < coverage < 1.0:
            raise OptionError(f"coverage={coverage!r} given; expected a probability strictly between 0 and 1.")
        return self.quantile(0.5 - coverage / 2), self.quantile(0.5 + coverage / 2)

    def log_prob(self, y: Any, kind: str = "mixture") -> pd.Series:
        """Return the log density of observed values at each time, joint over variables.

        Parameters
        ----------
        y : DataFrame, Series or array of shape (T, P)
            Observed values. Columns of a frame are found by their names, and its rows by their stamps; stamps that are
            numbers may differ by rounding.
        kind : {"mixture", "moments"}, default="mixture"
            "mixture" is the mean of the model's transition densities over the draws: the last step is integrated
            analytically. "moments" is a Gaussian with mean and covariance of the draws.

        Returns
        -------
        Series
            A log density for each time. NaN where a value of the row is missing.

        Raises
        ------
        OptionError
            If `kind` is not known, or is "mixture" for a forecast that holds draws alone, such as one with given cells.
        DataError
            If `y` has another shape or other columns than the forecast.

        Notes
        -----
        A forecast with given cells has "moments" only. The density is then that of the cells of each time that were
        free, and 0 where there is none.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> draws = np.random.default_rng(0).normal(size=(200, 3, 2))
        >>> forecast = wf.Forecast(draws, pd.date_range("2024-01-01", periods=3), pd.Index(["a", "b"]))
        >>> forecast.log_prob(np.zeros((3, 2)), kind="moments").shape
        (3,)
        """
        values = self._values(y)
        if kind == "moments":
            return pd.Series(self._moment_matched(values), index=self.index, name="log_prob")
        if kind != "mixture":
            raise unknown_option("kind", kind, ("mixture", "moments"))
        if self._log_density is None:
            why = "holds draws alone" if self.given is None else "is conditioned on given cells and has draws alone"
            raise OptionError(f"this forecast {why}; score it with kind='moments'.")
        return pd.Series(self._log_density(values), index=self.index, name="log_prob")

    def _moment_matched(self, values: np.ndarray) -> np.ndarray:
        is_whole = ~np.isnan(values).any(axis=1)
        result = np.full(len(values), np.nan)
        is_free = np.ones(values.shape, bool) if self.given is None else self.given.isna().to_numpy()
        for free in np.unique(is_free, axis=0):
            rows = is_whole & (is_free == free).all(axis=1)
            if not free.any():
                result[rows] = 0.0
            elif rows.any():
                draws = self.samples.values[:, rows][:, :, free]
                result[rows] = metrics.moment_matched_log_density(values[rows][:, free], draws)
        return result

    def _values(self, y: Any) -> np.ndarray:
        if isinstance(y, pd.Series):
            y = y.to_frame()
        elif isinstance(y, pd.DataFrame):
            y = y.iloc[:, column_order(y.columns, self.columns, "y", "the forecast has")]
        values = self._at_stamps(y) if isinstance(y, pd.DataFrame) else np.asarray(y, float)
        values = values.reshape(len(values), -1)
        if values.shape != (len(self.index), len(self.columns)):
            raise DataError(
                f"y has shape {values.shape}; the forecast has {len(self.index)} times × {len(self.columns)}."
            )
        return values

    def _at_stamps(self, y: pd.DataFrame) -> np.ndarray:
        """The rows of a frame at the stamps of the forecast, NaN where there is none."""
        at = places_of(y.index, self.index) if self._axis is None else self._axis.places_of(y.index, self.index)
        rows = np.flatnonzero(at >= 0)
        if len(rows) != len(np.unique(at[rows])):
            here = pd.Index(at[rows]).duplicated()
            raise DataError(f"the index of y holds {y.index[rows[here][0]]} twice; give each stamp once.")
        values = np.full((len(self.index), y.shape[1]), np.nan)
        values[at[rows]] = y.to_numpy(float)[rows]
        return values

    def _frame(self, values: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(values, index=self.index, columns=self.columns)

    def correlation_interval(self, coverage: float = 0.9) -> tuple[xr.DataArray, xr.DataArray]:
        """Return intervals of the correlations between variables at each time, for the number of draws they come from.

        They say how far more draws could move the correlations, not how sure the model is of them.

        Parameters
        ----------
        coverage : float, default=0.9
            Probability inside the intervals, strictly between 0 and 1.

        Returns
        -------
        low : DataArray
            Lower ends, (time, variable, variable_2).
        high : DataArray
            Upper ends, of the same shape.

        Raises
        ------
        OptionError
            If `coverage` is not between 0 and 1.

        Notes
        -----
        By Fisher's transform the ends are tanh(artanh r ± z/√(S − 3)) for a correlation r of S draws.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> draws = np.random.default_rng(0).normal(size=(200, 3, 2))
        >>> forecast = wf.Forecast(draws, pd.date_range("2024-01-01", periods=3), pd.Index(["a", "b"]))
        >>> low, high = forecast.correlation_interval(0.9)
        >>> r = forecast.correlation.sel(variable="a", variable_2="b")
        >>> bool((low.sel(variable="a", variable_2="b") < r).all())
        True
        """
        if not 0.0 < coverage < 1.0:
            raise OptionError(f"coverage={coverage!r} given; expected a probability strictly between 0 and 1.")
        r = self.correlation
        wide = ndtri(0.5 + coverage / 2) / np.sqrt(max(self.samples.shape[0] - 3, 1))
        z = np.arctanh(np.clip(r, -1.0 + 1e-12, 1.0 - 1e-12))
        return np.tanh(z - wide), np.tanh(z + wide)

    @property
    def correlation(self) -> xr.DataArray:
        """Correlations between variables at each time, (time, variable, variable_2).

        NaN where a variable does not vary, as given cells do not.
        """
        covariance = self.covariance
        sd = np.sqrt(np.diagonal(covariance.values, axis1=1, axis2=2))
        size = np.maximum(np.abs(self.samples.values).max(axis=0), np.finfo(float).tiny)
        sd = np.where(sd > 1e-12 * size, sd, np.nan)
        return covariance / (sd[:, :, None] * sd[:, None, :])

    def report(
        self, path: str | Path, history: pd.DataFrame | None = None, model: Any = None, scores: Any = None
    ) -> Path:
        """Write fan charts and correlations along time to one HTML file, which needs no network.

        Parameters
        ----------
        path : str or path
            The file.
        history : DataFrame, optional
            Rows before and during the forecast, drawn with it.
        model : WishartForecaster, optional
            The forecaster, to report how it was trained.
        scores : Dataset or dict of str to Dataset, optional
            Scores of `backtest`, or several by the name of the model.

        Returns
        -------
        path
            The file.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> draws = np.random.default_rng(0).normal(size=(200, 3, 2))
        >>> forecast = wf.Forecast(draws, pd.date_range("2024-01-01", periods=3), pd.Index(["a", "b"]))
        >>> forecast.report("report.html").name
        'report.html'
        """
        from ..report import write_report

        return write_report(path, forecast=self, history=history, model=model, scores=scores)

    def to_xarray(self) -> xr.Dataset:
        """Return the draws as a dataset that can be written to NetCDF.

        NetCDF has no time zones: stamps are in UTC, and the attribute `time_zone` names the zone of the data. Names of
        variables are strings.

        Returns
        -------
        xarray.Dataset
            The variable "forecast", (draw, time, variable).

        Examples
        --------
        >>> forecast.to_xarray().to_netcdf("forecast.nc")  # doctest: +SKIP
        """
        return draws_as_dataset(self.samples.values, self.index, self.columns)

    def to_arviz(self) -> Any:
        """Return the draws as ArviZ holds them, one chain in the group `posterior_predictive`.

        Returns
        -------
        arviz.InferenceData
            With the variable "forecast", (chain, draw, time, variable). An xarray.DataTree from ArviZ 1.0 on.

        Raises
        ------
        ImportError
            If `arviz` is not installed (`pip install "wishflow[arviz]"`).
        """
        return as_inference_data(self.to_xarray())

    def to_frame(self, alpha: Any = (0.05, 0.5, 0.95)) -> pd.DataFrame:
        """Return mean, standard deviation and quantiles of each variable at each time as one DataFrame.

        Parameters
        ----------
        alpha : float or array-like of shape (A,), default=(0.05, 0.5, 0.95)
            Probabilities of the quantiles, strictly between 0 and 1.

        Returns
        -------
        DataFrame
            A row for each time; the columns NAME_mean, NAME_sd and NAME_q05, … for each variable NAME.

        Raises
        ------
        OptionError
            If `alpha` holds no probability, or one that is not between 0 and 1.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> draws = np.random.default_rng(0).normal(size=(200, 3, 1))
        >>> forecast = wf.Forecast(draws, pd.date_range("2024-01-01", periods=3), pd.Index(["a"]))
        >>> forecast.to_frame(alpha=[0.1, 0.9]).columns.tolist()
        ['a_mean', 'a_sd', 'a_q10', 'a_q90']
        """
        levels, draws = checks.levels("alpha", alpha), self.samples.values
        quantiles = np.moveaxis(np.quantile(draws, levels, axis=0), 0, -1)
        sd = draws.std(axis=0, ddof=1) if len(draws) > 1 else np.zeros(draws.shape[1:])
        names = [str(name) for name in self.columns]
        return law_columns(names, draws.mean(axis=0), sd, quantiles, levels.tolist(), self.index)

    # --- pictures ---

    def plot_fan(
        self,
        variables: Any = None,
        history: Any = None,
        coverages: Sequence[float] = (0.5, 0.9),
        *,
        n_past: int | None = None,
        axes: Any = None,
    ) -> np.ndarray:
        """Draw a fan chart for each variable: median, central intervals, past and observed values.

        Parameters
        ----------
        variables : str or list of str, optional
            The variables. All by default.
        history : DataFrame or Series, optional
            Observed values before and during the forecast. Values during the forecast are drawn as dots.
        coverages : sequence of float, default=(0.5, 0.9)
            Coverages of the intervals.
        n_past : int, optional
            Rows before the forecast that are drawn. By default three for each time of the forecast.
        axes : sequence of Axes, optional
            Where to draw, one for each variable. By default a new figure.

        Returns
        -------
        ndarray of Axes
            The axes, one for each variable.

        Raises
        ------
        DataError
            If a variable is not in the forecast or in the history.
        ImportError
            If matplotlib is not installed (`pip install "wishflow[plot]"`), as all methods `plot_*`.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> from matplotlib.figure import Figure
        >>> draws = np.random.default_rng(0).normal(size=(200, 24, 2)).cumsum(axis=1)
        >>> index = pd.date_range("2024-01-02", periods=24, freq="h")
        >>> forecast = wf.Forecast(draws, index, pd.Index(["a", "b"]))
        >>> past = pd.DataFrame(0.0, pd.date_range("2024-01-01", periods=24, freq="h"), ["a", "b"])
        >>> len(forecast.plot_fan(history=past, axes=Figure().subplots(2, 1)))
        2
        """
        from .. import plotting

        return plotting.plot_fan(self, variables, history, coverages, n_past=n_past, axes=axes)

    def plot(self, variables: Any = None, history: Any = None, coverages: Sequence[float] = (0.5, 0.9)) -> Any:
        """Draw a fan chart for each variable; deprecated, use `plot_fan`. It will be removed in 0.3.

        Parameters
        ----------
        variables : str or list of str, optional
            The variables. All by default.
        history : DataFrame or Series, optional
            Observed values before and during the forecast.
        coverages : sequence of float, default=(0.5, 0.9)
            Coverages of the intervals.

        Returns
        -------
        Figure
            The figure.

        Warns
        -----
        FutureWarning
            Always.

        See Also
        --------
        plot_fan : The same, with axes.
        """
        warnings.warn(
            "Forecast.plot is deprecated and will be removed in 0.3; use plot_fan, which returns the axes.",
            FutureWarning,
            stacklevel=2,
        )
        return self.plot_fan(variables, history, coverages)[0].figure

    def plot_correlation(self, pairs: Any = None, coverage: float | None = 0.9, *, ax: Any = None) -> Any:
        """Draw correlations between variables along the horizon, with the bands of `correlation_interval`.

        Parameters
        ----------
        pairs : pair of names or list of pairs, optional
            Which correlations. By default the four that move most.
        coverage : float or None, default=0.9
            Coverage of the bands, which are those of the number of draws. None draws no bands.
        ax : Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        Axes
            The axes.

        Raises
        ------
        DataError
            If there are fewer than two variables, or a name is not one of them.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> from matplotlib.figure import Figure
        >>> draws = np.random.default_rng(0).normal(size=(200, 24, 2))
        >>> forecast = wf.Forecast(draws, pd.RangeIndex(24), pd.Index(["a", "b"]))
        >>> forecast.plot_correlation(("a", "b"), ax=Figure().subplots()).get_ylabel()
        'correlation'
        """
        from .. import plotting

        ends = (None, None) if coverage is None else self.correlation_interval(coverage)
        return plotting.plot_correlation(self.correlation, *ends, pairs=pairs, ax=ax)

    def plot_covariance(self, variables: Any = None, *, n_ellipses: int = 12, size: float = 1.0, ax: Any = None) -> Any:
        """Draw the mean path of two variables, with their covariances as ellipses along it.

        Parameters
        ----------
        variables : pair of names, optional
            The two variables. By default the first two.
        n_ellipses : int, default=12
            At most how many ellipses are drawn.
        size : float, default=1.0
            Size of the ellipses, in standard deviations.
        ax : Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        Axes
            The axes. A ring is at the first time, a dot at the last.

        Raises
        ------
        DataError
            If these are not two variables of the forecast.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> from matplotlib.figure import Figure
        >>> draws = np.random.default_rng(0).normal(size=(200, 24, 2)).cumsum(axis=1)
        >>> forecast = wf.Forecast(draws, pd.RangeIndex(24), pd.Index(["a", "b"]))
        >>> forecast.plot_covariance(ax=Figure().subplots()).get_ylabel()
        'b'
        """
        from .. import plotting

        places = pair_of(variables, self.columns)
        covariances = self.covariance.values[:, places][:, :, places]
        path = self.mean.to_numpy()[:, places]
        ax = plotting.plot_trajectory(path, covariances, n_ellipses=n_ellipses, size=size, ax=ax)
        ax.set(xlabel=str(self.columns[places[0]]), ylabel=str(self.columns[places[1]]))
        return ax

    def plot_calibration(self, y: Any, axes: Any = None) -> np.ndarray:
        """Draw the histogram of the PIT of observed values, and the coverage of 50, 80 and 95 % intervals.

        Values of one forecast depend on each other, so even those of a right law may be far from the dashed lines. Use
        `backtest` and `wishflow.plotting.plot_backtest` for many forecasts.

        Parameters
        ----------
        y : DataFrame, Series or array of shape (T, P)
            Observed values, as for `log_prob`. Missing ones are left out.
        axes : sequence of two Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        ndarray of two Axes
            The axes.

        Raises
        ------
        DataError
            If `y` has another shape or other columns than the forecast, or no value.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> from matplotlib.figure import Figure
        >>> draws = np.random.default_rng(0).normal(size=(200, 24, 2))
        >>> forecast = wf.Forecast(draws, pd.RangeIndex(24), pd.Index(["a", "b"]))
        >>> left, right = forecast.plot_calibration(np.zeros((24, 2)), Figure().subplots(1, 2))
        >>> right.get_title()
        'Coverage'
        """
        from .. import plotting

        values = self._values(y)
        is_seen = ~np.isnan(values)
        if not is_seen.any():
            raise DataError("y has no value at the times of the forecast; expected observed values to compare with.")
        pit = np.mean(self.samples.values <= values, axis=0)[is_seen]
        coverage = {}
        for level in LEVELS:
            low, high = (end.to_numpy() for end in self.interval(level))
            coverage[level] = float(np.mean(((low <= values) & (values <= high))[is_seen]))
        return plotting.plot_calibration(np.histogram(pit, N_BINS, (0.0, 1.0))[0], coverage, axes)


def pair_of(variables: Any, columns: pd.Index) -> list[int]:
    """The places of two variables; by default of the first two."""
    names = list(columns)
    wanted = names[:2] if variables is None else variables
    if isinstance(wanted, str) or len(wanted) != 2 or not set(wanted) <= set(names):
        raise DataError(f"variables={variables!r} given; expected two of {names}.")
    return [names.index(name) for name in wanted]
