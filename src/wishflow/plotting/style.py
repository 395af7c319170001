"""Colours and axes that all pictures share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import dates
from matplotlib.axes import Axes

from ..errors import DataError

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
# Lines beside each other differ in colour and in dashes: either is enough to tell them apart.
LINES = (("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"), ("#E69F00", (0, (6, 1, 1, 1))))


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


def own_axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot  # chooses a backend, so only where a figure of pyplot is asked for

    return pyplot.subplots()[1]


def own_panels(axes: Any, n_rows: int, n_columns: int = 1, *, height: float = 1.9, width: float = 8.0) -> np.ndarray:
    """The n_rows × n_columns Axes that were given, in one row, or those of a new pyplot figure."""
    n_panels = n_rows * n_columns
    if axes is not None:
        given = np.atleast_1d(np.asarray(axes, object)).ravel()
        if len(given) != n_panels:
            raise DataError(f"axes holds {len(given)} Axes; expected {n_panels}, one for each panel.")
        return given
    from matplotlib import pyplot

    size = (width, height * n_rows + 0.6)
    _, made = pyplot.subplots(n_rows, n_columns, figsize=size, layout="constrained", squeeze=False)
    return made.ravel()


def times_of(index: Any) -> Any:
    """Stamps as matplotlib takes them: periods by their starts, numbers as they are."""
    return index.to_timestamp() if isinstance(index, pd.PeriodIndex) else index


def date_axis(ax: Axes, index: Any) -> None:
    """Short labels for dates, in the time zone of the index; nothing where stamps are numbers."""
    stamps = times_of(index)
    if isinstance(stamps, pd.DatetimeIndex):
        locator = dates.AutoDateLocator(tz=stamps.tz, minticks=4, maxticks=9)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=stamps.tz))
