"""`kill -9` at random moments of a fit with checkpoints: they load, and the same fit ends bit by bit as a whole one."""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from wishflow.errors import ModelFileError
from wishflow.files.model_file import read_model

from . import fits
from .ledger import Found
from .mutations import generator

# Processes are forked: this one has imported all modules, and computes nothing.
FORK = multiprocessing.get_context("fork")
POLL_SECONDS, WAIT_SECONDS = 0.005, 600.0
MOST_TRIES = 5
FIRST = "*/*.ckpt"


class Task:
    """Kills by their numbers, the kinds of fits in turn; what a whole fit learns is found once.

    Each fit that is killed has a process of its own. Those that nobody kills share another one, where programs are
    compiled once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole: dict[str, dict[str, np.ndarray]] = {}
        self.seconds: dict[str, tuple[float, float]] = {}
        self.finisher = Finisher()

    def __call__(self, number: int) -> Found:
        found, kind = Found(number), fits.KINDS[number % len(fits.KINDS)]
        if kind not in self.whole:
            self._measure(kind)
        rng = generator(number)
        for _ in range(MOST_TRIES):
            folder = self.folder / "kept"
            shutil.rmtree(folder, ignore_errors=True)
            process = self._start(kind, folder, self.folder / "killed.npz")
            # Every fifth from the beginning of the fit on, the others from the first checkpoint on.
            is_early = number // len(fits.KINDS) % 5 == 4
            seconds = self.seconds[kind][0 if is_early else 1]
            if self._is_killed(process, folder, "*" if is_early else FIRST, float(rng.uniform(0.0, seconds))):
                break
        else:
            found.problems.append(f"{kind}: it ended before all kills")
            return found
        n_kept = self._check_kept(found, kind, folder)
        resumed = self.finisher.learnt(kind, folder, self.folder / "resumed.npz")
        if resumed is None or not fits.are_equal(self.whole[kind], resumed):
            found.problems.append(f"{kind}: the resumed fit {'failed' if resumed is None else 'is another'}")
        if list(folder.glob("*/.*.tmp")):
            found.problems.append(f"{kind}: temporary files are left")
        when = "" if n_kept else ", killed before the first checkpoint"
        found.count(f"{kind}: {'problem' if found.problems else 'equal'}{when}")
        return found

    def _measure(self, kind: str) -> None:
        """What a fit without checkpoints learns, and how long one with them takes, in all and from the first on.

        The second run finds its programs compiled, as those that are killed do.
        """
        whole = self.finisher.learnt(kind, None, self.folder / "whole.npz")
        if whole is None:
            raise RuntimeError(f"the fit {kind!r} failed without a kill")
        folder = self.folder / "measured"
        process = self._start(kind, folder, self.folder / "measured.npz")
        marks = []
        for sign in ("*", FIRST):
            _wait_for(lambda sign=sign: any(folder.glob(sign)) or not process.is_alive())
            marks.append(time.monotonic())
        process.join(WAIT_SECONDS)
        self.whole[kind] = whole
        self.seconds[kind] = (time.monotonic() - marks[0], time.monotonic() - marks[1])
        shutil.rmtree(folder, ignore_errors=True)

    def _start(self, kind: str, folder: Path | None, out: Path) -> BaseProcess:
        """A fit in a new process."""
        out.unlink(missing_ok=True)
        process = FORK.Process(target=fits.run, args=(kind, folder, out))
        process.start()
        return process

    @staticmethod
    def _is_killed(process: BaseProcess, folder: Path, sign: str, moment: float) -> bool:
        """Kill so many seconds after a first sign in the folder; False where the fit had ended before."""
        _wait_for(lambda: any(folder.glob(sign)) or not process.is_alive())
        deadline = time.monotonic() + moment
        _wait_for(lambda: time.monotonic() > deadline or not process.is_alive())
        process.kill()
        process.join()
        return process.exitcode == -signal.SIGKILL

    @staticmethod
    def _check_kept(found: Found, kind: str, folder: Path) -> int:
        """How many checkpoints there are; all of them can be read."""
        paths = sorted(folder.glob("*/*.ckpt"))
        for path in paths:
            try:
                read_model(path)
            except ModelFileError as error:
                found.problems.append(f"{kind}: {path.name} does not load ({error})")
        return len(paths)


class Finisher:
    """A process that does one fit after another, to their ends."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.connection, other = FORK.Pipe()
        self.process = FORK.Process(target=_serve, args=(other, self.connection), daemon=True)
        self.process.start()
        other.close()

    def learnt(self, kind: str, folder: Path | None, out: Path) -> dict[str, np.ndarray] | None:
        """What a fit learns; None where it fails, and the next one has a new process."""
        out.unlink(missing_ok=True)
        try:
            self.connection.send((kind, folder, out))
            is_done = self.connection.poll(WAIT_SECONDS) and self.connection.recv()
        except (EOFError, OSError):
            is_done = False
        if not is_done:
            self.process.kill()
            self._start()
            return None
        with np.load(out, allow_pickle=False) as content:
            return dict(content)


def _serve(requests: Connection, other_end: Connection) -> None:
    """In the process: fits until nobody asks any more."""
    other_end.close()
    with contextlib.suppress(EOFError):
        while True:
            fits.run(*requests.recv())
            requests.send(True)


def _wait_for(is_so) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
