"""Steps of the calendar: what stamps say themselves, offsets of pandas as `freq`, periods."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from pandas.tseries.frequencies import to_offset
from pandas.tseries.holiday import USFederalHolidayCalendar
from sklearn.base import clone

import wishflow as wf
from wishflow.errors import DataError, OptionError
from wishflow.series.data.horizons import horizon, steps_of
from wishflow.series.data.times import TimeAxis, nearly

SMALL = {"n_inducing": 8, "max_iter": 5, "rank": 2, "n_train_samples": 2, "random_state": 0}
FEDERAL = pd.offsets.CustomBusinessDay(calendar=USFederalHolidayCalendar())
SUN_TO_THU = pd.offsets.CustomBusinessDay(weekmask="Sun Mon Tue Wed Thu", holidays=["2024-01-15"])


def walk(index, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(10.0 + np.cumsum(rng.normal(size=(len(index), 2)), axis=0), index, ["a", "b"])


def plain(index):
    """Stamps that say nothing of their frequency themselves."""
    return pd.DatetimeIndex(list(index))


CALENDARS = ["W-MON", "W-SUN", "MS", "ME", "BMS", "BME", "2MS"]
CALENDARS += ["QS-JAN", "QE-DEC", "QS-NOV", "QE-OCT", "YS-APR", "YE-JUN"]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("freq", [*CALENDARS, "D", "B", "2B"])
def test_steps_are_those_of_the_calendar_also_where_some_are_missing(freq, zone):
    """Regular in calendar units though not in seconds: a step is one period, and so is one over a hole."""
    whole = pd.date_range("2023-01-05", periods=40, freq=freq, tz=zone)
    keep = np.delete(np.arange(33), [7, 8, 20])
    for index, given in ((plain(whole[:33]), None), (plain(whole)[keep], None), (plain(whole)[keep], freq)):
        axis = TimeAxis.of([index], given)
        place = whole.get_indexer(index)
        assert axis.is_regular
        np.testing.assert_allclose(axis.since_first(index), place - place[0])
        assert list(horizon(axis, 5, index[-1])) == list(whole[33:38])
        assert list(axis.ahead(index[-1], [-1])) == [whole[31]]


def test_series_of_a_panel_have_one_calendar():
    whole = pd.date_range("2020-01-01", periods=30, freq="MS")
    assert TimeAxis.of([plain(whole), plain(whole[3:20].delete(4)), whole[5:7]]).step_name == "MS"
    quarters = pd.date_range("2020-01-01", periods=30, freq="QS")
    assert TimeAxis.of([plain(quarters), plain(quarters.delete(4))]).step_name == "QS-JAN"
    # Quarters that begin in other months are steps of three months.
    other = pd.date_range("2020-02-01", periods=30, freq="3MS")
    assert TimeAxis.of([plain(quarters.delete(4)), plain(other)]).step_name == "3MS"


@pytest.mark.parametrize("freq", ["QS-NOV", "QE-JAN", "YS-APR", "YE-JUN", "W-WED"])
def test_rows_between_steps_belong_to_the_period_they_lie_in(freq):
    """Quarters from November on: a row in January is of the quarter that began in November."""
    steps = pd.date_range("2020-01-20", periods=6, freq=freq)
    axis = TimeAxis.of([steps], freq)
    is_start = freq[1] == "S"
    inside = steps + pd.Timedelta("3D") if is_start else steps - pd.Timedelta("3D")
    np.testing.assert_array_equal(axis.numbers(inside), axis.numbers(steps))


def test_irregular_months_are_no_steps():
    index = pd.DatetimeIndex(["2020-01-01", "2020-03-01", "2020-05-01", "2020-06-01", "2020-08-01", "2020-10-01"])
    axis = TimeAxis.of([index])
    assert axis.step_name is None
    with pytest.raises(OptionError, match=r"fh=2 counts steps.*irregular \(median gap 61 days.*freq="):
        horizon(axis, 2, index[-1])
    assert TimeAxis.of([index], "MS").is_regular


# --- business days of a calendar of their own -------------------------------------------------------


@pytest.mark.parametrize("offset", [FEDERAL, SUN_TO_THU, 2 * FEDERAL], ids=["federal", "Sun-Thu", "every second"])
def test_calendars_with_holidays_have_no_steps_on_days_off(offset, tmp_path):
    whole = pd.date_range("2024-01-02", periods=60, freq=offset)
    y = walk(plain(whole))
    model = wf.WishartForecaster(freq=offset, **SMALL).fit(y.iloc[:9])
    found = model.forecast(40, n_draws=4)
    assert list(found.index) == list(whole[9:49])
    np.testing.assert_allclose(model.units_.axis.since_first(y.index), np.arange(60))
    with_attribute = wf.WishartForecaster(**SMALL).fit(walk(whole).iloc[:9])
    np.testing.assert_array_equal(with_attribute.forecast(40, n_draws=4).samples, found.samples)
    # The calendar is part of the file, and so is that rows are put on its grid.
    model.save(tmp_path / "model")
    again = wf.load(tmp_path / "model")
    assert again.units_.axis == model.units_.axis
    pickled = pickle.loads(pickle.dumps(again))
    for freq in (model.freq_, again.freq_, again.freq, pickled.freq, clone(again).freq):
        assert pd.date_range("2024-01-02", periods=60, freq=freq).equals(whole)
    early = y.iloc[9:12].set_axis(y.index[9:12] + pd.Timedelta("7h"))
    for each in (model, again):
        each.update(early)
        assert list(each.forecast(40, n_draws=4).index) == list(whole[12:52])
    np.testing.assert_array_equal(again.log_prob(y.iloc[12:]), model.log_prob(y.iloc[12:]))


def test_spans_count_the_days_of_the_calendar():
    end = pd.Timestamp("2024-01-12")  # Monday the 15th is a holiday
    axis = TimeAxis.of([pd.date_range("2024-01-02", end, freq=FEDERAL)])
    assert list(horizon(axis, "7D", end).day) == [16, 17, 18, 19]


def test_a_row_on_a_holiday_of_an_inferred_calendar_is_refused():
    index = pd.date_range("2024-01-02", "2024-01-12", freq=FEDERAL)
    model = wf.WishartForecaster(**SMALL).fit(walk(index))
    with pytest.raises(DataError, match="2024-01-15 00:00:00, a day off, but business days were inferred"):
        model.update(walk(pd.DatetimeIndex(["2024-01-15"])))


@pytest.mark.parametrize("offset", [pd.offsets.BDay(), pd.offsets.MonthBegin(), pd.Timedelta("1h")], ids=str)
def test_offsets_are_frequencies_and_kept_in_files(offset, tmp_path):
    """An offset is no JSON; the file knows it all the same, and that rows go to its grid."""
    y = walk(pd.date_range("2024-01-01", periods=30, freq=offset))
    model = wf.WishartForecaster(freq=offset, **SMALL).fit(y)
    model.save(tmp_path / "model")
    again = wf.load(tmp_path / "model")
    assert again.units_.axis == model.units_.axis and again.units_.has_freq
    assert to_offset(again.freq) == to_offset(offset)


def test_periods_with_an_offset_are_kept_in_files(tmp_path):
    y = walk(pd.period_range("2024-01", periods=30, freq="M"))
    model = wf.WishartForecaster(freq=pd.offsets.MonthEnd(), **SMALL).fit(y)
    model.save(tmp_path / "model")
    assert wf.load(tmp_path / "model").freq == "M"


@pytest.mark.parametrize("freq", ["soon", 2, "-1h", "SMS", "bh", "WOM-3FRI", pd.DateOffset(months=1)], ids=str)
def test_frequencies_without_steps_are_named(freq):
    index = pd.date_range("2024-01-01", periods=20, freq="D")
    with pytest.raises(OptionError, match=r"freq=.* given; expected a frequency.*'W-MON', 'MS'"):
        TimeAxis.of([index], freq)


@pytest.mark.parametrize("freq", ["SMS", "WOM-3FRI", "bh"])
def test_such_stamps_without_freq_are_what_their_gaps_say(freq):
    index = plain(pd.date_range("2024-01-01", periods=30, freq=freq))
    assert TimeAxis.of([index]).step_name == ("h" if freq == "bh" else None)


# --- stamps that are nearly on a grid ---------------------------------------------------------------


def late(index, seconds, seed=0):
    return plain(index) + pd.to_timedelta(np.random.default_rng(seed).integers(0, seconds + 1, len(index)), unit="s")


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize(("freq", "hour"), [("D", 6), ("B", 16), ("MS", 0)])
def test_stamps_a_second_late_are_on_their_grid(freq, hour, zone):
    index = pd.date_range(f"2020-03-01 {hour:02}:00", periods=40, freq=freq, tz=zone)
    axis = TimeAxis.of([late(index, 1)])
    assert axis == TimeAxis.of([index])
    assert nearly(axis, [late(index, 1)]) is None


@pytest.mark.parametrize("lags", [1, 2])
@pytest.mark.parametrize("freq", ["h", "B"])
def test_stamps_a_second_late_are_the_steps_of_others(freq, lags):
    """Rows, covariates and forecasts meet at their steps, and each step is as long as without the second."""
    whole = pd.date_range("2024-03-01", periods=44, freq=freq)
    y, X = walk(whole), pd.DataFrame({"x": np.arange(44.0) ** 0.5}, whole)
    index = late(whole, 1)
    index = index[:39].append(whole[39:40] + pd.Timedelta("1s")).append(index[40:])
    model, exact = (
        wf.WishartForecaster(lags=lags, validation_fraction=0, **SMALL).fit(rows.iloc[:40], X)
        for rows in (y.set_axis(index), y)
    )
    assert model.freq_ == exact.freq_ == freq and model.end_ == index[39]
    close = {"rtol": 1e-6, "atol": 1e-6}
    # The noise of a forecast depends on the stamp of its end.
    for fh in (3, [1], whole[40:43]):
        assert np.isfinite(model.forecast(fh, X, n_draws=20).log_prob(y)).all()
    assert model.forecast(whole[40:43], X, n_draws=5).index.equals(whole[40:43])
    np.testing.assert_allclose(model.log_prob(y[40:].set_axis(index[40:]), X), exact.log_prob(y[40:], X), **close)
    # A row three seconds late, one that is known by another stamp, and rows after them.
    later = y.iloc[39:43].set_axis(whole[39:43] + pd.to_timedelta([0, 3, 0, 1], unit="s"))
    model.update(later, X), exact.update(y.iloc[39:43], X)
    (tail,) = model.tails_.values()
    assert len(tail) == 43 and model.end_ == later.index[-1]
    assert np.isfinite(model.forecast(1, X, n_draws=20).log_prob(y)).all()
    np.testing.assert_allclose(model.log_prob(y[43:].set_axis(index[43:]), X), exact.log_prob(y[43:], X), **close)


def test_numbers_that_differ_by_rounding_are_one_row():
    """Rows of an array are at end + k·0.1, which is not 0.1·(n + k) to the last digit."""
    y = walk(pd.Index(0.1 * np.arange(44)))
    model = wf.WishartForecaster(validation_fraction=0, **SMALL).fit(y.iloc[:40])
    model.update(y.to_numpy()[40:]).update(y.iloc[40:] + 1.0)
    (tail,) = model.tails_.values()
    assert len(tail) == 44
    np.testing.assert_allclose(model.units_.inverse(tail.values[40:]), y.iloc[40:] + 1.0)


@pytest.mark.parametrize(
    ("index", "freq", "remedy"),
    [
        (late(pd.date_range("2024-03-01", periods=40, freq="h"), 60), "h", "y.index.round('h')"),
        (late(pd.date_range("2024-03-30", periods=40, freq="h", tz="Europe/Berlin"), 60), "h", "('UTC').round('h')"),
        (late(pd.date_range("2024-03-01", periods=40, freq="min"), 2), "min", "y.index.round('min')"),
        (late(pd.date_range("2024-03-01 16:00", periods=40, freq="B"), 90), "B", "y.index.round('h')"),
        (late(pd.date_range("2020-01-01", periods=40, freq="MS"), 7200), "MS", "y.index.round('D')"),
        (pd.Index(7.0 * np.arange(40) + np.resize([0.0, 0.2, -0.3], 40)), 7.0, "(y.index / 1).round() * 1"),
    ],
    ids=["hours", "hours of a zone", "minutes", "business days", "months", "numbers"],
)
def test_stamps_that_are_nearly_on_a_grid_are_said(index, freq, remedy):
    """The remedy is one: stamps that were rounded are regular, and so are those of the frequency that is named."""
    axis = TimeAxis.of([index])
    grid, how = nearly(axis, [index])
    assert axis.step_name != freq == grid.step_name and remedy in how
    rounded = eval(how, {"y": walk(index)})
    assert TimeAxis.of([rounded]).step_name == freq
    assert TimeAxis.of([index], freq).is_regular


@pytest.mark.parametrize(
    "index",
    [
        late(pd.date_range("2024-03-01", periods=40, freq="h"), 1500),
        pd.date_range("2024-03-01", periods=40, freq="3600500ms"),
        plain(pd.date_range("2024-03-01", periods=40, freq="h")).delete([3, 4, 20]),
        pd.period_range("2020-01", periods=40, freq="M"),
        pd.Index(np.pi * np.arange(40)),
        pd.Index(np.cumsum(np.full(40, 0.1))),
        pd.Index(np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, 40))),
    ],
    ids=["far from it", "odd steps", "holes", "periods", "odd numbers", "sums of tenths", "irregular numbers"],
)
def test_stamps_on_a_grid_and_far_from_one_are_not(index):
    assert nearly(TimeAxis.of([index]), [index]) is None


def test_a_fit_warns_of_stamps_that_are_nearly_on_a_grid():
    y = walk(late(pd.date_range("2024-03-01", periods=40, freq="h"), 60))
    with pytest.warns(UserWarning, match=r"nearly but not quite on a grid.*'h'.*irregular.*y.index.round\('h'\)"):
        wf.WishartForecaster(validation_fraction=0, **SMALL).fit(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wf.WishartForecaster(validation_fraction=0, freq="h", **SMALL).fit(y).freq_ == "h"


# --- periods ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "freq", ["M", *(pytest.param(f, marks=pytest.mark.slow) for f in ("Q-NOV", "Y", "W-MON", "D", "2M", "h"))]
)
def test_periods_stay_periods_without_a_warning(freq):
    index = pd.period_range("1990-01-03", periods=34, freq=freq, name="when")
    y = walk(index.delete([7, 12]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = wf.WishartForecaster(freq=freq, **SMALL).fit(y.iloc[:28])
        found = model.forecast(4, n_draws=4)
        pd.testing.assert_index_equal(found.index, index[30:])
        pd.testing.assert_index_equal(model.predict([1, 3]).index, index[[30, 32]])
        pd.testing.assert_index_equal(model.log_prob(y.iloc[28:]).index, index[30:])
        pd.testing.assert_index_equal(model.update(y.iloc[28:]).predict(1).index, index[-1:].shift(1))
    with pytest.raises(OptionError, match="the index holds periods of"):
        wf.WishartForecaster(freq="min", **SMALL).fit(y)


# --- stamps and steps beyond what numbers can hold --------------------------------------------------


@pytest.mark.parametrize("stamps", [[-np.inf, 0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 2.0, 3.0, 4.0, np.inf]])
def test_infinite_stamps_are_refused(stamps):
    with pytest.raises(DataError, match=r"the index of y holds -?inf; drop the row"):
        wf.WishartForecaster(**SMALL).fit(walk(pd.Index(stamps)))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_whole_numbers_that_are_the_same_as_doubles_are_refused(dtype):
    with pytest.raises(DataError, match="the same as doubles; subtract the first stamp"):
        wf.WishartForecaster(**SMALL).fit(walk(pd.Index(np.arange(40).astype(dtype) + np.array(2**62, dtype))))


@pytest.mark.parametrize("steps", [6_000_000, [6_000_000], [5_124_095 + 30], [2**62]])
def test_steps_beyond_64_bits_do_not_wrap_around(steps):
    """6 million hours after 2024 were a stamp in 2124."""
    index = pd.date_range("2024-01-01", periods=40, freq="h")
    for counted in (horizon, steps_of):
        with pytest.raises(OptionError, match="reaches beyond the year 2261"):
            counted(TimeAxis.of([index]), steps, index[-1])


def test_steps_without_number_are_refused():
    """All of them were listed, until memory ended."""
    for index in (pd.date_range("2024-01-01", periods=40, freq="MS"), pd.RangeIndex(40)):
        with pytest.raises(OptionError, match="expected at most 10000000 steps"):
            horizon(TimeAxis.of([index]), 2**62, index[-1])
    index = pd.date_range("2024-01-01", periods=40, freq="s")
    with pytest.raises(OptionError, match="expected at most 10000000 steps"):
        horizon(TimeAxis.of([index]), "40000 days", index[-1])


def test_units_of_any_size_have_steps():
    index = pd.Index(np.arange(40) * 1e300)
    np.testing.assert_allclose(horizon(TimeAxis.of([index]), 2, index[-1]), [4.0e301, 4.1e301])
