"""Tasks in a process of their own, which may crash, hang or run out of memory without an end of the whole run.

The process reads numbers of tasks from its input, one in a line, and answers each with what it found, as JSON.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ..paths import ROOT
from .ledger import Found

START_SECONDS = 1800.0
# Processes share compiled programs, also small ones: most of a task is compilation otherwise.
CACHE = ROOT / ".bench" / "stress" / "cache"
LEAST_COMPILE_SECONDS = "0.05"
READY = "ready"


@dataclasses.dataclass(frozen=True)
class Program:
    """What a process runs: a part, its folder, the seconds of a task, and the tasks after which a new one starts.

    A sample is made of few cases.
    """

    part: str
    folder: Path
    limit_seconds: float
    n_tasks: int
    is_sample: bool = False


def run_tasks(program: Program, numbers: Iterable[int], deadline: float) -> Iterator[Found]:
    """What each task found, until the deadline (of `time.monotonic`); crashes and hangs are problems."""
    with contextlib.ExitStack() as stack:
        worker: Worker | None = None
        stack.callback(lambda: worker is not None and worker.close())
        for number in numbers:
            if time.monotonic() > deadline:
                return
            if worker is None or worker.n_done >= program.n_tasks:
                if worker is not None:
                    worker.close()
                worker = Worker(program)
            found, is_alive = worker.ask(number)
            yield found
            if not is_alive:
                worker.close()
                worker = None


class Worker:
    """A process that does tasks of one part."""

    def __init__(self, program: Program) -> None:
        self.program, self.n_done, self._rest = program, 0, b""
        command = [sys.executable, "-m", "studies.stress.worker", program.part, str(program.folder)]
        command += ["--sample"] * program.is_sample
        folders = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                "JAX_COMPILATION_CACHE_DIR": str(CACHE),
                **os.environ,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": LEAST_COMPILE_SECONDS,
                "PYTHONPATH": os.pathsep.join(filter(None, folders)),
            },
        )
        if self._line(START_SECONDS) != READY:
            self.close()
            raise RuntimeError(f"the process did not start: `{' '.join(command[1:])}` says why")

    def ask(self, number: int) -> tuple[Found, bool]:
        """What a task found, and whether the process is still there."""
        started = time.monotonic()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{number}\n".encode())
            self.process.stdin.flush()
        line = self._line(self.program.limit_seconds)
        self.n_done += 1
        seconds = time.monotonic() - started
        if line is None:
            has_ended = self.process.poll() is not None
            what = f"crash (code {self.process.returncode})" if has_ended else "hang"
            return Found(number, {what.split(" ")[0]: 1}, [what], seconds), False
        return Found(**{**json.loads(line), "seconds": seconds}), True

    def _line(self, limit: float) -> str | None:
        """The next line that the process writes; None where it ends or the time is over."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                part = os.read(self.process.stdout.fileno(), 65536)
                if not part:
                    self.process.wait(10)
                    return None
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def serve(task: Callable[[int], Found]) -> None:
    """In the process: answer each number with what its task found. Other output goes nowhere."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    print(READY, file=answers, flush=True)
    for line in sys.stdin:
        found = dataclasses.asdict(task(int(line)))
        print(json.dumps(found), file=answers, flush=True)
