"""Forecasts, correlations along time, and scores by horizon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ..errors import DataError
from .style import LINES, POINT_COLOUR, colour_of, date_axis, own_axes, own_panels, times_of

# Rows of the past for each time of the forecast.
PAST = 3
# More bands on one another cannot be read.
MOST_PAIRS = 4


def plot_fan(
    forecast: Any,
    variables: Any = None,
    history: Any = None,
    coverages: Sequence[float] = (0.5, 0.9),
    *,
    n_past: int | None = None,
    axes: Any = None,
) -> np.ndarray:
    """Draw a fan chart for each variable of a forecast: median, central intervals, past and observed values.

    Parameters
    ----------
    forecast : Forecast
        The forecast.
    variables : str or list of str, optional
        The variables. All by default.
    history : DataFrame or Series, optional
        Observed values before and during the forecast. Values during the forecast are drawn as dots.
    coverages : sequence of float, default=(0.5, 0.9)
        Coverages of the intervals.
    n_past : int, optional
        Rows of the history before the forecast that are drawn. By default three for each time of the forecast.
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

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import wishflow as wf
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_fan
    >>> walks = np.random.default_rng(0).normal(size=(200, 24, 2)).cumsum(axis=1)
    >>> index = pd.date_range("2024-01-01", periods=24, freq="h")
    >>> forecast = wf.Forecast(walks, index, pd.Index(["a", "b"]))
    >>> axes = plot_fan(forecast, axes=Figure().subplots(2, 1))
    >>> [ax.get_ylabel() for ax in axes]
    ['a', 'b']
    """
    names = _chosen(forecast.columns, variables)
    past = None if history is None else _history(history, forecast.columns, names)
    panels = own_panels(axes, len(names))
    bands = {coverage: forecast.interval(coverage) for coverage in sorted(coverages, reverse=True)}
    middle = forecast.quantile(0.5)
    for ax, name in zip(panels, names, strict=True):
        if past is not None:
            _draw_past(ax, past[name], forecast.index, n_past)
        for shade, (coverage, (low, high)) in zip(np.linspace(0.2, 0.4, len(bands)), bands.items(), strict=True):
            how: dict[str, Any] = {"color": colour_of("diffWGP"), "alpha": float(shade), "lw": 0.0}
            ax.fill_between(times_of(forecast.index), low[name], high[name], label=f"{coverage:.0%} interval", **how)
        ax.plot(times_of(forecast.index), middle[name], color=colour_of("diffWGP"), label="median")
        if forecast.given is not None and forecast.given[name].notna().any():
            ax.plot(times_of(forecast.index), forecast.given[name], "kD", ms=4.0, mfc="white", label="given")
        ax.set_ylabel(str(name))
        ax.margins(x=0.01)
        date_axis(ax, forecast.index)
    panels[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=6, frameon=False, fontsize="small")
    _label_last_only(panels)
    return panels


def plot_correlation(
    value: Any, low: Any = None, high: Any = None, *, pairs: Any = None, ax: Axes | None = None
) -> Axes:
    """Draw correlations between variables along time, with their bands.

    Parameters
    ----------
    value : DataArray
        Correlations, (time, variable, variable_2), such as `Forecast.correlation`.
    low : DataArray, optional
        Lower ends of the bands.
    high : DataArray, optional
        Upper ends of the bands.
    pairs : pair of names or list of pairs, optional
        Which correlations. By default the four that move most.
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
    >>> from wishflow.plotting import plot_correlation
    >>> draws = np.random.default_rng(0).normal(size=(200, 24, 2))
    >>> forecast = wf.Forecast(draws, pd.RangeIndex(24), pd.Index(["a", "b"]))
    >>> low, high = forecast.correlation_interval(0.9)
    >>> plot_correlation(forecast.correlation, low, high, ax=Figure().subplots()).get_ylabel()
    'correlation'
    """
    chosen = _pairs(value, pairs)
    ax = own_axes(ax)
    index = value.indexes["time"]
    ax.axhline(0.0, color=POINT_COLOUR, lw=0.8)
    for i, (one, other) in enumerate(chosen):
        colour, dashes = LINES[i % len(LINES)]
        at = {"variable": one, "variable_2": other}
        if low is not None and high is not None:
            ends = (low.sel(at).values, high.sel(at).values)
            ax.fill_between(times_of(index), *ends, color=colour, alpha=0.2, lw=0.0)
        ax.plot(times_of(index), value.sel(at).values, color=colour, ls=dashes, label=f"{one}, {other}")
    ax.set(ylabel="correlation", ylim=(-1.03, 1.03))
    ax.margins(x=0.01)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, frameon=False, fontsize="small")
    date_axis(ax, index)
    return ax


def plot_correlation_matrix(matrix: Any, names: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Draw a correlation matrix as an image with its values.

    Parameters
    ----------
    matrix : ndarray of shape (D, D)
        The correlations.
    names : sequence of str
        Names of the rows.
    ax : Axes, optional
        Where to draw. By default a new figure.

    Returns
    -------
    Axes
        The axes. `ax.images[0]` is what a colour bar needs.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_correlation_matrix
    >>> ax = plot_correlation_matrix(np.eye(2), ["a", "b"], ax=Figure().subplots())
    >>> ax.images[0].get_array().shape
    (2, 2)
    """
    ax, matrix = own_axes(ax), np.asarray(matrix, float)
    ax.imshow(matrix, vmin=-1.0, vmax=1.0, cmap="RdBu_r")
    ax.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    ax.set_yticks(range(len(names)), names, fontsize=7)
    for i in range(len(names)):
        for j in range(len(names)):
            shade = "white" if abs(matrix[i, j]) > 0.6 else "black"
            ax.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", fontsize=5.5, color=shade)
    return ax


def plot_backtest(scores: Any, axes: Any = None) -> np.ndarray:
    """Draw scores of forecasts by horizon: the mean CRPS, and the coverage of intervals beside its nominal level.

    Parameters
    ----------
    scores : Dataset or dict of str to Dataset
        Scores of `backtest`, or several by the name of the model.
    axes : sequence of two Axes, optional
        Where to draw. By default a new figure.

    Returns
    -------
    ndarray of two Axes
        The axes.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_backtest
    >>> cells = (("origin", "horizon", "variable"), np.ones((3, 4, 2)))
    >>> scores = xr.Dataset({"crps": cells, "covered": cells}, {"horizon": [1, 2, 3, 4]}, {"coverage": 0.8})
    >>> left, right = plot_backtest(scores, Figure().subplots(1, 2))
    >>> left.get_xlabel()
    'steps ahead'
    """
    models: Mapping[str, Any] = scores if isinstance(scores, Mapping) and "crps" not in scores else {"": scores}
    left, right = panels = own_panels(axes, 1, 2, height=3.0)
    for i, (name, found) in enumerate(models.items()):
        colour, dashes = LINES[i % len(LINES)]
        for ax, column in ((left, "crps"), (right, "covered")):
            part = found[column]
            part = part.mean([dim for dim in part.dims if dim != "horizon"])
            ax.plot(part["horizon"].values, part.values, color=colour, ls=dashes, marker=".", label=name)
        right.axhline(found.attrs["coverage"], color="black", ls="--", lw=1.0)
    left.set(xlabel="steps ahead", ylabel="CRPS", ylim=(0.0, None))
    right.set(xlabel="steps ahead", ylabel="part inside the intervals", ylim=(0.0, 1.0))
    if any(models):
        left.legend(frameon=False, fontsize="small")
    return panels


def _chosen(columns: pd.Index, variables: Any) -> list[Any]:
    """Names of variables; all where none are named."""
    if variables is None:
        return list(columns)
    names = list(variables) if isinstance(variables, list | tuple | pd.Index | np.ndarray) else [variables]
    for name in names:
        if name not in columns:
            raise DataError(f"variable {name!r} is not known; expected some of {list(columns)}.")
    return names


def _history(history: Any, columns: pd.Index, names: list[Any]) -> pd.DataFrame:
    """Observed values in the columns that are drawn."""
    if isinstance(history, pd.Series):
        history = history.to_frame(columns[0] if len(columns) == 1 else history.name)
    missing = [name for name in names if not isinstance(history, pd.DataFrame) or name not in history.columns]
    if missing:
        raise DataError(f"history has no column {missing[0]!r}; give a DataFrame with the columns of the forecast.")
    return history[names]


def _draw_past(ax: Axes, values: pd.Series, index: pd.Index, n_past: int | None) -> None:
    """The last rows before the forecast as a line, those during it as dots."""
    before = values[values.index < index[0]]
    n_rows = PAST * len(index) if n_past is None else n_past
    before = before.iloc[max(len(before) - n_rows, 0) :]
    ax.plot(times_of(before.index), before.to_numpy(), color="black", lw=1.0, label="past")
    later = values[(values.index >= index[0]) & (values.index <= index[-1])]
    if later.notna().any():
        ax.plot(times_of(later.index), later.to_numpy(), "k.", ms=3.5, label="observed")


def _label_last_only(panels: np.ndarray) -> None:
    """Panels below each other share their times: those above the last need no labels for them."""
    for ax in panels[:-1]:
        if not ax.get_shared_x_axes().joined(ax, panels[-1]):
            ax.sharex(panels[-1])
        ax.tick_params(labelbottom=False)
        ax.xaxis.get_offset_text().set_visible(False)


def _pairs(value: Any, pairs: Any) -> list[tuple[Any, Any]]:
    """The pairs that were named, or those whose correlation moves most."""
    names = list(value["variable"].values)
    if pairs is not None:
        given = [tuple(pairs)] if len(pairs) == 2 and not isinstance(pairs[0], list | tuple) else [*map(tuple, pairs)]
        for pair in given:
            if len(pair) != 2 or not set(pair) <= set(names):
                raise DataError(f"pairs holds {pair!r}; expected pairs of two names among {names}.")
        return given
    if len(names) < 2:
        raise DataError(f"there is one variable, {names[0]!r}; correlations need two.")
    found = list(combinations(range(len(names)), 2))
    moves = [np.ptp(part[np.isfinite(part)]) if np.isfinite(part).any() else 0.0 for part in _series(value, found)]
    kept = sorted(np.argsort(moves, kind="stable")[::-1][:MOST_PAIRS])
    return [(names[found[k][0]], names[found[k][1]]) for k in kept]


def _series(value: Any, pairs: list[tuple[int, int]]) -> list[np.ndarray]:
    return [value.values[:, i, j] for i, j in pairs]
