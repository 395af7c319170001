"""Our regressors inside MAPIE: its intervals are those of our regions, and cover as often as theory says."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import wishflow as wf
from wishflow.regression.regions import conformal_rank

pytest.importorskip("mapie", minversion="1.5")

SCRIPT = Path(__file__).parent.parent.parent / "docs" / "examples" / "conformal.py"


@pytest.fixture(scope="module")
def example():
    """The script as a module; it computes nothing when it is imported."""
    spec = importlib.util.spec_from_file_location("conformal_example", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gp(example):
    return wf.SparseGPRegressor(n_inducing=10, max_iter=40, random_state=0).fit(*example.simulated(80, seed=0))


def test_split_conformal_covers_as_often_as_asked(example, gp):
    """The number of covered rows beside n calibration rows has a beta-binomial law."""
    n_rows, n_new, counts = 39, 80, []
    for seed in range(40):
        X, y = example.simulated(n_rows + n_new, seed=100 + seed)
        low, high = example.split_conformal(gp, X[:n_rows], y[:n_rows], X[n_rows:]).T
        counts.append(np.sum((low <= y[n_rows:]) & (y[n_rows:] <= high)))
    expected = scipy.stats.betabinom(n_new, 36, 4)
    assert np.mean(counts) == pytest.approx(expected.mean(), abs=3.0 * expected.std() / np.sqrt(len(counts)))


def test_mapie_takes_the_same_rank_as_our_regions(example, gp):
    from mapie.regression import SplitConformalRegressor

    X, y = example.simulated(47, seed=1)
    X_new, _ = example.simulated(20, seed=2)
    mean, (low, high) = gp.predict(X_new), example.split_conformal(gp, X, y, X_new).T
    quantile = np.sort(np.abs(y - gp.predict(X)))[conformal_rank(47, 0.9) - 1]
    np.testing.assert_allclose([mean - low, high - mean], quantile, rtol=1e-6)
    scaled = SplitConformalRegressor(gp, 0.9, "std_normalized").conformalize(X, y).predict_interval(X_new)[1]
    # The upper end alone: the lower one of MAPIE 1.6.0 is that of the score before, unless (n + 1)(1 − c) is whole.
    np.testing.assert_allclose(scaled[:, 1, 0], example.region(gp, X, y, X_new)[:, 1], rtol=1e-9)


@pytest.mark.slow
def test_members_and_clones_work_inside_cross_conformal(example):
    """MAPIE clones, fits to folds and asks for means and standard deviations."""
    X, y = example.simulated(60, seed=3)
    model = wf.SparseGPRegressor(n_inducing=8, max_iter=5, n_members=2, random_state=0)
    low, high = example.cross_conformal(model, X, y, X).T
    assert np.isfinite(low).all() and (low < high).all() and not hasattr(model, "model_")


@pytest.mark.slow
def test_the_script_shows_our_intervals_beside_conformal_ones(example):
    """Bands: what 100 calibration rows leave open, at 99.9 %; for CV+ and jackknife+ at least 1 − 2α."""
    table = example.compared(max_iter=200, n_predict_samples=50)
    coverage = table["coverage"]
    assert sum("predictive distribution" in name for name in table.index) == 3 and (table["mean width"] > 0.0).all()
    low, high = (count / 2000 for count in scipy.stats.betabinom(2000, 91, 10).interval(0.999))
    for name in table.index[["100 + 100" in name for name in table.index]]:
        assert low <= coverage[name] <= high, table
    for name in ("CV+", "jackknife+-after-bootstrap"):
        assert 0.8 <= coverage[f"sparse GP, 200 rows: {name}"] <= 0.97, table
    # The two models are not the same one under two names.
    assert (
        coverage["flow, 100 rows: predictive distribution"] != coverage["sparse GP, 100 rows: predictive distribution"]
    )
