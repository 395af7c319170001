"""Rows after `fit` are compared with those held back in it: few false alarms, and alarms soon after a change."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.errors import OptionError
from wishflow.series.drift import ROWS_PER_FALSE_ALARM, DriftMonitor
from wishflow.series.step_scores import last_steps
from wishflow.series.windows import Transitions

SMALL = {"n_inducing": 8, "max_iter": 10, "rank": 2, "n_train_samples": 2, "lags": 1, "calendar": False}
SMALL |= {"transform": None, "random_state": 0, "validation_fraction": 0.25}
N = 400


def simulated(n, seed=0, shift=0.0, factor=1.0, start=None):
    """Two series that return to a level; `shift` is that of the level of the first, in stationary deviations."""
    rng = np.random.default_rng(seed)
    y, level = np.zeros((n, 2)), np.array([shift / np.sqrt(1.0 - 0.6**2), 0.0])
    last = np.zeros(2) if start is None else start
    for t in range(n):
        last = level + 0.6 * (last - level) + factor * np.array([[1.0, 0.0], [0.5, 0.8]]) @ rng.normal(size=2)
        y[t] = last
    return y


def frame(values, first=0):
    index = pd.date_range("2021-03-01", periods=first + len(values), freq="h")[first:]
    return pd.DataFrame(10.0 + values, index, ["a", "b"])


@pytest.fixture(scope="module")
def past():
    return simulated(N)


@pytest.fixture(scope="module")
def fitted(past):
    return wf.WishartForecaster(**SMALL).fit(frame(past))


def after(fitted, past, n, **change):
    """The forecaster after n rows more, whatever it warns of."""
    moved = copy.copy(fitted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return moved.update(frame(simulated(n, start=past[-1], **change), N))


# --- the statistic ----------------------------------------------------------------------------------


def scores(rng, n, n_scores=3):
    z = rng.normal(size=(n, n_scores))
    z[:, 0] = -0.5 * rng.chisquare(n_scores, size=n)
    return z


def test_false_alarms_are_as_rare_as_documented():
    """One in 10,000 rows: at most 1 − exp(−0.1) of runs of 1,000 rows, but for the error of 60 runs."""
    rng = np.random.default_rng(0)
    runs = [DriftMonitor.of(scores(rng, 150)).after(scores(rng, 1000)).is_due for _ in range(60)]
    expected = 60 * (1.0 - np.exp(-1000 / ROWS_PER_FALSE_ALARM))
    assert sum(runs) <= expected + 2.0 * np.sqrt(expected)


@pytest.mark.parametrize(("shift", "factor"), [(1.5, 1.0), (0.0, 2.5), (0.0, 0.2)], ids=["level", "wider", "narrower"])
def test_changes_of_the_scores_are_found(shift, factor):
    rng = np.random.default_rng(1)
    for _ in range(10):
        new = scores(rng, 80)
        new = np.column_stack([factor**2 * new[:, 0], factor * new[:, 1:] + [shift, 0.0]])
        assert DriftMonitor.of(scores(rng, 150)).after(new).is_due


def test_the_sums_do_not_depend_on_how_rows_are_divided():
    rng = np.random.default_rng(2)
    monitor, new = DriftMonitor.of(scores(rng, 50)), scores(rng, 40) + 1.0
    at_once, by_row = monitor.after(new), monitor
    for row in new:
        by_row = by_row.after(row[None])
    np.testing.assert_array_equal(at_once.sums, by_row.sums)
    assert at_once.alarm == by_row.alarm and by_row.n_rows == 40


def test_scores_without_a_number_are_extreme():
    rng = np.random.default_rng(3)
    monitor = DriftMonitor.of(scores(rng, 100))
    bad = np.tile([-np.inf, np.nan, np.inf], (40, 1))
    assert monitor.after(bad).is_due and np.isfinite(monitor.after(bad).sums).all()


def test_few_held_back_rows_say_nothing():
    assert DriftMonitor.of(np.zeros((10, 2))) is None and DriftMonitor.of(None) is None


# --- the forecaster ---------------------------------------------------------------------------------


def test_rows_of_the_same_law_raise_no_alarm(fitted, past):
    """A tenth of runs of 1,000 rows at most: of ten runs of 200 rows a fifth of one."""
    moved = [after(fitted, past, 200, seed=seed) for seed in range(10, 20)]
    assert sum(model.refit_due_ for model in moved) <= 1
    numbers = moved[0].drift_
    assert numbers["n_rows"] == 200.0 and 0.0 <= numbers["statistic"] < numbers["threshold"]


@pytest.mark.parametrize(
    ("change", "n", "words"),
    [({"shift": 4.0}, 60, "'a' lies above|less likely"), ({"factor": 2.5}, 60, "less likely")],
    ids=["level", "scale"],
)
def test_a_change_raises_one_alarm_within_some_rows(fitted, past, change, n, words):
    moved = copy.copy(fitted)
    new = frame(simulated(n + 20, seed=3, start=past[-1], **change), N)
    with pytest.warns(UserWarning, match=f"a new fit is due: .*({words})"):
        moved.update(new.iloc[:n])
    assert moved.refit_due_ and moved.drift_["alarm"] <= n and "a new fit is due" in moved.summary()
    assert not fitted.refit_due_ and fitted.drift_["n_rows"] == 0.0
    moved.update(new.iloc[n:])  # it is said once: warnings are errors here


def test_an_alarm_that_is_an_error_leaves_the_forecaster_as_it_was(fitted, past):
    moved = copy.copy(fitted)
    with pytest.raises(UserWarning, match="a new fit is due"):  # warnings are errors here
        moved.update(frame(simulated(60, start=past[-1], shift=4.0), N))
    assert all(vars(moved)[name] is value for name, value in vars(fitted).items())


def test_a_refit_starts_anew(fitted, past):
    moved = after(fitted, past, 60, factor=3.0, seed=4)
    assert moved.refit_due_
    assert not moved.fit(frame(past)).refit_due_ and moved.drift_["n_rows"] == 0.0


def test_rows_that_are_known_or_have_holes_do_not_count(fitted, past):
    new = frame(simulated(6, seed=5, start=past[-1]), N)
    new.iloc[2, 0] = np.nan
    moved = copy.copy(fitted).update(pd.concat([frame(past).iloc[-5:], new]))
    assert moved.drift_["n_rows"] == 4.0  # neither the row with a hole nor the one after it


def test_files_and_pickles_go_on_where_they_were(fitted, past, tmp_path):
    moved = after(fitted, past, 30, seed=6)
    moved.save(tmp_path / "model.wf")
    new = frame(simulated(5, seed=7, start=past[-1]), N + 30)
    expected = copy.copy(moved).update(new).drift_
    for other in (wf.load(tmp_path / "model.wf"), pickle.loads(pickle.dumps(moved))):
        assert other.update(new).drift_ == expected


def test_mixtures_and_panels_are_watched(past):
    rows = {"one": frame(past), "two": frame(3.0 * simulated(N, seed=8))}
    model = wf.WishartForecaster(n_members=2, **SMALL).fit(rows)
    model.update({"one": frame(simulated(10, seed=9, start=past[-1]), N)})
    assert model.drift_["n_rows"] == 10.0 and not model.refit_due_
    assert copy.copy(model).update({"new": frame(np.full((3, 2), np.nan))}).drift_ == model.drift_


def test_reference_steps_are_the_latest_of_all_series_alike():
    """Three series with 5, 2 and 4 held-back steps of which 6 are kept: the last two of each."""
    ages = np.concatenate([np.arange(n)[::-1] for n in (9, 6, 8)])
    is_held = np.concatenate([np.arange(n)[::-1] < k for n, k in ((9, 5), (6, 2), (8, 4))])
    number = np.arange(len(ages))
    steps = Transitions(number[:, None] * 1.0, number[:, None] * 1.0, np.ones(len(ages)), number)
    assert list(last_steps(steps, is_held, ages, 6).row) == [7, 8, 13, 14, 21, 22]
    assert list(last_steps(steps, is_held, ages, 100).row) == list(number[is_held])


def test_without_held_back_rows_nothing_is_compared(past):
    model = wf.WishartForecaster(**{**SMALL, "validation_fraction": 0}).fit(frame(past[:60]))
    assert model.drift_ is None and not model.refit_due_
    assert model.update(frame(50.0 + past[:30], 60)).drift_ is None


# --- the reservoir ----------------------------------------------------------------------------------


def test_no_rows_are_kept_where_none_are_asked_for(past, tmp_path):
    model = wf.WishartForecaster(**{**SMALL, "validation_fraction": 0}, reservoir_size=0).fit(frame(past[:200]))
    assert model.reservoir_ == {}
    model.save(tmp_path / "model.wf")
    again = wf.load(tmp_path / "model.wf")
    assert again.reservoir_ == {} and len(again.tails_[None].index) < 200
    again.update(frame(past[200:230], 200), update_params=True)  # with the last rows, and without a warning
    assert "update" in again.status_ and again.reservoir_ == {}


@pytest.mark.parametrize("size", [-1, 1.5, True, 10**7])
def test_the_size_of_the_reservoir_is_checked(past, size):
    with pytest.raises(OptionError, match=r"reservoir_size=.* expected a whole number from 0 to 1000000"):
        wf.WishartForecaster(**SMALL, reservoir_size=size).fit(frame(past))


def test_a_small_reservoir_holds_no_more_rows_than_its_size(past):
    model = wf.WishartForecaster(**{**SMALL, "validation_fraction": 0}, reservoir_size=150).fit(frame(past))
    assert 75 <= len(model.reservoir_[None].index) <= 150
