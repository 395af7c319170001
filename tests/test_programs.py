"""Whole programs on disk: found again by all that they are made from, and by nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wishflow.kernels import RBFKernel
from wishflow.parameters import Positive
from wishflow.programs import Arguments, StoredPrograms, key

ROOT = Path(__file__).parent.parent


class Counted(NamedTuple):
    """A function as the package might have it, and the times it was traced."""

    function: object
    traces: list


def counted(body, module="wishflow.made_up"):
    traces = []

    def function(*args, **kwargs):
        traces.append(1)
        return body(*args, **kwargs)

    function.__module__, function.__qualname__ = module, body.__name__
    return Counted(function, traces)


def scaled(kernel, x, power):
    """A module, an array, and a static number."""
    return {"sum": jnp.exp(kernel.variance.raw) * x.sum() ** power, "kernel": kernel}


def drawn(random_key, n):
    next_key, now = jax.random.split(random_key)
    return next_key, jax.random.normal(now, (n,))


def call(programs, made, *args, options=None, **kwargs):
    found = programs.find(made.function, (args, kwargs), options or {})
    return None if found is None else found()


@pytest.fixture
def kernel():
    return RBFKernel(Positive.of(jnp.asarray(2.0)), Positive.of(jnp.ones(3)), 3)


# --- found again -----------------------------------------------------------------------------------


def test_a_program_is_traced_once_for_all_processes(tmp_path, kernel):
    x = jnp.arange(3.0)
    first, later = counted(scaled), counted(scaled)
    expected = scaled(kernel, x, 2)
    one, other = StoredPrograms(tmp_path / "new"), StoredPrograms(tmp_path / "new")
    for _ in range(2):
        found = call(one, first, kernel, x, power=2)
        assert eqx.tree_equal(found, expected) and len(first.traces) == 1
    # Another dictionary of programs at hand, as in another process: numbers may differ, nothing else.
    found = call(other, later, kernel, 2 * x, power=2)
    assert not later.traces
    np.testing.assert_allclose(found["sum"], scaled(kernel, 2 * x, 2)["sum"], rtol=1e-12)
    assert isinstance(found["kernel"], RBFKernel)


def test_random_keys_go_in_and_come_out(tmp_path):
    random_key = jax.random.key(3)
    call(StoredPrograms(tmp_path), counted(drawn), random_key, 4)
    later = counted(drawn)
    next_key, values = call(StoredPrograms(tmp_path), later, random_key, 4)
    expected_key, expected = drawn(random_key, 4)
    assert not later.traces and next_key.dtype == random_key.dtype
    assert (jax.random.key_data(next_key) == jax.random.key_data(expected_key)).all()
    np.testing.assert_array_equal(values, expected)


def solved(A, b):
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(A, lower=True), b)


def test_a_file_that_cannot_be_read_is_made_anew(tmp_path):
    A, b = jnp.eye(3) * 2.0, jnp.ones(3)
    call(StoredPrograms(tmp_path), counted(solved), A, b)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for content in (b"", b"no pickle", whole[: len(whole) // 2]):
        path.write_bytes(content)
        again = counted(solved)
        np.testing.assert_allclose(call(StoredPrograms(tmp_path), again, A, b), 0.5)
        assert again.traces and path.read_bytes() != content


# --- told apart ------------------------------------------------------------------------------------


def test_everything_but_the_numbers_is_in_the_key(kernel):
    x = jnp.arange(3.0)

    def name(*args, function=scaled, options=None, **kwargs):
        found = key(counted(function).function, Arguments.of((args, kwargs)), options or {})
        assert found is not None
        return found

    names = [
        name(kernel, x, power=2),
        name(kernel, x, power=3),
        name(kernel, x, power=2.0),
        name(kernel, x, power=True),
        name(kernel, x, 2),
        name(kernel, x.astype(jnp.float32), power=2),
        name(kernel, jnp.arange(4.0), power=2),
        name(kernel.lengthscale, x, power=2),
        name(kernel, x, power=2, function=drawn),
        name(kernel, x, power=2, options={"xla_backend_optimization_level": 1}),
        name(jax.random.key(0), x, power=2),
        name(jax.random.key(0, impl="rbg"), x, power=2),
    ]
    with jax.default_matmul_precision("bfloat16"):
        names.append(name(kernel, x, power=2))
    assert len(set(names)) == len(names)
    assert name(kernel, x, power=2) == name(kernel, -x, power=2) == names[0]


def test_equal_numbers_of_other_types_are_other_programs_at_hand(tmp_path):
    def doubled(x, n):
        return x * n

    programs, made = StoredPrograms(tmp_path), counted(doubled)
    kinds = [call(programs, made, jnp.arange(2), n).dtype for n in (1, 1.0, True)]
    assert kinds[0] != kinds[1] and len(made.traces) == 3


class OfAUser(eqx.Module):
    scale: jax.Array


def test_code_of_others_has_no_key(tmp_path, kernel):
    """It may change while its name stays: it is traced each time, as without a folder."""
    programs, x = StoredPrograms(tmp_path), jnp.arange(3.0)
    assert call(programs, counted(scaled, module="users.module"), kernel, x, 2) is None

    def scale_of(module, x, *rest):
        return x * 2

    made = counted(scale_of)
    assert call(programs, made, OfAUser(x), x) is None
    assert call(programs, made, kernel, x, lambda x: x) is None
    assert call(programs, made, kernel, x, [object()]) is None
    assert call(programs, made, kernel, x, json.dumps) is None
    assert not list(tmp_path.iterdir())


def test_inside_another_program_it_is_part_of_it(tmp_path, kernel):
    programs, made = StoredPrograms(tmp_path), counted(scaled)
    jax.jit(lambda x: [call(programs, made, kernel, x, 2), x][1])(jnp.arange(3.0))
    assert not made.traces and not list(tmp_path.iterdir())


# --- estimators ------------------------------------------------------------------------------------

FIT = """
import json, jax, numpy as np, wishflow as wf
wf.enable_compilation_cache({folder!r}, whole_programs=True)
traced = []
def listen(name, seconds, **about):
    if name.endswith("jaxpr_trace_duration"): traced.append(about.get("fun_name", ""))
jax.monitoring.register_event_duration_secs_listener(listen)
X = np.random.default_rng(0).normal(size=(40, 2))
model = wf.SparseGPRegressor(n_inducing=8, max_iter=5, random_state=0).fit(X, np.sin(X[:, 0]))
print(json.dumps([traced, model.predict(X[:3]).tolist()]))
"""


def test_a_fit_in_a_later_process_traces_no_model(tmp_path):
    def run():
        environment = {n: v for n, v in os.environ.items() if n != "JAX_COMPILATION_CACHE_DIR"}
        code = FIT.format(folder=str(tmp_path))
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=ROOT
        )
        return json.loads(done.stdout.splitlines()[-1])

    first, later = run(), run()
    models = ("_value_and_grad", "collapsed_end", "_moments")
    assert all(any(name.startswith(model) for name in first[0]) for model in models)
    assert not any(name.startswith(models) for name in later[0])
    assert first[1] == later[1]
