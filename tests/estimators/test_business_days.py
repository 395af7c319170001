"""Trading days without `freq`: business days are inferred where the stamps say so, and holidays are missing rows."""

import copy

import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.errors import DataError, OptionError
from wishflow.series.data.horizons import horizon
from wishflow.series.data.times import TimeAxis

SMALL = {"n_inducing": 8, "max_iter": 10, "rank": 2, "n_train_samples": 2, "random_state": 0, "validation_fraction": 0}
ALL = pd.bdate_range("2024-01-02", periods=150)
HOLIDAYS = [9, 34, 62, 104, 105]
DAYS = ALL.delete(HOLIDAYS)
CLOSES = (DAYS + pd.Timedelta("16h")).tz_localize("America/New_York")


def inferred(*indices):
    return TimeAxis.of(list(indices)).step_name


def prices(index=DAYS, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(100.0 + np.cumsum(rng.normal(size=(len(index), 2)), axis=0), index, ["a", "b"])


@pytest.fixture(scope="module")
def fitted():
    return wf.WishartForecaster(**SMALL).fit(prices().iloc[:100])


@pytest.mark.parametrize(
    "index",
    [DAYS, CLOSES, ALL, DAYS[:20], DAYS[:11], ALL[:9].delete(2)],
    ids=["holidays", "closes", "all", "four weeks", "two weekends", "one weekend"],
)
def test_business_days_are_inferred(index):
    axis = TimeAxis.of([index])
    assert axis.step_name == "B" and axis.is_regular
    place = ALL.get_indexer(index.tz_localize(None).normalize())
    np.testing.assert_array_equal(axis.units(index, float(axis.numbers(index[:1])[0])), place - place[0])
    friday = index[index.dayofweek == 4][-1]
    ahead = horizon(axis, 5, friday)
    assert list(ahead.dayofweek) == [0, 1, 2, 3, 4] and ahead.tz == index.tz
    assert (ahead.hour == index[0].hour).all()


def test_a_panel_has_business_days_where_no_series_has_others():
    assert inferred(DAYS, ALL, DAYS[30:33]) == "B"
    assert inferred(DAYS, pd.date_range("2024-01-02", periods=100)) != "B"


CALENDAR = pd.date_range("2024-01-01", periods=200)
HOURS = pd.date_range("2024-01-01", periods=1000, freq="h")


@pytest.mark.parametrize(
    "index",
    [
        ALL[[4, 5, 7, 8]],
        CALENDAR.delete(17),
        pd.date_range("2024-01-03", periods=60, freq="7D").delete(7),
        HOURS[HOURS.dayofweek < 5],
        CALENDAR[CALENDAR.dayofweek != 6].delete(20),
        CALENDAR[~CALENDAR.dayofweek.isin([4, 5])].delete(20),
        CALENDAR[CALENDAR.dayofweek < 4].delete(20),
        CALENDAR[CALENDAR.dayofweek.isin([0, 2, 4])].delete(20),
        DAYS.append(DAYS[[50]] + pd.Timedelta("6h")).sort_values(),
        DAYS[:30].append(pd.DatetimeIndex(["2024-02-17"])),
    ],
    ids=[
        *("one week", "daily", "weekly", "hourly"),
        *("Mon-Sat", "Sun-Thu", "Mon-Thu", "Mon, Wed, Fri", "twice a day", "one Saturday"),
    ],
)
def test_other_calendars_are_left_as_they_are(index):
    axis = TimeAxis.of([index])
    assert axis.kind == "datetime" and axis.freq is None and axis.step_name != "B"


def test_the_frequency_in_use_is_an_attribute(fitted):
    assert fitted.freq_ == "B" and fitted.freq is None
    kinds = {
        "h": pd.date_range("2024-01-01", periods=60, freq="h").delete(7),
        "D": pd.date_range("2024-01-01", periods=60).delete(7),
        "MS": pd.date_range("2010-01-01", periods=60, freq="MS"),
        0.5: pd.Index(0.5 * np.arange(60)),
        None: pd.Index(np.cumsum(np.random.default_rng(0).uniform(size=60))),
    }
    for name, index in kinds.items():
        assert TimeAxis.of([index]).step_name == name
    assert TimeAxis.of([DAYS], "D").step_name == "D"


def test_what_was_inferred_is_said_where_something_is(capsys):
    quick = {**SMALL, "max_iter": 1}
    wf.WishartForecaster(**quick, verbose=1).fit(prices().iloc[:100])
    assert "freq='B' (business days) was inferred from the stamps" in capsys.readouterr().err
    wf.WishartForecaster(**quick).fit(prices().iloc[:100])
    assert not capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("lags", [pytest.param(1, marks=pytest.mark.long), 3])
def test_inferred_business_days_are_those_that_are_given(lags):
    """Forecasts, densities, covariances, updates: bit for bit as with freq="B"; holidays are missing rows."""
    y = prices()
    one, other = (wf.WishartForecaster(freq=freq, lags=lags, **SMALL).fit(y.iloc[:100]) for freq in (None, "B"))
    for model in (one, other):
        model.update(y.iloc[100:110])
    assert one.forecast(10, n_draws=5).index.dayofweek.max() == 4
    np.testing.assert_array_equal(one.forecast(6, n_draws=5).samples, other.forecast(6, n_draws=5).samples)
    np.testing.assert_array_equal(one.log_prob(y.iloc[110:]), other.log_prob(y.iloc[110:]))
    assert np.isfinite(one.log_prob(y.iloc[110:])).all()
    np.testing.assert_array_equal(one.covariance(y.iloc[60:]), other.covariance(y.iloc[60:]))
    assert list(one.covariance(y.iloc[60:])["time"].values) == list(y.index[60:].values)


def test_a_weekend_is_one_step(fitted):
    """From Friday to Monday noise grows as from Monday to Tuesday: Monday is forecast as one step."""
    y = prices()
    friday = int(np.flatnonzero(y.index[100:].dayofweek == 4)[0]) + 100
    model = copy.copy(fitted).update(y.iloc[100 : friday + 1])
    found = model.forecast([y.index[friday] + pd.Timedelta("3D")], n_draws=5)
    np.testing.assert_array_equal(found.samples, model.forecast(1, n_draws=5).samples)
    with pytest.raises(OptionError, match="is no step after the end"):
        model.forecast([y.index[friday] + pd.Timedelta("1D")])
    assert list(model.forecast("7D", n_draws=5).index.dayofweek) == [0, 1, 2, 3, 4]
    with pytest.raises(OptionError, match="at least 1"):
        model.forecast("1D")


def test_a_row_on_a_saturday_is_refused(fitted):
    y = prices()
    friday = y.index[y.index.dayofweek == 4][-1]
    saturday = pd.DataFrame([[1.0, 2.0]], [friday + pd.Timedelta("1D")], ["a", "b"])
    for method in (fitted.update, fitted.log_prob, fitted.covariance):
        with pytest.raises(DataError, match=r"a Saturday, but business days .*freq='D'"):
            method(saturday)


def test_a_business_day_has_one_row(fitted):
    """A second row on a known day is refused; a correction at the stamp of a row is not."""
    y = prices()
    later = y.iloc[99:101].set_axis(y.index[99:101] + pd.Timedelta("16h"))
    stamps = rf"{y.index[99]} and {y.index[99]:%Y-%m-%d} 16:00:00"
    for method in (fitted.update, fitted.log_prob):
        with pytest.raises(DataError, match=rf"two rows fall on one business day: {stamps}.*at its own stamp"):
            method(later)
    assert fitted.end_ == y.index[99]
    twice = pd.concat([y.iloc[100:101], later.iloc[1:]])
    with pytest.raises(DataError, match="two rows fall on one business day"):
        fitted.update(twice)
    corrected = copy.copy(fitted).update(y.iloc[99:101] + 1.0)
    assert corrected.end_ == y.index[100]
    tail = corrected.tails_[None]
    np.testing.assert_allclose(corrected.units_.inverse(tail.values[-2:]), y.iloc[99:101] + 1.0)


def test_a_month_has_one_row():
    months = pd.date_range("2010-01-01", periods=61, freq="MS")
    model = wf.WishartForecaster(**SMALL).fit(prices(months).iloc[:60])
    with pytest.raises(DataError, match=r"two rows fall on one step of freq_='MS': 2014-12-01 .* and 2014-12-16"):
        model.update(prices(months).iloc[59:60].set_axis(months[59:60] + pd.Timedelta("15D")))
    assert model.update(prices(months).iloc[59:]).end_ == months[60]


def test_files_and_backtests_keep_business_days(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = wf.load(tmp_path / "model")
    assert again.freq_ == "B"
    pd.testing.assert_frame_equal(again.predict(5), fitted.predict(5))
    y = prices()
    scores = wf.backtest(fitted, y, fh=5, initial=100, n_draws=20)
    missing = np.isnan(scores["crps"].values).all(axis=-1)
    # Days among those that are forecast are holidays, and have no score; all others have one.
    assert 1 <= missing.sum() <= 2
    assert np.isfinite(scores["log_density"].values[~missing]).all()
    by_span = wf.backtest(fitted, y, fh="7D", initial=100, n_draws=20)
    assert by_span.sizes["horizon"] == 5


@pytest.mark.slow
def test_closes_with_a_time_zone_and_a_calendar():
    y = prices(CLOSES)
    model = wf.WishartForecaster(calendar=True, **SMALL).fit(y.iloc[:140])
    found = model.forecast(7, n_draws=5)
    assert str(found.index.tz) == "America/New_York" and set(found.index.hour) == {16}
    assert np.isfinite(model.log_prob(y.iloc[140:])).all()
