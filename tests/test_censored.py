"""Densities of steps that end at limits: closed forms, quadrature, and draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t, norm
from scipy.stats import t as student_t

from wishflow.series.running.base import sides
from wishflow.series.running.censored import log_density

B = np.array([[1.0, 0.6, -0.2], [0.6, 2.0, 0.3], [-0.2, 0.3, 0.5]])
R = np.array([0.4, -0.7, 0.3])


def estimate(side, n=1, dof=None, r=R, covariance=B):
    """log of the mean of n estimates, and the relative error of that mean."""
    rows = (np.tile(x, (n, *([1] * x.ndim))) for x in (np.asarray(r), np.asarray(covariance), np.asarray(side)))
    found = np.asarray(log_density(jax.random.key(3), *(jnp.asarray(x) for x in rows), dof))
    weights = np.exp(found - found.max())
    return found.max() + np.log(weights.mean()), weights.std() / weights.mean() / np.sqrt(n)


@pytest.mark.parametrize("dof", [None, 5.0])
def test_without_limits_it_is_the_density(dof):
    expected = (
        multivariate_normal(np.zeros(3), B) if dof is None else multivariate_t(np.zeros(3), B * (dof - 2) / dof, dof)
    )
    assert estimate([0, 0, 0], dof=dof)[0] == pytest.approx(expected.logpdf(R), rel=1e-10)


@pytest.mark.parametrize("sign", [-1, 1])
def test_one_column_at_a_limit_is_exact(sign):
    """p(r₀, r₂) times the probability of what is beyond r₁ given them."""
    free = [0, 2]
    gain = np.linalg.solve(B[np.ix_(free, free)], B[free, 1])
    mean, sd = gain @ R[free], np.sqrt(B[1, 1] - gain @ B[free, 1])
    beyond = norm.logsf(R[1], mean, sd) if sign > 0 else norm.logcdf(R[1], mean, sd)
    expected = multivariate_normal(np.zeros(2), B[np.ix_(free, free)]).logpdf(R[free]) + beyond
    assert estimate([0, sign, 0])[0] == pytest.approx(expected, rel=1e-10)


def test_all_columns_at_limits_have_the_probability_of_an_orthant():
    found, error = estimate([-1, -1, -1], 20_000)
    assert found == pytest.approx(multivariate_normal(np.zeros(3), B).logcdf(R), abs=4 * error + 1e-4)
    # Three from the other side: P(x ≥ r) = P(−x ≤ −r).
    found, error = estimate([1, 1, 1], 20_000)
    assert found == pytest.approx(multivariate_normal(np.zeros(3), B).logcdf(-R), abs=4 * error + 1e-4)


def test_student_t_columns_share_their_scale():
    """One column alone has the law of a Student-t; given another the probability of what is beyond is that of the
    conditional Student-t, with a degree of freedom more and a scale that grows with what was seen.
    """
    dof = 4.0
    found, error = estimate([1], 40_000, dof, R[1:2], B[1:2, 1:2])
    one = student_t(dof, scale=np.sqrt(B[1, 1] * (dof - 2) / dof))
    assert found == pytest.approx(one.logsf(R[1]), abs=4 * error + 1e-4)
    far = np.array([4.0, 1.0])
    found, error = estimate([0, 1], 40_000, dof, far, B[:2, :2])
    first = student_t(dof, scale=np.sqrt(B[0, 0] * (dof - 2) / dof))
    squares = far[0] ** 2 / (B[0, 0] * (dof - 2) / dof)
    spread = (B[1, 1] - B[0, 1] ** 2 / B[0, 0]) * (dof - 2) / dof * (dof + squares) / (dof + 1)
    second = student_t(dof + 1, B[0, 1] / B[0, 0] * far[0], np.sqrt(spread))
    assert found == pytest.approx(first.logpdf(far[0]) + second.logsf(far[1]), abs=4 * error + 1e-4)


def test_far_limits_have_small_probabilities_and_no_nan():
    for side in ([1, 1, 0], [-1, 1, 1]):
        found, _ = estimate(side, 50, r=np.array([60.0, 50.0, 40.0]))
        assert np.isfinite(found) and found < -100.0


def test_sides_are_found_but_for_rounding():
    limits = np.array([[0.0, -1.0], [2.0, 5.0]])
    y = np.array([[0.0, 5.0], [1e-12, 5.0 - 1e-9], [1e-5, -1.1], [2.1, np.nan]])
    side, is_beyond = sides(y, limits)
    np.testing.assert_array_equal(side, [[-1, 1], [-1, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(is_beyond, [[False, False], [False, False], [False, True], [True, False]])
    assert not sides(y, None)[0].any() and not sides(y, None)[1].any()
