"""Likelihoods: closed forms and rules against dense quadrature, laws every likelihood obeys, limits, errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

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


def make(name):
    spec, n_columns, y = FACTORIES[name]
    return build(spec, n_columns), jnp.asarray(y), jnp.asarray(MEAN), jnp.asarray(VARIANCE)


def normal_grid(mean, variance, n=40001):
    """Points and weights of a dense rule for N(mean, variance)."""
    z = np.linspace(-10.0, 10.0, n)
    return mean + np.sqrt(variance) * z, scipy.stats.norm.pdf(z) * (z[1] - z[0])


def log_density_on(likelihood, y, g):
    """log p(y | g) of one output at many g, through the likelihood's own `log_density`."""
    return np.asarray(likelihood.log_density(jnp.full((g.size, 1), y), jnp.asarray(g)[:, None]))


def one_output(name):
    """The same likelihood for one target column."""
    return build(FACTORIES[name][0], 1)


# --- every likelihood ------------------------------------------------------------------------


@EVERY
def test_shapes_and_dtypes_follow_the_inputs(name, key):
    likelihood, y, mean, variance = make(name)
    assert likelihood.n_latent == mean.shape[-1]
    assert isinstance(likelihood.scales_target, bool)
    for dtype in (jnp.float32, jnp.float64):
        m, v = mean.astype(dtype), variance.astype(dtype)
        results = [
            likelihood.log_density(y, m),
            likelihood.expected_log_density(y, m, v, key),
            likelihood.predictive_log_density(y, m, v, key),
        ]
        assert all(r.shape == (3,) and r.dtype == dtype for r in results)
        assert all(r.shape == m.shape and r.dtype == dtype for r in likelihood.predictive_moments(m, v, key))
        assert likelihood.sample(key, m).shape == y.shape
        assert eqx.filter_jit(likelihood.expected_log_density)(y, m, v, key).shape == (3,)


@EVERY
def test_leading_axes_broadcast_as_loops_do(name, key):
    """Flow samples (S, N, P) against targets (N, Q), and single rows, give the numbers of a loop over rows."""
    likelihood, y, mean, variance = make(name)
    shifts = jnp.asarray([0.0, 0.5, -0.3])[:, None, None]
    many = likelihood.predictive_log_density(y, mean + shifts, jnp.broadcast_to(variance, (3, 3, 2)), key)
    for s in range(3):
        for i in range(3):
            alone = likelihood.predictive_log_density(y[i], (mean + shifts)[s, i], variance[i], key)
            np.testing.assert_allclose(many[s, i], alone, rtol=1e-12)
    # Targets with more axes than g, and as many of them as there are nodes, must not meet the nodes.
    tall = jnp.broadcast_to(y, (20, *y.shape))
    np.testing.assert_allclose(
        likelihood.expected_log_density(tall, mean, variance, key),
        jnp.broadcast_to(likelihood.expected_log_density(y, mean, variance, key), (20, 3)),
        rtol=1e-12,
    )


@EVERY
def test_zero_variance_gives_the_log_density_at_the_mean(name, key):
    likelihood, y, mean, _ = make(name)
    plain = likelihood.log_density(y, mean)
    zero = jnp.zeros_like(mean)
    np.testing.assert_allclose(likelihood.expected_log_density(y, mean, zero, key), plain, rtol=1e-8)
    np.testing.assert_allclose(likelihood.predictive_log_density(y, mean, zero, key), plain, rtol=1e-8)


@EVERY
def test_jensen_expected_log_lies_below_log_expected(name, key):
    likelihood, y, mean, variance = make(name)
    expected = likelihood.expected_log_density(y, mean, variance, key, n_draws=2000)
    assert np.all(expected < likelihood.predictive_log_density(y, mean, variance, key))


@EVERY
@pytest.mark.parametrize("variance", [0.0, 1e-12, 0.3])
def test_gradient_by_mean_and_variance_are_the_expected_derivatives(name, variance, key):
    """d/dm = E ∂ log p and d/dv = ½ E ∂² log p (Bonnet, Price), at the edge v = 0 too."""
    likelihood, y, mean, _ = make(name)
    v = jnp.full_like(mean, variance)

    def objective(m, v):
        return likelihood.expected_log_density(y, m, v, key, n_draws=20_000).sum()

    by_mean, by_variance = jax.grad(objective, (0, 1))(mean, v)
    z, w = np.polynomial.hermite_e.hermegauss(60)
    w = w / w.sum()
    first = jax.grad(lambda g: likelihood.log_density(y, g).sum())
    # A product rule over both outputs: the softmax couples them.
    nodes = [(jnp.asarray([a, b]), wa * wb) for a, wa in zip(z, w, strict=True) for b, wb in zip(z, w, strict=True)]
    shifts, weights = jnp.stack([n for n, _ in nodes])[:, None, :], jnp.asarray([q for _, q in nodes])
    g = mean + np.sqrt(variance) * shifts
    slope = jnp.tensordot(weights, jax.vmap(first)(g), 1)
    curvature = jnp.tensordot(weights, jax.vmap(lambda g: second_derivatives(first, g))(g), 1)
    tolerance = 6e-3 if name == "categorical" and variance > 0.1 else 2e-5
    np.testing.assert_allclose(by_mean, slope, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(by_variance, 0.5 * curvature, rtol=tolerance, atol=tolerance)


def second_derivatives(first, g):
    """∂² / ∂g_p² for each output, rows being independent."""
    basis = jnp.eye(g.shape[-1])
    return sum(jax.jvp(first, (g,), (jnp.broadcast_to(e, g.shape),))[1] * e for e in basis)


@ELEMENTWISE
def test_gradients_agree_with_finite_differences(name):
    """By mean, variance and the likelihood's own parameters."""
    likelihood, y, mean, variance = make(name)
    params, static = eqx.partition(likelihood, eqx.is_inexact_array)

    def objective(params, m, v):
        return eqx.combine(params, static).expected_log_density(y, m, v).sum()

    def predictive(params, m, v):
        return eqx.combine(params, static).predictive_log_density(y, m, v).sum()

    for f in (objective, predictive):
        jax.test_util.check_grads(f, (params, mean, variance), order=1, modes=["rev"], rtol=1e-5, atol=1e-7)


@EVERY
def test_gradients_are_finite_far_from_the_data(name, key):
    likelihood, y, _, _ = make(name)
    for m, v in ((800.0, 900.0), (-800.0, 0.0), (0.0, 1e4), (50.0, 1e-300)):
        mean, variance = jnp.full((3, 2), m), jnp.full((3, 2), v)
        for f in (likelihood.expected_log_density, likelihood.predictive_log_density):
            value, grads = jax.value_and_grad(lambda a: f(y, *a, key).sum(), argnums=0)((mean, variance))  # noqa: B023
            assert np.isfinite(value), (f, m, v)
            assert all(np.all(np.isfinite(grad)) for grad in grads), (f, m, v)


@EVERY
def test_samples_have_the_predictive_moments(name, key):
    """Within four standard errors, g and y both drawn."""
    likelihood, _, mean, variance = make(name)
    n = 40_000
    key_g, key_y, key_q = jax.random.split(key, 3)
    g = mean + jnp.sqrt(variance) * jax.random.normal(key_g, (n, *mean.shape))
    y = np.asarray(likelihood.sample(key_y, g))
    if name == "categorical":
        y = (y == np.arange(2)).astype(float)
        likelihood = likelihoods.CategoricalLikelihood(2, n_predict_draws=200_000)
    expected_mean, expected_variance = likelihood.predictive_moments(mean, variance, key_q)
    squares = (y - np.asarray(expected_mean)) ** 2
    assert np.all(abs(y.mean(0) - expected_mean) < 4 * y.std(0) / np.sqrt(n))
    assert np.all(abs(squares.mean(0) - expected_variance) < 4 * squares.std(0) / np.sqrt(n))


@EVERY
def test_own_targets_and_samples_pass_validation_and_bad_ones_do_not(name, key):
    likelihood, y, mean, _ = make(name)
    likelihood.validate(np.asarray(y))
    likelihood.validate(np.asarray(likelihood.sample(key, mean)))
    for bad in (np.full(y.shape, np.nan), np.full((*y.shape[:-1], 5), 1.0), np.full(y.shape, "a")):
        with pytest.raises(DataError, match="expected"):
            likelihood.validate(bad)


# --- expectations against dense quadrature ---------------------------------------------------


@ELEMENTWISE
@pytest.mark.parametrize("mean, variance", [(0.3, 0.05), (-1.0, 0.3), (1.5, 1e-4)])
def test_expectations_agree_with_dense_quadrature(name, mean, variance):
    likelihood = one_output(name)
    g, w = normal_grid(mean, variance)
    m, v = jnp.asarray([mean]), jnp.asarray([variance])
    for y in (0.0, 1.0):
        log_p = log_density_on(likelihood, y, g)
        at = jnp.asarray([y])
        np.testing.assert_allclose(likelihood.expected_log_density(at, m, v), w @ log_p, rtol=1e-5)
        np.testing.assert_allclose(likelihood.predictive_log_density(at, m, v), np.log(w @ np.exp(log_p)), rtol=1e-7)


@pytest.mark.parametrize("scale, dof", [(0.05, 2.1), (0.3, 4.0), (0.1, 40.0)])
@pytest.mark.parametrize("y", [0.0, 0.7, 12.0])
def test_student_t_predictions_hold_when_noise_is_far_narrower_than_g(scale, dof, y):
    """Twenty or sixty nodes in g would be off by whole nats here."""
    likelihood = build(StudentT(scale, dof), 1)
    g, w = normal_grid(0.0, 1.0, 400_001)
    at, m, v = jnp.asarray([y]), jnp.zeros(1), jnp.ones(1)
    truth = np.log(w @ scipy.stats.t.pdf(y, dof, g, scale))
    np.testing.assert_allclose(likelihood.predictive_log_density(at, m, v), truth, rtol=1e-6)
    truth = w @ scipy.stats.t.cdf(y, dof, g, scale)
    np.testing.assert_allclose(likelihood.predictive_cdf(at, m, v)[0], truth, rtol=1e-8)


@pytest.mark.parametrize("mean, variance, count", [(6.0, 0.5, 300), (6.0, 0.5, 40), (-3.0, 4.0, 0), (9.0, 1e-3, 8100)])
def test_poisson_predictions_hold_for_large_counts(mean, variance, count):
    """The likelihood of a count y is 1/√y wide in g, below the gaps of a rule spread over N(mean, variance)."""
    likelihood = build("poisson", 1)
    g, w = normal_grid(mean, variance, 400_001)
    at, m, v = jnp.asarray([float(count)]), jnp.asarray([mean]), jnp.asarray([variance])
    truth = np.log(w @ scipy.stats.poisson.pmf(count, np.exp(g)))
    np.testing.assert_allclose(likelihood.predictive_log_density(at, m, v), truth, atol=1e-6)
    truth = w @ scipy.stats.poisson.cdf(count, np.exp(g))
    np.testing.assert_allclose(likelihood.predictive_cdf(at, m, v)[0], truth, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("shape", [0.5, 1.0, 7.0, 5000.0])
def test_log_gamma_rule_integrates_the_gamma_law(shape):
    """E λ = 1, E λ² = 1 + 1/a and E e^{−λ} = (a / (a + 1))^a for λ ~ Gamma(a, a)."""
    u, log_weights = log_gamma_rule(jnp.asarray([shape]))
    weights, x = np.exp(log_weights[0]), np.exp(u[0])
    np.testing.assert_allclose(weights @ x, 1.0, rtol=1e-6)
    np.testing.assert_allclose(weights @ x**2, 1.0 + 1.0 / shape, rtol=1e-5)
    np.testing.assert_allclose(weights @ np.exp(-x), (shape / (shape + 1.0)) ** shape, rtol=1e-6)


# --- laws of the predictive distribution -----------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "student_t"])
def test_predictive_density_integrates_to_one(name):
    likelihood = one_output(name)
    # y = sinh(s) reaches far into the tails of the Student-t with few points.
    s = np.linspace(-12.0, 12.0, 20_001)
    y = jnp.asarray(np.sinh(s))[:, None]
    density = np.exp(likelihood.predictive_log_density(y, jnp.full_like(y, 0.4), jnp.full_like(y, 0.7)))
    np.testing.assert_allclose(np.sum(density * np.cosh(s)) * (s[1] - s[0]), 1.0, rtol=1e-6)


def test_predictive_mass_sums_to_one(key):
    counts = jnp.arange(4000.0)[:, None]
    m, v = jnp.full_like(counts, 1.0), jnp.full_like(counts, 0.5)
    mass = np.exp(build("poisson", 1).predictive_log_density(counts, m, v))
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=1e-6)
    labels = jnp.arange(2.0)[:, None]
    total = np.exp(build("bernoulli", 1).predictive_log_density(labels, jnp.full((2, 1), 1.3), jnp.full((2, 1), 3.0)))
    np.testing.assert_allclose(total.sum(), 1.0, rtol=1e-10)
    classes = jnp.arange(4)[:, None]
    m = jnp.broadcast_to(jnp.asarray([0.1, 2.0, -1.0, 0.4]), (4, 4))
    total = np.exp(build(Categorical(4), 1).predictive_log_density(classes, m, jnp.ones((4, 4)), key))
    np.testing.assert_allclose(total.sum(), 1.0, rtol=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "student_t"])
def test_derivative_of_cdf_is_the_density(name):
    likelihood = one_output(name)
    y = jnp.linspace(-4.0, 5.0, 31)[:, None]
    m, v = jnp.full_like(y, 0.4), jnp.full_like(y, 0.7)
    slope = jax.grad(lambda y: likelihood.predictive_cdf(y, m, v).sum())(y)[:, 0]
    np.testing.assert_allclose(slope, np.exp(likelihood.predictive_log_density(y, m, v)), rtol=1e-9)


@pytest.mark.parametrize("variance", [1e-4, 0.05, 0.3, 2.0])
def test_poisson_cdf_adds_up_the_mass(variance):
    """Both forms of the CDF, and the passage between them as the count grows."""
    likelihood = build("poisson", 1)
    y = jnp.arange(60.0)[:, None]
    m, v = jnp.full_like(y, 2.0), jnp.full_like(y, variance)
    mass = np.exp(likelihood.predictive_log_density(y, m, v))
    np.testing.assert_allclose(likelihood.predictive_cdf(y, m, v)[:, 0], np.cumsum(mass), atol=1e-7)
    np.testing.assert_allclose(likelihood.predictive_cdf(y + 0.5, m, v), likelihood.predictive_cdf(y, m, v))
    assert np.all(likelihood.predictive_cdf(-1.0 - y, m, v) == 0.0)


@WITH_CDF
def test_cdf_rises_from_zero_to_one_in_each_output(name):
    likelihood, _, mean, variance = make(name)
    y = jnp.linspace(-30.0, 300.0, 500)[:, None, None]
    cdf = likelihood.predictive_cdf(y, mean, variance)
    assert cdf.shape == (500, 3, 2)
    assert np.all(np.diff(cdf, axis=0) > -1e-9)
    assert np.all(cdf[0] < 1e-4)
    assert np.all(cdf[-1] > 1 - 1e-6)


@pytest.mark.parametrize("name", ["bernoulli", "categorical"])
def test_labels_have_no_cdf(name):
    likelihood, y, mean, variance = make(name)
    with pytest.raises(OptionError, match="predictive_moments"):
        likelihood.predictive_cdf(y, mean, variance)


# --- limits and relations --------------------------------------------------------------------


def test_student_t_tends_to_the_gaussian():
    """The gap in every quantity shrinks as 1 / dof."""
    _, y, mean, variance = make("gaussian")
    gaussian = build(Gaussian(variance=0.36), 2)

    def gaps(dof):
        t = build(StudentT(scale=0.6, dof=dof), 2)
        pairs = [
            (t.log_density(y, mean), gaussian.log_density(y, mean)),
            *[
                (getattr(t, f)(y, mean, variance), getattr(gaussian, f)(y, mean, variance))
                for f in ("expected_log_density", "predictive_log_density", "predictive_cdf")
            ],
            (t.predictive_moments(mean, variance)[1], gaussian.predictive_moments(mean, variance)[1]),
        ]
        return np.array([np.max(np.abs(a - b)) for a, b in pairs])

    near, far = gaps(1e3), gaps(1e5)
    assert np.all(far < 2e-3)
    np.testing.assert_allclose(near / far, 100.0, rtol=0.1)


def test_two_classes_are_a_bernoulli_of_the_difference(key):
    """softmax(g)_1 = σ(g_1 − g_0), and g_1 − g_0 ~ N(m_1 − m_0, v_0 + v_1)."""
    _, y, mean, variance = make("categorical")
    categorical = likelihoods.CategoricalLikelihood(2, n_predict_draws=200_000)
    bernoulli = build("bernoulli", 1)
    difference, spread = mean[:, 1:] - mean[:, :1], variance.sum(-1, keepdims=True)
    np.testing.assert_allclose(categorical.log_density(y, mean), bernoulli.log_density(y, difference), rtol=1e-12)
    np.testing.assert_allclose(
        categorical.expected_log_density(y, mean, variance, key, n_draws=200_000),
        bernoulli.expected_log_density(y, difference, spread),
        atol=2e-3,
    )
    np.testing.assert_allclose(
        categorical.predictive_moments(mean, variance, key)[0][:, 1:],
        bernoulli.predictive_moments(difference, spread)[0],
        atol=2e-3,
    )


def test_eight_draws_estimate_the_categorical_bound_and_its_gradient_without_bias(key):
    """Means over many keys within four standard errors of a long run; d/dv stays below ⅛ for every draw, any v."""
    likelihood = build(Categorical(3), 1)
    y, mean = jnp.asarray([[2]]), jnp.asarray([[0.2, -0.5, 1.0]])
    variance = jnp.asarray([[0.5, 1e-9, 2.0]])
    value_and_grad = jax.value_and_grad(
        lambda m, v, key, n: likelihood.expected_log_density(y, m, v, key, n).sum(), (0, 1)
    )
    draws = jax.vmap(lambda k: value_and_grad(mean, variance, k, 8))(jax.random.split(key, 4000))
    truth = value_and_grad(mean, variance, jax.random.key(7), 2_000_000)
    for drawn, true in zip(jax.tree.leaves(draws), jax.tree.leaves(truth), strict=True):
        assert np.all(abs(drawn.mean(0) - true) < 4 * drawn.std(0) / np.sqrt(4000) + 1e-4)
    assert np.all(np.abs(draws[1][1]) <= 0.125)


def test_expected_logsumexp_gradient_by_mean_is_that_of_the_draws(key):
    noise = jax.random.normal(key, (6, 4, 3))
    mean, variance = jax.random.normal(jax.random.key(1), (4, 3)), jnp.full((4, 3), 0.4)
    jax.test_util.check_grads(lambda m: expected_logsumexp(m, variance, noise), (mean,), 1, rtol=1e-6)


def test_categorical_predictions_share_draws_between_rows(key):
    likelihood = build(Categorical(3), 1)
    mean = jnp.broadcast_to(jnp.asarray([0.2, -0.5, 1.0]), (5, 3))
    p, _ = likelihood.predictive_moments(mean, jnp.ones_like(mean), key)
    np.testing.assert_array_equal(p, np.broadcast_to(p[0], (5, 3)))


def test_poisson_link_continues_with_a_finite_slope_of_the_right_sign():
    slope = jax.grad(lambda m: build("poisson", 1).expected_log_density(jnp.zeros(1), m, jnp.zeros(1)))
    assert np.isfinite(slope(jnp.asarray([900.0]))[0])
    assert slope(jnp.asarray([900.0]))[0] < -1e16


# --- building and messages -------------------------------------------------------------------


def test_build_sets_the_starting_values_of_the_spec():
    np.testing.assert_allclose(build("gaussian", 3).variance, np.full(3, 0.01), rtol=1e-9)
    np.testing.assert_allclose(build(Gaussian(variance=1e-6), 1).variance, 1e-6, rtol=1e-6)
    t = build(StudentT(scale=0.5, dof=7.0), 2)
    np.testing.assert_allclose(t.scale, [0.5, 0.5], rtol=1e-9)
    np.testing.assert_allclose(t.dof, [7.0, 7.0], rtol=1e-9)
    assert build(Categorical(5), 1).n_latent == 5


def test_noise_summary_is_the_mean_noise_variance():
    np.testing.assert_allclose(build(Gaussian(variance=0.3), 2).noise_summary(), 0.3, rtol=1e-9)
    np.testing.assert_allclose(build(StudentT(scale=0.5), 2).noise_summary(), 0.25, rtol=1e-9)
    assert all(np.isnan(build(spec, 1).noise_summary()) for spec in ("bernoulli", "categorical", "poisson"))


def test_only_continuous_targets_are_standardised():
    scaled = {name for name, (spec, n, _) in FACTORIES.items() if build(spec, n).scales_target}
    assert scaled == {"gaussian", "student_t"}


@pytest.mark.parametrize(
    "spec, n_outputs",
    [
        ("gausian", 1),
        (3, 1),
        ("gaussian", 0),
        (Gaussian(variance=-1.0), 1),
        (StudentT(dof=2.0), 1),
        (StudentT(scale=0.0), 1),
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
    with pytest.raises(DataError, match=f"the first is {float(bad)}"):
        build(spec, 1).validate(y)


def test_draws_without_a_key_are_refused():
    likelihood, y, mean, variance = make("categorical")
    for f in (likelihood.expected_log_density, likelihood.predictive_log_density):
        with pytest.raises(OptionError, match="key"):
            f(y, mean, variance)
