"""The figures of the demonstration: predictive bands, the flow of the inputs, covariances beside the true ones."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import plotting
from ..datasets import SimulatedFlow
from .side_by_side import LEVELS

SLICE_X1 = 0.0
SLICE_WIDTH = 0.2
HALF_WIDTH = 1.8
ELLIPSE_SIZE = 0.35
PATHS_PER_POINT = 3
FLOW_RANGE = (-3.2, 3.2)
N_TRUE_BAND = 41
SEED = 11

BAND_CAPTION = (
    f"90 % bands along the slice x₁ = {SLICE_X1:g}. Colour: the model, with its mean; dashed black: the true law. "
    f"Grey: training data with |x₁ − {SLICE_X1:g}| < {SLICE_WIDTH:g}."
)
FLOW_CAPTION = (
    f"Sample paths of the inputs over the flow time [0, 1], {PATHS_PER_POINT} from each ring. The data do not "
    "determine the flow alone: another flow with another output map g can give the same law of y, so the paths need "
    "not agree with the true ones where the bands do."
)
COVARIANCE_CAPTION = (
    f"Ellipses of {ELLIPSE_SIZE:g} standard deviations. Upper row: the covariance rate of the flow at time 0, in units "
    "of x (of a model its posterior mean). A model can trade it against its drift and its output map g, so it is "
    "comparable with the true rate only as far as these agree with the true ones. Lower row: the covariance of y given "
    "x, in units of y, which the data do determine: this is the fair comparison."
)


def grid(n: int) -> Float[np.ndarray, "N 2"]:
    """n × n points of the square that the inputs fill."""
    line = np.linspace(-HALF_WIDTH, HALF_WIDTH, n)
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)


def slice_points(n: int) -> Float[np.ndarray, "N 2"]:
    """n points with x₁ = SLICE_X1 and x₂ from bottom to top."""
    return np.column_stack([np.full(n, SLICE_X1), np.linspace(-2.0, 2.0, n)])


def band_figure(law: SimulatedFlow, fitted: dict[str, Any], *, n_points: int, n_draws: int) -> Figure:
    """A column of panels for each model, a row for each output."""
    figure = Figure(figsize=(2.9 * len(fitted) + 0.4, 5.8), layout="constrained")
    panels = figure.subplots(law.n_outputs, len(fitted), sharex=True, sharey="row", squeeze=False)
    x = slice_points(n_points)
    coarse = slice_points(N_TRUE_BAND)
    true_band = np.quantile(law.sample(coarse, 8 * n_draws, SEED), [0.05, 0.95], axis=0)
    is_near = np.abs(law.X[:, 0] - SLICE_X1) < SLICE_WIDTH
    for column, (name, model) in enumerate(fitted.items()):
        # The levels of the scores again: their program is compiled already.
        band, mean = model.predict_quantiles(x, LEVELS)[..., :2], model.predict(x)
        panels[0, column].set_title(name, color=plotting.colour_of(name))
        for p in range(law.n_outputs):
            ax = panels[p, column]
            plotting.plot_points(law.X[is_near, 1], law.y[is_near, p], ax=ax)
            plotting.plot_band(
                x[:, 1], band[:, p, 0], band[:, p, 1], mean[:, p], colour=plotting.colour_of(name), ax=ax
            )
            plotting.plot_band(
                coarse[:, 1], *true_band[..., p], colour=plotting.colour_of("truth"), is_outline=True, ax=ax
            )
    _label_edges(panels, "x₂", [f"y{'₁₂'[p]}" for p in range(law.n_outputs)])
    return _with_caption(figure, BAND_CAPTION)


def flow_figure(law: SimulatedFlow, fitted: dict[str, Any], *, n_side: int) -> Figure:
    """Sample paths of a grid of inputs: the true ones, then those of each model, all in the same number of steps."""
    starts = np.repeat(grid(n_side), PATHS_PER_POINT, axis=0)
    learnt = {name: model.flow_paths(starts, random_state=SEED) for name, model in fitted.items()}
    n_steps = max(len(path) for path in learnt.values()) - 1
    paths = {"truth": true_paths(law, starts, n_steps, np.random.default_rng(SEED)), **learnt}
    figure = Figure(figsize=(2.9 * len(paths) + 0.4, 4.0), layout="constrained")
    panels = figure.subplots(1, len(paths), sharex=True, sharey=True, squeeze=False)
    for ax, (name, path) in zip(panels[0], paths.items(), strict=True):
        plotting.plot_paths(path, colour=plotting.colour_of(name), ax=ax).set(xlim=FLOW_RANGE, ylim=FLOW_RANGE)
        ax.set_title(name, color=plotting.colour_of(name))
    _label_edges(panels, "x₁", ["x₂"])
    return _with_caption(figure, FLOW_CAPTION)


def covariance_figure(law: SimulatedFlow, fitted: dict[str, Any], *, n_side: int, n_draws: int) -> Figure:
    """Σ̄(x) of the flows beside the true Σ(x), and below them the covariance of y given x."""
    points = grid(n_side)
    rates = {"truth": law.covariance(points)}
    rates |= {name: model.mean_covariance(points) for name, model in fitted.items()}
    spreads = {"truth": draws_covariance(np.moveaxis(law.sample(points, n_draws, SEED), 0, -1))}
    spreads |= {name: draws_covariance(model.sample_y(points, n_draws, SEED)) for name, model in fitted.items()}
    figure = Figure(figsize=(2.9 * len(rates) + 0.4, 7.0), layout="constrained")
    panels = figure.subplots(2, len(rates), sharex=True, sharey=True, squeeze=False)
    for row, covariances in zip(panels, (rates, spreads), strict=True):
        for ax, (name, values) in zip(row, covariances.items(), strict=True):
            plotting.plot_ellipses(points, values, size=ELLIPSE_SIZE, colour=plotting.colour_of(name), ax=ax)
    for column, name in enumerate(rates):
        symbols = (r"$\Sigma(x)$" if name == "truth" else r"$\bar{\Sigma}(x)$", "cov(y | x)")
        for row, symbol in zip(panels, symbols, strict=True):
            row[column].set_title(f"{name}: {symbol}", color=plotting.colour_of(name))
    _label_edges(panels, "x₁", ["x₂", "x₂"])
    return _with_caption(figure, COVARIANCE_CAPTION)


def true_paths(
    law: SimulatedFlow, starts: Float[np.ndarray, "N 2"], n_steps: int, rng: np.random.Generator
) -> Float[np.ndarray, "T N 2"]:
    """Euler–Maruyama with the true drift and Σ over [0, 1]."""
    path, dt = [starts], 1.0 / n_steps
    for _ in range(n_steps):
        x, noise = path[-1], rng.standard_normal(starts.shape)
        root = np.linalg.cholesky(law.covariance(x))
        path.append(x + law.drift(x) * dt + np.sqrt(dt) * np.einsum("nij,nj->ni", root, noise))
    return np.stack(path)


def draws_covariance(draws: Float[np.ndarray, "N P S"]) -> Float[np.ndarray, "N P P"]:
    """The covariance over draws at each row."""
    centred = draws - draws.mean(axis=-1, keepdims=True)
    return np.einsum("nps,nqs->npq", centred, centred) / (draws.shape[-1] - 1)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG; its absolute path."""
    figure.savefig(path, dpi=130)
    return path.resolve()


def _label_edges(panels: np.ndarray, x_label: str, y_labels: list[str]) -> None:
    """Names of the axes on the outer panels only."""
    for ax in panels[-1]:
        ax.set_xlabel(x_label)
    for row, label in zip(panels, y_labels, strict=True):
        first: Axes = row[0]
        first.set_ylabel(label)


def _with_caption(figure: Figure, text: str) -> Figure:
    """A caption below the panels, wrapped to the width of the figure."""
    n_characters = int(figure.get_size_inches()[0] * 15.5)
    figure.supxlabel("\n".join(textwrap.wrap(text, n_characters)), x=0.01, ha="left", fontsize=8.5)
    return figure
