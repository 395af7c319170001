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
    """Seconds of each command at first use, those that passed and those of the processor."""
    found = result(FILE)
    if found is None:
        return NOT_MEASURED
    steps = found["steps"]
    names = {step: f"`{' '.join(part['command'].split()[:3])} …`" for step, part in steps.items()}
    columns = {"seconds": "seconds", "processor_seconds": "CPU seconds"}
    total = {key: sum(part[key] for part in steps.values()) for key in columns}
    parts = {**{names[step]: part for step, part in steps.items()}, "all": total}
    rows = {name: {text: f"{part[key]:.0f}" for key, text in columns.items()} for name, part in parts.items()}
    source = source_text(found["provenance"])
    return f"{grid('', rows)}\n\nSource: {source}, {found['provenance']['cpu_count']} cores."


PARTS: dict[str, Callable[[], str]] = {
    **{f"own_file_{step}": functools.partial(printed, step) for step in STEPS},
    "own_file": time_table,
}
