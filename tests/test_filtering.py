"""The belief recursion against an exact Kalman filter, and the items a series with gaps and holes is cut into."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import quick_jit, with_constant_noise
from scipy.optimize import minimize
from scipy.stats import multivariate_t

from wishflow.numerics.parameters import Positive
from wishflow.series import autoregressive as dynamics
from wishflow.series import gaussian_filter as filtering
from wishflow.series import windows as series
from wishflow.series.autoregressive import Start
from wishflow.series.batches import series_batch
from wishflow.series.layout import Layout
from wishflow.series.objectives import negative_transition_objective
from wishflow.series.running.autoregressive import AutoRegressiveRunner
from wishflow.series.specs import JOINT_ROWS, DynamicsSpec, chosen_lags, memory_of
from wishflow.series.windows import Series, bridged, cut, histories, rollouts, to_ticks
from wishflow.wishart.specs import NoDiffusion

DIM = 3
# Correlated noise of low rank: with Λ = diag(.3, .1, .7), correlations of .69, −.37 and −.14.
FACTOR = np.array([[0.9, 0.0], [0.6, 0.3], [-0.5, 0.6]])


def linear_model(lags=1, seed=0, n_covariates=0, white=None, factor=None, reversion=0.4, size=0.15, **options):
    """Linear drift and constant noise L Lᵀ + Λ (without a factor Λ alone): the belief recursion is exact."""
    rng = np.random.default_rng(seed)
    layout = Layout(DIM, lags, n_covariates)
    weights = size * rng.normal(size=(DIM, layout.n_lagged + n_covariates))
    weights[:, :DIM] -= reversion * np.eye(DIM)
    covariance = np.diag([0.3, 0.1, 0.7] if white is None else white)
    start = Start(*(jnp.asarray(x) for x in (weights, 0.1 * rng.normal(size=DIM), covariance)))
    spec = DynamicsSpec(drift="linear", diffusion=NoDiffusion(), lags=lags, **options)
    Z = rng.normal(size=(4, DIM + n_covariates))
    model = dynamics.build(spec, layout, start, Z, jax.random.key(0))
    if factor is None:
        return model, start
    correlated = eqx.tree_at(lambda s: s.covariance, start, start.covariance + factor @ factor.T)
    return with_constant_noise(model, factor), correlated


def kalman(start, lags, ticks, u, h):
    """Log likelihood of rows (T, D) with NaN by the textbook filter on the companion form; the first history known."""
    W, b, Q = (np.asarray(part) for part in (start.weights, start.constant, start.covariance))
    chosen, memory = chosen_lags(lags), memory_of(lags)
    size, n_lagged = DIM * memory, DIM * len(chosen)
    at = np.concatenate([np.arange(DIM) + DIM * (lag - 1) for lag in chosen])
    history = np.concatenate([ticks[memory - 1 - lag] for lag in range(memory)])
    m, P = np.nan_to_num(history), np.diag(np.isnan(history).astype(float))
    scores = []
    for t in range(memory, len(ticks)):
        A = np.eye(size, k=-DIM)
        A[:DIM] = np.eye(DIM, size)
        A[:DIM, at] += h[t] * W[:, :n_lagged]
        c = np.zeros(size)
        c[:DIM] = h[t] * (b + W[:, n_lagged:] @ u[t])
        m, P = A @ m + c, A @ P @ A.T
        P[:DIM, :DIM] += h[t] * Q
        seen = np.flatnonzero(~np.isnan(ticks[t]))
        score = 0.0
        if len(seen):
            S, r = P[np.ix_(seen, seen)], ticks[t][seen] - m[seen]
            K = P[:, seen] @ np.linalg.inv(S)
            score = -0.5 * (len(seen) * np.log(2 * np.pi) + np.linalg.slogdet(S)[1] + r @ np.linalg.solve(S, r))
            m, P = m + K @ r, P - K @ P[seen]
        scores.append(score)
    return np.array(scores)


def holes(rng, n, share):
    y = np.cumsum(rng.normal(size=(n, DIM)), 0) * 0.3
    y[rng.uniform(size=y.shape) < share] = np.nan
    return y


def filtered(model, y, u, h):
    """Log densities by the belief recursion, from a first history whose holes are at N(0, 1)."""
    p = model.layout.memory
    history = np.concatenate([y[p - 1 - lag] for lag in range(p)])[None]

    @quick_jit
    def run(model, history):
        variance = jnp.isnan(history).astype(float)
        belief = filtering.Belief.start(jnp.nan_to_num(history), variance, model.layout)
        rest = (h[p:, None], u[p:, None], np.nan_to_num(y[p:, None]), ~np.isnan(y[p:, None]))
        return filtering.run(jax.random.key(0), model.field.prepare(), belief, *(jnp.asarray(x) for x in rest))[1][1]

    return np.asarray(run(model, history))[:, 0, 0]


@pytest.mark.parametrize(
    "factor, lags, n_covariates",
    [(None, 1, 0), (None, 3, 2), (FACTOR, 1, 0), (FACTOR, 1, 2), (FACTOR, 3, 2), (FACTOR, (1, 2, 5), 1)],
    ids=["diagonal-1", "diagonal-3", "correlated-1", "correlated-1-u", "correlated-3", "correlated-chosen"],
)
def test_the_recursion_is_the_kalman_filter_where_that_is_exact(factor, lags, n_covariates):
    rng = np.random.default_rng(memory_of(lags))
    model, start = linear_model(lags, n_covariates=n_covariates, factor=factor)
    y, u, h = holes(rng, 25, 0.3), rng.normal(size=(25, n_covariates)), rng.uniform(0.2, 1.0, size=25)
    y[9] = np.nan  # a whole row
    np.testing.assert_allclose(filtered(model, y, u, h), kalman(start, lags, y, u, h), rtol=1e-9, atol=1e-11)


def cut_by_hand(times, y, u):
    """Rows with an entry and ⌈Δ⌉ − 1 empty ones before each, all steps of a gap equally long: y, u, h, and the rows.

    An empty row is no end of a step, but says what covariates were until then.
    """
    rows = np.flatnonzero(~np.isnan(y).all(1))
    found = [(y[rows[0]], u[rows[0]], 1.0, rows[0])]
    for last, row in itertools.pairwise(rows):
        n = math.ceil(times[row] - times[last])
        for k in range(1, n + 1):
            time = times[last] + k / n * (times[row] - times[last])
            at = next(i for i in range(last + 1, row + 1) if i == row or times[i] >= time)
            found.append((y[row] if k == n else np.full(DIM, np.nan), u[at], (times[row] - times[last]) / n, row))
    return tuple(np.array(part) for part in zip(*found, strict=True))


@pytest.mark.slow
def test_rows_at_irregular_times_score_as_in_the_kalman_filter(monkeypatch):
    """Correlated noise, gaps of .2 to 6 steps, 30 % holes, an empty row; ticks, items and scores as an estimator has
    them, row by row. Windows are long enough that each starts at a known row: elsewhere they start at N(0, 1)."""
    monkeypatch.setattr(series, "WINDOW", 160)
    rng = np.random.default_rng(11)
    model, start = linear_model(n_covariates=2, factor=FACTOR)
    gaps = np.where(rng.uniform(size=40) < 0.3, 1.0, rng.uniform(0.2, 6.0, size=40))
    times, y, u = np.cumsum(gaps), holes(rng, 40, 0.3), rng.normal(size=(40, 2))
    y[[0, 20, 21]], y[9] = rng.normal(size=(3, DIM)), np.nan
    found_ticks = to_ticks(Series(times, y, u), 1.0, 1, 24.0)
    found = AutoRegressiveRunner(model, None).row_log_density(found_ticks, 40, 0)

    by_hand, u_by_hand, h, row = cut_by_hand(times, y, u)
    assert np.isnan(by_hand).all(1).sum() > 40
    scores = kalman(start, 1, by_hand, u_by_hand, h)
    expected = np.full(40, np.nan)
    is_end = ~np.isnan(by_hand[1:]).all(1)
    expected[row[1:][is_end]] = scores[is_end]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    (ticks,) = found_ticks
    np.testing.assert_allclose(filtered(model, ticks.y, ticks.u, ticks.h), scores, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    "lags, n_joint, error",
    [((1, 2, 6), 2, 0.04), ((1, 2, 6), 4, 0.004), (8, 2, 0.02)],
    ids=["chosen-2", "chosen-4", "eight"],
)
def test_lags_beyond_the_joint_rows(monkeypatch, lags, n_joint, error):
    """Exact while what is older than the joint rows is complete, else near the Kalman filter; of eight lags in a row
    six are joint whatever their size."""
    monkeypatch.setattr(filtering, "JOINT_SIZE", n_joint * DIM)
    n, memory = 400, memory_of(lags)
    model, start = linear_model(lags, size=0.15 if memory == 6 else 0.06)
    rng = np.random.default_rng(6)
    W, b, Q = (np.asarray(x) for x in (start.weights, start.constant, start.covariance))
    y = np.zeros((n, DIM))
    back = np.array(chosen_lags(lags))
    for t in range(memory, n):
        y[t] = y[t - 1] + W @ y[t - back].ravel() + b + rng.normal(size=DIM) * np.sqrt(np.diagonal(Q))
    steps = (np.zeros((n, 0)), np.ones(n))
    late = y.copy()
    late[-5:][rng.uniform(size=(5, DIM)) < 0.5] = np.nan
    np.testing.assert_allclose(filtered(model, late, *steps), kalman(start, lags, late, *steps), rtol=1e-9, atol=1e-11)
    y[rng.uniform(size=y.shape) < 0.2] = np.nan
    found, exact = filtered(model, y, *steps), kalman(start, lags, y, *steps)
    assert 1e-6 < np.abs(found - exact).mean() < error
    assert abs((found - exact).mean()) < 0.2 * error


def test_student_t_noise_is_scored_on_the_entries_that_are_there():
    """After one step from a known state: scipy's density of the block that was seen, and none where nothing was."""
    model, start = linear_model(innovations="student_t")
    x, y = np.array([[0.3, -0.2, 0.1]]), np.array([[0.9, -2.0, 0.4]])
    kappa, mean = dynamics.TAIL_DOF, x[0] + 0.5 * (start.weights @ x[0] + start.constant)
    B = 0.5 * np.asarray(start.covariance)

    @quick_jit
    def score(model, is_seen):
        belief = filtering.Belief.start(jnp.asarray(x), jnp.zeros((1, DIM)), model.layout)
        step = (jnp.full((1, 1), 0.5), jnp.zeros((1, 1, 0)), jnp.asarray(y)[None], is_seen[None])
        return filtering.run(jax.random.key(0), model.field.prepare(), belief, *step)[1][1][0, 0, 0]

    for seen in ([True] * 3, [True, False, True], [False] * 3):
        at = np.flatnonzero(seen)
        law = multivariate_t(mean[at], (kappa - 2) / kappa * B[np.ix_(at, at)], kappa) if len(at) else None
        expected = 0.0 if law is None else law.logpdf(y[0, at])
        assert float(score(model, jnp.asarray([seen]))) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("lags", [1, 3, (1, 2, 24)])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3])
def test_every_row_is_scored_once(lags, share):
    """Transitions and windows together: each row with an entry and a past, but for the burn-in of unknown starts."""
    rng = np.random.default_rng(0)
    y = holes(rng, 400, share)
    ticks = to_ticks(Series(np.arange(400.0), y, np.zeros((400, 0))), 1.0, lags, 24.0)
    transitions, windows = cut(ticks, lags)
    n_rows = sum((~np.isnan(part.y).all(1)).sum() for part in ticks)
    lost = n_rows - len(transitions) - windows.is_scored.sum()
    assert memory_of(lags) <= lost <= memory_of(lags) + 5
    assert (len(windows) == 0) == (share == 0.0)


def test_the_objective_of_items_is_the_log_likelihood_of_the_kalman_filter():
    """Two routes: transitions and windows summed, and one filter over the whole series (few holes, known starts)."""
    rng = np.random.default_rng(3)
    model, start = linear_model()
    y = holes(rng, 200, 0.0)
    for t in (20, 21, 60, 150):
        y[t, rng.integers(DIM)] = np.nan
    transitions, windows = cut(to_ticks(Series(np.arange(200.0), y, np.zeros((200, 0))), 1.0, 1, 24.0), 1)
    loss = quick_jit(lambda m, b: negative_transition_objective(m, b, jax.random.key(0))[1]["fit"])
    found = loss(model, series_batch(transitions, windows))
    expected = kalman(start, 1, y, np.zeros((200, 0)), np.ones(200)).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("n_ticks", [2, 5, 7, 12, 20])
def test_rows_far_apart_are_scored_from_the_row_before_them(n_ticks):
    """Of complete rows `n_ticks` Euler steps apart each is given the one before it, however many ticks lie between."""
    rng = np.random.default_rng(6)
    model, start = linear_model()
    rows = holes(rng, 30, 0.0)
    y = np.full((29 * n_ticks + 1, DIM), np.nan)
    y[::n_ticks] = rows
    step = 1.0 / n_ticks
    ticks = to_ticks(Series(np.arange(30.0), rows, np.zeros((30, 0))), step, 1, 24.0)
    transitions, windows = cut(ticks, 1)
    assert not len(transitions) and windows.is_scored.sum() == 29 and (windows.start[:, :DIM] != 0).all()
    loss = quick_jit(lambda m, b: negative_transition_objective(m, b, jax.random.key(0))[1]["fit"])
    found = loss(model, series_batch(None, windows))
    expected = kalman(start, 1, y, np.zeros((len(y), 0)), np.full(len(y), step)).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("step", [0.5, 0.2])
def test_every_row_is_scored_once_whatever_the_step(step, share):
    y = holes(np.random.default_rng(0), 300, share)
    transitions, windows = cut(to_ticks(Series(np.arange(300.0), y, np.zeros((300, 0))), step, 1, 24.0), 1)
    rows = windows.row[windows.is_scored]
    assert len(np.unique(rows)) == len(rows) and not len(transitions)
    assert 1 <= (~np.isnan(y).all(1)).sum() - len(rows) <= 6


def test_a_missing_row_costs_what_a_dropped_row_costs():
    rng = np.random.default_rng(4)
    model, _ = linear_model()
    y = holes(rng, 60, 0.05)
    y[[17, 33, 34]] = np.nan
    keep = ~np.isnan(y).all(1)
    loss = quick_jit(lambda m, b: negative_transition_objective(m, b, jax.random.key(0))[0])
    gradient = quick_jit(jax.grad(lambda m, b: negative_transition_objective(m, b, jax.random.key(0))[0]))

    def batch(times, values):
        return series_batch(*cut(to_ticks(Series(times, values, np.zeros((len(values), 0))), 1.0, 1, 24.0), 1))

    whole, dropped = batch(np.arange(60.0), y), batch(np.arange(60.0)[keep], y[keep])
    np.testing.assert_allclose(loss(model, whole), loss(model, dropped), rtol=1e-12)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient(model, whole)))


def test_inputs_are_the_rows_at_the_lags():
    y = np.arange(30.0)[:, None] * [1.0, -1.0]
    transitions, windows = cut(
        to_ticks(Series(np.arange(30.0), y, np.zeros((30, 0))), 1.0, (1, 2, 24), 24.0), (1, 2, 24)
    )
    assert not len(windows)
    np.testing.assert_array_equal(transitions.row, np.arange(24, 30))
    np.testing.assert_array_equal(transitions.X[:, ::2], transitions.row[:, None] - [1, 2, 24])
    np.testing.assert_array_equal(transitions.X[:, 1::2], -transitions.X[:, ::2])


def test_holes_of_a_long_memory_are_those_of_a_random_walk():
    """Means and variances of `bridged` against the joint Gaussian of a random walk with a wide start."""
    rng = np.random.default_rng(8)
    rows = 0.1 * np.cumsum(rng.normal(size=(1, 9, 1)), axis=1)
    rows[0, [0, 1, 4, 5, 8], 0] = np.nan
    at = np.flatnonzero(~np.isnan(rows[0, :, 0]))
    rate = (np.diff(rows[0, at, 0]) ** 2).sum() / (at[-1] - at[0])
    K = 1e5 + rate * np.minimum.outer(np.arange(9), np.arange(9))
    gain = np.linalg.solve(K[np.ix_(at, at)], K[at]).T
    mean, variance = bridged(rows)
    np.testing.assert_allclose(mean[0, :, 0], gain @ rows[0, at, 0], rtol=1e-4)
    np.testing.assert_allclose(variance[0, :, 0], np.diagonal(K - gain @ K[at]), atol=1e-4 * rate + 1e-6)


def test_columns_without_entries_are_not_known():
    mean, variance = bridged(np.array([[[np.nan, np.nan], [np.nan, 3.0], [np.nan, np.nan]]]))
    np.testing.assert_array_equal(mean[0], [[0, 3], [0, 3], [0, 3]])
    np.testing.assert_array_equal(variance[0], [[1, 1], [1, 0], [1, 1]])


def test_a_memory_is_filled_from_what_came_before():
    """Holes next to the present are at N(0, 1), older ones on a line between their neighbours, the future unseen."""
    y = 0.1 * np.arange(10.0)[:, None]
    y[[3, 6, 7]] = np.nan
    values, variance = histories(y, np.array([7, 8]), (1, 2, 6))
    np.testing.assert_allclose(values, [[0, 0, 0.5, 0.4, 0.3, 0.2], [0.8, 0, 0.6, 0.5, 0.4, 0.4]], atol=1e-12)
    assert (variance[:, :2] == [[1, 1], [0, 1]]).all()
    np.testing.assert_array_equal(variance[:, 2:] > 0, [[0, 0, 1, 0], [1, 0, 0, 1]])
    later = y.copy()
    later[8:] = 9.0
    np.testing.assert_array_equal(histories(later, np.array([7]), (1, 2, 6)), histories(y, np.array([7]), (1, 2, 6)))


def test_of_many_lags_the_first_are_at_the_prior_and_the_others_filled():
    """As many are at N(0, 1) as a window forgets before it is scored."""
    assert JOINT_ROWS == series.BURN_IN + 1
    y = 0.1 * np.arange(10.0)[:, None]
    y[[2, 4, 7]] = np.nan
    values, variance = histories(y, np.array([8]), 8)
    np.testing.assert_allclose(values, [[0.8, 0, 0.6, 0.5, 0, 0.3, 0.2, 0.1]], atol=1e-12)
    np.testing.assert_array_equal(variance[0, [0, 1, 2, 3, 4, 5, 7]], [0, 1, 0, 0, 1, 0, 0])
    assert 0.0 < variance[0, 6] < 0.1


def test_a_long_gap_cuts_the_series_and_a_short_one_is_cut_into_steps():
    times = np.array([0.0, 1.0, 3.5, 30.0, 31.0])
    ticks = to_ticks(Series(times, np.ones((5, 1)), np.zeros((5, 0))), 1.0, 1, 24.0)
    assert [len(part.h) for part in ticks] == [5, 2]
    np.testing.assert_allclose(ticks[0].h, [1.0, 1.0, 2.5 / 3, 2.5 / 3, 2.5 / 3])
    np.testing.assert_array_equal(ticks[0].row, [0, 1, -1, -1, 2])


# --- the maximum of the objective ------------------------------------------------------------------


def incomplete(start, kind, n_rows, seed):
    """Items of n rows of the linear SDE: with 20 % missing entries, or with gaps of 2–5 steps between complete rows."""
    rng = np.random.default_rng(seed)
    W, b, Q = (np.asarray(x) for x in (start.weights, start.constant, start.covariance))
    times = np.arange(n_rows) if kind == "holes" else np.cumsum(rng.integers(2, 6, size=n_rows))
    x = np.zeros((times[-1] + 1, DIM))
    noise = rng.normal(size=x.shape) @ np.linalg.cholesky(Q).T
    for t in range(1, len(x)):
        x[t] = x[t - 1] + W @ x[t - 1] + b + noise[t]
    y = x[times]
    if kind == "holes":
        y[rng.uniform(size=y.shape) < 0.2] = np.nan
    return series_batch(*cut(to_ticks(Series(times.astype(float), y, np.zeros((n_rows, 0))), 1.0, 1, 24.0), 1))


def best_covariance(model, batch, jit):
    """Σ at the maximum of the objective over all entries of its Cholesky factor, from Σ = I; drift as it is."""
    at = np.tril_indices(DIM)

    def loss(entries, batch):
        factor = jnp.zeros((DIM, DIM)).at[at].set(entries)
        white = Positive.of(np.full(DIM, 1e-7))
        changed = eqx.tree_at(lambda m: (m.field.noise.factor, m.field.white.base), model, (factor, white))
        return -negative_transition_objective(changed, batch, jax.random.key(0))[1]["fit"]

    both = jit(jax.value_and_grad(loss))

    def scaled(entries):
        value, gradient = both(entries, batch)
        return float(value) / 1000.0, np.asarray(gradient) / 1000.0

    found = minimize(scaled, np.eye(DIM)[at], jac=True, method="L-BFGS-B")
    assert found.success, found.message
    factor = np.zeros((DIM, DIM))
    factor[at] = found.x
    return factor @ factor.T


def noise_error(kind, n_rows, jit=quick_jit):
    """‖Σ̂ − Σ‖/‖Σ‖ (Frobenius) for correlated noise and a drift that pulls little."""
    model, start = linear_model(factor=FACTOR, reversion=0.2)
    found = best_covariance(model, incomplete(start, kind, n_rows, seed=5), jit)
    return np.linalg.norm(found - start.covariance) / np.linalg.norm(start.covariance)


@pytest.mark.slow
@pytest.mark.parametrize("kind, n_rows, error", [("holes", 2000, 0.06), ("gaps", 600, 0.1)])
def test_the_maximum_is_at_the_true_noise(kind, n_rows, error):
    """Within two sampling errors of so few rows; the slow test below has more."""
    assert noise_error(kind, n_rows) < error


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["holes", "gaps"])
def test_the_maximum_over_many_rows_is_within_three_per_cent_of_the_true_noise(kind):
    assert noise_error(kind, 12_000, jax.jit) < 0.03


@pytest.mark.parametrize("kind, n_rows, error", [("holes", 2000, 0.1), ("gaps", 200, 0.5)])
def test_the_maximum_is_elsewhere_where_a_prediction_counts_as_seen(kind, n_rows, error, monkeypatch):
    """The naive way, which the tests above must be able to tell: unseen entries are known to be where predicted."""

    def update(belief, y, is_seen):
        return filtering.Belief(jnp.where(is_seen, y, belief.mean), jnp.zeros_like(belief.covariance))

    monkeypatch.setattr(filtering, "update", update)
    assert noise_error(kind, n_rows) > error


@pytest.mark.parametrize("gap", [20.0, 3.0])
def test_free_simulations_score_every_row_however_long_the_gap_before_it(gap):
    times = np.concatenate([np.arange(20.0), 19.0 + gap + np.arange(20.0)])
    ticks = to_ticks(Series(times, np.ones((40, 2)), np.zeros((40, 0))), 1.0, 1, 24.0)
    windows = rollouts(ticks, 1, 8)
    assert set(windows.row[windows.is_scored]) == set(range(1, 40))
    assert windows.is_scored.any(axis=1).all()
