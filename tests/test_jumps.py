"""Noise with jumps: its law, where it is used, and what it changes."""

import itertools
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from factories import with_constant_noise
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal, norm

import wishflow as wf
from wishflow.errors import OptionError
from wishflow.metrics import crps_samples
from wishflow.numerics.devices import computing, on_device
from wishflow.numerics.tails import Jumps, elliptical_log_density, tail_draw, tail_variance
from wishflow.series import autoregressive as dynamics
from wishflow.series.autoregressive import Start
from wishflow.series.jumps_ahead import patterns_of
from wishflow.series.layout import Layout
from wishflow.series.running.autoregressive import AutoRegressiveRunner
from wishflow.series.running.censored import log_density
from wishflow.series.specs import DynamicsSpec
from wishflow.series.tails_of_steps import Steps, best_jumps, kept_law, with_law
from wishflow.series.windows import Ticks
from wishflow.wishart.specs import NoDiffusion

QUICK = {"n_inducing": 8, "max_iter": 20, "rank": 1, "n_train_samples": 2, "lags": 1, "calendar": False}
B = np.array([[1.0, 0.6], [0.6, 2.0]])
SHARE, WIDTH = 0.05, 5.0
NARROW = 1.0 / (1.0 - SHARE + SHARE * WIDTH**2)
PARTS = ((1.0 - SHARE, NARROW), (SHARE, NARROW * WIDTH**2))


@pytest.fixture
def jumps():
    return Jumps(jnp.asarray(SHARE), jnp.asarray(WIDTH))


def walk(n, share, seed=0, width=WIDTH):
    """An auto-regression some of whose steps are wide, and the log density of each step."""
    rng = np.random.default_rng(seed)
    sd = np.where(rng.uniform(size=n) < share, width, 1.0)
    noise, x = sd * rng.normal(size=n), np.zeros(n)
    for t in range(1, n):
        x[t] = 0.8 * x[t - 1] + noise[t]
    return pd.Series(x), np.log((1.0 - share) * norm.pdf(noise) + share * norm.pdf(noise, scale=width))


@pytest.fixture(scope="module")
def jumping():
    y, truth = walk(2500, SHARE)
    return wf.WishartForecaster(**QUICK).fit(y.iloc[:1500]), y, truth


# --- the law -----------------------------------------------------------------------------------------


def test_densities_are_those_of_two_normal_laws(jumps):
    r = np.random.default_rng(0).normal(size=(20, 2)) * 3.0
    squares = np.einsum("ni,ij,nj->n", r, np.linalg.inv(B), r)
    found = elliptical_log_density(jnp.asarray(squares), jnp.asarray(np.linalg.slogdet(B)[1]), 2, jumps)
    expected = np.log(sum(p * multivariate_normal(np.zeros(2), s * B).pdf(r) for p, s in PARTS))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_variances_of_draws_have_mean_one_and_the_share_of_wide_ones(jumps, key):
    s = np.asarray(tail_variance(tail_draw(key, (200_000,), jnp.float64, jumps), jumps))
    assert s.mean() == pytest.approx(1.0, abs=4.5 * s.std() / 200_000**0.5)
    assert np.mean(s > 1.0) == pytest.approx(SHARE, abs=4.5 * (SHARE / 200_000) ** 0.5)


@pytest.mark.parametrize("side", [0, 1])
def test_a_column_at_a_limit_knows_which_steps_jump(jumps, side):
    """The other column says how likely a jump is, and with it what is beyond the limit."""
    r, n = np.array([1.5, 3.0]), 40_000
    rows = (jnp.asarray(np.tile(x, (n, *([1] * np.ndim(x))))) for x in (r, B, np.array([0, side])))
    found = np.asarray(log_density(jax.random.key(3), *rows, jumps))
    mean, sd = B[0, 1] / B[0, 0] * r[0], np.sqrt(B[1, 1] - B[0, 1] ** 2 / B[0, 0])
    second = norm.pdf if side == 0 else norm.sf
    expected = sum(p * norm.pdf(r[0], 0.0, s**0.5) * second(r[1], mean, sd * s**0.5) for p, s in PARTS)
    error = np.exp(found).std() / np.sqrt(n)
    assert np.exp(found).mean() == pytest.approx(expected, abs=4.5 * error + 1e-12)


# --- where it is used --------------------------------------------------------------------------------


def steps_of(r):
    return Steps(np.full((1, len(r)), -0.5 * np.log(2.0 * np.pi)), r[None] ** 2, 1)


def test_jumps_are_found_where_there_are_some():
    rng = np.random.default_rng(1)
    sd = np.where(rng.uniform(size=4000) < SHARE, WIDTH, 1.0)
    r = rng.normal(size=4000) * sd * NARROW**0.5
    found = best_jumps(steps_of(r[:3500]))
    assert found.share == pytest.approx(SHARE, rel=0.5) and found.width == pytest.approx(WIDTH, rel=0.3)
    assert isinstance(kept_law(steps_of(r[:3500]), steps_of(r[3500:]), True), Jumps)
    assert kept_law(steps_of(r[:50]), steps_of(r[3500:]), True) is None


def test_clean_rows_have_no_heavier_tails():
    """Of 50 clean series one in a hundred at most is expected to have some."""
    rng = np.random.default_rng(2)
    found = [kept_law(steps_of(r[:400]), steps_of(r[400:]), True) for r in rng.normal(size=(50, 500))]
    assert sum(law is not None for law in found) <= 2


# --- forecasters -------------------------------------------------------------------------------------


def test_the_density_of_the_next_row_is_near_the_truth(jumping):
    model, y, truth = jumping
    assert model.spec_.innovations == "jumps" and "jump" in model.status_
    found = model.log_prob(y.iloc[1500:]).to_numpy()
    assert found.mean() == pytest.approx(truth[1500:].mean(), abs=0.05)


def test_forecast_densities_integrate_to_one_and_are_those_of_the_draws(jumping):
    model, y, _ = jumping
    found = model.forecast(1, n_draws=4000)
    grid = np.linspace(-40.0, 40.0, 161) + float(y.iloc[1499]) * 0.8
    density = np.exp([found.log_prob(np.array([[v]])).iloc[0] for v in grid])
    mass = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid))])
    assert mass[-1] == pytest.approx(1.0, abs=0.005)
    draws = found.samples.values.ravel()
    for level in (0.01, 0.1, 0.5, 0.9, 0.99):
        error = np.sqrt(level * (1.0 - level) / len(draws))
        assert np.mean(draws <= np.interp(level, mass, grid)) == pytest.approx(level, abs=4.5 * error)


def test_files_and_pickles_keep_jumps(jumping, tmp_path):
    model, y, _ = jumping
    model.save(tmp_path / "model.wf")
    for again in (wf.load(tmp_path / "model.wf"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.forecast(3, n_draws=9).samples, model.forecast(3, n_draws=9).samples)
        pd.testing.assert_series_equal(again.log_prob(y.iloc[1500:1600]), model.log_prob(y.iloc[1500:1600]))


def test_clean_series_are_described_as_without_recalibration():
    y, _ = walk(1000, 0.0)
    with_, without = (wf.WishartForecaster(**QUICK, calibrate=c).fit(y.iloc[:800]) for c in ("auto", None))
    assert with_.spec_.innovations == "gaussian" and with_.model_.field.jumps is None
    pd.testing.assert_series_equal(with_.log_prob(y.iloc[800:]), without.log_prob(y.iloc[800:]))


def test_training_does_not_change_jumps(jumping):
    model, y, _ = jumping
    further = pickle.loads(pickle.dumps(model)).update(y.iloc[1500:1700], update_params=True)
    assert eqx.tree_equal(further.model_.field.jumps, model.model_.field.jumps)
    assert further.spec_.innovations == "jumps"


def test_jumps_cannot_be_asked_for(types_unchecked):
    with pytest.raises(OptionError, match="innovations"):
        wf.WishartForecaster(innovations="jumps").fit(walk(100, 0.0)[0])


@pytest.mark.slow
def test_forecasts_of_24_steps_lose_nothing(jumping):
    """The CRPS of 24 steps ahead beside that of a model without jumps."""
    _, y, _ = jumping
    scores = []
    for calibrate in ("auto", None):
        model = wf.WishartForecaster(**QUICK, calibrate=calibrate).fit(y.iloc[:1500])
        found, seen = [], 1500
        for origin in range(1510, 2470, 10):
            model.update(y.iloc[seen:origin])
            draws, seen = model.forecast([24], n_draws=500).samples.values[:, 0], origin
            found.append(crps_samples(y.iloc[origin + 23 : origin + 24].to_numpy(), draws))
        scores.append(np.mean(found))
    assert scores[0] <= 1.01 * scores[1]


# --- given cells -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_given", "most"), [([0, 0, 0, 1], 99), ([0, 1, 0, 0, 0, 1, 0], 9), ([1, 0], 99)])
def test_patterns_part_all_that_can_happen(is_given, most):
    """By all sequences of jumps: each is of one pattern, with its probability; those of the rest are drawn from it."""
    n, found = len(is_given), patterns_of(SHARE, WIDTH, np.array(is_given, bool), most)
    assert len(found.log_weights) <= most
    last = np.flatnonzero(is_given)[-1]
    weights = np.zeros(len(found.log_weights))
    for jumps in itertools.product((0, 1), repeat=n):
        probability = np.prod([SHARE if jump else 1.0 - SHARE for jump in jumps])
        own = np.exp([sum(shares[t, jump] for t, jump in enumerate(jumps)) for shares in found.log_shares[:-1]])
        assert np.count_nonzero(own) <= 1
        state, of_rest = 0, 0.0
        for t, jump in enumerate(jumps):
            of_rest += found.rest_shares[t, state, jump]
            state = found.after_jump[t, state] if jump else state
        is_rest = not own.any()
        assert is_rest == (state == 4)
        of_pattern = own if not is_rest else np.append(np.zeros(len(own)), np.exp(of_rest))
        # p(jumps) = p(pattern) p(jumps | pattern)
        assert np.exp(found.log_weights)[: len(of_pattern)] @ of_pattern == pytest.approx(probability, rel=1e-9)
        weights[-1 if is_rest else np.argmax(own)] += probability
    np.testing.assert_allclose(np.exp(found.log_weights), weights, atol=1e-12)
    assert np.all(found.variances[:, last + 1 :] == 1.0)


LINEAR = np.array([[0.2, 0.05], [-0.1, 0.3]])
FACTOR, WHITE = np.array([[0.5], [0.3]]), np.array([0.1, 0.1])


def linear_model(share, width):
    """x' = x − A x + noise with jumps."""
    start = Start(*(jnp.asarray(x) for x in (-LINEAR, np.zeros(2), np.diag(WHITE))))
    spec = DynamicsSpec(drift="linear", diffusion=NoDiffusion())
    model = dynamics.build(spec, Layout(2, 1, 0), start, np.zeros((1, 2)), jax.random.key(0))
    return with_law(with_constant_noise(model, FACTOR), Jumps(on_device(share), on_device(width)))


def enumerated(share, width, y, x0):
    """Log evidence of the given cells, and means and variances of the path, by all sequences of jumps."""
    n, G, Q = len(y), np.eye(2) - LINEAR, FACTOR @ FACTOR.T + np.diag(WHITE)
    narrow = 1.0 / (1.0 - share + share * width**2)
    powers = [np.linalg.matrix_power(G, k) for k in range(n + 1)]
    mean = np.concatenate([powers[t + 1] @ x0 for t in range(n)])
    B = np.block([[powers[t - r] if r <= t else np.zeros((2, 2)) for r in range(n)] for t in range(n)])
    cells, at = y.ravel(), np.flatnonzero(~np.isnan(y.ravel()))
    logs, means, variances = [], [], []
    for jumps in itertools.product((0, 1), repeat=n):
        C = B @ np.kron(np.diag([narrow * (width**2 if jump else 1.0) for jump in jumps]), Q) @ B.T
        gain = C[:, at] @ np.linalg.inv(C[np.ix_(at, at)])
        logs.append(sum(np.log(share if jump else 1.0 - share) for jump in jumps))
        logs[-1] += multivariate_normal.logpdf(cells[at], mean[at], C[np.ix_(at, at)])
        means.append(mean + gain @ (cells[at] - mean[at]))
        variances.append(np.diagonal(C - gain @ C[at]))
    weights, means = softmax(logs), np.array(means)
    first = weights @ means
    second = weights @ (np.array(variances) + means**2) - first**2
    return logsumexp(logs), first.reshape(n, 2), second.reshape(n, 2)


@pytest.mark.parametrize(("share", "width", "far"), [(0.02, 8.0, 10.0), (0.1, 4.0, 3.0)])
def test_scenarios_with_jumps_have_the_law_of_all_their_sequences(share, width, far):
    """A cell as far away as only jumps lead: a guide without jumps has few independent draws there."""
    n, x0 = 6, np.array([0.3, -0.2])
    y = np.full((n, 2), np.nan)
    y[-1, 0], y[2, 1] = far, 0.1
    with computing():
        runner = AutoRegressiveRunner(linear_model(share, width), None)
    ticks = Ticks(np.ones(3), np.zeros((3, 0)), np.stack([x0] * 3), np.arange(3))
    found = runner.paths_given(ticks, np.ones(n), np.zeros((n, 0)), y, 1000, 0)
    log_evidence, mean, variance = enumerated(share, width, y, x0)
    assert found.n_effective > 500
    assert found.log_evidence == pytest.approx(log_evidence, abs=0.1)
    is_free = np.isnan(y)
    np.testing.assert_allclose(found.draws[:, ~is_free], np.broadcast_to(y[~is_free], (1000, 2)))
    errors = (found.draws.mean(axis=0) - mean)[is_free] / np.sqrt(variance[is_free])
    assert np.abs(errors).max() < 4.0 / np.sqrt(found.n_effective)
    np.testing.assert_allclose(found.draws.std(axis=0)[is_free], np.sqrt(variance[is_free]), rtol=0.2)
