"""Arrays, which have no stamps: rows of y follow the last one known, and rows of X go with those of y."""

import copy

import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.errors import DataError

SMALL = {"n_inducing": 5, "max_iter": 3, "rank": 1, "n_train_samples": 1, "validation_fraction": 0}
N, TRAIN = 44, 40
VALUES = np.random.default_rng(0).normal(size=(N, 2)).cumsum(axis=0)
KNOWN = np.random.default_rng(1).normal(size=(N + 6, 1))
INDICES = {
    "numbers": pd.RangeIndex(N),
    "every second number": pd.RangeIndex(10, 10 + 2 * N, 2),
    "hours": pd.date_range("2024-03-30", periods=N, freq="h", tz="Europe/Berlin", name="when"),
    "months": pd.period_range("2020-01", periods=N, freq="M"),
}


def framed(index, names=("a", "b")):
    return pd.DataFrame(VALUES, index, list(names))


@pytest.mark.parametrize("kind", INDICES)
def test_rows_of_arrays_follow_the_last_row_known(kind):
    y = framed(INDICES[kind])
    model = wf.WishartForecaster(**SMALL).fit(y.iloc[:TRAIN])
    scores = model.log_prob(VALUES[TRAIN:])
    pd.testing.assert_series_equal(scores, model.log_prob(y.iloc[TRAIN:]), check_index_type=False, check_freq=False)
    assert model.covariance(VALUES[TRAIN:]).indexes["time"].equals(INDICES[kind][TRAIN:])
    one, other = (copy.copy(model).update(rows) for rows in (VALUES[TRAIN:], y.iloc[TRAIN:]))
    assert one.end_ == other.end_ == INDICES[kind][-1]
    np.testing.assert_array_equal(one.forecast(2, n_draws=5).samples, other.forecast(2, n_draws=5).samples)


def test_a_forecaster_of_arrays_goes_on_with_arrays():
    """As one of frames that are numbered from 0, one row after another."""
    model = wf.WishartForecaster(**SMALL).fit(VALUES[:TRAIN])
    numbered = wf.WishartForecaster(**SMALL).fit(pd.DataFrame(VALUES[:TRAIN]))
    for row in range(TRAIN, N):
        model.update(VALUES[row : row + 1])
        numbered.update(pd.DataFrame(VALUES, range(N)).iloc[row : row + 1])
        assert model.end_ == row
    np.testing.assert_array_equal(model.predict(2), numbered.predict(2))


@pytest.mark.parametrize("kind", ["numbers", "hours"])
def test_covariates_of_arrays_go_with_the_rows_of_y_and_the_steps_of_a_horizon(kind):
    index = INDICES[kind]
    y = VALUES if kind == "numbers" else framed(index)
    later = index[-1] + np.arange(1, 7) * (1 if kind == "numbers" else pd.Timedelta("1h"))
    X = pd.DataFrame(KNOWN, index.append(pd.Index(later)))
    by_array = wf.WishartForecaster(**SMALL).fit(y[:TRAIN], KNOWN[:TRAIN])
    by_stamp = wf.WishartForecaster(**SMALL).fit(y[:TRAIN], X)
    for fh, n in ((3, 3), ([1, 4], 4)):
        found = by_array.predict(fh, KNOWN[TRAIN : TRAIN + n])
        np.testing.assert_array_equal(found, by_stamp.predict(fh, X))
    np.testing.assert_array_equal(by_array.log_prob(VALUES[TRAIN:], KNOWN[TRAIN:N]), by_stamp.log_prob(y[TRAIN:], X))
    by_array.update(VALUES[TRAIN:], KNOWN[TRAIN:N])
    by_stamp.update(y[TRAIN:], X)
    np.testing.assert_array_equal(by_array.predict(2, KNOWN[N : N + 2]), by_stamp.predict(2, X))


def test_an_array_of_covariates_of_the_whole_series_is_counted_from_its_first_row():
    model = wf.WishartForecaster(**SMALL).fit(VALUES[:TRAIN], KNOWN)
    np.testing.assert_array_equal(model.predict(3, KNOWN), model.predict(3, KNOWN[TRAIN : TRAIN + 3]))


def test_arrays_of_the_whole_series_need_rows_that_are_numbered():
    """Row 40 of an array is not that of stamp 40, where stamps are 0, 2, … or begin with 5."""
    for index, matched in (
        (pd.RangeIndex(0, 2 * TRAIN, 2), "y has 40 rows"),
        (pd.RangeIndex(5, 5 + TRAIN), "y has 40"),
    ):
        y, X = framed(pd.RangeIndex(N)).iloc[:TRAIN].set_axis(index), np.ones((2 * TRAIN, 1)) * np.arange(80)[:, None]
        with pytest.raises(DataError, match=f"X is an array of 80 rows; {matched}"):
            wf.WishartForecaster(**SMALL).fit(y, X)
    model = wf.WishartForecaster(**SMALL).fit(y.set_axis(pd.RangeIndex(0, 2 * TRAIN, 2)), X[:TRAIN])
    with pytest.raises(DataError, match="X is an array of 100 rows; the way to the end"):
        model.predict(3, np.ones((100, 1)))


def test_an_array_of_covariates_beside_merged_rows_is_named():
    index = INDICES["hours"]
    y = framed(index).iloc[[0, 0, *range(1, TRAIN)]]
    with pytest.raises(
        DataError, match=r"array of 41 rows; y has 40 rows, after 1 were merged with others of the same"
    ):
        wf.WishartForecaster(**SMALL).fit(y, KNOWN[: TRAIN + 1])


@pytest.mark.parametrize("n", [2, 4])
def test_an_array_of_covariates_of_another_length_is_named(n):
    y = framed(INDICES["hours"])
    model = wf.WishartForecaster(**SMALL).fit(y[:TRAIN], KNOWN[:TRAIN])
    with pytest.raises(DataError, match=f"X is an array of {n} rows; .* the horizon has 3 steps"):
        model.predict(3, KNOWN[:n])
    with pytest.raises(DataError, match=f"X is an array of {n} rows; y has 3 rows"):
        model.update(y[TRAIN : TRAIN + 3], KNOWN[:n])


def test_series_of_a_panel_go_on_from_their_own_ends():
    model = wf.WishartForecaster(**SMALL).fit({"u": VALUES[:TRAIN], "v": VALUES[: TRAIN - 5]})
    model.update({"u": VALUES[:2], "v": VALUES[:3], "new": VALUES[:4]})
    assert {key: tail.index[-1] for key, tail in model.tails_.items()} == {"u": TRAIN + 1, "v": TRAIN - 3, "new": 3}
    stamped = wf.WishartForecaster(**SMALL).fit({"u": framed(INDICES["hours"])})
    with pytest.raises(DataError, match="'new' was not in fit"):
        stamped.update({"new": VALUES})


def test_one_array_of_covariates_goes_with_series_of_the_same_stamps():
    y = framed(INDICES["hours"])
    alike, apart = {"u": y, "v": y + 1.0}, {"u": y, "v": y.iloc[1:]}
    model = wf.WishartForecaster(**SMALL).fit(alike, KNOWN[:N])
    assert model.predict(2, KNOWN[:2]).shape == (4, 2)
    with pytest.raises(DataError, match="whose stamps differ"):
        wf.WishartForecaster(**SMALL).fit(apart, KNOWN[:N])


def test_an_array_of_known_rows_has_their_stamps():
    """Correlations of the rows of `fit`, by their own stamps and calendar; other rows follow the end."""
    index = INDICES["hours"]
    y = framed(index).iloc[:TRAIN]
    model = wf.WishartForecaster(**SMALL).fit(y)
    for rows in (y, y.iloc[-7:]):
        found, expected = model.correlation(rows.to_numpy()), model.correlation(rows)
        assert found.indexes["time"].equals(rows.index)
        np.testing.assert_array_equal(found, expected)
    low, _ = model.correlation_interval(y.to_numpy(), n_draws=5)
    assert low.indexes["time"].equals(y.index)
    assert model.covariance(y.to_numpy()[:-1]).indexes["time"][0] == index[TRAIN]
    holed = y.drop(index[20:23])
    again = copy.copy(model).fit(holed)
    assert again.correlation(holed.to_numpy()).indexes["time"].equals(holed.index)
    few = wf.WishartForecaster(reservoir_size=0, **SMALL).fit(np.concatenate([VALUES] * 4))
    with pytest.raises(DataError, match=r"array of 176 rows whose last 96 are .* give the last 96 rows"):
        few.correlation(np.concatenate([VALUES] * 4))


def test_a_report_needs_stamps(tmp_path):
    model = wf.WishartForecaster(**SMALL).fit(VALUES)
    with pytest.raises(DataError, match="y is an array, which has no stamps; pass a DataFrame"):
        model.report(tmp_path / "page.html", y=VALUES)


def test_rows_without_values_have_no_field():
    y = framed(INDICES["hours"])
    model = wf.WishartForecaster(**SMALL).fit(y)
    with pytest.raises(DataError, match="y has no value, so there is no place"):
        model.plot_field(y.iloc[:4] * np.nan)


def test_without_a_step_an_array_has_no_place():
    stamps = pd.Index(np.cumsum(np.random.default_rng(2).uniform(0.5, 1.5, N)))
    model = wf.WishartForecaster(**SMALL).fit(framed(stamps))
    for method in (model.update, model.log_prob):
        with pytest.raises(DataError, match="y is an array, which has no stamps, and the stamps of fit are irregular"):
            method(VALUES)
