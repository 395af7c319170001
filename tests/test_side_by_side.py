"""Threads and processes that fit and predict side by side have the numbers they have alone; fits leave no memory."""

import functools
import subprocess
import sys
import threading

import numpy as np
import pytest
from structure import PACKAGE

import wishflow as wf

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 2))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=80)
N_PREDICTING, N_FITTING = 8, 2
OPTIONS = {"n_inducing": 8, "n_steps": 2, "max_iter": 120, "validation_fraction": 0, "n_predict_samples": 16}


@pytest.fixture(autouse=True)
def _library_context():
    """Nobody is inside `computing` beforehand."""
    yield


def flow(seed):
    return wf.FlowRegressor(**OPTIONS, random_state=seed).fit(X, Y)


def together(works):
    """What functions return that are called in threads of their own, all at once."""
    found, errors = [None] * len(works), []
    barrier = threading.Barrier(len(works))

    def call(i):
        try:
            barrier.wait(60)
            found[i] = works[i]()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert not errors, errors
    assert all(value is not None for value in found)
    return found


@pytest.mark.slow
def test_threads_that_predict_and_fit_have_the_numbers_they_have_alone(record_property):
    """Those that predict go on until the last of those that fit has ended."""
    fitted = flow(0)
    rows = [RNG.normal(size=(40 + 7 * i, 2)) for i in range(N_PREDICTING)]
    expected = [fitted.predict(part) for part in rows]
    alone = [flow(seed).predict(X) for seed in range(N_FITTING)]
    ended, n_predictions = [threading.Event() for _ in range(N_FITTING)], [0] * N_PREDICTING

    def predicts(i):
        while n_predictions[i] == 0 or not all(one.is_set() for one in ended):
            np.testing.assert_array_equal(fitted.predict(rows[i]), expected[i])
            n_predictions[i] += 1
        return n_predictions[i]

    def fits(seed):
        try:
            return flow(seed).predict(X)
        finally:
            ended[seed].set()

    works = [functools.partial(predicts, i) for i in range(N_PREDICTING)]
    works += [functools.partial(fits, seed) for seed in range(N_FITTING)]
    for one, other in zip(alone, together(works)[N_PREDICTING:], strict=True):
        np.testing.assert_array_equal(one, other)
    assert sum(n_predictions) > 2 * N_PREDICTING  # not only before the fits began
    record_property("threads", f"{N_FITTING} fits and {sum(n_predictions):,} predictions beside them, all equal")


PROCESSES = """
import multiprocessing
import numpy as np
import wishflow as wf

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 2))
Y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)

def fitted(seed):
    model = wf.FlowRegressor(n_inducing=8, n_steps=2, max_iter=40, validation_fraction=0, random_state=seed).fit(X, Y)
    return model.predict(X)

if __name__ == "__main__":
    alone = [fitted(seed) for seed in range(4)]
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        found = pool.map_async(fitted, range(4), chunksize=1).get(timeout=250)
    for one, other in zip(alone, found):
        np.testing.assert_array_equal(one, other)
"""


def run(program, folder, timeout):
    """A program in a process of its own, with the package of this tree."""
    path = folder / "program.py"
    path.write_text(f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n{program}")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_four_processes_that_fit_have_the_numbers_they_have_alone(tmp_path):
    run(PROCESSES, tmp_path, 290.0)


MEMORY = """
import os
import numpy as np
import wishflow as wf

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

rng = np.random.default_rng(0)
found = []
for i in range(200):
    n = int(rng.integers(20, 400))
    X = rng.normal(size=(n, 2))
    wf.SparseGPRegressor(n_inducing=10, max_iter=5, calibrate=None).fit(X, np.sin(X[:, 0])).predict(X[:5])
    found.append(resident())
print(f"{found[49]:.0f} {found[99]:.0f} {found[199]:.0f}")
"""
# Programs of all size classes are compiled in the first hundred fits; what the second hundred adds is a leak.
MOST_MIB = 40.0


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_two_hundred_fits_of_varying_length_leave_memory_bounded(tmp_path, record_property):
    _, half, end = (float(number) for number in run(MEMORY, tmp_path, 290.0).split())
    assert end < half + MOST_MIB, (half, end)
    record_property("two hundred fits", f"{end - half:+.0f} MiB, of {half:.0f}")
