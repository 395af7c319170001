"""Likelihoods: closed forms and rules against dense quadrature, laws every likelihood obeys, limits, errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from factories import quick_jit
from jax.flatten_util import ravel_pytree

from wishflow import likelihoods
from wishflow.errors import DataError, OptionError
from wishflow.likelihoods import Bernoulli, Categorical, Gaussian, Poisson, StudentT, build
from wishflow.likelihoods.categorical import expected_logsumexp
from wishflow.likelihoods.quadrature import log_gamma_rule

MEAN = np.array([[0.3, -0.4], [1.2, 0.1], [-0.7, 0.9]])
VARIANCE = np.array([[0.05, 0.3], [0.4, 0.02], [0.2, 0.1]])

# One entry joins a likelihood to all contract tests: its spec, the number of target columns, targets for MEAN.
FACTORIES = {
    "gaussian": (Gaussian(variance=0.2), 2, np.array([[0.5, 0.0], [-0.4, 0.2], [0.0, 3.0]])),
    "student_t": (StudentT(scale=0.6, dof=5.0), 2, np.array([[0.5, 0.0], [-0.4, 0.2], [0.0, 3.0]])),
    "bernoulli": (Bernoulli(), 2, np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])),
    "categorical": (Categorical(n_classes=2), 1, np.array([[0], [1], [1]])),
    "poisson": (Poisson(), 2, np.array([[0.0, 1.0], [4.0, 2.0], [0.0, 9.0]])),
}
EVERY = pytest.mark.parametrize("name", list(FACTORIES))
ELEMENTWISE = pytest.mark.parametrize("name", ["gaussian", "student_t", "bernoulli", "poisson"])
WITH_CDF = pytest.mark.parametrize("name", ["gaussian", "student_t", "poisson"])
INTEGRALS = pytest.mark.parametrize("method", ["expected_log_density", "predictive_log_density"])


def make(name):
    spec, n_columns, y = FACTORIES[name]
    return build(spec, n_columns), jnp.asarray(y), jnp.asarray(MEAN), jnp.asarray(VARIANCE)


@eqx.filter_jit
def run(likelihood, method, *args):
    """One method, compiled: much faster here than its operations one by one."""
    return getattr(likelihood, method)(*args)


def normal_grid(mean, variance, n=40_001):
    """Points and weights of a dense rule for N(mean, variance)."""
    z = np.linspace(-10.0, 10.0, n)
    return mean + np.sqrt(variance) * z, scipy.stats.norm.pdf(z) * (z[1] - z[0])


def points(*values):
    """Each number as the only output of one row."""
    return [jnp.asarray([float(value)]) for value in values]


# --- every likelihood ------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_shapes_and_dtypes_follow_the_inputs(name, dtype, key):
    likelihood, y, mean, variance = make(name)
    m, v = mean.astype(dtype), variance.astype(dtype)
    results = [
        eqx.filter_eval_shape(likelihood.log_density, y, m),
        eqx.filter_eval_shape(likelihood.expected_log_density, y, m, v, key),
        eqx.filter_eval_shape(likelihood.predictive_log_density, y, m, v, key),
    ]
    assert all(r.shape == (3,) and r.dtype == dtype for r in results)
    moments = eqx.filter_eval_shape(likelihood.predictive_moments, m, v, key)
    assert all(r.shape == m.shape and r.dtype == dtype for r in moments)
    assert eqx.filter_eval_shape(likelihood.sample, key, m).shape == y.shape
    assert likelihood.n_latent == mean.shape[-1]


@pytest.mark.slow
@EVERY
def test_leading_axes_broadcast_as_loops_do(name, key):
    """Flow samples (S, N, P) against targets (N, Q), and targets (20, N, Q) against g (N, P).

    Twenty is the number of nodes: targets must not meet the axis of the nodes by mistake.
    """
    likelihood, y, mean, variance = make(name)
    means = mean + jnp.asarray([0.0, 0.5, -0.3])[:, None, None]
    many = run(likelihood, "predictive_log_density", y, means, jnp.broadcast_to(variance, means.shape), key)
    loop = [run(likelihood, "predictive_log_density", y, m, variance, key) for m in means]
    np.testing.assert_allclose(many, np.stack(loop), rtol=1e-12)
    targets = np.stack([np.asarray(y)] * 7 + [1 - np.asarray(y) % 2] * 13)
    many = run(likelihood, "expected_log_density", jnp.asarray(targets), mean, variance, key)
    loop = [run(likelihood, "expected_log_density", jnp.asarray(targets[i]), mean, variance, key) for i in (0, 7)]
    np.testing.assert_allclose(np.asarray(many)[[0, 7]], np.stack(loop), rtol=1e-12)


@EVERY
def test_zero_variance_gives_the_log_density_at_the_mean(name, key):
    likelihood, y, mean, _ = make(name)
    plain, zero = run(likelihood, "log_density", y, mean), jnp.zeros_like(mean)
    for method in ("expected_log_density", "predictive_log_density"):
        np.testing.assert_allclose(run(likelihood, method, y, mean, zero, key), plain, rtol=1e-8)


@EVERY
def test_jensen_expected_log_lies_below_log_expected(name, key):
    likelihood, y, mean, variance = make(name)
    expected = run(likelihood, "expected_log_density", y, mean, variance, key, 20_000)
    if name == "categorical":
        likelihood = likelihoods.CategoricalLikelihood(2, n_predict_draws=20_000)
    assert np.all(expected < run(likelihood, "predictive_log_density", y, mean, variance, key))


@eqx.filter_jit
def bound_gradients(likelihood, y, mean, variance, key):
    def bound(m, v):
        return likelihood.expected_log_density(y, m, v, key, 20_000).sum()

    return jax.grad(bound, (0, 1))(mean, variance)


@eqx.filter_jit
def expected_derivatives(likelihood, y, mean, variance):
    """E ∂ log p and E ∂² log p by output, on a product rule over both outputs: the softmax couples them."""
    z, w = np.polynomial.hermite_e.hermegauss(30)
    shifts = np.stack(np.meshgrid(z, z), -1).reshape(-1, 1, 2)
    weights = np.outer(w, w).ravel() / w.sum() ** 2
    slope = jax.grad(lambda g: likelihood.log_density(y, g).sum())

    def curvature(g):
        return sum(jax.jvp(slope, (g,), (jnp.broadcast_to(e, g.shape),))[1] * e for e in np.eye(2))

    g = mean + jnp.sqrt(variance) * shifts
    return [jnp.tensordot(weights, jax.vmap(f)(g), 1) for f in (slope, curvature)]


@EVERY
@pytest.mark.parametrize("variance", [0.0, 1e-12, 0.1])
def test_gradients_by_mean_and_variance_are_the_expected_derivatives(name, variance, key):
    """d/dm = E ∂ log p and d/dv = ½ E ∂² log p (Bonnet, Price), at the edge v = 0 too."""
    likelihood, y, mean, _ = make(name)
    v = jnp.full_like(mean, variance)
    by_mean, by_variance = bound_gradients(likelihood, y, mean, v, key)
    slope, curvature = expected_derivatives(likelihood, y, mean, v)
    # The bound of the categorical likelihood is an average of draws.
    tolerance = 3e-3 if name == "categorical" and variance > 1e-3 else 2e-5
    np.testing.assert_allclose(by_mean, slope, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(by_variance, 0.5 * curvature, rtol=tolerance, atol=tolerance)


@ELEMENTWISE
@INTEGRALS
def test_gradients_agree_with_finite_differences(name, method):
    """By mean, variance and the likelihood's own parameters, along random directions."""
    likelihood, y, mean, variance = make(name)
    params, static = eqx.partition(likelihood, eqx.is_inexact_array)
    flat, unravel = ravel_pytree((params, mean, variance))

    @quick_jit
    @jax.value_and_grad
    def objective(flat):
        params, m, v = unravel(flat)
        return getattr(eqx.combine(params, static), method)(y, m, v).sum()

    gradient = objective(flat)[1]
    for direction in np.random.default_rng(3).normal(size=(3, flat.size)):
        slope = (objective(flat + 1e-5 * direction)[0] - objective(flat - 1e-5 * direction)[0]) / 2e-5
        np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-6)


@EVERY
@INTEGRALS
def test_values_and_gradients_are_finite_far_from_the_data(name, method, key):
    likelihood, y, _, _ = make(name)
    objective = quick_jit(jax.value_and_grad(lambda m, v: getattr(likelihood, method)(y, m, v, key).sum(), (0, 1)))
    for m, v in ((800.0, 900.0), (-800.0, 0.0), (0.0, 1e4), (50.0, 1e-300)):
        value, grads = objective(jnp.full((3, 2), m), jnp.full((3, 2), v))
        assert np.isfinite(value), (m, v)
        assert all(np.all(np.isfinite(grad)) for grad in grads), (m, v)


@pytest.mark.slow
@EVERY
def test_samples_have_the_predictive_moments(name, key):
    """Within four standard errors, g and y both drawn."""
    likelihood, _, mean, variance = make(name)
    n = 40_000
    noise = np.random.default_rng(0).normal(size=(n, *mean.shape))
    y = np.asarray(run(likelihood, "sample", key, jnp.asarray(MEAN + np.sqrt(VARIANCE) * noise)), float)
    if name == "categorical":
        y = (y == np.arange(2)).astype(float)
        likelihood = likelihoods.CategoricalLikelihood(2, n_predict_draws=200_000)
    expected_mean, expected_variance = run(likelihood, "predictive_moments", mean, variance, jax.random.key(1))
    squares = (y - np.asarray(expected_mean)) ** 2
    assert np.all(abs(y.mean(0) - expected_mean) < 4 * y.std(0) / np.sqrt(n))
    assert np.all(abs(squares.mean(0) - expected_variance) < 4 * squares.std(0) / np.sqrt(n))


@pytest.mark.slow
@EVERY
def test_own_targets_and_samples_pass_validation_and_bad_ones_do_not(name, key):
    likelihood, y, mean, _ = make(name)
    likelihood.validate(np.asarray(y))
    likelihood.validate(np.asarray(run(likelihood, "sample", key, mean)))
    for bad in (np.full(y.shape, np.nan), np.full((*y.shape[:-1], 5), 1.0), np.full(y.shape, "a")):
        with pytest.raises(DataError, match="expect"):
            likelihood.validate(bad)


# --- expectations against dense quadrature ---------------------------------------------------


@ELEMENTWISE
@pytest.mark.parametrize("mean, variance", [(0.3, 0.05), (-1.0, 0.3), (1.5, 1e-4)])
def test_expectations_agree_with_dense_quadrature(name, mean, variance):
    likelihood = build(FACTORIES[name][0], 1)
    g, w = normal_grid(mean, variance)
    for y in (0.0, 1.0):
        log_p = np.asarray(run(likelihood, "log_density", jnp.full((g.size, 1), y), jnp.asarray(g)[:, None]))
        at = points(y, mean, variance)
        np.testing.assert_allclose(run(likelihood, "expected_log_density", *at), w @ log_p, rtol=1e-5)
        truth = np.log(w @ np.exp(log_p))
        np.testing.assert_allclose(run(likelihood, "predictive_log_density", *at), truth, rtol=1e-7)


@ELEMENTWISE
def test_log_density_is_that_of_scipy(name):
    likelihood, y, mean, _ = make(name)
    y, g = np.asarray(y), MEAN
    truth = {
        "gaussian": lambda: scipy.stats.norm.logpdf(y, g, np.sqrt(0.2)),
        "student_t": lambda: scipy.stats.t.logpdf(y, 5.0, g, 0.6),
        "bernoulli": lambda: scipy.stats.bernoulli.logpmf(y, 1.0 / (1.0 + np.exp(-g))),
        "poisson": lambda: scipy.stats.poisson.logpmf(y, np.exp(g)),
    }[name]()
    np.testing.assert_allclose(run(likelihood, "log_density", y, mean), truth.sum(-1), rtol=1e-10)


@pytest.mark.parametrize("scale, dof", [(0.05, 2.1), (0.3, 4.0), (0.1, 40.0)])
def test_student_t_predictions_hold_when_noise_is_far_narrower_than_g(scale, dof):
    """A rule of few nodes in g would be off by whole nats here."""
    likelihood = build(StudentT(scale, dof), 1)
    g, w = normal_grid(0.0, 1.0, 200_001)
    for y in (0.0, 0.7, 7.0):
        at = points(y, 0.0, 1.0)
        truth = np.log(w @ scipy.stats.t.pdf(y, dof, g, scale))
        np.testing.assert_allclose(run(likelihood, "predictive_log_density", *at), truth, atol=1e-6)
        truth = w @ scipy.stats.t.cdf(y, dof, g, scale)
        np.testing.assert_allclose(run(likelihood, "predictive_cdf", *at)[0], truth, rtol=1e-8)


@pytest.mark.parametrize("mean, variance, count", [(6.0, 0.5, 300), (6.0, 0.5, 40), (-3.0, 4.0, 0), (9.0, 1e-3, 8100)])
def test_poisson_predictions_hold_for_large_counts(mean, variance, count):
    """The likelihood of a count y is 1/√y wide in g, below the gaps of a rule spread over N(mean, variance)."""
    likelihood = build("poisson", 1)
    g, w = normal_grid(mean, variance, 200_001)
    at = points(count, mean, variance)
    truth = np.log(w @ scipy.stats.poisson.pmf(count, np.exp(g)))
    np.testing.assert_allclose(run(likelihood, "predictive_log_density", *at), truth, atol=1e-6)
    truth = w @ scipy.stats.poisson.cdf(count, np.exp(g))
    np.testing.assert_allclose(run(likelihood, "predictive_cdf", *at)[0], truth, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("log_rate", [0.7, (3.0, -2.0)])
def test_log_rates_of_counts_are_added_to_g_and_stay(log_rate):
    """Every method is the one of a likelihood without them at g + o, and no gradient reaches o."""
    plain, y, mean, variance = make("poisson")
    shifted, moved = build(Poisson(log_rate=log_rate), 2), mean + jnp.asarray(log_rate)
    for method in ("expected_log_density", "predictive_log_density", "predictive_cdf"):
        expected = run(plain, method, y, moved, variance)
        np.testing.assert_allclose(run(shifted, method, y, mean, variance), expected, rtol=1e-12)
    assert np.array_equal(run(shifted, "log_density", y, mean), run(plain, "log_density", y, moved))
    for one, other in zip(
        run(shifted, "predictive_moments", mean, variance),
        run(plain, "predictive_moments", moved, variance),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    key = jax.random.key(0)
    assert np.array_equal(run(shifted, "sample", key, mean), run(plain, "sample", key, moved))
    slope = quick_jit(jax.grad(lambda likelihood: likelihood.expected_log_density(y, mean, variance).sum()))(shifted)
    assert not np.any(slope.log_rate)


@pytest.mark.parametrize("shape", [1.0, 7.0, 5000.0])
def test_log_gamma_rule_integrates_the_gamma_law(shape):
    """E λ = 1, E λ² = 1 + 1/a and E e^{−λ} = (a / (a + 1))^a for λ ~ Gamma(a, a)."""
    u, log_weights = quick_jit(log_gamma_rule)(jnp.asarray([shape]))
    weights, x = np.exp(log_weights[0]), np.exp(u[0])
    np.testing.assert_allclose(weights @ x, 1.0, rtol=1e-6)
    np.testing.assert_allclose(weights @ x**2, 1.0 + 1.0 / shape, rtol=1e-5)
    np.testing.assert_allclose(weights @ np.exp(-x), (shape / (shape + 1.0)) ** shape, rtol=1e-6)


# --- laws of the predictive distribution -----------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "student_t"])
def test_predictive_density_integrates_to_one(name):
    likelihood = build(FACTORIES[name][0], 1)
    # y = sinh(s) reaches far into the tails of the Student-t with few points.
    s = np.linspace(-12.0, 12.0, 4001)
    y = jnp.asarray(np.sinh(s))[:, None]
    log_density = run(likelihood, "predictive_log_density", y, jnp.full_like(y, 0.4), jnp.full_like(y, 0.7))
    np.testing.assert_allclose(np.exp(log_density) @ np.cosh(s) * (s[1] - s[0]), 1.0, rtol=1e-6)


def test_poisson_mass_sums_to_one():
    counts = jnp.arange(1000.0)[:, None]
    at = (counts, jnp.full_like(counts, 1.0), jnp.full_like(counts, 0.5))
    mass = np.exp(run(build("poisson", 1), "predictive_log_density", *at))
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("spec, n_labels", [("bernoulli", 2), (Categorical(4), 4)])
def test_probabilities_of_labels_sum_to_one(spec, n_labels, key):
    likelihood = build(spec, 1)
    mean = jnp.asarray([[0.1, 2.0, -1.0, 0.4][: likelihood.n_latent]] * n_labels)
    labels = jnp.arange(n_labels)[:, None]
    mass = np.exp(run(likelihood, "predictive_log_density", labels, mean, 3.0 * jnp.ones_like(mean), key))
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=1e-10)
    p, spread = run(likelihood, "predictive_moments", mean, 3.0 * jnp.ones_like(mean), key)
    np.testing.assert_allclose(p[0, -1], mass[-1], rtol=1e-10)
    np.testing.assert_allclose(spread, p * (1.0 - p), rtol=1e-8)


@pytest.mark.parametrize("name", ["gaussian", "student_t"])
def test_derivative_of_cdf_is_the_density(name):
    likelihood = build(FACTORIES[name][0], 1)
    y = jnp.linspace(-4.0, 5.0, 31)[:, None]
    m, v = jnp.full_like(y, 0.4), jnp.full_like(y, 0.7)
    slope = quick_jit(jax.grad(lambda y: likelihood.predictive_cdf(y, m, v).sum()))(y)[:, 0]
    np.testing.assert_allclose(slope, np.exp(run(likelihood, "predictive_log_density", y, m, v)), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("variance", [1e-4, 0.05, 0.3, 2.0])
def test_poisson_cdf_adds_up_the_mass(variance):
    """Both forms of the CDF, and the passage between them as the count grows."""
    likelihood = build("poisson", 1)
    y = np.arange(60.0)[:, None]
    m, v = jnp.full((60, 1), 2.0), jnp.full((60, 1), variance)
    mass = np.exp(run(likelihood, "predictive_log_density", y, m, v))
    cdf = run(likelihood, "predictive_cdf", y, m, v)
    np.testing.assert_allclose(cdf[:, 0], np.cumsum(mass), atol=1e-7)
    np.testing.assert_array_equal(run(likelihood, "predictive_cdf", y + 0.5, m, v), cdf)
    assert np.all(run(likelihood, "predictive_cdf", -1.0 - y, m, v) == 0.0)


@pytest.mark.slow
@WITH_CDF
def test_cdf_rises_from_zero_to_one_in_each_output(name):
    likelihood, _, mean, variance = make(name)
    cdf = run(likelihood, "predictive_cdf", np.linspace(-30.0, 300.0, 300)[:, None, None], mean, variance)
    assert cdf.shape == (300, 3, 2)
    assert np.all(np.diff(cdf, axis=0) > -1e-9)
    assert np.all(cdf[0] < 1e-4)
    assert np.all(cdf[-1] > 1 - 1e-6)


@pytest.mark.parametrize("name", ["bernoulli", "categorical"])
def test_labels_have_no_cdf(name):
    likelihood, y, mean, variance = make(name)
    with pytest.raises(OptionError, match="predictive_moments"):
        likelihood.predictive_cdf(y, mean, variance)


# --- limits and relations --------------------------------------------------------------------


@eqx.filter_jit
def everything(likelihood, y, mean, variance):
    """All deterministic results of a continuous likelihood."""
    return (
        likelihood.log_density(y, mean),
        likelihood.expected_log_density(y, mean, variance),
        likelihood.predictive_log_density(y, mean, variance),
        likelihood.predictive_cdf(y, mean, variance),
        likelihood.predictive_moments(mean, variance)[1],
    )


def test_student_t_tends_to_the_gaussian():
    """The gap in every quantity shrinks as 1 / dof."""
    _, y, mean, variance = make("gaussian")
    gaussian = everything(build(Gaussian(variance=0.36), 2), y, mean, variance)

    def gaps(dof):
        student = everything(build(StudentT(scale=0.6, dof=dof), 2), y, mean, variance)
        return np.array([np.max(np.abs(a - b)) for a, b in zip(student, gaussian, strict=True)])

    near, far = gaps(1e3), gaps(1e5)
    assert np.all(far < 2e-3)
    np.testing.assert_allclose(near / far, 100.0, rtol=0.1)


def test_two_classes_are_a_bernoulli_of_the_difference(key):
    """softmax(g)_1 = σ(g_1 − g_0), and g_1 − g_0 ~ N(m_1 − m_0, v_0 + v_1)."""
    _, y, mean, variance = make("categorical")
    softmax = likelihoods.CategoricalLikelihood(2, n_predict_draws=200_000)
    logistic = build("bernoulli", 1)
    m, v = jnp.asarray(MEAN[:, 1:] - MEAN[:, :1]), jnp.asarray(VARIANCE.sum(-1, keepdims=True))
    pairs = [
        (run(softmax, "log_density", y, mean), run(logistic, "log_density", y, m), 1e-12),
        (
            run(softmax, "expected_log_density", y, mean, variance, key, 200_000),
            run(logistic, "expected_log_density", y, m, v),
            2e-3,
        ),
        (
            run(softmax, "predictive_moments", mean, variance, key)[0][:, 1:],
            run(logistic, "predictive_moments", m, v)[0],
            2e-3,
        ),
    ]
    for several, two, tolerance in pairs:
        np.testing.assert_allclose(several, two, atol=tolerance)


def test_eight_draws_estimate_the_categorical_bound_and_its_gradient_without_bias(key):
    """Means over many keys within four standard errors of a long run; d/dv stays below ⅛ for every draw, any v."""
    likelihood = build(Categorical(3), 1)
    y, mean, variance = jnp.asarray([[2]]), jnp.asarray([[0.2, -0.5, 1.0]]), jnp.asarray([[0.5, 1e-9, 2.0]])

    def estimate(key, n_draws):
        bound = lambda m, v: likelihood.expected_log_density(y, m, v, key, n_draws).sum()  # noqa: E731
        return jax.value_and_grad(bound, (0, 1))(mean, variance)

    draws = quick_jit(jax.vmap(lambda k: estimate(k, 8)))(jax.random.split(key, 4000))
    truth = quick_jit(lambda k: estimate(k, 400_000))(jax.random.key(7))
    for drawn, true in zip(jax.tree.leaves(draws), jax.tree.leaves(truth), strict=True):
        drawn = np.asarray(drawn)
        # The long run has a standard error of its own, far smaller than that of 4000 times 8 draws.
        assert np.all(abs(drawn.mean(0) - true) < 4 * drawn.std(0) / np.sqrt(4000) + 1e-12)
    assert np.all(np.abs(draws[1][1]) <= 0.125)


def test_expected_logsumexp_gradient_by_mean_is_that_of_the_draws():
    rng = np.random.default_rng(0)
    noise, mean, direction = (jnp.asarray(rng.normal(size=size)) for size in ((6, 4, 3), (4, 3), (4, 3)))
    objective = quick_jit(jax.value_and_grad(lambda m: expected_logsumexp(m, jnp.full((4, 3), 0.4), noise).sum()))
    slope = (objective(mean + 1e-5 * direction)[0] - objective(mean - 1e-5 * direction)[0]) / 2e-5
    np.testing.assert_allclose(jnp.vdot(objective(mean)[1], direction), slope, rtol=1e-7)


def test_categorical_predictions_share_draws_between_rows(key):
    mean = jnp.asarray([[0.2, -0.5, 1.0]] * 5)
    p, _ = run(build(Categorical(3), 1), "predictive_moments", mean, jnp.ones_like(mean), key)
    np.testing.assert_array_equal(p, np.broadcast_to(p[0], (5, 3)))


def test_poisson_link_continues_with_a_finite_slope_of_the_right_sign():
    bound = build("poisson", 1).expected_log_density
    slope = quick_jit(jax.grad(lambda m: bound(jnp.zeros(1), m, jnp.zeros(1))))(jnp.asarray([900.0]))
    assert np.isfinite(slope[0])
    assert slope[0] < -1e16


# --- building and messages -------------------------------------------------------------------


def test_build_sets_the_starting_values_of_the_spec():
    np.testing.assert_allclose(build("gaussian", 3).variance, np.full(3, 0.01), rtol=1e-9)
    np.testing.assert_allclose(build(Gaussian(variance=1e-6), 1).variance, 1e-6, rtol=1e-6)
    student = build(StudentT(scale=0.5, dof=7.0), 2)
    np.testing.assert_allclose(student.scale, [0.5, 0.5], rtol=1e-9)
    np.testing.assert_allclose(student.dof, [7.0, 7.0], rtol=1e-9)
    assert build(Categorical(5), 1).n_latent == 5


def test_noise_summary_is_the_mean_noise_variance():
    np.testing.assert_allclose(build(Gaussian(variance=0.3), 2).noise_summary(), 0.3, rtol=1e-9)
    np.testing.assert_allclose(build(StudentT(scale=0.5), 2).noise_summary(), 0.25, rtol=1e-9)
    assert all(np.isnan(build(spec, 1).noise_summary()) for spec in ("bernoulli", "categorical", "poisson"))


def test_only_continuous_targets_are_standardised():
    scaled = {name for name, (spec, n_columns, _) in FACTORIES.items() if build(spec, n_columns).scales_target}
    assert scaled == {"gaussian", "student_t"}


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    "spec, n_outputs",
    [
        ("gausian", 1),
        (3, 1),
        ("gaussian", 0),
        (Gaussian(variance=-1.0), 1),
        (StudentT(dof=2.0), 1),
        (StudentT(scale=0.0), 1),
        (Poisson(log_rate=(1.0, 2.0)), 1),
        (Poisson(log_rate=float("nan")), 1),
        (Categorical(1), 1),
        (Categorical(3), 2),
    ],
)
def test_impossible_options_are_refused(spec, n_outputs):
    with pytest.raises(OptionError, match="expected"):
        build(spec, n_outputs)


@pytest.mark.parametrize(
    "spec, bad", [("poisson", -1.0), ("poisson", 1.5), ("bernoulli", 2.0), (Categorical(3), 3), (Categorical(3), 0.5)]
)
def test_impossible_targets_are_refused_by_value(spec, bad):
    y = np.array([[0.0], [bad], [1.0]])
    with pytest.raises(DataError, match=f"1 of 3 targets .* first is {float(bad)}"):
        build(spec, 1).validate(y)


def test_draws_without_a_key_are_refused():
    likelihood, y, mean, variance = make("categorical")
    for f in (likelihood.expected_log_density, likelihood.predictive_log_density):
        with pytest.raises(OptionError, match="key"):
            f(y, mean, variance)
