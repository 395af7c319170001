"""The benchmark of wide series."""

import numpy as np
import pytest

from studies.benchmarks.forecast_sets import SEED, fifty_hourly, hourly
from studies.benchmarks.wide import order_by_aic


def test_the_order_is_that_of_statsmodels():
    api = pytest.importorskip("statsmodels.tsa.api")
    rng = np.random.default_rng(0)
    for lag in (1, 3):
        y = rng.normal(size=(400, 2))
        for t in range(lag, len(y)):
            y[t] += 0.6 * y[t - lag, ::-1]
        assert order_by_aic(y, np.ones((400, 1)), 6) == api.VAR(y).select_order(6).aic


def test_more_series_are_of_the_same_kind():
    assert fifty_hourly().equals(hourly(50, SEED + 3)) and hourly(7, 1).shape == (8760, 7)
