"""A folder of jobs: each a JSON spec with its data, and one file as its result, so that a run can be started again.

Nothing here imports JAX: workers first set variables of the environment that JAX reads when it is imported.

- `jobs/NAME.json`: what is to be done; NAME is a fingerprint of spec and data.
- `data/NAME.wishflow`: the data of one or several jobs.
- `results/NAME.wishflow`: the result, written atomically.
- `errors/NAME.json`: why the last attempt failed; there is none where there is a result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pkgutil
import platform
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError, JobError, OptionError
from .json import read_json, write_json_atomic
from .model_file import checksum, read_model, write_model
from .tables import from_arrays, to_arrays

PARTS = ("jobs", "data", "results", "errors")
# Errors that another attempt would end in too.
FINAL = (OptionError, DataError)


class JobFolder:
    """Jobs in a folder that all workers can read and write."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def create(self) -> None:
        """Make the folder and its parts."""
        for part in PARTS:
            (self.path / part).mkdir(parents=True, exist_ok=True)

    def result(self, name: str) -> Path:
        return self.path / "results" / f"{name}.wishflow"

    def is_done(self, name: str) -> bool:
        return self.result(name).exists()

    def add_data(self, value: Any) -> str:
        """Write data, unless they are there; returns their name."""
        header, arrays = to_arrays(value)
        name = checksum(json.dumps(header), arrays)[:32]
        path = self.path / "data" / f"{name}.wishflow"
        if not path.exists():
            write_model(path, {"data": header}, arrays)
        return name

    def add(self, spec: Mapping[str, Any], data: str, version: str) -> str:
        """Write a job, unless it is there; returns its name, which is the same for the same spec, data and version."""
        job = {"spec": dict(spec), "data": data, "version": version}
        name = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()[:32]
        path = self.path / "jobs" / f"{name}.json"
        if not path.exists():
            write_json_atomic(path, job)
        return name

    def read(self, name: str) -> tuple[dict[str, Any], Any]:
        """Spec and data of a job."""
        job = read_json(self.path / "jobs" / f"{name}.json")
        if job is None:
            raise JobError(
                f"there is no job {name} in {str(self.path)!r} on {platform.node()}; expected a folder that all nodes "
                "share: pass one as folder=…"
            )
        header, arrays = read_model(self.path / "data" / f"{job['data']}.wishflow")
        return job["spec"], from_arrays(header["data"], arrays)

    def fail(self, name: str, error: Exception) -> None:
        """Keep the error of an attempt; raise it where it cannot be written, as on a node without the folder."""
        said = {
            "kind": type(error).__name__,
            "message": str(error),
            "is_final": isinstance(error, FINAL),
            "traceback": "".join(traceback.format_exception(error)),
            "node": platform.node(),
        }
        with contextlib.suppress(OSError):
            write_json_atomic(self._error(name), said)
            return
        raise error

    def error(self, name: str) -> dict[str, Any] | None:
        """Why the last attempt failed; None where none has."""
        return read_json(self._error(name))

    def forget_error(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._error(name).unlink()

    def _error(self, name: str) -> Path:
        return self.path / "errors" / f"{name}.json"


def work(folder: str, names: Sequence[str], function: str) -> None:
    """Do jobs, in a worker: errors are written into the folder, and jobs that have a result are left as they are.

    An error that cannot be written there is raised.

    Parameters
    ----------
    folder : str
        The folder of the jobs.
    names : sequence of str
        The jobs, which one program may train together.
    function : str
        "module:name" of a function of the folder and the names, which writes the results.
    """
    jobs = JobFolder(folder)
    waiting = [name for name in names if not jobs.is_done(name)]
    if not waiting:
        return
    do = pkgutil.resolve_name(function)
    try:
        do(jobs, waiting)
    except Exception as error:
        if len(waiting) > 1:  # one of them may be the cause: the others have results of their own
            for name in waiting:
                work(folder, [name], function)
            return
        jobs.fail(waiting[0], error)
    else:
        for name in waiting:
            jobs.forget_error(name)
