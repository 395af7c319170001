"""Whole programs on disk: found again by all that they are made from, and by nothing else."""

import json
import os
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wishflow import programs
from wishflow.kernels import RBFKernel
from wishflow.parameters import Positive
from wishflow.programs import Arguments, StoredPrograms, key

ROOT = Path(__file__).parent.parent


# What was traced, by name: a function that is kept has no closure to count in.
TRACED: list[str] = []


def as_of_the_package(body, module="wishflow.made_up"):
    """The function as the package might have it, a new object as in a new process."""
    function = types.FunctionType(body.__code__, body.__globals__, body.__name__)
    function.__module__, function.__qualname__ = module, body.__name__
    return function


def scaled(kernel, x, power):
    """A module, an array, and a static number."""
    TRACED.append("scaled")
    return {"sum": jnp.exp(kernel.variance.raw) * x.sum() ** power, "kernel": kernel}


def drawn(random_key, n):
    TRACED.append("drawn")
    next_key, now = jax.random.split(random_key)
    return next_key, jax.random.normal(now, (n,))


def solved(A, b):
    TRACED.append("solved")
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(A, lower=True), b)


def doubled(x, *others):
    TRACED.append("doubled")
    return x * 2 + (others[0] if others and isinstance(others[0], int | float) else 0)


@pytest.fixture(autouse=True)
def nothing_traced():
    TRACED.clear()


def call(programs, body, *args, options=None, **kwargs):
    found = programs.find(as_of_the_package(body), (args, kwargs), options or {})
    return None if found is None else found()


@pytest.fixture
def kernel():
    return RBFKernel(Positive.of(jnp.asarray(2.0)), Positive.of(jnp.ones(3)), 3)


# --- found again -----------------------------------------------------------------------------------


def test_a_program_is_traced_once_for_all_processes(tmp_path, kernel):
    x = jnp.arange(3.0)
    expected = scaled(kernel, x, 2)
    TRACED.clear()
    one, other, function = StoredPrograms(tmp_path), StoredPrograms(tmp_path), as_of_the_package(scaled)
    for _ in range(2):
        assert eqx.tree_equal(one.find(function, ((kernel, x), {"power": 2}), {})(), expected)
        assert TRACED == ["scaled"]
    # Another dictionary of programs at hand, as in another process: numbers may differ, nothing else.
    found = call(other, scaled, kernel, 2 * x, power=2)
    assert TRACED == ["scaled"] and isinstance(found["kernel"], RBFKernel)
    np.testing.assert_allclose(found["sum"], scaled(kernel, 2 * x, 2)["sum"], rtol=1e-12)


def test_random_keys_go_in_and_come_out(tmp_path):
    random_key = jax.random.key(3)
    call(StoredPrograms(tmp_path), drawn, random_key, 4)
    next_key, values = call(StoredPrograms(tmp_path), drawn, random_key, 4)
    assert TRACED == ["drawn"] and next_key.dtype == random_key.dtype
    expected_key, expected = drawn(random_key, 4)
    assert (jax.random.key_data(next_key) == jax.random.key_data(expected_key)).all()
    np.testing.assert_array_equal(values, expected)


def test_arrays_of_numpy_are_numbers_too(tmp_path):
    programs = StoredPrograms(tmp_path)
    for values in (np.arange(3.0), np.ones(3)):
        np.testing.assert_array_equal(call(programs, doubled, values), 2 * values)


def test_a_file_that_cannot_be_read_is_made_anew(tmp_path):
    A, b = jnp.eye(3) * 2.0, jnp.ones(3)
    call(StoredPrograms(tmp_path), solved, A, b)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for content in (b"", b"no pickle", whole[: len(whole) // 2]):
        path.write_bytes(content)
        TRACED.clear()
        np.testing.assert_allclose(call(StoredPrograms(tmp_path), solved, A, b), 0.5)
        assert TRACED and path.read_bytes() != content


def test_where_nothing_can_be_written_a_warning_says_so(tmp_path):
    folder = tmp_path / "missing"
    programs = StoredPrograms(folder)
    with pytest.warns(RuntimeWarning, match="'doubled' cannot be kept in .*missing.*may this user write there"):
        np.testing.assert_array_equal(call(programs, doubled, jnp.ones(2)), 2.0)


# --- told apart ------------------------------------------------------------------------------------


def name_of(*args, function=scaled, options=None, **kwargs):
    found = key(as_of_the_package(function), Arguments.of((args, kwargs)), options or {})
    assert found is not None
    return found


def test_everything_but_the_numbers_is_in_the_key(kernel):
    x = jnp.arange(3.0)
    names = [
        name_of(kernel, x, power=2),
        name_of(kernel, x, power=3),
        name_of(kernel, x, power=2.0),
        name_of(kernel, x, power=True),
        name_of(kernel, x, power=frozenset({2})),
        name_of(kernel, x, 2),
        name_of(kernel, x.astype(jnp.float32), power=2),
        name_of(kernel, jnp.arange(4.0), power=2),
        name_of(kernel, jnp.ones(()), power=2),
        name_of(kernel, jnp.asarray(1.0), power=2),  # weakly typed
        name_of(kernel.lengthscale, x, power=2),
        name_of(RBFKernel(kernel.variance, kernel.lengthscale, 4), x, power=2),  # a static field
        name_of(kernel, x, power=2, function=drawn),
        name_of(kernel, x, power=2, options={"xla_backend_optimization_level": 1}),
        name_of(jax.random.key(0), x, power=2),
        name_of(jax.random.key(0, impl="rbg"), x, power=2),
    ]
    with jax.default_matmul_precision("bfloat16"):
        names.append(name_of(kernel, x, power=2))
    with jax.numpy_rank_promotion("raise"):
        names.append(name_of(kernel, x, power=2))
    assert len(set(names)) == len(names)
    assert name_of(kernel, x, power=2) == name_of(kernel, -x, power=2) == names[0]


def test_the_code_of_the_package_is_in_the_key(tmp_path, monkeypatch, kernel):
    """A copy of it in which one line, or the name of one file, is another one."""
    copy = tmp_path / "wishflow"
    names = [name_of(kernel)]
    shutil.copytree(programs.PACKAGE, copy)
    for change in ("nothing", "line", "name"):
        if change == "line":
            with (copy / "solver.py").open("a") as file:
                file.write("# another line\n")
        elif change == "name":
            (copy / "solver.py").rename(copy / "solvers.py")
        monkeypatch.setattr(programs, "PACKAGE", copy)
        monkeypatch.setattr(programs, "IMPORTED", time.time() + 60.0)
        programs.surroundings.cache_clear()
        names.append(name_of(kernel))
    monkeypatch.undo()
    programs.surroundings.cache_clear()
    assert names[0] == names[1] and len(set(names)) == 3


def test_code_that_changed_since_it_was_imported_has_no_key(tmp_path, monkeypatch, kernel):
    """What runs may not be what lies there."""
    monkeypatch.setattr(programs, "IMPORTED", 0.0)
    assert call(StoredPrograms(tmp_path), scaled, kernel, jnp.ones(3), 2) is None
    monkeypatch.setattr(programs, "PACKAGE", tmp_path)  # as in a package without sources
    monkeypatch.setattr(programs, "IMPORTED", time.time() + 60.0)
    assert call(StoredPrograms(tmp_path), scaled, kernel, jnp.ones(3), 2) is None


def test_equal_numbers_of_other_types_are_other_programs_at_hand(tmp_path):
    stored = StoredPrograms(tmp_path)
    kinds = [call(stored, doubled, jnp.arange(2), n).dtype for n in (1, 1.0, True)]
    assert kinds[0] != kinds[1] and len(TRACED) == 3


class OfAUser(eqx.Module):
    scale: jax.Array


class Stubborn(OfAUser):
    def __getstate__(self):
        raise RuntimeError("no pickles of me")


def with_default(x, n=2):
    return x * n


def test_code_of_others_has_no_key(tmp_path, kernel):
    """It may change while its name stays: it is traced each time, as without a folder."""
    stored, x = StoredPrograms(tmp_path), jnp.arange(3.0)
    assert stored.find(as_of_the_package(scaled, "users.module"), ((kernel, x, 2), {}), {}) is None
    for argument in (OfAUser(x), Stubborn(x), lambda x: x, [object()], json.dumps):
        assert call(stored, doubled, x, argument) is None

    def closure(x):
        return x * len(TRACED)

    closure.__module__ = "wishflow.made_up"
    assert stored.find(closure, ((x,), {}), {}) is not None  # of globals alone
    assert stored.find(_closing_over(2.0), ((x,), {}), {}) is None
    with_default.__module__ = "wishflow.made_up"
    assert stored.find(with_default, ((x,), {}), {}) is None


def _closing_over(number):
    def closure(x):
        return x * number

    closure.__module__ = "wishflow.made_up"
    return closure


@pytest.mark.parametrize("mode", [jax.disable_jit, lambda: jax.debug_nans(True), lambda: jax.debug_infs(True)])
def test_who_looks_into_programs_gets_them_traced(tmp_path, mode):
    with mode():
        assert call(StoredPrograms(tmp_path), doubled, jnp.ones(2)) is None


def test_inside_another_program_it_is_part_of_it(tmp_path, kernel):
    stored = StoredPrograms(tmp_path)
    jax.jit(lambda x: [call(stored, scaled, kernel, x, 2), x][1])(jnp.arange(3.0))
    assert not TRACED and not list(tmp_path.iterdir())


# --- estimators ------------------------------------------------------------------------------------

FIT = """
import json, jax, numpy as np, wishflow as wf
wf.enable_compilation_cache({folder!r}, whole_programs=True)
traced = []
def listen(name, seconds, **about):
    if name.endswith("jaxpr_trace_duration"): traced.append(about.get("fun_name", ""))
jax.monitoring.register_event_duration_secs_listener(listen)
X = np.random.default_rng(0).normal(size=(40, 2))
options = dict(n_inducing=8, max_iter=5, random_state=0)
model = wf.FlowRegressor(n_steps=1, n_predict_samples=3, **options).fit(X, np.sin(X[:, 0]))
print(json.dumps([traced, model.predict(X[:3]).tolist()]))
"""


DEVICES = """
import json, jax, numpy as np, wishflow as wf
from wishflow.inducing.basis import _kernel_matrix
from wishflow.kernels import RBFKernel
from wishflow.parameters import Positive
wf.enable_compilation_cache({folder!r}, whole_programs=True)
first, second = jax.devices()
found = []
for device in (first, second, first):
    with jax.default_device(device):
        part = Positive.of(jax.numpy.ones(2))
        found.append(_kernel_matrix(RBFKernel(Positive.of(jax.numpy.ones(())), part, 2), jax.numpy.ones((3, 2)))[0])
wf.enable_compilation_cache({folder!r})
are_there = [array.devices() == {{device}} for array, device in zip(found, (first, second, first))]
print(json.dumps([are_there, wf.runtime._kept]))
"""


def run_alone(code, **more):
    environment = {n: v for n, v in os.environ.items() if n != "JAX_COMPILATION_CACHE_DIR"} | more
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1])


def test_programs_run_where_the_user_wants_them(tmp_path):
    """On the device of the context, with programs at hand or without; and the option can be taken back."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    assert run_alone(DEVICES.format(folder=str(tmp_path)), **flags) == [[True] * 3, []]


def test_a_fit_in_a_later_process_traces_no_model(tmp_path):
    first, later = (run_alone(FIT.format(folder=str(tmp_path))) for _ in range(2))
    models = ("_value_and_grad", "train_chunk", "_moments")
    assert all(any(name.startswith(model) for name in first[0]) for model in models)
    assert not any(name.startswith(models) for name in later[0])
    assert first[1] == later[1]
