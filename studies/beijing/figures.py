"""The paper's two figures, from result files alone, and scores by hour ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator
from scipy.stats import gaussian_kde

from wishflow import plotting

from .jobs import JOINED, TRACED
from .models import MODELS
from .results import Results
from .tables import BASE

SHARES = (0.5, 0.9)
N_GRID = 80
# Curves that are this many times as high as that of the base leave the picture.
HIGHEST_RATIO = 1.6
# Log densities down to minus this are drawn to scale, lower ones by their logarithm: a model may be off by thousands.
LINEAR_BELOW = 100.0
LOG_DENSITY_TICKS = (-100_000, -20_000, -5000, -2000, -1000, -500, -200, -100, -50, 0, 50)
HOUR_SCORES = {"crps": "CRPS", "energy": "energy score"}


def trace_figure(results: Results) -> Figure:
    """Log density of what was observed by hour: mean over simulated paths ± 2 standard errors, and the mixture."""
    figure = Figure(figsize=(8.4, 6.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for model in TRACED:
        result, shown = results.get(("traces", model)), MODELS[model]
        if result is None:
            upper.plot([], [], color=shown.colour, label=f"{shown.label}: missing")
            continue
        mean, error, mixture = (np.array(result[k], float) for k in ("mean", "standard_error", "mixture"))
        hours = np.arange(1, len(mean) + 1)
        plotting.plot_band(hours, mean - 2 * error, mean + 2 * error, mean, colour=shown.colour, ax=upper)
        upper.plot([], [], color=shown.colour, label=shown.label)
        lower.plot(hours, mixture, color=shown.colour, linewidth=1.5)
    upper.set_title("mean over simulated paths of their log densities, ± 2 standard errors (the paper's figure)")
    lower.set_title("log of the mean density over the paths (the mixture)")
    for ax in (upper, lower):
        ax.set_yscale("symlog", linthresh=LINEAR_BELOW)
        ax.yaxis.set_major_locator(FixedLocator(LOG_DENSITY_TICKS))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))
        ax.set_ylabel("log density of the observed row")
        ax.title.set_fontsize(10)
        ax.grid(axis="y", alpha=0.3)
    _hour_axis(lower)
    upper.legend(loc="lower left", fontsize=9)
    return figure


def _hour_axis(ax: Axes) -> None:
    ax.set_xticks([1, 6, 12, 18, 24, 30, 36, 42, 48])
    ax.set_xlim(0.5, 48.5)
    ax.set_xlabel("hour of the forecast")


def joint_figure(results: Results) -> Figure:
    """The joint density of the two temperatures at each hour: diagonal noise on the left, Wishart on the right."""
    found = [results.get(("joint", model)) for model in JOINED]
    n_hours = max((len(result["hours"]) for result in found if result is not None), default=1)
    figure = Figure(figsize=(8.4, 3.9 * n_hours), layout="constrained")
    panels = figure.subplots(n_hours, len(JOINED), sharex="row", sharey="row", squeeze=False)
    for column, (model, result) in enumerate(zip(JOINED, found, strict=True)):
        for row, ax in enumerate(panels[:, column]):
            if result is None:
                ax.text(0.5, 0.5, "missing", ha="center", va="center", color="grey", transform=ax.transAxes)
                ax.set_title(MODELS[model].label, fontsize=10)
            else:
                _draw_joint(result["series"], result["hours"][row], model, ax)
    return figure


def _draw_joint(series: list[str], hour: dict[str, Any], model: str, ax: Axes) -> None:
    draws = np.array(hour["draws"], float)
    x, y, density, levels = contours(draws)
    plotting.plot_contours(x, y, density, levels, colour=MODELS[model].colour, ax=ax)
    # As pixels: thousands of dots would make the largest part of the page.
    dots: dict[str, Any] = {"marker": ".", "markersize": 1.5, "alpha": 0.5, "zorder": 0, "rasterized": True}
    ax.plot(*draws, linestyle="none", color=MODELS[model].colour, **dots)
    ax.plot(*hour["observed"], linestyle="none", marker="x", markersize=9, markeredgewidth=2, color="black")
    name = f"hour {hour['hour']}" if hour["hour"] > 1 else "one hour ahead"
    correlation = f"{hour['correlation']:.2f}".replace("-", "−")
    ax.set_title(f"{MODELS[model].label}, {name}: correlation {correlation}", fontsize=10)
    ax.set_xlabel(f"{series[0].split()[0]}, °C")
    ax.set_ylabel(f"{series[1].split()[0]}, °C")


def contours(
    draws: Float[np.ndarray, "2 S"],
) -> tuple[Float[np.ndarray, " G"], Float[np.ndarray, " G"], Float[np.ndarray, "G G"], list[float]]:
    """A kernel density of the draws on a grid, and the heights whose contours hold 90 % and 50 % of the draws.

    The region above the (1 − c) quantile of the density at the draws holds the share c of them.
    """
    kernel = gaussian_kde(draws)
    margin = 0.15 * np.ptp(draws, axis=1)
    x, y = (np.linspace(d.min() - m, d.max() + m, N_GRID) for d, m in zip(draws, margin, strict=True))
    density = kernel(np.stack([part.ravel() for part in np.meshgrid(x, y)])).reshape(N_GRID, N_GRID)
    return x, y, density, sorted(float(q) for q in np.quantile(kernel(draws), [1.0 - c for c in SHARES]))


def hour_figure(results: Results) -> Figure:
    """CRPS and energy score by hour ahead, divided by those of VAR(24) where it has a result."""
    figure = Figure(figsize=(8.4, 7.0), layout="constrained")
    base = results.get(("scores", BASE))
    panels = figure.subplots(len(HOUR_SCORES), 1, sharex=True)
    for ax, (score, name) in zip(panels, HOUR_SCORES.items(), strict=True):
        for model, shown in MODELS.items():
            result = results.get(("scores", model))
            if result is not None:
                values = np.array(result["by_hour"][score], float)
                ratio = values if base is None else values / np.array(base["by_hour"][score], float)
                hours = np.arange(1, len(values) + 1)
                ax.plot(hours, ratio, color=shown.colour, linestyle=shown.line, label=shown.label, linewidth=1.5)
        ax.set_ylabel(name if base is None else f"{name} / that of VAR(24)")
        if base is not None and ax.get_ylim()[1] > HIGHEST_RATIO:
            lowest = min(float(np.nanmin(np.asarray(line.get_ydata(), float))) for line in ax.lines)
            ax.set_ylim(lowest - 0.05 * (HIGHEST_RATIO - lowest), HIGHEST_RATIO)
    _hour_axis(panels[-1])
    if panels[0].lines:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure
