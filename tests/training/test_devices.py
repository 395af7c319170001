"""Training over several devices and processes: the same numbers as on one, and an end in order where one dies."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.numerics.meshes import data_mesh
from wishflow.training.checkpoints import fingerprint

SOURCE = str(Path(wf.__file__).parent.parent)

# Fixtures start several processes, and count as part of the first test that needs them.
pytestmark = pytest.mark.timeout(900)

# Neither two nor eight devices divide batches of 51 rows, and 130 rows are no multiple of them.
FIT = """
import dataclasses, sys
import jax, numpy as np, pandas as pd
import wishflow as wf
from wishflow.regression.presets import fast_preset

rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, (130, 2))
y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=130)
spec = dataclasses.replace(
    fast_preset(130, 2), collapsed=False, flow_dtype="float64", posterior="structured", batch_size=51, warm_iter=20,
    n_train_samples=2, path_average="density", max_iter=200, kl_warmup=100, validation_fraction=0.0, calibrate=False,
)

def numbers(model, **options):
    model.set_params(n_inducing=8, preset=spec).fit(X, y, **options)
    return np.r_[model.history_["objective"].to_numpy(), model.predict(X)]

def numbers_of_files(folder, **options):
    model = wf.SparseGPRegressor(8, preset=spec, max_iter=200)
    model.fit_dataset(folder, target="y", **options)
    return model, np.r_[model.history_["objective"].to_numpy(), model.predict(pd.DataFrame(X, columns=["a", "b"]))]
"""

SPARSE_GP = """
jax.config.update("jax_num_cpu_devices", 8)
model = wf.SparseGPRegressor(max_iter=200)
np.savez(sys.argv[1], one=numbers(model), eight=numbers(model, devices="all"))
"""

# A flow, the work of one device for the gradient of its objective, and a fit to files.
EIGHT = """
jax.config.update("jax_num_cpu_devices", 8)
from wishflow.numerics.devices import computing
from wishflow.numerics.meshes import data_mesh, on_all
from wishflow.regression.batches import padded_batch
from wishflow.regression.objectives import negative_objective

def work(model, mesh):
    def loss(model, batch):
        return negative_objective(model, batch, jax.random.key(0), n_samples=3, mesh=mesh)[0]

    arguments = on_all((model, padded_batch(X, y[:, None])), mesh)
    return jax.jit(jax.grad(loss)).lower(*arguments).compile().cost_analysis()["flops"]

flow = wf.FlowRegressor()
found = {"flow": [numbers(flow), numbers(flow, devices="all")]}
with computing():
    found["work"] = [work(flow.model_, None), work(flow.model_, data_mesh(8))]
if sys.argv[2]:
    found["files"] = [numbers_of_files(sys.argv[2], **options)[1] for options in ({}, {"devices": "all"})]
np.savez(sys.argv[1], **found)
"""

# Stays at its second chunk, of which the first has a checkpoint. Only the first process calls callbacks.
STAYS = """
import time

class Stay(wf.callbacks.Callback):
    def on_chunk(self, event):
        time.sleep(600 if event.step >= 200 else 0)

kept = wf.Checkpointing(sys.argv[1], every_seconds=0)
numbers(wf.SparseGPRegressor(max_iter=400, checkpoint_dir=kept, callbacks=Stay()), devices="all")
"""

# Goes on with that fit, fits to files with a note of the units that were read, first for statistics and then for steps,
# writes predictions, and stays.
PROCESSES = """
import json, time
from pathlib import Path
from wishflow.regression import datasets, tables

found = {"resumed": numbers(wf.SparseGPRegressor(max_iter=400, checkpoint_dir=sys.argv[1]), devices="all")}
if sys.argv[3]:
    read, blocks, summary_of = [set()], tables.Table.blocks, datasets.summary_of

    def noted(table, unit):
        read[-1].add(unit)
        return blocks(table, unit)

    def summary(*arguments):
        found = summary_of(*arguments)
        read.append(set())
        return found

    tables.Table.blocks, datasets.summary_of = noted, summary
    model, found["files"] = numbers_of_files(sys.argv[3], devices="all")
    model.predict_dataset(sys.argv[3], sys.argv[2] + "/predicted", keep=["y"])
    found["pass"], found["steps"] = map(sorted, read)
np.savez(f"{sys.argv[2]}/found-{jax.process_index()}.npz", **found)
Path(f"{sys.argv[2]}/is-done-{jax.process_index()}").touch()
time.sleep(600)
"""


def environment() -> dict[str, str]:
    cache = jax.config.jax_compilation_cache_dir
    paths = [SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_COMPILATION_CACHE_DIR": str(cache or "")}


def names_of(program: str) -> dict[str, Any]:
    """What a program defines, run in this process."""
    names: dict[str, Any] = {}
    exec(program, names)
    return names


def rows_in_files(folder: Path) -> str:
    """A folder with ten row groups in two files; an empty name where there is no pyarrow."""
    if importlib.util.find_spec("pyarrow") is None:
        return ""
    made, names = folder / "rows", names_of(FIT)
    made.mkdir()
    rows = pd.DataFrame(np.tile(names["X"], (10, 1)), columns=["a", "b"]).assign(y=np.tile(names["y"], 10))
    for i in range(2):
        rows[650 * i : 650 * (i + 1)].to_parquet(made / f"{i}.parquet", row_group_size=130)
    return str(made)


def run_alone(folder: Path, program: str, *arguments: object) -> dict[str, np.ndarray]:
    script = folder / "fit.py"
    script.write_text(FIT + program)
    command = [sys.executable, script, folder / "found.npz", *arguments]
    subprocess.run(command, env=environment(), check=True, timeout=300)
    with np.load(folder / "found.npz") as found:
        return dict(found)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """Losses of 200 steps, and predictions of 130 rows."""
    assert len(found) == len(expected) >= 200 + 130
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_a_sparse_gp_has_the_same_losses_on_one_and_eight_devices(tmp_path):
    found = run_alone(tmp_path, SPARSE_GP)
    assert_same(found["eight"], found["one"])


@pytest.fixture(scope="module")
def on_eight(tmp_path_factory) -> dict[str, np.ndarray]:
    """What one process of eight devices finds: each process takes seconds to start."""
    folder = tmp_path_factory.mktemp("eight")
    return run_alone(folder, EIGHT, rows_in_files(folder))


@pytest.mark.slow
def test_a_flow_has_the_same_losses_on_one_and_eight_devices(on_eight):
    assert_same(*on_eight["flow"])


@pytest.mark.slow
def test_each_device_does_its_part_of_the_work(on_eight):
    one, each = on_eight["work"]
    assert each < 0.3 * one


@pytest.mark.slow
def test_a_fit_to_files_has_the_same_losses_on_one_and_eight_devices(on_eight):
    if "files" not in on_eight:
        pytest.skip("Parquet needs the extra parquet")
    assert_same(*on_eight["files"])


# --- processes -----------------------------------------------------------------------------------


def launched(script: Path, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-m", "wishflow", "launch", *map(str, arguments[:-1]), script, *arguments[-1]]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)


def workers_of(launcher: subprocess.Popen) -> list[int]:
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


def wait_for(folder: Path, pattern: str, n: int, *jobs: subprocess.Popen) -> None:
    """Until there are so many files; an end of the jobs before that is an error."""
    while len(list(folder.glob(pattern))) < n:
        for job in jobs:
            assert job.poll() is None, job.communicate()[1]
        time.sleep(0.05)


@pytest.fixture(scope="module")
def killed_first(tmp_path_factory) -> tuple[Path, list[tuple[int, str, float]]]:
    """The checkpoints of a fit on two hosts, of which the first process was killed; how both ended, and when."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "fit.py").write_text(FIT + STAYS)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    shared = ("--hosts", 2, "--coordinator", address, "--heartbeat", 10)
    jobs = [launched(folder / "fit.py", *shared, "--host", i, [folder / "kept"]) for i in range(2)]
    wait_for(folder, "kept/*/*-000000100.ckpt", 1, *jobs)
    os.kill(workers_of(jobs[0])[0], signal.SIGKILL)
    killed = time.monotonic()
    ends = []
    for job in jobs:
        _, said = job.communicate(timeout=60)
        ends.append((job.returncode, said, time.monotonic() - killed))
    return folder / "kept", ends


@pytest.fixture(scope="module")
def by_two(killed_first, tmp_path_factory) -> tuple[Path, list[dict[str, np.ndarray]], str]:
    """What two processes of one host find, each of them, and what is said when the second is killed at the end."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "fit.py").write_text(FIT + PROCESSES)
    shutil.copytree(killed_first[0], folder / "kept")
    job = launched(folder / "fit.py", "-n", 2, [folder / "kept", folder, rows_in_files(folder)])
    wait_for(folder, "is-done-*", 2, job)
    os.kill(workers_of(job)[1], signal.SIGKILL)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 1
    return folder, [dict(np.load(folder / f"found-{i}.npz")) for i in range(2)], said


has_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found by /proc")


@has_proc
@pytest.mark.slow
def test_a_killed_process_stops_the_job_on_all_hosts(killed_first, by_two):
    (first, second), said = killed_first[1], by_two[2]
    assert first[0] == second[0] == 1 and max(first[2], second[2]) < 60
    assert "process 0 of 2" in first[1] and "SIGKILL" in first[1] and "checkpoint" in first[1]
    assert "process 1 of 2" in second[1] and "another host" in second[1] and "checkpoint" in second[1]
    assert "process 1 of 2" in said and "SIGKILL" in said


@has_proc
@pytest.mark.slow
def test_one_and_two_processes_resume_to_the_numbers_of_one(killed_first, by_two):
    names, kept = names_of(FIT), killed_first[0]
    folders = [path.name for path in kept.iterdir()]
    whole, one = (names["numbers"](wf.SparseGPRegressor(max_iter=400, checkpoint_dir=d)) for d in (None, kept))
    assert [path.name for path in kept.iterdir()] == folders  # the same fit
    for found in (one, *(each["resumed"] for each in by_two[1])):
        np.testing.assert_allclose(found[:200], whole[:200], rtol=1e-10)
        np.testing.assert_allclose(found, whole, rtol=1e-8)


@has_proc
@pytest.mark.slow
def test_each_of_two_processes_reads_its_part_of_the_files(by_two):
    folder, found, _ = by_two
    if "files" not in found[0]:
        pytest.skip("Parquet needs the extra parquet")
    model, whole = names_of(FIT)["numbers_of_files"](folder / "rows")
    for i, each in enumerate(found):
        assert_same(each["files"], whole)
        assert each["pass"].tolist() == [i, i + 2, i + 4, i + 6, i + 8]
        assert each["steps"].tolist() == [5 * i + unit for unit in range(5)]
    written = pd.read_parquet(folder / "predicted")
    rows = pd.read_parquet(folder / "rows")
    np.testing.assert_array_equal(written["y"], rows["y"])
    np.testing.assert_allclose(written["y_mean"], model.predict(rows[["a", "b"]]), rtol=1e-8)


@pytest.mark.parametrize("devices", [0, 10_000, "some", [], ["cpu"], True, 1.5])
def test_devices_that_are_none_are_refused(devices):
    with pytest.raises(wf.errors.OptionError, match="devices="):
        data_mesh(devices)


def test_checkpoints_do_not_know_devices():
    assert fingerprint(data_mesh(1)) == fingerprint(data_mesh(None)) != fingerprint(1)


def test_an_error_in_the_script_ends_the_job(tmp_path):
    script = tmp_path / "bad.py"
    script.write_text("raise SystemExit(3)")
    job = launched(script, "-n", 1, [])
    _, said = job.communicate(timeout=120)
    assert job.returncode == 1 and "failed with exit code 3" in said
