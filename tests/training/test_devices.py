"""Training over several devices and processes: the same numbers as on one, and an end in order where one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import wishflow as wf
from wishflow.numerics.meshes import data_mesh
from wishflow.training.checkpoints import fingerprint

SOURCE = str(Path(wf.__file__).parent.parent)

# Batches of 50 rows: eight devices do not divide them, and 130 rows are no multiple of them.
FIT = """
import dataclasses, sys
import jax, numpy as np
import wishflow as wf
from wishflow.regression.presets import fast_preset

rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, (130, 2))
y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=130)
spec = dataclasses.replace(
    fast_preset(130, 2), collapsed=False, flow_dtype="float64", posterior="structured", batch_size=50, warm_iter=20,
    n_train_samples=2, path_average="density", max_iter=200, kl_warmup=100, validation_fraction=0.0, calibrate=False,
)

def numbers(model, **options):
    model.set_params(n_inducing=8, preset=spec).fit(X, y, **options)
    return np.r_[model.history_["objective"].to_numpy(), model.predict(X)]
"""

DEVICES = """
jax.config.update("jax_num_cpu_devices", 8)
model = getattr(wf, sys.argv[1])(**({"max_iter": 200} if sys.argv[1] == "SparseGPRegressor" else {}))
np.save(sys.argv[2], [numbers(model), numbers(model, devices="all")])
"""

# The work of one device for the gradient of the objective.
WORK = """
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

model = wf.FlowRegressor(n_inducing=8, preset=dataclasses.replace(spec, max_iter=1, warm_iter=1)).fit(X, y).model_
with computing():
    np.save(sys.argv[2], [work(model, None), work(model, data_mesh(8))])
"""

FILES = """
jax.config.update("jax_num_cpu_devices", 8)
import pandas as pd

names = ["a", "b"]
rows = pd.DataFrame(np.tile(X, (10, 1)), columns=names).assign(y=np.tile(y, 10))
rows.to_parquet(sys.argv[2] + ".parquet", row_group_size=170)

def of_files(**options):
    model = wf.SparseGPRegressor(8, preset=spec, max_iter=200)
    model.fit_dataset(sys.argv[2] + ".parquet", target="y", **options)
    return np.r_[model.history_["objective"].to_numpy(), model.predict(rows[names][:130])]

np.save(sys.argv[2], [of_files(), of_files(devices="all")])
"""

PROCESSES = """
import wishflow.training.checkpoints as checkpoints

checkpoints.EVERY_SECONDS = 0.0
model = wf.SparseGPRegressor(max_iter=int(sys.argv[3]), checkpoint_dir=sys.argv[2])
found = numbers(model, devices="all")
if jax.process_index() == 0:
    np.save(sys.argv[1], found)
"""


def environment() -> dict[str, str]:
    cache = jax.config.jax_compilation_cache_dir
    paths = [SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_COMPILATION_CACHE_DIR": str(cache or "")}


def equal_on_eight_devices(folder: Path, name: str, code: str = DEVICES) -> None:
    script = folder / "fit.py"
    script.write_text(FIT + code)
    subprocess.run([sys.executable, script, name, folder / "found.npy"], env=environment(), check=True, timeout=300)
    one, eight = np.load(folder / "found.npy")
    assert len(one) >= 200 + 130
    np.testing.assert_allclose(eight, one, rtol=1e-10)


def test_a_sparse_gp_has_the_same_losses_on_one_and_eight_devices(tmp_path):
    equal_on_eight_devices(tmp_path, "SparseGPRegressor")


@pytest.mark.slow
def test_a_flow_has_the_same_losses_on_one_and_eight_devices(tmp_path):
    equal_on_eight_devices(tmp_path, "FlowRegressor")


@pytest.mark.slow
def test_each_device_does_its_part_of_the_work(tmp_path):
    script = tmp_path / "fit.py"
    script.write_text(FIT + WORK)
    subprocess.run([sys.executable, script, "", tmp_path / "work.npy"], env=environment(), check=True, timeout=300)
    one, each = np.load(tmp_path / "work.npy")
    assert each < 0.3 * one


@pytest.mark.slow
def test_a_fit_to_files_has_the_same_losses_on_one_and_eight_devices(tmp_path):
    pytest.importorskip("pyarrow", reason="Parquet needs the extra parquet")
    equal_on_eight_devices(tmp_path, "files", FILES)


def launched(script: Path, n: int, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, "-m", "wishflow", "launch", "-n", str(n), str(script), *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)


def workers_of(launcher: subprocess.Popen) -> list[int]:
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found by /proc")
def test_a_killed_process_stops_the_job_which_another_number_of_processes_resumes(tmp_path):
    script = tmp_path / "fit.py"
    script.write_text(FIT + PROCESSES)
    job = launched(script, 2, tmp_path / "two.npy", tmp_path / "kept", 400)
    while not list(tmp_path.glob("kept/*/*.ckpt")):
        assert job.poll() is None, job.communicate()[1]
        time.sleep(0.05)
    os.kill(workers_of(job)[1], signal.SIGKILL)
    killed = time.monotonic()
    _, said = job.communicate(timeout=60)
    assert time.monotonic() - killed < 60 and job.returncode == 1 and not (tmp_path / "two.npy").exists()
    assert "process 1 of 2" in said and "SIGKILL" in said and "checkpoint" in said

    def finished(n: int, name: str, folder: str) -> np.ndarray:
        job = launched(script, n, tmp_path / name, tmp_path / folder, 400)
        assert job.wait(timeout=300) == 0, job.communicate()[1]
        job.communicate()
        return np.load(tmp_path / name)

    kept = [path.name for path in tmp_path.glob("kept/*")]
    resumed, whole = finished(1, "one.npy", "kept"), finished(2, "whole.npy", "other")
    assert [path.name for path in tmp_path.glob("kept/*")] == kept  # the same fit
    np.testing.assert_allclose(resumed, whole, rtol=1e-8)
    np.testing.assert_allclose(resumed[:200], whole[:200], rtol=1e-10)


@pytest.mark.parametrize("devices", [0, 10_000, "some", [], ["cpu"], True, 1.5])
def test_devices_that_are_none_are_refused(devices):
    with pytest.raises(wf.errors.OptionError, match="devices="):
        data_mesh(devices)


def test_checkpoints_do_not_know_devices():
    assert fingerprint(data_mesh(1)) == fingerprint(data_mesh(None)) != fingerprint(1)


def test_an_error_in_the_script_ends_the_job(tmp_path):
    script = tmp_path / "bad.py"
    script.write_text("raise SystemExit(3)")
    job = launched(script, 2)
    _, said = job.communicate(timeout=120)
    assert job.returncode == 1 and "failed with exit code 3" in said
