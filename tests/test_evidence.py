"""What is called a bound lies below the log evidence, found another way; what does not is not called one.

The collapsed bound of the sparse GP has its place in `agreement/test_exact_gp.py`.
"""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from factories import DIFFUSIONS, make_batch, make_flow, quick_jit
from scipy.special import logsumexp

from wishflow import kernels, likelihoods
from wishflow.callbacks import CallbackList
from wishflow.inducing import InducingBasis, SparseGP
from wishflow.inducing.natural import damped_step
from wishflow.kernels import RBF
from wishflow.likelihoods import Bernoulli, Categorical, Poisson, StudentT
from wishflow.numerics.parameters import LowerTriangular, Positive
from wishflow.regression import objectives as row_objectives
from wishflow.regression.batches import Batch
from wishflow.regression.objectives import negative_objective
from wishflow.regression.presets import fast_preset, paper_preset
from wishflow.regression.sparse_gp import SparseGPModel
from wishflow.regression.specs import FlowSpec, SparseGPSpec
from wishflow.series import objectives as series_objectives
from wishflow.series.autoregressive import Start, build
from wishflow.series.batches import series_batch
from wishflow.series.layout import Layout
from wishflow.series.objectives import negative_transition_objective
from wishflow.series.presets import fast_series_preset
from wishflow.series.specs import DynamicsSpec, Latent
from wishflow.series.training import SeriesProblem, phase_of
from wishflow.series.windows import Series, scored_items, to_ticks
from wishflow.training.journal import Journal
from wishflow.wishart.specs import Wishart


def log_mean(log_values):
    """The log of a mean of draws, and its standard error (delta method)."""
    log_values = np.asarray(log_values)
    top = log_values.max()
    values = np.exp(log_values - top)
    return top + np.log(values.mean()), values.std(ddof=1) / values.mean() / np.sqrt(len(values))


def batch_of(X, y):
    return Batch(jnp.asarray(X), jnp.asarray(y), jnp.ones(len(X)), jnp.asarray(float(len(X))))


# --- sparse GPs with likelihoods that are not Gaussian -------------------------------------------

CASES = {
    "bernoulli": (Bernoulli(), [[1.0], [1.0], [0.0]]),
    "student_t": (StudentT(scale=0.5, dof=4.0), [[1.5], [1.2], [-2.0]]),
    "poisson": (Poisson(), [[3.0], [4.0], [0.0]]),
}
X_THREE = np.array([[0.0], [0.6], [1.5]])


def sparse_gp(likelihood, X, Z, n_outputs=1):
    basis = InducingBasis.of(kernels.build(RBF(variance=1.5, lengthscale=1.0), 1), jnp.asarray(Z), 1e-10)
    model = likelihoods.build(likelihood, n_outputs)
    return SparseGPModel(SparseGP.prior(basis, model.n_latent), model)


def evidence_by_quadrature(model, batch, n_nodes=40):
    """log ∫ N(g; 0, K) Π p(y_i | g_i) dg over the latent values of all rows, by a product of Gauss–Hermite rules."""
    n, n_latent = len(batch.X), model.likelihood.n_latent
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    axes = np.meshgrid(*[np.arange(n_nodes)] * (n * n_latent), indexing="ij")
    index = np.stack([axis.ravel() for axis in axes], -1)
    log_weights = (np.log(weights) - 0.5 * np.log(2.0 * np.pi))[index].sum(-1)
    root = np.linalg.cholesky(np.asarray(model.output.basis.kernel.matrix(batch.X, batch.X)) + 1e-10 * np.eye(n))
    g = np.einsum("ij,sjp->sip", root, nodes[index].reshape(-1, n, n_latent))
    log_density = np.asarray(model.likelihood.log_density(batch.y, jnp.asarray(g))).sum(-1)
    return float(logsumexp(log_weights + log_density))


@functools.partial(quick_jit, static_argnames="n_steps")
def climbed(model, batch, key, n_steps=60):
    """The model after natural-gradient steps on q."""

    def body(_, model):
        sites = negative_objective(model, batch, key, has_sites=True)[1][1]
        return eqx.tree_at(lambda m: m.output.posterior, model, damped_step(model.output.posterior, sites, 0.5))

    return jax.lax.fori_loop(0, n_steps, body, model)


@quick_jit
def objective_of_rows(model, batch, key):
    return -negative_objective(model, batch, key)[0]


@pytest.mark.parametrize("name", CASES)
def test_the_bound_of_a_sparse_gp_is_below_the_evidence_and_close_at_its_best_q(name, key):
    """Three rows, Z at the rows: at the best q a fraction of a nat is lost, at any other q more."""
    likelihood, y = CASES[name]
    batch = batch_of(X_THREE, y)
    start = sparse_gp(likelihood, X_THREE, X_THREE)
    exact = evidence_by_quadrature(start, batch)
    best = climbed(start, batch, key)
    at_best = float(objective_of_rows(best, batch, key))
    assert exact - 0.3 < at_best < exact
    rng = np.random.default_rng(0)
    for _ in range(5):
        mean = best.output.posterior.mean + rng.normal(size=(1, 3))
        sqrt = np.tril(0.3 * rng.normal(size=(1, 3, 3)), -1) + np.exp(0.5 * rng.normal(size=(1, 3, 1))) * np.eye(3)
        q = eqx.tree_at(
            lambda p: (p.mean, p.sqrt), best.output.posterior, (mean, LowerTriangular.of(jnp.asarray(sqrt)))
        )
        assert float(objective_of_rows(eqx.tree_at(lambda m: m.output.posterior, best, q), batch, key)) < at_best


def test_the_bound_of_a_classifier_is_below_the_evidence_in_the_mean_over_draws(key):
    """Two rows of three classes; the expectation over g is a mean of few draws."""
    X = X_THREE[:2]
    batch = batch_of(X, [[0.0], [2.0]])
    start = sparse_gp(Categorical(n_classes=3), X, X)
    exact = evidence_by_quadrature(start, batch, 8)
    assert abs(exact - evidence_by_quadrature(start, batch, 7)) < 1e-3
    best = climbed(start, batch, key)
    keys = jax.random.split(key, 4000)
    values = np.asarray(quick_jit(jax.vmap(lambda k: -negative_objective(best, batch, k)[0]))(keys))
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert exact - 0.5 < values.mean() < exact and error < 0.02


# --- flows: one draw of J(·) for all steps, or one step ------------------------------------------


def flow_of_J_alone(sampling, n_steps, batch):
    """A flow whose drift is zero and has no penalty: J is the only random function of its field.

    Much noise of the observations, a short flow, and inducing points of the output at the rows: the objective is loose
    by less than its penalties.
    """
    model = make_flow("wishart-shared-white", sampling=sampling, n_steps=n_steps)
    model = dataclasses.replace(model, flow_time=0.3)
    model = eqx.tree_at(lambda m: m.field.gp.mean, model, replace_fn=jnp.zeros_like)
    Z = np.concatenate([batch.X, np.asarray(model.output.basis.Z)[len(batch.X) :]])
    changed = (jnp.asarray(Z), Positive.of(np.ones(2)))
    return eqx.tree_at(lambda m: (m.output.basis.Z, m.likelihood.noise), model, changed)


def at_prior(posterior):
    """q(v) = p(v)."""
    return type(posterior).prior(*posterior.mean.shape)


def evidence_of_flow(model, batch, key, n_draws=1000, n_rounds=4):
    """log E N(y; 0, K(x_T, x_T) + σ²) over draws from the prior of J and of the Brownian motion, J(·) for all rows."""
    prior = eqx.tree_at(lambda m: m.field.noise.posterior, model, at_prior(model.field.noise.posterior))
    noise, y = np.asarray(model.likelihood.variance), np.asarray(batch.y)

    @quick_jit
    def kernels_there(key):
        x = prior.carry_samples(batch.X, key, n_draws).reshape(n_draws, *batch.X.shape)
        return jax.vmap(lambda x: model.output.basis.kernel.matrix(x, x))(x)

    K = np.concatenate([kernels_there(k) for k in jax.random.split(key, n_rounds)])
    found = np.zeros(len(K))
    for p, variance in enumerate(noise):
        covariance = K + variance * np.eye(len(y))
        quadratic = np.einsum("i,sij,j->s", y[:, p], np.linalg.inv(covariance), y[:, p])
        found -= 0.5 * (quadratic + np.linalg.slogdet(2.0 * np.pi * covariance)[1])
    return log_mean(found)


@quick_jit
def with_best_output(model, batch, key):
    """The model with the best q of its output for 200 paths of each row: one natural-gradient step."""
    sites = negative_objective(model, batch, key, n_samples=200, has_sites=True)[1][1]
    return eqx.tree_at(lambda m: m.output.posterior, model, damped_step(model.output.posterior, sites, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampling", "n_steps"),
    [("pathwise", 3), pytest.param("pathwise", 1, marks=pytest.mark.long), ("marginal", 1)],
)
def test_the_objective_of_a_flow_of_J_alone_is_below_the_evidence(sampling, n_steps, key):
    """The mean of logs, at a q of J away from its prior and the best q of g."""
    batch = make_batch(n=3)
    evidence, error = evidence_of_flow(flow_of_J_alone("pathwise", n_steps, batch), batch, jax.random.fold_in(key, 1))
    model = with_best_output(flow_of_J_alone(sampling, n_steps, batch), batch, key)
    parts = quick_jit(lambda k: negative_objective(model, batch, k, n_samples=100)[1][0])
    values = [parts(k) for k in jax.random.split(jax.random.fold_in(key, 2), 20)]
    fit = np.array([float(value["fit"]) for value in values])
    output, diffusion = (float(values[0][name]) for name in ("kl_output", "kl_diffusion"))
    margin = 4.0 * np.hypot(error, fit.std(ddof=1) / np.sqrt(len(fit)))
    assert margin < 0.1 and diffusion > 0.1 and float(values[0]["kl_drift"]) == 0.0
    assert evidence - 4.0 < fit.mean() - output - diffusion < evidence + margin
    assert fit.mean() > evidence + margin  # it is the penalties that keep the number below


# --- series: one step from row to row ------------------------------------------------------------


def series(n_rows, spread, lengthscale, drift="linear", rank=2, white=None):
    """A series of which each step is a transition, and its model, with q of J at its prior and Z at the rows."""
    rng = np.random.default_rng(1)
    scales = np.where(np.arange(n_rows - 1) % 2 == 0, spread, 1.0)[:, None]
    y = np.concatenate([np.zeros((1, rank)), np.cumsum(scales * rng.normal(size=(n_rows - 1, rank)), 0)])
    diffusion = Wishart(rank=rank, dof=rank, unit_rows=False, posterior="full", columns="independent")
    spec = DynamicsSpec(kernel=RBF(variance=1.0, lengthscale=lengthscale), drift=drift, diffusion=diffusion)
    ticks = to_ticks(Series(np.arange(float(n_rows)), y, np.zeros((n_rows, 0))), 1.0, 1, 24.0)
    start = Start(-0.1 * np.eye(rank), np.zeros(rank), np.eye(rank))
    model = build(spec, Layout(rank, 1, 0), start, y[:4], jax.random.key(0))
    model = eqx.tree_at(lambda m: m.field.noise.posterior, model, at_prior(model.field.noise.posterior))
    if white is not None:
        model = eqx.tree_at(lambda m: m.field.white.base, model, Positive.of(np.full(rank, white)))
    return spec, model, scored_items(ticks, spec)


@functools.partial(quick_jit, static_argnames=("n_samples", "average"))
def series_parts(model, batch, key, n_samples, average):
    return negative_transition_objective(model, batch, key, n_samples=n_samples, average=average)[1]


def evidence_of_series(model, transitions, n_draws=50_000):
    """log E Π N(increment; μ, L J Jᵀ Lᵀ + Λ) over draws of J from its prior, at all rows at once."""
    field, X, rng = model.field, jnp.asarray(transitions.X), np.random.default_rng(0)
    K, L = np.asarray(field.basis.kernel.matrix(X, X)), np.asarray(field.noise.scale.value)
    root = np.linalg.cholesky(K + 1e-10 * np.eye(len(X)))
    J = np.einsum("ij,sjrv->sirv", root, rng.normal(size=(n_draws, len(X), L.shape[1], field.noise.dof)))
    F = np.einsum("dr,sirv->sidv", L, J)
    covariance = F @ F.swapaxes(-1, -2) + np.diag(np.asarray(field.white.base.value))
    residual = transitions.increment - np.asarray(field.linear(X))
    quadratic = np.einsum("id,side,ie->si", residual, np.linalg.inv(covariance), residual)
    return log_mean(-0.5 * np.sum(quadratic + np.linalg.slogdet(2.0 * np.pi * covariance)[1], 1))


@quick_jit
def with_best_J(model, batch, key, c):
    """The model after steps of Adam on q of J, with the weight c of its penalty."""
    optimiser = optax.adam(0.05)

    def at(q):
        return eqx.tree_at(lambda m: m.field.noise.posterior, model, q)

    def body(_, carry):
        q, state = carry
        loss = functools.partial(negative_transition_objective, batch=batch, key=key, kl_weight=c, n_samples=50)
        updates, state = optimiser.update(jax.grad(lambda q: loss(at(q))[0])(q), state)
        return optax.apply_updates(q, updates), state

    q = model.field.noise.posterior
    return at(jax.lax.fori_loop(0, 200, body, (q, optimiser.init(q)))[0])


@pytest.mark.slow
def test_the_bound_of_a_series_is_below_the_evidence(key):
    """Linear drift, four transitions, the mean of logs, at a q that has climbed it; what is climbed in warm-up (here
    c = 0) is no bound.
    """
    _, start, (transitions, windows) = series(5, 1.0, 2.0, white=0.2)
    assert not windows.is_scored.any()
    evidence, error = evidence_of_series(start, transitions)
    batch, fit, bound = series_batch(transitions, None), {}, {}
    for c in (1.0, 0.0):
        model = with_best_J(start, batch, key, jnp.asarray(c))
        parts = series_parts(model, batch, jax.random.fold_in(key, 1), 20_000, "log")
        fit[c], bound[c] = float(parts["fit"]), float(parts["fit"] - parts["kl_diffusion"])
    assert error < 0.02
    assert evidence - 1.0 < bound[1.0] < evidence - 0.1
    assert bound[0.0] < evidence and fit[0.0] > evidence + 1.0


# --- the predictive objective is no bound --------------------------------------------------------


def evidence_of_constant_J(model, increments):
    """log ∫ N(J; 0, k) Π N(y_i; 0, L² J² + Λ) dJ on a fine grid."""
    k, white = float(model.field.basis.kernel.variance.value), float(model.field.white.base.value[0])
    scale = float(model.field.noise.scale.value[0, 0])
    J = np.linspace(-8.0 * np.sqrt(k), 8.0 * np.sqrt(k), 40_001)
    variances = scale**2 * J**2 + white
    log_prior = -0.5 * J**2 / k - 0.5 * np.log(2.0 * np.pi * k)
    log_fit = -0.5 * np.sum(np.log(2.0 * np.pi * variances)[:, None] + increments**2 / variances[:, None], 1)
    return float(logsumexp(log_prior + log_fit) + np.log(J[1] - J[0]))


def test_the_predictive_objective_of_one_J_and_two_scales_is_above_the_evidence(key):
    """A kernel so long that J is constant, increments of scales 0.1 and 1 in turn. The mean over draws is taken row by
    row, so q of the one J need not contract: each row finds the J it likes.
    """
    spec, model, (transitions, windows) = series(101, 0.1, 1e4, drift="none", rank=1)
    evidence = evidence_of_constant_J(model, transitions.increment[:, 0])
    batch = series_batch(transitions, windows)
    found = {}
    for average in ("log", "density"):
        parts = series_parts(model, batch, key, 2000, average)
        found[average] = float(parts["fit"] - parts["kl_diffusion"])
    assert found["log"] < evidence < found["density"] - 10.0
    training = dataclasses.replace(fast_series_preset(100, 1), n_train_samples=32)
    for average in found:
        problem = series_phase(spec, dataclasses.replace(training, path_average=average), transitions, windows)
        assert problem.is_bound == (average == "log")


def series_phase(spec, training, transitions, windows):
    return phase_of(SeriesProblem(spec, training, Layout(1, 1, 0), transitions, windows, None, None, 0))


# --- the rule ------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", [Bernoulli(), StudentT(), Poisson(), Categorical()])
def test_every_sparse_gp_has_a_bound(likelihood):
    for preset in (fast_preset, paper_preset):
        assert row_objectives.is_bound(SparseGPSpec(likelihood=likelihood), preset(1000, 3))


@pytest.mark.parametrize("name", DIFFUSIONS)
def test_no_flow_with_a_point_drift_has_a_bound(name):
    training = paper_preset(1000, 3)
    for sampling in ("marginal", "pathwise"):
        spec = FlowSpec(diffusion=DIFFUSIONS[name], sampling=sampling, n_steps=1)
        assert not row_objectives.is_bound(spec, training)


def test_with_a_drift_that_is_integrated_out_the_rule_asks_for_one_field_and_logs(monkeypatch):
    """What `test_the_objective_of_a_flow_of_J_alone_is_below_the_evidence` shows, and nothing else."""
    monkeypatch.setattr(row_objectives, "has_point_drift", lambda diffusion, posterior: False)
    logs = paper_preset(1000, 3)
    densities = dataclasses.replace(logs, path_average="density")
    one_path = dataclasses.replace(densities, n_train_samples=1)
    rule = row_objectives.is_bound
    assert logs.n_train_samples > 1 and logs.path_average == "log"
    for sampling, n_steps, expected in (("pathwise", 3, True), ("marginal", 1, True), ("marginal", 3, False)):
        spec = FlowSpec(diffusion=Wishart(), sampling=sampling, n_steps=n_steps)
        assert rule(spec, logs) == rule(spec, one_path) == expected
        assert not rule(spec, densities)
    assert not rule(FlowSpec(diffusion=DIFFUSIONS["gp"], n_steps=1), logs)


LOGS = dataclasses.replace(fast_series_preset(1000, 2), path_average="log")
PROPER = DynamicsSpec(drift="linear")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"drift": "none"}, True),
        ({"innovations": "student_t"}, True),
        ({"lags": 3}, True),
        ({"drift": "linear+gp"}, False),
        ({"drift": "gp"}, False),
        ({"white_noise": "state"}, False),
        ({"objective": "rollout"}, False),
        ({"latent": Latent(2)}, False),
        ({"diffusion": DIFFUSIONS["gp"]}, False),
        ({"diffusion": DIFFUSIONS["diagonal"]}, True),
    ],
    ids=str,
)
def test_which_series_have_a_bound(changes, expected):
    spec = dataclasses.replace(PROPER, **changes)
    assert series_objectives.is_bound(spec, LOGS, has_windows=False) == expected
    assert not series_objectives.is_bound(spec, LOGS, has_windows=True)
    densities = dataclasses.replace(LOGS, path_average="density")
    has_J = isinstance(spec.diffusion, Wishart)
    assert series_objectives.is_bound(spec, densities, has_windows=False) == (expected and not has_J)


def test_the_history_has_a_bound_where_a_phase_says_so():
    for is_bound in (True, False):
        journal = Journal(CallbackList())
        records = {"objective": np.array([-2.0, -1.0]), "noise": np.ones(2)}
        journal.add("fit", 2, 2, records, 2, is_bound)
        (trained,) = journal.trained({"x": np.zeros(1)}, ["done"], [None])
        assert trained.history["objective"].tolist() == [-2.0, -1.0]
        assert ("bound" in trained.history) == is_bound
        if is_bound:
            assert trained.history["bound"].tolist() == [-2.0, -1.0]
