"""Means, quantiles, intervals and variances of forecasts as frames in sktime's formats, and reports of them."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from ..errors import DataError, OptionError
from ..specs import checks
from .data.units import Units
from .data.unstamped import REMEDY
from .forecast import Forecast


class ForecastFrames(abc.ABC):
    """Frames computed from `forecast`, for a forecaster that knows the form of its data."""

    columns_: pd.Index
    is_series_: bool
    is_panel_: bool
    name_: Any
    units_: Units

    @abc.abstractmethod
    def forecast(
        self, fh: Any = None, X: Any = None, n_draws: int = 1000, random_state: Any = None, given: Any = None
    ) -> Any:
        """Draw joint sample paths over a horizon.

        Parameters
        ----------
        fh : int, str, list or Index, optional
            The horizon: steps, a time span, or stamps. By default the one given to `fit`.
        X : DataFrame, Series, array or dict, optional
            Covariates for each step up to the end of the horizon.
        n_draws : int, default=1000
            Number of paths.
        random_state : int, RandomState or None, default=None
            Seed of the noise. None is the seed of `fit`.
        given : DataFrame, Series, array or dict, optional
            Values that some cells of the paths have.

        Returns
        -------
        Forecast or dict of Forecast
            The paths. A dict by id for a panel.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> index = pd.date_range("2024-01-01", periods=40, freq="h")
        >>> walks = np.random.default_rng(0).normal(size=(40, 2)).cumsum(axis=0)
        >>> y = pd.DataFrame(walks, index, columns=["a", "b"])
        >>> forecaster = wf.WishartForecaster(rank=1, n_inducing=5, max_iter=3, validation_fraction=0).fit(y)
        >>> forecaster.forecast("3h", n_draws=50)
        Forecast(50 draws, 3 times from 2024-01-02 16:00:00 to 2024-01-02 18:00:00, 2 variables)
        >>> plan = pd.DataFrame({"a": [1.0]}, [index[-1] + pd.Timedelta("2h")])  # known or assumed
        >>> forecaster.forecast("3h", n_draws=50, given=plan).mean.loc[plan.index, "a"].item()
        1.0
        """

    def predict(self, fh: Any = None, X: Any = None, given: Any = None) -> Any:
        """Predict means, the means of the draws of `forecast`.

        Parameters
        ----------
        fh : int, str, list or Index, optional
            The horizon, as in `forecast`.
        X : DataFrame, Series, array or dict, optional
            Covariates, as in `forecast`.
        given : DataFrame, Series, array or dict, optional
            Values that some cells of the paths have, as in `forecast`: a scenario.

        Returns
        -------
        DataFrame or Series
            A row for each time and a column for each series. A Series where y was one. A panel has an index (id, time).

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> index = pd.date_range("2024-01-01", periods=40, freq="h")
        >>> walks = np.random.default_rng(0).normal(size=(40, 2)).cumsum(axis=0)
        >>> y = pd.DataFrame(walks, index, columns=["a", "b"])
        >>> forecaster = wf.WishartForecaster(rank=1, n_inducing=5, max_iter=3, validation_fraction=0).fit(y)
        >>> forecaster.predict(fh=3).shape
        (3, 2)
        """
        frame = self._by_key(lambda f: f.mean, fh, X, given)
        return frame.iloc[:, 0].rename(self.name_) if self.is_series_ else frame

    def predict_quantiles(
        self, fh: Any = None, X: Any = None, alpha: Any = (0.1, 0.25, 0.5, 0.75, 0.9), given: Any = None
    ) -> pd.DataFrame:
        """Predict quantiles of each series.

        Parameters
        ----------
        fh : int, str, list or Index, optional
            The horizon, as in `forecast`.
        X : DataFrame, Series, array or dict, optional
            Covariates, as in `forecast`.
        alpha : float or array-like of shape (A,), default=(0.1, 0.25, 0.5, 0.75, 0.9)
            Probabilities strictly between 0 and 1.
        given : DataFrame, Series, array or dict, optional
            Values that some cells of the paths have, as in `forecast`: a scenario.

        Returns
        -------
        DataFrame
            A row for each time, columns (variable, alpha). A panel has an index (id, time).

        Raises
        ------
        OptionError
            If `alpha` holds no probability, or one that is not between 0 and 1.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> index = pd.date_range("2024-01-01", periods=40, freq="h")
        >>> walks = np.random.default_rng(0).normal(size=(40, 2)).cumsum(axis=0)
        >>> y = pd.DataFrame(walks, index, columns=["a", "b"])
        >>> forecaster = wf.WishartForecaster(rank=1, n_inducing=5, max_iter=3, validation_fraction=0).fit(y)
        >>> forecaster.predict_quantiles(fh=3, alpha=[0.1, 0.9]).shape
        (3, 4)
        """
        levels = checks.levels("alpha", alpha)
        return self._by_key(lambda f: f.quantile(levels), fh, X, given)

    def predict_interval(self, fh: Any = None, X: Any = None, coverage: Any = 0.9, given: Any = None) -> pd.DataFrame:
        """Predict central intervals of each series.

        Parameters
        ----------
        fh : int, str, list or Index, optional
            The horizon, as in `forecast`.
        X : DataFrame, Series, array or dict, optional
            Covariates, as in `forecast`.
        coverage : float or array-like of shape (C,), default=0.9
            Probabilities inside the intervals, strictly between 0 and 1.
        given : DataFrame, Series, array or dict, optional
            Values that some cells of the paths have, as in `forecast`: a scenario.

        Returns
        -------
        DataFrame
            A row for each time, columns (variable, coverage, "lower" or "upper"). A panel has an index (id, time).

        Raises
        ------
        OptionError
            If `coverage` holds no probability, or one that is not between 0 and 1.
        """
        levels = checks.levels("coverage", coverage)
        ends = [q for c in levels for q in (0.5 - c / 2, 0.5 + c / 2)]

        def intervals(f: Forecast) -> pd.DataFrame:
            values = np.quantile(f.samples.values, ends, axis=0)
            names = [(v, float(c), side) for v in self._names() for c in levels for side in ("lower", "upper")]
            columns = pd.MultiIndex.from_tuples(names)
            return pd.DataFrame(np.moveaxis(values, 0, -1).reshape(len(f.index), -1), f.index, columns)

        return self._by_key(intervals, fh, X, given)

    def predict_var(self, fh: Any = None, X: Any = None, cov: bool = False, given: Any = None) -> pd.DataFrame:
        """Predict the variance of each series.

        Parameters
        ----------
        fh : int, str, list or Index, optional
            The horizon, as in `forecast`.
        X : DataFrame, Series, array or dict, optional
            Covariates, as in `forecast`.
        cov : bool, default=False
            Not supported; it is there for the signature of sktime.
        given : DataFrame, Series, array or dict, optional
            Values that some cells of the paths have, as in `forecast`: a scenario.

        Returns
        -------
        DataFrame
            A row for each time and a column for each series. A panel has an index (id, time).

        Raises
        ------
        OptionError
            If `cov` is True: joint draws over all times are in `forecast(...).samples`.
        """
        if cov:
            raise OptionError("cov=True given; forecast(...).samples holds joint draws over all times.")
        names = pd.Index(self._names())
        return self._by_key(lambda f: pd.DataFrame(f.samples.values.var(axis=0, ddof=1), f.index, names), fh, X, given)

    def _by_key(self, function: Any, fh: Any, X: Any, given: Any) -> pd.DataFrame:
        found = self.forecast(fh, X, given=given)
        if not self.is_panel_:
            return function(found)
        return pd.concat({key: function(f) for key, f in found.items()}, names=list(self.units_.index_names))

    def _names(self) -> list:
        return list(self.columns_)

    def report(self, path: str | Path, y: Any = None, fh: Any = None, scores: Any = None, X: Any = None) -> Path:
        """Write how the model was trained, and on request forecasts, correlations and scores, to one HTML file.

        Parameters
        ----------
        path : str or path
            The file. The page needs no network.
        y : DataFrame or Series, optional
            Rows of the past with their stamps, for their correlations and the fan charts. Those of a panel are not
            shown.
        fh : int, str, list or Index, optional
            A horizon, for a forecast after the end of the data.
        scores : Dataset or dict of str to Dataset, optional
            Scores of `backtest`, or several by the name of the model.
        X : DataFrame, Series, array or dict, optional
            Covariates of the horizon, for models that have some.

        Returns
        -------
        path
            The file.

        Raises
        ------
        OptionError
            If `fh` is given for a panel.
        DataError
            If `y` is an array, which has no stamps.
        """
        from ..report import write_report

        check_is_fitted(self, "model_")
        if isinstance(y, np.ndarray):
            raise DataError(f"y is an array, which has no stamps; {REMEDY}.")
        if fh is not None and self.is_panel_:
            raise OptionError("fh is given for a panel; write a report of each: forecast(fh)[id].report(path).")
        forecast = None if fh is None else self.forecast(fh, X)
        return write_report(path, forecast=forecast, history=y, model=self, scores=scores)
