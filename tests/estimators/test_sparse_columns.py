"""Columns that are seen far less often than others, and grids that are far finer than the data."""

import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.series import linear_gaussian as linear
from wishflow.series.choosing import causally_filled


def test_holes_longer_than_rows_are_guessed_by_steps():
    values = np.array([[1.0, np.nan], [np.nan, 5.0], [3.0, np.nan], [4.0, np.nan], [np.nan, np.nan], [6.0, 7.0]])
    expected = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [4.0, 5.0], [5.0, 5.0], [6.0, 7.0]])
    np.testing.assert_array_equal(linear.guessed(values)[:, 0], expected[:, 0])
    np.testing.assert_array_equal(linear.guessed(values)[1:, 1], expected[1:, 1])


@pytest.mark.parametrize("gap", [3, 7, 24])
def test_what_fills_long_holes_stays_near_the_data(gap):
    rng = np.random.default_rng(gap)
    values = np.full((60 * gap, 2), np.nan)
    values[::gap, 0], values[:, 1] = rng.normal(size=60), rng.normal(size=60 * gap)
    for filled in (causally_filled([values])[0], causally_filled([values[:, :1]])[0]):
        assert np.abs(filled).max() < 2.0 * np.nanmax(np.abs(values))


@pytest.mark.slow
def test_a_weekly_column_beside_a_daily_one():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(600, 2))
    values = np.array([10.0 + sum(0.8**k * noise[t - k] for k in range(min(t + 1, 30))) for t in range(600)])
    y = pd.DataFrame(values, pd.date_range("2020-01-01", periods=600), columns=["daily", "weekly"])
    y.loc[y.index.dayofweek != 2, "weekly"] = np.nan
    forecast = wf.WishartForecaster(max_iter=20, random_state=0).fit(y).forecast(14)
    far = np.abs(forecast.mean.to_numpy() - 10.0) / y.std().to_numpy()
    assert far.max() < 2.0
    assert np.asarray(forecast.samples).std(axis=0).max() < 4.0 * y.std().max()


def test_forecasts_of_no_use_are_named(monkeypatch):
    rng = np.random.default_rng(0)
    y = pd.DataFrame(rng.normal(size=(200, 1)), columns=["a"])

    def exploding(found, lags, prior):
        return linear.LinearModel(tuple(lags), np.eye(1, len(lags)), np.zeros(1), np.eye(1))

    monkeypatch.setattr(linear, "regression", exploding)
    with pytest.warns(RuntimeWarning, match="standard deviations of y on average"):
        wf.WishartForecaster(lags=1, calendar=False, max_iter=1, random_state=0).fit(y)
