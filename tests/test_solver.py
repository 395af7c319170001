"""Euler–Maruyama: orders of convergence on SDEs with known answers, the limit of marginal sampling, the null cases."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import DIFFUSIONS, make_field, points, quick_jit, spread
from problems import (
    GEOMETRIC,
    ITERATED,
    NON_COMMUTATIVE,
    brownian_increments,
    coarser,
    commutator,
    geometric_end,
    geometric_euler_second_moment,
    geometric_second_moment,
    iterated_mean_square_gap,
    non_commutative_second_moment,
    slope,
)

from wishflow import kernels, wishart
from wishflow.inducing import InducingBasis
from wishflow.kernels import RBF
from wishflow.numerics.platform import UNROLLED_STEPS
from wishflow.wishart.given import GivenField
from wishflow.wishart.solver import PathState, euler_maruyama_step, simulate_driven, simulate_paths
from wishflow.wishart.specs import Wishart

drive = eqx.filter_jit(simulate_driven)


def endpoints(problem, dB, n_steps):
    """x_1 of Euler–Maruyama with n steps on the given Brownian paths."""
    dB = coarser(dB, n_steps)
    return np.asarray(drive(problem.field, jnp.asarray(problem.start(dB.shape[1])), jnp.asarray(dB), 1.0 / n_steps))


# --- strong order --------------------------------------------------------------------------------

COARSE = np.array([8, 16, 32, 64, 128])
FINE = 2048


@pytest.mark.parametrize("problem", [NON_COMMUTATIVE, ITERATED], ids=["linear", "iterated"])
def test_strong_order_is_a_half_for_noises_that_do_not_commute(problem):
    """Root mean square error at the end against a fine solution on the same Brownian paths."""
    assert np.abs(commutator()).max() > 0.5
    dB = brownian_increments(0, FINE, 1500)
    reference = endpoints(problem, dB, FINE)
    errors = [np.sqrt(np.mean(np.sum((endpoints(problem, dB, n) - reference) ** 2, 1))) for n in COARSE]
    assert abs(slope(1.0 / COARSE, np.array(errors)) - 0.5) < 0.15
    if problem is ITERATED:
        expected = [np.sqrt(iterated_mean_square_gap(1 / n, 1 / FINE)) for n in COARSE]
        np.testing.assert_allclose(errors, expected, rtol=0.15)
    else:
        squares = reference[:, :, None] * reference[:, None, :]
        away = np.abs(squares.mean(0) - non_commutative_second_moment()) / squares.std(0) * np.sqrt(len(squares))
        assert away.max() < 4.5


# --- weak order ----------------------------------------------------------------------------------


def test_weak_order_is_one_with_paired_paths():
    """E[x xᵀ] against the exact solution *on the same Brownian paths*, whose mean is known: only the gap is noisy."""
    steps = np.array([4, 8, 16, 32])
    half = brownian_increments(1, steps[-1], 15_000)
    dB = np.concatenate([half, -half], axis=1)
    exact = geometric_end(dB.sum(0))
    gaps, errors = [], []
    for n in steps:
        end = endpoints(GEOMETRIC, dB, n)
        gap = end[:, :, None] * end[:, None, :] - exact[:, :, None] * exact[:, None, :]
        # A path and its mirror image count once.
        gap = 0.5 * (gap[: len(gap) // 2] + gap[len(gap) // 2 :])
        gaps.append(gap.mean(0))
        errors.append(gap.std(0) / np.sqrt(len(gap)))
        known = geometric_euler_second_moment(n) - geometric_second_moment()
        assert np.all(np.abs(gap.mean(0) - known) < 4.5 * errors[-1])
    sizes = np.linalg.norm(np.array(gaps), axis=(1, 2))
    assert np.all(sizes > 20 * np.linalg.norm(np.array(errors), axis=(1, 2)))  # gaps are seen, not their noise
    assert abs(slope(1.0 / steps, sizes) - 1.0) < 0.25


# --- marginal sampling ---------------------------------------------------------------------------

N_PATHS = 60_000


def make_wide_field():
    """A two-dimensional Wishart field whose covariance is mostly spread of J: far from normal in one step."""
    Z = points(2, 6, 2)
    basis = InducingBasis.of(kernels.build(RBF(variance=0.5, lengthscale=2.0), 2), Z, 1e-6)
    spec = Wishart(rank=2, dof=1, columns="independent", unit_rows=False)
    return spread(wishart.build(spec, basis, 2, jax.random.key(0)), 1, 0.2)


def mean_covariance_field(prepared) -> GivenField:
    """dx = μ dt + Σ̄^½ dB: the law that marginal sampling tends to."""

    def root(x, t):
        S = prepared.at(x[None], t).mean_covariance()[0]
        first = jnp.sqrt(S[0, 0])
        below = S[1, 0] / first
        return jnp.stack([jnp.stack([first, 0.0 * first]), jnp.stack([below, jnp.sqrt(S[1, 1] - below**2)])])

    return GivenField(lambda x, t: prepared.at(x[None], t).drift[0], root)


def ends_centred(field, key, n_steps):
    """x_1 − E x_1, (S, 2)."""
    x0 = np.tile([0.3, -0.2], (N_PATHS, 1))
    end = np.asarray(finish(field, key, jnp.asarray(x0), n_steps))
    return end - end.mean(0)


@eqx.filter_jit
def finish(field, key, x0, n_steps):
    return simulate_paths(key, field, x0, 1.0, n_steps)[0]


def relative_gap(first, second):
    """(E first − E second) / E second for samples of one number, and its standard error."""
    error = np.sqrt((first.var() + second.var()) / N_PATHS)
    return (first.mean() - second.mean()) / second.mean(), error / second.mean()


@pytest.mark.slow
def test_marginal_sampling_tends_to_the_sde_with_the_mean_covariance(key):
    """One step has the covariance ΔΣ̄ in both, but other fourth moments: their gap at the end vanishes with Δ."""
    field = make_wide_field()
    prepared = quick_jit(lambda f: f.prepare())(field)
    limit = mean_covariance_field(prepared)
    gaps = []
    for n_steps in (1, 4, 16):
        k_field, k_limit = jax.random.split(jax.random.fold_in(key, n_steps))
        ends = ends_centred(prepared, k_field, n_steps), ends_centred(limit, k_limit, n_steps)
        gaps.append(relative_gap(*(np.sum(end**2, 1) ** 2 for end in ends)))
    (one, noise), (four, _), (sixteen, _) = gaps
    assert one > 1.0 > 5 * noise
    assert one > 2 * four > 4 * sixteen
    assert sixteen < 0.2
    for i, j in ((0, 0), (0, 1), (1, 1)):  # the covariance, at the finest step
        products = [end[:, i] * end[:, j] for end in ends]
        gap, error = relative_gap(*products)
        assert abs(gap) < 4.5 * abs(error)


# --- null cases ----------------------------------------------------------------------------------


def test_without_noise_the_path_is_eulers_exactly(key):
    """Σ = 0: x ← x + μ(x) Δ, whatever the key."""
    field, x = make_field("none"), points(3, 4)
    prepared = quick_jit(lambda f: f.prepare())(field)
    run = quick_jit(lambda p, k: simulate_paths(k, p, x, 0.8, 5))
    end, path = run(prepared, key)
    drift = quick_jit(lambda p, x: p.at(x, 0.0).drift)
    for state in np.asarray(path):
        x = np.asarray(x) + 0.16 * np.asarray(drift(prepared, x))
        np.testing.assert_allclose(state, x, rtol=1e-14, atol=1e-15)
    np.testing.assert_array_equal(end, path[-1])
    np.testing.assert_array_equal(end, run(prepared, jax.random.key(99))[0])
    assert np.abs(np.asarray(end) - np.asarray(points(3, 4))).max() > 0.05


def test_a_given_field_without_noise_has_eulers_closed_form(key):
    """dx = −λ x dt: (1 − λΔ)ⁿ x_0 by both routes into the solver."""
    field = GivenField(lambda x, t: -1.5 * x, lambda x, t: jnp.zeros((2, 3)))
    x0 = points(4, 5, 2)
    expected = (1 - 1.5 * 0.1) ** 10 * np.asarray(x0)
    np.testing.assert_allclose(finish(field, key, x0, 10), expected, rtol=1e-13)
    np.testing.assert_allclose(drive(field, x0, jnp.ones((10, 5, 3)), 0.1), expected, rtol=1e-13)


@pytest.mark.parametrize("name", DIFFUSIONS)
def test_no_time_is_the_identity(name, key):
    x0 = points(5, 4)
    end = quick_jit(lambda f: simulate_paths(key, f.prepare(), x0, 0.0, 2)[0])(make_field(name))
    np.testing.assert_array_equal(end, x0)


def test_no_time_is_the_identity_for_pathwise_draws_too(key):
    x0 = points(5, 4)
    end = quick_jit(lambda f: simulate_paths(key, f.draw(key), x0, 0.0, 2)[0])(make_field("wishart-shared-white"))
    np.testing.assert_array_equal(end, x0)


def test_time_runs_from_zero_in_equal_steps(key):
    """dx = t dt: Σ_k (kΔ) Δ = Δ² n (n − 1) / 2."""
    field = GivenField(lambda x, t: t + 0.0 * x, lambda x, t: jnp.zeros((1, 1)))
    end = quick_jit(lambda x: simulate_paths(key, field, x, 2.0, 8)[0])(np.zeros((1, 1)))
    np.testing.assert_allclose(end, 0.25**2 * 8 * 7 / 2, rtol=1e-13)


@pytest.mark.parametrize("name", ["wishart-shared-white", "wishart-independent", "gp", "diagonal", "none"])
def test_the_loop_is_the_step_repeated(key, name):
    """Each step has a key of its own, though its noise is drawn beforehand, and the time is carried along."""
    field, x0 = make_field(name, is_time_dependent=True), points(6, 3)

    @quick_jit
    def both(field):
        prepared = field.prepare()
        state = PathState(x0, jnp.zeros(()))
        for step_key in jax.random.split(key, 3):
            state = euler_maruyama_step(step_key, state, prepared, 0.25)
        return simulate_paths(key, prepared, x0, 0.75, 3)[0], state.values

    looped, stepped = both(field)
    np.testing.assert_allclose(looped, stepped, rtol=1e-13)


def test_brownian_paths_of_coarser_steps_are_the_same_paths():
    dB = brownian_increments(2, 16, 3)
    np.testing.assert_allclose(coarser(dB, 4).sum(0), dB.sum(0), rtol=1e-12, atol=1e-14)
    assert coarser(dB, 4).shape == (4, 3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("n_steps", [3, UNROLLED_STEPS + 1])
def test_on_an_accelerator_few_steps_are_no_loop_and_the_same_path(key, n_steps, monkeypatch):
    field, x0 = make_field("wishart-shared-white"), points(4, 3)

    def value_and_slope(field):
        return jax.value_and_grad(
            lambda field: jnp.sum(simulate_paths(key, field.prepare(), x0, 1.0, n_steps)[0] ** 2)
        )(field)

    looped = quick_jit(value_and_slope)(field)
    monkeypatch.setattr("wishflow.numerics.platform.on_accelerator", lambda: True)
    traced = jax.make_jaxpr(lambda field: value_and_slope(field))(field)
    is_unrolled = f"unroll={n_steps}" in str(traced)
    assert is_unrolled == (n_steps <= UNROLLED_STEPS)
    if is_unrolled:
        in_a_row = quick_jit(lambda field: value_and_slope(field))(field)
        for one, other in zip(jax.tree.leaves(in_a_row), jax.tree.leaves(looped), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
