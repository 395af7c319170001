"""The figure of `studies.benchmarks.growth`, from its result file alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from wishflow.plotting import colour_of

N_COLUMNS = 4
# One style for each configuration, in the order of the file.
STYLES = (("diffWGP", "o", "-"), ("SGP", "s", "-"), ("diffGP", "^", "--"))
# What a panel shows: the key of the numbers, that of their exponents, the unit.
TIME, MEMORY = ("median_ms", "exponent", 1.0), ("bytes", "bytes_exponent", 2.0**20)


def draw(result: dict[str, Any]) -> Figure:
    """Log-log panels of the step time for each quantity, then of peak memory for those that every configuration has.

    The numbers in a panel are the exponents over the upper half of the values.
    """
    found = result["configurations"]
    first = next(iter(found.values()))
    panels = [(field, TIME) for field in first]
    panels += [(field, MEMORY) for field in first if all("bytes" in part.get(field, {}) for part in found.values())]
    n_rows = math.ceil(len(panels) / N_COLUMNS)
    figure = Figure(figsize=(3.1 * N_COLUMNS, 2.6 * n_rows + 0.5), layout="constrained")
    axes = figure.subplots(n_rows, N_COLUMNS, squeeze=False).ravel()
    for ax, (field, kind) in zip(axes, panels, strict=False):
        _panel(ax, [part.get(field) for part in found.values()], list(found), kind)
        ax.set_xlabel(result["labels"][field])
        ax.set_ylabel("ms a step" if kind is TIME else "peak, MB")
    for ax in axes[len(panels) :]:
        ax.axis("off")
    for kind in (TIME, MEMORY):
        _share_heights([ax for ax, (_, other) in zip(axes, panels, strict=False) if other is kind])
    lines = {line.get_label(): line for ax in axes for line in ax.get_lines()}
    figure.legend(list(lines.values()), list(lines), loc="outside upper center", ncols=len(lines), frameon=False)
    return figure


def _panel(ax: Axes, parts: list[dict[str, Any] | None], names: list[str], kind: tuple[str, str, float]) -> None:
    key, exponent, unit = kind
    for i, (part, name, (model, marker, line)) in enumerate(zip(parts, names, STYLES, strict=False)):
        if part is None:
            continue
        x, y, colour = part["values"], [number / unit for number in part[key]], colour_of(model)
        ax.loglog(x, y, color=colour, marker=marker, linestyle=line, markersize=4, linewidth=1.2, label=name)
        slope = f"{part[exponent]['upper']:z.2f}"
        ax.text(0.03, 0.96 - 0.09 * i, slope, color=colour, fontsize=8, va="top", transform=ax.transAxes)
    ticks = next(part["values"] for part in parts if part is not None)
    ax.set_xticks(ticks, [f"{v:,}" for v in ticks], fontsize=7, rotation=30 if ticks[-1] > 1000 else 0)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(alpha=0.25)


def _share_heights(axes: list[Axes]) -> None:
    """One range of y, so that steepness can be compared between panels."""
    limits = [ax.get_ylim() for ax in axes]
    for ax in axes:
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def save(result: dict[str, Any], path: Path) -> None:
    """Draw into a file; the same numbers give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "growth", "svg.fonttype": "none"}):
        draw(result).savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
