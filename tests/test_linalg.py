"""Factors and inverses against NumPy, one factorisation at a time, and the choice of jitter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from factories import quick_jit

from wishflow.errors import FactorisationError
from wishflow.numerics import linalg


def positive_definite(seed, size=6):
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T + 0.3 * np.eye(size)


def test_cholesky_and_solves_agree_with_numpy():
    matrix, b = positive_definite(0), np.random.default_rng(1).normal(size=(6, 3))
    L = linalg.cholesky(jnp.asarray(matrix))
    np.testing.assert_allclose(L, np.linalg.cholesky(matrix), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(linalg.solve_lower(L, jnp.asarray(b)), np.linalg.solve(L, b), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(linalg.inverse_lower(L), np.linalg.inv(L), rtol=1e-11, atol=1e-13)


def test_cholesky_of_an_indefinite_matrix_is_nan():
    assert np.isnan(linalg.cholesky(jnp.asarray([[1.0, 2.0], [2.0, 1.0]]))).any()


@pytest.mark.parametrize("size", [1, 2, 7])
def test_inverse_square_root_is_the_lower_triangular_root_of_the_inverse(size):
    """R Rᵀ = Π⁻¹; with R lower triangular and a positive diagonal there is only one, the Cholesky factor of Π⁻¹."""
    precision = positive_definite(2, size)
    R = np.asarray(linalg.inverse_square_root(jnp.asarray(precision)))
    np.testing.assert_allclose(R, np.linalg.cholesky(np.linalg.inv(precision)), rtol=1e-10, atol=1e-13)
    assert np.all(np.triu(R, 1) == 0.0)


def test_the_whitener_and_its_derivatives_are_those_of_factor_and_inverse(key):
    """W K Wᵀ = I; forward and reverse derivatives against those of the two steps."""
    matrix = jnp.asarray(positive_definite(3))
    W = linalg.whitener(matrix)
    np.testing.assert_allclose(W @ matrix @ W.T, np.eye(6), atol=1e-12)
    weights, direction = jax.random.normal(key, (2, 6, 6))

    def plain(K):
        return jnp.sum(weights * jnp.sin(linalg.inverse_lower(linalg.cholesky(K))))

    def ours(K):
        return jnp.sum(weights * jnp.sin(linalg.whitener(K)))

    symmetric = direction + direction.T
    np.testing.assert_allclose(
        jax.jvp(ours, (matrix,), (symmetric,))[1], jax.jvp(plain, (matrix,), (symmetric,))[1], rtol=1e-10
    )
    slopes = [jax.grad(f)(matrix) for f in (ours, plain)]
    np.testing.assert_allclose(slopes[0] + slopes[0].T, slopes[1] + slopes[1].T, rtol=1e-9, atol=1e-12)


def test_a_cayley_map_is_a_rotation_with_the_right_slope(key):
    """Q = (I − A)(I + A)⁻¹ by NumPy; QQᵀ = I, det Q = 1; and dQ = −2 dA where A = 0."""
    B = jnp.tril(0.7 * jax.random.normal(key, (7, 7)), -1)
    A, identity = np.asarray(B - B.T), np.eye(7)
    Q = np.asarray(linalg.cayley(B))
    np.testing.assert_allclose(Q, (identity - A) @ np.linalg.inv(identity + A), atol=1e-13)
    np.testing.assert_allclose(Q @ Q.T, identity, atol=1e-13)
    assert np.linalg.det(Q) == pytest.approx(1.0)
    _, slope = jax.jvp(linalg.cayley, (jnp.zeros((7, 7)),), (B,))
    np.testing.assert_allclose(slope, -2.0 * A, atol=1e-12)
    h = 1e-6
    _, slope = jax.jvp(linalg.cayley, (B,), (B,))
    np.testing.assert_allclose(slope, (linalg.cayley((1 + h) * B) - linalg.cayley((1 - h) * B)) / (2 * h), atol=1e-8)


def test_each_is_a_loop_over_matrices_and_emits_no_batched_factorisation():
    stack = jnp.asarray([positive_definite(seed) for seed in range(4)])
    one_by_one = linalg.each(linalg.cholesky, stack)
    for got, matrix in zip(one_by_one, stack, strict=True):
        np.testing.assert_array_equal(got, linalg.cholesky(matrix))
    text = str(jax.make_jaxpr(lambda s: linalg.each(linalg.cholesky, s))(stack))
    assert "cholesky" in text and "f64[4,6,6] = cholesky" not in text
    # The same check sees the batched call where there is one.
    assert "f64[4,6,6] = cholesky" in str(jax.make_jaxpr(jax.vmap(linalg.cholesky))(stack))


# --- stacks of small matrices --------------------------------------------------------------------


@pytest.mark.parametrize(
    "size", [1, pytest.param(4, marks=pytest.mark.slow), pytest.param(13, marks=pytest.mark.slow), 25]
)
def test_the_small_whitener_is_the_whitener_of_each(size, key):
    """Unrolled and in a loop; its derivatives too."""
    stack = jnp.asarray([positive_definite(seed, size) for seed in range(3)])
    found = quick_jit(linalg.small_whitener)(stack)
    for got, matrix in zip(found, stack, strict=True):
        np.testing.assert_allclose(got, linalg.whitener(matrix), rtol=1e-8, atol=1e-10)
    weights = jax.random.normal(key, (size, size))
    slopes = quick_jit(jax.grad(lambda s: jnp.sum(weights * linalg.small_whitener(s))))(stack)
    for slope, matrix in zip(slopes, stack, strict=True):
        expected = jax.grad(lambda m: jnp.sum(weights * linalg.whitener(m)))(matrix)
        np.testing.assert_allclose(slope + slope.T, expected + expected.T, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(linalg.log_det(found), np.linalg.slogdet(stack)[1], rtol=1e-10)


low_rank = quick_jit(linalg.low_rank_log_density)
low_rank_gradient = quick_jit(jax.grad(lambda *a: jnp.sum(linalg.low_rank_log_density(*a)), argnums=(0, 1, 2)))


@pytest.mark.parametrize("share, rtol", [(1.0, 1e-10), (1e-3, 1e-10), (1e-6, 1e-7)])
@pytest.mark.parametrize("dim, nu", [(12, 5), (12, 1), (6, 6), (4, 9), (26, 15)])
def test_low_rank_densities_against_dense_ones(dim, nu, share, rtol):
    """log N(r; 0, FFᵀ + Λ), the sign of its 2π term included, with Λ/‖Σ‖ down to 1e-6; gradients stay finite."""
    rng = np.random.default_rng(dim * nu)
    F = rng.normal(size=(5, dim, nu))
    norms = np.linalg.norm(F @ F.swapaxes(1, 2), ord=2, axis=(1, 2))
    white = share * norms[:, None] * rng.uniform(1.0, 2.0, size=(5, dim))
    B = F @ F.swapaxes(1, 2) + white[:, None] * np.eye(dim)
    r = np.einsum("nij,nj->ni", np.linalg.cholesky(B), rng.normal(size=(5, dim)))
    expected = [scipy.stats.multivariate_normal(np.zeros(dim), b).logpdf(x) for b, x in zip(B, r, strict=True)]
    arguments = tuple(jnp.asarray(x) for x in (r, F, white))
    np.testing.assert_allclose(low_rank(*arguments), expected, rtol=rtol)
    gradient = low_rank_gradient(*arguments)
    assert all(np.isfinite(part).all() for part in gradient)


@pytest.mark.parametrize("dof", [None, 5.0])
@pytest.mark.parametrize("dim, nu", [(12, 5), (12, 1), (26, 15)])
def test_derivatives_of_low_rank_densities_are_those_of_dense_ones(dim, nu, dof):
    rng = np.random.default_rng(nu)
    r, F, white = rng.normal(size=(5, dim)), rng.normal(size=(5, dim, nu)), np.exp(rng.normal(size=(5, dim)))
    arguments = tuple(jnp.asarray(x) for x in (r, F, white))

    def dense(r, F, white):
        return linalg.dense_log_density(r, F @ jnp.swapaxes(F, -1, -2) + white[..., None] * jnp.eye(dim), dof)

    def gradient(density):
        return quick_jit(jax.grad(lambda *a: jnp.sum(jnp.cos(density(*a))), argnums=(0, 1, 2)))(*arguments)

    found, expected = gradient(lambda *a: linalg.low_rank_log_density(*a, dof)), gradient(dense)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dof", [2.5, 8.0])
@pytest.mark.parametrize("dim, nu", [(12, 5), (4, 9), (3, 0)])
def test_student_t_densities_against_dense_ones(dim, nu, dof):
    """The covariance is FFᵀ + Λ, so the shape matrix of scipy's density is (κ − 2)/κ times that."""
    rng = np.random.default_rng(dim)
    F, white, r = rng.normal(size=(5, dim, nu)), rng.uniform(0.5, 1.0, size=(5, dim)), rng.normal(size=(5, dim))
    B = F @ F.swapaxes(1, 2) + white[:, None] * np.eye(dim)
    expected = [
        scipy.stats.multivariate_t(shape=(dof - 2) / dof * b, df=dof).logpdf(x) for b, x in zip(B, r, strict=True)
    ]
    found = low_rank(*(jnp.asarray(x) for x in (r, F, white, dof)))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    many = low_rank(*(jnp.asarray(x) for x in (r, F, white, 1e7)))
    np.testing.assert_allclose(many, low_rank(*(jnp.asarray(x) for x in (r, F, white))), rtol=1e-5)


# --- jitter --------------------------------------------------------------------------------------


def rbf(x, scale=1.0):
    return scale * np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_a_well_conditioned_matrix_gets_the_first_jitter(scale):
    assert linalg.choose_jitter(rbf(np.arange(5.0), scale), scale) == linalg.FIRST_JITTER


def test_the_jitter_is_the_smallest_power_of_ten_that_works():
    """Eigenvalue −ε: jitters below ε cannot work, the next power of ten above it does."""
    for eps in (3e-9, 3e-7, 3e-6):
        vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
        matrix = (vectors * np.array([-eps, 0.5, 1.0, 1.0, 2.0])) @ vectors.T
        jitter = linalg.choose_jitter(matrix, 1.0)
        assert eps < jitter <= 10.0 * eps
        assert np.isfinite(np.linalg.cholesky(matrix + jitter * np.eye(5))).all()


def test_coinciding_points_are_no_failure():
    x = np.array([0.0, 0.0, 1.0, 1.0, 2.0])
    jitter = linalg.choose_jitter(rbf(x), 1.0)
    assert linalg.FIRST_JITTER <= jitter <= linalg.LAST_JITTER


@pytest.mark.parametrize(
    ("matrix", "cause"),
    [
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "NaN or infinity"),
        (np.array([[1.0, 1.001], [1.001, 1.0]]), "two inducing points coincide"),
        (np.array([[-1.0, 0.0], [0.0, 1.0]]), "scale of the inputs"),
    ],
)
def test_a_hopeless_matrix_raises_with_its_cause(matrix, cause):
    with pytest.raises(FactorisationError, match=cause) as caught:
        linalg.choose_jitter(matrix, 1.0, "Kzz of 2 points")
    assert "Kzz of 2 points (2×2)" in str(caught.value)


def test_fenced_values_are_exact_and_come_from_a_product_as_their_derivatives_do():
    values = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)))
    np.testing.assert_array_equal(linalg.unfused(values, 2.0), 2.0 * values)
    derivative = jax.grad(lambda x: jnp.sum(linalg.unfused(x) ** 2))
    np.testing.assert_array_equal(derivative(values), 2.0 * values)
    assert str(jax.make_jaxpr(linalg.unfused)(values)).count("dot_general") == 1
    assert str(jax.make_jaxpr(derivative)(values)).count("dot_general") == 2
