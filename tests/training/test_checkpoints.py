"""Checkpoints: a fit that was killed goes on where it was, bit by bit; signals end it in order."""

import os
import signal
import subprocess
import sys
import threading
import warnings

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import wishflow as wf
from wishflow.callbacks import Callback
from wishflow.errors import CheckpointError, OptionError
from wishflow.files import writing
from wishflow.files.model_file import read_model, write_model
from wishflow.series.recalibration import HorizonScales
from wishflow.training import checkpoints as module
from wishflow.training.checkpoints import fingerprint

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=60)
SERIES = pd.DataFrame(
    RNG.normal(size=(90, 2)).cumsum(axis=0), pd.date_range("2024-01-01", periods=90, freq="h"), ["a", "b"]
)
# Rows enough that held-back ones may keep what was trained.
LONGER = pd.DataFrame(
    RNG.normal(size=(220, 2)).cumsum(axis=0), pd.date_range("2024-01-01", periods=220, freq="h"), ["a", "b"]
)
SMALL = {"n_inducing": 8, "random_state": 0}
FITS = {
    "gp of labels": lambda **k: wf.FlowClassifier(max_iter=300, n_steps=2, validation_fraction=0, **SMALL, **k).fit(
        X, Y > 0
    ),
    "flow": lambda **k: wf.FlowRegressor(max_iter=300, n_steps=2, validation_fraction=0, **SMALL, **k).fit(X, Y),
    "validated": lambda **k: wf.FlowRegressor(max_iter=300, n_steps=2, **SMALL, **k).fit(X, Y),
    "counts": lambda **k: wf.SparseGPRegressor(max_iter=300, likelihood="poisson", **SMALL, **k).fit(
        X, np.round(np.exp(Y))
    ),
    "series": lambda **k: wf.WishartForecaster(max_iter=300, rank=1, validation_fraction=0, **SMALL, **k).fit(SERIES),
    "long series": lambda **k: wf.WishartForecaster(max_iter=1000, rank=1, validation_fraction=0, **SMALL, **k).fit(
        SERIES
    ),
    "validated series": lambda **k: wf.WishartForecaster(max_iter=300, rank=1, lags=1, **SMALL, **k).fit(LONGER),
    "members of series": lambda **k: wf.WishartForecaster(
        max_iter=200, rank=1, validation_fraction=0, n_members=2, **SMALL, **k
    ).fit(SERIES),
    "members": lambda **k: wf.FlowRegressor(
        max_iter=200, n_steps=2, validation_fraction=0, n_members=2, **SMALL, **k
    ).fit(X, Y),
    "validated members": lambda **k: wf.FlowRegressor(
        max_iter=200, n_steps=2, validation_fraction=0.2, n_members=2, **SMALL, **k
    ).fit(X, Y),
}


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    """Every chunk of steps is kept."""
    monkeypatch.setattr(module, "EVERY_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _library_context():
    """Estimators are tested outside the library's own context."""
    yield


class Killed(BaseException):
    """Nobody catches it, as nobody catches kill -9."""


class KillAfter(Callback):
    """Ends the fit after some chunks."""

    def __init__(self, n_chunks, act=None):
        self.n_left, self.act, self.seen = n_chunks, act, []

    def on_chunk(self, event):
        self.seen.append((event.phase, event.step))
        self.n_left -= 1
        if self.n_left == 0:
            if self.act is None:
                raise Killed
            self.act()


class At(Callback):
    """Acts when a phase begins."""

    def __init__(self, phase, act):
        self.phase, self.act, self.has_acted = phase, act, False

    def on_start(self, phase, n_steps):
        if phase == self.phase and not self.has_acted:
            self.has_acted = True
            self.act()


class Stop(Callback):
    """Ends training after the first chunk, as EarlyStop does after some."""

    def on_chunk(self, event):
        return event.phase == "series"


def leaves(model):
    bands = model.calibration_
    parts = [model.model_, vars(bands) if isinstance(bands, HorizonScales) else bands]
    members = getattr(model, "members_", ())
    parts += list(members.values()) if isinstance(members, dict) else [one.model for one in members]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(parts)]


def assert_equal(one, other):
    assert one.status_ == other.status_
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    same = [h.history_.drop(columns="seconds") for h in (one, other)]
    pd.testing.assert_frame_equal(*same)


QUICK = ("flow", "series", "counts")
# Validated members are among the others.
LONGEST = ("members", "members of series")


def marks_of(name):
    """How long a fit that is killed and resumed takes."""
    slow, long = pytest.mark.slow, pytest.mark.long
    return [] if name in QUICK else [slow, long] if name in LONGEST else [slow]


@pytest.mark.parametrize("name", [pytest.param(n, marks=marks_of(n)) for n in FITS if n != "long series"])
def test_a_killed_fit_ends_as_one_that_was_not(name, tmp_path):
    watch = KillAfter(10**6)
    whole = FITS[name](callbacks=[watch])
    n_chunks = len(watch.seen)
    with pytest.raises(Killed):
        FITS[name](checkpoint_dir=tmp_path, callbacks=[KillAfter(n_chunks // 2 + 1)])
    again = KillAfter(10**6)
    resumed = FITS[name](checkpoint_dir=tmp_path, callbacks=[again])
    assert len(again.seen) < n_chunks  # it did not begin anew
    assert_equal(whole, resumed)


def test_a_fit_that_ended_is_read(tmp_path):
    first, again = FITS["flow"](checkpoint_dir=tmp_path), KillAfter(10**6)
    second = FITS["flow"](checkpoint_dir=tmp_path, callbacks=[again])
    assert not [phase for phase, _ in again.seen if phase == "flow"]
    assert_equal(first, second)


def test_the_end_that_a_callback_asked_for_is_read(tmp_path):
    first, again = FITS["series"](checkpoint_dir=tmp_path, callbacks=[Stop()]), KillAfter(10**6)
    second = FITS["series"](checkpoint_dir=tmp_path, callbacks=[again])
    assert [path.name for path in next(tmp_path.iterdir()).iterdir()] == ["0001-000000100.end.ckpt"]
    assert again.seen == []
    assert_equal(first, second)


def test_each_fit_has_a_folder_of_its_own(tmp_path):
    options = {"n_steps": 2, "validation_fraction": 0, "checkpoint_dir": tmp_path, **SMALL}
    for max_iter, shift in ((5, 0.0), (6, 0.0), (6, 1e-9), (6, 0.0)):
        wf.FlowRegressor(max_iter=max_iter, **options).fit(X, Y + shift)
    assert len(list(tmp_path.iterdir())) == 3


def test_fingerprints_tell_data_and_settings_apart():
    rows = [X, X[::-1], X.astype(np.float32), X[:, :1], X + 1e-12]
    rates = [lambda step: 0.1 + 0 * step, lambda step: 0.2 + 0 * step]
    found = [fingerprint(row) for row in rows] + [fingerprint(rate) for rate in rates]
    found += [fingerprint([1, 2], 3), fingerprint([1], 2, 3), fingerprint(SERIES.index), fingerprint(SERIES.index[1:])]
    assert len(set(found)) == len(found)
    assert fingerprint(X, rates[0], {"a": 1}) == fingerprint(X.copy(), lambda step: 0.1 + 0 * step, {"a": 1})


def test_few_states_are_kept_and_no_temporary_files(tmp_path):
    with pytest.raises(Killed):
        FITS["series"](checkpoint_dir=tmp_path, callbacks=[KillAfter(3)])
    (folder,) = tmp_path.iterdir()
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["0001-000000100.ckpt", "0001-000000200.ckpt"]


def test_a_damaged_checkpoint_is_left_for_the_one_before_it(tmp_path):
    whole = FITS["series"]()
    with pytest.raises(Killed):
        FITS["series"](checkpoint_dir=tmp_path, callbacks=[KillAfter(3)])
    last = sorted(next(tmp_path.iterdir()).iterdir())[-1]
    content = bytearray(last.read_bytes())
    content[-9] ^= 1
    last.write_bytes(content)
    with pytest.warns(UserWarning, match=r"the checkpoint .* was ignored: .*checksum"):
        resumed = FITS["series"](checkpoint_dir=tmp_path)
    assert_equal(whole, resumed)


def test_a_state_that_cannot_be_is_left_for_the_one_before_it(tmp_path):
    whole = FITS["series"]()
    with pytest.raises(Killed):
        FITS["series"](checkpoint_dir=tmp_path, callbacks=[KillAfter(3)])
    last = sorted(next(tmp_path.iterdir()).iterdir())[-1]
    header, arrays = read_model(last)
    write_model(last, header, {**arrays, "state.status": np.full_like(arrays["state.status"], 99)})
    with pytest.warns(UserWarning, match=r"the checkpoint .* was ignored: .*training cannot reach"):
        resumed = FITS["series"](checkpoint_dir=tmp_path)
    assert_equal(whole, resumed)  # the history too: no step is in it twice


RECORDS = {"step": np.arange(3), **{name: np.zeros(3) for name in ("objective", "noise", "seconds", "a")}}


@pytest.mark.parametrize(
    ("columns", "changes"),
    [
        (None, {}),
        ([["a"]], {}),
        ([*[*RECORDS][:-1], 1.0], {}),
        ([*[*RECORDS][:-1], "b"], {}),
        ([*RECORDS, "n"], {"n": np.array(1.0)}),
        ([*RECORDS], {"step": np.zeros(3)}),
        ([*RECORDS], {"noise": np.zeros((3, 2))}),
        ([*RECORDS], {"noise": np.zeros(3, int)}),
        ([*RECORDS, "more"], {"more": np.zeros((3, 2))}),
        ([*RECORDS, "phase"], {"phase": np.zeros(3)}),
    ],
)
def test_records_that_do_not_fit_are_refused(columns, changes, types_unchecked):
    arrays = {f"0.{name}": array for name, array in {**RECORDS, **changes}.items()}
    with pytest.raises(wf.errors.ModelFileError, match="records are inconsistent"):
        module._records(columns, arrays, "p", 1)
    right = {f"0.{name}": array for name, array in RECORDS.items()}
    assert module._records([*RECORDS], right, "p", 1)[0]["phase"] == "p"


def test_states_that_were_refused_do_not_push_out_new_ones(tmp_path):
    with pytest.raises(Killed):
        FITS["series"](checkpoint_dir=tmp_path, callbacks=[KillAfter(3)])
    (folder,) = tmp_path.iterdir()
    for path in folder.iterdir():
        path.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="was ignored"), pytest.raises(Killed):
        FITS["series"](checkpoint_dir=tmp_path, callbacks=[KillAfter(2)])
    (path,) = folder.iterdir()
    assert path.name == "0001-000000100.ckpt" and read_model(path)[0]["number"] == 1


def test_temporary_files_of_any_step_are_removed_by_the_next_run(tmp_path):
    with pytest.raises(Killed):
        FITS["series"](checkpoint_dir=tmp_path, callbacks=[KillAfter(3)])
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    (folder,) = tmp_path.iterdir()
    left = folder / f".0001-000000123.ckpt.{writing._machine()}-{killed.pid}-{'0' * 16}.tmp"
    left.write_text("half")
    FITS["series"](checkpoint_dir=tmp_path)
    assert not left.exists()


def test_a_checkpoint_that_cannot_be_read_is_ignored(tmp_path, monkeypatch):
    whole = FITS["series"]()
    with pytest.raises(Killed):
        FITS["series"](checkpoint_dir=tmp_path, callbacks=[KillAfter(3)])

    def refused(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "read_model", refused)
    with pytest.warns(UserWarning, match="was ignored: .*Permission denied"):
        assert_equal(whole, FITS["series"](checkpoint_dir=tmp_path))


def test_checkpoints_hold_no_pickles(tmp_path):
    FITS["series"](checkpoint_dir=tmp_path)
    for path in next(tmp_path.iterdir()).iterdir():
        with pytest.raises(wf.errors.ModelFileError, match="holds a None"):  # a file of ours, but no estimator
            wf.load(path)


# --- places that cannot be written to ------------------------------------------------------------


def test_a_full_disk_is_a_clear_error_and_what_was_kept_stays(tmp_path, monkeypatch):
    whole = FITS["series"]()
    real, n_writes = os.fsync, []

    def fsync(descriptor):
        n_writes.append(descriptor)
        if len(n_writes) > 3:  # the first file and its folder, and the second file
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(CheckpointError, match="No space left on device"):
        FITS["series"](checkpoint_dir=tmp_path)
    monkeypatch.setattr(os, "fsync", real)
    (folder,) = tmp_path.iterdir()
    assert not [path for path in folder.iterdir() if path.suffix != ".ckpt"]
    assert_equal(whole, FITS["series"](checkpoint_dir=tmp_path))


def test_a_folder_stays_where_it_is_when_the_working_directory_changes(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    FITS["flow"](checkpoint_dir="states", callbacks=Elsewhere(tmp_path / "other"))
    (folder,) = (tmp_path / "states").iterdir()
    assert list(folder.glob("*.end.ckpt")) and not list((tmp_path / "other").iterdir())


class Elsewhere(Callback):
    """Goes to another folder in the middle of training."""

    def __init__(self, folder):
        self.folder = folder

    def on_chunk(self, event):
        os.chdir(self.folder)


def test_a_folder_that_cannot_be_made(tmp_path):
    with pytest.raises(CheckpointError, match="null byte"):
        FITS["flow"](checkpoint_dir="a\0b")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="could not be written"):
        FITS["flow"](checkpoint_dir=tmp_path / "file" / "x")
    with pytest.raises(OptionError, match="checkpoint_dir=3"):
        wf.WishartForecaster(checkpoint_dir=3, validation_fraction=0).fit(SERIES)
    with pytest.raises(OptionError, match="checkpoint_dir=3"):
        wf.fit_many([wf.SparseGPRegressor(checkpoint_dir=3, **SMALL)], [(X, Y)])


# --- signals -------------------------------------------------------------------------------------


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    "name",
    [
        *("flow", "series", "members of series"),
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("validated", "members")),
    ],
)
def test_the_first_interrupt_ends_at_the_next_chunk(name, tmp_path):
    whole = FITS[name]()
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.warns(RuntimeWarning, match="training was interrupted"):
        model = FITS[name](checkpoint_dir=tmp_path, callbacks=[KillAfter(2, interrupt)])
    assert model.status_ == "interrupted"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert np.isfinite(np.asarray(model.predict(3) if "series" in name else model.predict(X))).all()
    assert_equal(whole, FITS[name](checkpoint_dir=tmp_path))


@pytest.mark.parametrize(
    ("name", "phase"), [("series", "series"), pytest.param("validated members", "all rows", marks=pytest.mark.slow)]
)
def test_an_interrupt_between_phases(name, phase, tmp_path):
    """The journal of the phase that only begins has no rows."""
    at = At(phase, interrupt)
    with pytest.warns(RuntimeWarning, match="training was interrupted"):
        model = FITS[name](checkpoint_dir=tmp_path, callbacks=[at])
    assert at.has_acted and model.status_ == "interrupted"
    assert phase not in set(model.history_["phase"])
    assert {"phase", "step", "objective", "noise", "seconds"} <= set(model.history_)
    numbers = model.history_.drop(columns="phase")
    assert all(dtype.kind in "if" for dtype in numbers.dtypes)
    model.save(tmp_path / "model")
    pd.testing.assert_frame_equal(wf.load(tmp_path / "model").history_, model.history_, check_dtype=len(numbers) > 0)


def test_an_interrupt_of_lbfgs_promises_no_checkpoint(tmp_path):
    with pytest.warns(RuntimeWarning, match="start from the beginning, because no checkpoint was written") as caught:
        wf.SparseGPRegressor(checkpoint_dir=tmp_path, callbacks=[KillAfter(1, interrupt)], **SMALL).fit(X, Y)
    assert not any("resume from" in str(one.message) for one in caught)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("flow", (X + 1.0, Y)),
        pytest.param("members", (X + 1.0, Y), marks=[pytest.mark.slow, pytest.mark.long]),
        pytest.param("series", (SERIES + 1.0,), marks=pytest.mark.slow),
    ],
)
def test_the_second_interrupt_raises_and_changes_nothing(name, data, tmp_path):
    model = FITS[name]()
    kept = dict(model.__dict__)

    def twice():
        interrupt()
        interrupt()

    model.set_params(checkpoint_dir=tmp_path, callbacks=[KillAfter(2, twice)])
    kept |= {"checkpoint_dir": model.checkpoint_dir, "callbacks": model.callbacks}
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data)
    assert all(model.__dict__[name] is value for name, value in kept.items())


def test_other_threads_set_no_handlers(tmp_path):
    seen = []
    before = signal.getsignal(signal.SIGINT)
    watch = KillAfter(1, lambda: seen.append(signal.getsignal(signal.SIGINT)))
    thread = threading.Thread(target=lambda: FITS["series"](checkpoint_dir=tmp_path, callbacks=[watch]))
    thread.start()
    thread.join()
    assert seen == [before]


def test_without_checkpoints_an_interrupt_is_one():
    # Processes that a shell starts in the background ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            FITS["series"](callbacks=[KillAfter(1, interrupt)])
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigterm_saves_and_stops(tmp_path):
    whole = FITS["series"]()
    with pytest.raises(SystemExit) as caught:
        FITS["series"](checkpoint_dir=tmp_path, callbacks=[KillAfter(2, terminate)])
    assert caught.value.code == 143
    again = KillAfter(10**6)
    assert_equal(whole, FITS["series"](checkpoint_dir=tmp_path, callbacks=[again]))
    assert again.seen == [("series", 300)]


def test_sigterm_outside_of_chunks_with_states(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught:
        wf.SparseGPRegressor(checkpoint_dir=tmp_path, callbacks=[KillAfter(1, terminate)], **SMALL).fit(X, Y)
    assert caught.value.code == 143
    FITS["series"](checkpoint_dir=tmp_path)
    with pytest.raises(SystemExit) as caught:  # while a fit that ended is read
        FITS["series"](checkpoint_dir=tmp_path, callbacks=[At("series", terminate)])
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_phase_that_sigterm_cut_short_is_not_the_start_of_another(tmp_path):
    whole = FITS["flow"]()
    with pytest.raises(SystemExit):
        FITS["flow"](checkpoint_dir=tmp_path, callbacks=[At("output", terminate)])
    assert not list(tmp_path.glob("*/*.ckpt"))
    assert_equal(whole, FITS["flow"](checkpoint_dir=tmp_path))


def test_both_handlers_are_restored_and_those_of_other_languages_stay(tmp_path, monkeypatch):
    """Of a handler that was not set by Python, Python cannot say what it is. That of Ctrl-C is restored last."""
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        order, set_plainly = [], signal.signal
        patch.setattr(signal, "signal", lambda number, h: order.append(number) or set_plainly(number, h))
        FITS["series"](checkpoint_dir=tmp_path)
    assert order == [signal.SIGINT, signal.SIGTERM, signal.SIGTERM, signal.SIGINT]
    real, touched = signal.getsignal, []
    monkeypatch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGTERM else real(number))
    set_handler = signal.signal
    monkeypatch.setattr(signal, "signal", lambda number, h: touched.append(number) or set_handler(number, h))
    FITS["series"](checkpoint_dir=tmp_path)
    assert touched == [signal.SIGINT, signal.SIGINT] and real(signal.SIGINT) is before


def test_an_interrupt_ends_a_backtest(tmp_path):
    """A fit that was ended half way has no score."""
    model = wf.WishartForecaster(max_iter=300, rank=1, validation_fraction=0, checkpoint_dir=tmp_path, **SMALL)
    model.set_params(callbacks=[KillAfter(1, interrupt)])
    with pytest.warns(RuntimeWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        wf.backtest(model, SERIES, fh=2, initial=60, n_draws=10)


def test_many_fits_have_checkpoints_too(tmp_path):
    def fits(callbacks=None, **options):
        models = [wf.FlowRegressor(max_iter=200, n_steps=2, validation_fraction=0, **SMALL, **options) for _ in "ab"]
        return wf.fit_many(models, [(X, Y), (X, Y + X[:, 1])], callbacks)

    whole = fits()
    with pytest.raises(Killed):
        fits([KillAfter(4)], checkpoint_dir=tmp_path)
    for one, other in zip(whole, fits(checkpoint_dir=tmp_path), strict=True):
        assert_equal(one, other)


@pytest.mark.slow
def test_members_on_a_backend_have_checkpoints_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = FITS["members"]()
    elsewhere = {"backend": "loky", "backend_params": {"n_jobs": 2}, "checkpoint_dir": wf.Checkpointing("states", 0.0)}
    assert_equal(whole, FITS["members"](**elsewhere))
    ends = list((tmp_path / "states").glob("*/*.end.ckpt"))
    assert len({path.parent for path in ends}) == 2
    for path in ends:  # workers read them
        header, arrays = read_model(path)
        moved = {name: a + 0.5 for name, a in arrays.items() if name.startswith("state.train.model.")}
        write_model(path, header, {**arrays, **moved})
    with pytest.warns(wf.errors.TrainingWarning, match="a member on a backend diverged"):
        changed = FITS["members"](**elsewhere)
    assert "2 fits of members went wrong, the first: diverged" in changed.status_


# --- what is told of earlier runs ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["flow", pytest.param("validated", marks=pytest.mark.slow)])
def test_a_log_has_all_steps_of_a_fit_that_went_on(name, tmp_path):
    log = wf.callbacks.CSVLog(tmp_path / "log.csv")
    with pytest.raises(Killed):
        FITS[name](checkpoint_dir=tmp_path / "states", callbacks=[log, KillAfter(4)])
    model = FITS[name](checkpoint_dir=tmp_path / "states", callbacks=[log])
    rows, history = pd.read_csv(tmp_path / "log.csv", float_precision="round_trip"), model.history_
    if name == "validated":  # the sparse GP that was kept is none that callbacks see
        history = history[history["phase"] != "sparse GP"].reset_index(drop=True)
    assert rows["phase"].tolist() == history["phase"].tolist()
    np.testing.assert_array_equal(rows["step"], history["step"] + 1)
    np.testing.assert_array_equal(rows["objective"], history["objective"])
    assert history["seconds"].is_monotonic_increasing and rows["seconds"].is_monotonic_increasing


def test_a_warning_of_a_fit_that_gave_up_is_given_again(tmp_path):
    model = wf.FlowRegressor(learning_rate=1e300, max_iter=150, validation_fraction=0, **SMALL)
    watch = KillAfter(10**6)
    for callbacks in ([], [watch]):
        with pytest.warns(wf.errors.TrainingWarning, match="the last steps were not finite"):
            clone(model).set_params(checkpoint_dir=tmp_path, callbacks=callbacks).fit(X, Y)
    assert "flow" not in {phase for phase, _ in watch.seen}  # it was read


def test_records_of_strangers_are_refused(tmp_path):
    with pytest.raises(Killed):
        FITS["series"](checkpoint_dir=tmp_path, callbacks=[KillAfter(2)])
    (path,) = next(tmp_path.iterdir()).iterdir()
    header, arrays = read_model(path)
    for name, array in (("step", np.full(100, 0.5)), ("seconds", np.zeros(())), ("noise", np.zeros((100, 2)))):
        write_model(path, header, {**arrays, f"record.0.{name}": array})
        with pytest.warns(UserWarning, match="its records are inconsistent"), pytest.raises(Killed):
            FITS["series"](checkpoint_dir=tmp_path, callbacks=[KillAfter(1)])
    for other in path.parent.iterdir():
        other.unlink()
    columns = [*header["columns"], "more"]
    write_model(path, {**header, "columns": columns}, {**arrays, "record.0.more": np.zeros(100)})
    assert "more" not in FITS["series"](checkpoint_dir=tmp_path).history_  # later chunks have no such column
    for other in path.parent.iterdir():
        other.unlink()
    write_model(path, {**header, "columns": []}, {n: a for n, a in arrays.items() if not n.startswith("record.")})
    FITS["series"](checkpoint_dir=tmp_path)


# --- how often, and how many ---------------------------------------------------------------------


def names_after(n_chunks, tmp_path, **options):
    """The checkpoints of a fit that is killed after some chunks of a hundred steps."""
    often = wf.Checkpointing(tmp_path, **options)
    with pytest.raises(Killed):
        FITS["long series"](checkpoint_dir=often, callbacks=[KillAfter(n_chunks)])
    return [int(path.name[5:14]) for path in sorted(next(tmp_path.iterdir()).iterdir())]


def test_states_are_written_by_steps_or_by_seconds(tmp_path):
    assert names_after(6, tmp_path / "steps", every_seconds=None, every_steps=200) == [200, 400]
    assert names_after(6, tmp_path / "more", every_seconds=None, every_steps=250) == [300]
    assert names_after(6, tmp_path / "seconds", every_seconds=0.0, keep=4) == [200, 300, 400, 500]
    assert names_after(3, tmp_path / "never", every_seconds=None) == []


def test_options_of_checkpoints_change_no_fingerprint(tmp_path):
    whole = FITS["series"]()
    with pytest.raises(Killed):
        FITS["series"](checkpoint_dir=wf.Checkpointing(tmp_path, every_steps=100), callbacks=[KillAfter(3)])
    again = KillAfter(10**6)
    assert_equal(whole, FITS["series"](checkpoint_dir=wf.Checkpointing(tmp_path, keep=1), callbacks=[again]))
    assert again.seen == [("series", 300)]


def test_options_of_checkpoints_are_copied_and_compared(tmp_path):
    often = wf.Checkpointing(tmp_path, every_seconds=5, keep=3)
    model = clone(wf.FlowRegressor(checkpoint_dir=often, **SMALL))
    assert model.get_params()["checkpoint_dir"] == often == wf.Checkpointing(tmp_path, 5.0, None, 3)
    others = [wf.FlowRegressor(checkpoint_dir=one, **SMALL) for one in (often, tmp_path)]
    with pytest.raises(wf.errors.DataError, match="several checkpoint_dir"):
        wf.fit_many(others, [(X, Y), (X, Y)])


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    "options", [{"folder": 3}, {"folder": ""}, {"every_seconds": -1}, {"every_steps": 0}, {"keep": 0}, {"keep": 1.5}]
)
def test_options_of_checkpoints_that_are_none(options):
    with pytest.raises(OptionError):
        wf.Checkpointing(**{"folder": "x", **options})


@pytest.mark.parametrize("change", [{"position": -1e12}, {"done": 10**9}, {"kl_weight": -3.0}, {"status": 99}])
def test_states_outside_of_their_phase_are_not_used(change, tmp_path):
    """From a place long before its beginning, training would not end."""
    with pytest.raises(Killed):
        FITS["series"](checkpoint_dir=tmp_path, callbacks=[KillAfter(2)])
    (path,) = next(tmp_path.iterdir()).iterdir()
    header, arrays = read_model(path)
    changed = {f"state.{name}": np.full_like(arrays[f"state.{name}"], value) for name, value in change.items()}
    write_model(path, header, {**arrays, **changed})
    with pytest.warns(UserWarning, match="training cannot reach"):
        FITS["series"](checkpoint_dir=tmp_path)


def test_warnings_are_not_repeated_for_a_plain_fit(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FITS["series"](checkpoint_dir=tmp_path)
