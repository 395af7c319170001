"""Objectives: named parts and weights, batches and padding, natural gradients, and factorisations one at a time."""

import dataclasses
import functools
import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import DIFFUSIONS, make_batch, make_flow, make_sparse_gp, points, quick_jit, series_problem
from scipy.special import logsumexp

from wishflow.inducing.natural import damped_step, natural_step
from wishflow.kernels import RBF
from wishflow.likelihoods import LIKELIHOODS
from wishflow.numerics.devices import on_device
from wishflow.regression import presets, sparse_gp
from wishflow.regression.batches import Batch
from wishflow.regression.collapsed import collapsed_bound, optimal_posterior
from wishflow.regression.models import output_components
from wishflow.regression.objectives import negative_objective
from wishflow.regression.specs import SparseGPSpec
from wishflow.series import objectives as series_objectives
from wishflow.series.objectives import covariates_there, negative_rollout_objective
from wishflow.training.objective import objective_of, over_paths

FLOW_PARTS = {"none": set(), "diagonal": {"kl_drift"}, "gp": {"kl_drift"}}


@functools.partial(quick_jit, static_argnames=("n_samples", "dtype"))
def evaluate(model, batch, key, kl_weight=1.0, n_samples=2, dtype=None):
    return negative_objective(model, batch, key, kl_weight=kl_weight, n_samples=n_samples, dtype=dtype)


# --- parts and weights ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["none", "diagonal", "gp", "wishart-independent-white"])
def test_the_objective_is_made_of_its_named_parts(name, key):
    """fit − KL_g − c² KL_f − c KL_Σ; the parts themselves do not depend on c."""
    model, batch = make_flow(name), make_batch()
    for c in (0.0, 0.4, 1.0):
        value, (parts, sites) = evaluate(model, batch, key, c)
        assert sites is None
        assert set(parts) == {"fit", "kl_output"} | FLOW_PARTS.get(name, {"kl_drift", "kl_diffusion"})
        drift, diffusion = parts.get("kl_drift", 0.0), parts.get("kl_diffusion", 0.0)
        expected = parts["fit"] - parts["kl_output"] - c**2 * drift - c * diffusion
        np.testing.assert_allclose(-value, expected, rtol=1e-13)
        full = parts["fit"] - parts["kl_output"] - drift - diffusion
        np.testing.assert_allclose(objective_of(parts), full, rtol=1e-13)
    np.testing.assert_allclose(objective_of(parts), -value, rtol=1e-13)  # c = 1


def test_a_flow_that_does_not_move_has_the_bound_of_its_sparse_gp(key):
    """No noise and no drift: the identity, at no cost."""
    flow, batch = make_flow("none"), make_batch()
    still = eqx.tree_at(lambda m: m.field.gp.mean, flow, jnp.asarray(np.zeros(flow.field.gp.mean.shape)))
    gp = eqx.tree_at(lambda m: (m.output, m.likelihood), make_sparse_gp(), (flow.output, flow.likelihood))
    np.testing.assert_allclose(evaluate(still, batch, key)[0], evaluate(gp, batch, key)[0], rtol=1e-12)


def test_models_without_noise_take_one_sample_whatever_is_asked(key):
    flow, batch = make_flow("none"), make_batch()
    one, five = (evaluate(flow, batch, k, 1.0, n)[0] for k, n in ((key, 1), (jax.random.key(5), 5)))
    np.testing.assert_array_equal(one, five)


def test_float32_flows_stay_close_to_float64_ones(key):
    flow, batch = make_flow("none"), make_batch()
    exact, rounded = (evaluate(flow, batch, key, 1.0, 1, jnp.dtype(d))[0] for d in ("float64", "float32"))
    assert rounded.dtype == jnp.float64  # only the flow is rounded, the output layer never
    np.testing.assert_allclose(rounded, exact, rtol=1e-4)
    assert rounded != exact


@pytest.mark.parametrize("is_pathwise", [False, True])
def test_the_objective_is_the_mean_over_samples(key, is_pathwise):
    """S samples at once = the mean over the samples, each scored on its own; samples differ."""
    flow, batch, n = make_flow("wishart-shared-white"), make_batch(), 4
    flow = dataclasses.replace(flow, is_pathwise=is_pathwise)
    together = float(evaluate(flow, batch, key, 1.0, n)[1][0]["fit"])
    arrived = quick_jit(lambda X: flow.carry_samples(X, jax.random.split(key)[0], n))(batch.X)

    @quick_jit
    def one(moved):
        mean, variance = flow.output.conditioned().marginals(moved)
        return jnp.sum(flow.likelihood.expected_log_density(batch.y, mean, variance))

    alone = [float(one(moved)) for moved in arrived.reshape(n, *batch.X.shape)]
    np.testing.assert_allclose(together, np.mean(alone), rtol=1e-10)
    assert np.std(alone) > 1e-3


def test_samples_are_draws_of_the_path(key):
    """Rows of many samples have the moments of single samples with keys of their own."""
    flow, X = make_flow("wishart-shared-white"), make_batch().X[:1]
    n = 4000
    together = quick_jit(lambda X: flow.carry_samples(X, key, n))(X)
    alone = quick_jit(lambda X: jax.vmap(lambda k: flow.carry(X, k)[0])(jax.random.split(key, n)))(X)
    error = np.asarray(alone).std(0) / np.sqrt(n)
    assert (np.abs(np.mean(together - alone, 0)) < 6.0 * error).all()
    np.testing.assert_allclose(np.std(together, 0), np.std(alone, 0), rtol=0.1)


# --- batches -------------------------------------------------------------------------------------


def rows_of(batch, rows, weights=None):
    weights = np.ones(len(rows)) if weights is None else weights
    return Batch(
        jnp.asarray(np.asarray(batch.X)[rows]),
        jnp.asarray(np.asarray(batch.y)[rows]),
        jnp.asarray(weights),
        batch.n_data,
    )


def test_minibatches_average_to_the_whole(key):
    """The likelihood term scaled by N/B is unbiased: over a partition into equal batches its mean is the full one."""
    model, batch = make_sparse_gp(), make_batch()
    whole = float(evaluate(model, batch, key)[1][0]["fit"])
    parts = [float(evaluate(model, rows_of(batch, np.arange(i, 12, 3)), key)[1][0]["fit"]) for i in range(3)]
    np.testing.assert_allclose(np.mean(parts), whole, rtol=1e-12)
    assert np.std(parts) > 1e-3


def test_rows_of_weight_zero_change_nothing(key):
    """In the objectives, the optimal q and its gradient, whatever stands in the padded rows."""
    model, batch = make_sparse_gp(), make_batch()
    padded = rows_of(batch, np.r_[np.arange(12), 0, 3, 3], np.r_[np.ones(12), np.zeros(3)])

    @quick_jit
    def everything(model, batch):
        value, gradient = jax.value_and_grad(lambda m: negative_objective(m, batch, key)[0])(model)
        return value, gradient, collapsed_bound(model, batch), optimal_posterior(model, batch)

    for one, other in zip(*(jax.tree.leaves(everything(model, b)) for b in (batch, padded)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_samples_of_a_rollout_are_averaged_window_by_window(key, monkeypatch):
    """Windows of unequal weights, the average of densities: a density in the wrong place would change the fit."""
    model, batch = series_problem(objective="rollout")
    n = len(batch.windows.weights)
    batch = eqx.tree_at(lambda b: b.windows.weights, batch, 1.0 + jnp.arange(n))
    seen, average = [], over_paths
    monkeypatch.setattr(
        series_objectives, "over_paths", lambda by_row, kind: (seen.append(by_row), average(by_row, kind))[1]
    )

    @functools.partial(quick_jit, static_argnames="n_samples")
    def densities_and_fit(model, batch, n_samples):
        fit = negative_rollout_objective(model, batch, key, n_samples=n_samples, average="density")[1]["fit"]
        return seen[-1], fit

    (alone, _), (by_window, fit) = (densities_and_fit(model, batch, n_samples) for n_samples in (1, 2))
    assert by_window.shape == (2, n)
    np.testing.assert_allclose(by_window[0], alone[0], rtol=1e-10)
    assert np.abs(np.asarray(by_window[0] - by_window[1])).min() > 1e-6
    weights = np.asarray(batch.windows.weights)
    expected = weights @ (logsumexp(by_window, 0) - np.log(2.0)) / weights.sum() * float(batch.windows.n_data)
    np.testing.assert_allclose(fit, expected, rtol=1e-12)


# --- natural gradients ---------------------------------------------------------------------------


@functools.partial(quick_jit, static_argnames="n_samples")
def natural(model, batch, key, rate, n_samples=1):
    """The model after one natural-gradient step on q of its output, and the gradient by q where it arrives."""
    sites = negative_objective(model, batch, key, n_samples=n_samples, has_sites=True)[1][1]
    moved = eqx.tree_at(lambda m: m.output.posterior, model, natural_step(model.output.posterior, sites, rate))

    def loss(q):
        at_q = eqx.tree_at(lambda m: m.output.posterior, moved, q)
        return negative_objective(at_q, batch, key, n_samples=n_samples)[0]

    return moved, *jax.value_and_grad(loss)(moved.output.posterior)


def largest(gradient):
    return max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("name", ["wishart-shared-white", "gp"])
def test_a_full_step_is_the_optimal_q_of_a_flow_given_its_samples(name, key):
    """Gaussian likelihood, γ = 1, three samples of the path: the objective on the same samples has no gradient left."""
    flow, batch = make_flow(name), make_batch()
    assert largest(natural(flow, batch, key, 0.0, 3)[2]) > 0.1
    assert largest(natural(flow, batch, key, 1.0, 3)[2]) < 1e-9


def test_a_partial_step_mixes_natural_parameters(key):
    """Π ← (1 − γ) Π + γ Π*, θ ← (1 − γ) θ + γ θ*, with the optimal q in closed form; γ = 0 stays."""
    model, batch = make_sparse_gp(), make_batch()
    best = quick_jit(optimal_posterior)(model, batch)

    def natural_parameters(q):
        R = np.asarray(q.sqrt.value)
        precision = np.linalg.inv(R @ R.swapaxes(-1, -2))
        return precision, np.einsum("pij,pj->pi", precision, np.asarray(q.mean))

    for rate in (0.0, 0.3):
        moved = natural(model, batch, key, rate)[0].output.posterior
        old, new, target = (natural_parameters(q) for q in (model.output.posterior, moved, best))
        for before, after, goal in zip(old, new, target, strict=True):
            np.testing.assert_allclose(after, (1 - rate) * before + rate * goal, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "student_t"])
def test_repeated_steps_end_where_the_bound_has_no_gradient(likelihood, key):
    """Other likelihoods: no step lands there at once, but the fixed point is a stationary point of the same bound.

    Student-t is not log-concave: where a row's curvature is cut off at zero, R stays wider than its best, m does not.
    """
    model, batch = make_sparse_gp(likelihood), make_batch(likelihood)
    start = float(natural(model, batch, key, 0.0)[1])
    for _ in range(150):
        model, value, gradient = natural(model, batch, key, 0.5)
    assert float(value) < start
    assert largest(gradient.mean if likelihood == "student_t" else gradient) < 1e-6


# About the mean of g that fits the rows of `far_from`.
CENTRES = {"poisson": 4.0, "student_t": 0.0, "bernoulli": 0.0, "gaussian": 0.0}


def far_from(likelihood, shift, variance=1.0):
    """A model of one output whose q is at the prior but for a mean of g near `shift`, and 60 rows."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-2.0, 2.0, 60))[:, None]
    f = np.sin(2.0 * X)
    y = {"poisson": rng.poisson(np.exp(4.0 + f)), "student_t": f, "bernoulli": f > 0, "gaussian": f}[likelihood]
    spec = SparseGPSpec(RBF(variance=variance, lengthscale=1.0), LIKELIHOODS[likelihood])
    model = sparse_gp.build(spec, presets.fast_preset(60, 1), np.linspace(-2.0, 2.0, 12)[:, None], 1)
    a = np.asarray(quick_jit(lambda m, x: m.output.basis.prepare().project(x))(model, on_device(X)))
    mean = np.linalg.lstsq(a, np.full(60, shift), rcond=1e-6)[0]
    model = eqx.tree_at(lambda m: m.output.posterior.mean, model, on_device(mean[None]))
    return model, Batch(*(on_device(v) for v in (X, y.astype(float), np.ones(60), np.float64(60.0))))


@quick_jit
def both_steps(model, batch, key, rate):
    """The bound, and the bounds after a natural-gradient step as it is and after a damped one, with their q."""

    def bound(q):
        return -negative_objective(eqx.tree_at(lambda m: m.output.posterior, model, q), batch, key)[0]

    q, sites = model.output.posterior, negative_objective(model, batch, key, has_sites=True)[1][1]
    steps = [step(q, sites, rate) for step in (natural_step, damped_step)]
    return bound(q), [(bound(new), new) for new in steps]


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize(
    ("likelihood", "shift", "variance"),
    [
        ("poisson", 0.0, 1.0),
        ("poisson", -20.0, 1.0),
        ("poisson", 10.0, 1.0),
        ("poisson", 0.0, 100.0),
        ("student_t", 0.0, 1.0),
        ("student_t", 50.0, 100.0),
    ],
)
def test_a_damped_step_rises_from_every_start_and_arrives(likelihood, shift, variance, rate, key):
    """Counts with q far below, far above, and far too wide: a step as it is may fall by orders of magnitude."""
    model, batch = far_from(likelihood, shift, variance)
    near, _ = far_from(likelihood, CENTRES[likelihood])
    good = float(both_steps(near, batch, key, rate)[0])
    for _ in range(120):
        before, (_, (after, q)) = both_steps(model, batch, key, rate)
        assert float(after) >= float(before) - 1e-4 * 60 - 1e-9 * abs(float(before))
        model = eqx.tree_at(lambda m: m.output.posterior, model, q)
    assert float(after) > good


def test_a_step_as_it_is_falls_where_counts_are_far_above_their_rates(key):
    """What damping is there for."""
    model, batch = far_from("poisson", 0.0)
    before, ((undamped, _), (damped, _)) = both_steps(model, batch, key, 0.1)
    assert float(undamped) < 10.0 * float(before) < float(before) < float(damped)


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "poisson", "student_t"])
def test_a_step_that_rises_is_taken_as_it_is(likelihood, key):
    model, batch = far_from(likelihood, CENTRES[likelihood])
    before, ((undamped, q), (_, damped)) = both_steps(model, batch, key, 0.1)
    assert float(undamped) > float(before)
    for one, other in zip(jax.tree.leaves(q), jax.tree.leaves(damped), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_a_damped_step_factorises_one_matrix_at_a_time(key):
    model, batch = make_sparse_gp("poisson"), make_batch("poisson")

    def step(model):
        sites = negative_objective(model, batch, key, has_sites=True)[1][1]
        assert sites.rows is not None
        return damped_step(model.output.posterior, sites, 0.1)

    assert_unbatched(step, model)


# --- factorisations one at a time ----------------------------------------------------------------

FACTORISATIONS = {"cholesky", "triangular_solve", "eigh", "lu", "qr", "svd", "householder_product", "schur"}


def factorised_shapes(jaxpr) -> list[tuple[int, ...]]:
    """Shapes of the operands of every factorisation in a program, inner programs too."""
    shapes = []
    for equation in jaxpr.eqns:
        if equation.primitive.name in FACTORISATIONS:
            shapes += [tuple(v.aval.shape) for v in equation.invars]
        for value in jax.tree.leaves(equation.params, is_leaf=lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                shapes += factorised_shapes(inner)
    return shapes


def assert_unbatched(function, *args):
    shapes = factorised_shapes(jax.make_jaxpr(function)(*args).jaxpr)
    assert shapes, "no factorisation was found: the test has lost its subject"
    assert all(len(shape) == 2 for shape in shapes), shapes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sampling"), [(name, "marginal") for name in DIFFUSIONS] + [("wishart-shared-white", "pathwise")]
)
def test_a_training_step_factorises_one_matrix_at_a_time(name, sampling, key):
    """Batched factorisations can wait for each other for ever on the CPU; several samples must not make any."""
    flow, batch = make_flow(name, sampling=sampling), make_batch()

    def loss(model):
        return negative_objective(model, batch, key, n_samples=3, has_sites=True)

    def step(model):
        (_, (_, sites)), gradient = jax.value_and_grad(loss, has_aux=True)(model)
        return gradient, natural_step(model.output.posterior, sites, 0.1)

    assert_unbatched(step, flow)


def test_collapsed_bound_and_prediction_factorise_one_matrix_at_a_time(key):
    model, batch, flow = make_sparse_gp(), make_batch(), make_flow("wishart-independent-white", sampling="pathwise")
    assert_unbatched(jax.value_and_grad(collapsed_bound), model, batch)
    assert_unbatched(optimal_posterior, model, batch)
    assert_unbatched(lambda m: output_components(m, points(1, 4), key, 5), flow)


def test_the_check_sees_batched_factorisations():
    stack = jnp.asarray(np.tile(np.eye(3), (4, 1, 1)))
    with pytest.raises(AssertionError):
        assert_unbatched(jax.jit(jax.vmap(jnp.linalg.cholesky)), stack)


TWO_GPS = """
import os
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
import jax
from factories import make_batch, make_sparse_gp
from wishflow.inducing.natural import natural_step
from wishflow.regression.collapsed import collapsed_bound
from wishflow.regression.objectives import negative_objective
from wishflow.numerics.devices import computing
import equinox as eqx

@jax.jit
def step(models, batch, key):
    moved, total = [], 0.0
    for model in models:
        value, gradient = jax.value_and_grad(collapsed_bound)(model, batch)
        sites = negative_objective(model, batch, key, has_sites=True)[1][1]
        model = jax.tree.map(lambda leaf, slope: leaf + 1e-5 * slope, model, gradient)
        posterior = natural_step(model.output.posterior, sites, 0.5)
        moved.append(eqx.tree_at(lambda m: m.output.posterior, model, posterior))
        total += value
    return tuple(moved), total

with computing():
    models = tuple(make_sparse_gp(n_inducing=100, seed=seed) for seed in (0, 1))
    batch = make_batch(n=1000)
    for i in range(30):
        models, total = step(models, batch, jax.random.key(i))
    assert jax.numpy.isfinite(total)
print("done")
"""


@pytest.mark.slow
def test_two_sparse_gps_in_one_program_never_wait_for_each_other():
    """30 steps of two models of two outputs each, on two cores, within two minutes.

    With batched factorisations (`each` as a `vmap`) this very program stands still at its first steps.
    """
    here = Path(__file__).parent
    paths = [str(here), str(here.parent / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", TWO_GPS]
    done = subprocess.run(command, env=environment, timeout=120, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr


def test_a_state_has_the_covariates_of_the_step_that_leaves_it_and_padding_has_none():
    h = jnp.array([[1.0, 0.5, 0.7, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0]]).T
    u = jnp.array([[3.0, 4.0, 5.0, 0.0, 0.0], [3.0, 4.0, 5.0, 6.0, 7.0]]).T[..., None]
    there = covariates_there(h, u)[..., 0]
    np.testing.assert_array_equal(there[:3, 0], [4.0, 5.0, 5.0])  # a short window, then padding
    np.testing.assert_array_equal(there[:, 1], [4.0, 5.0, 6.0, 7.0, 7.0])
