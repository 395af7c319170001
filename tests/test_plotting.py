"""Plotting draws the numbers it is given and nothing else: they are read back from the artists."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure

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
    ],
)
def test_arrays_of_a_wrong_shape_are_refused(draw, message, monkeypatch):
    monkeypatch.setattr(plotting, "_axes", lambda ax: Figure().subplots())
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
