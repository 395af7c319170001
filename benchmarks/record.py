"""Where a number comes from: command, commit, versions, hardware."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from importlib import metadata

import jax


def provenance() -> dict[str, object]:
    """What a result file says about its own making."""
    return {
        "command": " ".join(["python", "-m", _module(), *sys.argv[1:]]),
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": {
            name: _version(name) for name in ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "scikit-learn")
        },
        "device": f"{jax.devices()[0].device_kind} ({jax.default_backend()})",
        "cpu_count": os.cpu_count(),
    }


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec is not None else "benchmarks"


def _commit() -> str:
    """The commit, from the environment where there is no repository (a copy of the tree), with a mark for changes."""
    given = os.environ.get("WISHFLOW_COMMIT")
    if given:
        return given
    try:
        run = lambda *a: subprocess.run(["git", *a], capture_output=True, text=True, check=True).stdout.strip()  # noqa: E731
        return run("rev-parse", "HEAD") + ("-dirty" if run("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
