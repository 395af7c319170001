"""Pictures of a fitted forecaster: its training, its noise and the correlations of it, its field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from ..errors import DataError, OptionError
from ..numerics.grids import plane_grid, visible_times
from .data.frames import ONLY
from .data.intake import further_rows
from .forecast import pair_of
from .noise_frames import NoiseFrames, read_covariates

FIELD_TITLE = "Drift over {:.2g}, noise over {:.2g} units of time"


class NoisePlots(NoiseFrames):
    """What a fitted forecaster draws of itself."""

    history_: pd.DataFrame
    validation_history_: pd.DataFrame | None

    def plot_training(self, axes: Any = None) -> np.ndarray:
        """Draw how the fit went: the objective, its penalties, and the candidates compared on held-back rows.

        Parameters
        ----------
        axes : sequence of Axes, optional
            Where to draw, as many as there are panels. By default a new figure.

        Returns
        -------
        ndarray of Axes
            One for the objective; one for the penalties; one for the CRPS of the candidates where some were compared.

        Raises
        ------
        ImportError
            If matplotlib is not installed (`pip install "wishflow[plot]"`), as all methods `plot_*`.

        See Also
        --------
        wishflow.plotting.plot_training : What this method calls.

        Examples
        --------
        >>> forecaster.plot_training()  # doctest: +SKIP
        """
        from .. import plotting

        check_is_fitted(self, "model_")
        return plotting.plot_training(self.history_, self.validation_history_, axes)

    def plot_correlation(
        self, y: Any, X: Any = None, pairs: Any = None, coverage: float | None = 0.9, *, ax: Any = None
    ) -> Any:
        """Draw the correlations of the noise along the rows of one series y, with the bands of `correlation_interval`.

        Parameters
        ----------
        y : DataFrame, Series or array
            Rows, in the form of those of `fit`; arrays as in `covariance`. No panel.
        X : DataFrame, Series or array, optional
            Covariates at these rows, as in `fit`.
        pairs : pair of names or list of pairs, optional
            Which correlations. By default the four that move most.
        coverage : float or None, default=0.9
            Coverage of the bands. None draws no bands, as for models with a latent state, which have none.
        ax : Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        Axes
            The axes.

        Raises
        ------
        OptionError
            If `y` is a panel, or bands are asked for and the model has a latent state.
        DataError
            If there are fewer than two series, or a name is not one of them.

        Examples
        --------
        >>> forecaster.plot_correlation(y.tail(200), pairs=("a", "b"))  # doctest: +SKIP
        """
        from .. import plotting

        self._check_one_series(y)
        ends = (None, None) if coverage is None else self.correlation_interval(y, X, coverage)
        return plotting.plot_correlation(self.correlation(y, X), *ends, pairs=pairs, ax=ax)

    def plot_noise(
        self,
        y: Any,
        X: Any = None,
        variables: Any = None,
        *,
        n_ellipses: int = 20,
        size: float = 1.0,
        ax: Any = None,
    ) -> Any:
        """Draw the path of two series, with the noise of a step as ellipses along it.

        Parameters
        ----------
        y : DataFrame, Series or array
            Rows, in the form of those of `fit`; arrays as in `covariance`. No panel.
        X : DataFrame, Series or array, optional
            Covariates at these rows, as in `fit`.
        variables : pair of names, optional
            The two series. By default the first two.
        n_ellipses : int, default=20
            At most how many ellipses are drawn.
        size : float, default=1.0
            Size of the ellipses, in standard deviations of the noise over one unit of time.
        ax : Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        Axes
            The axes. A ring is at the first row, a dot at the last.

        Raises
        ------
        OptionError
            If `y` is a panel.
        DataError
            If these are not two of the series.

        See Also
        --------
        covariance : The ellipses as numbers.

        Examples
        --------
        >>> forecaster.plot_noise(y.tail(200), variables=("a", "b"))  # doctest: +SKIP
        """
        from .. import plotting

        panel, places = self._check_one_series(y), pair_of(variables, self.columns_)
        rates = self.covariance(y, X).values[:, places][:, :, places]
        path = panel.tables[ONLY].values[:, places]
        ax = plotting.plot_trajectory(path, rates, n_ellipses=n_ellipses, size=size, ax=ax)
        ax.set(xlabel=str(self.columns_[places[0]]), ylabel=str(self.columns_[places[1]]))
        return ax

    def plot_field(self, y: Any, X: Any = None, variables: Any = None, *, n_side: int = 9, ax: Any = None) -> Any:
        """Draw drift and noise over a grid of two series.

        An arrow is where the drift leads from its point, and the ellipse one standard deviation of the noise. The title
        says over which times; they are chosen so that both can be seen.

        Parameters
        ----------
        y : DataFrame, Series or array
            Rows, in the form of those of `fit`; arrays as in `covariance`. They say which part of the plane is drawn,
            and where the model is: see Notes.
        X : DataFrame, Series or array, optional
            Covariates at these rows, as in `fit`.
        variables : pair of names, optional
            The two series. By default the first two.
        n_side : int, default=9
            Points of the grid along each axis.
        ax : Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        Axes
            The axes.

        Raises
        ------
        OptionError
            If `y` is a panel, or the model has a latent state.
        DataError
            If these are not two of the series, or `y` has no value.

        Notes
        -----
        The field is that at the last row: its time, its covariates, and its values of the other series. With lags the
        rows before it are moved by as much as the last one. With a transform drift and noise are those of y to first
        order.

        Examples
        --------
        >>> forecaster.plot_field(y, variables=("prey", "predators"))  # doctest: +SKIP
        """
        from .. import plotting

        panel, places = self._check_one_series(y), pair_of(variables, self.columns_)
        tail, _ = further_rows(self.units_, panel, read_covariates(X), self.tails_)[ONLY]
        pieces, runner = self.units_.ticks(tail), self._runner()
        if not pieces:
            raise DataError("y has no value, so there is no place to draw the field at; give rows with values.")
        points, spacing = plane_grid(panel.tables[ONLY].values[:, places], n_side)
        ticks = pieces[-1]
        values = np.repeat(self.units_.inverse(runner.covariances(ticks)[0][-1:]), len(points), axis=0)
        values[:, places] = points
        drift, rates = runner.field(ticks, self.units_.forward(values))
        slope = self.units_.slope(values)
        drift, rates = drift * slope, rates * slope[:, :, None] * slope[:, None, :]
        drift, rates = drift[:, places], rates[:, places][:, :, places]
        long, short = visible_times(drift, rates, spacing)
        ax = plotting.plot_field(points, long * drift, short * rates, is_square=False, ax=ax)
        names = [str(self.columns_[place]) for place in places]
        ax.set(xlabel=names[0], ylabel=names[1], title=FIELD_TITLE.format(long, short))
        return ax

    def _check_one_series(self, y: Any) -> Any:
        panel = self._seen(y)
        if panel.is_panel:
            raise OptionError("y is a panel; expected one series: fit and draw one of them, or use `correlation(y)`.")
        return panel
