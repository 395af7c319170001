"""Conformal regions: the law of their coverage, their size for a law that is right, and what leaves them unchanged.

Laws here are functions of the rows; those of estimators are in `estimators/test_conformal.py`.
"""

import dataclasses

import numpy as np
import pytest
import scipy.stats

import wishflow as wf
from wishflow.errors import DataError, OptionError
from wishflow.regression.regions import conformal_radius, conformal_rank, distances, log_volumes, rows_needed


def covariances(X):
    """(N, 3, 3), of another size and correlation at each row."""
    roots = np.eye(3) + 0.8 * np.sin(X[:, :1, None] + np.arange(9.0).reshape(3, 3))
    return np.exp(X[:, :1, None]) * (roots @ np.swapaxes(roots, 1, 2) + 0.1 * np.eye(3))


def law(X):
    return np.cos(X + np.arange(3.0)), covariances(X)


def draw(n, rng, noise=None):
    """Rows of `law`; `noise` takes the place of standard normal numbers."""
    X = rng.normal(size=(n, 1))
    mean, covariance = law(X)
    noise = rng.normal(size=(n, 3)) if noise is None else noise
    return X, mean + (np.linalg.cholesky(covariance) @ noise[..., None])[..., 0]


# --- coverage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_rows", "coverage"), [(19, 0.9), (60, 0.8)])
def test_the_coverage_of_a_law_that_is_right_has_its_beta_law(n_rows, coverage):
    """Given the radius r, a new row is covered with the probability χ²₃(r²)."""
    rng = np.random.default_rng(0)
    radii = [wf.JointRegion.of(law, *draw(n_rows, rng), coverage).radius for _ in range(1500)]
    rank = int(np.ceil((n_rows + 1) * coverage))
    found = scipy.stats.chi2(3).cdf(np.square(radii))
    assert scipy.stats.kstest(found, scipy.stats.beta(rank, n_rows + 1 - rank).cdf).pvalue > 0.01
    spread = scipy.stats.beta(rank, n_rows + 1 - rank).std() / np.sqrt(len(radii))
    assert found.mean() == pytest.approx(rank / (n_rows + 1), abs=3.0 * spread)


def test_the_coverage_of_a_law_that_is_wrong_is_the_same():
    """Heavy tails about a wrong mean, with a covariance that is a hundred times too small and not correlated."""
    rng = np.random.default_rng(1)
    n_rows, n_new, coverage = 29, 50, 0.9

    def wrong(X):
        return law(X)[0] + 0.5, np.broadcast_to(0.01 * np.eye(3), (len(X), 3, 3))

    counts = []
    for _ in range(600):
        X, y = draw(n_rows + n_new, rng, rng.standard_t(2.5, (n_rows + n_new, 3)))
        region = wf.JointRegion.of(wrong, X[:n_rows], y[:n_rows], coverage)
        counts.append(region.contains(X[n_rows:], y[n_rows:]).sum())
    expected = scipy.stats.betabinom(n_new, 27, 3)
    assert np.mean(counts) == pytest.approx(expected.mean(), abs=3.0 * expected.std() / np.sqrt(len(counts)))
    assert np.var(counts) == pytest.approx(expected.var(), rel=0.25)
    X, y = draw(4000, rng, rng.standard_t(2.5, (4000, 3)))
    trusted = dataclasses.replace(region, radius=float(np.sqrt(scipy.stats.chi2(3).ppf(coverage))))
    assert trusted.contains(X, y).mean() < 0.1  # what the law itself says


def test_the_radius_of_a_law_that_is_right_is_that_of_chi_squared():
    region = wf.JointRegion.of(law, *draw(100_000, np.random.default_rng(2)), 0.9)
    exact = scipy.stats.chi2(3)
    error = np.sqrt(0.9 * 0.1 / 100_000) / exact.pdf(exact.ppf(0.9))  # of an empirical quantile
    assert region.radius**2 == pytest.approx(exact.ppf(0.9), abs=3.0 * error)


def test_as_many_calibration_rows_are_inside_as_the_rank_says():
    X, y = draw(57, np.random.default_rng(3))
    for coverage in (0.05, 0.5, 0.9, 57 / 58):
        region = wf.JointRegion.of(law, X, y, coverage)
        assert region.contains(X, y).sum() == np.ceil(np.round(58 * coverage, 9)) and region.n_rows == 57


# --- ranks ---------------------------------------------------------------------------------------


def test_ranks_leave_rounding_aside():
    """100 · 0.55 > 55, 5/6 as a double > 5/6, and 0.9/(1 − 0.9) > 9 in doubles."""
    assert 100 * 0.55 > 55 and 0.9 / (1.0 - 0.9) > 9
    assert conformal_rank(99, 0.55) == 55 and rows_needed(0.9) == 9
    for n in range(1, 3000):
        assert conformal_rank(n, n / (n + 1)) == n and rows_needed(n / (n + 1)) == n


@pytest.mark.parametrize("coverage", [0.01, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_the_fewest_rows_have_the_largest_distance_as_radius_and_fewer_are_refused(coverage):
    n = rows_needed(coverage)
    scores = np.random.default_rng(0).permutation(np.arange(1.0, n + 1.0))
    assert conformal_radius(scores, coverage) == n
    if n > 1:
        with pytest.raises(DataError, match=rf"{n - 1} calibration rows given .* at least {n}: .* most {n - 1}/{n}\."):
            conformal_radius(scores[1:], coverage)


def test_a_coverage_that_no_rows_can_have_is_refused_and_not_infinite():
    with pytest.raises(DataError, match=r"5 calibration rows given for coverage=0\.99\d+; expected at least"):
        conformal_radius(np.ones(5), 1.0 - 1e-15)
    scores = np.array([1.0, 2.0, np.nan, np.inf, 0.5])
    assert conformal_radius(scores, 0.5) == 2.0
    with pytest.raises(DataError, match="2 of 5 calibration rows have no finite distance"):
        conformal_radius(scores, 0.6)


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, 1.2, "most", [0.5, 0.9]])
def test_what_is_no_coverage_is_refused(coverage, types_unchecked):
    X, y = draw(20, np.random.default_rng(0))
    with pytest.raises(OptionError, match="coverage="):
        wf.JointRegion.of(law, X, y, coverage)


# --- geometry ------------------------------------------------------------------------------------


def test_affine_maps_of_the_targets_map_the_region():
    """y → A y + b: the radius and what is inside stay, volumes grow by log |det A|."""
    rng = np.random.default_rng(4)
    A, b = rng.normal(size=(3, 3)) * [[1e-6], [1.0], [1e8]], rng.normal(size=3)

    def mapped(X):
        mean, covariance = law(X)
        return mean @ A.T + b, A @ covariance @ A.T

    X, y = draw(40, rng)
    region, other = wf.JointRegion.of(law, X, y, 0.8), wf.JointRegion.of(mapped, X, y @ A.T + b, 0.8)
    assert other.radius == pytest.approx(region.radius, rel=1e-6)
    X, y = draw(500, rng)
    is_inside = region.contains(X, y)
    assert 0.5 < is_inside.mean() < 1.0
    np.testing.assert_array_equal(other.contains(X, y @ A.T + b), is_inside)
    np.testing.assert_allclose(other.volume(X) - region.volume(X), np.linalg.slogdet(A)[1], rtol=1e-6)


def test_distances_and_volumes_are_those_of_the_definition():
    rng = np.random.default_rng(5)
    X, y = draw(7, rng)
    mean, covariance = law(X)
    errors = y - mean
    direct = np.sqrt([e @ np.linalg.solve(S, e) for e, S in zip(errors, covariance, strict=True)])
    np.testing.assert_allclose(distances(y, mean, covariance), direct, rtol=1e-10)
    for n_outputs, ball in ((1, 2.0), (2, np.pi), (3, 4.0 * np.pi / 3.0)):
        part = covariance[:, :n_outputs, :n_outputs]
        expected = ball * 1.7**n_outputs * np.sqrt(np.linalg.det(part))
        np.testing.assert_allclose(np.exp(log_volumes(part, 1.7)), expected, rtol=1e-10)
    assert (log_volumes(covariance, 0.0) == -np.inf).all()


def test_a_volume_is_the_part_of_a_box_that_is_inside():
    rng = np.random.default_rng(6)
    X, y = draw(40, rng)
    region = wf.JointRegion.of(law, X, y, 0.8)
    centre, covariance = (part[0] for part in region.ellipsoids(X[:1]))
    reach = region.radius * np.sqrt(np.diagonal(covariance))
    points = centre + reach * rng.uniform(-1.0, 1.0, (100_000, 3))
    share = region.contains(np.repeat(X[:1], len(points), 0), points).mean()
    expected = np.exp(region.volume(X[:1])[0]) / np.prod(2.0 * reach)
    assert share == pytest.approx(expected, abs=4.0 * np.sqrt(expected / len(points)))
    # The ellipsoid touches the box in the middle of its faces' conjugate points.
    edge = centre + region.radius * covariance[:, 0] / np.sqrt(covariance[0, 0])
    assert region.contains(X[:1], (centre + 0.999 * (edge - centre))[None])[0]
    assert not region.contains(X[:1], (centre + 1.001 * (edge - centre))[None])[0]


def test_a_region_is_not_to_be_changed():
    region = wf.JointRegion.of(law, *draw(20, np.random.default_rng(0)), 0.9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        region.radius = 3.0
    assert repr(region).startswith("JointRegion(coverage=0.9, radius=") and "function" not in repr(region)


def test_targets_of_another_shape_are_refused():
    X, y = draw(20, np.random.default_rng(0))
    region = wf.JointRegion.of(law, X, y, 0.9)
    with pytest.raises(DataError, match=r"y has shape \(20, 2\).* 3 target column"):
        region.contains(X, y[:, :2])
    with pytest.raises(DataError, match="X has 20 rows and y has 19"):
        wf.JointRegion.of(law, X, y[1:], 0.9)
