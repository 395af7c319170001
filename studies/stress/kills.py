"""`kill -9` at random moments of a fit with checkpoints: they load, and the same fit ends bit by bit as a whole one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from wishflow.errors import ModelFileError
from wishflow.files.model_file import read_model

from . import fits
from .ledger import Found
from .mutations import generator

POLL_SECONDS, WAIT_SECONDS = 0.005, 600.0
MOST_TRIES = 5


class Task:
    """Kills by their numbers, the kinds of fits in turn; what a whole fit learns is found once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole: dict[str, dict[str, np.ndarray]] = {}
        self.seconds: dict[str, float] = {}

    def __call__(self, number: int) -> Found:
        found, kind = Found(number), fits.KINDS[number % len(fits.KINDS)]
        if kind not in self.whole:
            self._measure(kind)
        rng = generator(number)
        for _ in range(MOST_TRIES):
            folder = self.folder / "kept"
            shutil.rmtree(folder, ignore_errors=True)
            process = self._start(kind, folder, self.folder / "killed.npz")
            if self._is_killed(process, folder, float(rng.uniform(0.0, self.seconds[kind]))):
                break
        else:
            found.problems.append(f"{kind}: it ended before all kills")
            return found
        n_kept = self._check_kept(found, kind, folder)
        resumed = self._finished(kind, folder, self.folder / "resumed.npz")
        if resumed is None or not fits.are_equal(self.whole[kind], resumed):
            found.problems.append(f"{kind}: the resumed fit {'failed' if resumed is None else 'is another'}")
        if list(folder.glob("*/.*.tmp")):
            found.problems.append(f"{kind}: temporary files are left")
        found.count(f"{kind}: {'problem' if found.problems else 'equal'}")
        found.count("with checkpoints" if n_kept else "before the first checkpoint")
        return found

    def _measure(self, kind: str) -> None:
        """What a fit without checkpoints learns, and the seconds from the beginning of training with them to its end.

        The second run finds its programs compiled, as those that are killed do.
        """
        whole = self._finished(kind, None, self.folder / "whole.npz")
        if whole is None:
            raise RuntimeError(f"the fit {kind!r} failed without a kill")
        folder = self.folder / "measured"
        process = self._start(kind, folder, self.folder / "measured.npz")
        _wait_for(lambda: folder.exists() or process.poll() is not None)
        started = time.monotonic()
        process.wait(WAIT_SECONDS)
        self.whole[kind], self.seconds[kind] = whole, time.monotonic() - started
        shutil.rmtree(folder, ignore_errors=True)

    def _start(self, kind: str, folder: Path | None, out: Path) -> subprocess.Popen:
        out.unlink(missing_ok=True)
        command = [sys.executable, "-m", "studies.stress.fits", kind, "" if folder is None else str(folder), str(out)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _finished(self, kind: str, folder: Path | None, out: Path) -> dict[str, np.ndarray] | None:
        """What a fit learns that nobody kills; None where it fails."""
        if self._start(kind, folder, out).wait(WAIT_SECONDS) != 0 or not out.exists():
            return None
        with np.load(out, allow_pickle=False) as content:
            return dict(content)

    @staticmethod
    def _is_killed(process: subprocess.Popen, folder: Path, moment: float) -> bool:
        """Kill so many seconds after training began; False where it had ended before."""
        _wait_for(lambda: folder.exists() or process.poll() is not None)
        deadline = time.monotonic() + moment
        _wait_for(lambda: time.monotonic() > deadline or process.poll() is not None)
        process.kill()
        return process.wait() == -9

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


def _wait_for(is_so) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
