"""How a fit went, and whether its predictive law is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from ..errors import DataError
from .style import FIRST_COLOUR, LINES, POINT_COLOUR, own_axes, own_panels


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
    ax = own_axes(ax)
    if column not in history:
        raise DataError(
            f"the history has no column {column!r}; it has {[name for name in history if name != 'phase']}."
        )
    ax.plot(np.arange(1, len(history) + 1), history[column].to_numpy(), color=colour, linewidth=1.0, label=label)
    for start in _starts_of_phases(history)[1:]:
        ax.axvline(start + 0.5, color=POINT_COLOUR, linewidth=0.8)
    ax.set_xlabel("iteration")
    ax.set_ylabel(column)
    return ax


def plot_training(history: pd.DataFrame, validation: pd.DataFrame | None = None, axes: Any = None) -> np.ndarray:
    """Draw how a fit went: the objective, its penalties, and scores of held-back rows.

    Parameters
    ----------
    history : DataFrame
        The `history_` of an estimator.
    validation : DataFrame, optional
        Its `validation_history_`: log densities by step, or the CRPS of candidates by band of horizons.
    axes : sequence of Axes, optional
        Where to draw, as many as there are panels. By default a new figure.

    Returns
    -------
    ndarray of Axes
        One for the objective; one for the penalties where the history has some; one for held-back rows where there
        are scores of them.

    Examples
    --------
    >>> import pandas as pd
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_training
    >>> history = pd.DataFrame({"phase": ["flow", "flow"], "objective": [-2.0, -1.0], "kl_drift": [0.1, 0.2]})
    >>> axes = plot_training(history, axes=Figure().subplots(1, 2))
    >>> [ax.get_ylabel() for ax in axes]
    ['objective', 'penalty']
    """
    penalties = [name for name in history.columns if str(name).startswith("kl_") and history[name].notna().any()]
    has_scores = validation is not None and len(validation) > 0
    n_panels = 1 + bool(penalties) + has_scores
    panels = own_panels(axes, 1, n_panels, height=3.0, width=4.2 * n_panels)
    _draw_objective(panels[0], history)
    if penalties:
        _draw_penalties(panels[1], history, penalties)
    if validation is not None and has_scores:
        _draw_validation(panels[-1], validation)
    return panels


def plot_calibration(histogram: ArrayLike, coverage: Mapping[float, float], axes: Any = None) -> np.ndarray:
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
    ndarray of two Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_calibration
    >>> left, right = plot_calibration([10, 12, 8, 10], {0.5: 0.48, 0.9: 0.92}, Figure().subplots(1, 2))
    >>> right.get_title()
    'Coverage'
    """
    left, right = panels = own_panels(axes, 1, 2, height=3.0)
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
    right.set(xlabel="level of the interval", ylabel="part inside", title="Coverage", xlim=(0, 1), ylim=(0, 1.05))
    return panels


def plot_reliability(
    probabilities: Mapping[str, ArrayLike], frequencies: Mapping[str, ArrayLike], *, ax: Axes | None = None
) -> Axes:
    """Draw how often classes occurred against the probabilities that they were given.

    The dashed line is where probabilities are right.

    Parameters
    ----------
    probabilities : mapping of str to array-like
        Mean probability of groups of rows, for each class.
    frequencies : mapping of str to array-like
        The part of each group that is of the class.
    ax : Axes, optional
        Where to draw. By default a new figure.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from wishflow.plotting import plot_reliability
    >>> ax = plot_reliability({"yes": [0.1, 0.9]}, {"yes": [0.2, 0.8]}, ax=Figure().subplots())
    >>> ax.get_xlabel()
    'predicted probability'
    """
    ax = own_axes(ax)
    ax.plot([0.0, 1.0], [0.0, 1.0], color="black", linestyle="--", linewidth=1.0)
    for i, (name, said) in enumerate(probabilities.items()):
        colour, dashes = LINES[i % len(LINES)]
        ax.plot(said, frequencies[name], color=colour, linestyle=dashes, marker="o", markersize=4.0, label=str(name))
    ax.set(xlabel="predicted probability", ylabel="observed frequency", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.set_title("Reliability")
    ax.legend(frameon=False, fontsize="small")
    return ax


def _starts_of_phases(history: pd.DataFrame) -> np.ndarray:
    """Numbers of the iterations before which a phase, or a member, begins; the first is 0."""
    keys = history[[name for name in ("phase", "member") if name in history]].astype(str).agg(" ".join, axis=1)
    names = keys.to_numpy()
    return np.flatnonzero(np.append(True, names[1:] != names[:-1]))


def _draw_penalties(ax: Axes, history: pd.DataFrame, names: list[str]) -> None:
    for i, name in enumerate(names):
        colour, dashes = LINES[i % len(LINES)]
        ax.plot(np.arange(1, len(history) + 1), history[name], color=colour, ls=dashes, lw=1.2, label=name)
    for start in _starts_of_phases(history)[1:]:
        ax.axvline(start + 0.5, color=POINT_COLOUR, linewidth=0.8)
    if (history[names].min() > 0.0).all():  # they differ by orders of magnitude
        ax.set_yscale("log")
    ax.set(xlabel="iteration", ylabel="penalty", title="Penalties of the objective")
    ax.legend(frameon=False, fontsize="small")


def _draw_objective(ax: Axes, history: pd.DataFrame) -> None:
    ax.set_title("Objective")
    if not len(history):  # nothing was trained, as with a linear model in closed form
        ax.set(xlabel="iteration", ylabel="objective")
        ax.text(0.5, 0.5, "no iterations", ha="center", va="center", color=POINT_COLOUR, transform=ax.transAxes)
        return
    plot_history(history, ax=ax)
    values = history["objective"].to_numpy(float)
    if np.isfinite(values).any():
        # The first iterations may be so low that nothing could be seen of the others.
        low, high = np.nanquantile(values, 0.05), np.nanmax(values)
        ax.set_ylim(low - 0.1 * (high - low) - 1e-9, high + 0.05 * (high - low) + 1e-9)
    for start in _starts_of_phases(history):
        text = ax.text(start + 1.0, 0.02, f" {history['phase'].iloc[start]}", fontsize="x-small", color="#555555")
        text.set(transform=ax.get_xaxis_transform(), rotation=90, va="bottom", ha="left")
        text.set_bbox({"color": "white", "alpha": 0.8, "pad": 0.5})


def _draw_validation(ax: Axes, validation: pd.DataFrame) -> None:
    """Log densities by step, or the CRPS of candidates by band of horizons beside the first; what was kept is thick."""
    if {"step", "log_density"} <= set(validation.columns):
        ax.plot(validation["step"], validation["log_density"], color=FIRST_COLOUR, marker=".")
        ax.set(xlabel="step", ylabel="log density")
    else:
        bands = [name for name in validation.columns if str(name).startswith("crps ")]
        first = validation.iloc[0]  # candidates differ by a few percent, bands by much more
        for i, row in enumerate(validation.to_dict("records")):
            colour, dashes = LINES[i % len(LINES)]
            wide = 2.5 if row.get("kept") else 1.0
            member = f", member {row['member']}" if "member" in row else ""
            name = f"{row['candidate']}{member}" + (" (kept)" if row.get("kept") else "")
            ratios = [row[band] / first[band] for band in bands]
            ax.plot(range(len(bands)), ratios, color=colour, ls=dashes, lw=wide, marker=".", label=name)
        ax.set_xticks(range(len(bands)), [str(name).removeprefix("crps ") for name in bands])
        ax.set(xlabel="steps ahead", ylabel="CRPS relative to the first")
        ax.legend(frameon=False, fontsize="x-small")
    ax.set_title("Held-back rows")
