"""Forms of the computation for accelerators give what the plain ones give, with its derivatives; here on the CPU."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import WISHARTS, make_batch, make_flow, make_sparse_gp, points, quick_jit, series_problem, spread

from wishflow import kernels
from wishflow.inducing import InducingBasis, SparseGP, joined_moments, posteriors
from wishflow.inducing.natural import natural_step
from wishflow.kernels import RBF, Matern32, Matern52, stationary
from wishflow.numerics import devices as runtime
from wishflow.numerics import entries, linalg, platform
from wishflow.regression.objectives import negative_objective
from wishflow.regression.steps import RowSteps
from wishflow.series.latent_objectives import negative_filter_objective
from wishflow.series.objectives import negative_transition_objective
from wishflow.series.specs import Latent
from wishflow.series.steps import SeriesSteps
from wishflow.wishart.specs import Wishart

LONG = platform.UNROLLED_STEPS + 1


@pytest.fixture
def pretend(monkeypatch):
    def on():
        monkeypatch.setattr(platform, "on_accelerator", lambda: True)
        monkeypatch.setattr(linalg, "PART_ROWS", 2)  # the few rows here are cut into parts too

    return on


def assert_same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * max(1.0, np.abs(np.asarray(b)).max()))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in WISHARTS),
        pytest.param(WISHARTS[0], {"time_dependent": True}, marks=pytest.mark.slow),
    ],
)
def test_the_objective_of_a_flow_is_the_same(name, options, key, pretend):
    model, batch = make_flow(name, **options), make_batch()

    def objective(model):
        return negative_objective(model, batch, key, n_samples=2)[0]

    plain = quick_jit(lambda model: jax.value_and_grad(objective)(model))(model)
    pretend()
    assert_same(quick_jit(lambda model: jax.value_and_grad(objective)(model))(model), plain)


@pytest.mark.parametrize("spec", [RBF(variance=0.8), Matern32(), RBF(active_dims=(0, 2))])
def test_a_kernel_of_fixed_points_is_the_same(spec, pretend):
    kernel, X, Z = kernels.build(spec, 3), points(1, 5), points(2, 4)

    def weighted(kernel, X, Z):
        fixed = kernel.fixed(Z, X.dtype)
        matrix = fixed.amplitude * fixed.matrix(X)
        return jnp.sum(matrix * jnp.cos(jnp.arange(20.0).reshape(5, 4))), matrix

    def both(*arguments):
        return jax.value_and_grad(weighted, argnums=(0, 1, 2), has_aux=True)(*arguments)

    plain = quick_jit(lambda *arguments: both(*arguments))(kernel, X, Z)
    pretend()
    assert_same(quick_jit(lambda *arguments: both(*arguments))(kernel, X, Z), plain)


@pytest.mark.parametrize(
    ("n_rows", "n_parts"), [(2000, 16), (455, 7), (130, 2), (127, 1), (2003, 1), (64, 1), (40_000, 16)]
)
def test_sums_over_rows_are_cut_into_equal_parts(n_rows, n_parts):
    assert linalg.parts_of(n_rows) == n_parts
    A, B = points(1, n_rows), points(2, n_rows)
    np.testing.assert_allclose(linalg.over_rows(A, B), A.T @ B, rtol=1e-10, atol=1e-10)


def test_thin_products_are_products():
    A, B = points(1, 5, 3), points(2, 3, 4)

    def weighted(product):
        return lambda A, B: jnp.sum(jnp.sin(product(A, B)))

    plain, thin = (jax.value_and_grad(weighted(product), (0, 1))(A, B) for product in (jnp.matmul, linalg.thin_product))
    assert_same(thin, plain)


def test_products_of_rows_are_products_in_both_modes_of_derivatives(pretend):
    A, B, dA, dB = points(1, 6, 3), points(2, 3, 4), points(3, 6, 3), points(4, 3, 4)

    def found(product):
        gradient = jax.grad(lambda A, B: jnp.sum(jnp.sin(product(A, B))), (0, 1))(A, B)
        return jax.jvp(product, (A, B), (dA, dB)), gradient

    plain = found(jnp.matmul)
    pretend()
    assert_same(found(linalg.rows_product), plain)


@pytest.mark.parametrize(("n_inducing", "n_outputs"), [(3, 1), (5, 4)])
def test_forms_of_full_factors_from_one_product(n_inducing, n_outputs):
    a, columns = points(1, 7, n_inducing), points(2, n_inducing, n_outputs * n_inducing)

    def plain(a, columns):
        return jnp.sum((a @ columns).reshape(7, n_outputs, n_inducing) ** 2, -1)

    def found(forms):
        return forms(a, columns), jax.grad(lambda *x: jnp.sum(jnp.sin(forms(*x))), (0, 1))(a, columns)

    assert_same(found(posteriors.quadratic_forms_at_once), found(plain))


def test_full_factors_in_float32_are_one_product(pretend):
    gp = spread(SparseGP.prior(InducingBasis.of(kernels.build(RBF(), 2), points(1, 5), 1e-6), 3), 2)
    a = points(3, 7, 5).astype(jnp.float32)
    plain = gp.posterior.prepare(a.dtype).quadratics(a)
    pretend()
    one, other = (gp.posterior.prepare(dtype) for dtype in (jnp.float32, jnp.float64))
    assert isinstance(one, posteriors.PreparedWide) and isinstance(other, posteriors.PreparedFull)
    np.testing.assert_allclose(one.quadratics(a), plain, rtol=1e-5)


@pytest.mark.parametrize("is_orthogonal", [False, True])
def test_moments_from_one_product(is_orthogonal):
    K, product, variances = points(1, 7, 4), points(2, 4, 11), points(3, 4, 2)

    def joined(*arguments):
        return joined_moments(*arguments, is_orthogonal)

    def plain(K, product, variances):
        a, b, rest = jnp.split(K @ product, (4, 4 if is_orthogonal else 8), axis=1)
        b = a if is_orthogonal else b
        return rest, jnp.sum(a**2, 1), b**2 @ variances

    def weighted(function):
        return lambda *arguments: sum(jnp.sum(jnp.sin(part)) for part in function(*arguments))

    arguments = (K, product, variances)
    assert_same(joined(*arguments), plain(*arguments))
    one, other = (jax.grad(weighted(f), (0, 1, 2))(*arguments) for f in (joined, plain))
    assert_same(one, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("diffusion", "is_alike"),
    [("gp", True), ("wishart-shared", True), ("wishart-shared", False), ("wishart-shared-rotated", True)],
)
def test_factorisations_in_one_call_are_the_same(diffusion, is_alike, key, pretend):
    """A flow whose bases have the same size and whose output is a single one, and a step of its natural gradient."""
    model, batch = make_flow(diffusion), make_batch()
    kernel = model.field.basis.kernel if is_alike else kernels.build(Matern52(), 3)
    gp = spread(SparseGP.prior(InducingBasis.of(kernel, points(4, 6), 1e-6), 1), 2)
    likelihood = eqx.tree_at(lambda p: p.noise.raw, model.likelihood, model.likelihood.noise.raw[:1])
    model = eqx.tree_at(lambda m: (m.output, m.likelihood), model, (gp, likelihood))
    batch = eqx.tree_at(lambda b: b.y, batch, batch.y[:, :1])

    def objective(model):
        value, (_, sites) = negative_objective(model, batch, key, has_sites=True)
        return value, natural_step(model.output.posterior, sites, 0.3)

    plain = quick_jit(lambda model: jax.value_and_grad(objective, has_aux=True)(model))(model)
    pretend()
    sites = jax.eval_shape(lambda model: negative_objective(model, batch, key, has_sites=True)[1][1], model)
    assert sites.inverse is not None
    assert_same(quick_jit(lambda model: jax.value_and_grad(objective, has_aux=True)(model))(model), plain)


@pytest.mark.parametrize(
    ("options", "average"),
    [
        ({"diffusion": Wishart(rank=2, columns="shared")}, "density"),
        ({"diffusion": Wishart(rank=2, columns="independent")}, "log"),
    ],
)
def test_transitions_of_a_series_cost_the_same(options, average, key, pretend):
    model, batch = series_problem(**options)
    batch = eqx.tree_at(lambda b: b.windows, batch, None, is_leaf=lambda x: x is None)

    def objective(model):
        return negative_transition_objective(model, batch, key, n_samples=3, average=average)[0]

    plain = quick_jit(lambda model: jax.value_and_grad(objective)(model))(model)
    pretend()
    assert_same(quick_jit(lambda model: jax.value_and_grad(objective)(model))(model), plain)


@pytest.mark.parametrize("tails", [None, 5.0])
@pytest.mark.parametrize("dim, nu", [(1, 1), (3, 1), (4, 4), (5, 2), (2, 6)])
def test_densities_by_entries_are_those_of_matrices(dim, nu, tails):
    rng = np.random.default_rng(nu)
    r, F, white = rng.normal(size=(7, dim)), rng.normal(size=(7, dim, nu)), np.exp(rng.normal(size=(7, dim)))
    arguments = tuple(jnp.asarray(x) for x in (r, F, 1e-3 * white))

    def by_entries(r, F, white):
        return entries.low_rank_log_density(
            entries.last_axis(r), entries.entries_of(F), entries.last_axis(white), tails
        )

    def with_gradient(density):
        return quick_jit(jax.value_and_grad(lambda *a: jnp.sum(jnp.cos(density(*a))), argnums=(0, 1, 2)))(*arguments)

    assert_same(with_gradient(by_entries), with_gradient(lambda *a: linalg.low_rank_log_density(*a, tails)))


@pytest.mark.parametrize("name", WISHARTS)
def test_entries_of_a_factor_are_its_entries(name, key):
    here = make_flow(name).field.in_parts().at(points(5, 4))
    rows = here.factor_entries(key)
    np.testing.assert_allclose(jnp.stack([jnp.stack(row, -1) for row in rows], -2), here.factor(key), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "of"),
    [
        pytest.param({}, lambda value: value, id="seen"),
        pytest.param({}, jax.value_and_grad, id="seen, gradient", marks=pytest.mark.long),
        pytest.param({"latent": Latent(2, "gp")}, jax.value_and_grad, id="latent", marks=pytest.mark.long),
    ],
)
def test_a_series_with_holes_costs_the_same(options, of, key, pretend):
    """Its filter takes derivatives of the drift (of the readout, where the state is hidden) forward, and the gradient
    of the objective goes back through them.
    """
    model, batch = series_problem(**options)
    objective = negative_filter_objective if options else negative_transition_objective

    def value(model):
        return objective(model, batch, key, n_samples=2)[0]

    plain = quick_jit(lambda model: of(value)(model))(model)
    pretend()
    assert_same(quick_jit(lambda model: of(value)(model))(model), plain)


def test_a_stack_is_factorised_in_one_call(monkeypatch):
    """Alone in its program: two batched calls side by side could wait for each other on the CPU."""
    roots = jnp.stack([points(seed, 5, 5) for seed in (1, 2)])
    stack = roots @ roots.swapaxes(1, 2) + jnp.eye(5)
    one_by_one = linalg.together(linalg.cholesky, stack)
    monkeypatch.setattr(platform, "on_accelerator", lambda: True)
    assert_same(jax.jit(lambda stack: linalg.together(linalg.cholesky, stack))(stack), one_by_one)


def test_distances_by_columns_keep_the_digits_of_float32(pretend):
    """Rows of a spread of one around inducing points, as scaled data are: the error is that of the plain form."""
    kernel, Z, X = kernels.build(RBF(), 8, lengthscale=2.0), points(1, 50, 8), points(2, 200, 8)
    exact = np.asarray(kernel.matrix(X, Z)) / np.asarray(kernel.variance.value)
    X = X.astype(jnp.float32)
    plain = kernel.fixed(Z, jnp.float32)
    pretend()
    by_columns = kernel.fixed(Z, jnp.float32)
    assert isinstance(by_columns, stationary.ProductStationary) and not isinstance(plain, stationary.ProductStationary)
    errors = [np.abs(np.asarray(fixed.matrix(X)) - exact).max() for fixed in (plain, by_columns)]
    assert errors[1] < 5 * errors[0] < 1e-5


# --- programs without loops inside ---------------------------------------------------------------


@pytest.mark.parametrize("n_steps, has_loops", [(3, False), (LONG, True)])
def test_the_steps_of_long_paths_are_loops(n_steps, has_loops, pretend):
    pretend()
    steps = RowSteps(1, "float32", True, "log", 8)
    model = dataclasses.replace(make_flow(WISHARTS[0]), n_steps=n_steps)
    assert steps.has_loops(model, make_batch()) == has_loops
    assert not steps.has_loops(make_sparse_gp(), make_batch())


@pytest.mark.parametrize("n_ticks, has_loops", [(6, False), (LONG, True)])
def test_long_windows_are_loops_and_single_steps_are_none(n_ticks, has_loops, pretend):
    pretend()
    _, batch = series_problem(objective="rollout")
    windows = eqx.tree_at(lambda w: w.h, batch.windows, jnp.zeros((len(batch.windows.h), n_ticks)))
    steps = SeriesSteps(1, "float32", False, "log", 8, 8, "rollout", False)
    assert steps.has_loops(None, dataclasses.replace(batch, windows=windows)) == has_loops
    assert not steps.has_loops(None, dataclasses.replace(batch, windows=None))


def test_a_program_is_compiled_for_what_its_arguments_say(monkeypatch):
    asked = []
    monkeypatch.setattr(runtime, "compiler_options", lambda is_side_by_side=False: asked.append(is_side_by_side) or {})
    program = runtime.compiled(lambda x: x + 1, side_by_side=lambda x: x.ndim == 0)
    assert program(jnp.zeros(())) == 1.0 and all(asked)
    assert program(jnp.zeros(1))[0] == 1.0 and not asked[-1]
    assert runtime.compiled(lambda x: x + 1)(jnp.zeros(())) == 1.0 and not asked[-1]
