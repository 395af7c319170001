"""Paths, covariances, densities and vector fields in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from numpy.typing import ArrayLike

from ..errors import DataError
from .style import FIRST_COLOUR, POINT_COLOUR, own_axes

N_OUTLINE = 60


def plot_paths(
    paths: Float[np.ndarray, "T N 2"],
    *,
    colour: str = FIRST_COLOUR,
    label: str | None = None,
    is_square: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw the paths of points through the plane.

    Each is a line, with a ring where it starts and a dot where it ends.

    Parameters
    ----------
    paths : ndarray of shape (T, N, 2)
        The points at T times, such as `FlowRegressor.flow_paths` returns.
    colour : str, default="#0072B2"
        Colour of the lines.
    label : str, optional
        Entry of the legend.
    is_square : bool, default=True
        Whether a unit is as long on both axes. False where the two have different units.
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
    ax = own_axes(ax)
    paths = _planar("paths", paths, 3)
    ax.add_collection(LineCollection(list(np.swapaxes(paths, 0, 1)), colors=colour, linewidths=0.8, alpha=0.6))
    ax.plot(
        *paths[0].T, linestyle="none", marker="o", markersize=3.5, markerfacecolor="white", markeredgecolor=POINT_COLOUR
    )
    ax.plot(*paths[-1].T, linestyle="none", marker="o", markersize=2.0, color=colour, label=label)
    return _fitted(ax, is_square)


def plot_ellipses(
    points: Float[np.ndarray, "N 2"],
    covariances: Float[np.ndarray, "N 2 2"],
    *,
    size: float = 1.0,
    colour: str = FIRST_COLOUR,
    shade: float = 0.35,
    label: str | None = None,
    is_square: bool = True,
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
    shade : float, default=0.35
        How opaque they are, from 0 to 1.
    label : str, optional
        Entry of the legend.
    is_square : bool, default=True
        Whether a unit is as long on both axes, so that shapes are true. False where the two have different units.
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
    ax = own_axes(ax)
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
    how: dict[str, Any] = {"facecolors": to_rgba(colour, shade), "edgecolors": to_rgba(colour, 0.7)}
    ax.add_collection(PolyCollection(list(outlines), linewidths=0.8, label=label, **how))
    ax.plot(*points.T, linestyle="none", marker=".", markersize=2.0, color=colour)
    return _fitted(ax, is_square)


def plot_trajectory(
    path: Float[np.ndarray, "T 2"],
    covariances: Float[np.ndarray, "T 2 2"],
    *,
    n_ellipses: int = 20,
    size: float = 1.0,
    colour: str = FIRST_COLOUR,
    is_square: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw a path through the plane, with covariance matrices as ellipses along it.

    The path is a grey line, with a ring where it starts and a dot where it ends.

    Parameters
    ----------
    path : ndarray of shape (T, 2)
        The points in the order of time. Points with a NaN are left out.
    covariances : ndarray of shape (T, 2, 2)
        Covariance matrix at each point.
    n_ellipses : int, default=20
        At most how many ellipses are drawn, evenly along the path.
    size : float, default=1.0
        Size of the ellipses, in standard deviations.
    colour : str, default="#0072B2"
        Colour of the ellipses.
    is_square : bool, default=False
        Whether a unit is as long on both axes.
    ax : Axes, optional
        Where to draw. By default a new figure.

    Returns
    -------
    Axes
        The axes.

    Raises
    ------
    DataError
        If the shapes do not belong together, or no point is complete.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_trajectory
    >>> path = np.random.default_rng(0).normal(size=(50, 2)).cumsum(axis=0)
    >>> ax = plot_trajectory(path, np.tile(np.eye(2), (50, 1, 1)), n_ellipses=5, ax=Figure().subplots())
    >>> len(ax.collections[0].get_paths())
    5
    """
    ax = own_axes(ax)
    path, covariances = _planar("path", path, 2), np.asarray(covariances, float)
    if covariances.shape != (len(path), 2, 2):
        raise DataError(f"covariances have shape {covariances.shape}; expected {(len(path), 2, 2)}, one at each point.")
    there = np.flatnonzero(np.isfinite(path).all(axis=1) & np.isfinite(covariances).all(axis=(1, 2)))
    if not len(there):
        raise DataError("no point of the path has both coordinates and a covariance; give rows without missing values.")
    ax.plot(*path.T, color=POINT_COLOUR, linewidth=0.8)
    ax.plot(*path[there[0]], marker="o", markersize=5.0, markerfacecolor="white", markeredgecolor="black")
    ax.plot(*path[there[-1]], marker="o", markersize=5.0, color="black")
    rows = there[np.linspace(0, len(there) - 1, min(n_ellipses, len(there))).round().astype(int)]
    how: dict[str, Any] = {"size": size, "colour": colour, "shade": 0.12, "is_square": is_square}
    return plot_ellipses(path[rows], covariances[rows], ax=ax, **how)


def plot_field(
    points: Float[np.ndarray, "N 2"],
    steps: Float[np.ndarray, "N 2"],
    covariances: Float[np.ndarray, "N 2 2"] | None = None,
    *,
    size: float = 1.0,
    colour: str = FIRST_COLOUR,
    is_square: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw a vector field with its noise.

    An arrow is where the drift leads from its point, an ellipse about the point the spread of the noise.

    Parameters
    ----------
    points : ndarray of shape (N, 2)
        Where the arrows begin.
    steps : ndarray of shape (N, 2)
        The arrows.
    covariances : ndarray of shape (N, 2, 2), optional
        Covariance matrices of the noise. Without them arrows are drawn alone.
    size : float, default=1.0
        Size of the ellipses, in standard deviations.
    colour : str, default="#0072B2"
        Colour of the ellipses.
    is_square : bool, default=True
        Whether a unit is as long on both axes. False where the two have different units.
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
    >>> from wishflow.plotting import plot_field
    >>> points = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> ax = plot_field(points, 0.1 - 0.2 * points, np.tile(0.01 * np.eye(2), (2, 1, 1)), ax=Figure().subplots())
    >>> len(ax.collections)
    2
    """
    ax = own_axes(ax)
    points, steps = _planar("points", points, 2), _planar("steps", steps, 2)
    if steps.shape != points.shape:
        raise DataError(f"steps have shape {steps.shape}; expected {points.shape}, one from each point.")
    if covariances is not None:
        plot_ellipses(points, covariances, size=size, colour=colour, is_square=is_square, ax=ax)
    ax.quiver(*points.T, *steps.T, angles="xy", scale_units="xy", scale=1.0, width=0.004, zorder=3)
    ax.update_datalim(np.concatenate([points, points + steps]))  # arrows do not move the limits by themselves
    return _fitted(ax, is_square)


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
    ax = own_axes(ax)
    density = np.asarray(density, float)
    if density.shape != (len(y), len(x)):
        raise DataError(f"density has shape {density.shape}; expected {(len(y), len(x))}, rows along y.")
    heights = [*levels, max(float(density.max()), levels[-1]) * 1.001]
    shades = np.linspace(0.2, 0.45, len(levels))
    for low, high, shade in zip(heights[:-1], heights[1:], shades, strict=True):
        ax.contourf(x, y, density, levels=[low, high], colors=[colour], alpha=float(shade))
    ax.contour(x, y, density, levels=list(levels), colors=[colour], linewidths=1.0)
    return ax


def _fitted(ax: Axes, is_square: bool) -> Axes:
    """All that is drawn lies inside; where asked for a unit is as long on both axes: angles and shapes are true."""
    if is_square:
        ax.set_aspect("equal", adjustable="box")
    ax.autoscale_view()
    return ax


def _planar(name: str, values: ArrayLike, n_axes: int) -> np.ndarray:
    """Points of the plane on the last axis."""
    array = np.asarray(values, float)
    if array.ndim != n_axes or array.shape[-1] != 2:
        expected = "(T, N, 2)" if n_axes == 3 else "(N, 2)"
        raise DataError(f"{name} have shape {array.shape}; expected {expected}: choose two of the coordinates.")
    return array
