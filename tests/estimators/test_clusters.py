"""`fit_many` on clusters of this machine: a node that is killed in the middle takes no results with it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from structure import PACKAGE

import wishflow as wf

pytestmark = pytest.mark.slow

N_JOBS = 100
# What a cluster and this process fit. Ray asks for a token (docs/scaling.md), here of the environment.
JOBS = f"""
import json, os, signal, sys
import numpy as np
import wishflow as wf

N_JOBS = {N_JOBS}

def jobs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    models = [wf.SparseGPRegressor(n_inducing=5, max_iter=10, calibrate=None) for _ in range(N_JOBS)]
    return models, [(X, y + 0.01 * i) for i in range(N_JOBS)]
"""
KILL = """
class Killer(wf.callbacks.Callback):
    killed_at = None

    def on_chunk(self, event):
        if event.step >= 20 and self.killed_at is None:
            self.killed_at = event.step
            kill()

killer = Killer()
wf.fit_many(*jobs(), killer, backend=sys.argv[1], folder=sys.argv[2])
with open(os.path.join(sys.argv[-1], "killed.json"), "w") as file:
    json.dump(killer.killed_at, file)
"""
CLUSTERS = {
    "ray": """
import ray
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
node = cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, log_to_driver=False)
assert len(ray.nodes()) == 2
def kill():
    cluster.remove_node(node, allow_graceful=False)
""",
    "dask": """
from distributed import Client, LocalCluster
def kill():
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
client = Client(cluster)
""",
}
ENDS = {"ray": "ray.shutdown(); cluster.shutdown()", "dask": "client.close(); cluster.close()"}


def started(program, *arguments, **options):
    """A process of its own that runs a program."""
    path = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **options}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def jobs_of(program):
    """The function `jobs` of a program."""
    names: dict = {}
    exec(program, names)
    return names["jobs"]()


EVERY = 5


@pytest.fixture(scope="module")
def alone():
    """Every fifth of the jobs without a backend: their predictions."""
    models, data = jobs_of(JOBS)
    fitted = wf.fit_many(models[::EVERY], data[::EVERY])
    return [model.predict(X) for model, (X, _) in zip(fitted, data[::EVERY], strict=True)]


@pytest.mark.parametrize("backend", [pytest.param("ray", marks=pytest.mark.long), "dask"])
def test_a_node_that_is_killed_takes_no_results_with_it(backend, alone, tmp_path):
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[backend], reason='needs the extra "cluster"')
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
    run = started(JOBS + CLUSTERS[backend] + KILL + ENDS[backend], backend, tmp_path, **token)
    _, err = run.communicate(timeout=250)
    assert run.returncode == 0, err
    assert 20 <= json.loads((tmp_path / "killed.json").read_text()) < N_JOBS
    assert len(list((tmp_path / "results").iterdir())) == N_JOBS and not list((tmp_path / "errors").iterdir())
    models, data = jobs_of(JOBS)
    fitted = wf.fit_many(models, data, folder=tmp_path)
    assert len(fitted) == N_JOBS == len(list((tmp_path / "results").iterdir()))
    for model, (X, _), expected in zip(fitted[::EVERY], data[::EVERY], alone, strict=True):
        np.testing.assert_array_equal(model.predict(X), expected)


def test_jobs_of_slurm(alone, tmp_path):
    pytest.importorskip("submitit", reason='needs the extra "cluster"')
    models, data = jobs_of(JOBS)
    params = {"cluster": "local", "timeout_min": 5, "group": 2}
    fitted = wf.fit_many(models[:4], data[:4], backend="slurm", backend_params=params, folder=tmp_path)
    assert len(list((tmp_path / "results").iterdir())) == 4 and list((tmp_path / "slurm").iterdir())
    np.testing.assert_array_equal(fitted[0].predict(data[0][0]), alone[0])


ENDLESS = """
import os, signal, sys
import numpy as np
import wishflow as wf

signal.signal(signal.SIGINT, signal.default_int_handler)  # processes of a background job ignore it
X = np.random.default_rng(0).normal(size=(40, 2))
models = [wf.FlowRegressor(n_inducing=5, n_steps=2, max_iter=10**7, tol=0, random_state=i) for i in range(2)]
wf.fit_many(models, [(X, X[:, 0])] * 2, backend="loky", backend_params={"n_jobs": 2}, folder=sys.argv[1])
"""


def children(process):
    """The processes that a process has started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(line) for line in listed.stdout.split()]


def is_running(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks for processes in /proc")
def test_ctrl_c_ends_the_workers(tmp_path):
    run = started(ENDLESS, tmp_path)
    started_at = time.monotonic()
    while len(workers := children(run.pid)) < 2 and time.monotonic() - started_at < 60:
        time.sleep(0.2)
    time.sleep(3.0)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert "KeyboardInterrupt" in err and len(workers) >= 2
    deadline = time.monotonic() + 10
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(map(is_running, workers))


KILLED = (
    JOBS
    + """
class Killer(wf.callbacks.Callback):
    killed_at = None
    def on_chunk(self, event):
        if event.step >= 3 and self.killed_at is None:
            self.killed_at = event.step
            import subprocess
            found = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "loky"], capture_output=True, text=True)
            os.kill(int(found.stdout.split()[-1]), signal.SIGKILL)

killer, failed = Killer(), {}
models, data = jobs()
params = {"n_jobs": 2, "retries": 0}
try:
    wf.fit_many(models[:12], data[:12], killer, backend="loky", backend_params=params, folder=sys.argv[1])
except wf.errors.JobError as error:
    failed = error.failed
with open(os.path.join(sys.argv[-1], "killed.json"), "w") as file:
    json.dump([killer.killed_at, failed], file)
"""
)


def test_a_process_that_is_killed_costs_its_own_job_alone_an_attempt(tmp_path):
    run = started(KILLED, tmp_path)
    _, err = run.communicate(timeout=200)
    assert run.returncode == 0, err
    killed_at, failed = json.loads((tmp_path / "killed.json").read_text())
    # None fails where the process was killed between its result and its next job.
    assert 3 <= killed_at < 12 and len(failed) <= 1 and all("TerminatedWorkerError" in text for text in failed.values())
    assert len(list((tmp_path / "results").iterdir())) == 12 - len(failed)
