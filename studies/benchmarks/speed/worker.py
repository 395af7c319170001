"""A worker: a process that prepares a work and runs steps of it when asked, one JSON object a line.

    {"do": "prepare", "work": NAME, "noise": PATH or null}  ->  {"compile_s": ..., "step_s": ..., "value": ... or null}
    {"do": "run", "n": N}                                   ->  {"seconds_per_step": ...}
    {"do": "memory"}                                        ->  {"peak_mb": ...}

The first line a worker writes is {"ready": {package: version}}; an error is answered as {"error": TEXT}.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from .works import Work, find_work


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A work that is set up. `run(n)` takes n steps and waits for them; `value()` is the loss at the starting point."""

    run: Callable[[int], None]
    value: Callable[[], float] | None = None


Maker = Callable[[Work, Path | None], Prepared]


class Session:
    """What a worker knows between requests."""

    def __init__(self, make: Maker) -> None:
        self.make = make
        self.prepared: Prepared | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "prepare":
            noise = request.get("noise")
            return self._prepare(find_work(request["work"]), None if noise is None else Path(noise))
        if request["do"] == "run":
            return {"seconds_per_step": self._timed(int(request["n"])) / int(request["n"])}
        if request["do"] == "memory":
            return {"peak_mb": peak_mb()}
        raise ValueError(f"unknown request {request!r}; expected prepare, run or memory.")

    def _prepare(self, work: Work, noise: Path | None) -> dict[str, Any]:
        self.prepared = self.make(work, noise)
        # The value comes first: steps move the parameters.
        value = None if self.prepared.value is None else float(self.prepared.value())
        first, second = self._timed(1), self._timed(1)
        return {"compile_s": max(first - second, 0.0), "step_s": second, "value": value}

    def _timed(self, n: int) -> float:
        if self.prepared is None:
            raise ValueError("run came before prepare.")
        started = time.perf_counter()
        self.prepared.run(n)
        return time.perf_counter() - started


def peak_mb() -> float:
    """The largest resident memory of this process so far."""
    unit = 1.0 if sys.platform == "darwin" else 1024.0  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of what is installed; a package run from its source folder has none."""
    found = {distribution.name.lower(): distribution.version for distribution in metadata.distributions()}
    return {name: found.get(name.lower(), "not installed") for name in packages}


def serve(make: Maker, packages: Iterable[str]) -> None:
    """Answer requests until the input ends."""
    output = _private_stdout()
    session = Session(make)
    _write(output, {"ready": versions(packages)})
    for line in sys.stdin:
        try:
            reply = session.answer(json.loads(line))
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        _write(output, reply)


def _private_stdout() -> TextIO:
    """The pipe to the driver; what libraries print goes to stderr instead."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return pipe


def _write(output: TextIO, message: dict[str, Any]) -> None:
    output.write(json.dumps(message) + "\n")
    output.flush()
