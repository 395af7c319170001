"""`freq`: rows go to a regular grid, whatever their stamps; and stamps of one kind on one axis."""

import copy

import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.errors import DataError, OptionError
from wishflow.series.data.frames import Table
from wishflow.series.data.times import TimeAxis, grid_start, placed, placed_covariates

SMALL = {"n_inducing": 8, "max_iter": 20, "rank": 2, "n_train_samples": 2, "validation_fraction": 0}
N = 120
HOURS = pd.date_range("2021-03-01", periods=N, freq="h", tz="Europe/Berlin")
RNG = np.random.default_rng(0)
# Stamps up to 20 minutes off, some of them missing.
SHIFTS = RNG.uniform(-1 / 3, 1 / 3, size=N)
KEEP = np.r_[0:40, 43:N]


@pytest.fixture(scope="module")
def values():
    return np.cumsum(np.random.default_rng(1).normal(size=(N, 2)), axis=0)


def stamps(kind, is_shifted=True):
    shifts = SHIFTS if is_shifted else 0.0 * SHIFTS
    return (
        HOURS.as_unit("ns") + pd.to_timedelta(shifts, unit="h").as_unit("ns")
        if kind == "hours"
        else pd.Index(np.arange(N) + shifts)
    )


def frames(kind, values, keep=slice(None)):
    """The same rows at stamps that are off the grid, and on it."""
    return (pd.DataFrame(values, stamps(kind, s), ["a", "b"]).iloc[keep] for s in (True, False))


FREQ = {"hours": "h", "numbers": 1.0}


ALL = slice(None)


@pytest.mark.parametrize(
    ("kind", "lags", "keep"),
    [
        ("hours", 2, KEEP),
        *(pytest.param("hours", lags, keep, marks=pytest.mark.slow) for lags, keep in ((1, ALL), (1, KEEP), (2, ALL))),
        *(pytest.param("numbers", lags, keep, marks=pytest.mark.slow) for lags in (1, 2) for keep in (ALL, KEEP)),
    ],
)
def test_rows_off_the_grid_are_those_on_it(values, kind, lags, keep):
    """Fits, forecasts, scores, covariances and updates are those of the series on the grid."""
    off, on = frames(kind, values, keep)
    options = {"lags": lags, "freq": FREQ[kind], **SMALL}
    shifted, regular = (wf.WishartForecaster(**options).fit(frame.iloc[:90]) for frame in (off, on))
    for _ in range(2):
        found, expected = (model.forecast(3, n_draws=10) for model in (shifted, regular))
        pd.testing.assert_index_equal(found.index, expected.index, exact="equiv")
        np.testing.assert_allclose(found.samples, expected.samples)
        later = slice(90, 110)
        scores, rates = shifted.log_prob(off.iloc[later]), shifted.covariance(off.iloc[later])
        assert scores.index.equals(off.index[later]) and rates.indexes["time"].equals(off.index[later])
        np.testing.assert_allclose(scores, regular.log_prob(on.iloc[later]))
        np.testing.assert_allclose(rates, regular.covariance(on.iloc[later]))
        for model, frame in ((shifted, off), (regular, on)):
            model.update(frame.iloc[90:91]).update(frame.iloc[91:95])


@pytest.mark.parametrize(
    "at", ["the stamps of y", pytest.param("the grid", marks=pytest.mark.slow), "quarters of an hour"]
)
def test_covariates_are_found_at_the_stamps_of_y_and_at_those_of_the_grid(values, at):
    off, on = frames("hours", values)
    u = np.sin(np.arange(N))
    index = {"the stamps of y": off.index, "the grid": on.index}.get(at)
    X = pd.DataFrame({"u": u}, index=on.index if index is None else index)
    if index is None:  # other numbers between the hours: those of the hour are taken
        between = on.index + pd.Timedelta("15min")
        X = pd.concat([X, pd.DataFrame({"u": 9.0}, index=between)]).sort_index()
    shifted = wf.WishartForecaster(freq="h", lags=2, **SMALL).fit(off.iloc[:90], X.loc[: off.index[90]])
    regular = wf.WishartForecaster(lags=2, **SMALL).fit(on.iloc[:90], pd.DataFrame({"u": u}, index=on.index))
    expected = regular.forecast(4, pd.DataFrame({"u": u}, index=on.index), n_draws=10)
    np.testing.assert_allclose(shifted.forecast(4, X, n_draws=10).samples, expected.samples)
    shifted.update(off.iloc[90:95], X)
    regular.update(on.iloc[90:95], pd.DataFrame({"u": u}, index=on.index))
    np.testing.assert_allclose(shifted.tails_[None].covariates, regular.tails_[None].covariates)


@pytest.mark.parametrize(
    "first, freq, expected",
    [
        ("2021-03-01 00:20", "h", "2021-03-01 00:00"),
        ("2021-03-01 00:40", "h", "2021-03-01 01:00"),
        ("2021-01-03 10:00", "MS", "2021-01-01"),
        ("2021-01-03 10:00", "ME", "2021-01-31"),
        ("2020-03-01", "BMS", "2020-03-02"),
        ("2021-01-02", "B", "2021-01-04"),
    ],
)
def test_where_a_grid_starts(first, freq, expected):
    """Whole hours where rows scatter around them; the month that a row lies in."""
    others = ["2021-06-01 00:10", "2021-07-01 00:00", "2021-08-01 23:50", "2021-09-02 00:00"]
    index = pd.DatetimeIndex([first, *others])
    assert grid_start(TimeAxis.of([index], freq), index) == pd.Timestamp(expected)


def test_rows_around_half_past_the_hour_stay_together():
    index = stamps("hours") + pd.Timedelta("30min")
    axis = TimeAxis.of([index], "h")
    found = placed(axis, index, grid_start(axis, index))
    assert found.equals(HOURS + pd.Timedelta("30min"))


def test_a_grid_of_its_own_is_kept():
    index = HOURS + pd.Timedelta("17min")
    axis = TimeAxis.of([index], "h")
    assert placed(axis, index, grid_start(axis, index)) is index


# --- rows of one step ------------------------------------------------------------------------------


def halves(values, minutes):
    """The two columns in rows of their own, those of the second so many minutes later."""
    frame = pd.DataFrame(values, HOURS, ["a", "b"])
    first, second = frame.assign(b=np.nan), frame.assign(a=np.nan)
    return pd.concat([first, second.set_axis(HOURS + pd.Timedelta(minutes=minutes))]).sort_index(), frame


@pytest.mark.parametrize("minutes", [0, 10])
def test_rows_of_one_step_are_merged_cell_by_cell(values, minutes):
    """Fit, update, scores and covariances are those of whole rows; a step has one score, at the last of its rows."""
    parts, whole = halves(values, minutes)
    (one, two) = (wf.WishartForecaster(freq="h", **SMALL).fit(f[f.index < HOURS[90]]) for f in (parts, whole))
    np.testing.assert_array_equal(one.tails_[None].values, two.tails_[None].values)
    later = parts[parts.index >= HOURS[90]]
    scores, expected = one.log_prob(later), two.log_prob(whole.iloc[90:])
    np.testing.assert_allclose(scores.dropna(), expected)
    assert scores.index.equals(later.index.unique())
    if minutes:
        assert list(scores.isna()) == [True, False] * 30
        np.testing.assert_allclose(one.covariance(later).values[::2], two.covariance(whole.iloc[90:]).values)
    # The second half of a step may come later; a third row of it without news is none.
    one.update(later.iloc[:1]).update(later.iloc[1:2]).update(later.iloc[:1])
    np.testing.assert_allclose(one.units_.inverse(one.tails_[None].values[-1]), values[90])
    assert one.end_ == HOURS[90]


def test_two_values_of_one_cell_are_named(values):
    index = stamps("hours").append(HOURS[-1:] + pd.Timedelta("25min"))
    frame = pd.DataFrame(np.concatenate([values, values[-1:] + np.array([0.0, 1.0])]), index, ["a", "b"])
    words = r"one step of the grid.*2021-03-05 23:.*'b' has two values there, -7.76546 and -6.76546.*shorter freq"
    with pytest.raises(DataError, match=words):
        wf.WishartForecaster(freq="h", **SMALL).fit(frame)
    # The same number twice is one number.
    same = frame.assign(b=np.append(values[:, 1], values[-1, 1]))
    fitted = wf.WishartForecaster(freq="h", **SMALL).fit(same)
    np.testing.assert_allclose(fitted.units_.inverse(fitted.tails_[None].values[-1]), values[-1])


def test_rows_of_a_step_that_is_none_are_not_merged(values):
    """Without freq stamps are kept as they are."""
    parts, _ = halves(values, 17)
    model = wf.WishartForecaster(**SMALL).fit(parts)
    assert model.freq_ is None and len(model.tails_[None]) == 96
    assert model.tails_[None].index.equals(parts.index[-96:])


def test_covariates_of_merged_rows_are_those_nearest_to_the_step():
    index = pd.DatetimeIndex(["2024-01-01 00:40", "2024-01-01 01:10", "2024-01-01 02:00"])
    axis = TimeAxis.of([index], "h")
    found = placed_covariates(axis, Table(index, np.arange(3.0)[:, None]), pd.Timestamp("2024-01-01"), index)
    np.testing.assert_array_equal(found.values[:, 0], [1.0, 2.0])


@pytest.mark.slow
def test_days_of_the_wall_clock_are_a_grid(values):
    """Clocks change in March: a day of 23 hours is a step as all others."""
    days = pd.date_range("2021-01-10", periods=N, freq="D", tz="Europe/Berlin")
    frame = pd.DataFrame(values, index=days)
    zoned, naive = (wf.WishartForecaster(lags=2, **SMALL).fit(f) for f in (frame, frame.tz_localize(None)))
    np.testing.assert_array_equal(zoned.log_prob(frame), naive.log_prob(frame.tz_localize(None)))
    assert zoned.forecast(3, n_draws=5).index.equals(pd.date_range(days[-1], periods=4, freq="D")[1:])


@pytest.mark.slow
def test_stamps_but_for_rounding_have_their_own_scores(values):
    """0.1 + 0.2 and 0.3 are the same step, and each row gets its own score."""
    frame = pd.DataFrame(values, index=np.cumsum(np.full(N, 0.1))).iloc[KEEP]
    same = frame.set_axis(np.arange(1, N + 1)[KEEP])
    one, two = (wf.WishartForecaster(**SMALL).fit(f).log_prob(f) for f in (frame, same))
    np.testing.assert_allclose(one, two, rtol=1e-4)


# --- one kind of stamps ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(values):
    return wf.WishartForecaster(**SMALL).fit(pd.DataFrame(values, HOURS).iloc[:90])


def test_stamps_of_another_kind_are_named(fitted, values):
    new = pd.DataFrame(values, HOURS).iloc[90:]
    for method in (fitted.update, fitted.log_prob, fitted.covariance):
        with pytest.raises(DataError, match=r"y has stamps that are times without a time zone.*tz_localize"):
            method(new.tz_localize(None))
        with pytest.raises(DataError, match="y has stamps that are numbers"):
            method(new.reset_index(drop=True))


def test_rows_of_another_zone_go_on_in_that_of_the_data(fitted, values):
    new = pd.DataFrame(values, HOURS).iloc[90:]
    one, two = (copy.copy(fitted).update(frame) for frame in (new, new.tz_convert("UTC")))
    assert two.end_ == HOURS[-1] and str(two.tails_[None].index.tz) == "Europe/Berlin"
    np.testing.assert_array_equal(one.forecast(2, n_draws=5).samples, two.forecast(2, n_draws=5).samples)


def test_a_panel_of_mixed_stamps_is_named(values):
    frame = pd.DataFrame(values, HOURS)
    with pytest.raises(DataError, match="panel has stamps that are times without a time zone, the first one has times"):
        wf.WishartForecaster(**SMALL).fit({"x": frame, "z": frame.tz_localize(None)})


@pytest.mark.parametrize(("freq", "zone"), [("MS", "Europe/Berlin"), ("D", "Pacific/Auckland")])
def test_covariates_in_another_zone_stay_at_their_steps(freq, zone):
    index = pd.date_range("2024-01-01", periods=6, freq=freq, tz=zone)
    axis = TimeAxis.of([index], freq)
    table = Table(index.tz_convert("UTC"), np.arange(6.0)[:, None])
    found = placed_covariates(axis, table, index[0], index)
    pd.testing.assert_index_equal(found.index, index, check_names=False)
    np.testing.assert_array_equal(found.values, table.values)


def test_days_at_an_hour_that_clocks_skip_or_repeat():
    index = pd.date_range("2024-03-29 02:30", periods=2, freq="D", tz="Europe/Berlin")
    ahead = TimeAxis.of([index], "D").ahead(index[0], [0, 1, 2, 3, 212])
    assert [str(stamp)[:16] for stamp in ahead] == [
        *("2024-03-29 02:30", "2024-03-30 02:30", "2024-03-31 03:00", "2024-04-01 02:30", "2024-10-27 02:30"),
    ]


@pytest.mark.parametrize("freq", [0, -1.0, np.nan, "h"])
def test_numbers_need_a_number_for_freq(freq):
    with pytest.raises(OptionError, match="freq"):
        TimeAxis.of([pd.Index([0.0, 1.0, 2.5])], freq)


def test_covariates_of_another_kind_are_named(values):
    frame = pd.DataFrame(values, HOURS)
    with pytest.raises(DataError, match="X has stamps that are times without a time zone, y has times with"):
        wf.WishartForecaster(**SMALL).fit(frame, frame.tz_localize(None))
