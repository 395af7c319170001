"""The adapter for sktime: sktime's own checks, and forecasts that are those of `wf.WishartForecaster`."""

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.errors import DataError, OptionError

pytest.importorskip("sktime", reason="the extra sktime is not installed: pip install 'wishflow[sktime]'")

from sktime.datasets import load_longley
from sktime.forecasting.base import ForecastingHorizon
from sktime.forecasting.model_evaluation import evaluate
from sktime.split import ExpandingWindowSplitter
from sktime.utils.estimator_checks import check_estimator, parametrize_with_checks

from wishflow.sktime import WishartForecaster

SMALL, LAGGED = WishartForecaster.get_test_params()
N = 40
INDICES = {
    "range": pd.RangeIndex(N),
    "numbers from 100": pd.RangeIndex(100, 100 + N),
    "every second number": pd.RangeIndex(0, 2 * N, 2),
    "months": pd.period_range("2000-01", periods=N, freq="M"),
    "month starts": pd.date_range("2000-01-01", periods=N, freq="MS"),
    "hours over a change of the clock": pd.date_range("2021-03-26 10:00", periods=N, freq="h", tz="Europe/Berlin"),
}


def simulated(index, names=("a", "b"), seed=0):
    """Random walks."""
    steps = np.random.default_rng(seed).normal(size=(len(index), len(names)))
    return pd.DataFrame(np.cumsum(steps, axis=0), index=index, columns=list(names))


@pytest.fixture(scope="module")
def y():
    return simulated(INDICES["months"])


@pytest.fixture(scope="module")
def fitted(y):
    return WishartForecaster(**SMALL).fit(y)


@pytest.fixture
def as_written(monkeypatch):
    """The constructor without the checks of types that tests put around it: sktime reads its arguments."""
    monkeypatch.setattr(WishartForecaster, "__init__", inspect.unwrap(WishartForecaster.__init__))


@pytest.mark.slow
@pytest.mark.timeout(1500)  # the longest check rolls updates with training over many scenarios
@pytest.mark.filterwarnings("ignore:training of model 0.*diverged:RuntimeWarning")  # three iterations, a straight line
@pytest.mark.filterwarnings("ignore:Sorting by default when concatenating:DeprecationWarning")  # sktime's own call
@pytest.mark.usefixtures("as_written")
@parametrize_with_checks(WishartForecaster, obj_varname="adapter", check_varname="check")
def test_the_checks_of_sktime_pass(adapter, check):
    """One of sktime's checks, with all its scenarios."""
    results = check_estimator(adapter, tests_to_run=check, raise_exceptions=False, verbose=False)
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}
    assert results


def test_the_parameters_are_those_of_the_forecaster():
    ours, inner = (inspect.signature(cls.__init__).parameters for cls in (WishartForecaster, wf.WishartForecaster))
    assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in inner.values()]


def test_a_series_of_sktime_there_and_back():
    y, X = load_longley()
    forecaster = WishartForecaster(**SMALL).fit(y.iloc[:-3], X=X.iloc[:-3], fh=[1, 2, 3])
    found = forecaster.predict(X=X.iloc[-3:])
    assert isinstance(found, pd.Series) and found.name == y.name
    assert found.index.equals(y.index[-3:]) and np.isfinite(found).all()
    interval = forecaster.predict_interval(X=X.iloc[-3:], coverage=[0.5, 0.9])
    expected = pd.MultiIndex.from_product([[y.name], [0.5, 0.9], ["lower", "upper"]])
    assert interval.columns.equals(expected) and interval.index.equals(found.index)


@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("options", [SMALL, LAGGED], ids=["one lag", "two lags"])
def test_every_frame_has_the_stamps_of_sktime(kind, options):
    frame = simulated(INDICES[kind])
    steps = ForecastingHorizon([2, 4])
    forecaster = WishartForecaster(**options).fit(frame)
    stamps = steps.to_absolute_index(forecaster.cutoff)
    interval = forecaster.predict_interval(steps, coverage=[0.8])
    assert interval.columns.tolist() == [(v, 0.8, side) for v in "ab" for side in ("lower", "upper")]
    quantiles = forecaster.predict_quantiles(steps, alpha=[0.1, 0.9])
    assert quantiles.columns.tolist() == [("a", 0.1), ("a", 0.9), ("b", 0.1), ("b", 0.9)]
    for found in (forecaster.predict(steps), forecaster.predict_var(steps), interval, quantiles):
        assert found.index.equals(stamps)
        assert np.isfinite(found).all(axis=None)


def test_all_frames_are_of_the_same_paths(fitted, y):
    inner = wf.WishartForecaster(**SMALL).fit(y)
    paths = inner.forecast([1, 3]).samples.values
    np.testing.assert_allclose(fitted.predict([1, 3]), paths.mean(axis=0))
    np.testing.assert_allclose(fitted.predict_var([1, 3]), paths.var(axis=0, ddof=1))
    lower, upper = np.quantile(paths, [0.1, 0.9], axis=0)
    interval = fitted.predict_interval([1, 3], coverage=0.8)
    np.testing.assert_allclose(interval.xs("lower", axis=1, level=2), lower)
    np.testing.assert_allclose(interval.xs("upper", axis=1, level=2), upper)
    np.testing.assert_allclose(fitted.predict_quantiles([1, 3], alpha=[0.1, 0.9]), interval, rtol=1e-12)


def test_steps_and_stamps_mean_the_same(fitted):
    stamps = pd.period_range("2003-05", periods=3, freq="M")
    pd.testing.assert_frame_equal(fitted.predict([1, 2, 3]), fitted.predict(stamps))


def test_irregular_stamps_with_a_frequency_for_the_horizon():
    hours = np.sort(np.random.default_rng(2).uniform(0.0, 60.0, size=N))
    frame = simulated(pd.Timestamp("2021-01-01") + pd.to_timedelta(hours, unit="h"))
    found = WishartForecaster(**SMALL).fit(frame).predict(ForecastingHorizon([1, 2], freq="h"))
    assert found.index.equals(frame.index[-1] + pd.to_timedelta([1, 2], unit="h"))
    assert np.isfinite(found).all(axis=None)


def test_updating_conditions_on_new_rows(y):
    forecaster = WishartForecaster(**SMALL).fit(y.iloc[:30], fh=1)
    model = forecaster.forecaster_.model_
    forecaster.update(y.iloc[30:], update_params=False)
    assert forecaster.cutoff[0] == y.index[-1] and forecaster.forecaster_.model_ is model
    found = forecaster.predict()
    assert found.index.equals(pd.period_range("2003-05", periods=1, freq="M"))
    again = wf.WishartForecaster(**SMALL).fit(y.iloc[:30]).update(y.iloc[30:])
    np.testing.assert_array_equal(found, again.predict(1))
    n_iter = forecaster.forecaster_.n_iter_
    assert forecaster.update(y.iloc[35:]).forecaster_.n_iter_ > n_iter


def test_an_update_that_fails_leaves_the_forecasts_as_they_were(y):
    """sktime moves the end of the data before it hands the new rows on."""
    forecaster = WishartForecaster(**SMALL).fit(y.iloc[:-2], fh=[1, 2])
    before = forecaster.predict()
    with pytest.raises(DataError, match="infinity"):
        forecaster.update(y.iloc[-2:].assign(a=np.inf))
    pd.testing.assert_frame_equal(forecaster.predict(), before)


def test_an_update_that_fails_for_one_series_of_a_panel_leaves_all_as_they_were(y):
    panel = pd.concat({"x": y, "z": y + 1.0}, names=["id", "time"])
    known = panel.groupby(level="id", group_keys=False).head(N - 2)
    forecaster = WishartForecaster(**SMALL).fit(known, fh=[1, 2])
    before = forecaster.predict()
    later = panel.groupby(level="id", group_keys=False).tail(2)
    with pytest.raises(DataError, match="infinity"):
        forecaster.update(later.assign(a=later["a"].where(later.index.get_level_values("id") == "x", np.inf)))
    pd.testing.assert_frame_equal(forecaster.predict(), before)


def test_a_refit_that_fails_leaves_the_forecasts_as_they_were(y):
    forecaster = WishartForecaster(**SMALL).fit(y, fh=[1, 2])
    before = forecaster.predict()
    with pytest.raises(DataError, match="constant"):
        forecaster.fit(y.assign(a=1.0), fh=[1])
    pd.testing.assert_frame_equal(forecaster.predict(), before)


def test_missing_values_of_y_are_welcome_and_those_of_X_are_named(y):
    holed = y.mask(np.random.default_rng(1).uniform(size=y.shape) < 0.2)
    holed.iloc[-2:] = np.nan
    found = WishartForecaster(**SMALL).fit(holed).predict([1, 2])
    assert np.isfinite(found).all(axis=None) and found.index[0] == y.index[-1] + 1
    with pytest.raises(DataError, match="X holds NaN"):
        WishartForecaster(**SMALL).fit(y, X=holed)


def test_a_panel_has_one_model_for_each_series(y):
    panel = pd.concat({"x": y, "z": y.iloc[:30] + 1.0}, names=["id", "time"])
    found = WishartForecaster(**SMALL).fit(panel).predict([1, 2])
    assert found.index.names == ["id", "time"] and len(found) == 4
    alone = WishartForecaster(**SMALL).fit(y).predict([1, 2])
    np.testing.assert_array_equal(found.loc["x"], alone)


def test_in_sample_horizons_are_refused(fitted):
    with pytest.raises(NotImplementedError, match="in-sample"):
        fitted.clone().fit(simulated(INDICES["range"]), fh=[-1, 1])


def test_a_wrong_horizon_is_refused_before_training(monkeypatch):
    monkeypatch.setattr("wishflow.series.forecaster.train", lambda *_: pytest.fail("it was trained"))
    hours = pd.to_timedelta(np.cumsum(np.random.default_rng(2).uniform(0.5, 1.5, N)), unit="h")
    irregular = simulated(pd.Timestamp("2021-01-01") + hours)
    with pytest.raises(OptionError, match="expected stamps of the kind of the data, or steps"):
        WishartForecaster(**SMALL).fit(irregular, fh=[1, 2])


def test_what_the_forecaster_refuses_stays_refused(y):
    with pytest.raises(DataError, match="'b' is constant"):
        WishartForecaster(**SMALL).fit(y.assign(b=1.0))


def test_tools_of_sktime_can_use_it(y):
    splits = ExpandingWindowSplitter(fh=[1, 2], initial_window=30, step_length=5)
    scores = evaluate(WishartForecaster(**SMALL), splits, y, strategy="update", error_score="raise")
    assert len(scores) == 2 and (scores.filter(like="test_").to_numpy() > 0).all()


@pytest.mark.parametrize("transform", [None, {"a": "asinh"}], ids=["plain", "transformed"])
def test_a_fitted_forecaster_can_be_pickled(y, transform):
    forecaster = WishartForecaster(transform=transform, **SMALL).fit(y)
    again = pickle.loads(pickle.dumps(forecaster))
    pd.testing.assert_frame_equal(again.predict([1, 2]), forecaster.predict([1, 2]))


def test_distributions_hold_the_paths(fitted):
    pytest.importorskip("skpro", reason="the extra sktime is not installed")
    distribution = fitted.predict_proba([1, 2])
    pd.testing.assert_frame_equal(distribution.mean(), fitted.predict([1, 2]), check_freq=False)
    assert fitted.predict_proba([1, 2], marginal=False).sample(3).shape == (6, 2)


def test_distributions_name_what_they_need(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "skpro.distributions", None)
    with pytest.raises(NotImplementedError, match=r"pip install 'wishflow\[sktime\]'"):
        fitted.predict_proba([1, 2])


def test_a_missing_sktime_is_named():
    code = "import sys; sys.modules['sktime'] = None; import wishflow.sktime"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "ImportError: wishflow.sktime needs sktime; install it with: pip install 'wishflow[sktime]'" in done.stderr
