"""Scores against closed forms, brute force and an independent implementation."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from wishflow import metrics
from wishflow.errors import DataError, OptionError


@pytest.fixture
def rng():
    return np.random.default_rng(7)


# --- CRPS ------------------------------------------------------------------------------------


def test_fair_crps_equals_the_double_sum(rng):
    y, x = rng.normal(size=5), rng.normal(size=(17, 5))
    pairs = np.abs(x[:, None] - x[None]).sum((0, 1)) / (17 * 16)
    np.testing.assert_allclose(metrics.crps_samples(y, x), np.abs(x - y).mean(0) - 0.5 * pairs, rtol=1e-12)


def test_fair_crps_of_two_draws_is_unbiased(rng):
    """E of the fair estimator does not depend on S: two draws at a time give the closed form of N(0, 1)."""
    n = 200_000
    scores = metrics.crps_samples(np.full(n, 0.7), rng.normal(size=(2, n)))
    exact = metrics.crps_gaussian([0.7], [0.0], [1.0])[0]
    assert abs(scores.mean() - exact) < 4 * scores.std() / np.sqrt(n)


def test_fair_crps_keeps_its_digits_far_from_zero(rng):
    y, x = rng.normal(size=4), rng.normal(size=(50, 4))
    np.testing.assert_allclose(metrics.crps_samples(y + 1e8, x + 1e8), metrics.crps_samples(y, x), atol=1e-6)


@pytest.mark.parametrize("y", [-2.0, 0.1, 3.0])
def test_crps_is_the_integral_of_the_squared_cdf_difference(y):
    """CRPS = ∫ (F(t) − 1{t ≥ y})² dt, for one Gaussian and for a mixture of three."""
    means, stds = np.array([-1.0, 0.5, 2.0]), np.array([0.2, 1.0, 0.5])

    def integral(cdf):
        below = integrate.quad(lambda t: cdf(t) ** 2, -15, y, limit=300, points=[p for p in means if -15 < p < y])[0]
        above = integrate.quad(lambda t: (1 - cdf(t)) ** 2, y, 15, limit=300, points=[p for p in means if p > y])[0]
        return below + above

    mixture = integral(lambda t: stats.norm.cdf(t, means, stds).mean())
    np.testing.assert_allclose(metrics.crps_gaussian_mixture(y, means, stds**2), mixture, rtol=1e-6)
    single = integral(lambda t: stats.norm.cdf(t, 0.5, 1.0))
    np.testing.assert_allclose(metrics.crps_gaussian(y, 0.5, 1.0), single, rtol=1e-6)


def test_mixture_of_equal_parts_is_one_gaussian(rng):
    y, mean, std = rng.normal(size=6), rng.normal(size=6), rng.uniform(0.1, 2, 6)
    mixture = metrics.crps_gaussian_mixture(y, np.tile(mean, (9, 1)), np.tile(std**2, (9, 1)))
    np.testing.assert_allclose(mixture, metrics.crps_gaussian(y, mean, std), rtol=1e-12)


def test_mixture_without_variance_is_the_ensemble_with_every_pair_counted(rng):
    """With variances 0, S² pairs: the fair score less E|X − X'|/2 · (1/S² − 1/(S(S−1))) S²."""
    y, x = rng.normal(size=3), rng.normal(size=(8, 3))
    pairs = np.abs(x[:, None] - x[None]).mean((0, 1))
    expected = np.abs(x - y).mean(0) - 0.5 * pairs
    np.testing.assert_allclose(metrics.crps_gaussian_mixture(y, x, np.zeros_like(x)), expected, rtol=1e-12)


def test_crps_of_a_point_mass_is_the_absolute_error():
    np.testing.assert_array_equal(metrics.crps_gaussian([1.0, 2.0], [3.0, 2.0], [0.0, 0.0]), [2.0, 0.0])
    tiny = metrics.crps_gaussian([1.0], [3.0], [1e-300])
    np.testing.assert_allclose(tiny, [2.0])


# --- several outputs -------------------------------------------------------------------------


def test_energy_score_in_one_dimension_is_the_crps(rng):
    y, x = rng.normal(size=5), rng.normal(size=(30, 5))
    np.testing.assert_allclose(metrics.energy_score(y[:, None], x[..., None]), metrics.crps_samples(y, x), rtol=1e-12)


def test_energy_score_does_not_change_under_rotation(rng):
    y, x = rng.normal(size=(4, 3)), rng.normal(size=(20, 4, 3))
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    np.testing.assert_allclose(metrics.energy_score(y @ rotation, x @ rotation), metrics.energy_score(y, x), rtol=1e-10)


def test_variogram_score_sees_a_wrong_correlation_that_marginal_scores_do_not(rng):
    """Strongly correlated truth; independent draws with the same marginals must score worse."""
    root = np.linalg.cholesky([[1.0, 0.95], [0.95, 1.0]])
    y = rng.normal(size=(500, 2)) @ root.T
    right, wrong = rng.normal(size=(200, 500, 2)) @ root.T, rng.normal(size=(200, 500, 2))
    assert metrics.variogram_score(y, right).mean() < 0.5 * metrics.variogram_score(y, wrong).mean()
    crps = [metrics.crps_samples(y, x).mean() for x in (right, wrong)]
    assert abs(crps[0] - crps[1]) < 0.02


def test_variogram_weights_select_pairs(rng):
    y, x = rng.normal(size=(4, 3)), rng.normal(size=(20, 4, 3))
    weights = np.zeros((3, 3))
    weights[0, 2] = weights[2, 0] = 1.0
    expected = metrics.variogram_score(y[:, [0, 2]], x[..., [0, 2]], order=1.0)
    np.testing.assert_allclose(metrics.variogram_score(y, x, order=1.0, weights=weights), expected, rtol=1e-12)


# --- log densities ---------------------------------------------------------------------------


def test_the_log_density_of_a_mixture_is_that_of_its_density(rng):
    y, means, stds = rng.normal(size=5), rng.normal(size=(7, 5)), rng.uniform(0.5, 2.0, size=(7, 5))
    density = stats.norm.pdf(y, means, stds).mean(axis=0)
    np.testing.assert_allclose(metrics.mixture_log_density(stats.norm.logpdf(y, means, stds)), np.log(density))
    assert np.isfinite(metrics.mixture_log_density([-1000.0, -1001.0]))


def test_moment_matched_log_density_is_that_of_a_gaussian_with_the_moments_of_the_draws(rng):
    y, x = rng.normal(size=(4, 3)), rng.normal(size=(50, 4, 3)) @ rng.normal(size=(3, 3))
    expected = [stats.multivariate_normal(x[:, n].mean(0), np.cov(x[:, n].T)).logpdf(y[n]) for n in range(4)]
    np.testing.assert_allclose(metrics.moment_matched_log_density(y, x), expected, rtol=1e-10)


def test_draws_without_a_regular_covariance_have_no_moment_matched_density(rng):
    """Scales may differ by orders; an output that never varies, follows from another or overflows leaves NaN there."""
    x, y = rng.normal(size=(50, 4, 3)), rng.normal(size=(4, 3))
    found = metrics.moment_matched_log_density(y, x)
    scale = np.array([1.0, 1e30, 1e-30])
    np.testing.assert_allclose(metrics.moment_matched_log_density(scale * y, scale * x), found, rtol=1e-9)
    x[:, 1, 0], x[7, 2, 1], x[:, 3, 2] = 2.0, 1e300, 3.0 * x[:, 3, 0] - 1.0
    assert np.isnan(metrics.moment_matched_log_density(y, x)).tolist() == [False, True, True, True]


# --- agreement with scoringrules -------------------------------------------------------------


def test_agreement_with_scoringrules(rng):
    sr = pytest.importorskip("scoringrules")
    y, x, stds = rng.normal(size=6), rng.normal(size=(25, 6)), rng.uniform(0.1, 2, (25, 6))
    np.testing.assert_allclose(
        metrics.crps_samples(y, x), sr.crps_ensemble(y, x, m_axis=0, estimator="fair"), rtol=1e-10
    )
    np.testing.assert_allclose(metrics.crps_gaussian(y, x[0], stds[0]), sr.crps_normal(y, x[0], stds[0]), rtol=1e-10)
    np.testing.assert_allclose(
        metrics.crps_gaussian_mixture(y, x, stds**2), sr.crps_mixnorm(y, x, stds, m_axis=0), rtol=1e-7
    )
    np.testing.assert_allclose(
        metrics.interval_score(y, x[0] - 1, x[0] + 1, 0.8), sr.interval_score(y, x[0] - 1, x[0] + 1, 0.2), rtol=1e-10
    )
    Y, samples = rng.normal(size=(6, 3)), rng.normal(size=(25, 6, 3))
    fair = sr.es_ensemble(Y, samples, m_axis=0, estimator="fair")
    np.testing.assert_allclose(metrics.energy_score(Y, samples), fair, rtol=1e-10)
    np.testing.assert_allclose(
        metrics.variogram_score(Y, samples), sr.vs_ensemble(Y, samples, m_axis=0, p=0.5), rtol=1e-10
    )


# --- points, intervals, log density ----------------------------------------------------------


def test_rmse_and_mean_log_density():
    assert metrics.rmse([1.0, 2.0, 3.0], [1.0, 2.0, 6.0]) == pytest.approx(np.sqrt(3.0))
    assert metrics.mean_log_density([-1.0, -3.0]) == -2.0


def test_coverage_counts_both_ends_as_inside():
    assert metrics.coverage([0.0, 1.0, 2.0, 3.0], [0.0, 1.5, 1.0, 0.0], [1.0, 2.0, 2.0, 2.9]) == 0.5


def test_interval_score_is_least_at_the_true_quantiles(rng):
    y = rng.normal(size=100_000)
    half = stats.norm.ppf(0.95)
    scores = {
        width: metrics.interval_score(y, np.full_like(y, -width * half), np.full_like(y, width * half), 0.9).mean()
        for width in (0.7, 1.0, 1.4)
    }
    assert min(scores, key=scores.get) == 1.0


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, what",
    [
        (lambda: metrics.rmse(np.zeros((3, 1)), np.zeros(3)), r"y \(3, 1\), mean \(3,\)"),
        (lambda: metrics.mean_log_density([]), "empty"),
        (lambda: metrics.crps_samples(np.zeros(3), np.zeros((3, 10))), r"expected samples \(S, 3\)"),
        (lambda: metrics.crps_samples(np.zeros(3), np.zeros((1, 3))), "at least 2"),
        (lambda: metrics.crps_gaussian([0.0], [0.0], [-1.0]), "negative"),
        (lambda: metrics.crps_gaussian_mixture(np.zeros(3), np.zeros((5, 3)), np.ones((4, 3))), "shapes differ"),
        (lambda: metrics.energy_score(np.zeros(3), np.zeros((5, 3))), "crps_samples"),
        (lambda: metrics.moment_matched_log_density(np.zeros((2, 4)), np.zeros((4, 2, 4))), "needs more than 4"),
        (lambda: metrics.variogram_score(np.zeros((3, 2)), np.zeros((5, 3, 2)), weights=np.ones(2)), "weights"),
        (lambda: metrics.coverage([0.0], [1.0], [-1.0]), "swapped"),
    ],
)
def test_bad_arrays_are_refused(call, what):
    with pytest.raises(DataError, match=what):
        call()


def test_bad_options_are_refused():
    with pytest.raises(OptionError, match="coverage=90"):
        metrics.interval_score([0.0], [0.0], [1.0], coverage=90)
    with pytest.raises(OptionError, match="order=0"):
        metrics.variogram_score(np.zeros((3, 2)), np.zeros((5, 3, 2)), order=0)


# --- the scorer ------------------------------------------------------------------------------


class GaussianModel(RegressorMixin, BaseEstimator):
    """y ~ N(x, scale²): the right scale is 2, and the score R² cannot tell."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0]

    def log_prob(self, X, y):
        return stats.norm.logpdf(y, self.predict(X), self.scale)


def test_scorer_chooses_the_scale_in_a_grid_search_also_after_pickling(rng):
    X = rng.normal(size=(600, 1))
    y = X[:, 0] + 2.0 * rng.normal(size=600)
    scorer = pickle.loads(pickle.dumps(metrics.log_prob_scorer))
    search = GridSearchCV(GaussianModel(), {"scale": [0.5, 2.0, 8.0]}, scoring=scorer, cv=3).fit(X, y)
    assert search.best_params_ == {"scale": 2.0}
    expected = stats.norm.logpdf(y, X[:, 0], 2.0).mean()
    assert metrics.log_prob_scorer(search.best_estimator_, X, y) == pytest.approx(expected)
    assert metrics.log_prob_scorer(search, X, y) == pytest.approx(expected)


def test_scorer_passes_through_pipelines(rng):
    X = 5.0 + 3.0 * rng.normal(size=(60, 1))
    pipeline = make_pipeline(StandardScaler(), GaussianModel()).fit(X, X[:, 0])
    scaled = pipeline[:-1].transform(X)
    assert metrics.log_prob_scorer(pipeline, X, scaled[:, 0]) == pytest.approx(stats.norm.logpdf(0.0))
    assert np.isfinite(cross_val_score(pipeline, X, X[:, 0], scoring=metrics.log_prob_scorer, cv=3)).all()
    assert metrics.log_prob_scorer(make_pipeline(GaussianModel()).fit(X, X[:, 0]), X, X[:, 0]) == pytest.approx(
        stats.norm.logpdf(0.0)
    )


def test_scorer_refuses_models_without_a_density():
    with pytest.raises(OptionError, match="StandardScaler has no method `log_prob`"):
        metrics.log_prob_scorer(StandardScaler(), None, None)
