"""Pictures: arrays and frames in, Axes out. Nothing is computed here, so every picture shows numbers made elsewhere.

Each function draws on the Axes `ax` it is given, or on those of a new pyplot figure, and returns the Axes. Colours are
those of Okabe and Ito, which people with colour-blindness can tell apart; a model has the same one in every picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from numpy.typing import ArrayLike

from .errors import DataError

MODEL_COLOURS = {
    "truth": "#000000",
    "SGP": "#0072B2",
    "No noise": "#E69F00",
    "diffGP": "#009E73",
    "diffWGP": "#D55E00",
    "diffWGP, ρ = 10": "#CC79A7",
}
FIRST_COLOUR = "#0072B2"
POINT_COLOUR = "#7F7F7F"
N_OUTLINE = 60
N_VIOLIN = 50


def colour_of(model: str) -> str:
    """Return the colour of a model by its name.

    Parameters
    ----------
    model : str
        Name of the model, such as "diffWGP".

    Returns
    -------
    str
        The colour; the first of the palette for other names.

    Examples
    --------
    >>> from wishflow.plotting import colour_of
    >>> colour_of("truth")
    '#000000'
    """
    return MODEL_COLOURS.get(model, FIRST_COLOUR)


def plot_band(
    x: ArrayLike,
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
        Where the curves are given.
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
    ax = _axes(ax)
    x, lower, upper = _curves(x, lower, upper)
    if is_outline:
        ax.plot(x, lower, color=colour, linestyle="--", linewidth=1.0, label=label)
        ax.plot(x, upper, color=colour, linestyle="--", linewidth=1.0)
    else:
        ax.fill_between(x, lower, upper, color=colour, alpha=0.3, linewidth=0.0, label=label)
    if middle is not None:
        ax.plot(x, _curves(x, middle)[1], color=colour, linewidth=1.5)
    return ax


def plot_points(x: ArrayLike, y: ArrayLike, *, label: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw observations as small grey dots.

    Parameters
    ----------
    x : array-like of shape (N,)
        Inputs.
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
    ax = _axes(ax)
    x, y = _curves(x, y)
    ax.plot(x, y, linestyle="none", marker=".", markersize=3.0, color=POINT_COLOUR, label=label)
    return ax


def plot_paths(
    paths: Float[np.ndarray, "T N 2"],
    *,
    colour: str = FIRST_COLOUR,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the ways of points through the plane.

    Each is a line, with a ring where it starts and a dot where it ends.

    Parameters
    ----------
    paths : ndarray of shape (T, N, 2)
        The points at T times, such as `FlowRegressor.flow_paths` returns.
    colour : str, default="#0072B2"
        Colour of the lines.
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
        If the paths have another shape.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_paths
    >>> paths = np.cumsum(np.ones((5, 3, 2)), axis=0)
    >>> ax = plot_paths(paths, ax=Figure().subplots())
    >>> len(ax.collections)
    1
    """
    ax = _axes(ax)
    paths = _planar("paths", paths, 3)
    ax.add_collection(LineCollection(list(np.swapaxes(paths, 0, 1)), colors=colour, linewidths=0.8, alpha=0.6))
    ax.plot(
        *paths[0].T, linestyle="none", marker="o", markersize=3.5, markerfacecolor="white", markeredgecolor=POINT_COLOUR
    )
    ax.plot(*paths[-1].T, linestyle="none", marker="o", markersize=2.0, color=colour, label=label)
    return _squared(ax)


def plot_ellipses(
    points: Float[np.ndarray, "N 2"],
    covariances: Float[np.ndarray, "N 2 2"],
    *,
    size: float = 1.0,
    colour: str = FIRST_COLOUR,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw covariance matrices as ellipses about points.

    An ellipse is the image of the unit circle under C^½, times `size`.

    Parameters
    ----------
    points : ndarray of shape (N, 2)
        Centres.
    covariances : ndarray of shape (N, 2, 2)
        Covariance matrices C.
    size : float, default=1.0
        Factor of the ellipses.
    colour : str, default="#0072B2"
        Colour of the ellipses.
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
        If the shapes do not belong together.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_ellipses
    >>> ax = plot_ellipses(np.zeros((1, 2)), np.eye(2)[None], ax=Figure().subplots())
    >>> len(ax.collections)
    1
    """
    ax = _axes(ax)
    points, covariances = _planar("points", points, 2), np.asarray(covariances, float)
    if covariances.shape != (len(points), 2, 2):
        raise DataError(
            f"covariances have shape {covariances.shape}; expected {(len(points), 2, 2)}, one at each point."
        )
    # By eigenvalues rather than Cholesky factors: a covariance of rank one is a line, not an error.
    values, vectors = np.linalg.eigh(covariances)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    angles = np.linspace(0.0, 2.0 * np.pi, N_OUTLINE)
    outlines = points[:, None] + size * np.einsum(
        "nij,kj->nki", roots, np.column_stack([np.cos(angles), np.sin(angles)])
    )
    ax.add_collection(
        PolyCollection(list(outlines), facecolors=colour, edgecolors=colour, alpha=0.35, linewidths=1.0, label=label)
    )
    ax.plot(*points.T, linestyle="none", marker=".", markersize=2.0, color=colour)
    return _squared(ax)


def plot_contours(
    x: Float[np.ndarray, " G"],
    y: Float[np.ndarray, " H"],
    density: Float[np.ndarray, "H G"],
    levels: Sequence[float],
    *,
    colour: str = FIRST_COLOUR,
    ax: Axes | None = None,
) -> Axes:
    """Draw contours of a density on a grid, shaded above each of them.

    Parameters
    ----------
    x : ndarray of shape (G,)
        Grid of the first coordinate.
    y : ndarray of shape (H,)
        Grid of the second coordinate.
    density : ndarray of shape (H, G)
        Density on the grid, rows along y.
    levels : sequence of float
        Rising levels.
    colour : str, default="#0072B2"
        Colour of the contours.
    ax : Axes, optional
        Where to draw. By default a new figure.

    Returns
    -------
    Axes
        The axes.

    Raises
    ------
    DataError
        If the density has another shape than the grid.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_contours
    >>> grid = np.linspace(-2.0, 2.0, 20)
    >>> density = np.exp(-0.5 * (grid[:, None] ** 2 + grid**2))
    >>> ax = plot_contours(grid, grid, density, levels=[0.3, 0.6], ax=Figure().subplots())
    >>> len(ax.collections) > 0
    True
    """
    ax = _axes(ax)
    density = np.asarray(density, float)
    if density.shape != (len(y), len(x)):
        raise DataError(f"density has shape {density.shape}; expected {(len(y), len(x))}, rows along y.")
    heights = [*levels, max(float(density.max()), levels[-1]) * 1.001]
    shades = np.linspace(0.2, 0.45, len(levels))
    for low, high, shade in zip(heights[:-1], heights[1:], shades, strict=True):
        ax.contourf(x, y, density, levels=[low, high], colors=[colour], alpha=float(shade))
    ax.contour(x, y, density, levels=list(levels), colors=[colour], linewidths=1.0)
    return ax


def plot_history(
    history: pd.DataFrame,
    column: str = "objective",
    *,
    colour: str = FIRST_COLOUR,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw one column of the history of a fit against the iteration.

    A grey line stands where a new phase begins.

    Parameters
    ----------
    history : DataFrame
        The `history_` of an estimator.
    column : str, default="objective"
        The column.
    colour : str, default="#0072B2"
        Colour of the line.
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
        If the history has no such column.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_history
    >>> history = pd.DataFrame({"phase": ["flow", "flow"], "objective": [-2.0, -1.0]})
    >>> plot_history(history, ax=Figure().subplots()).get_xlabel()
    'iteration'
    """
    ax = _axes(ax)
    if column not in history:
        raise DataError(
            f"the history has no column {column!r}; it has {[name for name in history if name != 'phase']}."
        )
    ax.plot(np.arange(1, len(history) + 1), history[column].to_numpy(), color=colour, linewidth=1.0, label=label)
    phases = history["phase"].to_numpy()
    for i in np.flatnonzero(phases[1:] != phases[:-1]):
        ax.axvline(i + 1.5, color=POINT_COLOUR, linewidth=0.8)
    ax.set_xlabel("iteration")
    ax.set_ylabel(column)
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
    ax = _axes(ax)
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


def plot_calibration(histogram: ArrayLike, coverage: Mapping[float, float], axes: Any = None) -> Any:
    """Draw the histogram of the probability integral transform, and the coverage of central intervals.

    Dashed lines are where a law that is right would be.

    Parameters
    ----------
    histogram : array-like
        Counts in equal parts of [0, 1].
    coverage : mapping of float to float
        The part of the values inside the interval, for each nominal level.
    axes : sequence of two Axes, optional
        Where to draw. By default a new figure.

    Returns
    -------
    sequence of two Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_calibration
    >>> left, right = plot_calibration([10, 12, 8, 10], {0.5: 0.48, 0.9: 0.92}, Figure().subplots(1, 2))
    >>> right.get_title()
    'Coverage'
    """
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    left, right = axes
    counts = np.asarray(histogram, float)
    edges = np.linspace(0.0, 1.0, len(counts) + 1)
    left.bar(edges[:-1], counts / counts.mean(), 1.0 / len(counts), align="edge", color=FIRST_COLOUR, alpha=0.6)
    left.axhline(1.0, color="black", linestyle="--", linewidth=1.0)
    left.set(xlabel="P(Y ≤ y)", ylabel="density", title="Probability integral transform", xlim=(0.0, 1.0))
    levels, inside = np.array(list(coverage)), np.array(list(coverage.values()))
    right.plot([0.0, 1.0], [0.0, 1.0], color="black", linestyle="--", linewidth=1.0)
    right.plot(levels, inside, "o-", color=FIRST_COLOUR)
    for level, value in zip(levels, inside, strict=True):
        right.annotate(f"{value:.0%}", (level, value), textcoords="offset points", xytext=(-30, 6))
    right.set(xlabel="level of the interval", ylabel="part inside", title="Coverage", xlim=(0, 1), ylim=(0, 1))
    return axes


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


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot  # chooses a backend, so only where a figure of pyplot is asked for

    return pyplot.subplots()[1]


def _squared(ax: Axes) -> Axes:
    """One unit is as long on both axes, so that angles and shapes are true."""
    ax.set_aspect("equal", adjustable="box")
    ax.autoscale_view()
    return ax


def _curves(x: ArrayLike, *curves: ArrayLike) -> list[np.ndarray]:
    """Arrays of one dimension and one length."""
    arrays: list[Any] = [np.asarray(values, float) for values in (x, *curves)]
    if arrays[0].ndim != 1 or any(array.shape != arrays[0].shape for array in arrays):
        shapes = [array.shape for array in arrays]
        raise DataError(f"curves have shapes {shapes}; expected (N,) for each: choose one output of several.")
    return arrays


def _planar(name: str, values: ArrayLike, n_axes: int) -> np.ndarray:
    """Points of the plane on the last axis."""
    array = np.asarray(values, float)
    if array.ndim != n_axes or array.shape[-1] != 2:
        expected = "(T, N, 2)" if n_axes == 3 else "(N, 2)"
        raise DataError(f"{name} have shape {array.shape}; expected {expected}: choose two of the coordinates.")
    return array


# --- time series ----------------------------------------------------------------------------------


def plot_fan(forecast: Any, variables: Any = None, history: Any = None, coverages: Any = (0.5, 0.9)) -> Any:
    """Draw a fan chart for each variable of a forecast: median, central intervals, and data.

    Parameters
    ----------
    forecast : Forecast
        The forecast.
    variables : str or list of str, optional
        The variables. All by default.
    history : DataFrame, optional
        Data before and behind the forecast.
    coverages : sequence of float, default=(0.5, 0.9)
        Coverages of the intervals.

    Returns
    -------
    Figure
        A figure with one panel for each variable.

    Examples
    --------
    >>> from wishflow.plotting import plot_fan
    >>> figure = plot_fan(forecast, history=frame.tail(100))  # doctest: +SKIP
    """
    from matplotlib.figure import Figure

    names = list(forecast.columns) if variables is None else list(np.atleast_1d(variables))
    figure = Figure(figsize=(8.0, 1.9 * len(names) + 0.6), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    colour = colour_of("diffWGP")
    for ax, name in zip(panels, names, strict=True):
        for coverage in sorted(coverages, reverse=True):
            low, high = forecast.interval(coverage)
            ax.fill_between(forecast.index, low[name], high[name], color=colour, alpha=0.25, lw=0)
        ax.plot(forecast.index, forecast.quantile(0.5)[name], color=colour)
        if history is not None:
            ax.plot(history.index, history[name], color="black", lw=1.0)
        ax.set_ylabel(str(name))
    return figure


def plot_correlation(matrix: Any, names: list[str], ax: Any) -> Any:
    """Draw a correlation matrix as an image with its values.

    Parameters
    ----------
    matrix : ndarray of shape (D, D)
        The correlations.
    names : list of str
        Names of the rows.
    ax : Axes
        Where to draw.

    Returns
    -------
    AxesImage
        The image, for a colour bar.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_correlation
    >>> image = plot_correlation(np.eye(2), ["a", "b"], Figure().subplots())
    >>> image.get_array().shape
    (2, 2)
    """
    image = ax.imshow(matrix, vmin=-1.0, vmax=1.0, cmap="RdBu_r")
    ax.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    ax.set_yticks(range(len(names)), names, fontsize=7)
    for i in range(len(names)):
        for j in range(len(names)):
            shade = "white" if abs(matrix[i, j]) > 0.6 else "black"
            ax.text(j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", fontsize=5.5, color=shade)
    return image
