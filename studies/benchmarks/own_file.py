"""The commands of the tutorial on files of your own, timed: what is printed in docs/tutorials/own_file.md is run.

    python -m studies.benchmarks.own_file            # writes studies/results/own_file.json

The page's Python makes the files, and each command is a process of its own, with a cache of compiled programs that is
empty at the start. Beside the seconds that pass are those of the processor, all cores together: on a machine that does
other work too, more seconds pass than the commands need. `load` is the mean number of running processes meanwhile.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wishflow.files.json import write_json_atomic

from ..paths import ROOT, output
from ..provenance import provenance

PAGE = ROOT / "docs" / "tutorials" / "own_file.md"
STEPS = ("fit", "predict", "evaluate", "forecast", "next")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (wishflow .+)$", re.MULTILINE)


def commands(text: str) -> dict[str, str]:
    """The commands of the page by the names of their steps."""
    return dict(zip(STEPS, COMMAND.findall(text), strict=True))


def timed(command: str, folder: Path, cache: Path) -> dict[str, Any]:
    """Seconds of a command and what it prints on standard output."""
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)}
    call = [sys.executable, "-m", *shlex.split(command)]
    started, used = time.perf_counter(), _processor_seconds()
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    seconds = {"seconds": time.perf_counter() - started, "processor_seconds": _processor_seconds() - used}
    return {"command": command, **seconds, "load": os.getloadavg()[0], "printed": done.stdout.strip()}


def _processor_seconds() -> float:
    """Those of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(text: str) -> dict[str, Any]:
    """All steps, one after another."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-c", "\n".join(PYTHON.findall(text))], cwd=folder, check=True)
        for step, command in commands(text).items():
            found[step] = timed(command, folder, folder / "cache")
            seconds = f"{found[step]['seconds']:7.1f} s, of the processor {found[step]['processor_seconds']:7.1f} s"
            print(f"{step:<10}{seconds}", flush=True)
    return found


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=output("own_file.json"))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    steps = measured(PAGE.read_text(encoding="utf-8"))
    found = {"steps": steps, "provenance": provenance()}
    write_json_atomic(options.output, found)


if __name__ == "__main__":
    main()
