"""Where a number comes from: command, commit, versions, hardware."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from .paths import ROOT

PACKAGES = ("wishflow", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "scikit-learn")


# Programs by the names that they had when older results were made, and their present ones.
MOVED = {
    "python -m benchmarks.": "python -m studies.benchmarks.",
    "python -m wishflow reproduce ": "python -m studies.",
}


def provenance() -> dict[str, object]:
    """What a result file says about its own making."""
    return {
        "command": command(),
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "device": f"{jax.devices()[0].device_kind} ({jax.default_backend()})",
        "cpu_count": os.cpu_count(),
    }


def sources(results: Iterable[dict[str, Any]]) -> list[str]:
    """Commands, commits, devices and versions behind results, each with the number of its cells."""
    counts: dict[str, int] = {}
    for result in results:
        made = result["provenance"]
        jax_version = made.get("versions", {}).get("jax", "unknown")
        commit = str(made.get("commit", "unknown"))[:12]
        typed, device = present_command(made.get("command", "unknown")), made.get("device", "unknown")
        line = f"{typed}; commit {commit}; {device}; jax {jax_version}"
        counts[line] = counts.get(line, 0) + 1
    return [f"{line} ({n} {'cell' if n == 1 else 'cells'})" for line, n in counts.items()]


def present_command(recorded: str) -> str:
    """The command of a result, with the present name of its program."""
    for old, new in MOVED.items():
        recorded = recorded.replace(old, new)
    return recorded


def command() -> str:
    """What was typed, as far as this process knows: one that another started gets it from there.

    Folders of one machine say nothing to others: paths below the repository start there, of others the name is given.
    """
    return " ".join([*_program(), *map(_without_folders, sys.argv[1:])])


def _without_folders(word: str) -> str:
    return re.sub(r"(^|=)/\S*/(?=[^/])", r"\1", word.replace(f"{ROOT}/", ""))


def _program() -> list[str]:
    """`python -m NAME` for a module that runs, else the name of the script, without its folder."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return [Path(sys.argv[0]).name] if spec is None else ["python", "-m", spec.name.removesuffix(".__main__")]


def _commit() -> str:
    """The commit of this code, with a mark for changes; the environment names it where there is no repository.

    Result files do not count as changes: a suite that rewrites some of them goes on with the same code. An installed
    package may lie inside a repository of somebody else, so this file must be one of those it tracks.
    """
    given = os.environ.get("WISHFLOW_COMMIT")
    if given:
        return given
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        changes = _git("status", "--porcelain", "--untracked-files=no", "--", ":(top)", ":(top,exclude)studies/results")
        return _git("rev-parse", "HEAD") + ("-dirty" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
