"""Laws every regressor obeys, on small fits that are shared by the tests of this file."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.base import clone
from small import SMALL

import wishflow as wf
from wishflow.regression import prediction

MODELS = {
    "sgp": lambda: wf.SparseGPRegressor(n_inducing=10, max_iter=20),
    "nonoise": lambda: wf.FlowRegressor(diffusion="none", **SMALL),
    "diagonal": lambda: wf.FlowRegressor(diffusion="diagonal", **SMALL),
    "diffgp": lambda: wf.FlowRegressor(diffusion="gp", **SMALL),
    "diffwgp": lambda: wf.FlowRegressor(**SMALL),
    "independent": lambda: wf.FlowRegressor(columns="independent", time_dependent=True, **SMALL),
    "pathwise": lambda: wf.FlowRegressor(sampling="pathwise", **SMALL),
}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2)) * [2.0, 30.0] + [5.0, -100.0]
Y = 10 * np.sin(X[:, 0]) + 0.05 * X[:, 1] + RNG.normal(size=30)


@pytest.fixture(autouse=True)
def _blocks_of_one_size(monkeypatch):
    """One compiled program serves one row and a thousand."""
    monkeypatch.setattr(prediction, "BLOCK", 32)


# Fields of their own are tested where fields are; here one of each kind of estimator is enough to wait for.
SLOW = ("diagonal", "independent")


@pytest.fixture(scope="module", params=[pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in MODELS])
def fitted(request):
    return MODELS[request.param]().fit(X, Y)


@pytest.mark.slow
def test_one_row_or_all_rows_in_any_order_give_the_same_numbers(fitted):
    order = np.random.default_rng(1).permutation(len(X))
    for values in (
        lambda rows: fitted.predict(X[rows]),
        lambda rows: fitted.predict(X[rows], return_std=True)[1],
        lambda rows: fitted.predict_quantiles(X[rows], [0.1, 0.7]),
        lambda rows: fitted.log_prob(X[rows], Y[rows]),
    ):
        together = values(np.arange(len(X)))
        np.testing.assert_allclose(values(order), together[order], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(values([7]), together[[7]], rtol=1e-9, atol=1e-9)


def test_the_density_integrates_to_one_in_the_units_of_y(fitted):
    mean, std = fitted.predict(X[:1], return_std=True)
    grid = np.linspace(mean[0] - 14 * std[0], mean[0] + 14 * std[0], 401)
    density = np.exp(fitted.log_prob(np.repeat(X[:1], len(grid), axis=0), grid))
    assert abs(trapezoid(density, grid) - 1.0) < 1e-4
    assert abs(trapezoid(density * grid, grid) - mean[0]) < 1e-3 * std[0]


def test_quantiles_invert_the_distribution(fitted):
    low, high = fitted.predict_interval(X[:1], coverage=0.8)[0]
    grid = np.linspace(low, high, 201)
    density = np.exp(fitted.log_prob(np.repeat(X[:1], len(grid), axis=0), grid))
    assert abs(trapezoid(density, grid) - 0.8) < 1e-4


def test_the_mean_of_logs_is_below_the_log_of_the_mean(fitted):
    assert (fitted.log_prob(X, Y, average="log") <= fitted.log_prob(X, Y) + 1e-12).all()


def test_components_are_the_mixture_behind_all_other_predictions(fitted):
    means, variances = fitted.predict_components(X)
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(means.mean(0), mean, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(variances.mean(0) + means.var(0)), std, rtol=1e-9)
    log_density = norm.logpdf(Y, means, np.sqrt(variances))
    np.testing.assert_allclose(logsumexp(log_density, axis=0) - np.log(len(means)), fitted.log_prob(X, Y), atol=1e-9)
    np.testing.assert_allclose(log_density.mean(0), fitted.log_prob(X, Y, average="log"), atol=1e-9)


@pytest.mark.slow
def test_joint_draws_have_the_predictive_moments(fitted):
    mean, std = fitted.predict(X[:5], return_std=True)
    draws = fitted.sample_y(X[:5], n_samples=768, random_state=1)
    assert draws.shape == (5, 768)
    # 768 draws against a mixture of 64 paths: the standard error of the latter's deviation is an eleventh.
    assert (np.abs(draws.mean(1) - mean) < 0.25 * std).all()
    assert (np.abs(np.log(draws.std(1) / std)) < 0.3).all()
    covariance = fitted.predict(X[:5], return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-9)


def test_the_same_seed_gives_the_same_fit_bit_for_bit(fitted):
    again = clone(fitted).fit(X, Y)
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_a_file_gives_back_the_same_predictions_bit_for_bit(fitted, tmp_path):
    fitted.save(tmp_path / "model.wishflow")
    again = wf.load(tmp_path / "model.wishflow")
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(again.log_prob(X, Y), fitted.log_prob(X, Y))
    assert again.history_.equals(fitted.history_[again.history_.columns])


def test_another_unit_of_y_shifts_the_log_density_by_the_log_of_the_unit():
    make = MODELS["diffwgp"]
    a, b = make().fit(X, Y), make().fit(X, 1000 * Y + 7)
    np.testing.assert_allclose(b.log_prob(X, 1000 * Y + 7), a.log_prob(X, Y) - np.log(1000), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(b.predict(X), 1000 * a.predict(X) + 7, rtol=1e-6)


def test_another_seed_gives_another_fit():
    a, b = (wf.FlowRegressor(random_state=s, **SMALL).fit(X, Y) for s in (0, 1))
    assert np.abs(a.predict(X) - b.predict(X)).max() > 1e-6


def test_several_targets():
    both = np.column_stack([Y, -2 * Y + 1])
    model = MODELS["diffwgp"]().fit(X, both)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (30, 2)
    assert model.predict_interval(X[:4]).shape == (4, 2, 2)
    assert model.sample_y(X[:4], 3).shape == (4, 2, 3)
    assert model.log_prob(X, both).shape == (30,)


COUNTS = np.random.default_rng(2).poisson(np.exp(np.sin(X[:, 0]) + 1)).astype(float)


@pytest.fixture(scope="module")
def heavy():
    return wf.FlowRegressor(likelihood="student_t", **SMALL).fit(X, Y)


@pytest.fixture(scope="module")
def counting():
    return wf.FlowRegressor(likelihood="poisson", **{**SMALL, "n_predict_samples": 8}).fit(X, COUNTS)


def test_student_t_densities_integrate_to_one_and_have_heavier_tails(heavy):
    low, high = heavy.predict_interval(X[:1], coverage=0.8)[0]
    inside = np.linspace(low, high, 201)
    # Tails of a power law: the distance from the centre grows like sinh.
    beyond = 0.5 * (high - low) * np.sinh(np.linspace(0.0, 8.0, 201))
    parts = []
    for grid in (low - beyond[::-1], inside, high + beyond):
        density = np.exp(heavy.log_prob(np.repeat(X[:1], len(grid), axis=0), grid))
        parts.append(trapezoid(density, grid))
    np.testing.assert_allclose(parts, [0.1, 0.8, 0.1], atol=5e-4)
    # Far out log p falls like a power of y, not like −y²: doubling the distance costs (dof + 1) log 2.
    far = heavy.log_prob(np.repeat(X[:1], 2, axis=0), [2e3, 4e3])
    assert 2 < (far[0] - far[1]) / np.log(2) < 12


@pytest.mark.slow
def test_probabilities_of_counts_sum_to_one_and_agree_with_the_quantiles(counting):
    counts = np.arange(300.0)
    p = np.exp(counting.log_prob(np.repeat(X[:1], len(counts), axis=0), counts))
    assert abs(p.sum() - 1.0) < 1e-6
    mean, std = counting.predict(X[:1], return_std=True)
    np.testing.assert_allclose([p @ counts, np.sqrt(p @ counts**2 - (p @ counts) ** 2)], [mean[0], std[0]], rtol=1e-4)
    levels = [0.05, 0.5, 0.95]
    expected = [np.flatnonzero(np.cumsum(p) >= level)[0] for level in levels]
    np.testing.assert_array_equal(counting.predict_quantiles(X[:1], levels)[0], expected)


def test_explicit_options_win_over_the_preset():
    model = MODELS["diffwgp"]().fit(X, Y)
    assert (model.training_.max_iter, model.training_.n_steps) == (5, 3)
    assert (model.history_["phase"] == "flow").sum() == 5


def test_who_says_how_large_a_batch_is_means_rows():
    rule = wf.FlowRegressor()._training(5000, 4)
    assert (rule.batch_counts_paths, rule.n_train_samples, rule.batch_rows(rule.n_train_samples)) == (True, 8, 250)
    given = wf.FlowRegressor(batch_size=100)._training(5000, 4)
    assert given.batch_rows(given.n_train_samples) == 100
    assert wf.FlowRegressor(n_train_samples=2)._training(5000, 4).batch_rows(2) == 1000
    assert wf.SparseGPRegressor()._training(5000, 4).batch_rows(1) == 2000
    by_logs = wf.FlowRegressor(path_average="log")._training(5000, 4)
    assert (by_logs.n_train_samples, by_logs.batch_rows(1)) == (1, 2000)
    assert wf.FlowRegressor(path_average="log", n_train_samples=3)._training(5000, 4).n_train_samples == 3


@pytest.mark.slow
def test_a_tolerance_ends_training_where_the_objective_no_longer_rises():
    X = np.random.default_rng(0).normal(size=(60, 2))
    options = {**SMALL, "max_iter": 3000}
    model = wf.FlowRegressor(tol=1e3, **options).fit(X, X[:, 0])
    assert model.status_ == "converged"
    assert model.n_iter_ < 2500
