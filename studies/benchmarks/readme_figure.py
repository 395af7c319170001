"""The picture of the README: forecasts of a simulated process, and the learnt correlation of its noise beside the true.

    python -m studies.benchmarks.readme_figure

It writes `docs/figures/correlation.svg` and `studies/results/readme_figure.json`.

The process is `make_wishart_volatility`, whose noise has correlations that change with the state by a known law. The
model sees the first rows alone. Correlations are those at later rows, given the state there, and the forecast starts
among these. Options are those of a model without a choice by held-back rows; none was tuned.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import wishflow as wf
from wishflow.files.json import write_json_atomic
from wishflow.files.writing import write_bytes_atomic

from .. import report
from ..paths import RESULTS, ROOT
from ..provenance import provenance

NAMES = ("variance", "covariance", "other variance")
N_TRAIN, N_PAST, N_AHEAD = 2000, 120, 40
DT, SEED, COVERAGE = 0.2, 0, 0.9


def simulated() -> tuple[Any, pd.DataFrame]:
    """The law, and one path of it."""
    law = wf.datasets.make_wishart_volatility()
    rows = law.simulate(1, N_TRAIN + N_PAST + N_AHEAD - 1, DT, SEED)[0]
    return law, pd.DataFrame(rows, columns=list(NAMES)).rename_axis("step")


def fitted(y: pd.DataFrame) -> wf.WishartForecaster:
    options: dict[str, Any] = {"validation_fraction": 0, "rank": len(NAMES), "n_inducing": 50, "max_iter": 400}
    return wf.WishartForecaster(**options, random_state=SEED).fit(y.iloc[:N_TRAIN])


def true_correlation(law: Any, rows: pd.DataFrame) -> np.ndarray:
    """Between the noise of the first two columns."""
    rates = law.covariance(rows.to_numpy())
    return rates[:, 0, 1] / np.sqrt(rates[:, 0, 0] * rates[:, 1, 1])


def draw(model: wf.WishartForecaster, forecast: wf.Forecast, rows: pd.DataFrame, truth: np.ndarray) -> Figure:
    """Two fan charts, and below them the correlation of the noise."""
    figure = Figure(figsize=(8.0, 5.4), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True, height_ratios=(1.0, 1.0, 1.2))
    forecast.plot_fan(list(NAMES[:2]), rows, n_past=N_PAST, axes=panels[:2])
    ax = model.plot_correlation(rows, pairs=NAMES[:2], coverage=COVERAGE, ax=panels[2])
    ax.lines[-1].set_label("correlation of their noise, learnt")
    ax.collections[0].set_label(f"{COVERAGE:.0%} band")
    ax.plot(rows.index, truth, color="black", ls="--", lw=1.0, label="true")
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, frameon=False, fontsize="small")
    ax.set_xlabel("step")
    return figure


def scores(model: wf.WishartForecaster, rows: pd.DataFrame, truth: np.ndarray) -> dict[str, float]:
    """How near the learnt correlations are to the true ones."""
    learnt = model.correlation(rows).values[:, 0, 1]
    low, high = (end.values[:, 0, 1] for end in model.correlation_interval(rows, coverage=COVERAGE))
    return {
        "agreement": float(np.corrcoef(learnt, truth)[0, 1]),
        "rmse": float(np.sqrt(np.mean((learnt - truth) ** 2))),
        "inside_band": float(np.mean((low <= truth) & (truth <= high))),
        "lowest_true": float(truth.min()),
        "highest_true": float(truth.max()),
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "readme_figure.json")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "figures" / "correlation.svg")
    return parser.parse_args(arguments)


def main() -> None:
    options, made = parse(), provenance()
    law, y = simulated()
    start = time.perf_counter()
    model = fitted(y)
    seconds = time.perf_counter() - start
    rows = y.iloc[N_TRAIN:]
    truth = true_correlation(law, rows)
    found = {**scores(model, rows, truth), "n_train": N_TRAIN, "n_rows": len(rows), "seconds": seconds}
    model.update(y.iloc[N_TRAIN : N_TRAIN + N_PAST])
    figure = draw(model, model.forecast(N_AHEAD), rows, truth)
    write_bytes_atomic(options.figure, report.svg(figure))
    write_json_atomic(options.output, {**found, "provenance": made})
    print(found)


if __name__ == "__main__":
    main()
