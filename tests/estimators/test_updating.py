"""`update` of the forecaster: rows are merged cell by cell; training goes on without harm, or not at all."""

import copy
import dataclasses
import pickle

import jax
import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.callbacks import Callback
from wishflow.files.model_file import read_model, write_model
from wishflow.series import updating
from wishflow.series.data.frames import read
from wishflow.series.data.intake import further_rows
from wishflow.series.updating import Gain, Judges, is_taken, reservoir_of

SMALL = {"n_inducing": 8, "max_iter": 40, "rank": 2, "n_train_samples": 2, "random_state": 0, "validation_fraction": 0}
HOURS = pd.date_range("2021-03-01", periods=1500, freq="h")


def simulated(n, factor=1.0, change=None, seed=0):
    """More noise where the first series is high; from row `change` on all noise is multiplied by the factor."""
    rng = np.random.default_rng(seed)
    y = np.zeros((n, 2))
    for t in range(1, n):
        spread = (0.1 + 0.3 * (y[t - 1, 0] > 0.0)) * (factor if change is not None and t >= change else 1.0)
        y[t] = 0.9 * y[t - 1] + spread * np.array([[1.0, 0.0], [0.8, 0.6]]) @ rng.normal(size=2)
    return pd.DataFrame(y, HOURS[:n], ["a", "b"])


@pytest.fixture(scope="module")
def y():
    return simulated(200)


@pytest.fixture(scope="module")
def fitted(y):
    return wf.WishartForecaster(**SMALL).fit(y.iloc[:150])


def values_at(model, stamps, key=None):
    """What is known at some stamps, in the units of the data."""
    tail = model.tails_[key]
    return model.units_.inverse(tail.values[tail.index.get_indexer(stamps)])


# --- merging ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", ["tails_", "reservoir_"])
def test_a_nan_leaves_what_was_known_and_a_number_replaces_it(fitted, y, kept):
    new = y.iloc[147:152].copy()
    new.iloc[0, 0] = 7.0  # corrects
    new.iloc[1] = np.nan  # says nothing of a row
    new.iloc[2, 1] = np.nan  # nor of an entry
    moved = copy.copy(fitted).update(new)
    expected = y.iloc[147:152].copy()
    expected.iloc[0, 0] = 7.0
    tail = getattr(moved, kept)[None]
    found = moved.units_.inverse(tail.values[tail.index.get_indexer(HOURS[147:152])])
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    at_once = copy.copy(fitted).update(expected)
    np.testing.assert_array_equal(moved.forecast(2, n_draws=5).samples, at_once.forecast(2, n_draws=5).samples)


def test_rows_that_are_not_given_are_kept(fitted, y):
    """Two corrected rows with a known one between them: the hole in the new rows is none in the past."""
    moved = copy.copy(fitted).update(y.iloc[[146, 148]] + 1.0)
    np.testing.assert_allclose(
        values_at(moved, HOURS[146:149]), y.iloc[146:149] + np.array([[1.0], [0.0], [1.0]]), rtol=1e-12
    )


@pytest.mark.slow
def test_an_entry_that_was_missing_is_filled(y):
    holed = y.iloc[:150].copy()
    holed.iloc[145, 0] = np.nan
    model = wf.WishartForecaster(**SMALL).fit(holed).update(y.iloc[145:146])
    np.testing.assert_allclose(values_at(model, HOURS[145:146]), y.iloc[145:146], rtol=1e-12)


# --- the reservoir ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lags", [1, 3])
def test_the_reservoir_is_the_latest_half_and_blocks_of_the_past(lags):
    y = simulated(1500)
    model = wf.WishartForecaster(**{**SMALL, "max_iter": 1}, lags=lags, reservoir_size=500).fit(y.iloc[:400])
    assert len(model.reservoir_[None].index) == 400
    before = model.reservoir_[None].index
    for end in range(600, 1501, 300):
        model.update(y.iloc[end - 200 if end == 600 else end - 300 : end])
        index = model.reservoir_[None].index
        assert index[-250:].equals(HOURS[end - 250 : end]) and 250 < len(index) <= 500
        # No row comes back, and no step leads from one block to the next: the gaps between them cut a series.
        assert index.difference(before).isin(HOURS[end - 300 : end]).all()
        gaps = np.diff(index) / pd.Timedelta("1h")
        assert ((gaps == 1.0) | (gaps > model.max_gap)).all()
        before = index
    assert index[0] < HOURS[700]
    # All rows but the first of each block are there to learn from.
    n_blocks = 1 + int((gaps > 1.0).sum())
    ticks = model.units_.ticks(model.reservoir_[None])
    transitions, windows = updating.scored_items(ticks, model.spec_)
    assert len(ticks) == n_blocks and len(transitions) == len(index) - lags * n_blocks and not len(windows)
    np.testing.assert_allclose(model.units_.inverse(model.reservoir_[None].values), y.loc[index], atol=1e-12)


def test_the_rows_that_judge_are_the_latest_of_each_kind(fitted, y):
    rows = updating.merged(fitted.units_, fitted.reservoir_, _admitted(fitted, y.iloc[150:]))
    judges = Judges.of(rows[None], fitted.reservoir_[None])
    assert np.flatnonzero(judges.old).tolist() == list(range(125, 150))
    assert np.flatnonzero(judges.new).tolist() == list(range(188, 200))
    nothing_new = Judges.of(rows[None], rows[None])
    assert not nothing_new.new.any() and nothing_new.old.sum() == 33
    all_new = Judges.of(rows[None], None)
    assert not all_new.old.any() and all_new.new.sum() == 50


def judges_of(model, frame):
    """The rows that judge an update: old ones, new ones."""
    rows = updating.merged(model.units_, model.reservoir_, _admitted(model, frame))
    judges = Judges.of(rows[None], model.reservoir_[None])
    return [rows[None].index[flags].tolist() for flags in (judges.old, judges.new)]


def test_rows_that_were_known_before_are_old_also_where_they_come_again(fitted, y):
    """The whole history sent again, a rolling window, and corrections with rows to come."""
    expected = [HOURS[125:150].tolist(), HOURS[188:200].tolist()]
    for frame in (y, y.iloc[100:], pd.concat([y.iloc[[120, 140]] + 0.1, y.iloc[150:]])):
        assert judges_of(fitted, frame) == expected
    assert judges_of(fitted, y.iloc[:150]) == [expected[0], []]


def test_rows_without_a_value_do_not_judge(fitted, y):
    """Every second row is missing: the grid is filled with rows of NaN."""
    assert judges_of(fitted, y.iloc[150::2])[1] == HOURS[188:200:2].tolist()


def test_rows_that_the_reservoir_dropped_are_not_new():
    y = simulated(1200)
    model = wf.WishartForecaster(**{**SMALL, "max_iter": 1}, reservoir_size=500).fit(y.iloc[:1100])
    known = model.reservoir_[None].index
    assert len(known) <= 500
    old, new = judges_of(model, y)
    assert new == HOURS[1175:1200].tolist() and old == known[-(len(known) // 6) :].tolist()


@pytest.mark.slow
def test_the_whole_history_again_is_trained_on_as_before(monkeypatch, fitted, y):
    problems = changed_to(monkeypatch, lambda model: model)
    models = [copy.copy(fitted).update(frame, update_params=True) for frame in (y, y.iloc[150:])]
    assert [problem.n_items for problem in problems] == [150 + 38 - 1] * 2
    assert models[0].status_ == models[1].status_ and "(25 rows)" in models[0].status_


def _admitted(model, frame):
    return {key: tail for key, (tail, _) in further_rows(model.units_, read(frame, "y"), None).items()}


# --- training that goes on --------------------------------------------------------------------------


def changed_to(monkeypatch, change):
    """Training that ends at a given change of the model; the problems it was asked."""
    problems, train = [], updating.train_series

    def trained(problem, callbacks=None):
        problems.append(problem)
        return dataclasses.replace(train(problem, callbacks), model=change(problem.model))

    monkeypatch.setattr(updating, "train_series", trained)
    return problems


def test_parameters_that_do_harm_are_not_taken(monkeypatch, fitted, y):
    problems = changed_to(monkeypatch, lambda model: jax.tree.map(lambda leaf: leaf + 0.5, model))
    model = copy.copy(fitted).update(y.iloc[150:], update_params=True)
    assert model.model_ is fitted.model_ and model.end_ == HOURS[199]
    assert model.status_.startswith("update rejected, the parameters were kept: old rows gained -")
    assert set(model.history_["phase"].iloc[fitted.n_iter_ :]) == {"rejected update"}
    # All rows of the past and three quarters of the new ones, less the very first, which has no past.
    assert problems[0].n_items == 150 + 38 - 1 and problems[0].model is fitted.model_
    same = copy.copy(fitted).update(y.iloc[150:])
    np.testing.assert_array_equal(model.forecast(3, n_draws=5).samples, same.forecast(3, n_draws=5).samples)


def test_parameters_without_a_density_are_not_taken():
    lost = Gain.of(np.zeros(3), np.array([1.0, 1.0, np.nan]))
    assert not is_taken(lost, Gain(0.1, 0.1, 3)) and not is_taken(Gain(0.1, 0.1, 3), lost)
    # A row without a past has no score, before and after.
    assert Gain.of(np.array([np.nan, 0.0]), np.array([np.nan, 0.5])).mean == 0.5


def test_a_density_that_was_zero_is_a_gain_and_one_that_became_zero_a_loss():
    fine, none = np.zeros(3), np.array([0.0, -np.inf, 0.0])
    assert is_taken(Gain.of(none, fine), Gain.of(fine, fine)) and is_taken(Gain.of(none, none), Gain.of(fine, fine))
    for before, after in ((fine, none), (none, none[[1, 0, 0]]), (none, np.array([0.0, 0.0, np.nan]))):
        assert not is_taken(Gain.of(before, after), Gain.of(fine, fine))


def test_both_parts_judge():
    better, worse, noise = Gain(0.1, 0.01, 50), Gain(-0.1, 0.01, 50), Gain(-0.1, 0.2, 5)
    assert is_taken(better, better) and is_taken(better, noise) and is_taken(noise, better)
    assert not is_taken(better, worse) and not is_taken(worse, better)


def test_parameters_that_are_no_worse_are_taken(monkeypatch, fitted, y):
    changed_to(monkeypatch, lambda model: jax.tree.map(np.copy, model))
    model = copy.copy(fitted).update(y.iloc[150:], update_params=True)
    assert model.model_ is not fitted.model_ and model.status_.startswith("update accepted: old rows gained +0.0000")
    assert model.n_iter_ == len(model.history_) == fitted.n_iter_ + 8
    assert set(model.history_["phase"].iloc[fitted.n_iter_ :]) == {"update"}


def followed(model, y, n_start, n_days, n_after):
    """Gains in log density of rows to come by training day after day, over a model that is only conditioned."""
    frozen = copy.copy(model)
    for day in range(n_days):
        rows = y.iloc[n_start + 24 * day : n_start + 24 * (day + 1)]
        model.update(rows, update_params=True)
        frozen.update(rows)
    after = y.iloc[n_start + 24 * n_days :][:n_after]
    return model.log_prob(after) - frozen.log_prob(after)


DAILY = {
    "rank": 2,
    "n_inducing": 10,
    "max_iter": 300,
    "n_train_samples": 8,
    "random_state": 0,
    "validation_fraction": 0,
}


@pytest.mark.slow
@pytest.mark.parametrize("n_days", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_training_day_after_day_does_no_harm(n_days):
    """A day is a small part of what is known: a model that goes on with it alone loses what it knew."""
    y = simulated(1100)
    model = wf.WishartForecaster(**DAILY).fit(y.iloc[:500])
    gains = followed(model, y, 500, n_days, 300)
    assert gains.mean() > -0.01 - 2.0 * gains.std() / np.sqrt(len(gains))


@pytest.mark.slow
def test_training_follows_a_series_that_has_changed():
    y = simulated(300 + 24 * 12 + 300, factor=2.0, change=300)
    gains = followed(wf.WishartForecaster(**DAILY).fit(y.iloc[:300]), y, 300, 12, 300)
    assert gains.mean() > 0.2


class Failing(Callback):
    def on_chunk(self, event):
        raise RuntimeError("stopped")


def test_an_error_leaves_the_forecaster_as_it_was(fitted, y):
    model = copy.copy(fitted)
    model.callbacks = [Failing()]
    before = dict(vars(model))
    with pytest.raises(RuntimeError, match="stopped"):
        model.update(y.iloc[150:], update_params=True)
    assert vars(model).keys() == before.keys() and all(vars(model)[name] is before[name] for name in before)


@pytest.mark.slow
@pytest.mark.parametrize("lags", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_new_series_of_a_panel_are_trained_on_too(y, lags):
    panel = {"one": y.iloc[:100], "two": y.iloc[100:200]}
    model = wf.WishartForecaster(**SMALL, lags=lags).fit(panel)
    before = model.reservoir_["two"]
    model.update({"one": y.iloc[100:140], "three": y.iloc[:60]}, update_params=True)
    assert [len(model.reservoir_[key].index) for key in ("one", "two", "three")] == [140, 100, 60]
    assert model.reservoir_["two"] is before and "update" in model.status_
    found = model.forecast(2, n_draws=5)
    assert list(found) == ["one", "two", "three"] and found["three"].index[0] == HOURS[60]


@pytest.mark.slow
def test_a_row_or_two_can_be_trained_on(fitted, y):
    model = copy.copy(fitted)
    for k in (150, 151):
        model.update(y.iloc[k : k + 1], update_params=True)
    assert model.end_ == HOURS[151] and "(0 rows)" in model.status_


@pytest.mark.slow
def test_a_latent_model_can_be_trained_on(y):
    model = wf.WishartForecaster(**{**SMALL, "max_iter": 5}, latent_dim=1).fit(y.iloc[:80])
    model.update(y.iloc[80:110], update_params=True)
    assert model.status_.startswith("update") and model.end_ == HOURS[109]


# --- files ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_reservoir_is_part_of_files_and_pickles(fitted, y, tmp_path):
    fitted.save(tmp_path / "model")
    expected = copy.copy(fitted).update(y.iloc[150:], update_params=True)
    for again in (wf.load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        again.update(y.iloc[150:], update_params=True)
        assert again.status_ == expected.status_
        np.testing.assert_array_equal(again.forecast(2, n_draws=5).samples, expected.forecast(2, n_draws=5).samples)


@pytest.mark.slow
def test_files_without_a_reservoir_are_trained_on_with_a_warning(fitted, y, tmp_path):
    fitted.save(tmp_path / "new")
    header, arrays = read_model(tmp_path / "new")
    del header["reservoir"]
    arrays = {name: value for name, value in arrays.items() if not name.startswith("reservoir.")}
    write_model(tmp_path / "old", header, arrays)
    model = wf.load(tmp_path / "old").update(y.iloc[150:160])
    with pytest.warns(UserWarning, match="holds no past rows"):
        model.update(y.iloc[160:], update_params=True)
    assert model.status_.startswith("update") and model.end_ == HOURS[199]
    model.save(tmp_path / "again")
    assert wf.load(tmp_path / "again").reservoir_ is None


def test_a_panel_of_many_series_keeps_some_rows_of_each(fitted):
    many = dict.fromkeys(range(100), fitted.reservoir_[None])
    assert {len(tail.index) for tail in reservoir_of(fitted.units_, many).values()} == {150}


@pytest.mark.parametrize("has_rows", [True, False], ids=["X in the hole", "no X in the hole"])
@pytest.mark.parametrize("lags", [1, 3])
def test_covariates_in_a_hole_before_new_rows_are_those_of_a_hole_in_fit(lags, has_rows):
    """Its own where X has a row there, otherwise those of the next row."""
    whole = pd.date_range("2024-03-01", periods=72, freq="h")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"u": 3.0 * rng.normal(size=72)}, whole)
    y = pd.DataFrame(rng.normal(size=(72, 2)).cumsum(axis=0) + X.to_numpy().cumsum(axis=0), whole, ["a", "b"])
    hole = whole[60:65]
    y, X = y.drop(hole), X if has_rows else X.drop(hole)
    few = {"n_inducing": 5, "max_iter": 3, "rank": 1, "validation_fraction": 0, "freq": "h", "calendar": True}
    model = wf.WishartForecaster(lags=lags, **few).fit(y.iloc[:60], X)
    assert model.calendar_ == ("day",)
    new = y.iloc[60:]
    np.testing.assert_allclose(model.log_prob(new, X), model.log_prob(y, X)[60:], rtol=1e-5)
    (before,) = copy.copy(model).update(new, X).tails_.values()
    again = wf.WishartForecaster(lags=lags, **few).fit(y, X)
    (fitted,) = again.tails_.values()
    assert before.index.equals(fitted.index)
    known = [
        units.x_scaler.inverse(tail.covariates[:, :1])
        for units, tail in ((model.units_, before), (again.units_, fitted))
    ]
    np.testing.assert_allclose(known[0], known[1], atol=1e-9)
    np.testing.assert_allclose(before.covariates[:, 1:], fitted.covariates[:, 1:])
