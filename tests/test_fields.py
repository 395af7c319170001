"""Fields: one contract for every diffusion, and the laws of the Wishart one."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import DIFFUSIONS, DIM, WISHARTS, build_field, make_basis, make_field, points, quick_jit
from montecarlo import assert_mean, assert_same_moments

from wishflow import kernels, wishart
from wishflow.errors import OptionError
from wishflow.inducing import SparseGP, WhitenedPosterior
from wishflow.kernels import Periodic
from wishflow.wishart import Field, WishartNoise
from wishflow.wishart.specs import DiffusionSpec, Wishart
from wishflow.wishart.wishart import _normals, _words

EVERY = pytest.mark.parametrize("name", DIFFUSIONS)
EVERY_WISHART = pytest.mark.parametrize("name", WISHARTS)
# One of each class of field, for what does not depend on the shape of the diffusion.
TIMED = ["diagonal", "gp", "wishart-independent-white"]
EVERY_CLASS = pytest.mark.parametrize("name", TIMED)
N_DRAWS = 100_000
DT = 0.3
TIME = 0.4


@quick_jit
def both_precisions(field, X, t):
    """Drift, Σ̄ and the diagonal of Λ, in float64 and in float32."""

    def values(dtype):
        here = field.prepare(dtype).at(X.astype(dtype), jnp.asarray(t, dtype))
        return here.drift, here.mean_covariance(), here.white

    return values(jnp.float64), values(jnp.float32)


def closed_form(field, X, t=TIME):
    return [np.asarray(part) for part in both_precisions(field, X, t)[0]]


@quick_jit
def draws(field, x, key):
    """1e5 draws at one state, in rows: increments by the field's own way (S, D), and by the long way,

    √dt (σ W + Λ^½ ε) with σ drawn entry by entry; and σσᵀ (S, D, D).
    """
    k_short, k_factor, k_W, k_white = jax.random.split(key, 4)
    here = field.prepare().at(jnp.tile(x, (N_DRAWS, 1)), TIME)
    sigma = here.factor(k_factor)
    W = jax.random.normal(k_W, (N_DRAWS, sigma.shape[-1]))
    white = jnp.sqrt(here.white) * jax.random.normal(k_white, (N_DRAWS, DIM))
    long = jnp.sqrt(DT) * (jnp.einsum("ndv,nv->nd", sigma, W) + white)
    return here.increment(k_short, DT), long, jnp.einsum("ndv,nev->nde", sigma, sigma)


@functools.cache
def drawn_once(name):
    """The closed form at four rows, and the draws at the first of them (used by several tests)."""
    field, X = make_field(name), points(5, 4)
    return closed_form(field, X), [np.asarray(part) for part in draws(field, np.asarray(X)[0], jax.random.key(20))]


def outer(factor):
    return np.einsum("...dv,...ev->...de", factor, factor)


def diagonal(white):
    return np.asarray(white)[..., None] * np.eye(DIM)


# --- the contract --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("name", "is_time_dependent"), [(n, False) for n in DIFFUSIONS] + [(n, True) for n in TIMED])
def test_float32_fields_follow_the_float64_ones(name, is_time_dependent):
    exact, rounded = both_precisions(make_field(name, is_time_dependent), points(4, 4), TIME)
    for wide, narrow, shape in zip(exact, rounded, [(4, DIM), (4, DIM, DIM), (4, DIM)], strict=True):
        assert wide.shape == narrow.shape == shape
        assert wide.dtype == jnp.float64 and narrow.dtype == jnp.float32
        np.testing.assert_allclose(narrow, wide, rtol=5e-5, atol=5e-5)


@pytest.mark.slow
@EVERY
def test_increments_have_mean_zero_and_covariance_dt_times_the_mean_covariance(name):
    """Rows are independent, also where they are in the same state."""
    (_, covariance, _), (increments, _, _) = drawn_once(name)
    assert_mean(increments, np.zeros(DIM), 4.5)
    assert_mean(increments[:, :, None] * increments[:, None, :], DT * covariance[0], 4.5)
    assert_mean(increments[1:, :, None] * increments[:-1, None, :], np.zeros((DIM, DIM)), 4.5)


@EVERY
def test_factors_and_white_noise_make_up_the_mean_covariance(name):
    """E[σσᵀ] + Λ = Σ̄ over 1e5 draws, the posterior being away from the prior."""
    (_, covariance, white), (_, _, squares) = drawn_once(name)
    assert np.all(white >= 0.0)
    assert_mean(squares + diagonal(white[0]), covariance[0])


@EVERY
def test_increments_have_the_law_of_the_long_way(name):
    """Short cuts included: all moments to order 4, mixed ones too."""
    _, (short, long, _) = drawn_once(name)
    if name == "none":
        assert not short.any() and not long.any()
    else:
        assert_same_moments(short, long, 4)


@EVERY_WISHART
def test_moments_to_order_four_tell_wishart_noise_from_normal_noise(name):
    """So the test above would see a short cut that has the right covariance only."""
    (_, covariance, _), (short, _, _) = drawn_once(name)
    root = np.linalg.cholesky(DT * covariance[0] + 1e-12 * np.eye(DIM))
    normal = np.random.default_rng(0).normal(size=(N_DRAWS, DIM)) @ root.T
    assert_same_moments(short, normal, 3)
    with pytest.raises(AssertionError, match="standard errors apart"):
        assert_same_moments(short, normal, 4)


@EVERY
def test_a_field_that_is_told_no_time_does_not_change_with_it(name):
    early, late = (closed_form(make_field(name), points(7, 4), t) for t in (0.1, 0.9))
    for one, other in zip(early, late, strict=True):
        np.testing.assert_array_equal(one, other)


@EVERY_CLASS
def test_a_time_dependent_field_changes_with_time(name):
    """Drift and covariance move; far from every inducing time and place the drift dies out."""
    field, X = make_field(name, True), points(7, 4)
    (drift, covariance, _), (drift_later, covariance_later, _) = (closed_form(field, X, t) for t in (0.1, 0.9))
    assert np.abs(drift - drift_later).max() > 1e-3
    assert np.abs(covariance - covariance_later).max() > 1e-3 or name == "diagonal"
    assert np.abs(closed_form(field, X, 100.0)[0]).max() < 1e-12


@EVERY_CLASS
def test_a_kernel_that_does_not_see_the_time_column_gives_the_field_without_time(name):
    plain = make_field(name)
    times = np.linspace(0.0, 1.0, plain.basis.n_inducing)[:, None]
    blind = make_basis(dim=DIM + 1, active_dims=(0, 1, 2))
    Z, kernel = jnp.asarray(np.hstack([plain.basis.Z, times])), plain.basis.kernel
    parts = (Z, kernel.variance, kernel.lengthscale)
    blind = eqx.tree_at(lambda b: (b.Z, b.kernel.variance, b.kernel.lengthscale), blind, parts)
    leaves = jax.tree.leaves(eqx.tree_at(lambda f: f.basis, plain, blind))
    template = eqx.tree_at(lambda f: f.basis, make_field(name, is_time_dependent=True), blind)
    timed = jax.tree.unflatten(jax.tree.structure(template), leaves)
    for one, other in zip(closed_form(plain, points(8, 4)), closed_form(timed, points(8, 4)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@quick_jit
def penalties(field):
    return field.kl(), field.summary()


@EVERY
def test_kl_is_named_and_zero_only_where_nothing_is_learnt(name):
    parts, summary = penalties(make_field(name))
    expected = {"none": set(), "diagonal": {"kl_drift"}, "gp": {"kl_drift"}}
    assert set(parts) == expected.get(name, {"kl_drift", "kl_diffusion"})
    assert all(float(value) > 0.0 for value in parts.values())
    assert summary and all(np.isfinite(value) for value in summary.values())


def test_the_drift_penalty_is_half_its_squared_norm():
    for name in ("diagonal", "wishart-shared"):
        field = make_field(name)
        np.testing.assert_allclose(
            penalties(field)[0]["kl_drift"], 0.5 * np.sum(np.asarray(field.gp.mean) ** 2), rtol=1e-13
        )


@quick_jit
def marginals(basis, posterior, X):
    return SparseGP(basis, posterior).conditioned().marginals(X)


def test_gp_field_is_mean_and_variance_of_one_sparse_gp():
    """Two routes: the field, and the marginals of a sparse GP with the same basis and posterior."""
    field, X = make_field("gp"), points(9, 4)
    drift, covariance, _ = closed_form(field, X)
    mean, variance = marginals(field.basis, field.noise.posterior, X)
    np.testing.assert_allclose(drift, mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(covariance, diagonal(variance), rtol=1e-12, atol=1e-14)


@EVERY_WISHART
def test_wishart_field_is_made_of_the_marginals_of_its_sparse_gps(name):
    """Σ̄ = L (M Mᵀ + diag_r Σ_v s²_rv) Lᵀ + Λ with M and s² from sparse GPs in the order (r, v); drift likewise."""
    field, X = make_field(name), points(9, 4)
    mean, variance = (np.asarray(part) for part in marginals(field.basis, field.noise.posterior, X))
    if field.noise.has_shared_columns:
        mean, variance = (np.repeat(part, field.noise.dof, 1) for part in (mean, variance))
    shape = (4, -1, field.noise.dof)
    M, s2 = mean.reshape(shape), variance.reshape(shape).sum(-1)
    L = np.asarray(field.noise.scale.value)
    expected = L @ (outer(M) + s2[:, :, None] * np.eye(L.shape[1])) @ L.T
    drift, covariance, white = closed_form(field, X)
    np.testing.assert_allclose(covariance, expected + diagonal(white), rtol=1e-11, atol=1e-13)
    drift_posterior = eqx.tree_at(lambda q: q.mean, WhitenedPosterior.prior(DIM, 6), field.gp.mean)
    np.testing.assert_allclose(drift, marginals(field.basis, drift_posterior, X)[0], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("shape", [(1,), (5, 32), (30, 50)])
def test_normals_of_any_shape_are_those_of_jax(shape):
    key = jax.random.key(3)
    np.testing.assert_allclose(_normals(_words(key), shape), jax.random.normal(key, shape), rtol=1e-12)


def test_a_spec_without_a_field_is_refused():
    with pytest.raises(OptionError, match="not registered"):
        wishart.build(DiffusionSpec(), make_basis(), DIM, jax.random.key(0))


# --- the Wishart diffusion -----------------------------------------------------------------------


def at_the_prior(field: Field) -> Field:
    return eqx.tree_at(lambda f: f.noise.posterior, field, WhitenedPosterior.prior(*field.noise.posterior.mean.shape))


@pytest.mark.slow
@EVERY_WISHART
def test_prior_mean_of_the_covariance_rate(name, key):
    """E[Σ(x)] = ν k(x, x) L Lᵀ (+ Λ), in closed form and over 1e5 draws within 4 standard errors."""
    field = at_the_prior(make_field(name))
    X = jnp.vstack([points(10, 3), field.basis.Z[:1]])
    L, k = np.asarray(field.noise.scale.value), np.asarray(field.basis.kernel.diagonal(X))
    expected = field.noise.dof * k[:, None, None] * (L @ L.T)
    _, covariance, white = closed_form(field, X)
    np.testing.assert_allclose(covariance, expected + diagonal(white), rtol=1e-8)
    for row in (0, 3):
        assert_mean(draws(field, X[row], jax.random.fold_in(key, row))[2], expected[row])


@pytest.mark.parametrize("columns", ["shared", "independent"])
@pytest.mark.parametrize("rank", [DIM, 10])
def test_rank_of_the_state_is_full_rank_and_higher_ranks_act_as_it(columns, rank):
    low, full = (build_field(Wishart(rank=r, columns=columns)) for r in (rank, None))
    assert jax.tree.structure(low) == jax.tree.structure(full)
    for one, other in zip(jax.tree.leaves(low), jax.tree.leaves(full), strict=True):
        np.testing.assert_array_equal(one, other)
    assert low.noise.dof == DIM
    np.testing.assert_array_equal(full.noise.scale.value, np.eye(DIM))


def test_rank_limits_the_rank_of_every_draw(key):
    for rank in (1, 2):
        field = build_field(Wishart(rank=rank, dof=4))
        np.testing.assert_allclose(np.sum(np.asarray(field.noise.scale.value) ** 2, 1), 1.0, rtol=1e-12)
        sigma = quick_jit(lambda f: f.prepare().at(points(1, 2), 0.0).factor(key))(field)
        assert sigma.shape == (2, DIM, 4)
        assert np.all(np.linalg.matrix_rank(outer(sigma)) == rank)


@pytest.mark.parametrize("name", ["wishart-shared-white", "wishart-independent-white"])
def test_white_noise_adds_exactly_to_the_mean_covariance(name):
    field, X = make_field(name), points(12, 4)
    white = field.white
    drift, covariance, none = closed_form(eqx.tree_at(lambda f: f.white, field, None), X)
    drift_added, covariance_added, some = closed_form(field, X)
    np.testing.assert_array_equal(none, 0.0)
    np.testing.assert_array_equal(some, np.broadcast_to(white.base.value, (4, DIM)))
    np.testing.assert_array_equal(drift, drift_added)
    np.testing.assert_allclose(covariance_added - covariance, diagonal(some), rtol=1e-13, atol=1e-15)


def as_independent(shared: Field) -> Field:
    """The field with independent columns whose ν posteriors of each row are all equal, in the order (r, v)."""
    n_rows = len(shared.noise.posterior.mean)
    repeated = jax.tree.map(
        lambda leaf: jnp.asarray(np.repeat(leaf, shared.noise.dof, 0)) if len(leaf) == n_rows else leaf,
        shared.noise.posterior,
    )
    noise = WishartNoise(repeated, shared.noise.scale, shared.noise.dof, False)
    return eqx.tree_at(lambda f: f.noise, shared, noise)


@pytest.mark.parametrize("name", ["wishart-shared", "wishart-shared-full"])
def test_shared_columns_cost_nu_times_one_column(name):
    shared = make_field(name)
    one = float(np.sum(quick_jit(lambda q: q.kl())(shared.noise.posterior)))
    np.testing.assert_allclose(penalties(shared)[0]["kl_diffusion"], shared.noise.dof * one, rtol=1e-13)
    np.testing.assert_allclose(penalties(as_independent(shared))[0]["kl_diffusion"], shared.noise.dof * one, rtol=1e-13)


def test_shared_columns_are_independent_draws_of_one_posterior():
    shared, X = make_field("wishart-shared-white"), points(13, 4)
    one, other = (closed_form(f, X) for f in (shared, as_independent(shared)))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


# --- pathwise draws ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wishart-shared-white", "wishart-independent"])
def test_drawn_fields_average_to_the_mean_covariance(name, key, monkeypatch):
    """E over draws of the whole function J(·): Σ at a row has the mean Σ̄, and given the draw σ is no longer random."""
    monkeypatch.setattr("wishflow.inducing.pathwise.N_FEATURES", 24)
    field, X = make_field(name), points(14, 4)

    @quick_jit
    def drawn(keys):
        def one(k):
            here = field.draw(k).at(X, TIME)
            return here.drift, here.factor(jax.random.key(0)), here.factor(jax.random.key(1)), here.mean_covariance()

        return jax.lax.map(one, keys, batch_size=1000)

    drift, sigma, again, covariance = (np.asarray(part) for part in drawn(jax.random.split(key, 10_000)))
    mean_drift, mean_covariance, white = closed_form(field, X)
    np.testing.assert_allclose(sigma, again, atol=1e-100)
    np.testing.assert_allclose(drift, np.broadcast_to(mean_drift, drift.shape), rtol=1e-10)
    np.testing.assert_allclose(covariance, outer(sigma) + diagonal(white), rtol=1e-10, atol=1e-12)
    assert_mean(covariance, mean_covariance, 4.5)


def at(prepared, X):
    here = prepared.at(X, TIME)
    return here.drift, here.mean_covariance()


def test_fields_without_random_coefficients_are_their_own_draw(key):
    X = points(15, 4)
    for name in ("none", "diagonal"):
        drawn, prepared = quick_jit(lambda f: [at(p, X) for p in (f.draw(key), f.prepare())])(make_field(name))
        for one, other in zip(drawn, prepared, strict=True):
            np.testing.assert_array_equal(one, other)


def test_pathwise_draws_are_refused_where_there_are_none(key):
    with pytest.raises(OptionError, match="pathwise"):
        make_field("gp").draw(key)
    periodic = kernels.build(Periodic(), DIM)
    field = eqx.tree_at(lambda f: f.basis.kernel, make_field("wishart-shared"), periodic)
    with pytest.raises(OptionError, match="random features"):
        jax.eval_shape(lambda: field.draw(key).at(points(0, 2), 0.0).drift)


def test_a_drawn_posterior_without_spread_is_the_posterior_mean(key):
    """R → 0 and rows at the inducing points: nothing is left to draw."""
    field = make_field("wishart-independent")

    @quick_jit
    def two_ways(field):
        posterior = eqx.tree_at(lambda q: q.log_variances, field.noise.posterior, replace_fn=lambda v: v - 40.0)
        certain = eqx.tree_at(lambda f: (f.noise.posterior, f.basis.jitter), field, (posterior, jnp.asarray(1e-12)))
        return [at(prepared, field.basis.Z) for prepared in (certain.draw(key), certain.prepare())]

    for drawn, expected in zip(*two_ways(field), strict=True):
        np.testing.assert_allclose(drawn, expected, atol=2e-5)
