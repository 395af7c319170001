"""Training that goes wrong says so: a warning where something usable is left, an error where nothing is."""

import dataclasses
import warnings

import jax
import numpy as np
import optax
import pandas as pd
import pytest
from test_loop import SMALL, leaves, problem

import wishflow as wf
from wishflow.callbacks import CallbackList
from wishflow.errors import TrainingError
from wishflow.numerics import platform
from wishflow.numerics.devices import compiled, computing
from wishflow.regression import lbfgs
from wishflow.regression import training as rows
from wishflow.regression.training import train
from wishflow.training.journal import Journal
from wishflow.training.loop import advance, begin, end, is_over, went_wrong
from wishflow.training.phases import AbstractStream

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)
SERIES = pd.DataFrame(0.1 * RNG.normal(size=(120, 2)).cumsum(0), index=pd.date_range("2020", periods=120, freq="h"))
OPTIONS = {"n_inducing": 10, "random_state": 0}


def test_an_objective_that_falls_is_told():
    steep = dataclasses.replace(SMALL, max_iter=100, learning_rate=10.0)
    with pytest.warns(RuntimeWarning, match=r"diverged: the objective fell from .*start was kept.* learning_rate"):
        (trained,) = train([problem(training=steep)])
    assert trained.status.startswith("diverged")


def test_training_that_falls_ends_at_its_start():
    """All steps are finite, and lead down: what is fitted is no worse than without any step."""
    steep = dataclasses.replace(SMALL, max_iter=100, learning_rate=30.0)
    group = rows.Group.of([problem(training=steep)])
    with computing():
        phase = rows.phases_of(group)[-1]
        state = start = begin(phase, phase.start(rows.start_of(group)), (0,))
        while not is_over(phase, state):
            state, _, _ = advance(phase, state)
        moved = jax.tree.leaves(state.train.model)
        with pytest.warns(RuntimeWarning, match="learning_rate"):
            ended = end(phase, state, start.train)
    expected = jax.tree.leaves(start.train.model)
    assert not all(np.array_equal(a, b) for a, b in zip(moved, expected, strict=True))
    for a, b in zip(jax.tree.leaves(ended.models), expected, strict=True):
        np.testing.assert_array_equal(a, b)


class HarderLater(AbstractStream):
    """Rows whose numbers are three times as large after the first chunk."""

    def __init__(self, data):
        self.data = data

    def chunk(self, first):
        return self.data if first == 0 else jax.tree.map(lambda leaf: 3.0 * leaf, self.data)


def test_rows_of_files_that_are_harder_later_are_no_fall():
    """Start and end are compared on the same rows: a model that hardly moves is not given up for its start."""
    slow = dataclasses.replace(SMALL, max_iter=100, learning_rate=1e-6)
    group = rows.Group.of([problem(training=slow)])
    with computing(), warnings.catch_warnings():
        warnings.simplefilter("error")
        phase = rows.phases_of(group)[-1]
        stream = dataclasses.replace(phase.items, data=HarderLater(phase.items.data))
        phase = dataclasses.replace(phase, items=stream)
        state = start = begin(phase, phase.start(rows.start_of(group)), (0,))
        while not is_over(phase, state):
            state, _, _ = advance(phase, state)
        ended = end(phase, state, start.train)
    assert ended.status == ("reached max_iter",)


def test_an_ordinary_fit_is_silent():
    """Also in the middle of the warm-up, where the KL terms at their full weight are not what training climbs."""
    usual = dataclasses.replace(SMALL, max_iter=100, kl_warmup=1000, learning_rate=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (trained,) = train([problem(training=usual)])
    assert trained.status == "reached max_iter"


@pytest.mark.parametrize("rate", [1e3, 1e300])
def test_the_last_good_state_has_a_finite_objective(rate):
    """One step of such a rate gives parameters that are finite and an objective that is not."""
    wild = dataclasses.replace(SMALL, max_iter=100, learning_rate=rate)
    with pytest.warns(RuntimeWarning, match="the last good state was kept"):
        (trained,) = train([problem(training=wild)])
    assert all(np.abs(leaf).max() < 1e6 for leaf in leaves(trained))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fit",
    [
        lambda: wf.FlowRegressor(learning_rate=10.0, max_iter=150, validation_fraction=0, **OPTIONS).fit(X, Y),
        lambda: wf.FlowRegressor(learning_rate=10.0, max_iter=150, **OPTIONS).fit(X, Y),
        lambda: wf.WishartForecaster(learning_rate=10.0, max_iter=150, rank=2, validation_fraction=0, **OPTIONS).fit(
            SERIES
        ),
    ],
)
def test_estimators_tell_of_a_rate_that_is_too_high(fit):
    with pytest.warns(RuntimeWarning, match="lower learning_rate"):
        model = fit()
    if isinstance(model, wf.FlowRegressor):
        assert model.score(X, Y) > 0.8  # the sparse GP that a flow starts from


class Filters(wf.callbacks.Callback):
    """Which list of filters there is, in each phase."""

    def __init__(self):
        self.seen = {}

    def on_chunk(self, event):
        self.seen[event.phase] = warnings.filters


def test_training_leaves_the_filters_of_warnings_alone():
    """They belong to the process: of two threads that change them, one may leave its own behind for good."""
    watch, rng = Filters(), np.random.default_rng(0)
    values = np.zeros((300, 2))
    for t in range(299):  # no linear model
        values[t + 1] = 2.0 * np.sin(1.5 * values[t, ::-1]) + 0.2 * rng.normal(size=2)
    wf.WishartForecaster(max_iter=300, rank=1, lags=1, callbacks=watch, n_inducing=8, random_state=0).fit(values)
    assert {"series", "all rows"} == set(watch.seen)
    assert all(found is warnings.filters for found in watch.seen.values())


@pytest.mark.parametrize(("is_quiet", "n_warnings"), [(False, 1), (True, 0)])
def test_a_quiet_phase_says_how_it_ended_by_its_status_alone(is_quiet, n_warnings):
    wild = rows.Group.of([problem(training=dataclasses.replace(SMALL, max_iter=100, learning_rate=30.0))])
    with computing(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        phase = dataclasses.replace(rows.phases_of(wild)[-1], is_quiet=is_quiet)
        outcome = phase.run(phase.start(rows.start_of(wild)), Journal(CallbackList()))
    assert went_wrong(outcome.status[0]) and len(caught) == n_warnings


def test_a_rate_beyond_all_bounds_leaves_predictions():
    with pytest.warns(RuntimeWarning, match="not finite"):
        model = wf.FlowRegressor(learning_rate=1e300, max_iter=150, validation_fraction=0, **OPTIONS).fit(X, Y)
    assert np.isfinite(model.predict(X, return_std=True)).all()
    assert model.score(X, Y) > 0.8  # the sparse GP that a flow starts from


@pytest.mark.parametrize(
    ("make", "variance"), [(wf.SparseGPRegressor, 1e300), (wf.FlowRegressor, 1e300), (wf.FlowRegressor, 1e150)]
)
def test_a_kernel_that_nothing_can_be_computed_with_is_an_error(make, variance):
    model = make(kernel=wf.kernels.RBF(variance=variance), max_iter=20, **OPTIONS)
    with pytest.raises(TrainingError, match="not finite"):
        model.fit(X, Y)
    assert not hasattr(model, "model_")


def test_the_collapsed_bound_on_other_devices_is_checked_too(monkeypatch):
    """The branch of accelerators, on the CPU."""
    monkeypatch.setattr("wishflow.numerics.platform.trains_together", lambda n_models: n_models > 1)
    monkeypatch.setattr("wishflow.numerics.platform.minimises_on_host", lambda n_models: False)
    gp = wf.SparseGPRegressor(kernel=wf.kernels.RBF(variance=1e300), max_iter=20, **OPTIONS)
    with pytest.raises(TrainingError, match="not finite"):
        gp.fit(X, Y)


def test_steps_of_a_failed_line_search_are_refused(monkeypatch):
    """optax moves even where no step length was found, which can carry away a model that has converged."""
    monkeypatch.setattr(platform, "minimises_on_host", lambda n_models: False)
    monkeypatch.setattr(
        lbfgs, "OPTIMISER", optax.lbfgs(linesearch=optax.scale_by_zoom_linesearch(max_linesearch_steps=1))
    )
    monkeypatch.setattr(lbfgs, "collapsed_chunk", compiled(lambda *arguments: lbfgs.run_collapsed(*arguments)))
    model = wf.SparseGPRegressor(calibrate=None, **OPTIONS).fit(X, Y)
    objective = model.history_["objective"].to_numpy()
    assert np.diff(objective).min() > -1e-4
    assert objective[-1] > objective[0]
