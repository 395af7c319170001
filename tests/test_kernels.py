"""Kernels: every kernel of `KERNELS` meets one contract; a new kernel joins it by one line."""

from __future__ import annotations

import functools
import json
from typing import NamedTuple

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from factories import quick_jit
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import kernels as sk

from wishflow import kernels as wk
from wishflow import specs
from wishflow.errors import DataError, OptionError
from wishflow.kernels.specs import StationaryKernelSpec
from wishflow.numerics.devices import computing

D = 4
KERNELS = {
    "rbf": wk.RBF(variance=1.7, lengthscale=0.8),
    "rbf-one-lengthscale": wk.RBF(variance=0.6, lengthscale=1.3, ard=False),
    "rbf-active-block": wk.RBF(lengthscale=0.7, active_dims=(1, 2)),
    "rbf-active-scattered": wk.RBF(lengthscale=0.7, active_dims=(3, 0)),
    "matern12": wk.Matern12(variance=1.2, lengthscale=1.5),
    "matern12-one-lengthscale": wk.Matern12(lengthscale=2.0, ard=False),
    "matern32": wk.Matern32(variance=0.4, lengthscale=1.1),
    "matern52": wk.Matern52(variance=2.0, lengthscale=0.9),
    "matern52-active": wk.Matern52(lengthscale=0.9, ard=False, active_dims=(0, 2)),
    "linear": wk.Linear(variance=0.7),
    "linear-ard": wk.Linear(variance=1.4, ard=True, active_dims=(0, 3)),
    "periodic": wk.Periodic(variance=1.1, lengthscale=1.4, period=2.3),
    "periodic-one-lengthscale": wk.Periodic(lengthscale=0.9, period=0.7, ard=False, active_dims=(2,)),
    "sum": wk.Matern52() + wk.Linear() + wk.RBF(active_dims=(1,)),
    "product": wk.RBF(variance=1.5) * wk.Linear(variance=0.8, ard=True),
    "product-of-sum": (wk.Matern32() + wk.Linear())
    * wk.RBF(lengthscale=2.0)
    * wk.Matern12(lengthscale=3.0, active_dims=(0,)),
    "sum-with-product": wk.Linear() * wk.Linear(active_dims=(1, 3)) + wk.Matern12(),
    "locally-periodic": wk.Periodic(active_dims=(0,)) * wk.RBF(),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)
WITH_FEATURES = [name for name in KERNELS if "periodic" not in name]
STATIONARY = {"rbf": wk.RBF, "matern12": wk.Matern12, "matern32": wk.Matern32, "matern52": wk.Matern52}


def make(name: str, seed: int = 0) -> wk.AbstractKernel:
    """The kernel with its parameters spread out, so that no two inputs look alike."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda raw: raw + 0.3 * rng.normal(size=raw.shape), built(name))


@functools.cache
def built(name: str) -> wk.AbstractKernel:
    return jax.tree.map(np.asarray, wk.build(KERNELS[name], D))


def points(seed: int, n: int = 8, d: int = D) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(n, d)))


def by_fixed(kernel, X, Y):
    fixed = kernel.fixed(Y, X.dtype)
    return fixed.amplitude * fixed.matrix(X)


def by_pairs(kernel, X, Y):
    return jax.vmap(lambda x: jax.vmap(lambda y: kernel.pair(x, y))(Y))(X)


WEIGHTS = np.random.default_rng(3).normal(size=(8, 8))


@quick_jit
def matrix(kernel, X, Y):
    return kernel.matrix(X, Y)


class Computed(NamedTuple):
    matrix: jax.Array
    pairs: jax.Array
    slopes: tuple  # of Σ w_ij k(x_i, y_j) in (kernel, X, Y), by the fast form
    pair_slopes: tuple  # the same by the definition
    fixed: jax.Array
    fixed_slopes: tuple  # by the form in which Y is fixed
    diagonal: jax.Array
    scale: jax.Array


@quick_jit
def compute(kernel, X, Y, weights) -> Computed:
    """All that the contract looks at, in one program: compiled once for each kernel."""

    def loss(arguments, form):
        K = form(*arguments)
        return jnp.sum(weights * K), K

    slopes, K = jax.grad(loss, has_aux=True)((kernel, X, Y), lambda k, X, Y: k.matrix(X, Y))
    pair_slopes, pairs = jax.grad(loss, has_aux=True)((kernel, X, Y), by_pairs)
    fixed_slopes, fixed = jax.grad(loss, has_aux=True)((kernel, X, Y), by_fixed)
    return Computed(K, pairs, slopes, pair_slopes, fixed, fixed_slopes, kernel.diagonal(X), kernel.scale)


def assert_trees_close(a, b, **tolerance):
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(one, other, **tolerance)


# --- the contract ----------------------------------------------------------------------------


@every_kernel
def test_matrix_and_its_derivatives_agree_with_the_definition_for_one_pair(name):
    got = compute(make(name), points(1), points(2), WEIGHTS)
    np.testing.assert_allclose(got.matrix, got.pairs, rtol=1e-11, atol=1e-13)
    assert_trees_close(got.slopes, got.pair_slopes, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(got.fixed, got.matrix, rtol=1e-12, atol=1e-14)
    assert_trees_close(got.fixed_slopes, got.slopes, rtol=1e-10, atol=1e-12)


def test_a_fixed_kernel_of_float32_is_as_exact_as_its_rows_allow():
    """Far from the origin too: what is fixed is centred and scaled in float64."""
    kernel, X, Z = make("rbf"), 100.0 + points(1), 100.0 + points(2)
    fixed = kernel.fixed(Z, jnp.float32)
    rows = X.astype(np.float32)
    assert fixed.matrix(rows).dtype == fixed.diagonal(rows).dtype == jnp.float32
    exact = kernel.matrix(rows.astype(float), Z)
    np.testing.assert_allclose(fixed.amplitude * fixed.matrix(rows), exact, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(fixed.diagonal(rows), kernel.diagonal(X), rtol=1e-6)


@every_kernel
def test_derivatives_are_finite_and_true_at_coincident_points(name):
    X = points(1)
    X = X.at[3].set(X[0])
    got = compute(make(name), X, X, WEIGHTS)
    # Rounding makes r² ~ 1e-16 of a zero distance; only Matérn-1/2 divides by r ~ 1e-8.
    np.testing.assert_allclose(got.diagonal, np.diag(got.pairs), rtol=1e-12)
    assert_trees_close((got.matrix, got.slopes), (got.pairs, got.pair_slopes), rtol=1e-6, atol=1e-6)


@every_kernel
def test_derivatives_agree_with_finite_differences(name):
    arguments, rng = (make(name), points(1), points(2)), np.random.default_rng(4)
    direction = jax.tree.map(lambda a: rng.normal(size=a.shape), arguments)

    def loss(step):
        moved = jax.tree.map(lambda a, d: a + step * d, arguments, direction)
        return np.sum(WEIGHTS * np.asarray(compute(*moved, WEIGHTS).matrix))

    slopes = jax.tree.leaves(compute(*arguments, WEIGHTS).slopes)
    slope = sum(np.sum(g * d) for g, d in zip(slopes, jax.tree.leaves(direction), strict=True))
    np.testing.assert_allclose(slope, (loss(1e-5) - loss(-1e-5)) / 2e-5, rtol=1e-6)


@every_kernel
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), spread=st.sampled_from([0.1, 1.0, 5.0]))
def test_matrix_is_symmetric_and_positive_semidefinite(name, seed, spread):
    with computing():
        X = spread * points(seed)
        K = np.asarray(compute(make(name, seed), X, X, WEIGHTS).matrix)
    np.testing.assert_allclose(K, K.T, rtol=1e-7, atol=1e-12)
    # Matérn-1/2 turns r² off by 1e-16 into k off by 1e-8.
    assert np.linalg.eigvalsh(K)[0] > -1e-6 * np.diag(K).max()


@every_kernel
def test_scale_is_the_variance_at_standardised_inputs(name):
    """k(x, x) = scale where x_d² = 1 for every input."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(8, D))
    got = compute(make(name), signs, signs, WEIGHTS)
    assert got.scale.shape == ()
    np.testing.assert_allclose(got.diagonal, np.full(8, got.scale), rtol=1e-12)


@every_kernel
def test_dtype_follows_the_first_argument(name):
    kernel = make(name)
    single, double = (jax.ShapeDtypeStruct((8, D), dtype) for dtype in (jnp.float32, jnp.float64))
    for first, second in [(single, double), (double, single)]:
        outputs = [jax.eval_shape(lambda k, X, Y: k.matrix(X, Y), kernel, first, second)]
        outputs.append(jax.eval_shape(lambda k, X, Y: k.pair(X[0], Y[0]), kernel, first, second))
        outputs.append(jax.eval_shape(lambda k, X: k.diagonal(X), kernel, first))
        if name in WITH_FEATURES:
            outputs.append(jax.eval_shape(lambda k, X: k.features(jax.random.key(0), 6)(X), kernel, first))
        assert {output.dtype for output in outputs} == {first.dtype}


@pytest.mark.parametrize("name", ["matern52", "locally-periodic"])
def test_single_precision_is_close_to_double(name):
    kernel, X, Y = make(name), points(1), points(2)
    single = quick_jit(lambda k, X, Y: k.matrix(X, Y))(kernel, np.float32(X), Y)
    np.testing.assert_allclose(single, compute(kernel, X, Y, WEIGHTS).matrix, rtol=2e-5, atol=2e-6)


def test_a_row_of_the_matrix_does_not_depend_on_the_other_rows():
    kernel, X, Y = make("sum"), points(1), points(2)
    moved = X + np.where(np.arange(8)[:, None] == 2, 0.0, 100.0)
    np.testing.assert_array_equal(
        compute(kernel, X, Y, WEIGHTS).matrix[2], compute(kernel, moved, Y, WEIGHTS).matrix[2]
    )


@every_kernel
def test_spec_survives_json(name):
    spec = KERNELS[name]
    assert specs.from_json(json.loads(json.dumps(spec.to_json()))) == spec


# --- other routes to the same numbers --------------------------------------------------------


@pytest.mark.parametrize("name, nu", [("matern12", 0.5), ("matern32", 1.5), ("matern52", 2.5), ("rbf", np.inf)])
def test_stationary_kernels_agree_with_scikit_learn(name, nu):
    kernel, X, Y = make(name), points(1), points(2)
    reference = sk.ConstantKernel(kernel.variance.value) * sk.Matern(np.asarray(kernel.lengthscale.value), nu=nu)
    np.testing.assert_allclose(matrix(kernel, X, Y), reference(X, Y), rtol=1e-11)


def test_rbf_agrees_with_scikit_learn():
    X, Y = points(1), points(2)
    np.testing.assert_allclose(matrix(wk.build(wk.RBF(lengthscale=0.6), D), X, Y), sk.RBF(0.6)(X, Y), rtol=1e-12)


def test_periodic_is_a_product_of_scikit_learns_over_inputs():
    """scikit-learn takes the sine of a Euclidean distance; the two agree input by input."""
    X, Y = points(1, d=2), points(2, d=2)
    reference = sk.ExpSineSquared(length_scale=0.8, periodicity=1.7)
    product = reference(X[:, :1], Y[:, :1]) * reference(X[:, 1:], Y[:, 1:])
    np.testing.assert_allclose(matrix(wk.build(wk.Periodic(lengthscale=0.8, period=1.7), 2), X, Y), product, rtol=1e-11)


def test_linear_agrees_with_scikit_learn():
    X, Y = points(1), points(2)
    np.testing.assert_allclose(
        matrix(wk.build(wk.Linear(variance=1.3), D), X, Y), 1.3 * sk.DotProduct(0.0)(X, Y), rtol=1e-12
    )


def test_periodic_repeats_itself_after_a_period():
    kernel, X, Y = wk.build(wk.Periodic(period=0.9), D), points(1), points(2)
    np.testing.assert_allclose(matrix(kernel, X + 3 * 0.9, Y), matrix(kernel, X, Y), rtol=1e-11)
    assert jnp.abs(matrix(kernel, X + 0.45, Y) - matrix(kernel, X, Y)).max() > 0.01


@pytest.mark.parametrize("name", ["rbf", "matern32", "periodic"])
def test_a_common_offset_costs_no_digits(name):
    """Without a centre, squares of 1e6 would leave errors of 1e-4."""
    kernel, X, Y = make(name), points(1), points(2)
    X, Y = (X + 1e6) - 1e6, (Y + 1e6) - 1e6  # the digits that an offset of 1e6 leaves
    np.testing.assert_allclose(matrix(kernel, X + 1e6, Y + 1e6), matrix(kernel, X, Y), rtol=1e-8)


@pytest.mark.parametrize("name", STATIONARY)
def test_active_dims_are_a_kernel_on_fewer_inputs(name):
    spec, X, Y, picked = STATIONARY[name], points(1), points(2), np.array([3, 1])
    small = matrix(wk.build(spec(lengthscale=0.8), 2), X[:, picked], Y[:, picked])
    np.testing.assert_allclose(matrix(wk.build(spec(lengthscale=0.8, active_dims=(3, 1)), D), X, Y), small, rtol=1e-12)


def test_variance_of_sums_and_products_decomposes():
    a, b, X = make("matern52"), make("linear"), points(1)
    total, product, one, other = (
        compute(k, X, X, WEIGHTS) for k in (wk.SumKernel((a, b)), wk.ProductKernel((a, b)), a, b)
    )
    for field in ("matrix", "diagonal", "scale"):
        np.testing.assert_allclose(getattr(total, field), getattr(one, field) + getattr(other, field), rtol=1e-12)
        np.testing.assert_allclose(getattr(product, field), getattr(one, field) * getattr(other, field), rtol=1e-12)


def test_features_of_a_sum_are_those_of_its_parts():
    """‖φ‖² decomposes draw by draw, and its linear part is exact."""
    kernel, X = wk.SumKernel((make("matern52"), make("linear"))), points(1)
    features = quick_jit(lambda kernel, key: kernel.features(key, 10))(kernel, jax.random.key(0))
    phi = np.asarray(features(X))
    assert [part.n_features for part in features.parts] == [10, D] and phi.shape == (8, 10 + D)
    np.testing.assert_allclose(phi[:, :10], features.parts[0](X))
    np.testing.assert_allclose(phi[:, 10:] @ phi[:, 10:].T, matrix(kernel.parts[1], X, X), rtol=1e-12)


@pytest.mark.parametrize("name, slope", [("matern32", -3 / 2), ("matern52", -5 / 6)])
def test_smooth_matern_curvature_at_zero_distance(name, slope):
    """∂²k/∂x² = 2 s² h′(0) / ℓ² for each input: the root of r² must not spoil it."""
    kernel, x = make(name), points(1)[0]
    hessian = quick_jit(jax.hessian(lambda y: kernel.pair(x, y)))(x)
    expected = np.diag(2 * kernel.variance.value * slope / kernel.lengthscale.value**2)
    np.testing.assert_allclose(hessian, expected, rtol=1e-12, atol=1e-14)


# --- random features -------------------------------------------------------------------------


N_FEATURES = 100_000


def z_scores(kernel, reference, n_features):
    """(mean over features of F φ_i(x) φ_i(y) − reference) / standard error, for all pairs of four points.

    Paired features are independent with one law, so many of them are as good as many draws.
    """
    X = 0.3 * points(5, 4)  # near enough for smoothness to show
    phi = np.asarray(kernel.paired_features(jax.random.key(8), n_features)(X)) * np.sqrt(n_features)
    products = phi[:, None] * phi[None]
    return (products.mean(-1) - reference.matrix(X, X)) / (products.std(-1) / np.sqrt(n_features) + 1e-12)


@pytest.mark.parametrize("name", WITH_FEATURES)
def test_each_paired_feature_carries_the_whole_kernel(name):
    """E[φ_i(x) φ_i(y)] = k(x, y) / F for every i. RBF, Matérn and products use these features as they are."""
    kernel = make(name)
    assert np.abs(z_scores(kernel, kernel, N_FEATURES)).max() < 4


def test_features_tell_neighbouring_smoothness_apart():
    """The test above has power: features of Matérn-3/2 are not taken for those of Matérn-5/2 or 1/2."""
    kernel = wk.build(wk.Matern32(), D)
    for other in (wk.Matern12(), wk.Matern52()):
        assert np.abs(z_scores(kernel, wk.build(other, D), N_FEATURES)).max() > 8


@pytest.mark.parametrize("name", [pytest.param("sum", marks=pytest.mark.slow), "product-of-sum"])
def test_few_features_are_unbiased_over_draws(name):
    kernel, X, n_draws = make(name), points(5, 4), 20_000

    @quick_jit
    @jax.vmap
    def draw(key):
        phi = kernel.features(key, 5)(X)
        return phi @ phi.T, phi

    draws, phi = (np.asarray(a) for a in draw(jax.random.split(jax.random.key(8), n_draws)))
    errors = draws.mean(0) - np.asarray(kernel.matrix(X, X))
    assert np.abs(errors / (draws.std(0) / np.sqrt(n_draws))).max() < 4
    if name == "product-of-sum":  # mean zero, so that features of factors can be multiplied and added
        assert np.abs(phi.mean(0) / (phi.std(0) / np.sqrt(n_draws))).max() < 4


def test_linear_features_are_exact():
    kernel, X = make("linear-ard"), points(1)
    phi = kernel.features(jax.random.key(0), 100)(X)
    assert phi.shape == (8, 2)
    np.testing.assert_allclose(phi @ phi.T, kernel.matrix(X, X), rtol=1e-12)


@pytest.mark.parametrize(
    "name", ["matern32", *(pytest.param(n, marks=pytest.mark.slow) for n in ("sum", "product-of-sum"))]
)
def test_features_drawn_by_vmap_are_those_drawn_one_by_one(name):
    kernel, X, keys = make(name), points(1), jax.random.split(jax.random.key(0), 3)
    draw = quick_jit(lambda kernel, key: kernel.features(key, 8))
    maps = quick_jit(jax.vmap(lambda key: kernel.features(key, 8)))(keys)
    together = quick_jit(jax.vmap(lambda phi: phi(X)))(maps)
    for key, phi in zip(keys, together, strict=True):
        single = draw(kernel, key)
        assert phi.shape == (8, single.n_features)
        np.testing.assert_allclose(phi, single(X), rtol=1e-10, atol=1e-10)


def test_sums_split_the_features_among_their_random_parts():
    spec = wk.RBF() + wk.Linear() + wk.Matern12() + wk.Matern52()
    parts = jax.eval_shape(lambda kernel: kernel.features(jax.random.key(0), 8), wk.build(spec, D)).parts
    assert [part.n_features for part in parts] == [3, D, 3, 2]


def test_derivatives_pass_through_features():
    """At a fixed draw φ depends on the hyperparameters: its derivative is that of finite differences."""
    flat, rebuild = jax.flatten_util.ravel_pytree(make("matern52"))

    @quick_jit
    @jax.value_and_grad
    def loss(flat):
        return jnp.sum(rebuild(flat).features(jax.random.key(1), 5)(points(1, 3)) ** 2)

    direction, step = np.linspace(-1.0, 1.0, flat.size), 1e-6
    difference = (loss(flat + step * direction)[0] - loss(flat - step * direction)[0]) / (2 * step)
    np.testing.assert_allclose(np.asarray(loss(flat)[1]) @ direction, difference, rtol=1e-6)


@pytest.mark.parametrize("name", ["periodic", "locally-periodic"])
def test_periodic_features_are_refused(name):
    with pytest.raises(OptionError, match="which pathwise sampling needs; choose a kernel that has them"):
        make(name).features(jax.random.key(0), 10)


# --- build -----------------------------------------------------------------------------------


def test_build_uses_defaults_only_where_the_spec_says_none():
    kernel = wk.build(wk.RBF(), D, variance=0.3, lengthscale=2.5)
    np.testing.assert_allclose(kernel.variance.value, 0.3)
    np.testing.assert_allclose(kernel.lengthscale.value, np.full(D, 2.5))
    kernel = wk.build(wk.RBF(variance=4.0, lengthscale=5.0, ard=False), D, variance=0.3, lengthscale=2.5)
    np.testing.assert_allclose([kernel.variance.value, kernel.lengthscale.value], [4.0, 5.0])
    assert wk.build(wk.Linear(ard=True, active_dims=(0, 2)), D).variance.value.shape == (2,)
    np.testing.assert_allclose(wk.build(wk.Periodic(period=7.0, ard=False), D).period.value, 7.0)


def test_build_shares_the_variance_in_sums_and_gives_it_to_the_first_factor_of_products():
    total = wk.build(wk.RBF() + wk.Matern12() + wk.Matern32(variance=9.0), D, variance=0.6)
    np.testing.assert_allclose([part.variance.value for part in total.parts], [0.2, 0.2, 9.0])
    product = wk.build(wk.RBF() * wk.Matern12() * wk.Linear(), D, variance=0.6)
    np.testing.assert_allclose([part.variance.value for part in product.parts], [0.6, 1.0, 1.0])
    nested = wk.build((wk.RBF() + wk.Matern52()) * wk.RBF(), D, variance=0.6)
    np.testing.assert_allclose(nested.scale, 0.6)


def test_operators_flatten_sums_and_products():
    spec = wk.RBF() + wk.Linear() + wk.Matern12()
    assert spec == wk.Sum((wk.RBF(), wk.Linear(), wk.Matern12()))
    assert [type(part) for part in wk.build(spec, D).parts] == [wk.RBFKernel, wk.LinearKernel, wk.Matern12Kernel]


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("dims", [(4,), (-1,), (0, 0), (), (1.5,)])
@pytest.mark.parametrize("spec", [wk.RBF, wk.Linear, wk.Periodic])
def test_bad_active_dims_are_refused(spec, dims):
    with pytest.raises(OptionError, match="from 0 to 3"):
        wk.build(spec(active_dims=dims) + wk.RBF(), D)


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    "spec, message",
    [
        (wk.RBF(variance=-1.0), "variance=-1.0"),
        (wk.RBF(lengthscale=0.0), "lengthscale=0.0"),
        (wk.Periodic(period=float("nan")), "period=nan"),
        (wk.Sum(), "no parts"),
        (wk.Product(), "no parts"),
        ("rbf", "expected a kernel spec"),
        (StationaryKernelSpec(), "not registered"),
    ],
)
def test_bad_specs_are_refused(spec, message):
    with pytest.raises(OptionError, match=message):
        wk.build(spec, D)


def test_inputs_of_another_width_are_refused():
    with pytest.raises(DataError, match="built for 4 inputs"):
        wk.build(wk.RBF(active_dims=(0,)), D).matrix(points(0, 3, 5), points(1, 2, 5))
    with pytest.raises(OptionError, match="n_features=0"):
        wk.build(wk.RBF(), D).features(jax.random.key(0), 0)
