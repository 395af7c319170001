"""Pictures: arrays, frames and forecasts in, Axes out. The estimators' methods `plot_*` call these functions.

Each function draws on the Axes it is given, or on those of a new pyplot figure, and returns the Axes. Nothing is
trained or predicted here, so every picture shows numbers made elsewhere. Colours are those of Okabe and Ito, which
people with colour-blindness can tell apart; a model has the same one in every picture. The extra `plot` installs
matplotlib.
"""

import importlib.util

if importlib.util.find_spec("matplotlib") is None:
    raise ImportError("pictures need matplotlib, which is not installed; install it: pip install 'wishflow[plot]'.")

from .curves import plot_band, plot_points, plot_violins
from .fits import plot_calibration, plot_history, plot_reliability, plot_training
from .planes import plot_contours, plot_ellipses, plot_field, plot_paths, plot_trajectory
from .series import plot_backtest, plot_correlation, plot_correlation_matrix, plot_fan
from .style import MODEL_COLOURS, colour_of

__all__ = [
    "MODEL_COLOURS",
    "colour_of",
    "plot_backtest",
    "plot_band",
    "plot_calibration",
    "plot_contours",
    "plot_correlation",
    "plot_correlation_matrix",
    "plot_ellipses",
    "plot_fan",
    "plot_field",
    "plot_history",
    "plot_paths",
    "plot_points",
    "plot_reliability",
    "plot_training",
    "plot_trajectory",
    "plot_violins",
]
