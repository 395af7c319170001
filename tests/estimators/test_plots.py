"""Methods `plot_*` draw what the other methods return, and frames that come in are found again in what goes out."""

from __future__ import annotations

import copy
import dataclasses

import equinox as eqx
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from small import SMALL_GP

import wishflow as wf
from wishflow.errors import DataError, OptionError
from wishflow.regression.plots import grouped


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture(scope="module")
def series():
    """Two series whose noise has a correlation that depends on the first."""
    rng, rows = np.random.default_rng(0), [np.zeros(2)]
    for _ in range(119):
        x = rows[-1]
        r = np.tanh(x[0])
        noise = np.linalg.cholesky([[1.0, r], [r, 1.0 + 1e-9]]) @ rng.normal(size=2)
        rows.append(0.8 * x + 0.5 * noise)
    return pd.DataFrame(rows, pd.date_range("2024-01-01", periods=120, freq="h"), ["a", "b"])


@pytest.fixture(scope="module")
def forecaster(series):
    return wf.WishartForecaster(rank=2, n_inducing=10, max_iter=20, validation_fraction=0, lags=2).fit(series)


# --- frames -----------------------------------------------------------------------------------------


def test_a_frame_of_predictions_has_the_index_of_x_and_the_names_of_y(X, Y):
    frame = pd.DataFrame(X, [f"row {i}" for i in range(len(X))], ["u", "v"])
    model = wf.SparseGPRegressor(**SMALL_GP).fit(frame, pd.DataFrame(Y, columns=["p", "q"]))
    found = model.predict_frame(frame.iloc[5:9], alpha=[0.025, 0.9])
    assert found.columns.tolist() == [f"{name}_{part}" for name in "pq" for part in ("mean", "sd", "q2.5", "q90")]
    assert found.index.tolist() == ["row 5", "row 6", "row 7", "row 8"]
    mean, sd = model.predict(frame.iloc[5:9], return_std=True)
    np.testing.assert_array_equal(found[["p_mean", "q_mean"]], mean)
    np.testing.assert_array_equal(found[["p_sd", "q_sd"]], sd)
    quantiles = model.predict_quantiles(frame.iloc[5:9], [0.025, 0.9])
    np.testing.assert_array_equal(found[["q_q2.5", "q_q90"]], quantiles[:, 1])


def test_a_frame_of_predictions_of_arrays_has_plain_names(gp, X):
    found = gp.predict_frame(X[:4])
    assert found.columns.tolist() == ["y_mean", "y_sd", "y_q05", "y_q50", "y_q95"]
    assert found.index.equals(pd.RangeIndex(4))
    with pytest.raises(OptionError, match=r"alpha=1\.5"):
        gp.predict_frame(X, alpha=1.5)


def test_a_frame_of_classes_has_labels_and_their_probabilities(classifier, X):
    fitted = copy.copy(classifier)
    fitted.target_names_ = ["size"]
    found = fitted.predict_frame(X)
    assert found.columns.tolist() == ["size_class", "p_high", "p_low"]
    np.testing.assert_array_equal(found["size_class"], classifier.predict(X))
    np.testing.assert_array_equal(found[["p_high", "p_low"]], classifier.predict_proba(X))


def test_a_frame_of_a_forecast_agrees_with_its_summaries(forecaster):
    forecast = forecaster.forecast(5, n_draws=100)
    found = forecast.to_frame(alpha=[0.1])
    assert found.columns.tolist() == ["a_mean", "a_sd", "a_q10", "b_mean", "b_sd", "b_q10"]
    np.testing.assert_allclose(found[["a_mean", "b_mean"]], forecast.mean)
    np.testing.assert_allclose(found[["a_q10", "b_q10"]], forecast.quantile(0.1))
    np.testing.assert_allclose(found["b_sd"] ** 2, forecast.covariance.values[:, 1, 1])
    assert found.index.equals(forecast.index)


# --- pictures ---------------------------------------------------------------------------------------


def test_bands_are_the_quantiles_along_one_input_with_the_others_at_their_medians(flow_of_two, X, Y, ax):
    flow_of_two.plot_bands(X, Y, feature=1, target="y2", coverages=(0.8,), ax=ax)
    points, middle = ax.lines
    np.testing.assert_allclose(points.get_xydata(), np.column_stack([X[:, 1], Y[:, 1]]))
    x, curve = middle.get_data()
    assert x[0] == X[:, 1].min() and x[-1] == X[:, 1].max()
    rows = np.column_stack([np.full(len(x), np.median(X[:, 0])), x])
    np.testing.assert_allclose(curve, flow_of_two.predict_quantiles(rows, 0.5)[:, 1, 0])
    corners = ax.collections[0].get_paths()[0].vertices
    band = flow_of_two.predict_interval(rows[:1], 0.8)[0, 1]
    at_start = corners[np.isclose(corners[:, 0], x[0]), 1]
    np.testing.assert_allclose([at_start.min(), at_start.max()], band)
    with pytest.raises(DataError, match=r"target='z'.*\['y1', 'y2'\]"):
        flow_of_two.plot_bands(X, target="z", ax=ax)


def test_the_calibration_of_a_regressor_is_its_diagnosis(gp, X, y):
    left, right = gp.plot_calibration(X, y, Figure().subplots(1, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        found = gp.diagnose(X, y)
    np.testing.assert_allclose([bar.get_height() for bar in left.patches], found.histogram / found.histogram.mean())
    np.testing.assert_allclose(right.lines[1].get_ydata(), list(found.coverage.values()))


def test_groups_of_probabilities_have_the_share_of_hits():
    p, is_so = np.array([0.05, 0.08, 0.55, 1.0]), np.array([False, True, True, True])
    said, came = grouped(p, is_so)
    np.testing.assert_allclose(said, [0.065, 0.55, 1.0])
    np.testing.assert_allclose(came, [0.5, 1.0, 1.0])


def test_of_two_classes_the_second_is_drawn(classifier, X, labels, ax):
    classifier.plot_calibration(X, labels, ax=ax)
    assert ax.get_legend_handles_labels()[1] == ["low"]
    said, came = grouped(classifier.predict_proba(X)[:, 1], labels == "low")
    np.testing.assert_allclose(ax.lines[1].get_xydata(), np.column_stack([said, came]))


def test_flow_and_field_are_those_of_the_model(flow, X, ax):
    flow.plot_flow(X[:5], ax=ax)
    np.testing.assert_allclose(ax.collections[0].get_segments(), np.swapaxes(flow.flow_paths(X[:5]), 0, 1))
    ax = flow.plot_field(X, features=(1, 0), n_side=3, ax=Figure().subplots())
    arrows = ax.collections[-1]
    points = np.asarray(arrows.get_offsets())
    drift = flow.mean_drift(points[:, ::-1])[:, ::-1]
    ratios = np.column_stack([arrows.U, arrows.V]) / drift  # one time for all arrows
    np.testing.assert_allclose(ratios, ratios[0, 0], rtol=1e-6)
    assert f"Drift over {ratios[0, 0]:.2g}" in ax.get_title()


def test_the_drift_is_the_mean_of_short_steps_of_the_paths(flow, X):
    """x after one step less x, averaged over the noise, is μ dt; here with a drift that is far from 0."""
    moved, weights = copy.copy(flow), 10.0 * np.random.default_rng(0).normal(size=flow.model_.field.gp.mean.shape)
    moved.model_ = eqx.tree_at(lambda model: model.field.gp.mean, flow.model_, weights)
    rows, dt = np.repeat(X[:1], 4000, axis=0), moved.flow_time / 3
    steps, expected = moved.flow_paths(rows)[1] - rows, moved.mean_drift(X[:1])[0] * dt
    error = 4.0 * np.sqrt(np.diagonal(moved.mean_covariance(X[:1])[0]) * dt / 4000)
    assert (np.abs(steps.mean(axis=0) - expected) < error).all()
    assert (np.abs(expected) > 2.0 * error).all()


@pytest.mark.parametrize("is_flow", [True, False], ids=["flow over no time", "sparse GP"])
def test_without_a_flow_rows_do_not_move(gp, flow, X, is_flow):
    """Where validation keeps a sparse GP instead of the flow: as a flow over no time, or by itself."""
    kept = copy.copy(flow)
    kept.model_ = dataclasses.replace(flow.model_, flow_time=0.0) if is_flow else gp.model_
    assert not kept.mean_drift(X).any() and not kept.mean_covariance(X).any()
    np.testing.assert_allclose(kept.flow_paths(X), np.stack([X, X]))
    kept.plot_field(X, ax=Figure().subplots())


def test_the_parts_of_training_are_drawn(flow, forecaster):
    assert len(flow.plot_training(Figure().subplots(1, 2))) == 2
    axes = forecaster.plot_training(Figure().subplots(1, 2))
    drawn = axes[1].get_legend_handles_labels()[1]
    assert drawn == [name for name in forecaster.history_ if name.startswith("kl_")]


def test_correlations_of_the_noise_are_drawn_with_their_bands(forecaster, series, ax):
    rows = series.tail(30)
    forecaster.plot_correlation(rows, coverage=0.8, ax=ax)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), forecaster.correlation(rows).values[:, 0, 1])
    low, _ = forecaster.correlation_interval(rows, coverage=0.8)
    corners = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert corners.min() == pytest.approx(low.values[:, 0, 1].min())


def test_the_noise_is_drawn_along_the_path(forecaster, series, ax):
    rows = series.tail(30)
    forecaster.plot_noise(rows, variables=("b", "a"), n_ellipses=2, ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_xydata(), rows[["b", "a"]])
    outline = ax.collections[0].get_paths()[1].vertices[:-1] - rows[["b", "a"]].to_numpy()[-1]
    covariance = forecaster.covariance(rows).values[-1][::-1, ::-1]
    np.testing.assert_allclose(np.einsum("ki,ij,kj->k", outline, np.linalg.inv(covariance), outline), 1.0, rtol=1e-5)


def test_the_field_of_a_forecaster_is_where_its_paths_go(forecaster, series):
    """At the last row itself: the drift is the mean of the first step, the noise the covariance of that row."""
    end = series.iloc[-1].to_numpy()
    units, runner = forecaster.units_, forecaster._runner()
    ticks = units.ticks(forecaster.tails_[next(iter(forecaster.tails_))])[-1]
    drift, rates = runner.field(ticks, units.forward(end[None]))
    slope = units.slope(end[None])[0]
    rates = rates[0] * slope[:, None] * slope
    np.testing.assert_allclose(rates, forecaster.covariance(series).values[-1], rtol=1e-6)
    draws = forecaster.forecast(1, n_draws=4000).samples.values[:, 0]
    error = 4.0 * np.sqrt(np.diagonal(rates) / 4000)
    assert (np.abs(draws.mean(0) - end - drift[0] * slope) < error).all()
    assert (np.abs(drift[0] * slope) > 2.0 * error).any()


def test_the_picture_of_the_field_has_the_noise_of_the_grid(forecaster, series, ax):
    forecaster.plot_field(series, n_side=3, ax=ax)
    assert len(ax.collections[0].get_paths()) == 9
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")
    with pytest.raises(DataError, match="two of"):
        forecaster.plot_field(series, variables=("a", "c"), ax=ax)


def test_panels_have_no_pictures_of_their_noise(series):
    panel = {"one": series.head(40), "two": series.tail(40)}
    model = wf.WishartForecaster(rank=1, n_inducing=5, max_iter=2, validation_fraction=0).fit(panel)
    with pytest.raises(OptionError, match="panel"):
        model.plot_noise(panel)
