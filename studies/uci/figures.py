"""Violins of the differences to SGP over the splits, a panel for each data set: the paper's two figures."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wishflow import plotting

from .results import Results, is_kept, paired_scores, split_scores
from .suite import DATA, MODELS

BASE = "sgp"
# A model whose median lies further from 0 than this many typical ranges of the others is cut off, as in the paper.
FARTHEST = 5.0
# The axis reaches this share of the spread of SGP over the splits at least, so that nothing looks like something.
LEAST_SHARE = 0.02
N_COLUMNS = 4
SCORES = {
    "log_density": "log density (mixture) − that of SGP; above 0 is better",
    "mean_log_density_of_paths": "log density (paper's score) − that of SGP; above 0 is better",
    "rmse": "RMSE − that of SGP; below 0 is better",
}


def differences(results: Results, data: str, score: str) -> dict[str, np.ndarray | None]:
    """Score of each model − score of SGP, split by split; None where either is missing or nothing is finite."""
    values: dict[str, np.ndarray | None] = {}
    for model in MODELS:
        if model == BASE:
            continue
        values[model] = None
        if (data, model) in results and (data, BASE) in results:
            first, base = paired_scores(results[data, model], results[data, BASE], score)
            difference = first - base
            values[model] = difference if np.isfinite(difference).any() else None
    return values


def view_limits(groups: list[np.ndarray], least: float = 0.0) -> tuple[float, float] | None:
    """The part of the axis to show: 0 and all groups but those far from the others, and from −`least` to `least`; None
    where there is no group.
    """
    groups = [values[np.isfinite(values)] for values in groups]
    if not groups:
        return None
    reach = FARTHEST * np.median([np.ptp(values) + abs(np.median(values)) for values in groups])
    near = np.concatenate([[0.0], *(values for values in groups if abs(np.median(values)) <= reach)])
    near = near[np.abs(near) <= 2.0 * reach] if reach > 0.0 else near
    low, high = min(float(near.min()), -least), max(float(near.max()), least)
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def draw_panel(results: Results, data: str, score: str, ax: Axes) -> Axes:
    """The violins of one data set."""
    values = differences(results, data, score)
    limits = view_limits([group for group in values.values() if group is not None], _least(results, data, score))
    labels = {model: MODELS[model].label.replace(", ", "\n") for model in values}
    groups = {labels[model]: group for model, group in values.items()}
    colours = {labels[model]: plotting.colour_of(MODELS[model].colour) for model in values}
    plotting.plot_violins(groups, colours, limits=limits, ax=ax)
    ax.set_title(data)
    ax.tick_params(axis="x", labelsize=7)
    flows = [results[data, model] for model in values if (data, model) in results]
    if flows and all(map(is_kept, flows)):
        ax.text(0.97, 0.05, "SGP kept on every split", transform=ax.transAxes, ha="right", fontsize=8)
    return ax


def _least(results: Results, data: str, score: str) -> float:
    """The smallest difference that is worth showing."""
    if (data, BASE) not in results:
        return 0.0
    values = split_scores(results[data, BASE], score)
    return LEAST_SHARE * float(np.std(values)) if np.isfinite(values).all() else 0.0


def panel_figure(results: Results, data: str, score: str) -> Figure:
    """One data set by itself, for a page that may be narrow."""
    figure = Figure(figsize=(3.6, 2.9), layout="constrained")
    draw_panel(results, data, score, figure.subplots())
    return figure


def violin_figure(results: Results, score: str, n_columns: int = N_COLUMNS) -> Figure:
    """All data sets on one sheet."""
    n_rows = -(-len(DATA) // n_columns)
    figure = Figure(figsize=(3.3 * n_columns, 2.8 * n_rows + 0.4), layout="constrained")
    for data, ax in zip(DATA, figure.subplots(n_rows, n_columns).ravel(), strict=True):
        draw_panel(results, data, score, ax)
    figure.suptitle(SCORES[score], fontsize=11)
    return figure
