"""Fits from bad starts, with plain defaults: large counts, many zeros, gross outliers, heavy tails."""

import numpy as np
import pytest

import wishflow as wf

REGRESSORS = {"sgp": wf.SparseGPRegressor, "flow": wf.FlowRegressor}
LONG = [pytest.mark.slow, pytest.mark.long]
EVERY = pytest.mark.parametrize(
    "regressor", [wf.SparseGPRegressor, pytest.param(wf.FlowRegressor, marks=pytest.mark.slow)], ids=REGRESSORS
)
GRID = np.linspace(-1.9, 1.9, 100)[:, None]


def inputs(rng, n=200, dim=1):
    return rng.uniform(-2.0, 2.0, (n, dim))


def assert_risen(model):
    objective = model.history_["objective"]
    assert np.isfinite(objective).all() and (model.history_["skipped"] == 0).all()
    assert objective.iloc[-50:].mean() > objective.iloc[0]


def marks_of_rates(name, base):
    """Sparse GPs are quick; flows of one base are slow, all others long."""
    if base in (3, 7) or (name != "sgp" and base != 10):
        return LONG
    return [] if name == "sgp" else [pytest.mark.slow]


@pytest.mark.parametrize(
    "regressor, base",
    [
        pytest.param(regressor, base, id=f"{base}-{name}", marks=marks_of_rates(name, base))
        for name, regressor in REGRESSORS.items()
        for base in (1, 3, 5, 7, 10)
    ],
)
def test_rates_of_counts_of_every_size(regressor, base):
    """Rates exp(base + sin 2x): within 25 % everywhere, though g is far from log y at the start.

    For the smallest counts within three standard errors of a mean over 10 rows, about those that an end of the range
    has near it: no training can know more.
    """
    rng = np.random.default_rng(0)
    X = inputs(rng)
    y = rng.poisson(np.exp(base + np.sin(2.0 * X[:, 0]))).astype(float)
    model = regressor(likelihood="poisson", random_state=0).fit(X, y)
    inside = np.clip(GRID, X.min(), X.max())
    rate = np.exp(base + np.sin(2.0 * inside[:, 0]))
    allowed = np.maximum(0.25, 3.0 / np.sqrt(10.0 * rate)) if base == 1 else 0.25
    assert (np.abs(model.predict(inside) / rate - 1.0) < allowed).all()
    assert_risen(model)


def test_rates_that_span_four_orders_of_magnitude():
    """From a few hundredths to several hundred: log ȳ is near none of them."""
    rng = np.random.default_rng(0)
    X = inputs(rng, 300)
    y = rng.poisson(np.exp(2.0 + 4.0 * np.sin(2.0 * X[:, 0]))).astype(float)
    model = wf.SparseGPRegressor(likelihood="poisson", random_state=0).fit(X, y)
    rate = np.exp(2.0 + 4.0 * np.sin(2.0 * GRID[:, 0]))
    error = np.abs(model.predict(GRID) - rate)
    assert (error < 0.25 * rate + 1.0).all()
    assert_risen(model)


@pytest.mark.slow
def test_targets_of_unlike_rates_and_one_without_any_count():
    rng = np.random.default_rng(0)
    X = inputs(rng, 300, 2)

    def rates(X):
        return np.exp(np.column_stack([6.0 + np.sin(X[:, 0]), 1.0 + 0.5 * X[:, 1]]))

    y = np.column_stack([rng.poisson(rates(X)), np.zeros(len(X))]).astype(float)
    model = wf.SparseGPRegressor(likelihood="poisson", random_state=0).fit(X, y)
    rows = 0.9 * inputs(rng, 100, 2)
    found = model.predict(rows)
    np.testing.assert_allclose(found[:, 0], rates(rows)[:, 0], rtol=0.25)
    np.testing.assert_allclose(found[:, 1], rates(rows)[:, 1], rtol=0.5)
    assert (found[:, 2] < 0.05).all()
    assert_risen(model)


def test_log_rates_that_are_given_win():
    rng = np.random.default_rng(0)
    X = inputs(rng, 40)
    spec = wf.likelihoods.Poisson(log_rate=1.5)
    model = wf.SparseGPRegressor(likelihood=spec, max_iter=2, n_inducing=5).fit(X, rng.poisson(50.0, 40).astype(float))
    assert model.spec_.likelihood == spec
    np.testing.assert_allclose(model.model_.likelihood.log_rate, [1.5])


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("law", [pytest.param("1e3", marks=LONG), pytest.param("1e6", marks=LONG), "cauchy"])
def test_student_t_noise_recovers_a_function_from_gross_outliers(regressor, law):
    """5 % of the rows lie 1e3 or 1e6 noise deviations off; or the noise has no mean. Noise is 0.1."""
    rng = np.random.default_rng(0)
    X = inputs(rng)
    noise = rng.standard_cauchy(200) if law == "cauchy" else rng.normal(size=200)
    if law != "cauchy":
        noise[rng.choice(200, 10, replace=False)] += float(law) * rng.choice([-1.0, 1.0], 10)
    model = regressor(likelihood="student_t", random_state=0).fit(X, np.sin(2.0 * X[:, 0]) + 0.1 * noise)
    inside = np.clip(GRID, X.min(), X.max())
    assert np.abs(model.predict(inside) - np.sin(2.0 * inside[:, 0])).max() < 0.3
    low, high = model.predict_interval(inside, coverage=0.5).T
    assert np.median(high - low) < 0.6
    assert_risen(model)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param("one row of a class", marks=LONG), "separable", pytest.param("rare classes", marks=LONG)]
)
def test_labels_from_bad_starts(case):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = (X[:, 0] > 0).astype(int)
    if case == "one row of a class":
        y = (np.arange(200) == 0).astype(int)
    if case == "rare classes":
        y = np.where(np.arange(200) < 8, 1 + np.arange(200) % 4, 0)
        X[:, 0] += 4.0 * y
    model = wf.FlowClassifier(random_state=0).fit(X, y)
    share = np.bincount(y) / len(y)
    assert model.log_prob(X, y).mean() > share @ np.log(share) - 0.01
    assert np.isfinite(model.predict_proba(X)).all() and model.score(X, y) >= share.max()
    assert_risen(model)
