"""Plotting draws the numbers it is given and nothing else: they are read back from the artists."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.dates import ConciseDateFormatter, date2num
from matplotlib.figure import Figure

import wishflow as wf
from wishflow import plotting
from wishflow.errors import DataError

X = np.linspace(-1.0, 1.0, 7)


@pytest.fixture
def ax():
    return Figure().subplots()


def random_covariances(n, seed=0):
    roots = np.random.default_rng(seed).normal(size=(n, 2, 2))
    return roots @ np.swapaxes(roots, -1, -2)


def ellipses(ax):
    """The outlines of the ellipses on the Axes, (N, K, 2)."""
    return np.stack([path.vertices[:-1] for path in ax.collections[0].get_paths()])


def test_a_band_has_the_edges_and_the_middle_it_was_given(ax):
    assert plotting.plot_band(X, X - 1.0, X + 2.0, X, ax=ax, colour="#D55E00") is ax
    corners = ax.collections[0].get_paths()[0].vertices
    for x in X:
        heights = corners[np.isclose(corners[:, 0], x), 1]
        assert heights.min() == pytest.approx(x - 1.0)
        assert heights.max() == pytest.approx(x + 2.0)
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.column_stack([X, X]))
    assert to_rgb(ax.lines[0].get_color()) == to_rgb("#D55E00")


STAMPS = pd.date_range("2024-03-01", periods=7, freq="h", tz="Europe/Berlin")


@pytest.mark.parametrize(
    "x",
    [STAMPS, STAMPS.tz_localize(None).to_period("h"), pd.Series(STAMPS), STAMPS.tz_localize(None).to_numpy()],
    ids=["index", "periods", "series", "array"],
)
def test_bands_and_points_are_drawn_at_the_time_stamps_they_were_given(x, ax):
    """They were cast to nanoseconds, and an axis of dates showed the year 1970."""
    plotting.plot_band(x, X - 1.0, X + 2.0, X, ax=ax)
    plotting.plot_points(x, X, ax=ax)
    first = STAMPS[0] if isinstance(x, pd.DatetimeIndex | pd.Series) else STAMPS[0].tz_localize(None)
    for line in ax.lines:
        np.testing.assert_allclose(line.get_xdata(orig=False)[0], date2num(first))
    left, right = ax.get_xlim()
    assert left <= date2num(first) < right < left + 1.0
    assert isinstance(ax.xaxis.get_major_formatter(), ConciseDateFormatter)


def test_an_outline_is_two_dashed_lines_and_no_area(ax):
    plotting.plot_band(X, X - 1.0, X + 2.0, is_outline=True, label="truth", ax=ax)
    assert not ax.collections
    assert [line.get_linestyle() for line in ax.lines] == ["--", "--"]
    np.testing.assert_allclose([line.get_ydata() for line in ax.lines], [X - 1.0, X + 2.0])
    assert len(ax.get_legend_handles_labels()[1]) == 1


def test_points_are_drawn_without_a_line_between_them(ax):
    plotting.plot_points(X, X**2, ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.column_stack([X, X**2]))
    assert ax.lines[0].get_linestyle() == "None"


def test_paths_run_from_start_to_end_of_each_point(ax):
    paths = np.random.default_rng(0).normal(size=(5, 3, 2))
    plotting.plot_paths(paths, ax=ax)
    np.testing.assert_allclose(ax.collections[0].get_segments(), np.swapaxes(paths, 0, 1))
    np.testing.assert_allclose([line.get_xydata() for line in ax.lines], [paths[0], paths[-1]])
    assert ax.get_aspect() == 1.0


def test_the_outline_of_an_ellipse_is_where_the_quadratic_form_is_its_size_squared(ax):
    points, covariances = np.random.default_rng(1).normal(size=(6, 2)), random_covariances(6)
    plotting.plot_ellipses(points, covariances, size=0.7, ax=ax)
    offsets = ellipses(ax) - points[:, None]
    forms = np.einsum("nki,nij,nkj->nk", offsets, np.linalg.inv(covariances), offsets)
    np.testing.assert_allclose(forms, 0.49, rtol=1e-6)


def test_a_covariance_of_rank_one_is_a_line_along_its_direction(ax):
    direction = np.array([3.0, 4.0]) / 5.0
    plotting.plot_ellipses(np.zeros((1, 2)), 4.0 * np.outer(direction, direction)[None], ax=ax)
    outline = ellipses(ax)[0]
    across = outline @ np.array([-direction[1], direction[0]])
    np.testing.assert_allclose(across, 0.0, atol=1e-6)
    assert np.abs(outline @ direction).max() == pytest.approx(2.0, rel=0.01)


def test_all_that_is_drawn_lies_inside_the_axes(ax):
    covariances = 9.0 * np.tile(np.eye(2), (2, 1, 1))
    plotting.plot_ellipses(np.array([[0.0, 0.0], [1.0, 1.0]]), covariances, ax=ax)
    assert ax.get_xlim()[0] <= -3.0 and ax.get_xlim()[1] >= 4.0
    assert ax.get_ylim()[0] <= -3.0 and ax.get_ylim()[1] >= 4.0


def test_a_history_shows_one_column_and_where_a_phase_begins(ax):
    history = pd.DataFrame({"phase": ["output"] * 3 + ["flow"] * 4, "objective": np.arange(7.0), "noise": 1.0})
    plotting.plot_history(history, ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_xydata(), np.column_stack([np.arange(1, 8), np.arange(7.0)]))
    assert [line.get_xdata()[0] for line in ax.lines[1:]] == [3.5]
    assert ax.get_ylabel() == "objective"
    with pytest.raises(DataError, match=r"no column 'kl'.*noise"):
        plotting.plot_history(history, "kl", ax=ax)


def test_violins_show_every_number_and_say_what_is_missing_or_cut_off(ax):
    groups = {"a": [0.1, 0.2, 0.4, -9.0], "b": None, "c": [0.3, 0.3, 0.3]}
    plotting.plot_violins(groups, dict.fromkeys(groups, "#D55E00"), limits=(-1.0, 1.0), ax=ax)
    dots = [line.get_ydata() for line in ax.lines if line.get_marker() == "."]
    np.testing.assert_allclose(dots[0], groups["a"])
    np.testing.assert_allclose(dots[1], groups["c"])
    assert [text.get_text() for text in ax.texts] == ["↓ 1 of 4", "missing"]
    assert [text.get_text() for text in ax.get_xticklabels()] == list(groups)
    assert ax.get_ylim() == (-1.0, 1.0)


def test_without_axes_a_figure_of_pyplot_is_made(monkeypatch):
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "backend", "agg")
    from matplotlib import pyplot

    ax = plotting.plot_points(X, X)
    assert pyplot.fignum_exists(ax.figure.number)
    pyplot.close(ax.figure)


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plotting.plot_band(X, X, X[:-1]), r"\(7,\), \(6,\).*expected \(N,\)"),
        (lambda: plotting.plot_band(X, np.zeros((7, 2)), np.ones((7, 2))), "choose one output"),
        (lambda: plotting.plot_paths(np.zeros((4, 5, 3))), r"\(4, 5, 3\).*\(T, N, 2\)"),
        (lambda: plotting.plot_ellipses(np.zeros((4, 3)), np.zeros((4, 3, 3))), "two of the coordinates"),
        (lambda: plotting.plot_ellipses(np.zeros((4, 2)), np.zeros((3, 2, 2))), r"\(3, 2, 2\).*\(4, 2, 2\)"),
        (lambda: plotting.plot_field(np.zeros((4, 2)), np.zeros((3, 2))), r"\(3, 2\).*\(4, 2\)"),
        (lambda: plotting.plot_trajectory(np.full((4, 2), np.nan), np.zeros((4, 2, 2))), "without missing values"),
    ],
)
def test_arrays_of_a_wrong_shape_are_refused(draw, message, monkeypatch):
    for module in (plotting.curves, plotting.planes):
        monkeypatch.setattr(module, "own_axes", lambda ax: Figure().subplots())
    with pytest.raises(DataError, match=message):
        draw()


# Linear-light simulation of dichromats (Viénot, Brettel and Mollon 1999).
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array([[0.1121, 0.8853, -0.0005], [0.1127, 0.8897, -0.0001], [0.0045, 0.0, 1.0019]]),
    "deuteranopia": np.array([[0.2920, 0.7054, -0.0003], [0.2934, 0.7089, 0.0], [-0.0210, 0.0256, 0.9992]]),
}


def lab(colour: str, matrix: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) of a colour as seen through a matrix on linear RGB."""
    rgb = np.asarray(to_rgba(colour)[:3])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(matrix @ linear, 0.0, 1.0) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16.0 / 116.0)
    return np.array([116.0 * f[1] - 16.0, 500.0 * (f[0] - f[1]), 200.0 * (f[1] - f[2])])


@pytest.mark.parametrize("kind", BLINDNESS)
def test_the_colours_of_the_models_can_be_told_apart(kind):
    """A difference of 10 in L*a*b* is plain to see; 2 is just visible."""
    seen = {name: lab(colour, BLINDNESS[kind]) for name, colour in plotting.MODEL_COLOURS.items()}
    for (a, first), (b, second) in itertools.combinations(seen.items(), 2):
        assert np.linalg.norm(first - second) > 10.0, f"{a} and {b} look alike with {kind}"


@pytest.mark.usefixtures("types_unchecked")
def test_contours_are_shaded_between_rising_levels(ax):
    x, y = np.linspace(-3, 3, 31), np.linspace(-2, 2, 21)
    density = np.exp(-0.5 * (x[None] ** 2 + y[:, None] ** 2))
    plotting.plot_contours(x, y, density, [0.2, 0.6], ax=ax)
    assert len(ax.collections) == 3  # two shades and the lines
    with pytest.raises(DataError, match="rows along y"):
        plotting.plot_contours(x, y, density.T, [0.2, 0.6], ax=ax)


# --- series -----------------------------------------------------------------------------------------


def forecast_of(index, seed=0, n_draws=300, given=None):
    rng = np.random.default_rng(seed)
    draws = rng.multivariate_normal([0.0, 0.0, 0.0], [[1.0, 0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 4.0]], n_draws)
    draws = draws[:, None] * np.sqrt(np.arange(1, len(index) + 1))[None, :, None]
    return wf.Forecast(draws, index, pd.Index(["a", "b", "c"]), given=given)


HOURS = pd.date_range("2024-03-30 20:00", periods=30, freq="h", tz="Europe/Copenhagen")


def hours_history():
    index = pd.date_range(end=HOURS[10], periods=700, freq="h")
    return pd.DataFrame({"c": np.arange(len(index)), "a": 1.0, "b": 2.0}, index)


def test_a_fan_shows_the_quantiles_the_past_and_the_observed_values():
    forecast, history = forecast_of(HOURS), hours_history()
    axes = forecast.plot_fan(["c", "a"], history, coverages=(0.8,), n_past=24, axes=Figure().subplots(2, 1))
    assert [ax.get_ylabel() for ax in axes] == ["c", "a"]
    past, observed, median = axes[0].lines
    before = history["c"][history.index < HOURS[0]]
    np.testing.assert_array_equal(past.get_ydata(), before.tail(24))
    np.testing.assert_array_equal(observed.get_ydata(), history["c"].iloc[len(before) :])
    np.testing.assert_allclose(median.get_ydata(), forecast.quantile(0.5)["c"])
    corners = axes[1].collections[0].get_paths()[0].vertices[:, 1]
    low, high = forecast.interval(0.8)
    assert corners.min() == pytest.approx(low["a"].min()) and corners.max() == pytest.approx(high["a"].max())


def test_a_fan_draws_three_rows_of_the_past_for_each_time_and_given_cells():
    given = np.full((30, 3), np.nan)
    given[4, 0] = 1.5
    axes = forecast_of(HOURS, given=given).plot_fan(history=hours_history(), axes=Figure().subplots(3, 1))
    assert len(axes[1].lines[0].get_ydata()) == 90
    assert "given" in axes[0].get_legend_handles_labels()[1] and "given" not in axes[1].get_legend_handles_labels()[1]


def test_dates_are_short_and_of_the_zone_of_the_data():
    """A day begins at midnight in Tokyo, which is 15:00 in UTC."""
    index = pd.date_range("2024-03-30 20:00", periods=24, freq="h", tz="Asia/Tokyo")
    axes = forecast_of(index).plot_fan(axes=Figure(figsize=(8, 6)).subplots(3, 1))
    axes[0].figure.canvas.draw()
    places, texts = axes[-1].get_xticks(), axes[-1].get_xticklabels()
    names = {text.get_text(): place for place, text in zip(places, texts, strict=True)}
    assert max(map(len, names)) <= 6 and 4 <= len(names) <= 10
    assert names["Mar-31"] == pytest.approx(date2num(index[4]))
    assert not any(label.get_visible() for label in axes[0].get_xticklabels())


@pytest.mark.parametrize(
    "index", [pd.period_range("2024-01", periods=5, freq="M"), pd.RangeIndex(5), pd.Index([0.0, 0.5, 1.0, 3.0, 7.0])]
)
def test_fans_and_correlations_take_every_kind_of_stamps(index):
    forecast = forecast_of(index)
    for ax in (*forecast.plot_fan(axes=Figure().subplots(3, 1)), forecast.plot_correlation(ax=Figure().subplots())):
        ax.figure.canvas.draw()


def test_correlations_have_the_values_and_bands_of_the_forecast(ax):
    forecast = forecast_of(HOURS)
    low, high = forecast.correlation_interval(0.8)
    assert forecast.plot_correlation(("a", "b"), coverage=0.8, ax=ax) is ax
    at = {"variable": "a", "variable_2": "b"}
    np.testing.assert_allclose(ax.lines[1].get_ydata(), forecast.correlation.sel(at).values)
    corners = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert corners.min() == pytest.approx(float(low.sel(at).min()))
    assert corners.max() == pytest.approx(float(high.sel(at).max()))


def test_without_a_choice_the_correlations_that_move_most_are_drawn(ax):
    names, times = list("abcde"), np.arange(6)
    matrices = np.tile(np.eye(5), (6, 1, 1))
    for k, (i, j) in enumerate(itertools.combinations(range(5), 2)):
        matrices[:, i, j] = matrices[:, j, i] = 0.05 * k * (times % 2)
    value = xr.DataArray(matrices, {"time": times, "variable": names, "variable_2": names})
    plotting.plot_correlation(value, ax=ax)
    drawn = [line.get_label() for line in ax.lines if not line.get_label().startswith("_")]
    assert drawn == ["b, e", "c, d", "c, e", "d, e"]
    styles = {(line.get_color(), str(line.get_linestyle())) for line in ax.lines[1:]}
    assert len({colour for colour, _ in styles}) == len({dashes for _, dashes in styles}) == 4


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda f: f.plot_fan("d", axes=Figure().subplots()), r"'d' is not known.*\['a', 'b', 'c'\]"),
        (lambda f: f.plot_fan(axes=Figure().subplots(2, 1)), "2 Axes; expected 3"),
        (lambda f: f.plot_fan("a", pd.DataFrame({"b": [0.0]}), axes=Figure().subplots()), "no column 'a'"),
        (lambda f: f.plot_correlation(("a", "d"), ax=Figure().subplots()), r"\('a', 'd'\)"),
        (lambda f: f.plot_covariance(["a"], ax=Figure().subplots()), r"two of \['a', 'b', 'c'\]"),
        (lambda f: f.plot_calibration(np.full((30, 3), np.nan)), "no value"),
    ],
)
def test_wrong_names_and_numbers_of_axes_are_refused(draw, message):
    with pytest.raises(DataError, match=message):
        draw(forecast_of(HOURS))


def test_the_ellipses_of_a_forecast_are_its_covariances(ax):
    forecast = forecast_of(HOURS)
    forecast.plot_covariance(("c", "a"), n_ellipses=4, ax=ax)
    rows = [0, 10, 19, 29]
    covariances = forecast.covariance.sel(variable=["c", "a"], variable_2=["c", "a"]).values[rows]
    offsets = ellipses(ax) - forecast.mean[["c", "a"]].to_numpy()[rows][:, None]
    forms = np.einsum("nki,nij,nkj->nk", offsets, np.linalg.inv(covariances), offsets)
    np.testing.assert_allclose(forms, 1.0, rtol=1e-5)


def test_the_calibration_of_a_forecast_of_its_own_draws_is_right():
    """Values drawn from the law of the forecast: bars within four standard errors of 1, coverage near its level."""
    rng = np.random.default_rng(1)
    forecast = wf.Forecast(rng.normal(size=(4000, 500, 2)), pd.RangeIndex(500), pd.Index(["a", "b"]))
    y = rng.normal(size=(500, 2))
    y[3, 1] = np.nan
    left, right = forecast.plot_calibration(y, Figure().subplots(1, 2))
    heights = np.array([bar.get_height() for bar in left.patches])
    assert np.abs(heights - 1.0).max() < 4.0 * np.sqrt(9.0 / 999)
    levels, inside = right.lines[1].get_data()
    assert np.abs(inside - levels).max() < 4.0 * np.sqrt(0.25 / 999)


def test_a_backtest_shows_means_by_horizon_for_each_model():
    rng = np.random.default_rng(0)
    cells, dims = rng.random((4, 3, 2)), ("origin", "horizon", "variable")
    scores = xr.Dataset(
        {"crps": (dims, cells), "covered": (dims, cells < 0.5)}, {"horizon": [1, 2, 6]}, {"coverage": 0.8}
    )
    left, right = plotting.plot_backtest({"ours": scores, "VAR": scores}, Figure().subplots(1, 2))
    assert [line.get_label() for line in left.lines] == ["ours", "VAR"]
    np.testing.assert_allclose(left.lines[0].get_ydata(), cells.mean(axis=(0, 2)))
    np.testing.assert_allclose(right.lines[0].get_ydata(), (cells < 0.5).mean(axis=(0, 2)))


# --- fits -------------------------------------------------------------------------------------------


def test_training_has_a_panel_for_each_kind_of_numbers():
    history = pd.DataFrame({"phase": ["output"] * 3 + ["flow"] * 4, "objective": np.arange(7.0), "kl_drift": 0.1})
    axes = plotting.plot_training(history, axes=Figure().subplots(1, 2))
    assert [ax.get_title() for ax in axes] == ["Objective", "Penalties of the objective"]
    held = pd.DataFrame({"step": [100, 200], "log_density": [-1.0, -0.5]})
    axes = plotting.plot_training(history, held, Figure().subplots(1, 3))
    np.testing.assert_allclose(axes[2].lines[0].get_xydata(), held)
    candidates = pd.DataFrame({"candidate": ["linear", "GP"], "crps 1": [0.5, 0.4], "crps 2-6": [1.0, 1.1]})
    candidates["kept"] = [False, True]
    axes = plotting.plot_training(history.drop(columns="kl_drift"), candidates, Figure().subplots(1, 2))
    np.testing.assert_allclose([line.get_ydata() for line in axes[1].lines], [[1.0, 1.0], [0.8, 1.1]])
    assert axes[1].get_legend_handles_labels()[1] == ["linear", "GP (kept)"]


@pytest.mark.parametrize(
    "history",
    [
        pd.DataFrame(),
        pd.DataFrame({"phase": [], "objective": []}),
        pd.DataFrame({"phase": ["a"], "objective": [np.nan]}),
    ],
    ids=["no columns", "no rows", "no numbers"],
)
def test_a_history_without_numbers_is_an_empty_panel(history, ax):
    [panel] = plotting.plot_training(history, axes=[ax])
    assert panel.get_title() == "Objective" and panel.get_xlabel() == "iteration"
    assert ("no iterations" in [text.get_text() for text in panel.texts]) == (len(history) == 0)


def test_the_arrows_of_a_field_are_as_long_as_the_steps(ax):
    points, steps = np.array([[0.0, 0.0], [1.0, 2.0]]), np.array([[0.5, 0.0], [0.0, -3.0]])
    plotting.plot_field(points, steps, 0.01 * random_covariances(2), ax=ax)
    arrows = ax.collections[-1]
    np.testing.assert_allclose(arrows.get_offsets(), points)
    np.testing.assert_allclose(np.column_stack([arrows.U, arrows.V]), steps)
    assert arrows.scale == 1.0 and arrows.scale_units == arrows.angles == "xy"
    assert ax.get_ylim()[0] <= -1.0  # the end of the long one


def test_pictures_without_matplotlib_say_what_to_install():
    """In a process of its own, where matplotlib cannot be found."""
    code = """
import importlib.util, sys
import numpy as np, pandas as pd, wishflow as wf
sys.modules["matplotlib"] = None
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "matplotlib" else find(name, *rest)
forecast = wf.Forecast(np.zeros((5, 3, 1)), pd.RangeIndex(3), pd.Index(["a"]))
try:
    forecast.plot_fan()
except ImportError as error:
    print(error)
"""
    path = str(Path(wf.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
    )
    assert "pip install 'wishflow[plot]'" in done.stdout, done.stderr


def test_the_old_name_of_the_fan_chart_still_draws():
    forecast = wf.Forecast(np.zeros((5, 3, 2)), pd.RangeIndex(3), pd.Index(["a", "b"]))
    with pytest.warns(FutureWarning, match="use plot_fan"):
        figure = forecast.plot()
    assert len(figure.axes) == 2
