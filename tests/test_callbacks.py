"""Callbacks: every event reaches every callback, the bar keeps to one line, the log reads back exactly."""

from __future__ import annotations

import copy
import csv
import io
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

import wishflow.callbacks as callbacks_module
from wishflow.callbacks import Callback, CallbackList, ChunkEvent, CSVLog, EarlyStop, ProgressBar
from wishflow.errors import OptionError


def event(step=10, n_steps=40, objective=-50.0, noise=0.25, seconds=1.0, phase="flow", chunk=10, **more):
    records = {"objective": np.full(chunk, objective), "noise": np.full(chunk, noise)}
    return ChunkEvent(phase, step, n_steps, records, seconds, **more)


class Recorder(Callback):
    def __init__(self, answer=None):
        self.calls, self.answer = [], answer

    def on_start(self, phase, n_steps):
        self.calls.append(("start", phase, n_steps))

    def on_chunk(self, event):
        self.calls.append(("chunk", event.step))
        return self.answer

    def on_end(self):
        self.calls.append(("end",))


# --- the list --------------------------------------------------------------------------------


@pytest.mark.parametrize(("answers", "stop"), [((None, False), False), ((True, None), True), ((None, True), True)])
def test_every_callback_sees_every_event_and_one_can_stop(answers, stop):
    recorders = [Recorder(answer) for answer in answers]
    callbacks = CallbackList(recorders)
    callbacks.on_start("flow", 40)
    assert callbacks.on_chunk(event()) is stop
    callbacks.on_end()
    for recorder in recorders:
        assert recorder.calls == [("start", "flow", 40), ("chunk", 10), ("end",)]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_end_is_told_to_all_when_training_or_a_callback_raises(error):
    class Broken(Recorder):
        def on_end(self):
            raise ZeroDivisionError

    before, after = Recorder(), Recorder()
    with pytest.raises(error), CallbackList([before]):
        raise error
    assert before.calls == [("end",)]
    with pytest.raises(ZeroDivisionError) as caught, CallbackList([before, Broken(), after]):
        raise error
    assert after.calls == [("end",)] and before.calls == [("end",)] * 2
    assert isinstance(caught.value.__context__, error)


def test_none_one_or_several_callbacks_are_accepted():
    one = Recorder()
    assert CallbackList(None).callbacks == () and CallbackList().on_chunk(event()) is False
    assert CallbackList(one).callbacks == (one,)
    assert CallbackList(iter([one, one])).callbacks == (one, one)


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("wrong", [3, [print], "csv", [EarlyStop]])
def test_other_objects_are_refused(wrong):
    with pytest.raises(OptionError, match="on_start, on_chunk and on_end"):
        CallbackList(wrong)


def test_a_subclass_may_override_only_what_it_needs():
    class Stop(Callback):
        def on_chunk(self, event):
            return event.step >= 20

    callbacks = CallbackList(Stop())
    callbacks.on_start("flow", 40)
    assert [callbacks.on_chunk(event(step)) for step in (10, 20)] == [False, True]
    callbacks.on_end()


def test_importing_the_module_imports_no_rich():
    code = "import sys, wishflow.callbacks; assert not [m for m in sys.modules if m.split('.')[0] == 'rich']"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- early stop ------------------------------------------------------------------------------


def first_stop(objectives, **options):
    """The index of the first chunk that asks to stop, or None."""
    stopper = EarlyStop(**options)
    stopper.on_start("flow", 1000)
    answers = [stopper.on_chunk(event(objective=objective)) for objective in objectives]
    return answers.index(True) if True in answers else None


@pytest.mark.parametrize(
    ("objectives", "options", "expected"),
    [
        ([1, 2, 3, 4, 5], {"patience": 1}, None),
        ([1, 2, 2], {"patience": 1}, 2),
        ([5, 4, 4, 4, 4], {"patience": 3}, 3),
        ([5, 4, 4, 6, 5, 5, 5], {"patience": 3}, 6),  # 6 starts the count anew
        ([0, 1, 2, 3], {"patience": 2, "min_delta": 1.0}, None),  # gains over the best: 1 (no), 2 (yes), 1 (no)
        ([0, 1, 2, 3], {"patience": 1, "min_delta": 1.0}, 1),
        ([0, 0.9, 1.8, 2.7], {"patience": 2, "min_delta": 1.0}, None),
        ([0, 0.4, 0.8, 1.2], {"patience": 2, "min_delta": 1.0}, 2),
        ([1, np.nan, np.nan], {"patience": 2}, 2),
        ([np.nan, 1, 2], {"patience": 1}, None),  # before a first objective there is nothing to fall short of
        ([-np.inf, -np.inf, -np.inf], {"patience": 2}, 2),
    ],
)
def test_early_stop_stops_exactly_when_it_should(objectives, options, expected):
    assert first_stop(objectives, **options) == expected


def test_early_stop_judges_the_mean_of_a_chunk():
    stopper = EarlyStop(patience=1)
    stopper.on_start("flow", 10)
    noisy = [np.array([0.0, 4.0]), np.array([3.0, 2.0]), np.array([9.0, -5.0])]  # means 2, 2.5, 2
    answers = [stopper.on_chunk(ChunkEvent("flow", 2, 10, {"objective": record}, 0.0)) for record in noisy]
    assert answers == [False, False, True]


def test_early_stop_judges_models_and_phases_by_themselves():
    stopper = EarlyStop(patience=1)
    stopper.on_start("sgp", 40)
    assert [
        stopper.on_chunk(event(objective=b, model_index=i, n_models=2)) for b, i in [(5, 0), (1, 1), (6, 0), (1, 1)]
    ] == [
        False,
        False,
        False,
        True,
    ]
    stopper.on_start("flow", 40)
    assert not stopper.on_chunk(event(objective=-100))


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    "options", [{"patience": 0}, {"patience": 1.5}, {"patience": True}, {"min_delta": -1}, {"min_delta": np.nan}]
)
def test_early_stop_refuses_wrong_options(options):
    with pytest.raises(OptionError, match="given to EarlyStop"):
        EarlyStop(**options)


def test_early_stop_says_which_records_there_are():
    with pytest.raises(OptionError, match=r"needs the record 'objective'.*'noise'"):
        EarlyStop().on_chunk(ChunkEvent("flow", 1, 2, {"noise": np.ones(1)}, 0.0))


# --- CSV log ---------------------------------------------------------------------------------


def test_csv_log_file_content(tmp_path):
    path = tmp_path / "log.csv"
    with CallbackList(CSVLog(path)) as callbacks:
        callbacks.on_start("sgp", 2)
        callbacks.on_chunk(ChunkEvent("sgp", 2, 2, {"objective": np.array([-3.5, -2.0])}, 0.5))
        callbacks.on_start("flow", 4)
        records = {"objective": np.array([-1.0, -0.5]), "noise": np.array([[1.0, 2.0], [3.0, 4.0]])}
        callbacks.on_chunk(ChunkEvent("flow", 2, 4, records, 1.25, model_index=1, n_models=2))
        callbacks.on_chunk(ChunkEvent("flow", 4, 4, {"objective": np.array([0.0, 1.0], np.float32)}, 2.0))
    assert path.read_text() == (
        "phase,model,step,seconds,objective,noise[0],noise[1]\n"
        "sgp,0,1,0.5,-3.5,,\n"
        "sgp,0,2,0.5,-2.0,,\n"
        "flow,1,1,1.25,-1.0,1.0,2.0\n"
        "flow,1,2,1.25,-0.5,3.0,4.0\n"
        "flow,0,3,2.0,0.0,,\n"
        "flow,0,4,2.0,1.0,,\n"
    )


def test_csv_log_numbers_read_back_exactly(tmp_path):
    objective = np.array([1 / 3, -0.0, 5e-324, np.inf, np.nan, -1.7976931348623157e308])
    log = CSVLog(str(tmp_path / "log.csv"))
    log.on_start('a, "b"', 6)
    log.on_chunk(ChunkEvent('a, "b"', 6, 6, {"objective": objective}, 1.0))
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert np.array([float(row["objective"]) for row in rows]).tobytes() == objective.tobytes()
    assert {row["phase"] for row in rows} == {'a, "b"'}
    assert [row["step"] for row in rows] == list("123456")


@pytest.mark.parametrize(("append", "expected"), [(False, [20]), (True, [10, 20])])
def test_csv_log_of_a_second_fit(tmp_path, append, expected):
    log = CSVLog(tmp_path / "log.csv", append=append)
    for step in (10, 20):
        log.on_start("flow", 40)
        log.on_chunk(event(step, chunk=1))
        log.on_end()
    with open(tmp_path / "log.csv", newline="") as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == expected


def test_csv_log_is_complete_after_each_chunk(tmp_path):
    """A fit that is killed leaves the rows it has done."""
    log = CSVLog(tmp_path / "log.csv")
    log.on_start("flow", 40)
    assert (tmp_path / "log.csv").read_text() == "phase,model,step,seconds\n"
    for n_chunks in (1, 2, 3):
        log.on_chunk(event(10 * n_chunks))
        assert len((tmp_path / "log.csv").read_text().splitlines()) == 1 + 10 * n_chunks


def test_csv_log_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="create it first"):
        CSVLog(tmp_path / "absent" / "log.csv").on_start("flow", 1)
    with pytest.raises(ValueError, match="one entry per step"):
        CSVLog(tmp_path / "log.csv").on_chunk(ChunkEvent("flow", 2, 2, {"a": np.ones(2), "b": np.ones(1)}, 0.0))


# --- progress bar ----------------------------------------------------------------------------


def terminal(width=100):
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, color_system=None, force_jupyter=False, _environ={}
    )


def frames(console):
    """What was on the line, one entry per drawing, without control codes."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", console.file.getvalue())
    return [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]


def run(bar, events):
    with CallbackList(bar) as callbacks:
        callbacks.on_start(events[0].phase, events[0].n_steps)
        for item in events:
            callbacks.on_chunk(item)


def test_bar_shows_phase_step_objective_noise_and_time_left():
    console = terminal()
    # 10 s for the first chunk (compilation), then 2 s for each 10 steps: 4 s for the 20 steps left, then 2 s.
    run(
        ProgressBar(console=console),
        [event(10, seconds=10.0), event(20, seconds=12.0), event(30, seconds=14.0, noise=0.125)],
    )
    drawn = frames(console)
    first = next(line for line in drawn if "10/40" in line)
    second = next(line for line in drawn if "20/40" in line)
    third = next(line for line in drawn if "30/40" in line)
    assert first.startswith("flow") and first.endswith("objective -50  noise 0.25  -:-- left")
    assert second.endswith("objective -50  noise 0.25  0:04 left")
    assert third.endswith("objective -50  noise 0.125  0:02 left")


def test_bar_shows_the_objective_per_point():
    console = terminal()
    run(ProgressBar(n_points=200, console=console), [event(objective=-50.0)])
    assert "objective -0.25/point" in frames(console)[-1]


def test_bar_follows_the_phases_on_one_line():
    console = terminal()
    bar = ProgressBar(console=console)
    with CallbackList(bar) as callbacks:
        callbacks.on_start("sgp", 20)
        callbacks.on_chunk(event(20, 20, phase="sgp"))
        callbacks.on_start("flow", 40)
        callbacks.on_chunk(event(40, 40, seconds=3725.0, model_index=1, n_models=3))
    drawn = frames(console)
    assert any(line.startswith("sgp") and "20/20" in line for line in drawn)
    assert any(line.startswith("flow") and "0/40" in line and "objective" not in line for line in drawn)
    assert drawn[-1].startswith("flow, model 2 of 3") and "40/40" in drawn[-1] and "0:00 left" in drawn[-1]
    assert console.file.getvalue().count("\n") == 1  # one line in all, ended when the fit ends


@pytest.mark.parametrize("width", [80, 60])
def test_bar_keeps_to_one_line_on_narrow_terminals(width):
    console = terminal(width)
    run(
        ProgressBar(n_points=3, console=console),
        [event(1000, 20000, objective=-12345.678, seconds=s) for s in (1.0, 2.0)],
    )
    assert console.file.getvalue().count("\n") == 1
    assert "1000/20000" in frames(console)[-1]


def test_bar_is_closed_when_training_raises():
    console = terminal()
    before = sys.stdout, sys.stderr
    with pytest.raises(RuntimeError), CallbackList(ProgressBar(console=console)) as callbacks:
        callbacks.on_start("flow", 40)
        callbacks.on_chunk(event())
        raise RuntimeError
    assert (sys.stdout, sys.stderr) == before
    assert console.file.getvalue().endswith("\x1b[?25h")  # the cursor is shown again
    assert "10/40" in frames(console)[-1]


def test_bar_prints_a_line_now_and_then_where_there_is_no_terminal():
    """A fit of minutes is not silent in a log: the time that is left is that of the steps so far."""
    console = Console(file=io.StringIO(), force_terminal=False, width=20, force_jupyter=False)
    with CallbackList(ProgressBar(console=console, every=30.0)) as callbacks:
        callbacks.on_start("flow", 400)
        for step in range(10, 401, 10):
            callbacks.on_chunk(event(step, 400, seconds=step / 4))
    lines = console.file.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["flow 120/400", "flow 240/400", "flow 360/400", "flow 400/400"]
    assert lines[0].endswith("0:30 taken, 1:10 left in this phase")


@pytest.mark.parametrize(
    ("n_steps", "seconds", "said"),
    [
        (800, 20.0, "training will take at most about 2:40 (800 steps)"),
        (None, 20.0, "phase 'flow' will take at most about 1:20 (400 steps)"),
        (800, 5.0, None),
    ],
)
def test_bar_says_after_the_first_chunk_how_long_a_fit_will_take(monkeypatch, n_steps, seconds, said):
    """Once for all phases and models, and only where it takes more than a minute."""
    now = [100.0]
    monkeypatch.setattr(callbacks_module.time, "perf_counter", lambda: now[0])
    console = Console(file=io.StringIO(), force_terminal=False, width=20, force_jupyter=False)
    with CallbackList(ProgressBar(console=console, every=1000.0, n_steps=n_steps)) as callbacks:
        for phase, model in (("flow", 0), ("all rows", 0), ("flow", 1)):
            callbacks.on_start(phase, 400)
            for step in (100, 200):
                now[0] += seconds
                callbacks.on_chunk(event(step, 400, seconds=now[0] - 100.0, phase=phase, model_index=model, n_models=2))
    lines = console.file.getvalue().splitlines()
    assert [line for line in lines if "will take" in line] == ([] if said is None else [said])
    assert len(lines) == (1 if said is None else 2)  # and the last line


def test_bar_prints_one_line_at_the_end_where_there_is_no_terminal():
    console = Console(file=io.StringIO(), force_terminal=False, width=20, force_jupyter=False)
    bar = ProgressBar(console=console, every=1000.0)
    with CallbackList(bar) as callbacks:
        callbacks.on_start("flow", 400)
        for step in range(10, 401, 10):
            callbacks.on_chunk(event(step, 400, seconds=step / 4))
            assert console.file.getvalue() == ""
    assert console.file.getvalue() == "flow 400/400  objective -50  noise 0.25  1:40 taken\n"
    bar.on_end()
    assert console.file.getvalue().count("\n") == 1


def test_bar_is_silent_without_events_and_takes_no_log_for_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with CallbackList(ProgressBar()) as callbacks:
        callbacks.on_start("flow", 40)
    ProgressBar().on_end()
    assert capsys.readouterr() == ("", "")
    run(ProgressBar(), [event(10), event(20), event(30)])
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "30/40" in err and "\r" not in err


def test_bar_can_be_used_for_a_second_fit():
    console = terminal()
    bar = ProgressBar(console=console)
    for _ in range(2):
        run(bar, [event(10), event(40)])
    assert console.file.getvalue().count("\n") == 2


def test_bar_leaves_out_what_is_not_recorded():
    console = terminal()
    run(ProgressBar(console=console), [ChunkEvent("flow", 10, 40, {}, 1.0)])
    assert "objective" not in frames(console)[-1] and "10/40" in frames(console)[-1]


# --- copies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bar", "log", "stop"])
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))], ids=["copy", "pickle"]
)
def test_callbacks_can_be_copied_and_pickled_at_any_time(tmp_path, kind, duplicate):
    """Estimators that hold them are cloned and sent to other processes."""
    original = {"bar": ProgressBar(7, terminal()), "log": CSVLog(tmp_path / "log.csv"), "stop": EarlyStop(3, 0.5)}[kind]
    original.on_start("flow", 40)
    original.on_chunk(event())
    twin = duplicate(original)
    assert repr(twin) == repr(original)
    if kind != "bar":  # a copied log goes on with the same file
        run(twin, [event(20)])
    original.on_end()
