"""Where the repository and its result files lie, whatever the current directory."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "studies" / "results"
TUNING = RESULTS / "tuning"
# Runs that only try a command: no table reads them, and git ignores them.
TRIALS = ROOT / ".bench" / "trials"


def output(name: str, is_trial: bool = False) -> Path:
    """Where a benchmark writes, and tables read; a trial leaves the results alone."""
    return (TRIALS if is_trial else RESULTS) / name


def tuning_output(jobs: Path, suffix: str) -> Path:
    """Where the results of a list of jobs lie: under the name of the list."""
    return TUNING / f"{jobs.stem}{suffix}"
