"""The stress run: its instruments, and a fixed sample of each part; the whole is `make stress`."""

import time

import jax
import numpy as np
import pytest

from studies.stress import __main__ as stress
from studies.stress import inputs, models, mutations, workers
from studies.stress.ledger import Found, Ledger
from wishflow.errors import ModelFileError
from wishflow.estimators.loading import REGISTRY
from wishflow.files.model_file import read_model, write_model

SECONDS = 600.0


@pytest.fixture
def content(tmp_path):
    write_model(
        tmp_path / "m", {"class": "X", "spec": {"rank": 3, "lags": [1, 2]}}, {"a": np.eye(3), "b": np.arange(4)}
    )
    return (tmp_path / "m").read_bytes()


def test_a_file_is_a_function_of_its_number(content):
    """But for the order of entries, which safetensors chooses."""

    def said():
        files = [mutations.mutated_model(content, content, mutations.generator(i), True) for i in range(40)]
        return [(m, {n: a.tobytes() for n, a in arrays.items()}) for m, arrays in map(mutations.unpacked, files)]

    first = said()
    assert first == said()
    assert len({metadata["sha256"] for metadata, _ in first}) > 30


def test_well_formed_files_have_the_right_checksum(content, tmp_path):
    """They are refused, if at all, by what they say."""
    n_read = 0
    for i in range(100):
        changed = mutations.mutated_model(content, content, mutations.generator(i), True)
        (tmp_path / "m").write_bytes(changed)
        try:
            read_model(tmp_path / "m")
            n_read += 1
        except ModelFileError as error:
            assert "checksum" not in str(error)
    assert n_read > 60


def test_a_run_goes_on_where_it_ended(tmp_path):
    path = tmp_path / "stress.json"
    ledger = Ledger(path, "files")
    ledger.add(Found(0, {"used": 1, "problem": 1}, ["hang"], 3.0))
    ledger.add(Found(1, {"used": 1, "refused": 1}, [], 1.0))
    ledger.save()
    Ledger(path, "kills").save()  # another part of the same file
    again = Ledger(path, "files")
    assert (again.n_tasks, again.n_cases, again.longest) == (2, 4, 3.0)
    assert [(one["number"], one["what"]) for one in again.problems] == [(0, "hang")]
    again.replace(Found(0, {"used": 2}))
    assert again.problems == [] and again.outcomes == {"used": 3, "refused": 1}


@pytest.mark.parametrize(("program", "what"), [("import os; os._exit(3)", "crash (code 3)"), ("input()", "hang")])
def test_crashes_and_hangs_are_problems(program, what, monkeypatch, tmp_path):
    text = f"import sys; print('ready', flush=True); sys.stdin.readline(); {program}"
    started = workers.subprocess.Popen
    monkeypatch.setattr(
        workers.subprocess, "Popen", lambda command, **options: started([command[0], "-c", text], **options)
    )
    found = list(workers.run_tasks(workers.Program("x", tmp_path, 0.5, 10), [7], time.monotonic() + 60))
    assert [(one.number, one.problems) for one in found] == [(7, [what])]


def test_models_of_all_estimators_are_mutated():
    assert {"gp", "flow", "two classes", "series", "panel", "latent", "released flow"} <= set(models.KINDS)
    fitted = {name for maker in models.MAKERS.values() for name in maker.__code__.co_names}
    assert set(REGISTRY) <= fitted


def test_all_estimators_get_odd_data():
    assert {name.partition(",")[0] for name in inputs.MODELS} == set(REGISTRY)


# A fixed sample, other than the first tasks of the whole run.
SAMPLE = {
    "kills": [2],
    "disks": [0, 5],
    "inputs": [999, 1002, 1003, 1007],
    "files": range(300),
    "checkpoints": range(16),
    "results": range(300),
}


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("part", SAMPLE)
def test_a_sample_holds_what_is_promised(part, monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(jax.config.jax_compilation_cache_dir or tmp_path / "cache"))
    found = list(stress.run_part(part, SAMPLE[part], time.monotonic() + SECONDS, tmp_path, is_sample=True))
    assert [problem for one in found for problem in one.problems] == []
    assert len(found) == len(SAMPLE[part])
