"""The auto-regressive SDE: its start, its paths against exact moments, its noise against known truth."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from factories import points, quick_jit, spread, with_constant_noise
from montecarlo import assert_moments

import wishflow as wf
from studies.benchmarks import coverage
from wishflow.kernels import RBF, Linear, Matern12, Periodic
from wishflow.numerics.parameters import Scaled
from wishflow.series import autoregressive as dynamics
from wishflow.series.autoregressive import Start, simulate
from wishflow.series.gaussian_filter import drift_jacobian
from wishflow.series.layout import Layout
from wishflow.series.linear import LINEAR_STEP, LinearDrift, lag_penalty
from wishflow.series.specs import DynamicsSpec
from wishflow.series.starts import in_steps, ridge_start
from wishflow.series.windows import Series, Transitions, cut, n_substeps, to_ticks
from wishflow.wishart.specs import GPDiffusion, NoDiffusion, Wishart

DIFFUSIONS = {
    "wishart": Wishart(rank=2, unit_rows=False),
    "wishart-shared": Wishart(rank=2, dof=4, columns="shared", unit_rows=False),
    "wishart-narrow": Wishart(rank=3, dof=2, columns="independent", unit_rows=False),
    "wishart-independent": Wishart(rank=2, dof=3, columns="independent", unit_rows=False),
    "gp": GPDiffusion(),
    "none": NoDiffusion(),
}


def make_model(diffusion="wishart", drift="linear+gp", lags=1, n_covariates=0, dim=3, **options):
    layout = Layout(dim, lags, n_covariates)
    rng = np.random.default_rng(0)
    root = rng.normal(size=(dim, dim))
    weights = 0.1 * rng.normal(size=(dim, layout.n_lagged + n_covariates))
    start = Start(*(jnp.asarray(x) for x in (weights, 0.1 * rng.normal(size=dim), root @ root.T)))
    spec = DynamicsSpec(drift=drift, diffusion=DIFFUSIONS[diffusion], lags=lags, **options)
    Z = rng.normal(size=(6, dim + n_covariates))
    return dynamics.build(spec, layout, start, Z, jax.random.key(0)), start


@pytest.mark.parametrize("diffusion", DIFFUSIONS)
def test_training_starts_at_the_covariance_of_the_residuals(diffusion, monkeypatch):
    """E[Σ] + Λ is Q on its diagonal at the inducing points, where the mean of J is what it was given."""
    monkeypatch.setattr("wishflow.wishart.wishart.DIFFUSION_MEAN_SD", 0.0)
    model, start = make_model(diffusion)
    here = quick_jit(lambda field: field.prepare().at(field.basis.Z))(model.field)
    covariance = np.asarray(here.mean_covariance())
    expected = np.tile(np.diagonal(start.covariance), (len(covariance), 1))
    np.testing.assert_allclose(np.diagonal(covariance, axis1=1, axis2=2), expected, rtol=2e-3)
    if diffusion.startswith("wishart"):
        noise, (_, rank, columns) = model.field.noise, here.means.shape
        constant = np.eye(rank, 1) / noise.dof**0.5 if noise.has_shared_columns else np.eye(rank, columns)
        np.testing.assert_allclose(here.means, np.tile(constant, (len(covariance), 1, 1)), atol=1e-3)
        values, vectors = np.linalg.eigh(start.covariance)
        largest = (vectors[:, -rank:] * values[-rank:]) @ vectors[:, -rank:].T
        beside = ~np.eye(len(largest), dtype=bool)
        np.testing.assert_allclose(covariance[:, beside], np.tile(largest[beside], (len(covariance), 1)), atol=2e-3)


@pytest.mark.parametrize("kernel", [RBF(), Matern12(), Periodic(), Linear()], ids=repr)
def test_training_starts_near_the_prior_whatever_the_kernel(kernel):
    """A constant costs a few nats; a linear kernel has none in its span, and must not be forced to one."""
    model, _ = make_model("wishart-independent", kernel=kernel)
    assert float(model.field.noise.kl()["kl_diffusion"]) < 30.0


@pytest.mark.parametrize("diffusion", ["wishart", "gp"])
@pytest.mark.parametrize("lags, n_covariates", [pytest.param(1, 0, marks=pytest.mark.slow), (3, 2)])
def test_the_jacobian_of_the_drift(diffusion, lags, n_covariates):
    model, _ = make_model(diffusion, lags=lags, n_covariates=n_covariates)
    X = points(3, 4, dim=3 * lags + n_covariates)

    @quick_jit
    def both(field):
        prepared = field.prepare()
        return drift_jacobian(prepared, X), jax.vmap(jax.jacfwd(lambda x: prepared.at(x[None]).drift[0]))(X)

    found, expected = both(spread(model).field)
    np.testing.assert_allclose(found, expected[..., : 3 * lags], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("diffusion", [pytest.param("wishart", marks=pytest.mark.slow), "none"])
def test_student_t_noise_has_the_covariance_of_gaussian_noise_and_one_scale_for_all_entries(diffusion, key):
    """Without Σ, whose draws vary by themselves, E (rᵀB⁻¹r)² = D (D + 2) (κ − 2)/(κ − 4): one scale for all."""
    model, _start = make_model(diffusion, innovations="student_t")
    field = eqx.tree_at(lambda f: f.tail_dof, model.field, Scaled.of(12.0, dynamics.LEAST_TAIL_DOF))

    @quick_jit
    def both(field, key):
        here = field.prepare().at(jnp.broadcast_to(points(1, 1), (200_000, 3)))
        return here.increment(key, 0.25) / 0.5, here.mean_covariance()[0]

    steps, expected = (np.asarray(part) for part in both(field, key))
    np.testing.assert_allclose(np.cov(steps.T), expected, atol=0.02 * np.abs(expected).max())
    if diffusion == "none":
        squares = np.einsum("ni,ij,nj->n", steps, np.linalg.inv(expected), steps) ** 2
        assert squares.mean() == pytest.approx(3 * 5 * 10 / 8, abs=4.5 * squares.std() / 200_000**0.5)


@pytest.mark.slow
def test_the_tails_of_simulated_innovations_are_found():
    """κ of auto-regressions of three series, from one start, with more and with fewer degrees of freedom."""
    found = {}
    for dof in (3.0, 15.0, np.inf):
        rng = np.random.default_rng(1)
        scale = np.sqrt(dof / rng.chisquare(dof, size=(6000, 1))) if np.isfinite(dof) else 1.0
        noise, x = scale * rng.normal(size=(6000, 3)), np.zeros((6000, 3))
        for t in range(1, len(x)):
            x[t] = 0.8 * x[t - 1] + noise[t]
        y = pd.DataFrame(x, columns=["a", "b", "c"])
        model = wf.WishartForecaster(
            diffusion="none", drift="linear", innovations="student_t", max_iter=600, validation_fraction=0
        ).fit(y)
        found[dof] = model.history_["tail_dof"].iloc[-1]
    assert found[3.0] == pytest.approx(3.0, rel=0.15)
    assert found[15.0] == pytest.approx(15.0, rel=0.25)
    assert found[np.inf] > 30.0


def test_state_dependent_white_noise_is_bounded():
    model, _start = make_model(white_noise="state")
    white = spread(model, scale=50.0).field
    found = white.prepare().at(points(0, 200, sd=20.0)).white / white.white.base.value
    assert float(found.max()) <= np.exp(3.0) * 1.001 and float(found.min()) >= np.exp(-3.0) * 0.999
    constant = model.field.prepare().at(points(0, 5)).white
    np.testing.assert_allclose(constant, np.tile(model.field.white.base.value, (5, 1)))


def test_the_ridge_start_finds_a_linear_sde():
    """Increments of a VAR(1) at irregular times: drift and covariance rate within their errors."""
    rng = np.random.default_rng(1)
    W, Q = np.array([[-0.5, 0.2], [0.0, -0.3]]), np.array([[0.4, 0.1], [0.1, 0.2]])
    n = 20_000
    h, y = rng.uniform(0.1, 0.5, size=n), np.zeros((n, 2))
    for t in range(1, n):
        y[t] = y[t - 1] + h[t] * (W @ y[t - 1]) + np.sqrt(h[t]) * np.linalg.cholesky(Q) @ rng.normal(size=2)
    ticks = to_ticks(Series(np.cumsum(h), y, np.zeros((n, 0))), 1.0, 1, 24.0)
    start = ridge_start(cut(ticks, 1)[0], has_linear=True)
    np.testing.assert_allclose(start.weights, W, atol=0.05)
    np.testing.assert_allclose(start.covariance, Q, atol=0.02)


def old_rows(n, n_lags, dim=3, seed=0):
    """Transitions of independent inputs whose increments are all of them times small weights, and noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, n_lags * dim))
    weights = 0.05 * rng.normal(size=(dim, n_lags * dim))
    increments = X @ weights.T + rng.normal(size=(n, dim))
    return Transitions(X, increments, np.ones(n), np.arange(n)), weights


def test_old_lags_of_other_series_are_held_small():
    """By (l/3)⁵ from the fourth lag on; the newest lags, and a series' own past, as in a regression without a prior."""
    n_lags, dim = 9, 3
    penalty = lag_penalty(dim, n_lags, n_lags * dim + 2)
    np.testing.assert_array_equal(penalty[:, [*range(3 * dim), -2, -1]], 1.0)
    blocks = penalty[:, : n_lags * dim].reshape(dim, n_lags, dim)
    np.testing.assert_array_equal(np.einsum("iki->ik", blocks), 1.0)
    np.testing.assert_allclose(blocks[0, 8, 1], 3.0**5)
    transitions, _ = old_rows(300, n_lags)
    free = np.asarray(ridge_start(transitions, True).weights).reshape(dim, n_lags, dim)
    held = np.asarray(ridge_start(transitions, True, n_lags).weights).reshape(dim, n_lags, dim)
    others = ~np.eye(dim, dtype=bool)
    size = [np.abs(w[:, -1][others]).mean() for w in (free, held)]
    assert size[1] < 0.1 * size[0]
    own = [np.einsum("iki->ik", w)[:, -1] for w in (free, held)]
    np.testing.assert_allclose(*own, atol=0.03)
    many, truth = old_rows(100_000, n_lags)  # a prior gives way to data
    found = np.asarray(ridge_start(many, True, n_lags).weights)
    np.testing.assert_allclose(found, truth, atol=0.02)


def test_weights_are_what_they_were_made_of_and_old_lags_move_by_little():
    weights = np.random.default_rng(0).normal(size=(2, 13))
    drift = LinearDrift.of(weights, np.zeros(2), n_lags=6)
    np.testing.assert_allclose(drift.weights, weights, rtol=1e-14)
    moved = dataclasses.replace(drift, units=drift.units + 1.0).weights - drift.weights
    np.testing.assert_allclose(moved**-2.0, lag_penalty(2, 6, 13) / LINEAR_STEP**2, rtol=1e-9)


@pytest.mark.parametrize("n_steps", [1, 2, 5])
def test_short_steps_start_where_they_lead_as_far_as_a_long_one(n_steps):
    """x ← x + (W(x, u) + b)/n, n times, is one step with the whole-gap rates, and so is its noise."""
    rng = np.random.default_rng(3)
    weights, constant = np.column_stack([-0.4 * np.eye(2) + 0.1 * rng.normal(size=(2, 2)), [0.3, -0.2]]), np.ones(2)
    whole = Start(weights, constant, np.array([[1.0, 0.3], [0.3, 0.5]]))
    steps = in_steps(whole, n_steps)
    x, u = rng.normal(size=2), np.array([0.7])
    end, noise, A = x, np.zeros((2, 2)), np.eye(2) + np.asarray(steps.weights)[:, :2] / n_steps
    for _ in range(n_steps):
        noise = A @ noise @ A.T + np.asarray(steps.covariance) / n_steps
        end = end + (np.asarray(steps.weights) @ np.concatenate([end, u]) + np.asarray(steps.constant)) / n_steps
    np.testing.assert_allclose(end, x + weights @ np.concatenate([x, u]) + constant, rtol=1e-10)
    np.testing.assert_allclose(noise, whole.covariance, rtol=1e-10)


def test_what_has_no_root_starts_as_it_is():
    """A step of −1.5 x turns x round; no two equal real steps do."""
    whole = Start(np.array([[-1.5]]), np.zeros(1), np.eye(1))
    assert in_steps(whole, 2) is whole


# --- Ornstein–Uhlenbeck ---------------------------------------------------------------------------


def euler_moments(A, m, Q, x0, h):
    """Means and covariances of x' = x + h A (m − x) + √h ε after each of the given steps."""
    mean, covariance, found = x0, np.zeros_like(Q), []
    for step in h:
        G = np.eye(len(A)) - step * A
        mean, covariance = mean + step * A @ (m - mean), G @ covariance @ G.T + step * Q
        found.append((mean, covariance))
    return found


def ou_model(A, m, L, white):
    """The model whose Euler recursion this is, with Q = L Lᵀ + Λ."""
    layout = Layout(2, 1, 0)
    start = Start(*(jnp.asarray(x) for x in (-A, A @ m, np.diag(white))))
    spec = DynamicsSpec(drift="linear", diffusion=NoDiffusion())
    return with_constant_noise(dynamics.build(spec, layout, start, np.zeros((1, 2)), jax.random.key(0)), L)


def test_paths_have_the_moments_of_the_euler_recursion_at_every_stamp(key):
    """Irregular times, correlated noise (.6): means and covariances within four standard errors."""
    A, m, L, white = np.array([[0.8, 0.2], [-0.3, 0.5]]), np.array([0.3, -0.2]), np.array([[0.6], [0.4]]), [0.1, 0.15]
    gaps = np.array([0.7, 2.3, 0.05, 1.0, 3.6])
    counts = n_substeps(gaps, 1.0)
    h = np.repeat(gaps / counts, counts)
    model, x0 = ou_model(A, m, L, white), np.array([1.0, -1.0])

    @quick_jit
    def after(keys):
        field = model.field.prepare()
        start = jnp.asarray(np.tile(x0, (1000, 1)))

        def one(key):
            end, before = simulate(key, field, start, jnp.asarray(h), jnp.zeros((len(h), 0)))
            return jnp.concatenate([before[1:], end[None]])  # (T, N, D)

        return jax.lax.map(one, keys)

    paths = np.swapaxes(np.asarray(after(jax.random.split(key, 100))), 0, 1).reshape(len(h), -1, 2)
    moments = euler_moments(A, m, L @ L.T + np.diag(white), x0, h)
    for stamp in np.cumsum(counts) - 1:
        assert_moments(paths[stamp], *moments[stamp], 4.0)


def test_noise_that_is_drawn_at_once_is_that_of_each_tick(key, monkeypatch):
    """Long forecasts of many draws have the same noise as short ones, to rounding."""
    model, _ = make_model("wishart", lags=2)
    h, start = jnp.array([1.0, 0.5, 1.0]), points(0, 7, 6)
    found = []
    for most in (0, dynamics.MOST_NORMALS):
        monkeypatch.setattr(dynamics, "MOST_NORMALS", most)
        found.append(simulate(key, model.field.in_parts(), start, h, jnp.zeros((3, 0))))
    assert 3 * 7 * (model.field.in_parts().n_normals or 0) <= most
    for each, at_once in zip(*found, strict=True):
        np.testing.assert_allclose(each, at_once, rtol=1e-12)


def test_the_euler_recursion_tends_to_the_sde_at_the_rate_of_its_step():
    """Error of mean and covariance over one unit of time against the exact transition: halved with the step."""
    process = wf.datasets.make_ornstein_uhlenbeck()
    x0 = np.full(process.dim, 0.7)
    mean, covariance = process.transition(x0[None], 1.0)
    errors = []
    for n in (20, 40, 80, 160):
        A, Q = process.reversion, process.covariance(x0[None])[0]
        found = euler_moments(np.asarray(A), np.asarray(process.mean), Q, x0, np.full(n, 1.0 / n))[-1]
        errors.append(np.abs(found[0] - mean[0]).max() + np.abs(found[1] - np.reshape(covariance, Q.shape)).max())
    rates = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    np.testing.assert_allclose(rates, 1.0, atol=0.1)


# --- recovery -------------------------------------------------------------------------------------

TRUTHS = {
    "double well": wf.datasets.make_double_well,
    "Lotka–Volterra": wf.datasets.make_lotka_volterra,
    "Wishart volatility": wf.datasets.make_wishart_volatility,
    "Ornstein–Uhlenbeck": wf.datasets.make_ornstein_uhlenbeck,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "double well" else pytest.param(name, marks=pytest.mark.long) for name in TRUTHS]
)
def test_the_noise_of_known_sdes_is_recovered(name):
    """20 000 transitions from many short paths, Δ = .02 relaxation times: the median relative error is below 15 %."""
    truth = TRUTHS[name]()
    dt = 0.02 * truth.relaxation_time
    paths = truth.simulate(1000, 20, dt, random_state=0)
    series = {i: pd.DataFrame(path, index=dt * np.arange(21)) for i, path in enumerate(paths)}
    rank = truth.dim
    model = wf.WishartForecaster(
        rank=rank, white_noise="state", max_iter=1500, n_inducing=50, validation_fraction=0
    ).fit(series)
    visited = truth.simulate(200, 1, dt, random_state=1)[:, 0]
    # A rate is per unit of time, and the unit is the median gap; stamps far apart make every row a series of its own.
    apart = pd.DataFrame(visited, index=1000.0 * np.arange(len(visited)))
    found = model.covariance({0: apart})[0].values / dt
    expected = truth.covariance(visited)
    error = np.linalg.norm(found - expected, axis=(1, 2)) / np.linalg.norm(expected, axis=(1, 2))
    assert np.median(error) < 0.15


@pytest.mark.slow
@pytest.mark.long
def test_intervals_cover_what_they_say_at_every_horizon_on_data_simulated_from_the_model():
    """50, 80 and 95 % intervals, 1 to 12 steps ahead: each band within 5 points, each horizon within 5 points and two
    standard errors. State-dependent correlated noise of a model of ours; a new one is fitted to the first third."""
    found = coverage.measure(0, "64 draws of J")
    assert found["n_origins"] > 600
    for level in coverage.LEVELS:
        result = found["levels"][f"{100 * level:g}"]
        shares, errors = np.array(result["by_horizon"]), np.array(result["standard_errors"])
        assert len(shares) == 12 and set(result["bands"]) == {"all", *coverage.BANDS}
        assert all(abs(share - level) < 0.05 for share, _ in result["bands"].values()), (level, result["bands"])
        assert np.all(np.abs(shares - level) < 0.05 + 2.0 * errors), (level, shares)
