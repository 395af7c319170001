"""Parts of the tutorial on files of your own: what its commands print, and how long they take."""

from __future__ import annotations

import functools
from collections.abc import Callable

from ..own_file import STEPS
from .text import NOT_MEASURED, grid, result, source_text

FILE = "own_file.json"


def printed(step: str) -> str:
    """What a command prints, with the seconds it takes at its first use."""
    found = result(FILE)
    if found is None:
        return NOT_MEASURED
    part = found["steps"][step]
    return f"```text\n{part['printed']}\n```\n\nThis took {part['seconds']:.0f} seconds."


def time_table() -> str:
    """Seconds of each command, at first use and with compiled programs at hand."""
    found = result(FILE)
    if found is None:
        return NOT_MEASURED
    steps = found["steps"]
    names = {step: f"`{' '.join(part['command'].split()[:3])} …`" for step, part in steps.items()}
    rows = {
        names[step]: {"first use, seconds": f"{part['seconds']:.0f}", "again": f"{part['warm_seconds']:.0f}"}
        for step, part in steps.items()
    }
    totals = [sum(part[key] for part in steps.values()) for key in ("seconds", "warm_seconds")]
    rows["all"] = {"first use, seconds": f"{totals[0]:.0f}", "again": f"{totals[1]:.0f}"}
    cores = found["provenance"]["cpu_count"]
    return f"{grid('', rows)}\n\n{source_text(found['provenance'])}, {cores} cores."


PARTS: dict[str, Callable[[], str]] = {
    **{f"own_file_{step}": functools.partial(printed, step) for step in STEPS},
    "own_file": time_table,
}
