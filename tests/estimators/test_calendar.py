"""`calendar` of the forecaster: harmonics, and a daily cycle that changes with the season."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.errors import OptionError
from wishflow.numerics.devices import computing
from wishflow.series import choosing
from wishflow.series.data import calendar
from wishflow.series.layout import Layout

LINEAR = {
    "drift": "linear",
    "diffusion": "diagonal",
    "n_inducing": 4,
    "max_iter": 60,
    "random_state": 0,
    "validation_fraction": 0,
}
DAY, YEAR = 1.0, 365.2425


@pytest.fixture(scope="module")
def y():
    """Two years in steps of six hours; the daily cycle is strong in one half of the year and turned in the other."""
    index = pd.date_range("2020-01-01", periods=4 * 731, freq="6h", name="time")
    t = np.arange(len(index)) / 4
    swing = np.cos(2 * np.pi * t / YEAR) * np.cos(2 * np.pi * t / DAY)
    noise = np.random.default_rng(0).normal(size=(len(index), 2))
    return pd.DataFrame({"a": 3.0 * swing + 0.3 * noise[:, 0], "b": 0.3 * noise[:, 1]}, index=index)


def test_products_span_every_frequency_of_the_day_beside_those_of_the_year():
    """cos((j/day ± k/year) 2πt) and its sine are sums of products, by the addition theorems."""
    index = pd.date_range("2021-05-03", periods=2000, freq="7h")
    found = calendar.harmonics(index, ("day", "year", calendar.SEASONAL))
    products = found[:, -calendar.n_products(("day", "year", calendar.SEASONAL)) :]
    np.testing.assert_array_equal(found[:, : -products.shape[1]], calendar.harmonics(index, ("day", "year")))
    assert products.shape == (2000, 24)
    t = calendar.seconds(index) / 86_400
    for j in (1, 2, 3):
        for k in (-2, -1, 1, 2):
            angle = 2 * np.pi * t * (j / DAY + k / YEAR)
            for wanted in (np.cos(angle), np.sin(angle)):
                residual = wanted - products @ np.linalg.lstsq(products, wanted, rcond=None)[0]
                assert np.abs(residual).max() < 1e-8
    assert calendar.n_products(("day", "year")) == 0


def test_a_daily_cycle_that_turns_with_the_season_is_found(y):
    """A linear drift with fixed harmonics sees a mean cycle, which is none here."""
    train, rest = y.iloc[:-60], y.iloc[-60:-56]
    errors = {}
    for name in (True, "seasonal"):
        model = wf.WishartForecaster(calendar=name, **LINEAR).fit(train)
        errors[name] = np.sqrt(np.mean((model.forecast(4, n_draws=400).mean["a"] - rest["a"]) ** 2))
    assert errors["seasonal"] < 0.6 < 1.2 < errors[True]


@pytest.mark.slow
def test_the_kernel_and_the_noise_do_not_see_products(y, types_unchecked):
    options = {"calendar": "seasonal", "lags": 2, "rank": 2, "n_inducing": 8, "max_iter": 3, "white_noise": "state"}
    model = wf.WishartForecaster(**options).fit(y)
    assert model.units_.periods == ("day", "week", "year", calendar.SEASONAL)
    layout = model.model_.layout
    assert (layout.n_covariates, layout.n_linear) == (14 + 24, 24)
    assert model.model_.field.basis.Z.shape[1] == layout.n_kernel_inputs == 2 + 14
    X = np.random.default_rng(1).normal(size=(5, layout.n_lagged + layout.n_covariates))
    other = X.copy()
    other[:, -24:] += 1.0
    with computing():
        field = model.model_.field.prepare()
        here, there = field.at(jnp.asarray(X)), field.at(jnp.asarray(other))
        np.testing.assert_array_equal(here.mean_covariance(), there.mean_covariance())
        shift = np.asarray(model.model_.field.linear.weights)[:, -24:].sum(1)
        np.testing.assert_allclose(there.drift - here.drift, np.tile(shift, (5, 1)), atol=1e-12)
        assert np.abs(shift).max() > 0


def test_a_stored_model_forecasts_the_same(y, tmp_path):
    model = wf.WishartForecaster(calendar="seasonal", rank=2, n_inducing=8, max_iter=3).fit(y)
    model.save(tmp_path / "model.wf")
    again = wf.load(tmp_path / "model.wf")
    np.testing.assert_array_equal(again.forecast(3, n_draws=5).samples, model.forecast(3, n_draws=5).samples)


def test_less_than_a_year_has_no_products(y):
    model = wf.WishartForecaster(calendar="seasonal", **{**LINEAR, "max_iter": 1}).fit(y.iloc[:800])
    assert model.units_.periods == ("day", "week") and model.model_.layout.n_linear == 0


@pytest.mark.parametrize("option", [{"calendar": "moon"}, {"calendar": "seasonal", "drift": "gp"}], ids=str)
def test_what_cannot_be_is_refused(y, option):
    with pytest.raises(OptionError, match="calendar="):
        wf.WishartForecaster(**option).fit(y)


def test_one_lag_and_many_leave_the_same_inputs_for_the_kernel():
    X = jnp.arange(40.0).reshape(4, 10)
    one = Layout(2, 1, 8, 3).kernel_inputs(X)
    np.testing.assert_array_equal(one, X[:, :7])
    many = Layout(2, 3, 4, 3).kernel_inputs(X)
    np.testing.assert_array_equal(many, X[:, [0, 1, 6]])


@pytest.mark.parametrize(("freq", "name", "n_rows"), [("D", "weekdays", 7), ("MS", "months", 12), ("ME", "months", 12)])
def test_fine_periods_tell_all_rows_of_a_cycle_apart(freq, name, n_rows):
    """As many columns as indicators of the rows have, and of their span."""
    index = pd.date_range("2021-03-03", periods=10 * n_rows, freq=freq)
    periods = (calendar.FINE[name][0], name)
    found = np.column_stack([np.ones(len(index)), calendar.harmonics(index, periods)])
    assert found.shape[1] == np.linalg.matrix_rank(found) == n_rows
    assert calendar.n_products(periods) == n_rows - 1 - 4
    of_rows = index.dayofweek if freq == "D" else index.month
    plain = calendar.harmonics(index, periods)[:, 4:]
    for k in np.unique(of_rows):
        assert np.ptp(plain[of_rows == k], axis=0).max() < 1e-9


@pytest.mark.parametrize(
    ("freq", "fine"), [("D", ("weekdays",)), ("MS", ("months",)), ("B", ()), ("QS", ()), ("h", ())]
)
def test_fine_periods_are_asked_about_where_a_cycle_has_few_rows(freq, fine):
    """Two harmonics tell the five rows of a week and the four of a year apart."""
    index = pd.date_range("2021-03-01", periods=500, freq=freq)
    assert choosing.fine_periods([index], choosing.eligible_periods([index])) == fine


def test_a_peak_in_one_month_is_found():
    rng = np.random.default_rng(0)
    index = pd.date_range("2010-01-01", periods=120, freq="MS")
    y = pd.Series(5.0 * (index.month == 12) + 0.5 * rng.normal(size=120), index)
    model = wf.WishartForecaster(random_state=0).fit(y.iloc[:96])
    assert model.calendar_ == ("year", "months")
    mean = model.forecast(24, n_draws=200).mean.iloc[:, 0]
    assert (mean[mean.index.month == 12] > 4.0).all() and (mean[mean.index.month != 12].abs() < 1.0).all()
    assert "months" in model.summary()


def test_a_model_with_fine_periods_is_stored(tmp_path):
    index = pd.date_range("2010-01-01", periods=60, freq="MS")
    y = pd.Series(5.0 * (index.month == 12) + np.random.default_rng(0).normal(size=60), index)
    model = wf.WishartForecaster(random_state=0).fit(y)
    model.save(tmp_path / "m.wishflow")
    again = wf.load(tmp_path / "m.wishflow")
    assert again.calendar_ == model.calendar_ == ("year", "months")
    pd.testing.assert_frame_equal(again.forecast(12).mean, model.forecast(12).mean)
