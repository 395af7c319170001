"""Every test runs in the numerical context of the library; compiled programs are kept. Types can be checked."""

import os
import tempfile
from pathlib import Path

import jax
import jaxtyping
import pytest

# Before wishflow is first imported, and here rather than in the options of pytest: a plugin would read those of
# pyproject.toml in the main process alone, not in the workers of xdist. As for mypy, an int is a float too.
# Checks take as much time as the rest of a test; the Makefile says which tests have them.
if os.environ.get("WISHFLOW_TEST_TYPES", "1") == "1":
    jaxtyping.install_import_hook("wishflow", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

import wishflow.numerics.devices as runtime

# `ray.init` connects to the cluster that was started last on this machine, which may be that of another worker's test.
# Sockets lie in it, whose paths must be short.
RAY_FOLDER = tempfile.TemporaryDirectory(prefix="wf", dir="/tmp" if os.path.isdir("/tmp") else None)
os.environ["RAY_TMPDIR"] = RAY_FOLDER.name

runtime.enable_compilation_cache(os.environ.get("WISHFLOW_TEST_CACHE", Path(__file__).parent.parent / ".jax_cache"))
# Small programs too: there are thousands of them, and a program takes milliseconds to read.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


# Workers that were lost, as xdist says. One that had no test yet would be no failure.
LOST = []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    if error:
        LOST.append(str(error))


def pytest_sessionfinish(session, exitstatus):
    if LOST and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


@pytest.fixture(autouse=True)
def _library_context():
    with runtime.computing():
        yield


# Linux lets a process have 65,530 memory maps, and every compiled program takes some. LLVM crashes beyond that.
MOST_MAPS = 20_000


@pytest.fixture(autouse=True)
def _few_memory_maps():
    """Programs of earlier tests are let go before there are too many; they are read from the cache if needed again."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def types_unchecked():
    """For tests of what is against the annotations and is refused by the library itself, with an error of its own."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def key():
    return jax.random.key(0)
