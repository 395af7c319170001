"""Baselines that see one series at a time, by a stand-in for statsforecast."""

import sys
import types

import numpy as np
import pytest

from studies.benchmarks import single_series


class LastValue:
    """A random walk with steps of standard deviation one; it knows what it was fitted to."""

    fits: list = []  # noqa: RUF012

    def __init__(self, season_length):
        self.season = season_length

    def fit(self, y):
        self.fits.append((len(y), self.season))

    def forward(self, y, h, level):
        mean, sd = np.full(h, y[-1]), np.sqrt(np.arange(1.0, h + 1))
        return {"mean": mean, f"hi-{level[0]}": mean + single_series.WIDTH * sd}


@pytest.mark.parametrize(("season", "used"), [(24, 24), (144, 1)])
def test_models_are_fitted_once_to_the_last_rows_of_each_series(monkeypatch, season, used):
    models = types.ModuleType("statsforecast.models")
    models.AutoETS = LastValue
    package = types.ModuleType("statsforecast")
    package.models = models
    monkeypatch.setitem(sys.modules, "statsforecast", package)
    monkeypatch.setitem(sys.modules, "statsforecast.models", models)
    monkeypatch.setattr(LastValue, "fits", [])
    rows = np.arange(2400.0).reshape(1200, 2)
    means, sds, words = single_series.forecasts("AutoETS", rows, [rows[:500], rows[:700]], (1, 4), season)
    assert LastValue.fits == [(1000, used)] * 2 and f"season {used}," in words
    np.testing.assert_array_equal(means, np.stack([[rows[499]] * 2, [rows[699]] * 2]))
    np.testing.assert_allclose(sds, np.broadcast_to(np.array([1.0, 2.0])[None, :, None], (2, 2, 2)))
