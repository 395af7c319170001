"""Every test runs in the library's own numerical context; compiled programs are kept between runs."""

import os
from pathlib import Path

import jax
import pytest

import wishflow.numerics.devices as runtime

runtime.enable_compilation_cache(os.environ.get("WISHFLOW_TEST_CACHE", Path(__file__).parent.parent / ".jax_cache"))
# Small programs too: there are thousands of them, and a program takes milliseconds to read.
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(autouse=True)
def _library_context():
    with runtime.computing():
        yield


@pytest.fixture
def key():
    return jax.random.key(0)
