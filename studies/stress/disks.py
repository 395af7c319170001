"""A full disk and a folder that cannot be written to, in the middle of a fit with checkpoints.

A clear error; the estimator, and the checkpoints before, are as they were; no half file; with room, the fit goes on.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import wishflow as wf
from wishflow.callbacks import Callback, ChunkEvent
from wishflow.errors import CheckpointError, ModelFileError
from wishflow.files.model_file import read_model

from . import fits
from .ledger import Found

TROUBLES = ("full disk", "read-only folder")
# The first checkpoint fits in, and the next two do not; ends of phases are longer by their records.
FULL_SHARE, PAGE = 2.2, 4096
N_BEFORE = 2
# Steps of the fits, which write a state after every hundred.
STEPS = 600


class Task:
    """The kinds of fits in turn, with each of the troubles."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, number: int) -> Found:
        found, kind = Found(number), fits.KINDS[number % len(fits.KINDS)]
        trouble = TROUBLES[number // len(fits.KINDS) % len(TROUBLES)]
        place = self.folder / f"disk-{number}"
        whole = fits.learnt(fits.fitted(kind, None, max_iter=STEPS))
        with contextlib.ExitStack() as stack:
            try:
                disk = stack.enter_context(mounted(place))
            except (subprocess.CalledProcessError, FileNotFoundError):
                found.count(f"{trouble}: skipped, file systems cannot be mounted here")
                return found
            disk.resize(self._size(kind) if trouble == TROUBLES[0] else 2**24)
            if trouble == TROUBLES[1]:
                with contextlib.suppress(Stopped):
                    fits.fitted(kind, place, max_iter=STEPS, callbacks=[StopAfter(N_BEFORE)])
                disk.remount("ro")
            self._check_error(found, kind, place)
            disk.remount("rw")
            disk.resize(2**24)
            resumed = fits.learnt(fits.fitted(kind, place, max_iter=STEPS))
            if not fits.are_equal(whole, resumed):
                found.problems.append(f"{kind}, {trouble}: the fit that went on is another")
            found.count(f"{trouble}: {'problem' if found.problems else 'equal'}")
        return found

    def _size(self, kind: str) -> int:
        """Bytes that one checkpoint fits in, and no more."""
        sizes = self.folder / f"sizes-{kind}"
        with contextlib.suppress(Stopped):
            fits.fitted(kind, sizes, max_iter=STEPS, callbacks=[StopAfter(2)])
        largest = max(path.stat().st_size for path in sizes.glob("*/*.ckpt"))
        return -int(-FULL_SHARE * largest // PAGE) * PAGE

    def _check_error(self, found: Found, kind: str, place: Path) -> None:
        before = contents(place)
        try:
            fits.fitted(kind, place, max_iter=STEPS)
            found.problems.append(f"{kind}: no error")
        except CheckpointError as error:
            if "could not be written" not in str(error) or str(place) not in str(error):
                found.problems.append(f"{kind}: the error does not say what happened: {error}")
        after = contents(place)
        if [path for path in after if path.suffix != ".ckpt"]:
            found.problems.append(f"{kind}: a half file is left")
        for path in after:
            with contextlib.suppress(ModelFileError):
                read_model(path)
                continue
            found.problems.append(f"{kind}: {path.name} does not load")
        if before and not after:
            found.problems.append(f"{kind}: earlier checkpoints are gone")
        check_refit(found, kind, place)


def check_refit(found: Found, kind: str, place: Path) -> None:
    """A fitted estimator whose second fit meets the same trouble is as it was."""
    X, y = fits.rows()
    model: Any = wf.FlowRegressor(validation_fraction=0, **fits.FLOW).set_params(max_iter=STEPS).fit(X, y)
    kept, before = dict(vars(model)), model.predict(X)
    model.set_params(checkpoint_dir=wf.Checkpointing(place, every_seconds=0.0))
    try:
        model.fit(X, 2.0 * y + 1.0)
        found.problems.append(f"{kind}: a second fit had no error")
    except CheckpointError:
        model.set_params(checkpoint_dir=None)
    is_same = {name: value is kept[name] for name, value in vars(model).items()}
    if not all(is_same.values()) or not np.array_equal(before, model.predict(X)):
        found.problems.append(f"{kind}: the estimator is not as it was")


class Stopped(BaseException):
    """Nobody catches it, as nobody catches `kill -9`."""


class StopAfter(Callback):
    """Ends a fit after some chunks."""

    def __init__(self, n_chunks: int) -> None:
        self.n_left = n_chunks + 1

    def on_chunk(self, event: ChunkEvent) -> None:
        self.n_left -= event.phase in ("flow", "series", "members")
        if self.n_left <= 0:
            raise Stopped


class Disk:
    """A file system in memory."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def resize(self, n_bytes: int) -> None:
        self.remount(f"size={n_bytes}")

    def remount(self, options: str) -> None:
        _run("mount", "-o", f"remount,{options}", str(self.place))


@contextlib.contextmanager
def mounted(place: Path) -> Iterator[Disk]:
    """A disk at a place; `CalledProcessError` where the process may not mount one."""
    place.mkdir(parents=True)
    _run("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place))
    try:
        yield Disk(place)
    finally:
        _run("umount", str(place))


def contents(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
