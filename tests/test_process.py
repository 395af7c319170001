"""What our computations share with the rest of the process: threads of BLAS, forks, memory."""

import json
import subprocess
import sys
import threading

import jax
import numpy as np
import pandas as pd
import pytest
import threadpoolctl
from structure import PACKAGE

import wishflow as wf
from wishflow.errors import ForkError
from wishflow.numerics.devices import compiled, computing
from wishflow.numerics.process import BlasLimit, Origin, Programs, release_control


@pytest.fixture(autouse=True)
def _library_context():
    """Takes the place of the fixture of this name for other tests: here nobody is inside `computing` beforehand."""
    yield


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    """BLAS with two threads, on any machine, set by nobody who is still there."""
    import scipy.linalg.cython_blas  # noqa: F401  (brings a BLAS of its own)

    limit = threadpoolctl.ThreadpoolController().limit(limits=2, user_api="blas")
    release_control()
    yield
    release_control()
    limit.restore_original_limits()
    release_control()


# --- settings of users ---------------------------------------------------------------------------

STRICT = {
    "types": lambda: jax.numpy_dtype_promotion("strict"),
    "ranks": lambda: jax.numpy_rank_promotion("raise"),
    "transfers": lambda: jax.transfer_guard("disallow"),
    "errors of NumPy": lambda: np.errstate(all="raise"),
}


@pytest.mark.parametrize("strict", STRICT.values(), ids=STRICT)
def test_strict_settings_of_users_change_nothing(strict):
    X = np.random.default_rng(0).normal(size=(40, 2))
    series = pd.DataFrame(X.cumsum(axis=0), pd.date_range("2024", periods=40, freq="h"), ["a", "b"])

    def numbers():
        flow = wf.FlowRegressor(n_inducing=5, max_iter=6, n_steps=2, n_predict_samples=4).fit(X, X[:, 0])
        forecaster = wf.WishartForecaster(n_inducing=5, max_iter=3, lags=1, validation_fraction=0).fit(series)
        chosen = wf.WishartForecaster().fit(np.exp(series))
        forecasts = [one.predict(2).to_numpy() for one in (forecaster, chosen)]
        return [*flow.predict(X, return_std=True), *forecasts]

    plain = numbers()
    with strict():
        found = numbers()
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_array_equal(one, other)


# --- threads of BLAS -----------------------------------------------------------------------------


def overlapping(first_in, second_in):
    """Two threads: the first enters, the second enters, the first leaves, the second leaves."""
    is_in, may_leave, has_left = threading.Event(), threading.Event(), threading.Event()
    seen = []

    def first():
        with first_in():
            is_in.set()
            may_leave.wait(20)
        has_left.set()

    def second():
        is_in.wait(20)
        with second_in():
            may_leave.set()
            has_left.wait(20)
            seen.append(blas_threads())

    threads = [threading.Thread(target=part) for part in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return seen[0]


def test_threads_that_overlap_leave_blas_as_they_found_it(two_threads):
    inside = overlapping(computing, computing)
    assert set(inside) == {1}  # the second is still at work when the first has left
    assert set(blas_threads()) == {2}


def test_a_limit_that_another_thread_holds_stays(two_threads):
    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        overlapping(computing, computing)
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


def test_libraries_are_looked_for_once(monkeypatch):
    found, search = [], threadpoolctl.ThreadpoolController.__init__
    monkeypatch.setattr(threadpoolctl.ThreadpoolController, "__init__", lambda self: found.append(search(self)))
    limit = BlasLimit()
    for _ in range(5):
        with limit.held(), limit.held():
            pass
    assert len(found) == 1


def test_an_error_inside_restores_the_threads(two_threads):
    with pytest.raises(KeyError), computing(), computing():
        raise KeyError
    assert set(blas_threads()) == {2}


def interrupted(limit, place):
    """Enter and leave a limit, with Ctrl-C at the given call on the way; whether there was such a call."""
    calls = []

    def ctrl_c(frame, event, argument):
        if event == "call" and frame.f_globals.get("__name__") in ("wishflow.numerics.process", "threadpoolctl"):
            calls.append(frame)
            if len(calls) == place:
                raise KeyboardInterrupt

    try:
        sys.setprofile(ctrl_c)
        with limit.held():
            pass
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return len(calls) >= place


def test_ctrl_c_while_a_limit_is_set_or_restored_leaves_blas_as_it_was(two_threads):
    limit, place = BlasLimit(), 1
    with limit.held():  # the search for libraries is over
        pass
    while interrupted(limit, place):
        assert set(blas_threads()) == {2}, place
        with limit.held():
            assert set(blas_threads()) == {1}, place
        assert set(blas_threads()) == {2}, place
        place += 1
    assert place > 20


SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion", "jax_numpy_rank_promotion")


def test_ctrl_c_before_the_first_computation_leaves_jax_as_it_was():
    """A stack of contexts knew of a setting only after it was made: Ctrl-C in between left 64 bits on for good."""
    calls, place = [], 0

    def ctrl_c(frame, event, argument):
        if event == "call" and frame.f_globals.get("__name__") == "contextlib":
            calls.append(frame)
            if len(calls) == place:
                raise KeyboardInterrupt

    while len(calls) >= place:  # there was such a call before the body
        place += 1
        calls.clear()
        before = [getattr(jax.config, name) for name in SETTINGS]
        try:
            sys.setprofile(ctrl_c)
            with computing():
                sys.setprofile(None)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        assert [getattr(jax.config, name) for name in SETTINGS] == before, calls[-1].f_code.co_name
    assert place > 3


MILLION = """
import json, time
import numpy as np
import wishflow as wf

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 4))
model = wf.SparseGPRegressor(n_inducing=50, max_iter=30).fit(X, np.sin(X[:, 0]))
rows = rng.normal(size=(1_000_000, 4))
model.predict(rows[:10_000])

def peak():
    # That of `resource` is never below the peak of the process that started this one.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))

before, started = peak(), time.perf_counter()
found = model.predict(rows)
seconds = time.perf_counter() - started
assert seconds < 20.0, seconds
more = peak() - before
# Scaled rows, means and variances, some of them twice; the kernel matrix alone would be 400 MB.
assert more < 300_000, more
np.testing.assert_allclose(found[:100], model.predict(rows[:100]), rtol=1e-9)
print(json.dumps({"seconds": seconds, "MiB": more / 1024}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_million_rows_are_predicted_in_seconds_and_in_little_memory(record_property):
    found = json.loads(run(MILLION, timeout=280.0))
    record_property("a million rows", f"{found['seconds']:.1f} s, at most {found['MiB']:.0f} MiB more")


# --- forks ---------------------------------------------------------------------------------------


def test_a_forked_child_is_told_at_once(monkeypatch):
    origin = Origin()
    origin.check()
    origin.check()
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(ForkError, match=r"forked from process .*spawn"):
        origin.check()
    Origin().check()  # one that was forked before JAX started


FORKED = """
import os, sys, signal
import numpy as np
import warnings
warnings.simplefilter("ignore")  # JAX warns of the fork
import wishflow as wf

X = np.linspace(-2.0, 2.0, 20)[:, None]
model = wf.SparseGPRegressor(n_inducing=5, max_iter=3).fit(X, np.sin(X[:, 0]))
child = os.fork()
if child == 0:
    signal.alarm(20)
    for work in (lambda: model.predict(X), lambda: model.fit(X, X[:, 0])):
        try:
            work()
        except wf.errors.ForkError as error:
            continue
        os._exit(1)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run(program: str, timeout: float = 120.0) -> str:
    path = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
    done = subprocess.run([sys.executable, "-c", path + program], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fork_after_a_fit_does_not_hang():
    run(FORKED)


JOBS = """
import joblib
import numpy as np
import wishflow as wf

if __name__ == "__main__":
    X = np.linspace(-2.0, 2.0, 20)[:, None]
    model = wf.SparseGPRegressor(n_inducing=5, max_iter=3).fit(X, np.sin(X[:, 0]))
    work = [joblib.delayed(model.predict)(X) for _ in range(2)] + [joblib.delayed(model.fit)(X, X[:, 0])]
    first, second, fitted = joblib.Parallel(n_jobs=2)(work)
    assert (first == model.predict(X)).all() and (second == first).all()
    assert np.isfinite(fitted.predict(X)).all()
"""


@pytest.mark.slow
def test_processes_of_joblib_work():
    run(JOBS)


# --- memory maps ---------------------------------------------------------------------------------


def test_programs_are_forgotten_where_there_are_too_many_maps(tmp_path):
    """Not below the limit, and not again before more have come."""
    maps, released = tmp_path / "maps", []
    programs = Programs(maps)
    programs.add(lambda: released.append(1))
    assert not programs.make_room()  # a system without such a file
    for n, n_released in (
        (Programs.MOST_MAPS - 1, 0),
        (Programs.MOST_MAPS, 1),
        (Programs.MOST_MAPS + 1, 1),
        (30_000, 2),
    ):
        maps.write_bytes(b"a map\n" * n)
        programs.make_room()
        assert len(released) == n_released


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory maps as Linux lists them")
def test_what_was_forgotten_leaves_no_maps_and_is_compiled_again(monkeypatch):
    programs = Programs()
    monkeypatch.setattr("wishflow.numerics.devices.PROGRAMS", programs)
    monkeypatch.setattr(programs, "MOST_MAPS", 0)
    monkeypatch.setattr(programs, "LEAST_RELEASED", 0)
    functions = [compiled(lambda x, k=k: (x @ x.T + k).sum()) for k in range(20)]
    x = np.ones((3, 2))
    with computing():
        before = [float(f(x)) for f in functions]
        n_maps = programs._n_maps()
        assert programs.make_room()
        assert programs._n_maps() < n_maps - 2 * len(functions)
        assert [float(f(x)) for f in functions] == before
