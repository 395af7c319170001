"""The whitened sparse GP against dense, un-whitened formulas; draws against the posterior they come from."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import make_basis, points, quick_jit, spread
from montecarlo import assert_moments

from wishflow import inducing, kernels
from wishflow.inducing import (
    DiagonalPosterior,
    InducingBasis,
    RotatedPosterior,
    SparseGP,
    StructuredPosterior,
    WhitenedPosterior,
    draw_jointly,
    draw_pathwise,
    kernel_matrix_on_host,
    single_marginals,
)
from wishflow.kernels import RBF, Linear, Matern12, Matern32, Periodic
from wishflow.numerics.parameters import LowerTriangular

N_OUTPUTS = 3


def make_gp(seed=0, jitter=1e-6, kernel=None, n_outputs=N_OUTPUTS, posterior=WhitenedPosterior) -> SparseGP:
    basis = make_basis(jitter=jitter)
    if kernel is not None:
        basis = InducingBasis.of(kernels.build(kernel, 3), basis.Z, jitter)
    return spread(SparseGP(basis, posterior.prior(n_outputs, basis.n_inducing)), seed)


def dense(gp: SparseGP, X):
    """Means (P, N) and covariances (P, N, N) of f(X) by the formulas without whitening:

    u ~ N(μ, S) with μ = Lz m, S = Lz R Rᵀ Lzᵀ;  mean = αᵀμ, cov = k − αᵀ(Kzz − S)α with α = Kzz⁻¹ k(Z, X).
    """
    Kzz, Kzx, Kxx, R, jitter = (np.asarray(part) for part in pieces(gp, X))
    Kzz = Kzz + jitter * np.eye(len(Kzz))
    Lz, alpha = np.linalg.cholesky(Kzz), np.linalg.solve(Kzz, Kzx)
    S = (Lz @ R) @ (Lz @ R).swapaxes(-1, -2)
    means = np.asarray(gp.posterior.mean) @ Lz.T @ alpha
    return means, Kxx - alpha.T @ (Kzz - S) @ alpha, (Lz, Kzz, S)


@quick_jit
def pieces(gp, X):
    """Kernel matrices, R and the jitter as numbers."""
    kernel, Z = gp.basis.kernel, gp.basis.Z
    matrices = kernel.matrix(Z, Z), kernel.matrix(Z, X), kernel.matrix(X, X)
    return *matrices, gp.posterior.factors(), gp.basis.jitter * kernel.scale


@quick_jit
def marginals(gp, X):
    return gp.conditioned().marginals(X)


@quick_jit
def kl(posterior):
    return posterior.kl()


FORMS = pytest.mark.parametrize(
    "posterior", [WhitenedPosterior, StructuredPosterior, RotatedPosterior, DiagonalPosterior]
)

# --- KL ------------------------------------------------------------------------------------------


@FORMS
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kernel", [RBF(variance=0.7), Matern32(variance=2.0, lengthscale=0.5)])
def test_whitened_kl_is_the_kl_between_the_inducing_values(seed, kernel, posterior):
    """KL(N(Lz m, Lz R Rᵀ Lzᵀ) ‖ N(0, Kzz)) with the dense formula."""
    gp = make_gp(seed, kernel=kernel, posterior=posterior)
    _, _, (Lz, Kzz, S) = dense(gp, points(0, 2))
    mu = np.asarray(gp.posterior.mean) @ Lz.T
    for p, got in enumerate(np.asarray(kl(gp))):
        log_det = np.linalg.slogdet(Kzz)[1] - np.linalg.slogdet(S[p])[1]
        quadratic = mu[p] @ np.linalg.solve(Kzz, mu[p]) + np.trace(np.linalg.solve(Kzz, S[p]))
        np.testing.assert_allclose(got, 0.5 * (quadratic - len(Kzz) + log_det), rtol=1e-7)


def test_kl_in_one_dimension_in_closed_form():
    """One inducing point: ½ (s²/k + μ²/k − 1 + log k/s²)."""
    k, mean, sd = 1.7, 0.4, 0.3
    root = np.sqrt(k)
    q = WhitenedPosterior(jnp.asarray([[mean / root]]), LowerTriangular.of(jnp.asarray([[[sd / root]]])))
    expected = 0.5 * (sd**2 / k + mean**2 / k - 1.0 + np.log(k / sd**2))
    np.testing.assert_allclose(kl(q), [expected], rtol=1e-12)


def test_kl_of_a_batch_is_the_kl_of_each():
    q = make_gp().posterior
    for p in range(N_OUTPUTS):
        alone = jax.tree.map(lambda leaf, p=p: leaf[p : p + 1], q)
        np.testing.assert_allclose(kl(alone), kl(q)[p : p + 1], rtol=1e-14)


@FORMS
def test_kl_is_zero_at_the_prior_and_positive_elsewhere(posterior):
    np.testing.assert_array_equal(kl(posterior.prior(2, 5)), 0.0)
    assert np.all(np.asarray(kl(make_gp(posterior=posterior))) > 0.1)


# --- marginals -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [None, Matern12(), RBF() + Linear(), Periodic(period=3.0)])
@FORMS
def test_marginals_agree_with_the_formulas_without_whitening(kernel, posterior):
    gp, X = make_gp(kernel=kernel, posterior=posterior), points(9, 7)
    mean, variance = marginals(gp, X)
    means, covariances, _ = dense(gp, X)
    np.testing.assert_allclose(mean.T, means, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(variance.T, np.diagonal(covariances, axis1=1, axis2=2), rtol=1e-7, atol=1e-8)


def test_at_the_prior_the_marginals_are_the_kernel():
    gp = SparseGP.prior(make_basis(), 2)
    X = jnp.concatenate([points(4, 5), gp.basis.Z])
    mean, variance = marginals(gp, X)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(variance, 0.8, rtol=1e-9)


def test_a_certain_posterior_passes_through_its_inducing_values():
    """R → 0 and no jitter to speak of: f(Z) = Lz m, with no variance left."""
    gp = make_gp(jitter=1e-10)
    small = eqx.tree_at(lambda g: g.posterior.sqrt, gp, LowerTriangular.of(1e-9 * gp.posterior.sqrt.value))
    mean, variance = marginals(small, gp.basis.Z)
    np.testing.assert_allclose(mean, gp.basis.factor() @ gp.posterior.mean.T, atol=1e-8)
    assert float(variance.min()) >= 0.0 and float(variance.max()) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(("n_inducing", "n_outputs"), [(1, 2), (5, 2), (64, 2), (70, 2), (81, 1)])
def test_quadratic_forms_whatever_the_number_of_inducing_points(n_inducing, n_outputs):
    """‖R_pᵀ a‖², however the factors are laid out, against the plain sum."""
    rng = np.random.default_rng(n_inducing)
    below = np.tril(rng.normal(size=(n_outputs, n_inducing, n_inducing)), -1)
    R = below + np.eye(n_inducing) * rng.uniform(0.5, 2.0)
    q = WhitenedPosterior(jnp.asarray(rng.normal(size=(n_outputs, n_inducing))), LowerTriangular.of(jnp.asarray(R)))
    a = rng.normal(size=(3, n_inducing))

    @quick_jit
    def forms(q, a):
        prepared = q.prepare(a.dtype)
        return prepared.means(a), prepared.quadratics(a)

    means, quadratics = forms(q, a)
    np.testing.assert_allclose(means, a @ np.asarray(q.mean).T, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(quadratics, np.sum(np.einsum("nm,pmk->npk", a, R) ** 2, -1), rtol=1e-11)


@pytest.mark.slow
def test_a_structured_posterior_of_one_output_is_any_gaussian(key):
    """R Rᵀ = T diag(λ) Tᵀ: with one output nothing is lost, and the KL and the quadratic forms are those of R."""
    R = np.tril(np.random.default_rng(0).normal(size=(6, 6)), -1) + np.diag([0.3, 2.0, 1.0, 0.1, 0.7, 1.5])
    mean, a = jax.random.normal(key, (1, 6)), points(3, 4, dim=6)
    full = WhitenedPosterior(mean, LowerTriangular.of(jnp.asarray(R[None])))
    diagonal = np.diagonal(R)
    structured = StructuredPosterior(mean, jnp.asarray(R / diagonal), jnp.asarray(2 * np.log(diagonal))[None])
    np.testing.assert_allclose(structured.factors()[0], R, rtol=1e-12)
    np.testing.assert_allclose(structured.kl(), full.kl(), rtol=1e-12)
    forms = [q.prepare(a.dtype).quadratics(a) for q in (structured, full)]
    np.testing.assert_allclose(forms[0], forms[1], rtol=1e-10)


def test_a_rotated_posterior_of_one_output_is_any_gaussian(key):
    """S = Q diag(λ) Qᵀ with det Q = 1; A = (I − Q)(I + Q)⁻¹ leads back to Q."""
    R = np.tril(np.random.default_rng(0).normal(size=(6, 6)), -1) + np.diag([0.3, 2.0, 1.0, 0.1, 0.7, 1.5])
    variances, Q = np.linalg.eigh(R @ R.T)
    Q[:, 0] *= np.linalg.det(Q)
    A = (np.eye(6) - Q) @ np.linalg.inv(np.eye(6) + Q)
    mean, a = jax.random.normal(key, (1, 6)), points(3, 4, dim=6)
    full = WhitenedPosterior(mean, LowerTriangular.of(jnp.asarray(R[None])))
    rotated = RotatedPosterior(mean, jnp.asarray(np.log(variances))[None], jnp.asarray(A))
    np.testing.assert_allclose(rotated.rotation(), Q, atol=1e-12)
    np.testing.assert_allclose(rotated.kl(), full.kl(), rtol=1e-12)
    prepared = rotated.prepare(a.dtype, rotated.rotation())
    turned_rows = a @ rotated.rotation()
    np.testing.assert_allclose(prepared.quadratics(turned_rows), full.prepare(a.dtype).quadratics(a), rtol=1e-10)
    np.testing.assert_allclose(prepared.means(turned_rows), full.prepare(a.dtype).means(a), rtol=1e-10)


def test_a_rotated_basis_is_as_good_a_whitening():
    """Rows are Qᵀa(x): what is unexplained stays, and rotated weights give the same numbers."""
    basis, X = make_basis(), points(2, 9)
    Q = spread(RotatedPosterior.prior(1, basis.n_inducing)).rotation()
    plain, turned_basis = basis.prepare(), basis.prepare(rotation=Q)
    a, rows = plain.project(X), turned_basis.project(X)
    np.testing.assert_allclose(rows, a @ Q, atol=1e-12)
    np.testing.assert_allclose(turned_basis.unexplained(X, rows), plain.unexplained(X, a), atol=1e-12)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(2, basis.n_inducing)))
    np.testing.assert_allclose(rows @ inducing.rotated(weights, Q).T, a @ weights.T, atol=1e-11)
    assert inducing.rotated(weights, None) is weights


def test_float32_basis_follows_the_float64_one():
    basis, X = make_basis(), points(2, 9)
    exact = basis.prepare().project(X)
    rounded = basis.prepare(jnp.float32).project(X.astype(jnp.float32))
    assert rounded.dtype == jnp.float32
    np.testing.assert_allclose(rounded, exact, atol=2e-5)


def test_a_basis_holds_plain_arrays():
    """No weak types: a basis read from a file must not need compiled programs of its own."""
    basis = make_basis()
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(basis))
    assert basis.jitter.dtype == basis.Z.dtype


def test_kernel_matrix_on_host():
    basis = make_basis()
    Kzz, scale = kernel_matrix_on_host(basis)
    np.testing.assert_allclose(Kzz, basis.kernel.matrix(basis.Z, basis.Z))
    assert isinstance(Kzz, np.ndarray) and scale == pytest.approx(0.8)


# --- draws ---------------------------------------------------------------------------------------

N_DRAWS = 10_000
# Rows among the inducing points, at one of them, and far from all.
X_DRAW = np.vstack([np.random.default_rng(3).normal(size=(2, 3)), 8.0 * np.ones((1, 3))])


@pytest.fixture
def few_features(monkeypatch):
    """Features are drawn afresh for each draw, so its covariance is exact whatever their number; few are fast."""
    monkeypatch.setattr("wishflow.inducing.pathwise.N_FEATURES", 24)


def many(draw, key):
    """(S, N, P): drawn in blocks, so that the features of all draws are never held at once."""
    return np.asarray(quick_jit(lambda keys: jax.lax.map(draw, keys, batch_size=1000))(jax.random.split(key, N_DRAWS)))


@pytest.mark.slow
@FORMS
@pytest.mark.parametrize("jitter", [1e-10, 0.5])
def test_pathwise_draws_have_the_mean_and_covariance_of_the_posterior(key, few_features, jitter, posterior):
    """At all rows jointly, inducing points included; a large jitter shows that its noise is drawn too."""
    gp = make_gp(jitter=jitter, n_outputs=2, posterior=posterior)
    X = jnp.concatenate([X_DRAW, gp.basis.Z[:1]])

    def draw(k):
        return draw_pathwise(k, gp.basis, gp.basis.prepare(), gp.posterior.mean, gp.posterior.factors())(X)

    draws, (means, covariances, _) = many(draw, key), dense(gp, X)
    for p in range(2):
        assert_moments(draws[:, :, p], means[p], covariances[p])
    centred = draws - means.T
    between = centred[:, :, 0] * centred[:, :, 1]
    assert np.abs(between.mean(0) / between.std(0)).max() * np.sqrt(N_DRAWS) < 4.5  # outputs are independent


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [Matern32(), RBF() * Linear() + Matern12()])
def test_pathwise_draws_of_other_kernels(key, few_features, kernel):
    gp = make_gp(kernel=kernel, n_outputs=1)
    X = jnp.asarray(X_DRAW)

    def draw(k):
        return draw_pathwise(k, gp.basis, gp.basis.prepare(), gp.posterior.mean, gp.posterior.factors())(X)

    means, covariances, _ = dense(gp, X)
    assert_moments(many(draw, key)[:, :, 0], means[0], covariances[0])


def test_joint_draws_have_the_mean_and_covariance_of_the_posterior(key):
    gp = make_gp(kernel=Periodic(period=5.0, lengthscale=2.0), n_outputs=2)
    X = jnp.asarray(X_DRAW)
    draws, (means, covariances, _) = many(lambda k: draw_jointly(k, gp, X), key), dense(gp, X)
    for p in range(2):
        assert_moments(draws[:, :, p], means[p], covariances[p])


def test_a_pathwise_draw_is_one_function(key):
    """Its value at a row does not depend on the other rows."""
    gp, X = make_gp(), points(7, 6)

    @quick_jit
    def evaluate(X):
        draw = draw_pathwise(key, gp.basis, gp.basis.prepare(), gp.posterior.mean, gp.posterior.factors())
        return draw(X), draw(X[2:3]), draw(X[::-1])

    together, alone, reversed_rows = evaluate(X)
    np.testing.assert_allclose(alone, together[2:3], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(reversed_rows[::-1], together, rtol=1e-10, atol=1e-12)


# --- derivatives for training --------------------------------------------------------------------


def for_training(gp, X):
    return gp.projected_marginals(X)[1:]


def plainly(gp, X):
    return gp.conditioned().marginals(X)


@quick_jit
def values_and_derivatives(gp, X, weights):
    """A function of all marginals, and its derivatives by the GP and by the rows, in both forms."""

    def total(both, form):
        mean, variance = form(*both)
        return jnp.sum(weights[0] * mean + weights[1] * jnp.log(variance) + mean**2 * variance)

    return [eqx.filter_value_and_grad(total)((gp, X), form) for form in (for_training, plainly)]


@pytest.mark.slow
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_marginals_for_training_have_the_plain_values_and_derivatives(seed, n_outputs):
    """The derivatives written by hand for one output, against those of the plain form."""
    gp, X = make_gp(seed, n_outputs=n_outputs), points(seed, 17)
    weights = jax.random.normal(jax.random.key(seed), (2, 17, n_outputs))
    found, expected = values_and_derivatives(gp, X, weights)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * float(jnp.abs(b).max()))
    both = quick_jit(lambda gp, X: (gp.projected_marginals(X)[0], gp.basis.prepare().project(X)))(gp, X)
    np.testing.assert_allclose(*both, rtol=1e-12, atol=1e-14)


def single_inputs(jitter=1e-10, n_inducing=12, n_rows=7):
    """K, s, k, Kzz, W, m and R of one output on a line, where W is large: 1/√jitter at most."""
    rng = np.random.default_rng(0)
    Z, X = np.linspace(0, 1, n_inducing)[:, None], rng.uniform(size=(n_rows, 1))
    Kzz, K = (np.exp(-0.5 * ((A - Z.T) / 0.3) ** 2) for A in (Z, X))
    Kzz = 1.3 * (Kzz + jitter * np.eye(n_inducing))
    W = np.linalg.inv(np.linalg.cholesky(Kzz))
    R = np.linalg.cholesky(np.linalg.inv(np.eye(n_inducing) + 1e4 * W @ K.T @ K @ W.T))
    return K, np.float64(1.3), np.full(n_rows, 1.3), Kzz, W, rng.normal(size=n_inducing), R


def test_variances_keep_their_digits_where_the_whitener_is_large():
    K, s, k, _, W, _, R = inputs = single_inputs()
    a = s * K @ W.T
    expected = k - np.sum(a * a, 1) + np.sum((a @ R) ** 2, 1)
    assert np.abs(W).max() > 1e3
    assert expected.max() < 1e-3
    np.testing.assert_allclose(single_marginals(*map(jnp.asarray, inputs))[2], expected, rtol=0, atol=1e-10)


def test_the_form_for_float32_has_the_values_and_derivatives_of_the_other():
    def total(*inputs):
        _, mean, variance = single_marginals(*inputs)
        return jnp.sum(jnp.cos(mean) * variance)

    @quick_jit
    def both(inputs):
        return jax.value_and_grad(total, argnums=(0, 1, 2, 3, 5, 6))(*inputs)

    inputs = single_inputs(jitter=1e-1)
    wide, narrow = (both(tuple(jnp.asarray(x, dtype) for x in inputs)) for dtype in (jnp.float64, jnp.float32))
    mixed = both((jnp.asarray(inputs[0], jnp.float32), *(jnp.asarray(x) for x in inputs[1:])))
    for a, b, c in zip(*map(jax.tree.leaves, (narrow, wide, mixed)), strict=True):
        assert a.dtype == jnp.float32
        for found in (a, c):
            np.testing.assert_allclose(found, b, rtol=0, atol=3e-4 * float(jnp.abs(b).max()))


# --- forms for speed against the plain one --------------------------------------------------------


def plain_forms(a, R):
    """‖R_pᵀ a‖² without blocks."""
    return jnp.sum(jnp.einsum("nm,pmk->npk", a, R) ** 2, -1)


def triangular_problem(n_outputs, n_inducing, seed=0):
    rng = np.random.default_rng(seed)
    q = spread(WhitenedPosterior.prior(n_outputs, n_inducing), seed)
    return q, jnp.asarray(rng.normal(size=(7, n_inducing))), jnp.asarray(rng.normal(size=(7, n_outputs)))


# One output, few and many (rows last), in one block and in blocks of which the last is narrower.
@pytest.mark.parametrize("n_outputs, n_inducing", [(1, 70), (3, 20), (3, 70), (16, 20), (17, 70)])
def test_blocks_of_triangular_factors_have_the_values_and_derivatives_of_the_plain_form(n_outputs, n_inducing):
    q, a, G = triangular_problem(n_outputs, n_inducing)

    def by_blocks(q, a):
        return jnp.sum(G * q.prepare(a.dtype).quadratics(a))

    def plainly(q, a):
        raw = q.sqrt.raw
        diagonal = jnp.exp(jnp.diagonal(raw, axis1=1, axis2=2))
        return jnp.sum(G * plain_forms(a, jnp.tril(raw, -1) + diagonal[:, None] * jnp.eye(n_inducing)))

    ours, theirs = (quick_jit(jax.value_and_grad(f, (0, 1)))(q, a) for f in (by_blocks, plainly))
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_inducing", [20, 70])
def test_forms_for_values_alone_are_those_with_a_derivative(n_inducing):
    q, a, _ = triangular_problem(17, n_inducing)

    @quick_jit
    def both(q, a):
        prepared = q.prepare(a.dtype)
        faster = inducing.for_prediction({"field": prepared, "else": 1.0}, n_rows=4 * n_inducing)["field"]
        assert type(faster) is not type(prepared)
        return [(form.means(a), form.quadratics(a)) for form in (faster, prepared)]

    (means, quadratics), (same_means, _) = both(q, a)
    np.testing.assert_allclose(quadratics, plain_forms(a, q.factors()), rtol=1e-10)
    np.testing.assert_array_equal(means, same_means)


@pytest.mark.parametrize("n_outputs, n_rows", [(3, 1000), (17, 79)])
def test_few_outputs_and_few_rows_are_left_as_they_are(n_outputs, n_rows):
    prepared = triangular_problem(n_outputs, 20)[0].prepare(jnp.float64)
    assert eqx.tree_equal(inducing.for_prediction(prepared, n_rows), prepared)


@pytest.mark.slow
def test_squares_for_values_alone_are_not_negative():
    """R of nearly rank one and rows orthogonal to it, where the terms cancel to rounding."""
    rng = np.random.default_rng(1)
    n_inducing, n_outputs = 40, 16
    r = rng.normal(size=n_inducing)
    raw = np.zeros((n_outputs, n_inducing, n_inducing))
    raw[:, :, 0], raw[:, np.arange(n_inducing), np.arange(n_inducing)] = r, -40.0
    raw[:, 0, 0] = np.log(np.abs(r[0]))
    r[0] = np.abs(r[0])
    a = rng.normal(size=(200, n_inducing))
    a -= np.outer(a @ r, r) / (r @ r)
    q = eqx.tree_at(lambda q: q.sqrt.raw, WhitenedPosterior.prior(n_outputs, n_inducing), jnp.asarray(raw))
    found = inducing.for_prediction(q.prepare(jnp.float64), 10_000).quadratics(jnp.asarray(a))
    assert found.min() == 0.0
    assert found.max() < 1e-10
