"""Conformal regions of fitted estimators: coverage, units, one target, members, and what a later fit leaves alone."""

import pickle

import numpy as np
import pytest
import scipy.stats
from sklearn.exceptions import NotFittedError

import wishflow as wf
from wishflow.errors import DataError

QUICK = {"n_inducing": 10, "max_iter": 40, "random_state": 0}


def wedge(n, seed=0):
    """Two targets with noise that is correlated and has heavy tails: a sparse GP knows neither."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, n)
    noise = rng.standard_t(4.0, (n, 2)) @ np.array([[0.3, 2.0], [0.0, 1.0]])
    return x[:, None], np.column_stack([np.sin(2.0 * x), 10.0 * x]) + noise


@pytest.fixture(scope="module")
def gp():
    return wf.SparseGPRegressor(**QUICK).fit(*wedge(80))


@pytest.fixture(scope="module")
def members():
    return wf.SparseGPRegressor(n_members=2, **QUICK).fit(*wedge(80))


@pytest.mark.parametrize("name", ["gp", pytest.param("members", marks=pytest.mark.slow)])
def test_both_targets_at_once_are_covered_as_often_as_asked(name, request):
    """The number of covered rows beside n calibration rows has a beta-binomial law, whatever the model."""
    model, n_rows, n_new = request.getfixturevalue(name), 39, 60
    counts = []
    for seed in range(40):
        X, y = wedge(n_rows + n_new, seed=1000 + seed)
        region = model.conformal_region(X[:n_rows], y[:n_rows])
        counts.append(region.contains(X[n_rows:], y[n_rows:]).sum())
    expected = scipy.stats.betabinom(n_new, 36, 4)
    assert np.mean(counts) == pytest.approx(expected.mean(), abs=3.0 * expected.std() / np.sqrt(len(counts)))


def test_centres_and_shapes_are_mean_and_variances_of_the_law(gp, flow_of_two, X, Y):
    for model, rows, targets in ((gp, *wedge(30, seed=2)), (flow_of_two, X, Y)):
        centre, covariance = model.conformal_region(rows, targets).ellipsoids(rows)
        mean, sd = model.predict(rows, return_std=True)
        np.testing.assert_array_equal(centre, mean)
        np.testing.assert_allclose(np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)), sd, rtol=1e-12)
    # Paths move both targets of a flow: its ellipsoids are at an angle. A sparse GP has targets without correlation.
    assert np.abs(covariance[:, 0, 1]).max() > 0.0
    covariance = gp.conformal_region(*wedge(30)).ellipsoids(rows[:, :1])[1]
    assert (np.abs(covariance[:, 0, 1]) <= 1e-14 * np.sqrt(covariance[:, 0, 0] * covariance[:, 1, 1])).all()


def test_units_of_the_targets_change_units_alone(gp):
    X, y = wedge(80)
    units, zero = np.array([1e-3, 50.0]), np.array([7.0, -300.0])
    other = wf.SparseGPRegressor(**QUICK).fit(X, y * units + zero)
    X, y = wedge(50, seed=3)
    region, mapped = gp.conformal_region(X, y), other.conformal_region(X, y * units + zero)
    assert mapped.radius == pytest.approx(region.radius, rel=1e-4)
    np.testing.assert_allclose(mapped.volume(X) - region.volume(X), np.log(units).sum(), atol=1e-3)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_the_region_of_one_target_is_the_symmetric_interval(shape):
    X, y = wedge(60)
    y = y[:, 0].reshape(shape)
    model = wf.SparseGPRegressor(**QUICK).fit(X, y)
    X_cal, y_cal = wedge(40, seed=4)
    y_cal = y_cal[:, 0].reshape(shape)
    mean, sd = (part.ravel() for part in model.predict(X_cal, return_std=True))
    scores = np.sort(np.abs(y_cal.ravel() - mean) / sd)
    region = model.conformal_region(X_cal, y_cal, coverage=0.8)
    assert region.radius == pytest.approx(scores[33 - 1], rel=1e-12)  # ⌈41 · 0.8⌉ = 33
    X, y = wedge(200, seed=5)
    y = y[:, 0]
    mean, sd = (part.ravel() for part in model.predict(X, return_std=True))
    expected = np.abs(y - mean) <= region.radius * sd
    assert 0 < expected.sum() < 200
    np.testing.assert_array_equal(region.contains(X, y.reshape(shape)), expected)
    np.testing.assert_allclose(np.exp(region.volume(X)), 2.0 * region.radius * sd, rtol=1e-9)


def test_a_later_fit_and_other_options_leave_a_region_as_it_is(tmp_path):
    X, y = wedge(60)
    model = wf.SparseGPRegressor(**QUICK).fit(X, y)
    region = model.conformal_region(*wedge(40, seed=6))
    before = region.ellipsoids(X)
    model.save(tmp_path / "model")
    model.fit(X + 1.0, 100.0 * y)
    for again in (region, pickle.loads(pickle.dumps(region))):
        for part, expected in zip(again.ellipsoids(X), before, strict=True):
            np.testing.assert_array_equal(part, expected)
    loaded = wf.load(tmp_path / "model").conformal_region(*wedge(40, seed=6))
    assert loaded.radius == region.radius
    assert model.conformal_region(*wedge(40, seed=6)).radius != region.radius


def test_too_few_rows_are_refused(gp):
    X, y = wedge(98)
    assert np.isfinite(gp.conformal_region(X[:9], y[:9]).radius)
    with pytest.raises(DataError, match=r"98 calibration rows given for coverage=0.99; expected at least 99"):
        gp.conformal_region(X, y, coverage=0.99)
    with pytest.raises(DataError, match="pass as many"):
        gp.conformal_region(X, y[:, :1])
    with pytest.raises(NotFittedError):
        wf.SparseGPRegressor().conformal_region(X, y)


def test_one_row_of_each_group_counts(gp):
    """Copies of calibration rows say nothing more: nine groups are enough for 0.9, however many rows they have."""
    rng = np.random.default_rng(5)
    X, y = rng.uniform(-2.0, 2.0, (9, gp.n_features_in_)), rng.normal(size=(9, 2))
    alone = gp.conformal_region(X, y)
    copies = gp.conformal_region(np.tile(X, (4, 1)), np.tile(y, (4, 1)), groups=np.tile(np.arange(9), 4))
    assert copies.n_rows == 9 and copies.radius == pytest.approx(alone.radius)
    with pytest.raises(DataError, match="3 calibration rows given"):
        gp.conformal_region(X, y, groups=np.arange(9) % 3)
    with pytest.raises(DataError, match=r"one label for all rows \(0\).*pass calibration rows of more groups\.$"):
        gp.conformal_region(X, y, groups=np.zeros(9, int))
