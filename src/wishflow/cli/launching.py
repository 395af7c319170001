"""`wishflow launch`: one script in several processes, which end together."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..errors import OptionError, ProcessError
from .terminal import Terminal

# The variable by which a worker knows its place in the job.
PLACE = "WISHFLOW_LAUNCH"
EVERY_SECONDS = 0.2
# Processes that are asked to end have this long for it; one that waits for a dead one never hears of it.
GRACE_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Job:
    """What is run, by how many processes on each of how many hosts."""

    script: Path
    arguments: tuple[str, ...]
    n_processes: int
    n_hosts: int = 1
    host: int = 0
    coordinator: str | None = None
    heartbeat: int = 30

    def check(self) -> None:
        if not self.script.is_file():
            raise OptionError(f"there is no script {str(self.script)!r}; check the path.")
        if not 0 <= self.host < self.n_hosts:
            raise OptionError(f"--host {self.host} given; expected 0 to {self.n_hosts - 1} for --hosts {self.n_hosts}.")
        if self.n_hosts > 1 and self.coordinator is None:
            raise OptionError("several hosts need --coordinator HOST:PORT, an address of host 0 that all can reach.")

    def places(self, coordinator: str) -> list[dict[str, Any]]:
        """What `jax.distributed.initialize` is told in each process of this host."""
        shared = {
            "coordinator_address": coordinator,
            "num_processes": self.n_processes * self.n_hosts,
            "heartbeat_timeout_seconds": self.heartbeat,
        }
        first = self.host * self.n_processes
        return [{**shared, "process_id": first + i} for i in range(self.n_processes)]


def run_launch(terminal: Terminal, job: Job) -> None:
    """Start the processes of this host and wait for them; the end of one that failed is the end of all."""
    job.check()
    coordinator = job.coordinator or f"127.0.0.1:{_free_port()}"
    workers = [_started(job, place) for place in job.places(coordinator)]
    try:
        _wait_for(workers, job)
    finally:
        _end(workers)
    terminal.note(f"all {len(workers)} processes have ended")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _started(job: Job, place: dict[str, Any]) -> subprocess.Popen:
    # The first process speaks for all; errors of the others are seen too.
    output = None if place["process_id"] == 0 else subprocess.DEVNULL
    command = [sys.executable, "-m", "wishflow.cli.worker", str(job.script), *job.arguments]
    return subprocess.Popen(command, env={**os.environ, PLACE: json.dumps(place)}, stdout=output)


def _wait_for(workers: list[subprocess.Popen], job: Job) -> None:
    while True:
        codes = [worker.poll() for worker in workers]
        failed = [i for i, code in enumerate(codes) if code]
        if failed:
            # One that was killed is the cause; others may have failed because of it.
            cause = min(failed, key=lambda i: (codes[i] != -signal.SIGKILL, i))
            raise _stopped(job, workers[cause], job.host * job.n_processes + cause)
        if all(code == 0 for code in codes):
            return
        time.sleep(EVERY_SECONDS)


def _stopped(job: Job, worker: subprocess.Popen, number: int) -> ProcessError:
    code = worker.returncode
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
    elsewhere = ""
    if job.n_hosts > 1 and code != -signal.SIGKILL:
        elsewhere = " If it lost its connection, a process on another host ended first, and that host says why."
    return ProcessError(
        f"process {number} of {job.n_processes * job.n_hosts} (pid {worker.pid}) {how}, and the job was stopped: no "
        f"process can go on without the others.{elsewhere} Start it again, with any number of processes; a fit with "
        "`checkpoint_dir` goes on from its last checkpoint."
    )


def _end(workers: list[subprocess.Popen]) -> None:
    living = [worker for worker in workers if worker.poll() is None]
    for worker in living:
        worker.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in living:
        try:
            worker.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
