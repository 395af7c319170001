"""Synthetic SDEs: simulated paths against the closed forms of drift, covariance and transitions."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from wishflow import datasets
from wishflow.errors import DataError, OptionError

MAKERS = {
    "double_well": datasets.make_double_well,
    "lotka_volterra": datasets.make_lotka_volterra,
    "wishart_volatility": datasets.make_wishart_volatility,
    "ornstein_uhlenbeck": datasets.make_ornstein_uhlenbeck,
}
DIMENSIONS = {"double_well": 2, "lotka_volterra": 2, "wishart_volatility": 3, "ornstein_uhlenbeck": 2}


@pytest.fixture(scope="module", params=list(MAKERS))
def sde(request):
    return MAKERS[request.param]()


@pytest.fixture(scope="module")
def visited(sde):
    return sde.sample_start(500, 0)


def assert_moments(samples, mean, covariance, n_errors=4.0):
    """Mean and covariance of rows within `n_errors` standard errors; those of the covariance from the sample itself."""
    n = len(samples)
    error = np.sqrt(np.diag(covariance) / n)
    assert (np.abs(samples.mean(0) - mean) < n_errors * error).all()
    centred = samples - samples.mean(0)
    products = centred[:, :, None] * centred[:, None, :]
    assert (np.abs(products.mean(0) - covariance) < n_errors * products.std(0) / np.sqrt(n)).all()


# --- what holds for all ----------------------------------------------------------------------


def test_names_shapes_and_pickling(sde, visited):
    assert MAKERS[sde.name]().name == sde.name and sde.dim == DIMENSIONS[sde.name]
    assert isinstance(sde, datasets.SyntheticSDE) and visited.shape == (500, sde.dim)
    assert sde.drift(visited).shape == (500, sde.dim) and sde.covariance(visited).shape == (500, sde.dim, sde.dim)
    assert sde.drift(visited[0]).shape == (sde.dim,)
    np.testing.assert_array_equal(sde.covariance(visited[7]), sde.covariance(visited)[7])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(sde)).drift(visited), sde.drift(visited))


def test_covariance_is_symmetric_positive_definite_where_paths_go(sde, visited):
    covariance = sde.covariance(visited)
    np.testing.assert_array_equal(covariance, np.swapaxes(covariance, 1, 2))
    assert sde.contains(visited).all() and np.linalg.eigvalsh(covariance).min() > 0


def test_noise_is_correlated_and_depends_on_the_state(sde, visited):
    covariance = sde.covariance(visited)
    correlation = covariance[:, 0, 1] / np.sqrt(covariance[:, 0, 0] * covariance[:, 1, 1])
    assert np.abs(correlation).max() > 0.4
    assert (np.ptp(covariance[:, 0, 0]) > 0) == (sde.name != "ornstein_uhlenbeck")


def test_drift_vanishes_and_pulls_back_at_the_attractors(sde):
    np.testing.assert_allclose(sde.drift(sde.attractors), 0, atol=1e-12)
    rng = np.random.default_rng(0)
    for point in sde.attractors:
        flow = scipy.integrate.solve_ivp(
            lambda _, x: sde.drift(x), (0, 15 * sde.relaxation_time), point + 0.05 * rng.standard_normal(sde.dim)
        )
        np.testing.assert_allclose(flow.y[:, -1], point, atol=5e-3)


def test_short_steps_have_the_stated_drift_and_covariance(sde, visited):
    """Over dt → 0 the increment has mean μ dt and covariance Σ dt."""
    dt = 1e-4 * sde.relaxation_time
    for i, point in enumerate(visited[:3]):
        ends = sde.simulate(40_000, 1, dt, random_state=i, x0=point, substeps=3)[:, 1]
        assert_moments((ends - point) / np.sqrt(dt), sde.drift(point) * np.sqrt(dt), sde.covariance(point))


def test_drift_shows_over_longer_steps(sde, visited):
    """E[x(dt)] by Monte Carlo over dt = 0.02 relaxation times against x + μ dt; the bias is of order dt²."""
    dt = 0.02 * sde.relaxation_time
    point = visited[np.argmax(np.linalg.norm(sde.drift(visited), axis=1))]
    ends = sde.simulate(40_000, 1, dt, random_state=5, x0=point, substeps=4)[:, 1]
    error = 4 * np.sqrt(np.diag(sde.covariance(point)) * dt / len(ends))
    assert (np.abs(ends.mean(0) - point - sde.drift(point) * dt) < error + 0.05 * np.abs(sde.drift(point) * dt)).all()
    # The drift is not within the error of nothing.
    assert np.linalg.norm(sde.drift(point) * dt) > 2 * np.linalg.norm(error)


def test_starts_are_where_paths_stay(sde):
    """After five relaxation times, points of `sample_start` still have the same mean and spread."""
    x = sde.simulate(4000, 5, sde.relaxation_time, random_state=2, substeps=40)
    before, after = x[:, 0], x[:, -1]
    assert (np.abs(before.mean(0) - after.mean(0)) < 0.12 * before.std(0)).all()
    np.testing.assert_allclose(before.std(0), after.std(0), rtol=0.1)


def test_simulation_is_reproducible_and_keeps_its_start(sde):
    paths = sde.simulate(5, 4, 0.02, random_state=3)
    assert paths.shape == (5, 5, sde.dim) and np.isfinite(paths).all()
    np.testing.assert_array_equal(sde.simulate(5, 4, 0.02, random_state=3), paths)
    np.testing.assert_array_equal(sde.simulate(5, 4, 0.02, random_state=np.random.default_rng(3)), paths)
    assert not np.array_equal(sde.simulate(5, 4, 0.02, random_state=4), paths)
    again = sde.simulate(5, 1, 0.02, random_state=3, x0=paths[:, -1])
    np.testing.assert_array_equal(again[:, 0], paths[:, -1])


def test_bad_options_are_refused(sde):
    with pytest.raises(OptionError, match="n_paths=0; expected 1 or more"):
        sde.simulate(0, 3, 0.1, 0)
    with pytest.raises(OptionError, match="dt=-1"):
        sde.simulate(2, 3, -1, 0)
    with pytest.raises(DataError, match=r"x0 has shape \(3, .\); expected"):
        sde.simulate(2, 3, 0.1, 0, x0=np.ones((3, sde.dim)))
    with pytest.raises(DataError, match=r"points have shape \(4, 5\)"):
        sde.covariance(np.zeros((4, 5)))
    with pytest.raises(DataError, match="not a state of"):
        sde.simulate(2, 3, 0.1, 0, x0=np.full(sde.dim, np.nan))


# --- one by one ------------------------------------------------------------------------------


def test_ornstein_uhlenbeck_paths_have_the_exact_moments():
    """h-step mean and covariance of 20 000 paths, within 4 standard errors."""
    sde = datasets.make_ornstein_uhlenbeck()
    x0 = np.array([2.0, 0.5])
    paths = sde.simulate(20_000, 8, 0.1, random_state=0, x0=x0, substeps=50)
    for step in (1, 3, 8):
        assert_moments(paths[:, step], *sde.transition(x0, 0.1 * step))


@pytest.mark.parametrize("dt", [0.2, 0.7, 3.0])
def test_ornstein_uhlenbeck_transition_agrees_with_quadrature_and_composes(dt):
    A = np.array([[1.0, 0.3, 0.0], [-0.4, 0.7, 0.2], [0.1, 0.0, 2.0]])
    sigma = np.array([[0.5, 0.1, 0.0], [0.1, 0.3, -0.1], [0.0, -0.1, 0.8]])
    sde = datasets.make_ornstein_uhlenbeck(A, [1.0, 2.0, 3.0], sigma)
    x = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 4.0]])
    mean, covariance = sde.transition(x, dt)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    decays = [scipy.linalg.expm(-A * dt * (node + 1) / 2) for node in nodes]
    quadrature = sum(w * dt / 2 * E @ sigma @ E.T for w, E in zip(weights, decays, strict=True))
    np.testing.assert_allclose(covariance, quadrature, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(mean, sde.mean + (x - sde.mean) @ scipy.linalg.expm(-A * dt).T, rtol=1e-12)
    # Two steps make one: means follow each other, covariances add up after decay.
    half_mean, half = sde.transition(x, dt / 2)
    decay = scipy.linalg.expm(-A * dt / 2)
    np.testing.assert_allclose(sde.transition(half_mean, dt / 2)[0], mean, rtol=1e-12)
    np.testing.assert_allclose(half + decay @ half @ decay.T, covariance, rtol=1e-11, atol=1e-13)
    # Small and large dt: Σ dt and the stationary covariance.
    np.testing.assert_allclose(sde.transition(x, 1e-9)[1] / 1e-9, sigma, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(sde.transition(x, 30.0)[1], sde.stationary_covariance, rtol=1e-9)
    assert_moments(sde.sample_start(50_000, 0), sde.mean, sde.stationary_covariance)


def test_wishart_volatility_has_exact_moments_at_any_step():
    """n P is the stationary mean; μ is linear, so E[V] follows dE[V] = μ(E[V]) dt, in one coarse step too."""
    sde = datasets.make_wishart_volatility()
    start = sde.sample_start(50_000, 0)
    assert (np.abs(start.mean(0) - sde.attractors[0]) < 4 * start.std(0) / np.sqrt(len(start))).all()
    x0 = np.array([2.0, -0.5, 0.6])
    ends = sde.simulate(50_000, 1, 1.5, random_state=1, x0=x0, substeps=1)[:, 1]
    flow = scipy.integrate.solve_ivp(lambda _, x: sde.drift(x), (0, 1.5), x0, rtol=1e-9, atol=1e-10)
    assert (np.abs(ends.mean(0) - flow.y[:, -1]) < 4 * ends.std(0) / np.sqrt(len(ends))).all()
    assert sde.contains(ends).all()


def test_wishart_volatility_with_few_degrees_of_freedom_stays_positive_definite():
    sde = datasets.make_wishart_volatility(degrees_of_freedom=3)
    assert sde.contains(sde.simulate(200, 100, 0.1, random_state=0, substeps=2)).all()


def test_lotka_volterra_stays_positive():
    """On paths of a hundred relaxation times, and from populations near zero."""
    sde = datasets.make_lotka_volterra()
    paths = sde.simulate(200, 200, 0.5, random_state=0, substeps=25)
    assert paths.min() > 0.01 and paths.max() < 6
    small = sde.simulate(200, 20, 0.1, random_state=1, x0=[0.01, 0.01])
    assert small.min() > 0 and np.median(small[:, -1, 0]) > 0.1


def test_lotka_volterra_noise_falls_with_the_size_of_the_populations():
    small, large = datasets.make_lotka_volterra(), datasets.make_lotka_volterra(500.0)
    np.testing.assert_allclose(large.covariance([0.7, 1.2]) * 10, small.covariance([0.7, 1.2]))
    np.testing.assert_array_equal(large.drift([0.7, 1.2]), small.drift([0.7, 1.2]))


def test_double_well_has_two_wells_with_opposite_correlations_and_never_explodes():
    sde = datasets.make_double_well()
    x = sde.sample_start(3000, 0)
    counts = np.histogram(x[:, 0], [-2, -0.5, 0.5, 2])[0]
    assert counts[1] < 0.7 * counts[[0, 2]].min()
    left, right = sde.covariance(sde.attractors)[:, 0, 1]
    assert left < -0.05 and right > 0.05
    far = sde.simulate(50, 100, 0.1, random_state=0, x0=[100.0, -100.0], substeps=10)
    assert np.abs(far[:, -1]).max() < 5


@pytest.mark.usefixtures("types_unchecked")
def test_makers_refuse_bad_parameters():
    with pytest.raises(OptionError, match="noise=0"):
        datasets.make_double_well(noise=0)
    with pytest.raises(OptionError, match="system_size=3; expected 50 or more"):
        datasets.make_lotka_volterra(3)
    with pytest.raises(OptionError, match=r"degrees_of_freedom=2\.5"):
        datasets.make_wishart_volatility(2.5)
    with pytest.raises(OptionError, match=r"shapes \(1, 1\), \(2,\)"):
        datasets.make_ornstein_uhlenbeck([[1.0]])
    with pytest.raises(OptionError, match=r"eigenvalue with real part 1"):
        datasets.make_ornstein_uhlenbeck(-np.eye(2))
    with pytest.raises(OptionError, match="symmetric, positive definite"):
        datasets.make_ornstein_uhlenbeck(covariance_rate=[[1.0, 2.0], [2.0, 1.0]])


def test_explosion_is_an_error_that_says_what_to_do():
    sde = datasets.make_lotka_volterra()
    with pytest.raises(DataError, match="smaller dt or more substeps"):
        sde.simulate(10, 20, 50.0, random_state=0, x0=[1.0, 1.0], substeps=1)
