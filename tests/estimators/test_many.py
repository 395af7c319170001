"""`fit_many` with jobs: results do not depend on the backend, a second call resumes, failures are told."""

import concurrent.futures
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import types

import jax
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.base import clone
from structure import PACKAGE

import wishflow as wf
from wishflow.callbacks import ChunkEvent
from wishflow.errors import DataError, JobError, OptionError
from wishflow.estimators import many
from wishflow.estimators.described import from_json
from wishflow.files.jobs import JobFolder, work
from wishflow.numerics import platform
from wishflow.regression import training
from wishflow.training import backends, together
from wishflow.training.backends import environment_of
from wishflow.training.checkpoints import Checkpoints
from wishflow.training.loop import StochasticPhase
from wishflow.training.phases import Items, Outcome, Stretch, unchanged
from wishflow.training.together import joined_phase, parts_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=40)
SERIES = pd.DataFrame(
    RNG.normal(size=(60, 2)).cumsum(axis=0), pd.date_range("2024-01-01", periods=60, freq="h"), ["a", "b"]
)
# Rows enough that held-back ones may keep what was trained.
LONGER = pd.DataFrame(
    RNG.normal(size=(220, 2)).cumsum(axis=0), pd.date_range("2024-01-01", periods=220, freq="h"), ["a", "b"]
)


def estimators():
    """One of each kind, with what to fit it to."""
    small = {"n_inducing": 5, "max_iter": 20, "random_state": 3}
    frame = pd.DataFrame(X, columns=["p", "q"])
    return [
        (wf.SparseGPRegressor(**small), (frame, pd.Series(Y, name="target"))),
        (wf.FlowRegressor(n_steps=2, validation_fraction=0, **small), (X, Y)),
        (wf.FlowClassifier(n_steps=2, validation_fraction=0, **small), (X, np.where(Y > 0, "up", "down"))),
        (wf.WishartForecaster(rank=1, validation_fraction=0, **small), SERIES),
    ]


def predictions(fitted):
    return [
        fitted[0].predict(pd.DataFrame(X, columns=["p", "q"])),
        fitted[1].predict(X),
        fitted[2].predict_proba(X),
        fitted[3].predict(fh=3).to_numpy(),
    ]


@pytest.fixture(scope="module")
def alone():
    """Each fitted by itself."""
    return [model.fit(*data) if isinstance(data, tuple) else model.fit(data) for model, data in estimators()]


@pytest.mark.slow
@pytest.mark.parametrize("backend", [None, "loky"])
def test_every_kind_of_estimator_is_the_same_as_fitted_alone(alone, backend, tmp_path):
    models, data = zip(*estimators(), strict=True)
    fitted = wf.fit_many(models, data, backend=backend, backend_params={"n_jobs": 2}, folder=tmp_path)
    assert all(one is model for one, model in zip(fitted, models, strict=True))
    for found, expected in zip(predictions(fitted), predictions(alone), strict=True):
        np.testing.assert_array_equal(found, expected)
    for one, other in zip(fitted, alone, strict=True):
        assert set(vars(one)) == set(vars(other))
        histories = [model.history_.drop(columns="seconds") for model in (one, other)]
        pd.testing.assert_frame_equal(*histories, check_exact=True)
    assert list(fitted[0].feature_names_in_) == ["p", "q"] and fitted[0].target_names_ == ["target"]


@pytest.mark.slow
def test_forecasters_and_regressors_are_fitted_in_this_process_too(alone):
    models, data = zip(*estimators()[1::2], strict=True)
    fitted = wf.fit_many(models, data)
    np.testing.assert_array_equal(fitted[0].predict(X), alone[1].predict(X))
    np.testing.assert_array_equal(fitted[1].predict(fh=3), alone[3].predict(fh=3))


def gp(**options):
    return wf.SparseGPRegressor(**{"n_inducing": 5, "max_iter": 10, "calibrate": None, **options})


def test_a_second_call_takes_results_that_are_there(tmp_path):
    data = [(X, Y), (X, -Y)]
    first = wf.fit_many([gp(), gp()], data, folder=tmp_path)
    files = sorted((tmp_path / "results").iterdir())
    times = [path.stat().st_mtime_ns for path in files]
    files[0].unlink()
    second = wf.fit_many([gp(), gp(), gp(n_inducing=6)], [*data, (X, Y)], folder=tmp_path)
    assert len(list((tmp_path / "results").iterdir())) == 3
    assert files[1].stat().st_mtime_ns == times[1] and files[0].stat().st_mtime_ns > times[0]
    third = wf.fit_many([gp(), gp()], data, folder=tmp_path, backend="loky")  # for which nothing is left to do
    for found in (second, third):
        for one, other in zip(first, found, strict=False):
            np.testing.assert_array_equal(one.predict(X), other.predict(X))


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_result_that_is_none_of_its_job_changes_no_estimator(is_damaged, tmp_path):
    data = [(X, Y), (X, -Y)]
    wf.fit_many([gp()], data[1:], folder=tmp_path)
    (path,) = (tmp_path / "results").iterdir()
    wf.fit_many([gp(), gp()], data, folder=tmp_path)
    other = gp().fit(X[:, :1], Y)
    path.write_bytes(b"damaged") if is_damaged else other.save(path)
    models = [gp(), gp()]
    with pytest.raises(wf.errors.ModelFileError, match=r"is no result of this job .* remove the file"):
        wf.fit_many(models, data, folder=tmp_path)
    assert not any(hasattr(model, "model_") for model in models)


def test_checkpoints_may_be_described_in_jobs(tmp_path):
    often = wf.Checkpointing(tmp_path / "states", every_seconds=None, every_steps=10, keep=3)
    model = wf.FlowRegressor(max_iter=20, n_steps=2, n_inducing=5, validation_fraction=0, checkpoint_dir=often)
    wf.fit_many([model], [(X, Y)], folder=tmp_path / "jobs")
    assert list((tmp_path / "states").glob("*/*.end.ckpt"))
    (job,) = (tmp_path / "jobs" / "jobs").iterdir()
    described = from_json(json.loads(job.read_text())["spec"])
    assert described.checkpoint_dir == dataclasses.replace(often, folder=str(tmp_path / "states"))


def test_an_error_in_a_forecaster_leaves_regressors_as_they_were():
    """They are trained first, and were kept."""
    models = [gp(), wf.WishartForecaster(lags=1, max_iter=2)]
    with pytest.raises(DataError):
        wf.fit_many(models, [(X, Y), SERIES * np.nan])
    assert not any(hasattr(one, "model_") for one in models)


def test_wide_forecasters_are_refused():
    with pytest.raises(OptionError, match=r"estimator 1 is a WideForecaster.*call its fit"):
        wf.fit_many([gp(), wf.WideForecaster()], [(X, Y), SERIES])


def test_equal_jobs_are_done_once_and_equal_data_are_stored_once(tmp_path):
    fitted = wf.fit_many([gp(), gp(), gp(random_state=1)], [(X, Y)] * 3, folder=tmp_path)
    assert len(list((tmp_path / "results").iterdir())) == 2 and len(list((tmp_path / "data").iterdir())) == 1
    np.testing.assert_array_equal(fitted[0].predict(X), fitted[1].predict(X))


def test_failed_jobs_are_named_and_the_others_are_kept(tmp_path):
    models, bad = [gp() for _ in range(3)], np.full((40, 2), np.nan)
    with pytest.raises(JobError, match=r"1 of 3 jobs failed: 1 \(DataError: .*folder") as error:
        wf.fit_many(models, [(X, Y), (bad, Y), (X, -Y)], folder=tmp_path)
    assert list(error.value.failed) == [1]
    assert hasattr(models[0], "model_") and hasattr(models[2], "model_") and not hasattr(models[1], "model_")
    (path,) = (tmp_path / "errors").iterdir()
    assert "Traceback" in json.loads(path.read_text())["traceback"]


def test_jobs_that_fail_by_chance_are_tried_again(tmp_path, monkeypatch):
    fit, attempts = wf.SparseGPRegressor.fit, []

    def fails_twice(self, X, y):
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("no room")
        return fit(self, X, y)

    monkeypatch.setattr(wf.SparseGPRegressor, "fit", fails_twice)
    with pytest.raises(JobError, match="OSError: no room"):
        wf.fit_many([gp()], [(X, Y)], folder=tmp_path, backend_params={"retries": 1})
    wf.fit_many([gp()], [(X, Y)], folder=tmp_path)
    assert len(attempts) == 3 and not list((tmp_path / "errors").iterdir())


@pytest.mark.parametrize("group", [1, 2])
def test_ctrl_c_keeps_no_half_trained_result(group, tmp_path, monkeypatch):
    def flows():
        small = {"n_inducing": 5, "n_steps": 2, "max_iter": 200, "validation_fraction": 0, "calibrate": None}
        return [wf.FlowRegressor(random_state=s, checkpoint_dir=tmp_path / "states", **small) for s in range(2)]

    after_chunk = Checkpoints.after_chunk

    def interrupted(self, *state):
        signal.raise_signal(signal.SIGINT)
        after_chunk(self, *state)

    how = {"folder": tmp_path, "backend_params": {"group": group}}
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "after_chunk", interrupted)
        models = flows()
        with pytest.warns(RuntimeWarning, match="training was interrupted"), pytest.raises(KeyboardInterrupt):
            wf.fit_many(models, [(X, Y)] * 2, **how)
    assert not list((tmp_path / "results").iterdir()) and not hasattr(models[0], "model_")
    states = list((tmp_path / "states").rglob("*.ckpt"))
    fitted = wf.fit_many(flows(), [(X, Y)] * 2, **how)
    assert states and [one.status_ for one in fitted] == ["reached max_iter"] * 2


def test_ctrl_c_in_a_forecaster_ends_the_run(tmp_path, monkeypatch):
    fits, frame = [], SERIES.iloc[:20]

    def fit(self, y, X=None):
        fits.append(self.random_state)
        self.status_ = "interrupted"
        return self

    monkeypatch.setattr(wf.WishartForecaster, "fit", fit)
    models = [wf.WishartForecaster(random_state=s, checkpoint_dir=tmp_path / "states") for s in range(2)]
    with pytest.raises(KeyboardInterrupt):
        wf.fit_many(models, [frame] * 2, folder=tmp_path, backend_params={"group": 2})
    assert fits == [0] and not list((tmp_path / "results").iterdir())
    with pytest.raises(KeyboardInterrupt):
        wf.fit_many(models, [frame] * 2)
    assert fits == [0, 0] and not hasattr(models[0], "status_")
    interrupted = types.SimpleNamespace(status_="interrupted")
    monkeypatch.setattr(many, "fit_rows_together", lambda *_: [interrupted])
    with pytest.raises(KeyboardInterrupt):
        wf.fit_many([gp(), *models], [(X, Y), frame, frame])
    assert fits == [0, 0]


def test_the_fits_of_one_call_share_a_log(tmp_path, monkeypatch):
    def fit(self, y, X=None):
        with wf.callbacks.CallbackList(self.callbacks) as calls:
            calls.on_start("series", 2)
            for k in range(2):  # members
                calls.on_chunk(ChunkEvent("series", 1, 1, {"objective": np.ones(1)}, 0.1, k, 2))
        self.status_ = "reached max_iter"
        return self

    monkeypatch.setattr(wf.WishartForecaster, "fit", fit)
    models, data = [wf.WishartForecaster(), gp(), wf.WishartForecaster()], [SERIES, (X, Y), SERIES]
    for step, places in ((1, [0, 0, 2, 2]), (2, [0, 0, 1, 1])):
        wf.fit_many(models[::step], data[::step], wf.callbacks.CSVLog(tmp_path / "log.csv"))
        log = pd.read_csv(tmp_path / "log.csv")
        is_series = log["phase"] == "series"
        assert log["model"][is_series].tolist() == places
        assert (log["model"][~is_series] == 1).all() and (~is_series).any() == (step == 1)


def test_pairs_may_be_lists_and_other_lengths_are_refused(tmp_path):
    (expected,), (listed,) = wf.fit_many([gp()], [(X, Y)]), wf.fit_many([gp()], [[X, Y]], folder=tmp_path)
    np.testing.assert_array_equal(listed.predict(X), expected.predict(X))
    np.testing.assert_array_equal(wf.fit_many([gp()], [[X, Y]])[0].predict(X), expected.predict(X))
    for wrong, said in (((X, Y, Y, Y), "tuple of length 4"), (X, "ndarray of length 40"), (3, "int;")):
        with pytest.raises(DataError, match=rf"data set 1 is a {said}.*expected a pair \(X, y\) or a triple"):
            wf.fit_many([gp(), gp()], [(X, Y), wrong])


def on_a_worker_of(folder, monkeypatch):
    """A backend whose worker is this process, and finds jobs in a folder (None: the right one)."""

    def completed(function, tasks, *_):
        for own, names, name in tasks:
            yield function(own if folder is None else str(folder), names, name)

    monkeypatch.setattr(many, "completed", completed)


def test_a_node_without_the_folder_says_so(tmp_path, monkeypatch):
    for names in (["a"], ["a", "b"]):
        with pytest.raises(JobError, match=r"there is no job a in .*expected a folder that all nodes share"):
            work(str(tmp_path / "elsewhere"), names, many.FUNCTION)

    on_a_worker_of(tmp_path / "elsewhere", monkeypatch)
    with pytest.raises(JobError, match=r"there is no job .*folder that all nodes share"):
        wf.fit_many([gp()], [(X, Y)], backend="ray")


def test_an_error_that_cannot_be_kept_is_raised_as_it_is(tmp_path):
    cause = ValueError("the cause")
    error = OSError("no room")
    error.__cause__ = cause
    with pytest.raises(OSError, match="no room") as found:
        JobFolder(tmp_path / "gone").fail("a", error)
    assert found.value is error and error.__cause__ is cause and error.__context__ is None


def test_a_message_names_no_folder_that_is_removed(monkeypatch):
    monkeypatch.setattr(wf.SparseGPRegressor, "fit", lambda self, X, y: 1 / 0)
    on_a_worker_of(None, monkeypatch)
    with pytest.raises(JobError, match=r"ZeroDivisionError: .*first traceback ends with:") as error:
        wf.fit_many([gp()], [(X, Y)], backend="ray")
    message = str(error.value)
    assert "wishflow-jobs-" not in message and "in fit_jobs" in message
    assert message.splitlines()[-1].startswith("ZeroDivisionError") and len(message.splitlines()) <= 1 + many.MOST_LINES


class LossyPool(backends.AbstractPool):
    """Each call loses its worker."""

    def __init__(self):
        self.n_calls = 0

    def submit(self, function, calls):
        found = [concurrent.futures.Future() for _ in calls]
        for future in found:
            self.n_calls += 1
            future.set_exception(RuntimeError("killed"))
        return found

    def close(self, is_complete):
        pass


@pytest.mark.parametrize("retries", [0, 2])
def test_a_job_whose_worker_is_lost_is_tried_as_often_as_asked_for(retries, tmp_path, monkeypatch):
    pool, params = LossyPool(), {"retries": retries}
    monkeypatch.setattr(backends, "_pool", lambda *_: pool)
    with pytest.raises(JobError, match=r"1 of 1 jobs failed.*were lost, the first by RuntimeError: killed"):
        wf.fit_many([gp()], [(X, Y)], backend="dask", backend_params=params, folder=tmp_path)
    assert pool.n_calls == 1 + retries
    with pytest.raises(JobError, match="were lost"):
        backends.Workers("dask", params).map(abs, [(-1,)])
    assert pool.n_calls == 2 * (1 + retries)


def test_pools_leave_retries_to_us_and_a_cluster_that_exists_as_it_is(monkeypatch):
    ray = types.SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setattr(backends, "_imported", lambda name: ray)
    assert backends.RayPool(None).remote_args == {"max_retries": 0}
    assert backends.RayPool(None, {"max_retries": 3}).remote_args == {"max_retries": 3}
    seen: list[dict] = []

    def init(**options):
        """As Ray's, where a cluster is found by an address: it has its own number of CPUs."""
        if "address" in options and "num_cpus" in options:
            raise ValueError("num_cpus must not be provided when connecting to an existing cluster")
        seen.append(options)

    ray.is_initialized, ray.init = (lambda: False), init
    for options in ({}, {"address": "auto"}):
        backends.RayPool(2, **options)
    assert seen == [{"num_cpus": 2}, {"address": "auto"}]
    client = types.SimpleNamespace(get_executor=lambda **options: options)
    assert backends.DaskPool(None, client=client).executor == {"pure": False, "retries": 0}


def test_options_that_json_lacks_are_refused(tmp_path):
    with pytest.raises(OptionError, match=r"learning_rate=.*cannot be written as JSON"):
        wf.fit_many([wf.FlowRegressor(learning_rate=lambda step: 0.1)], [(X, Y)], folder=tmp_path)
    with pytest.raises(OptionError, match="backend='locky' is not known"):
        wf.fit_many([gp()], [(X, Y)], backend="locky")
    with pytest.raises(OptionError, match=r"slurm.*folder"):
        wf.fit_many([gp()], [(X, Y)], backend="slurm")
    with pytest.raises(DataError, match="2 estimators and 1 data sets"):
        wf.fit_many([gp(), gp()], [(X, Y)])


def test_callbacks_are_told_how_many_jobs_are_done(tmp_path):
    class Counter(wf.callbacks.Callback):
        seen = ()

        def on_chunk(self, event):
            self.seen += ((event.phase, event.step, event.n_steps),)

    counter = Counter()
    wf.fit_many([gp(random_state=s) for s in range(3)], [(X, Y)] * 3, counter, folder=tmp_path)
    assert counter.seen == (("jobs", 1, 3), ("jobs", 2, 3), ("jobs", 3, 3))


MEMBERS = [
    (wf.SparseGPRegressor(n_inducing=5, max_iter=20, n_members=2, random_state=0), (X, Y)),
    (wf.WishartForecaster(n_inducing=5, rank=1, max_iter=20, lags=1, n_members=2, random_state=0), (LONGER,)),
]


@pytest.mark.slow
@pytest.mark.long
def test_members_on_a_backend_are_those_of_this_process():
    for model, data in MEMBERS:
        here = clone(model).fit(*data)
        there = clone(model).set_params(backend="loky", backend_params={"n_jobs": 2}).fit(*data)
        assert here.status_ == there.status_ and set(vars(here)) == set(vars(there))
        for one, other in zip(jax.tree.leaves(here.model_), jax.tree.leaves(there.model_), strict=True):
            np.testing.assert_array_equal(one, other)
        found = [np.asarray(m.predict(X) if len(data) == 2 else m.predict(fh=3)) for m in (here, there)]
        np.testing.assert_array_equal(*found)


@pytest.mark.slow
def test_series_of_a_panel_are_scored_on_a_backend():
    panel = {"u": SERIES, "v": SERIES + 1.0}
    forecaster = wf.WishartForecaster(n_inducing=5, rank=1, max_iter=5, validation_fraction=0)
    scores = [
        wf.backtest(forecaster, panel, fh=2, initial=54, n_draws=20, backend=backend, backend_params={"n_jobs": 2})
        for backend in (None, "loky")
    ]
    xr.testing.assert_identical(*scores)


def test_workers_set_their_environment_before_jax_is_imported():
    code = (
        "import pickle, sys; from wishflow.numerics import process; assert 'jax' not in sys.modules\n"
        "import os; call = pickle.dumps((os.getenv, ('XLA_PYTHON_CLIENT_MEM_FRACTION',)))\n"
        "print(process.outcome(call, {'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.225'}), 'jax' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "('0.225', None) False"
    name = "XLA_PYTHON_CLIENT_MEM_FRACTION"
    assert environment_of("loky", {"n_jobs": 4})[name] == "0.225"
    assert environment_of("ray", {"ray_remote_args": {"num_gpus": 0.5}}) == {name: "0.450"}
    assert environment_of("dask", {}) == {} and environment_of("dask", {"memory_fraction": 0.3}) == {name: "0.300"}


def forecasters(*sizes):
    """Forecasters of different shapes: each is trained by itself, on the CPU too."""
    options = {"rank": 1, "max_iter": 20, "lags": 1, "random_state": 3}
    return [wf.WishartForecaster(n_inducing=size, **options) for size in sizes]


@pytest.mark.slow
def test_forecasters_that_wait_for_each_other_are_the_same_as_fitted_alone(monkeypatch):
    alone = [model.fit(LONGER) for model in forecasters(5, 6)]
    monkeypatch.setattr(platform, "trains_together", lambda n: True)
    seen = []

    class Phases(wf.callbacks.Callback):
        def on_chunk(self, event):
            seen.append((event.phase, event.model_index, event.n_models))

    together = wf.fit_many(forecasters(5, 6), [LONGER, (LONGER, None, 3)], Phases())
    assert seen[:2] == [("series", 0, 2), ("series", 1, 2)] and together[1].fh_ == 3
    for one, other in zip(alone, together, strict=True):
        assert one.status_ == other.status_ and other.callbacks is None
        for a, b in zip(jax.tree.leaves(one.model_), jax.tree.leaves(other.model_), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_wrong_horizon_is_said_before_a_job_is_written(tmp_path):
    folder = tmp_path / "fits"
    with pytest.raises(OptionError, match="fh='soon' is"):
        wf.fit_many(forecasters(5), [(LONGER, None, "soon")], folder=folder)
    assert not folder.exists()


def test_an_error_in_a_forecaster_ends_those_that_wait_for_it(monkeypatch):
    monkeypatch.setattr(platform, "trains_together", lambda n: True)
    models, n_threads = forecasters(5, 6), threading.active_count()
    with pytest.raises(DataError):
        wf.fit_many(models, [SERIES, SERIES.iloc[::-1]])
    assert not any(hasattr(model, "model_") for model in models) and threading.active_count() == n_threads


def test_a_bounded_number_of_fits_trains_at_once(types_unchecked, monkeypatch):
    n_threads, seen, events = threading.active_count(), [], []

    class Events(wf.callbacks.Callback):
        def on_chunk(self, event):
            events.append((event.model_index, event.n_models))

    def train(fits, places, n_models, calls):
        seen.append(threading.active_count() - n_threads)
        for i in places:
            calls.on_chunk(ChunkEvent("p", 1, 1, {}, 0.0, i, n_models))
            fits[i].outcome = Outcome(i, ("done",))

    monkeypatch.setattr(together, "MOST_AT_ONCE", 3)
    monkeypatch.setattr(together, "_train", train)
    monkeypatch.setattr(together, "_alike", lambda fits, waiting: [waiting])
    found = together.fitted_together([lambda fit, i=i: (i, fit.trained("a phase").models) for i in range(7)], Events())
    assert found == [(i, i) for i in range(7)] and seen == [3, 3, 1]
    assert events == [(i, 7) for i in range(7)]


def test_members_in_a_mixed_call_stop_by_their_own_progress():
    """Each has its own place in the events: a worse member beside a better one is none that gets worse."""
    stopper = wf.callbacks.EarlyStop(patience=1)
    part = together.PartOfRun(wf.callbacks.CallbackList(stopper), [4, 7], 9)
    part.on_start("p", 30)
    for step in range(3):
        for i in range(6):  # two models of three members
            event = ChunkEvent("p", step, 3, {"objective": np.full(2, step - 10.0 * i)}, 0.0, i, 6)
            assert not part.on_chunk(event)


@pytest.mark.parametrize(("is_lost_before", "expected"), [(True, OSError), (False, concurrent.futures.BrokenExecutor)])
def test_a_process_that_cannot_be_replaced_leaves_no_call_waiting(is_lost_before, expected, monkeypatch):
    made = []

    class Lost:
        """Its process is gone, and there is no room for another one."""

        def __init__(self, n, **options):
            if made:
                raise OSError(24, "Too many open files")
            made.append(self)

        def submit(self, *call):
            gone = concurrent.futures.BrokenExecutor("gone")
            if is_lost_before:
                raise gone
            found = concurrent.futures.Future()
            found.set_exception(gone)
            return found

        def shutdown(self, **options):
            pass

    monkeypatch.setattr("joblib.externals.loky.ProcessPoolExecutor", Lost)
    pool = backends.LokyPool(1)
    found = pool.submit(print, [(1,), (2,)])
    concurrent.futures.wait(found, timeout=30)
    assert [type(one.exception(0)) for one in found] == [expected, expected]
    pool.close(True)


def phase_of(i):
    """A phase of a model that is a number, on three rows."""
    items, rest = Items(np.full(3, float(i)), np.array([3]), (i,)), Stretch(np.ones(1), np.full(1, 2.0 + i))
    return StochasticPhase("p", 1, unchanged, None, items, None, rest=rest)


def test_phases_of_equal_shape_become_one(types_unchecked):
    whole = joined_phase([phase_of(0), phase_of(1)])
    assert whole.n_models == 2 and whole.items.seeds == (0, 1) and whole.items.data.shape == (2, 3)
    np.testing.assert_array_equal(whole.items.n_rows, [3, 3])
    np.testing.assert_array_equal(whole.rest.stride, [2.0, 3.0])
    parts = parts_of(Outcome(np.array([5.0, 6.0]), ("a", "b")), 2)
    assert [float(part.models) for part in parts] == [5.0, 6.0] and [part.status for part in parts] == [("a",), ("b",)]


# --- mixed calls -------------------------------------------------------------------------------------


@pytest.fixture
def on_an_accelerator(monkeypatch):
    """Its branches, on the CPU."""
    monkeypatch.setattr(platform, "trains_together", lambda n_models: n_models > 1)
    monkeypatch.setattr(platform, "minimises_on_host", lambda n_models: False)


def mixed():
    """Estimators of one call that differ in options that one program has once, and data of several sizes."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(90, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=90)
    flow = {"n_inducing": 5, "n_steps": 2, "rank": 1, "max_iter": 20, "validation_fraction": 0}
    labels = np.where(y > 0, "up", "down")
    options = [{}, {"random_state": 1}, {"learning_rate": 0.05}, {"max_iter": 30}]
    models = [wf.FlowRegressor(**{**flow, "calibrate": None, **more}) for more in options]
    data = [(X[:60], y[:60])] * len(models)
    models += [wf.FlowRegressor(**flow, calibrate=None), wf.FlowClassifier(**flow)]
    data += [(X, y), (X[:60], labels[:60])]
    return models, data


def problems_of(model, *sizes):
    """What is trained for data of several sizes."""
    X = np.random.default_rng(0).normal(size=(max(sizes), 2))
    return [clone(model)._prepare(X[:n], X[:n, 0]) for n in sizes]


@pytest.mark.parametrize("sizes", [(387, 388), (1990, 2010)])
def test_folds_of_a_sparse_gp_are_alike(sizes):
    """Most of what a preset chooses by the number of rows is for a flow."""
    assert training.alike(problems_of(wf.SparseGPRegressor(n_inducing=5), *sizes)) == [(0, 1)]


def test_what_training_reads_keeps_fits_apart():
    """Stochastic steps read what L-BFGS does not; the prior ends at 250 rows; flows read everything."""
    sparse_gp = wf.SparseGPRegressor(n_inducing=5)
    assert training.alike(problems_of(sparse_gp, 249, 250)) == [(0,), (1,)]
    few, more = problems_of(sparse_gp, 387, 388)
    for change in ({"noise_variance": 0.2}, {"warm_iter": 30}, {"output_lengthscale": 1.0}, {"collapsed": False}):
        other = dataclasses.replace(more, training=dataclasses.replace(more.training, **change))
        assert training.alike([few, other]) == [(0,), (1,)]
    for model in (wf.SparseGPRegressor(n_inducing=5, likelihood="student_t"), wf.FlowRegressor(n_inducing=5)):
        assert training.alike(problems_of(model, 387, 388)) == [(0,), (1,)]


@pytest.mark.filterwarnings("ignore:the fit explains nothing")
def test_sparse_gps_that_converge_early_have_the_history_they_have_alone(on_an_accelerator):
    """Smooth targets without noise take more iterations than noise alone."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    targets = [rng.normal(size=60), X[:, 0] ** 2]
    models = [wf.SparseGPRegressor(n_inducing=10, max_iter=150, calibrate=None, hyperprior=None) for _ in targets]
    seen = []

    class Steps(wf.callbacks.Callback):
        def on_chunk(self, event):
            seen.append((event.model_index, event.step))

    fitted = wf.fit_many([clone(one) for one in models], [(X, y) for y in targets], Steps())
    alone = [model.fit(X, y) for model, y in zip(models, targets, strict=True)]
    assert fitted[0].n_iter_ < fitted[1].n_iter_
    for i, (one, other) in enumerate(zip(fitted, alone, strict=True)):
        assert one.n_iter_ == len(one.history_) == other.n_iter_
        assert [step for place, step in seen if place == i] == list(range(50, one.n_iter_ + 1, 50))
        # Without noise the bound still rises when the iterations end, and rounding decides how far.
        np.testing.assert_allclose(one.history_["bound"].iloc[-1], other.history_["bound"].iloc[-1], rtol=3e-2)


@pytest.mark.slow
@pytest.mark.long
def test_a_mixed_call_gives_what_separate_fits_give(on_an_accelerator, monkeypatch):
    models, data = mixed()
    groups, train_group = [], training.train_group
    monkeypatch.setattr(training, "train_group", lambda p, calls, i, n: groups.append(i) or train_group(p, calls, i, n))
    fitted = wf.fit_many([clone(one) for one in models], data)
    assert groups == [(0, 1), (2,), (3,), (4,), (5,)]  # the first two differ by their seed alone
    for one, model, (inputs, y) in zip(fitted, models, data, strict=True):
        alone = clone(model).fit(inputs, y)
        assert one.training_ == alone.training_
        assert one.n_iter_ == len(one.history_) == alone.n_iter_ == len(alone.history_)
        found = [(m.predict_proba if hasattr(m, "classes_") else m.predict)(inputs) for m in (one, alone)]
        np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.long
def test_members_of_a_mixed_call_are_those_of_separate_fits(on_an_accelerator):
    """Small data beside larger ones left these with too few inducing points, and the first fit said how many members
    and candidates there are.
    """
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(90, 1))
    data = [(inputs[:n], np.sin(inputs[:n, 0]) + 0.1 * rng.normal(size=n)) for n in (12, 90, 90)]
    models = [gp(n_inducing=40, n_members=n, max_iter=50) for n in (2, 2, 3)]
    fitted = wf.fit_many([clone(model) for model in models], data)
    for one, model, part in zip(fitted, models, data, strict=True):
        alone = clone(model).fit(*part)
        assert n_points(one) == n_points(alone)
        np.testing.assert_allclose(one.predict(part[0]), alone.predict(part[0]), rtol=1e-3, atol=1e-4)
    assert list(map(n_points, fitted)) == [[32] * 2, [40] * 2, [40] * 3]


def n_points(model):
    """How many inducing points each member has."""
    return [len(member.output.basis.Z) for member in model.members_["sparse GP"]]


@pytest.mark.slow
def test_forecasters_of_different_options_are_trained_apart(on_an_accelerator):
    """As those of different numbers of columns are."""
    small = {"n_inducing": 5, "rank": 1, "lags": 1, "max_iter": 10, "validation_fraction": 0, "calendar": False}
    options = [{}, {"random_state": 1}, {"learning_rate": 0.05}]
    models = [wf.WishartForecaster(**{**small, **more}) for more in options] + [wf.WishartForecaster(**small)]
    data = [SERIES] * 3 + [SERIES.iloc[:40, :1]]
    fitted = wf.fit_many([clone(model) for model in models], data)
    for one, model, series in zip(fitted, models, data, strict=True):
        alone = clone(model).fit(series)
        assert one.n_iter_ == alone.n_iter_
        np.testing.assert_allclose(one.predict(fh=2), alone.predict(fh=2), rtol=1e-3, atol=1e-3)


def test_groups_are_the_third_part_of_a_data_set(tmp_path):
    labels = np.repeat(list("abcdefghij"), 4)
    alone = gp(calibrate="auto").fit(X, Y, groups=labels)
    for folder in (None, tmp_path):
        (found,) = wf.fit_many([gp(calibrate="auto")], [(X, Y, labels)], folder=folder)
        np.testing.assert_array_equal(found.predict_quantiles(X, 0.1), alone.predict_quantiles(X, 0.1))
