"""Linear auto-regressions in closed form, what is chosen by them, and the recalibration of forecasts."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from wishflow import WishartForecaster
from wishflow.series import by_evidence, calibrating, choices, choosing, defaults, recalibration
from wishflow.series import linear_gaussian as linear
from wishflow.series.choices import Given
from wishflow.series.choosing import Config, Judge, Piece
from wishflow.series.data.frames import read
from wishflow.series.data.intake import training_data
from wishflow.series.held_rows import parts_of
from wishflow.series.linear_prior import Prior, inputs_of, means, precision
from wishflow.series.specs import DynamicsSpec

D, N = 3, 400
RNG = np.random.default_rng(0)


def var_rows(n=N, dim=D, seed=1, second=0.0):
    rng = np.random.default_rng(seed)
    A = 0.6 * np.eye(dim) + 0.1 * rng.normal(size=(dim, dim))
    rows = np.zeros((n + 100, dim))
    for t in range(2, len(rows)):
        rows[t] = A @ rows[t - 1] + second * rows[t - 2] + rng.normal(size=dim)
    return rows[100:]


def stretch_of(rows, u=None):
    return linear.Stretch(rows, np.ones(rows.shape, bool), np.zeros((len(rows), 0)) if u is None else u)


def judge_of(frame, fraction=0.1):
    values = frame.to_numpy(float)
    return Judge([Piece(values, frame.index, np.zeros((len(frame), 0)), 0, len(frame))], frame.columns, fraction)


# --- regressions -------------------------------------------------------------------------------------


def test_without_a_prior_the_regression_is_least_squares():
    rows = stretch_of(var_rows(), RNG.normal(size=(N, 2)))
    lags = (1, 3)
    found = linear.fitted([rows], lags, Prior(1e6))
    X = linear.design(rows, lags)
    expected = np.linalg.lstsq(X, np.diff(rows.values[2:], axis=0), rcond=None)[0]
    np.testing.assert_allclose(np.column_stack([found.weights, found.constant]), expected.T, atol=1e-4)


@pytest.mark.parametrize("scales", [np.ones(D), np.array([1.0, 1.1, 30.0])], ids=["one noise", "two noises"])
def test_one_factorisation_gives_what_each_series_gives_by_itself(scales):
    """Woodbury's formula beside the regressions one by one."""
    rows, lags, prior = stretch_of(var_rows() * scales), (1, 2, 3), Prior(0.2)
    sums = linear.moments(rows, lags, 0, N)
    found = linear.regression(sums, lags, prior)
    small = linear.SMALL_RIDGE * N
    K = len(sums.gram)
    weights_precision = precision(lags, D, K - 1, prior)
    for d in range(D):
        noise = 2.0 ** np.round(np.log2(found.covariance[d, d]))
        ridge = np.diag(np.append(noise * weights_precision[d], 0.0) + small * (N - 3) / N)
        np.testing.assert_allclose(
            found.weights[d], np.linalg.solve(sums.gram + ridge, sums.cross[:, d])[:-1], rtol=1e-5
        )


def test_series_that_do_not_see_each_other_are_fitted_one_by_one():
    rows, lags, prior = var_rows(), (1, 2), Prior(0.3, np.inf)
    found = linear.fitted([stretch_of(rows)], lags, prior)
    own = np.tile(np.eye(D, dtype=bool), len(lags))
    assert (found.weights[~own] == 0.0).all()
    sums = linear.moments(stretch_of(rows), lags, 0, N)
    for d in range(D):
        X = linear.design(stretch_of(rows[:, [d]]), lags)
        noise = 2.0 ** np.round(np.log2(linear.regression(sums, lags, prior).covariance[d, d]))
        ridge = np.diag(np.append(noise * precision(lags, 1, 2, prior)[0], 0.0) + linear.SMALL_RIDGE * len(X))
        alone = np.linalg.solve(X.T @ X + ridge, X.T @ np.diff(rows[1:, d]))
        np.testing.assert_allclose(found.weights[d, own[d]], alone[:2], rtol=1e-8)


def test_sums_of_weights_that_vanish_make_a_model_of_increments():
    rows = var_rows()
    found = linear.fitted([stretch_of(rows)], (1, 2, 3), Prior(1.0, 3.0, 0.0))
    by_lag = found.weights.reshape(D, 3, D)
    np.testing.assert_allclose(by_lag.sum(axis=1), 0.0, atol=1e-4)
    assert np.abs(by_lag).max() > 0.1
    # A level is not known: forecasts of moved rows are moved by as much.
    none = np.zeros((1, 5, 0))
    np.testing.assert_allclose(
        found.means(rows[None, :3] + 7.0, none), found.means(rows[None, :3], none) + 7.0, atol=0.02
    )


def test_series_with_increments_enter_all_equations_by_them():
    """The level of a series that never returns tells nothing about others: moved, it moves its own forecasts alone."""
    rows = var_rows()
    found = linear.fitted([stretch_of(rows)], (1, 2, 3), Prior(1.0, 3.0, (np.inf, 0.0, np.inf)))
    sums = found.weights.reshape(D, 3, D).sum(axis=1)
    np.testing.assert_allclose(sums[:, 1], 0.0, atol=1e-4)
    assert np.abs(sums[:, [0, 2]]).max() > 0.1
    none, move = np.zeros((1, 5, 0)), np.array([0.0, 7.0, 0.0])
    np.testing.assert_allclose(
        found.means(rows[None, :3] + move, none), found.means(rows[None, :3], none) + move, atol=0.02
    )


@pytest.mark.parametrize("prior", [Prior(0.1), Prior(1.0, np.inf), Prior(0.3, 10.0, 0.03)], ids=str)
def test_the_evidence_is_the_density_of_the_rows(prior):
    """Beside n/2 log yᵀ(I + XR⁻¹Xᵀ)⁻¹y + ½ log|I + XR⁻¹Xᵀ|, in which no weight appears."""
    rows, lags = var_rows(80, 2), (1, 2)
    sums = linear.moments(stretch_of(rows), lags, 0, len(rows))
    X, Y, expected = linear.design(stretch_of(rows), lags), np.diff(rows[1:], axis=0), 0.0
    noise = 2.0 ** np.round(np.log2(np.diagonal(linear.regression(sums, lags, prior).covariance)))
    for d in range(2):
        at = inputs_of(d, 2, 2, 5, prior)
        ridge = np.diag(noise[d] * precision(lags, 2, 5, prior)[d] + linear.SMALL_RIDGE * len(X))
        if np.isfinite(prior.sums):
            ridge[:4, :4] += noise[d] * np.kron(np.ones((2, 2)), np.eye(2)) / prior.sums**2
        law = np.eye(len(X)) + X[:, at] @ np.linalg.solve(ridge[np.ix_(at, at)], X[:, at].T)
        square = Y[:, d] @ np.linalg.solve(law, Y[:, d])
        expected -= 0.5 * np.linalg.slogdet(law)[1] + 0.5 * len(X) * np.log(square)
    assert linear.log_evidence(sums, lags, prior) == pytest.approx(expected, rel=1e-6)


def test_sums_over_parts_add_up_and_leave_out_what_was_not_seen():
    rows = var_rows()
    is_seen = np.ones(rows.shape, bool)
    is_seen[::7, 1] = False  # many: they are left out
    part = linear.Stretch(rows, is_seen, np.zeros((N, 0)))
    whole = linear.moments(part, (1, 2), 0, N)
    both = linear.moments(part, (1, 2), 0, 150) + linear.moments(part, (1, 2), 150, N)
    np.testing.assert_allclose(both.gram_of(1), whole.gram_of(1))
    np.testing.assert_allclose(both.cross, whole.cross)
    X, steps, seen = linear.design(part, (1, 2)), np.diff(rows[1:], axis=0), is_seen[2:, 1]
    np.testing.assert_allclose(whole.gram_of(1), X[seen].T @ X[seen])
    np.testing.assert_allclose(whole.cross[:, 1], X[seen].T @ steps[seen, 1])


def test_forecasts_are_those_of_simulated_paths():
    model = linear.fitted([stretch_of(var_rows(second=0.2))], (1, 2), Prior(1.0))
    history = RNG.normal(size=(1, 2, D))
    n, H = 40_000, 4
    root = np.linalg.cholesky(model.covariance)
    path = np.repeat(history, n, 0)
    for _ in range(H):
        x = model.step(path[:, -2:], np.zeros((n, 0))) + RNG.normal(size=(n, D)) @ root.T
        path = np.concatenate([path, x[:, None]], axis=1)
    np.testing.assert_allclose(path[:, 2:].mean(0), model.means(history, np.zeros((1, H, 0)))[0], atol=0.05)
    np.testing.assert_allclose(np.cov(path[:, -1].T), model.covariances(H)[-1], atol=0.1)


def test_holes_are_filled_without_what_comes_later():
    rows = var_rows(60)
    model = linear.fitted([stretch_of(var_rows())], (1,), Prior(1.0))
    holed = rows.copy()
    holed[30:33, 0] = np.nan
    none = np.zeros((60, 0))
    found = linear.filled(holed, none, model)
    later = holed.copy()
    later[33:] += 100.0
    np.testing.assert_array_equal(linear.filled(later, none, model)[:33], found[:33])
    # Given what was seen of the row: the mean of the normal law.
    expected = model.step(rows[None, 29:30], none[:1])[0]
    Q, seen = model.covariance, [1, 2]
    gain = Q[0, seen] @ np.linalg.inv(Q[np.ix_(seen, seen)])
    assert found[30, 0] == pytest.approx(expected[0] + gain @ (rows[30, seen] - expected[seen]))


# --- choices -----------------------------------------------------------------------------------------


def test_a_daily_cycle_and_a_second_lag_are_found():
    hours = pd.date_range("2021-01-01", periods=1500, freq="h")
    cycle = 2.0 * np.sin(2 * np.pi * hours.hour.to_numpy() / 24)[:, None]
    frame = pd.DataFrame(var_rows(1500, second=0.25) + cycle, hours, list("abc"))
    found = choices.choose(judge_of(frame), Given())[0]
    assert "day" in found.config.periods
    assert 2 in found.config.lags
    assert found.config.transform == ()
    assert set(found.reasons) == {"calendar", "lags", "prior", "transform"}


def test_a_random_walk_takes_one_lag_and_no_calendar():
    days = pd.date_range("2021-01-01", periods=800, freq="D")
    frame = pd.DataFrame(np.random.default_rng(5).normal(size=(800, 2)).cumsum(0), days, list("ab"))
    found = choices.choose(judge_of(frame), Given())[0].config
    assert found.lags == (1,) and found.periods == ()


KINDS = {
    "returns to a mean": lambda rng, n: var_rows(n, 2),
    "random walks": lambda rng, n: rng.normal(size=(n, 2)).cumsum(axis=0),
    "skewed": lambda rng, n: np.exp(0.5 * var_rows(n, 2)),
    "counts with zeros": lambda rng, n: rng.poisson(np.exp(0.4 * var_rows(n, 2))).astype(float),
}
UNITS = (1e-150, 1e-20, 1e-13, 1e-8, 1e8, 1e20, 1e150)


def chosen_for(rows):
    """All that is chosen for these rows, without the reasons."""
    frame = pd.DataFrame(rows, pd.bdate_range("2021-01-01", periods=len(rows)), ["a", "b"])
    options = WishartForecaster().get_params(deep=False)
    return [dataclasses.replace(one, reasons={}) for one in defaults.settings_of(options, read(frame, "y"), None, 0.1)]


@pytest.mark.parametrize("n", [40, 100, 520])
@pytest.mark.parametrize("kind", KINDS)
def test_choices_do_not_depend_on_the_unit_of_y(kind, n):
    rows = KINDS[kind](np.random.default_rng(0), n)
    first = chosen_for(rows)
    assert all(chosen_for(unit * rows) == first for unit in UNITS)
    assert chosen_for(rows * np.array([1e-13, 1e8])) == first


@pytest.mark.parametrize("n", [40, 100, 520])
@pytest.mark.parametrize("kind", list(KINDS)[:2])
def test_choices_do_not_depend_on_where_zero_is(kind, n):
    """But for logarithms, which are of distances from zero."""
    rows = KINDS[kind](np.random.default_rng(0), n)
    first = chosen_for(rows)
    for unit, offset in ((1.0, 1e6), (1.0, -1e9), (1e-8, 1.0), (1e8, -1e15)):
        assert chosen_for(unit * rows + offset) == first


def random_walks(n, dim, seed):
    index = pd.bdate_range("2015-01-01", periods=n)
    return pd.DataFrame(np.random.default_rng(seed).normal(size=(n, dim)).cumsum(axis=0), index)


def test_long_random_walks_do_not_return_to_a_level():
    """A VAR of prices estimates a return to their mean, and is worse than a random walk many steps ahead."""
    frame = random_walks(1500, 5, 2)
    found = choices.choose(judge_of(frame.iloc[:1200]), Given())[0].config
    assert np.mean(np.array(found.prior.sums) == 0.0) > 0.6
    later = judge_of(frame, 300 / 1500)
    later.n_folds = 1
    walk = later.score(Config((1,), prior=choices.WALK)).by_band
    assert np.all(later.score(found).by_band < 1.03 * walk)
    assert later.score(Config((1,), prior=Prior())).by_band[-1] > 1.1 * walk[-1]


def test_prices_beside_series_with_a_mean_are_increments_by_themselves():
    rows = np.column_stack([random_walks(1500, 2, 3), var_rows(1500, 2, seed=4)])
    found = choices.choose(judge_of(pd.DataFrame(rows, columns=list("abcd"))), Given())[0].config
    assert found.prior.sums == (0.0, 0.0, np.inf, np.inf)
    assert "increments of 2 of 4 series" in found.prior.describe()


def test_a_short_random_walk_has_no_level_and_small_weights():
    frame = pd.DataFrame(np.random.default_rng(5).normal(size=(400, 2)).cumsum(0), columns=list("ab"))
    found = choices.choose(judge_of(frame), Given())[0].config.prior
    assert found.sums <= 0.03 and found.tightness <= 0.1


def test_a_logarithm_is_for_the_column_whose_logarithm_is_a_normal_law():
    rows = var_rows(1200, 2, seed=3)
    values = np.column_stack([np.exp(rows[:, 0]), rows[:, 1] + 10.0])
    found = choices.choose(judge_of(pd.DataFrame(values, columns=["skewed", "plain"])), Given())[0]
    assert found.config.transform == ("scaled_log1p", None)


def test_short_series_that_grow_by_percentages_become_increments_of_logarithms():
    rng = np.random.default_rng(2)
    growth = np.zeros((160, 5))
    for t in range(1, 160):
        growth[t] = 0.5 * growth[t - 1] + 0.006 * rng.normal(size=5)
    frame = pd.DataFrame(100.0 * np.exp(np.cumsum(0.01 + growth, axis=0)), columns=list("abcde"))
    found = choices.choose(judge_of(frame), Given())[0]
    assert found.config.transform == ("scaled_log1p",) * 5
    assert found.config.prior.cross >= 10.0 and found.config.prior.sums == 0.0
    assert set(found.reasons) == {"calendar", "lags", "prior", "transform"}


def test_short_series_without_a_unit_root_have_a_level():
    frame = pd.DataFrame(np.random.default_rng(3).normal(size=(200, 2)), columns=list("ab"))
    found = choices.choose(judge_of(frame), Given())[0].config
    assert np.isinf(found.prior.sums) and found.transform == ()


def test_what_is_given_stays():
    frame = pd.DataFrame(var_rows(300), pd.date_range("2021-01-01", periods=300, freq="h"))
    found = choices.choose(judge_of(frame), Given((1, 5), ("day",), (None, "asinh", None)))[0].config
    assert (found.lags, found.periods, found.transform) == ((1, 5), ("day",), (None, "asinh", None))


def seasonal_walk(n, season=4, seed=0):
    """Each increment is that of a season ago, and noise."""
    steps = np.random.default_rng(seed).normal(size=n)
    for t in range(season, n):
        steps[t] = steps[t - season] + 0.3 * steps[t]
    return np.cumsum(steps)[:, None]


def test_a_prior_around_a_season_is_a_shift_of_the_targets():
    """The posterior mean minimises |y − X (m + w)|²/σ² + wᵀ P w."""
    z = seasonal_walk(80)
    stretch, lags, prior = linear.Stretch(z, np.ones_like(z, bool), np.zeros((80, 0))), (1, 2, 3, 4, 5), Prior(season=4)
    found = linear.moments(stretch, lags, 0, 80)
    X, start = linear.design(stretch, lags), means(lags, 1, 6, prior)[0]
    np.testing.assert_array_equal(start, [0, 0, 0, 1, -1, 0])
    left = np.diff(z[4:, 0]) - X @ start
    shifted = found.about(start[None])
    np.testing.assert_allclose(shifted.cross[:, 0], X.T @ left, atol=1e-9)
    np.testing.assert_allclose(shifted.squares, [left @ left])
    tight = linear.regression(found, lags, Prior(1e-4, season=4))
    np.testing.assert_allclose(tight.weights[0], start[:-1], atol=1e-3)


def test_the_evidence_chooses_a_season_where_there_is_one():
    lags = (1, 2, 3, 4, 5)
    for rows, season in ((seasonal_walk(80), 4), (np.cumsum(np.random.default_rng(0).normal(size=(80, 1)), 0), None)):
        stretch = linear.Stretch(rows, np.ones_like(rows, bool), np.zeros((80, 0)))
        assert by_evidence.chosen([stretch], [(1,), lags], 4).prior.season == season
    assert all(prior.season is None for prior in by_evidence.priors_of(1, (1, 2, 3, 4), 4))  # no fifth lag


def test_scores_are_honest():
    """Rows after the fold do not change its score, and a model that knows nothing scores worse."""
    frame = pd.DataFrame(var_rows(500))
    judge = judge_of(frame)
    score = judge.score(Config((1,)))
    walk = judge.score(Config((1,), prior=Prior(1e-6)))
    assert score.total < walk.total


@pytest.mark.parametrize(
    ("freq", "n", "season"),
    [("h", 100, 24), ("D", 100, 7), ("B", 100, 5), ("B", 53, 5), ("MS", 100, 12), ("QS", 50, 4)],
)
def test_the_season_has_as_many_rows_as_the_shortest_period(freq, n, season):
    for start in ("2021-03-01", "2021-03-05"):
        index = pd.date_range(start, periods=n, freq=freq)
        assert choosing.season_of([index], choosing.eligible_periods([index])) == season


def test_a_long_gap_is_no_step_of_a_season():
    days = pd.bdate_range("2021-03-01", periods=100)
    assert choosing.season_of([days[:40].append(days[70:])], ("week",)) == 5


@pytest.mark.parametrize(
    ("freq", "n", "periods"),
    [
        ("h", 24 * 20, ("day", "week")),
        ("h", 30, ()),
        ("D", 800, ("week", "year")),
        ("MS", 40, ("year",)),
        ("QS", 40, ("year",)),
        ("h", 2 * 365 * 24, ("day", "week", "year")),  # two calendar years
        ("h", 2 * 365 * 24 - 24, ("day", "week")),
    ],
)
def test_periods_that_the_data_cover_twice(freq, n, periods):
    assert choosing.eligible_periods([pd.date_range("2000-01-01", periods=n, freq=freq)]) == periods


# --- recalibration -----------------------------------------------------------------------------------


def test_factors_are_those_of_errors_that_are_too_wide():
    rng = np.random.default_rng(2)
    sd = np.array([1.0, 1.5])
    errors = np.abs(rng.normal(size=(4000, 8, 2)) * sd) / 1.2815515655446004
    bands = choosing.bands_of(8)
    found = recalibration.horizon_scales(errors, errors, errors, bands, 4000)
    np.testing.assert_allclose(found.at(np.array([1.0, 3.0, 100.0])), np.tile(sd, (3, 1)), rtol=0.05)
    twice = recalibration.horizon_scales(errors, 1.2 * errors, errors, bands, 4000)
    np.testing.assert_allclose(twice.scales, 1.2 * found.scales, rtol=0.02)


def test_few_errors_leave_bands_as_they_are():
    errors = np.full((20, 3, 1), 2.0)
    bands = choosing.bands_of(3)
    assert recalibration.horizon_scales(errors[:5], errors[:5], errors[:5], bands, 20) is None
    by_rows = [recalibration.horizon_scales(errors, errors, errors, bands, n).scales for n in (5, 20, 2000)]
    assert np.all(by_rows[0] < 1.5) and np.all(by_rows[0] < by_rows[1]) and np.all(by_rows[1] < by_rows[2])


def test_rolled_factors_mend_bands_of_weights_that_few_rows_tell():
    """Random walks of 120 rows: a regression believes that they come back, and its bands are too narrow far ahead."""
    rng, covered = np.random.default_rng(4), []
    for _ in range(40):
        walk = pd.DataFrame(np.cumsum(rng.normal(size=(150, 2)), axis=0), columns=["a", "b"])
        units, tails = training_data(read(walk.iloc[:120], "y"), None, DynamicsSpec(lags=2), None, False, None)
        rolled = calibrating.Rolled(units, parts_of(units, tails, 0.1), (1, 2), Prior(0.3), None)
        whole = linear.fitted([p.rows for p in rolled.parts], (1, 2), Prior(0.3))
        found = calibrating.calibrated_bands(rolled, None, whole)
        z, origins, n = units.forward(walk.to_numpy()), np.array([120, 130, 140]), rolled.n_steps
        means, sd = linear.rolled(whole, stretch_of(z), origins, n)
        errors = np.abs(np.stack([z[o : o + n] for o in origins]) - means)
        scales = (np.ones((n, 2)), found.at(np.arange(1.0, n + 1)))
        covered.append([np.mean((errors <= 1.2816 * sd * s)[:, n // 2 :]) for s in scales])
    plain, mended = np.mean(covered, axis=0)
    assert plain < 0.74 and abs(mended - 0.8) < 0.05


def test_moved_draws_have_the_density_that_backward_gives():
    rng = np.random.default_rng(3)
    scales = recalibration.HorizonScales(np.array([1.0, 9.0]), np.array([[0.5, 2.0], [2.0, 0.5]]))
    draws = rng.normal(size=(50, 2, 2))
    law = recalibration.Moved.of(scales, draws, np.array([1.0, 3.0]))
    np.testing.assert_allclose(law.scale, [[0.5, 2.0], [1.0, 1.0]])
    np.testing.assert_allclose(law.draws.mean(0), draws.mean(0))
    np.testing.assert_allclose(law.draws.std(0), draws.std(0) * law.scale)
    np.testing.assert_allclose(law.backward(law.draws[7]), draws[7])
    np.testing.assert_allclose(law.log_scale, 0.0, atol=1e-12)


def test_another_unit_of_a_column_with_holes_is_worth_nothing():
    """What the evidence of one law gains in another unit, the slope takes, at the rows that it counts."""
    rng = np.random.default_rng(0)
    values, is_seen = rng.normal(size=(200, 1)).cumsum(0), rng.random((200, 1)) > 0.5
    plain, moved = (linear.Stretch(unit * values, is_seen, np.zeros((200, 0))) for unit in (1.0, 4.0))
    slopes = np.where(is_seen, np.log(4.0), np.nan)
    (gain,) = by_evidence.gains([plain], [moved], [slopes], (1,))
    assert abs(gain) < 1.0  # counted at all rows it would be 100 log 4
