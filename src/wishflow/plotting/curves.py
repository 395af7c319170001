"""Curves, bands and points over one axis; violins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from ..errors import DataError
from .style import FIRST_COLOUR, POINT_COLOUR, date_axis, own_axes, times_of

N_VIOLIN = 50


def plot_band(
    x: Any,
    lower: ArrayLike,
    upper: ArrayLike,
    middle: ArrayLike | None = None,
    *,
    colour: str = FIRST_COLOUR,
    label: str | None = None,
    is_outline: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw a band between two curves.

    Parameters
    ----------
    x : array-like of shape (N,)
        Where the curves are given: numbers, time stamps or periods.
    lower : array-like of shape (N,)
        Lower edge of the band.
    upper : array-like of shape (N,)
        Upper edge of the band.
    middle : array-like of shape (N,), optional
        A curve inside the band.
    colour : str, default="#0072B2"
        Colour of band and curve.
    label : str, optional
        Entry of the legend.
    is_outline : bool, default=False
        Whether to draw the two edges dashed, rather than fill the band.
    ax : Axes, optional
        Where to draw. By default a new figure.

    Returns
    -------
    Axes
        The axes.

    Raises
    ------
    DataError
        If the arrays are not of one dimension and one length.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_band
    >>> ax = plot_band([0, 1, 2], [0, 0, 0], [1, 2, 3], [0.5, 1, 1.5], ax=Figure().subplots())
    >>> len(ax.lines)
    1
    """
    ax = own_axes(ax)
    x, lower, upper = _curves(x, lower, upper)
    if is_outline:
        ax.plot(x, lower, color=colour, linestyle="--", linewidth=1.0, label=label)
        ax.plot(x, upper, color=colour, linestyle="--", linewidth=1.0)
    else:
        ax.fill_between(x, lower, upper, color=colour, alpha=0.3, linewidth=0.0, label=label)
    if middle is not None:
        ax.plot(x, _curves(x, middle)[1], color=colour, linewidth=1.5)
    date_axis(ax, x)
    return ax


def plot_points(x: Any, y: ArrayLike, *, label: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw observations as small grey dots.

    Parameters
    ----------
    x : array-like of shape (N,)
        Inputs: numbers, time stamps or periods.
    y : array-like of shape (N,)
        Observations.
    label : str, optional
        Entry of the legend.
    ax : Axes, optional
        Where to draw. By default a new figure.

    Returns
    -------
    Axes
        The axes.

    Raises
    ------
    DataError
        If the arrays are not of one dimension and one length.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_points
    >>> ax = plot_points([0, 1, 2], [1, 3, 2], ax=Figure().subplots())
    >>> len(ax.lines)
    1
    """
    ax = own_axes(ax)
    x, y = _curves(x, y)
    ax.plot(x, y, linestyle="none", marker=".", markersize=3.0, color=POINT_COLOUR, label=label)
    date_axis(ax, x)
    return ax


def plot_violins(
    groups: Mapping[str, ArrayLike | None],
    colours: Mapping[str, str],
    *,
    limits: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a violin for each group of numbers, its members as dots and its median as a line.

    There is a grey line at 0. A group that is None has the word "missing" in its place.

    Parameters
    ----------
    groups : mapping of str to array-like or None
        Numbers of each group.
    colours : mapping of str to str
        Colour of each group.
    limits : tuple of two floats, optional
        Ends of the axis. Where they cut a group off, an arrow says how many of its members lie outside.
    ax : Axes, optional
        Where to draw. By default a new figure.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_violins
    >>> groups = {"SGP": [0.1, 0.2, 0.4], "diffWGP": None}
    >>> ax = plot_violins(groups, {"SGP": "#0072B2", "diffWGP": "#D55E00"}, ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['SGP', 'diffWGP']
    """
    ax = own_axes(ax)
    ax.axhline(0.0, color=POINT_COLOUR, linewidth=0.8)
    ax.set_xlim(-0.6, len(groups) - 0.4)
    ax.set_xticks(range(len(groups)), list(groups))
    if limits is not None:
        ax.set_ylim(*limits)
    for place, (name, values) in enumerate(groups.items()):
        if values is None:
            text = ax.text(place, 0.5, "missing", rotation=90, ha="center", va="center", color=POINT_COLOUR)
            text.set(transform=ax.get_xaxis_transform(), bbox={"color": "white", "pad": 2.0})
        else:
            _violin(ax, place, np.asarray(values, float), colours[name])
    if all(values is None for values in groups.values()):
        ax.set_yticks([])
    return ax


def _violin(ax: Axes, place: int, values: np.ndarray, colour: str) -> None:
    values = values[np.isfinite(values)]
    if np.ptp(values) > 0.0:  # the outline of equal numbers is not defined
        how: dict[str, Any] = {"widths": 0.8, "showextrema": False, "points": N_VIOLIN}
        parts: dict[str, Any] = ax.violinplot([values], positions=[place], **how)
        parts["bodies"][0].set(facecolor=colour, edgecolor=colour, alpha=0.35)
    # Spread sideways by a fixed rule, so that equal numbers give equal pictures.
    sideways = 0.18 * ((0.618 * np.arange(len(values))) % 1.0 - 0.5)
    ax.plot(place + sideways, values, linestyle="none", marker=".", markersize=3.0, color=colour)
    ax.hlines(np.median(values), place - 0.25, place + 0.25, color=colour, linewidth=1.8)
    if not ax.get_autoscaley_on():
        low, high = ax.get_ylim()
        _note_hidden(ax, place, values < low, "↓", 0.02, "bottom")
        _note_hidden(ax, place, values > high, "↑", 0.98, "top")


def _note_hidden(ax: Axes, place: int, is_hidden: np.ndarray, arrow: str, height: float, side: Any) -> None:
    if is_hidden.any():
        text = f"{arrow} {is_hidden.sum()} of {len(is_hidden)}"
        ax.text(place, height, text, ha="center", va=side, fontsize=7, transform=ax.get_xaxis_transform())


def _curves(x: Any, *curves: ArrayLike) -> list[Any]:
    """Arrays of one dimension and one length; time stamps of x as matplotlib takes them."""
    arrays = [_places(x), *(np.asarray(values, float) for values in curves)]
    if arrays[0].ndim != 1 or any(array.shape != arrays[0].shape for array in arrays):
        shapes = [array.shape for array in arrays]
        raise DataError(f"curves have shapes {shapes}; expected (N,) for each: choose one output of several.")
    return arrays


def _places(x: Any) -> Any:
    """Time stamps and periods as an index of stamps, in their time zone; all else as numbers."""
    values = x if isinstance(x, pd.Index | pd.Series) else np.asarray(x)
    # Others have no stamps: `pd.Index` would copy them, and takes one dimension alone.
    if values.ndim == 1 and not pd.api.types.is_numeric_dtype(values.dtype):
        stamps = times_of(pd.Index(values))
        if isinstance(stamps, pd.DatetimeIndex):
            return stamps
    return np.asarray(x, float)
