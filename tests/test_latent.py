"""The latent model: its particle filter against Kalman's filter, its two objectives, its windows and its forecasts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from factories import quick_jit
from montecarlo import assert_moments

import wishflow as wf
from studies.benchmarks.latent import N_TRAIN, OPTIONS, kalman_log_density, simulated
from wishflow.errors import OptionError
from wishflow.series import latent
from wishflow.series import particle_filter as particles
from wishflow.series.autoregressive import Start
from wishflow.series.batches import series_batch
from wishflow.series.latent import LatentStart
from wishflow.series.latent_objectives import negative_encoder_objective, negative_filter_objective
from wishflow.series.layout import Layout
from wishflow.series.particle_filter import PreparedLatent
from wishflow.series.running import latent as running_latent
from wishflow.series.specs import DynamicsSpec, Latent
from wishflow.series.windows import ENCODED_ROWS, Series, latent_windows, to_ticks
from wishflow.wishart.specs import NoDiffusion, Wishart

DIM, WIDTH = 2, 4
N_COVARIATES = 1


@dataclasses.dataclass(frozen=True)
class Truth:
    """dx = (Wx + Bu + b) dt + √Q dB, y = Cx + √R ε."""

    W: np.ndarray
    B: np.ndarray
    b: np.ndarray
    Q: np.ndarray
    C: np.ndarray
    R: np.ndarray


def make(seed=0, readout="linear", is_coupled=False, diffusion=None):
    rng = np.random.default_rng(seed)
    W = np.array([[-0.3, 0.4], [-0.4, -0.2]])
    truth = Truth(
        W, rng.normal(size=(DIM, N_COVARIATES)), np.array([0.1, -0.2]), np.diag([0.5, 0.2]),
        rng.normal(size=(WIDTH, DIM)), np.array([0.3, 0.1, 0.2, 0.5]),
    )  # fmt: skip
    start = Start(*(jnp.asarray(x) for x in (np.hstack([W, truth.B]), truth.b, truth.Q)))
    projection = np.linalg.pinv(truth.C)
    whole = LatentStart(start, *(jnp.asarray(x) for x in (projection, truth.C, truth.R)))
    spec = DynamicsSpec(
        drift="linear",
        diffusion=NoDiffusion() if diffusion is None else diffusion,
        latent=Latent(DIM, readout, is_coupled),
    )
    Z = rng.normal(size=(5, DIM + N_COVARIATES))
    return latent.build(spec, Layout(DIM, 1, N_COVARIATES), whole, Z, jax.random.key(0)), truth


def rows(truth, n, seed=1, share=0.3):
    """A path of the truth with holes."""
    rng = np.random.default_rng(seed)
    h, u = rng.uniform(0.2, 1.0, size=n), rng.normal(size=(n, N_COVARIATES))
    x, y = rng.normal(size=DIM), np.zeros((n, WIDTH))
    for t in range(n):
        if t:
            drift = truth.W @ x + truth.B @ u[t] + truth.b
            x = x + h[t] * drift + np.sqrt(h[t] * np.diagonal(truth.Q)) * rng.normal(size=DIM)
        y[t] = truth.C @ x + np.sqrt(truth.R) * rng.normal(size=WIDTH)
    y[rng.uniform(size=y.shape) < share] = np.nan
    return h, u, y


def kalman(truth, h, u, y):
    """Filtered means and log densities of the rows."""
    m, P, means, scores = np.zeros(DIM), np.eye(DIM), [], []
    for t in range(len(y)):
        if t:
            G = np.eye(DIM) + h[t] * truth.W
            m, P = G @ m + h[t] * (truth.B @ u[t] + truth.b), G @ P @ G.T + h[t] * truth.Q
        seen = ~np.isnan(y[t])
        score = 0.0
        if seen.any():
            C, r = truth.C[seen], y[t, seen] - truth.C[seen] @ m
            S = C @ P @ C.T + np.diag(truth.R[seen])
            K = P @ C.T @ np.linalg.inv(S)
            score = -0.5 * (seen.sum() * np.log(2 * np.pi) + np.linalg.slogdet(S)[1] + r @ np.linalg.solve(S, r))
            m, P = m + K @ r, P - K @ C @ P
        means.append(m)
        scores.append(score)
    return np.array(means), np.array(scores)


def inputs(h, u, y):
    return tuple(jnp.asarray(x) for x in (h, u, np.nan_to_num(y), ~np.isnan(y)))


def test_the_particle_filter_tends_to_the_kalman_filter():
    model, truth = make()
    h, u, y = rows(truth, 25)
    y[7] = np.nan  # a whole row
    means, scores = kalman(truth, h, u, y)

    @quick_jit
    def run(keys):
        prepared = PreparedLatent.of(model)
        return jax.lax.map(lambda k: particles.run(k, prepared, *inputs(h, u, y), 2000)[1], keys)

    found_means, found_scores = (np.asarray(x) for x in run(jax.random.split(jax.random.key(0), 16)))
    error = found_scores.std(0, ddof=1) / 4
    np.testing.assert_array_less(np.abs(found_scores.mean(0) - scores), 5 * error + 1e-9)
    assert error.max() < 0.01
    np.testing.assert_allclose(found_means.mean(0), means, atol=0.02)
    assert np.all(found_scores[:, 7] == 0.0)


def test_where_a_series_begins_the_guided_weights_are_exact():
    """One particle gives p(y_0) to rounding, whatever it drew: the proposal is the posterior."""
    model, truth = make()
    h, u, y = rows(truth, 1, seed=3)
    run = quick_jit(lambda key: particles.run(key, PreparedLatent.of(model), *inputs(h, u, y), 1)[1][1])
    for seed in range(3):
        found = run(jax.random.key(seed))
        np.testing.assert_allclose(found, kalman(truth, h, u, y)[1], rtol=1e-10)


@pytest.mark.parametrize(
    "readout, is_coupled",
    [pytest.param(*case, marks=pytest.mark.slow) for case in (("gp", True), ("gp", False), ("linear", True))],
)
def test_the_filter_estimates_the_same_likelihood_as_blind_simulation(readout, is_coupled):
    """E p̂ = p whatever the proposal: against the mean density over simulations from the prior, three rows."""
    model, truth = make(readout=readout, is_coupled=is_coupled, diffusion=Wishart(rank=2, unit_rows=False))
    model = dataclasses.replace(
        model, readout=dataclasses.replace(model.readout, white=type(model.readout.white).of(4.0 * truth.R))
    )
    h, u, y = rows(truth, 3, seed=5)

    @quick_jit
    def both(key):
        k_blind, k_guided = jax.random.split(key)
        prepared = PreparedLatent.of(model)
        guided = jnp.sum(particles.run(k_guided, prepared, *inputs(h, u, y), 200)[1][1])
        x, total = jax.random.normal(k_blind, (5000, DIM)), 0.0
        for t in range(3):
            k_blind, k_step, k_noise = jax.random.split(k_blind, 3)
            known = jnp.broadcast_to(u[t], (5000, N_COVARIATES))
            if t:
                here = prepared.field.at(jnp.concatenate([x, known], 1))
                x = x + h[t] * here.drift + here.increment(k_step, h[t])
            F = particles.observation_noise(k_noise, prepared, x, jnp.asarray(u[t]))
            total += particles.log_likelihood(prepared, x, F, jnp.nan_to_num(y[t]), jnp.asarray(~np.isnan(y[t])))
        return jnp.exp(guided), jnp.mean(jnp.exp(total))

    found = np.array([both(k) for k in jax.random.split(jax.random.key(1), 40)])
    difference = found[:, 0] - found[:, 1]
    assert abs(difference.mean()) < 4 * difference.std(ddof=1) / np.sqrt(40)
    assert difference.std() < 0.5 * found.mean()  # the comparison can see something


def window_batch(h, u, y):
    times = np.concatenate([[0.0], np.cumsum(h[1:])])
    return series_batch(None, latent_windows(to_ticks(Series(times, y, u), 1.0, 1, 24.0)))


def test_without_J_both_objectives_lie_below_the_evidence_of_a_window_and_the_filter_is_nearer():
    model, truth = make()
    h, u, y = rows(truth, 20, share=0.1)
    exact = kalman(truth, h, u, y)[1].sum()
    batch = window_batch(h, u, y)

    @quick_jit
    def parts(key):
        filtered = negative_filter_objective(model, batch, key, n_samples=20)[1]["fit"]
        encoded = {
            average: negative_encoder_objective(model, batch, key, n_samples=20, average=average)[1]
            for average in ("log", "density")
        }
        return filtered, encoded["log"]["fit"] - encoded["log"]["kl_start"], encoded["density"]["fit"]

    found = np.array([parts(k) for k in jax.random.split(jax.random.key(0), 50)])
    mean, error = found.mean(0), found.std(0, ddof=1) / np.sqrt(50)
    filtered, encoded, weighted = mean
    assert filtered < exact + 4 * error[0]
    assert weighted < exact + 4 * error[2]
    assert filtered > exact - 2.0
    assert encoded < weighted - 5.0 and weighted < filtered - 5.0


def test_windows_hold_every_row_once_and_begin_at_a_row():
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.choice([0.5, 1.0, 3.5, 40.0], p=[0.3, 0.5, 0.17, 0.03], size=150))
    y = rng.normal(size=(150, 2))
    y[rng.uniform(size=y.shape) < 0.3] = np.nan
    ticks = to_ticks(Series(times, y, np.zeros((150, 0))), 1.0, 1, 24.0)
    windows = latent_windows(ticks)
    scored = np.sort(windows.row[windows.row >= 0])
    assert np.array_equal(scored, np.flatnonzero(~np.isnan(y).all(axis=1)))
    assert (windows.row[:, 0] >= 0).all() and (windows.h[:, 0] == 0).all()
    first = [row[row >= 0][:ENCODED_ROWS] for row in windows.row]
    for k, at in enumerate(first):
        expected = np.full((ENCODED_ROWS, 2), np.nan)
        expected[: len(at)] = y[at]
        assert np.array_equal(windows.start[k], np.nan_to_num(expected).ravel())
        assert np.array_equal(windows.variance[k] == 0, ~np.isnan(expected).ravel())
    # The time from the first row of a window to its last is the sum of its ticks.
    for k, row in enumerate(windows.row):
        at = row[row >= 0]
        np.testing.assert_allclose(windows.h[k].sum(), times[at[-1]] - times[at[0]], atol=1e-9)


def test_the_density_of_a_step_is_that_of_the_linear_model():
    model, truth = make()
    rng = np.random.default_rng(2)
    x, y, u, h = rng.normal(size=(6, DIM)), rng.normal(size=(6, WIDTH)), rng.normal(size=(6, 1)), rng.uniform(size=6)
    density = quick_jit(lambda m, *rows: particles.step_log_density(jax.random.key(0), PreparedLatent.of(m), *rows))
    found = density(model, x, h, u, y)
    for n in range(6):
        mean = truth.C @ (x[n] + h[n] * (truth.W @ x[n] + truth.B @ u[n] + truth.b))
        S = h[n] * truth.C @ truth.Q @ truth.C.T + np.diag(truth.R)
        r = y[n] - mean
        expected = -0.5 * (WIDTH * np.log(2 * np.pi) + np.linalg.slogdet(S)[1] + r @ np.linalg.solve(S, r))
        np.testing.assert_allclose(found[n], expected, rtol=1e-10)


def test_draws_of_y_have_the_moments_of_the_linear_model():
    model, truth = make()
    h, u = np.array([0.5, 1.0]), np.array([[0.3], [-0.7]])
    x0 = np.array([0.4, -1.0])
    m, P = x0, np.zeros((DIM, DIM))
    for t in range(2):
        G = np.eye(DIM) + h[t] * truth.W
        m, P = G @ m + h[t] * (truth.B @ u[t] + truth.b), G @ P @ G.T + h[t] * truth.Q
    start = jnp.asarray(np.tile(x0, (40_000, 1)))
    simulate = quick_jit(particles.simulate)
    y, before = simulate(jax.random.key(0), PreparedLatent.of(model), start, jnp.asarray(h), jnp.asarray(u))
    assert np.array_equal(before[0], start)
    assert_moments(np.asarray(y[1]), truth.C @ m, truth.C @ P @ truth.C.T + np.diag(truth.R), 4.5)


# --- the estimator -------------------------------------------------------------------------------

SMALL = {"n_inducing": 8, "max_iter": 20, "rank": 2, "n_train_samples": 2, "validation_fraction": 0}


@pytest.fixture(scope="module")
def frame():
    _, truth = make()
    rng = np.random.default_rng(4)
    h = np.ones(160)
    x, y = np.zeros(DIM), np.zeros((160, WIDTH))
    for t in range(160):
        x = x + h[t] * truth.W @ x + np.sqrt(np.diagonal(truth.Q)) * rng.normal(size=DIM)
        y[t] = 5.0 + truth.C @ x + 0.3 * rng.normal(size=WIDTH)
    frame = pd.DataFrame(y, pd.date_range("2022-05-01", periods=160, freq="h", tz="UTC"), list("abcd"))
    frame.iloc[20:24, 1] = np.nan
    frame.iloc[50] = np.nan
    return frame


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"latent_dim": 2},
        {"latent_dim": 2, "objective": "rollout"},
        pytest.param({"latent_dim": Latent(2, "gp", True)}, marks=pytest.mark.long),
        pytest.param({"latent_dim": 6, "calendar": True}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_latent_forecaster_does_all_a_forecaster_does(frame, options, tmp_path):
    model = wf.WishartForecaster(**SMALL, **options).fit(frame.iloc[:140])
    assert np.isfinite(model.history_["objective"]).all()
    forecast = model.forecast(5, n_draws=20)
    assert forecast.samples.sizes == {"draw": 20, "time": 5, "variable": 4}
    assert np.isfinite(forecast.log_prob(frame.iloc[140:145])).all()
    scores = model.log_prob(frame)
    assert np.isfinite(scores.drop(frame.index[50])).all()
    rates = model.covariance(frame.iloc[:30])
    assert np.linalg.eigvalsh(rates.values).min() > -1e-9
    model.save(tmp_path / "model")
    again = wf.load(tmp_path / "model").forecast(5, n_draws=20)
    assert np.array_equal(again.samples.values, forecast.samples.values)


def test_the_filter_and_the_forecast_have_noise_of_their_own():
    """No tick of one has the key of a tick of the other, nor has a density; with one key for both all of them had."""
    keys = [np.asarray(jax.random.key_data(jax.random.split(key, 200))) for key in running_latent._noise_keys(7)]
    rows = np.concatenate([*keys, *(np.asarray(jax.random.key_data(k))[None] for k in running_latent._noise_keys(7))])
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_a_forecast_is_simulated_with_the_key_of_paths(frame, monkeypatch):
    """As it is used: the three programs of a forecast get three keys."""
    model = wf.WishartForecaster(**{**SMALL, "max_iter": 2}, latent_dim=2).fit(frame.iloc[:60])
    used = {}
    for name, at in (("_run_filter", -2), ("_run_paths", -1), ("_step_log_density", -1)):
        program = getattr(running_latent, name)

        def spy(*inputs, name=name, at=at, program=program):
            used[name] = tuple(np.asarray(jax.random.key_data(inputs[at])))
            return program(*inputs)

        monkeypatch.setattr(running_latent, name, spy)
    model.forecast(2, n_draws=4).log_prob(frame.iloc[:2].to_numpy())
    assert len(set(used.values())) == len(used) == 3


@pytest.mark.parametrize(
    "options, words",
    [
        ({"latent_dim": 0}, "latent_dim"),
        ({"latent_dim": 21}, "at most 20"),
        ({"latent_dim": 2, "lags": 2}, "carries the memory"),
        ({"latent_dim": "two"}, "latent_dim"),
    ],
    ids=str,
)
def test_latent_options_that_cannot_be_are_named(frame, options, words):
    with pytest.raises(OptionError, match=words):
        wf.WishartForecaster(**SMALL, **options).fit(frame)


@pytest.mark.slow
@pytest.mark.long
def test_on_a_noisy_view_of_a_small_state_the_latent_model_comes_near_the_truth():
    """The Kalman filter with the true parameters is the best there is; an auto-regression stays far below it."""
    y, C = simulated(0)
    truth = kalman_log_density(y.to_numpy(), C)[N_TRAIN:].mean()
    options = {**OPTIONS, "max_iter": 500}
    gaps = {
        d: truth - wf.WishartForecaster(latent_dim=d, **options).fit(y.iloc[:N_TRAIN]).log_prob(y.iloc[N_TRAIN:]).mean()
        for d in (None, 2)
    }
    assert -0.05 < gaps[2] < 0.1
    assert gaps[2] < 0.33 * gaps[None]
