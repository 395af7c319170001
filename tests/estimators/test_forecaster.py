"""`WishartForecaster`: frames in and out, irregular times, holes, panels, files, and laws of its forecasts."""

import ast
import copy
import pickle
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import trapezoid
from sklearn.preprocessing import FunctionTransformer

import wishflow as wf
from wishflow.errors import DataError, OptionError
from wishflow.numerics.random import noise_seed
from wishflow.series.data.horizons import horizon
from wishflow.series.data.times import TimeAxis
from wishflow.series.running import autoregressive

SMALL = {"n_inducing": 8, "max_iter": 20, "rank": 2, "n_train_samples": 2, "validation_fraction": 0}
SLOW = pytest.mark.slow
N = 200
HOURS = pd.date_range("2021-03-01", periods=N, freq="h", tz="Europe/Berlin")


def simulated(n=N, dim=2, seed=0):
    """A stable VAR(1) with correlated noise."""
    rng = np.random.default_rng(seed)
    mixing = np.array([[0.5, 0.0], [0.4, 0.2]])[:dim, :dim]
    y = np.zeros((n, dim))
    for t in range(1, n):
        y[t] = 0.9 * y[t - 1] + mixing @ rng.normal(size=dim)
    return y


@pytest.fixture(scope="module")
def y():
    return pd.DataFrame(10.0 + 3.0 * simulated(), index=HOURS, columns=["a", "b"])


@pytest.fixture(scope="module")
def fitted(y):
    return wf.WishartForecaster(**SMALL).fit(y.iloc[:150])


def test_a_forecast_is_joint_paths_in_the_units_and_time_zone_of_the_data(fitted, y):
    found = fitted.forecast(6, n_draws=50)
    assert found.samples.dims == ("draw", "time", "variable")
    assert found.samples.shape == (50, 6, 2)
    pd.testing.assert_index_equal(found.index, HOURS[150:156], exact="equiv", check_names=False)
    assert str(found.samples.indexes["time"].tz) == "Europe/Berlin"
    assert list(found.samples["variable"].values) == ["a", "b"]
    assert abs(found.mean["a"].iloc[0] - y["a"].iloc[149]) < 4.0


@pytest.mark.parametrize(
    "fh",
    [
        *(3, [1, 2, 3], "3h", pd.Timedelta("3h"), np.timedelta64(3, "h"), HOURS[150:153]),
        *([3, 1, 2], np.array([2, 3, 1]), HOURS[150:153][::-1], HOURS[150:153].tz_convert("UTC"), list(HOURS[150:153])),
    ],
    ids=str,
)
def test_horizons_in_all_their_forms(fitted, fh):
    found = fitted.forecast(fh, n_draws=20)
    pd.testing.assert_index_equal(found.index, HOURS[150:153], exact="equiv", check_names=False)
    np.testing.assert_array_equal(found.samples, fitted.forecast(3, n_draws=20).samples)


def test_a_few_steps_of_a_horizon_are_those_of_the_whole(fitted):
    whole, part = fitted.forecast(8, n_draws=20), fitted.forecast([2, 7], n_draws=20)
    np.testing.assert_array_equal(part.samples.values, whole.samples.values[:, [1, 6]])


@pytest.mark.slow
@pytest.mark.parametrize("lags", [1, 2])
def test_horizons_are_sorted_whatever_the_order_they_come_in(y, lags):
    """As sktime's: step 3 is step 3, also where it was asked for first."""
    model = wf.WishartForecaster(lags=lags, **SMALL).fit(y)
    whole, part = model.forecast(3, n_draws=20), model.forecast([3, 1], n_draws=20)
    pd.testing.assert_index_equal(part.index, whole.index[[0, 2]], exact="equiv")
    np.testing.assert_array_equal(part.samples.values, whole.samples.values[:, [0, 2]])


def test_one_stamp_is_a_horizon(fitted):
    found = fitted.forecast(HOURS[152], n_draws=20)
    assert list(found.index) == [HOURS[152]]
    np.testing.assert_array_equal(found.samples, fitted.forecast([3], n_draws=20).samples)


def test_stamps_of_another_zone_come_back_in_that_of_the_data(y):
    """The calendar follows the wall clock of the data, in the horizon too."""
    model = wf.WishartForecaster(calendar=True, **SMALL).fit(y.iloc[:150])
    found = model.forecast(HOURS[150:153].tz_convert("UTC"), n_draws=20)
    assert str(found.index.tz) == "Europe/Berlin"
    np.testing.assert_array_equal(found.samples, model.forecast(3, n_draws=20).samples)


def test_stamps_that_are_steps_but_for_rounding(y):
    """0.1 + 0.2 is the third step of 0.1, and not another place of the forecast."""
    model = wf.WishartForecaster(**SMALL).fit(y.set_axis(np.arange(N) * 0.1))
    end = 0.1 * (N - 1)
    whole = model.forecast(3, n_draws=20).samples.values
    found = model.forecast(pd.Index([end + 0.1, end + 0.3 + 1e-9]), n_draws=20).samples.values
    np.testing.assert_array_equal(found, whole[:, [0, 2]])


def test_observed_values_are_found_at_stamps_but_for_rounding():
    """0.1 · 3 is not 0.3, and the same stamp: in any order, and in rows that are not of the forecast too."""
    draws = np.random.default_rng(0).normal(size=(50, 3, 1))
    forecast = wf.Forecast(draws, pd.Index([0.1, 0.2, 0.3]), pd.Index(["a"]))
    rows = pd.DataFrame({"a": [9.0, 3.0, 2.0, 1.0]}, [0.4, 0.1 * 3, 0.2, 0.1])
    expected = forecast.log_prob(np.array([[1.0], [2.0], [3.0]]), kind="moments")
    pd.testing.assert_series_equal(forecast.log_prob(rows, kind="moments"), expected)
    assert np.isnan(forecast.log_prob(rows.set_axis([0.4, 0.301, 0.2, 0.1]), kind="moments").iloc[2])
    one = wf.Forecast(draws[:, :1], pd.Index([1e9 + 0.3]), pd.Index(["a"]))
    assert np.isfinite(one.log_prob(pd.Series([1.0], [1e9 + 0.1 * 3], name="a"), kind="moments")).all()
    with pytest.raises(DataError, match="twice"):
        forecast.log_prob(pd.concat([rows, rows.iloc[1:2]]), kind="moments")


def test_covariates_are_found_at_stamps_but_for_rounding(y):
    """Steps of 0.1 are multiples of it in X, and sums in the horizon."""
    stamps = np.arange(N + 10) * 0.1
    X = pd.DataFrame({"u": np.sin(stamps)}, stamps)
    model = wf.WishartForecaster(**SMALL).fit(y.set_axis(np.cumsum(np.full(N, 0.1)) - 0.1), X)
    assert model.forecast(10, X, n_draws=5).samples.shape == (5, 10, 2)


def test_quantiles_of_several_levels_are_those_of_each(fitted):
    forecast = fitted.forecast(3, n_draws=50)
    found = forecast.quantile([0.1, 0.9])
    assert found.columns.tolist() == [("a", 0.1), ("a", 0.9), ("b", 0.1), ("b", 0.9)]
    for q in (0.1, 0.9):
        pd.testing.assert_frame_equal(found.xs(q, axis=1, level=1), forecast.quantile(q))
    for wrong in (0.0, 1.0, [0.5, 1.5], [], "half"):
        with pytest.raises(OptionError, match="q="):
            forecast.quantile(wrong)


def test_a_wrong_horizon_is_said_before_training(y, monkeypatch):
    """By `fit` and by `backtest`, as are other options of a backtest."""
    monkeypatch.setattr("wishflow.series.forecaster.train", lambda *_: pytest.fail("it was trained"))
    for fh, words in ((0, "at least 1"), ("soon", "time span"), (HOURS[10:12], "after the end")):
        with pytest.raises(OptionError, match=words):
            wf.WishartForecaster(**SMALL).fit(y, fh=fh)
    wrong = {"step": 0, "n_draws": 0, "coverage": 1.0, "n_densities": -1, "refit": 0}
    for options, words in (({"fh": [3, 3]}, "twice"), ({"fh": 60}, "lower"), *(({k: v}, k) for k, v in wrong.items())):
        with pytest.raises(OptionError, match=words):
            wf.backtest(wf.WishartForecaster(**SMALL), y, **{"fh": 3, "initial": 150, **options})


def test_a_day_that_is_no_month_start_is_no_step(y):
    model = wf.WishartForecaster(**SMALL).fit(y.set_axis(pd.date_range("2000-01-01", periods=N, freq="MS")))
    end = model.end_
    for day in (end + pd.Timedelta("3D"), end + pd.Timedelta("45D")):
        with pytest.raises(OptionError, match="is no step after the end"):
            model.forecast([day])


def test_two_calls_agree_and_another_seed_differs(fitted):
    one, two = fitted.predict(4), fitted.predict(4)
    pd.testing.assert_frame_equal(one, two)
    assert not np.allclose(fitted.forecast(4, n_draws=20, random_state=3).mean, fitted.forecast(4, n_draws=20).mean)


def test_noise_does_not_repeat_from_one_end_to_the_next(fitted, y):
    """From the same state an hour later: the same law, other draws."""
    import copy

    last = y.iloc[149:150]
    later = copy.copy(fitted).update(last.set_axis(last.index + pd.Timedelta("1h")))
    first, second = (model.forecast(1, n_draws=400).samples.values[:, 0] for model in (fitted, later))
    assert np.isclose(first, second).mean() < 0.01
    assert np.abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < 0.2
    np.testing.assert_allclose(first.mean(0), second.mean(0), atol=5 * first.std() / 20)


def test_series_of_a_panel_have_noise_of_their_own(y):
    """Two series that are the same: the same law, other draws."""
    found = wf.WishartForecaster(**SMALL).fit({"x": y, "z": y}).forecast(1, n_draws=50)
    assert not np.isclose(found["x"].samples, found["z"].samples).any()


def test_seeds_of_noise_do_not_depend_on_the_process():
    assert noise_seed(0, None, pd.Timestamp("2016-01-01")) == 2303522943
    seeds = {noise_seed(seed, key, end) for seed in (0, 1) for key in (None, "x") for end in (1, 2)}
    assert len(seeds) == 8


def test_frames_have_the_columns_of_sktime(fitted):
    steps = [1, 3]
    assert list(fitted.predict(steps).columns) == ["a", "b"]
    interval = fitted.predict_interval(steps, coverage=[0.5, 0.9])
    assert interval.columns.tolist() == [
        (v, c, side) for v in ("a", "b") for c in (0.5, 0.9) for side in ("lower", "upper")
    ]
    quantiles = fitted.predict_quantiles(steps, alpha=[0.05, 0.95])
    assert quantiles.columns.tolist() == [("a", 0.05), ("a", 0.95), ("b", 0.05), ("b", 0.95)]
    np.testing.assert_allclose(interval["a", 0.9, "lower"], quantiles["a", 0.05])
    assert (fitted.predict_var(steps) > 0).all().all()


@SLOW
def test_the_density_of_a_forecast_integrates_to_one():
    series = pd.Series(5.0 + simulated()[:, 0], index=HOURS)
    model = wf.WishartForecaster(**SMALL).fit(series)
    found = model.forecast([2], n_draws=60)
    grid = np.linspace(-1.0, 11.0, 400)
    density = [np.exp(found.log_prob(np.array([[g]])).iloc[0]) for g in grid]
    assert trapezoid(density, grid) == pytest.approx(1.0, abs=2e-3)
    sampled = found.samples.values[:, 0, 0]
    assert trapezoid(grid * density, grid) == pytest.approx(sampled.mean(), abs=4 * sampled.std() / 60**0.5)


def test_the_moments_of_a_forecast_give_nearly_its_density(fitted, y):
    """The law is close to Gaussian, so the two kinds of log density agree; an unknown kind is named."""
    forecast = fitted.forecast(5, n_draws=2000)
    rows = y.iloc[150:155]
    np.testing.assert_allclose(forecast.log_prob(rows, kind="moments"), forecast.log_prob(rows), atol=0.4)
    with pytest.raises(OptionError, match="'moments'"):
        forecast.log_prob(rows, kind="log")


@pytest.mark.slow
@pytest.mark.parametrize("innovations", ["gaussian", pytest.param("student_t", marks=SLOW)])
def test_log_prob_goes_on_from_the_end_of_training(y, monkeypatch, innovations):
    monkeypatch.setattr(autoregressive, "N_SCORE_DRAWS", 500)
    # With many degrees of freedom JJᵀ varies little, so a mixture over some hundred draws is known well.
    diffusion = wf.diffusions.Wishart(rank=2, dof=12, unit_rows=False)
    fitted = wf.WishartForecaster(**{**SMALL, "diffusion": diffusion, "innovations": innovations}).fit(y.iloc[:150])
    new = y.iloc[150:160]
    scores = fitted.log_prob(new)
    assert scores.index.equals(new.index) and scores.notna().all()
    one = fitted.forecast([1], n_draws=1000)
    # One step ahead, both are mixtures over draws of J at the last row.
    assert one.log_prob(new.iloc[:1]).iloc[0] == pytest.approx(scores.iloc[0], abs=0.05)


@SLOW
def test_another_unit_shifts_the_log_density(y):
    one = wf.WishartForecaster(**SMALL).fit(y).log_prob(y)
    other = wf.WishartForecaster(**SMALL).fit(1000.0 * y).log_prob(1000.0 * y)
    np.testing.assert_allclose((one - other).iloc[1:], 2 * np.log(1000.0), rtol=1e-4)


@pytest.mark.slow
def test_transforms_keep_their_range_and_carry_their_jacobian(y):
    positive = np.exp(0.3 * (y - 10.0))
    model = wf.WishartForecaster(transform={"a": "log", "b": "sqrt"}, **SMALL).fit(positive)
    draws = model.forecast(20, n_draws=200).samples.values
    # The root goes on below zero, by little.
    assert (draws[..., 0] > 0.0).all() and (draws[..., 1] > -positive["b"].median()).all()
    logged = positive.assign(a=np.log(positive["a"]), b=np.sqrt(positive["b"]))
    plain = wf.WishartForecaster(**SMALL).fit(logged)
    jacobian = -np.log(positive["a"]) - np.log(2 * np.sqrt(positive["b"]))
    np.testing.assert_allclose(model.log_prob(positive), plain.log_prob(logged) + jacobian, rtol=1e-8)


@pytest.mark.slow
def test_series_with_zeros_are_forecast_by_log1p_and_cut_by_who_wants_it(y):
    """Half of the rows are zero, as with rain. Draws lie above −1, some below zero; none is cut, as no density is."""
    rain = (y - y.median()).clip(lower=0.0)
    model = wf.WishartForecaster(transform="log1p", **SMALL).fit(rain)
    assert (rain == 0.0).mean().min() > 0.4
    draws = model.forecast(30, n_draws=300).samples.values
    assert np.isfinite(draws).all() and draws.min() > -1.0
    assert (draws < 0.0).mean() > 0.05 and (draws != 0.0).all()
    plain = wf.WishartForecaster(**SMALL).fit(np.log1p(rain))
    np.testing.assert_allclose(draws, np.expm1(plain.forecast(30, n_draws=300).samples.values), rtol=1e-6)
    expected = plain.log_prob(np.log1p(rain)) - np.log1p(rain).sum(axis=1)
    np.testing.assert_allclose(model.log_prob(rain), expected, rtol=1e-8)
    assert np.isfinite(model.log_prob(rain).iloc[1:]).all()


@pytest.mark.slow
def test_limits_keep_paths_near_what_was_seen(y, tmp_path):
    """The share of the range counts on the scale of the model; paths that never reach a limit do not change."""
    rows, kind = y.iloc[:150], {**SMALL, "transform": "asinh", "innovations": "student_t"}
    with pytest.warns(UserWarning, match="no mean"):
        models = {share: wf.WishartForecaster(**kind, limits=share).fit(rows) for share in (None, 0, 0.2, 1e9)}
    draws = {share: np.arcsinh(model.forecast(40, n_draws=300).samples.values) for share, model in models.items()}
    seen = np.arcsinh(rows.to_numpy())
    low, high = seen.min(axis=0), seen.max(axis=0)
    for share in (0, 0.2):
        assert (draws[share] >= low - share * (high - low) - 1e-9).all()
        assert (draws[share] <= high + share * (high - low) + 1e-9).all()
        assert not (draws[None] <= high + share * (high - low)).all()
    np.testing.assert_array_equal(draws[1e9], draws[None])
    models[0].save(tmp_path / "model.wf")
    again = wf.load(tmp_path / "model.wf").forecast(40, n_draws=300).samples.values
    np.testing.assert_array_equal(np.arcsinh(again), draws[0])


def test_limits_hold_rows_seen_after_training(y):
    """A row outside of what was seen in training is no path's fault: limits reach that far."""
    model = wf.WishartForecaster(**SMALL, limits=0).fit(y.iloc[:150])
    high = y.iloc[:150].max() + 30.0
    later = model.update(pd.DataFrame([high], index=HOURS[150:151])).forecast(1, n_draws=200).samples.values
    assert (later <= high.to_numpy() + 1e-9).all() and (later.max(axis=(0, 1)) > high.to_numpy() - 10.0).all()


@SLOW
def test_limits_follow_training_that_goes_on(y):
    model = wf.WishartForecaster(**SMALL, limits=0).fit(y.iloc[:100])
    before = model.limits_
    higher = y.iloc[100:150] + 20.0
    model.update(higher, update_params=True)
    np.testing.assert_array_equal(model.limits_[0], before[0])
    np.testing.assert_allclose(model.limits_[1], model.units_.forward(higher.to_numpy()).max(axis=0))


@pytest.mark.slow
def test_updating_is_fitting_without_training(fitted, y):
    """Conditioned on all rows the forecasts start there; the model has not changed."""
    import copy

    moved = copy.copy(fitted).update(y.iloc[150:180])
    found = moved.forecast(2, n_draws=20)
    assert found.index[0] == HOURS[180]
    assert fitted.forecast(2, n_draws=20).index[0] == HOURS[150]
    assert moved.model_ is fitted.model_
    trained = copy.copy(fitted).update(y.iloc[150:], update_params=True)
    assert trained.n_iter_ > fitted.n_iter_


@pytest.mark.slow
@pytest.mark.parametrize("is_regular", [pytest.param(True, marks=pytest.mark.long), False])
def test_holes_irregular_stamps_and_whole_rows(y, is_regular):
    rng = np.random.default_rng(1)
    holed = y.mask(rng.uniform(size=y.shape) < 0.2)
    holed.iloc[40:43] = np.nan
    keep = np.sort(rng.choice(N, 150, replace=False))
    times = np.sort(rng.uniform(0, 200, size=150))
    frame = holed if is_regular else pd.DataFrame(holed.iloc[keep].to_numpy(), index=times)
    model = wf.WishartForecaster(**SMALL).fit(frame)
    assert np.isfinite(model.history_["objective"]).all()
    end = frame.index[-1]
    stamps = 3 if is_regular else pd.Index([end + 1.7, end + 4.0])
    assert np.isfinite(model.forecast(stamps, n_draws=30).samples).all()
    assert np.isfinite(model.log_prob(frame).dropna()).all()
    if not is_regular:
        with pytest.raises(OptionError, match="irregular"):
            model.forecast(3)


def test_lags_calendar_and_covariates(y):
    stamps = pd.date_range(HOURS[0], periods=N + 5, freq="h")
    X = pd.DataFrame({"load": np.sin(np.arange(N + 5) / 5)}, index=stamps)
    model = wf.WishartForecaster(lags=3, calendar=True, **SMALL).fit(y, X)
    assert model.units_.periods == ("day", "week")
    assert model.forecast(5, X, n_draws=20).samples.shape == (20, 5, 2)
    with pytest.raises(DataError, match="no row for"):
        model.forecast(6, X)
    with pytest.raises(DataError, match="no X"):
        model.forecast(5)


@SLOW
def test_covariates_of_a_step_are_those_of_the_row_where_it_arrives():
    """y moves by 3u, u being that of the new row: a forecast follows X at its stamps, not at the end of the data."""
    rng = np.random.default_rng(0)
    u = rng.integers(0, 2, size=N).astype(float)
    level = np.cumsum(3.0 * (u - 0.5) + 0.1 * rng.normal(size=N))
    y, X = (pd.DataFrame({name: values}, index=HOURS) for name, values in (("a", level), ("u", u)))
    model = wf.WishartForecaster(**{**SMALL, "drift": "linear", "rank": 1, "max_iter": 200}).fit(y.iloc[:150], X)
    for arrives in (0.0, 1.0):
        at_end = X.copy()
        at_end.loc[HOURS[150], "u"] = arrives
        moved = model.forecast(1, at_end, n_draws=200).mean["a"].iloc[0] - level[149]
        assert moved == pytest.approx(3.0 * (arrives - 0.5), abs=0.3)
    other_past = X.assign(u=np.where(np.arange(N) == 149, 1.0 - u, u))
    one, two = (model.forecast(1, known, n_draws=9).samples for known in (other_past, X))
    np.testing.assert_array_equal(one, two)


def test_a_panel_trains_one_model(y):
    other = y.iloc[:90] + 1.0
    long = pd.concat({"x": y, "z": other})
    model = wf.WishartForecaster(**SMALL).fit(long)
    found = model.forecast(2, n_draws=10)
    assert set(found) == {"x", "z"} and found["z"].index[0] == HOURS[90]
    frame = model.predict(2)
    assert frame.index.nlevels == 2 and len(frame) == 4
    again = wf.WishartForecaster(**SMALL).fit({"x": y, "z": other})
    pd.testing.assert_frame_equal(again.predict(2), frame)


@pytest.mark.slow
def test_covariances_are_covariances_in_units_of_the_data(y):
    fitted = wf.WishartForecaster(**{**SMALL, "max_iter": 1500, "drift": "linear", "n_train_samples": 8}).fit(y)
    rate = fitted.covariance(y)
    assert rate.dims == ("time", "variable", "variable_2") and rate.shape == (N, 2, 2)
    assert (np.linalg.eigvalsh(rate.values) > 0).all()
    correlation = fitted.correlation(y).values
    np.testing.assert_allclose(np.diagonal(correlation, axis1=1, axis2=2), 1.0)
    residual_sd = (y["a"] - 10 - 0.9 * (y["a"].shift() - 10)).std()
    found = np.sqrt(rate.sel(variable="a", variable_2="a").values).mean()
    assert found == pytest.approx(residual_sd, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["independent", "shared"])
def test_constant_noise_is_found_soon(columns):
    """Not where J has mean zero, which is stationary: there Σ is .4 off after as many iterations."""
    options = {"drift": "linear", "n_inducing": 5, "max_iter": 500, "batch_size": 128, "n_train_samples": 8}
    y = simulated(1000)
    model = wf.WishartForecaster(diffusion=wf.diffusions.Wishart(rank=2, columns=columns), **options).fit(y)
    truth = np.array([[0.25, 0.2], [0.2, 0.2]])
    error = np.linalg.norm(model.covariance(y[:10]).values - truth, axis=(1, 2)) / np.linalg.norm(truth)
    assert np.median(error) < 0.25


def test_a_file_holds_candidates_whose_scores_are_not_finite(fitted, tmp_path):
    model = copy.copy(fitted)
    scores = {"crps 1": [np.nan, 0.5, np.inf], "crps 2": [0.1, 0.2, 0.3], "kept": [False, True, False]}
    model.validation_history_ = pd.DataFrame({"candidate": ["a", "b", "c"], **scores})
    model.save(tmp_path / "model")
    found = wf.load(tmp_path / "model").validation_history_
    pd.testing.assert_frame_equal(found, model.validation_history_)


@pytest.mark.parametrize("index", ["hours", *(pytest.param(n, marks=SLOW) for n in ("periods", "numbers", "months"))])
def test_a_file_gives_back_the_same_forecasts(y, index, tmp_path):
    stamps = {
        "hours": HOURS,
        "periods": pd.period_range("2000-01", periods=N, freq="M"),
        "numbers": pd.RangeIndex(N),
        "months": pd.date_range("2000-01-01", periods=N, freq="MS"),
    }[index]
    frame = y.set_axis(stamps)
    model = wf.WishartForecaster(lags=5, transform={"a": "asinh"}, calendar=index == "hours", **SMALL).fit(frame)
    model.save(tmp_path / "model.wf")
    again = wf.load(tmp_path / "model.wf")
    one, two = model.forecast(3, n_draws=10), again.forecast(3, n_draws=10)
    np.testing.assert_array_equal(one.samples, two.samples)
    assert one.index.equals(two.index)
    pd.testing.assert_series_equal(model.log_prob(frame), again.log_prob(frame))


@pytest.mark.slow
@pytest.mark.parametrize("transform", [{"a": "log"}, FunctionTransformer(np.arcsinh, np.sinh)], ids=["name", "object"])
def test_a_pickle_gives_back_the_same_forecasts(y, transform):
    model = wf.WishartForecaster(transform=transform, **SMALL).fit(y.abs())
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.forecast(3, n_draws=10).samples, model.forecast(3, n_draws=10).samples)
    np.testing.assert_array_equal(again.log_prob(y.abs()), model.log_prob(y.abs()))


@pytest.mark.parametrize("name", ["wishart", "gp"])
def test_series_by_name_have_the_structured_q_and_specs_their_own(name):
    """The comparison on Beijing was made with it; flows have the rotated one."""
    assert wf.WishartForecaster(diffusion=name)._spec(1).diffusion.posterior == "structured"
    given = wf.diffusions.Wishart(rank=2, posterior="full")
    assert wf.WishartForecaster(diffusion=given)._spec(1).diffusion.posterior == "full"


def test_densities_do_not_depend_on_the_types_of_the_process(fitted, y):
    """All of prediction is in float64, whatever JAX is told outside of it."""
    with jax.enable_x64(True):
        expected = fitted.log_prob(y), fitted.forecast(3, n_draws=8).log_prob(y.iloc[:3].to_numpy())
    with jax.enable_x64(False):
        found = fitted.log_prob(y), fitted.forecast(3, n_draws=8).log_prob(y.iloc[:3].to_numpy())
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_backtest_scores_by_horizon(fitted, y):
    scores = wf.backtest(fitted, y, fh=6, initial=150, step=10, n_draws=50)
    assert dict(scores.sizes) == {"origin": 5, "horizon": 6, "variable": 2}
    assert (scores["crps"] > 0).all() and np.isfinite(scores["log_density"]).all()
    assert scores["crps"].mean(("origin", "variable"))[0] < scores["crps"].mean(("origin", "variable"))[-1]
    assert np.isfinite(scores["log_density_moments"]).all()
    unfitted = wf.backtest(wf.WishartForecaster(**SMALL), y, fh=6, initial=150, step=10, n_draws=50)
    np.testing.assert_allclose(unfitted["crps"], scores["crps"])


def test_the_horizon_of_a_backtest_is_that_of_a_forecast(fitted, y):
    whole = wf.backtest(fitted, y, fh=3, initial=150, step=20, n_draws=50)
    for fh in ("3h", pd.Timedelta("3h"), [3, 1, 2]):
        found = wf.backtest(fitted, y, fh=fh, initial=150, step=20, n_draws=50)
        assert list(found["horizon"].values) == [1, 2, 3]
        np.testing.assert_array_equal(found["crps"], whole["crps"])
    for fh, words in ((HOURS[160:162], "horizon of its own"), (True, "fh=True"), ([1, 1], "twice"), (0, "at least 1")):
        with pytest.raises(OptionError, match=words):
            wf.backtest(fitted, y, fh=fh, initial=150)


def test_the_first_origin_of_a_backtest_is_a_place_in_the_data(fitted, y):
    """Rows, a share, or a stamp; a stamp without a zone is of the zone of the data."""
    here = HOURS[150]
    other = here.tz_convert("Asia/Tokyo")
    for initial in (150, 0.75, here, other, here.tz_localize(None), str(here.tz_localize(None))):
        found = wf.backtest(fitted, y, fh=3, initial=initial, step=50, n_draws=2)
        assert found["origin"].values[0] == np.datetime64(here.tz_convert("UTC").tz_localize(None))
    for wrong in ("not a stamp", object()):
        with pytest.raises(OptionError, match="a stamp of the kind of the index"):
            wf.backtest(fitted, y, fh=3, initial=wrong)
    with pytest.raises(OptionError, match="a stamp of the kind of the index"):
        wf.backtest(wf.WishartForecaster(**SMALL), y.tz_localize(None), fh=3, initial=here)


def test_backtest_scores_correlations(fitted, y):
    """The variogram score of every origin and horizon is that of its draws; NaN where an entry is missing."""
    holed = y.copy()
    holed.iloc[151, 0] = np.nan
    found = wf.backtest(fitted, holed, fh=3, initial=150, step=20, n_draws=50)["variogram"]
    assert found.dims == ("origin", "horizon") and np.isnan(found[0, 1])
    expected = wf.metrics.variogram_score(y.iloc[150:153].to_numpy(), fitted.forecast(3, n_draws=50).samples.values)
    np.testing.assert_allclose(found[0, [0, 2]], expected[[0, 2]])


def test_a_backtest_that_refits_has_a_new_model_every_few_origins(fitted, y):
    few = {"fh": 3, "step": 10, "n_draws": 10}
    found = wf.backtest(fitted, y, initial=150, refit=2, **few)
    once = wf.backtest(fitted, y, initial=150, **few)
    assert dict(found.sizes) == dict(once.sizes) and found.attrs == once.attrs
    np.testing.assert_array_equal(found["origin"], once["origin"])
    for first, last in ((0, 2), (2, 4), (4, 5)):
        rows = 150 + 10 * first
        expected = wf.backtest(wf.WishartForecaster(**SMALL), y, initial=rows, **few)
        np.testing.assert_array_equal(found["crps"][first:last], expected["crps"][: last - first])
    assert fitted.end_ == HOURS[149]


def test_backtest_takes_arrays(y):
    """Row i of covariates belongs to row i of y, also where y has stamps."""
    u = np.random.default_rng(0).normal(size=(N, 1))
    few = {"fh": 3, "initial": 190, "n_draws": 10}
    by_array = wf.backtest(wf.WishartForecaster(**SMALL), y, u, **few)
    by_stamp = wf.backtest(wf.WishartForecaster(**SMALL), y, pd.DataFrame(u, HOURS), **few)
    np.testing.assert_array_equal(by_array["crps"], by_stamp["crps"])
    both = wf.backtest(wf.WishartForecaster(**SMALL), y.to_numpy(), u, **few)
    assert list(both["origin"].values) == [190, 193, 196]
    with pytest.raises(DataError, match="X is an array of 150 rows; y has 200 rows"):
        wf.backtest(wf.WishartForecaster(**SMALL), y, u[:150], **few)


def test_backtest_of_a_fitted_forecaster_finds_columns_as_its_update_does(y):
    """Those of arrays by their places, those of frames by their names."""
    u = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 2)), columns=["wind", "sun"])
    y = y.reset_index(drop=True)
    fitted = wf.WishartForecaster(**SMALL).fit(y.iloc[:180], u)
    few = {"fh": 3, "initial": 190, "n_draws": 10}
    expected = wf.backtest(fitted, y, u, **few)
    for rows, known in ((y, u.to_numpy()), (y.to_numpy(), u), (y.to_numpy(), u.to_numpy()), (y[y.columns[::-1]], u)):
        for refit in (None, 2):
            found = wf.backtest(fitted, rows, known, refit=refit, **few)
            assert list(found["variable"].values) == list(y.columns)
            np.testing.assert_array_equal(found["crps"][0], expected["crps"][0])
    hourly = wf.WishartForecaster(**SMALL).fit(y.iloc[:180].set_axis(HOURS[:180]))
    with pytest.raises(DataError, match="y has stamps that are numbers, the data of fit has times"):
        wf.backtest(hourly, y.to_numpy(), **few)


def test_a_backtest_whose_later_fits_have_other_steps_is_refused():
    """Without a Wednesday in its first weeks a series has steps of days, and later those of business days."""
    index = pd.bdate_range("2024-01-01", periods=60)
    index = index[(index.dayofweek != 2) | (np.arange(60) >= 40)]
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(len(index), 2)).cumsum(axis=0), index)
    with pytest.raises(OptionError, match=r"the rows before .* have steps of 'B', those of the first fit have 'D'"):
        wf.backtest(wf.WishartForecaster(**SMALL), rows, fh=2, initial=30, refit=3, n_draws=5)


def test_backtest_scores_rows_at_their_own_stamps(fitted, y):
    """A row that is not there has no score, and those after it keep their horizon."""
    whole = wf.backtest(fitted, y, fh=6, initial=150, step=10, n_draws=50)["crps"]
    gap = wf.backtest(fitted, y.drop(index=HOURS[152]), fh=6, initial=150, step=50, n_draws=50)["crps"]
    assert np.isnan(gap[0, 2]).all()
    np.testing.assert_array_equal(gap[0, [0, 1, 3, 4, 5]], whole[0, [0, 1, 3, 4, 5]])


@pytest.mark.slow
def test_student_t_innovations_are_kept_in_files_and_warn_where_there_is_no_mean(y, tmp_path):
    with pytest.warns(UserWarning, match="no mean"):
        model = wf.WishartForecaster(**{**SMALL, "innovations": "student_t", "transform": "asinh"}).fit(y)
    model.save(tmp_path / "model.wf")
    again = wf.load(tmp_path / "model.wf")
    assert again.model_.field.tail_dof.value == model.model_.field.tail_dof.value
    np.testing.assert_array_equal(again.forecast(3, n_draws=5).samples, model.forecast(3, n_draws=5).samples)


@pytest.mark.parametrize(
    "option",
    [
        *({"drift": "gp"}, {"white_noise": "state"}),
        *(pytest.param(o, marks=SLOW) for o in ({"diffusion": "gp"}, {"objective": "rollout"})),
        *(pytest.param({"drift": d}, marks=SLOW) for d in ("linear", "none")),
        *(pytest.param({"diffusion": d}, marks=SLOW) for d in ("diagonal", "none")),
        pytest.param({"columns": "shared"}, marks=SLOW),
    ],
    ids=str,
)
def test_every_model_trains_and_forecasts(y, option):
    model = wf.WishartForecaster(**{**SMALL, **option}).fit(y)
    assert np.isfinite(model.history_["objective"]).all()
    assert np.isfinite(model.forecast(3, n_draws=10).samples).all()


BAD = {
    "unsorted": (lambda y: y.iloc[::-1], "sort_index"),
    "duplicated": (lambda y: pd.concat([y, y.iloc[-1:] + 1.0]), "twice"),
    "NaT": (lambda y: y.set_axis([*y.index[:-1], pd.NaT]), "NaT"),
    "constant": (lambda y: y.assign(b=1.0), "'b' is constant"),
    "empty column": (lambda y: y.assign(b=np.nan), "no value at all"),
    "object": (lambda y: y.assign(b="x"), "do not hold numbers: b"),
    "no rows": (lambda y: y.iloc[:0], "y has no rows"),
    "no columns": (lambda y: y[[]], "y has no columns"),
    "an empty frame": (lambda y: pd.DataFrame(), "y has no rows"),
    "an empty panel": (lambda y: pd.concat({"x": y}).iloc[:0], "y has no rows"),
    "a series of a panel without rows": (lambda y: {"x": y, "z": y.iloc[:0]}, r"y\['z'\] has no rows"),
    "short": (lambda y: y.iloc[:2], "needs at least"),
    "infinite": (lambda y: y.replace(y.iloc[3, 0], np.inf), "infinity"),
    "text index": (lambda y: y.set_axis([f"r{i:04d}" for i in range(len(y))]), "expected time stamps"),
    "a list": (lambda y: [1, 2, 3], "is a list"),
    "a series of a panel without a value": (lambda y: {"x": y, "z": y * np.nan}, "the series 'z' of the panel has no"),
    "columns with levels": (lambda y: pd.concat({"g": y}, axis=1), r"2 levels, such as \('g', 'a'\)"),
    "columns that are tuples": (
        lambda y: y.set_axis(pd.Index([("g", "a"), ("g", "b")], tupleize_cols=False), axis=1),
        "have 2 levels",
    ),
    "columns of one name": (lambda y: y.set_axis(["a", "a"], axis=1), "two columns of y have the name 'a'"),
    "a panel with columns of one name": (lambda y: {"x": y.set_axis(["a", "a"], axis=1)}, "the name 'a'"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_named(y, kind):
    change, words = BAD[kind]
    with pytest.raises(DataError, match=words):
        wf.WishartForecaster(**SMALL).fit(change(y))


@pytest.mark.parametrize(
    "fh, words",
    [
        *((0, "at least 1"), (HOURS[100:103], "after the end"), (None, "fh=None"), ("soon", "time span")),
        *((True, "fh=True given; expected steps"), ([1, 3, 1], "1 twice"), (HOURS[[150, 150]], "twice")),
        *(([], "is empty"), ([1.5], "float64; expected stamps as in the data"), (HOURS[150].tz_localize(None), "zone")),
        ([HOURS[149] + pd.Timedelta("1s")], "no step after"),
        ([HOURS[150], pd.NaT], "NaT"),
    ],
    ids=str,
)
def test_bad_horizons_are_named(fitted, fh, words):
    with pytest.raises(OptionError, match=words):
        fitted.forecast(fh)


@pytest.mark.parametrize(
    "stamps, fh, words",
    [
        (pd.RangeIndex(N), "2h", "are numbers"),
        (pd.RangeIndex(N), HOURS[-2:], "end at 199"),
        (pd.period_range("2000-01", periods=N, freq="M"), "2h", "those of M"),
        (pd.period_range("2000-01", periods=N, freq="M"), HOURS[-2:], "Period"),
        (pd.period_range("2000-01", periods=N, freq="M"), pd.period_range("2030", periods=2, freq="Y"), "period"),
    ],
    ids=["span", "times", "span of months", "times for periods", "other periods"],
)
def test_horizons_of_another_kind_are_named(stamps, fh, words):
    with pytest.raises(OptionError, match=words):
        horizon(TimeAxis.of([stamps]), fh, stamps[-1])


@pytest.mark.parametrize(
    "option",
    [
        {"drift": "cubic"},
        {"white_noise": "pink"},
        {"innovations": "cauchy"},
        {"innovations": "student_t", "objective": "rollout"},
        {"innovations": "student_t", "latent_dim": 1},
        {"objective": "guess"},
        {"lags": 0},
        {"preset": "slow"},
        {"transform": "log2"},
        {"diffusion": "brown"},
        {"calendar": 1},
        *({"step": value} for value in (0, -0.5, np.nan, np.inf, "h", None, True)),
        {"step": 0.5, "lags": 2},
        {"limits": -0.1},
        {"limits": "data"},
        {"limits": 0.0, "latent_dim": 1},
    ],
    ids=str,
)
def test_unknown_options_are_named(y, option):
    with pytest.raises(OptionError, match=next(iter(option))):
        wf.WishartForecaster(**{**SMALL, **option}).fit(y)


@SLOW
def test_columns_that_stopped_long_ago_keep_their_last_value(y):
    """The rows a forecast starts from reach back to the last value of every column, and to some row at least."""
    silent = y.copy()
    silent.iloc[-120:, 0] = np.nan
    model = wf.WishartForecaster(**SMALL).fit(silent)
    assert model.tails_[None].index[0] <= HOURS[N - 121]
    silent.iloc[-120:] = np.nan
    found = wf.WishartForecaster(**SMALL).fit(silent).forecast(2, n_draws=5)
    assert found.index[0] == HOURS[-1] + pd.Timedelta("1h") and np.isfinite(found.samples).all()


def test_a_corrected_row_changes_nothing_after_it(fitted, y):
    import copy

    corrected = copy.copy(fitted).update(y.iloc[100:101] + 1.0)
    assert corrected.end_ == fitted.end_
    np.testing.assert_array_equal(corrected.forecast(1, n_draws=5).samples, fitted.forecast(1, n_draws=5).samples)


@pytest.mark.parametrize("name", [0, *(pytest.param(name, marks=SLOW) for name in (None, "load"))])
def test_a_series_keeps_its_name(y, name, tmp_path):
    fitted = wf.WishartForecaster(**SMALL).fit(y["a"].rename(name))
    assert fitted.predict(2).name == name
    fitted.save(tmp_path / "model")
    assert wf.load(tmp_path / "model").predict(2).name == name


def test_business_days_are_counted_without_weekends():
    days = pd.bdate_range("2024-01-04", periods=9)
    axis = TimeAxis.of([days])
    assert np.array_equal(axis.units(days, float(axis.numbers(days[:1])[0])), np.arange(9))
    assert axis.ahead(days[-1], [1])[0] == pd.Timestamp("2024-01-17")


def test_periods_have_a_frequency_of_their_own(y):
    monthly = y.set_axis(pd.period_range("2000-01", periods=N, freq="M"))
    with pytest.raises(OptionError, match="periods of M"):
        wf.WishartForecaster(**SMALL, freq="h").fit(monthly)


@pytest.mark.parametrize(
    "stamps",
    [pd.period_range("2000-01", periods=60, freq="2M"), pd.date_range("2000-01-31", periods=60, freq="2ME")],
    ids=["periods", "month ends"],
)
def test_steps_of_several_months(y, stamps):
    frame = y.iloc[:60].set_axis(stamps[:60])
    model = wf.WishartForecaster(lags=2, **SMALL).fit(frame.iloc[:50])
    assert model.forecast(3, n_draws=5).index.equals(stamps[50:53])


def test_the_adapter_of_sktime_has_the_same_options():
    """Read from its source, because sktime itself is not always there."""
    source = Path(wf.__file__).with_name("sktime.py").read_text(encoding="utf-8")
    inits = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    (init,) = inits
    names = [argument.arg for argument in init.args.args[1:]]
    defaults = [ast.literal_eval(default) for default in init.args.defaults]
    assert dict(zip(names, defaults, strict=True)) == wf.WishartForecaster().get_params(deep=False)


@pytest.mark.parametrize(
    ("options", "n_draws"),
    [
        ({}, 32),
        ({"preset": "paper"}, 32),
        ({"objective": "rollout"}, 8),
        ({"latent_dim": 2}, 8),
        ({"n_train_samples": 5}, 5),
        ({"path_average": "log"}, 1),
    ],
)
def test_draws_of_a_step_are_more_than_simulated_paths(options, n_draws):
    """Draws of J for a known step are cheap; a path or a particle costs as much as the model."""
    assert wf.WishartForecaster(**options)._training(100, 3).n_train_samples == n_draws
