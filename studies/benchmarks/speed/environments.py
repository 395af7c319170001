"""Each peer in a virtual environment of its own, made from its file of pinned versions in `requirements/`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".bench"
REQUIREMENTS = Path(__file__).parent / "requirements"
# What a build for an accelerator would bring; these benchmarks are of the CPU.
UNWANTED = ("nvidia-", "cuda-", "triton", "jax-cuda")


class NotInstalled(Exception):
    """An environment that could not be made; the text says why, in one line."""


def python_of(name: str) -> Path:
    return FOLDER / name / "bin" / "python"


def ensure(name: str) -> Path:
    """The Python of a peer's environment, which is made where it is missing or its requirements have changed."""
    file = REQUIREMENTS / f"{name}.txt"
    wanted = file.read_text()
    stamp = FOLDER / name / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return python_of(name)
    _run([sys.executable, "-m", "venv", str(FOLDER / name)])
    for group in install_groups(wanted, file):
        refuse_unwanted(_planned(name, group))
        _pip(name, group)
    stamp.write_text(wanted)
    return python_of(name)


def install_groups(requirements: str, file: Path) -> list[list[str]]:
    """What pip is given, call by call: torch before anything that depends on it, then the rest.

    Whatever torch brings along has its version from the same file.
    """
    lines = [line.strip() for line in requirements.splitlines()]
    pins = [line for line in lines if line and not line.startswith("#")]
    torch = [pin for pin in pins if pin.startswith("torch==")]
    others = [pin for pin in pins if pin not in torch]
    return [[*torch, "--constraint", str(file)], others] if torch else [others]


def refuse_unwanted(names: list[str]) -> None:
    """Refuse packages of an accelerator."""
    found = [name for name in names if name.lower().replace("_", "-").startswith(UNWANTED)]
    if found:
        raise NotInstalled(f"it would bring packages of an accelerator: {', '.join(found)}")


def _planned(name: str, group: list[str]) -> list[str]:
    """The names of all packages that pip would install."""
    report = json.loads(_pip(name, [*group, "--dry-run", "--report", "-"]))
    return [item["metadata"]["name"] for item in report["install"]]


def _pip(name: str, arguments: list[str]) -> str:
    options = ["--quiet", "--disable-pip-version-check"]
    return _run([str(python_of(name)), "-m", "pip", "install", *options, *arguments])


def _run(command: list[str]) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        # The last line that names an error; never the addresses that pip lists before it.
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        raise NotInstalled(errors[-1] if errors else f"exit status {done.returncode}")
    return done.stdout
