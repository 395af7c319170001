"""Workers from the other end: start them, talk to them, and let them take turns."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .contenders import Contender
from .environments import NotInstalled
from .works import Work

ANSWER_TIMEOUT_S = 900.0
# Threads of some libraries spin for a while after their work; the next one must not share the cores with them.
REST_S = 0.3
TURN_S = 1.0
STEPS = (4, 100)


class WorkerError(Exception):
    """A worker that failed, ended or did not answer."""


class Worker:
    """A running worker process."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in `stop`
        # A compilation cache would hide the seconds that a first use takes.
        environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self.versions: dict[str, str] = self._receive()["ready"]
        except WorkerError:
            self.stop()
            raise

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _receive(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=ANSWER_TIMEOUT_S)
        except queue.Empty:
            self.stop()
            raise WorkerError(f"no answer in {ANSWER_TIMEOUT_S:.0f} s") from None
        if line is None:
            raise WorkerError(f"ended with status {self.process.wait()}: {self._last_words()}")
        reply = json.loads(line)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply

    def _last_words(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read().strip().splitlines()
        return lines[-1] if lines else "no message"

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the worker has ended; what it left behind is read below
        return self._receive()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listener.join(timeout=10.0)  # it reads to the end of a pipe that nobody writes to any more
        for pipe in (self.process.stdin, self.process.stdout, self._stderr):
            with contextlib.suppress(OSError):  # the worker may be gone before a request was sent
                if pipe is not None:
                    pipe.close()


@dataclasses.dataclass
class Measurement:
    """One contender on one work. `status` is "ok", or says why there are no times."""

    work: str
    contender: str
    status: str = "ok"
    value: float | None = None
    compile_s: float | None = None
    first_step_s: float | None = None
    peak_mb: float | None = None
    seconds: list[float] = dataclasses.field(default_factory=list)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)


Starter = Callable[[Contender], Worker]


def measure(
    work: Work,
    contenders: list[Contender],
    start: Starter,
    rounds: int,
    steps: int | None = None,
    noise: Path | None = None,
    rest_s: float = REST_S,
) -> list[Measurement]:
    """All contenders on one work, in turns: the medians are of runs that lie between those of the others.

    Each has a process of its own for this work, so that its peak memory is that of this work.
    """
    results = {c.name: Measurement(work.name, c.name) for c in contenders}
    workers: dict[str, Worker] = {}
    request = {"do": "prepare", "work": work.name, "noise": None if noise is None else str(noise)}
    try:
        for contender in contenders:
            _attempt(results[contender.name], workers, lambda r, c=contender: _begin(r, workers, start, c, request))
        n = steps or steps_for(next((r.first_step_s for r in results.values() if r.first_step_s), None))
        for _ in range(rounds):
            for name in list(workers):
                _attempt(results[name], workers, lambda r: _turn(workers[r.contender], r, n))
                time.sleep(rest_s)
        for name in list(workers):
            _attempt(results[name], workers, lambda r: _note_memory(workers[r.contender], r))
    finally:
        for worker in workers.values():
            worker.stop()
    return list(results.values())


def steps_for(step_s: float | None) -> int:
    """As many steps as make a turn of `TURN_S`, by the first contender's first timed step."""
    low, high = STEPS
    return low if not step_s else int(min(max(TURN_S / step_s, low), high))


def _attempt(result: Measurement, workers: dict[str, Worker], act: Callable[[Measurement], None]) -> None:
    """Act; a failure becomes the status of the result, and its worker takes no more turns."""
    try:
        act(result)
    except (WorkerError, NotInstalled) as error:
        result.status = str(error)
        worker = workers.pop(result.contender, None)
        if worker is not None:
            worker.stop()


def _begin(result: Measurement, workers: dict, start: Starter, contender: Contender, request: dict) -> None:
    worker = workers[contender.name] = start(contender)
    result.versions = worker.versions
    reply = worker.ask(**request)
    result.value, result.compile_s, result.first_step_s = reply["value"], reply["compile_s"], reply["step_s"]


def _turn(worker: Worker, result: Measurement, n: int) -> None:
    worker.ask(do="run", n=1)  # caches are cold after the turns of the others
    result.seconds.append(worker.ask(do="run", n=n)["seconds_per_step"])


def _note_memory(worker: Worker, result: Measurement) -> None:
    result.peak_mb = worker.ask(do="memory")["peak_mb"]
