"""`n_members` of the forecaster: a mixture of models that differ by their start and kind, as one fitted object."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.errors import OptionError
from wishflow.numerics.mixtures import draws_of_each, mixture_weights
from wishflow.series.rolling import Origins
from wishflow.series.rolling import simulated as simulated_from
from wishflow.series.running.mixture import MixedRunner
from wishflow.series.validated import _mixed_draws

SMALL = {"n_inducing": 8, "max_iter": 10, "rank": 2, "n_train_samples": 2, "lags": 1, "calendar": False}
SMALL |= {"transform": None, "random_state": 0}
N = 240


def simulated(n=N, seed=0):
    """A series whose noise depends on its state, with Student-t steps."""
    rng = np.random.default_rng(seed)
    y = np.zeros((n, 2))
    for t in range(1, n):
        y[t] = 0.8 * y[t - 1] + (0.2 + 0.6 * (y[t - 1, 0] > 0.0)) * rng.standard_t(4, size=2)
    return pd.DataFrame(5.0 + y, pd.date_range("2021-03-01", periods=n, freq="h"), ["a", "b"])


@pytest.fixture(scope="module")
def y():
    return simulated()


@pytest.fixture(scope="module")
def mixed(y):
    return wf.WishartForecaster(n_members=3, **SMALL).fit(y.iloc[:220])


@pytest.fixture(scope="module")
def equal(y):
    """Without held-back rows."""
    return wf.WishartForecaster(n_members=2, validation_fraction=0, **SMALL).fit(y.iloc[:60])


def single(forecaster, k):
    """Member k alone, as a forecaster of its own."""
    alone = copy.copy(forecaster)
    alone.model_, alone.spec_ = forecaster.members_[k].model, forecaster.members_[k].spec
    del alone.members_, alone.weights_
    return alone


def test_weights_of_laws_have_the_highest_density():
    """Two routes: expectation maximisation, and a grid of weights."""
    rng = np.random.default_rng(0)
    logs = rng.normal(size=(2, 50))
    grid = np.linspace(0.001, 0.999, 999)
    totals = [np.logaddexp(np.log(w) + logs[0], np.log1p(-w) + logs[1]).sum() for w in grid]
    assert mixture_weights(logs)[0] == pytest.approx(grid[np.argmax(totals)], abs=0.002)


def test_a_prior_keeps_weights_equal_where_there_are_few_rows():
    logs = np.log([[0.5] * 3, [0.4] * 3])
    assert mixture_weights(logs)[0] == 1.0
    assert mixture_weights(logs, 20.0)[0] == pytest.approx(0.5, abs=0.1)
    assert mixture_weights(np.tile(logs, 1000), 20.0)[0] == 1.0  # of less than a fiftieth nothing is left


@pytest.mark.parametrize("n_laws", [2, 60])
def test_equal_laws_have_equal_weights_whatever_their_number(n_laws):
    np.testing.assert_allclose(mixture_weights(np.zeros((n_laws, 5))), 1.0 / n_laws)


def test_draws_are_shared_by_weight():
    weights = np.array([0.5, 0.3, 0.2])
    offsets = (np.arange(1000) + 0.5) / 1000
    for n in (1, 2, 7):
        counts = np.array([draws_of_each(n, weights, c) for c in offsets])
        assert (counts.sum(1) == n).all() and (np.abs(counts - n * weights) < 1.0).all()
        np.testing.assert_allclose(counts.mean(0), n * weights, atol=0.002)


def test_members_have_weights_and_kinds_of_their_own(mixed):
    assert len(mixed.members_) == len(mixed.weights_) <= 3
    assert mixed.weights_.sum() == pytest.approx(1.0) and (mixed.weights_ > 0.0).all()
    assert set(mixed.validation_history_["member"]) == {0, 1, 2}  # those that were left out were compared, too
    assert "member" in mixed.history_ and mixed.n_iter_ == len(mixed.history_)
    assert mixed.history_["seconds"].is_monotonic_increasing  # one clock for all of them
    for k, weight in enumerate(mixed.weights_):
        assert f"member {k}     weight {weight:.2f}" in mixed.summary()


def test_starts_differ(equal):
    one, two = (member.model.field for member in equal.members_)
    assert not np.allclose(one.basis.Z, two.basis.Z) or not np.allclose(one.linear.weights, two.linear.weights)
    np.testing.assert_array_equal(equal.weights_, [0.5, 0.5])


def test_densities_are_those_of_the_mixture(equal, y):
    """log Σ_k w_k p_k, each p_k by a forecaster of one model."""
    later = y.iloc[60:70]
    found = equal.log_prob(later)
    seeds = [equal.seed_, int(np.random.SeedSequence([equal.seed_, 1]).generate_state(1)[0])]
    each = []
    for k, seed in enumerate(seeds):
        alone = single(equal, k)
        alone.seed_ = seed
        each.append(alone.log_prob(later))
    np.testing.assert_allclose(found, np.logaddexp(*each) - np.log(2.0), rtol=1e-10)
    rates = [single(equal, k).covariance(later).values for k in (0, 1)]
    np.testing.assert_allclose(equal.covariance(later).values, np.mean(rates, axis=0))


def test_paths_belong_to_members_by_their_weights(equal):
    """With weight on one member alone its paths are those of that member."""
    assert equal.forecast(3, n_draws=7).samples.shape == (7, 3, 2)
    first = copy.copy(equal)
    first.weights_ = np.array([1.0, 0.0])
    alone = single(equal, 0)
    ahead = first.forecast(4, n_draws=20)
    np.testing.assert_array_equal(ahead.samples, alone.forecast(4, n_draws=20).samples)
    rows = np.zeros((4, 2)) + 5.0
    np.testing.assert_array_equal(ahead.log_prob(rows), alone.forecast(4, n_draws=20).log_prob(rows))


def test_bands_are_recalibrated_by_draws_of_the_mixture(equal):
    """As many draws of each member as its weight says, the same ones that it would give alone."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4, 3, 2))
    origins = Origins(rng.normal(size=(4, 2)), np.zeros((4, 3, 0)), rows, rows)
    models = [member.model for member in equal.members_]
    alone = [simulated_from(model, origins, seed) for model, seed in zip(models, (5, 6), strict=True)]
    found = _mixed_draws(models, np.array([0.75, 0.25]), origins, [5, 6])
    assert len(found) == len(alone[0]) == 100
    np.testing.assert_array_equal(found, np.concatenate([alone[0][:75], alone[1][:25]]))


def test_one_draw_is_a_forecast(equal):
    """Its density is that of the member that gave it."""
    found = equal.forecast(2, n_draws=1)
    assert np.isfinite(found.log_prob(np.full((2, 2), 5.0))).all()
    given = [equal._runner()._counts(1, seed).argmax() for seed in range(200)]
    assert np.mean(given) == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("name", ["mixed", "equal"])
def test_files_and_pickles_hold_all_members(name, request, tmp_path):
    model, rows = request.getfixturevalue(name), np.full((3, 2), 5.0)
    model.save(tmp_path / "model.wf")
    for other in (wf.load(tmp_path / "model.wf"), pickle.loads(pickle.dumps(model))):
        assert len(other.members_) == len(model.members_) and other.n_members == model.n_members
        found, expected = other.forecast(3, n_draws=9), model.forecast(3, n_draws=9)
        np.testing.assert_array_equal(found.samples, expected.samples)
        np.testing.assert_array_equal(found.log_prob(rows), expected.log_prob(rows))
        assert other.summary() == model.summary()


def test_training_goes_on_for_every_member(equal, y):
    moved = copy.copy(equal).update(y.iloc[60:100], update_params=True)
    assert moved.end_ == y.index[99] and len(moved.members_) == 2
    assert "2 members" in moved.status_ and moved.status_.count("update") >= 2
    updates = moved.history_[moved.history_["phase"].str.contains("update")]
    assert set(updates["member"]) == {0, 1}
    assert moved.model_ is moved.members_[0].model


def test_a_fit_of_one_model_forgets_members(equal, y):
    again = copy.copy(equal).set_params(n_members=1).fit(y.iloc[:60])
    assert not hasattr(again, "members_") and "member" not in again.history_


def test_backtests_take_mixtures(equal, y):
    scores = wf.backtest(equal, y.iloc[:80], fh=2, initial=62, step=8, n_draws=10)
    assert np.isfinite(scores["log_density"]).all()


def test_the_number_of_members_is_checked(y):
    with pytest.raises(OptionError, match="n_members"):
        wf.WishartForecaster(n_members=0, **SMALL).fit(y)


def test_states_that_are_not_seen_are_mixed(y):
    model = wf.WishartForecaster(n_members=2, latent_dim=1, **SMALL).fit(y.iloc[:40])
    assert len(model.members_) == 2
    assert model.forecast(2, n_draws=5).samples.shape == (5, 2, 2)
    assert np.isfinite(model.log_prob(y.iloc[40:44])).all()


def test_paths_within_limits_are_mixed(y):
    model = wf.WishartForecaster(n_members=2, limits=0, validation_fraction=0, **SMALL).fit(y.iloc[:60])
    draws = model.forecast(30, n_draws=50).samples.values
    low, high = y.iloc[:60].min().to_numpy(), y.iloc[:60].max().to_numpy()
    assert (draws >= low - 1e-9).all() and (draws <= high + 1e-9).all()


def test_given_cells_and_intervals_of_correlations_are_those_of_the_mixture(equal, y):
    given = np.full((3, 2), np.nan)
    given[1, 0] = y.iloc[60, 0]
    found = equal.forecast(3, n_draws=20, given=given)
    assert (found.samples.values[:, 1, 0] == given[1, 0]).all()
    ends = equal.correlation_interval(y.iloc[:60], coverage=0.8, n_draws=40)
    assert (ends[0] <= ends[1] + 1e-12).all()
    # Two members of one law have its quantiles.
    runner, ticks = equal._runner().runners[0], equal.units_.ticks(next(iter(equal.tails_.values())))[-1]
    twice = MixedRunner([runner, runner], np.array([0.5, 0.5]))
    pair, one = (r.correlation_quantiles(ticks, (0.1, 0.9), 400, 0) for r in (twice, runner))
    np.testing.assert_allclose(pair, one, atol=0.15)
