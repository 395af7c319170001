"""Which kernels a step is made of: a profile of a few steps, summed by the names of the kernels."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

N_TRACED = 20
# Where the profile says which operation a kernel belongs to, best first.
OPERATION_KEYS = ("tf_op", "hlo_op", "name")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """All runs of one kernel, by step."""

    name: str
    ms: float
    count: float
    operation: str


@dataclasses.dataclass(frozen=True)
class Summary:
    """Kernels of a step, the longest first; `busy_ms` is their sum, `span_ms` the time from the first to the last."""

    kernels: tuple[Kernel, ...]
    busy_ms: float
    span_ms: float


def profile(run: Callable[[int], object], n: int) -> Any:
    """The profile of `run(n)`. Python's own calls are not recorded: they are most of a profile, and slow it down."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 1
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            run(n)
        path = next(Path(folder).rglob("*.xplane.pb"))
        return jax.profiler.ProfileData.from_file(str(path))


def operation_of(event: Any) -> str:
    """The operation of the program that a kernel belongs to."""
    stats = {key: value for key, value in event.stats if key in OPERATION_KEYS}
    return next((str(stats[key]) for key in OPERATION_KEYS if stats.get(key)), "")


def device_lines(planes: Iterable[Any], word: str) -> list[Any]:
    """The streams of the planes whose names hold `word`; all of their lines where none is called a stream.

    Other lines of such a plane tell the same events again, by module or by operation.
    """
    lines = [line for plane in planes if word in plane.name for line in plane.lines]
    return [line for line in lines if line.name.startswith("Stream")] or lines


def summarise(planes: Iterable[Any], n_steps: int, word: str = "GPU") -> Summary:
    """Sums by the name of the kernel. Stats are read for the first event of a name alone: reading them is slow."""
    sums: dict[str, list[float]] = {}
    operations: dict[str, str] = {}
    first, last = float("inf"), 0.0
    for line in device_lines(planes, word):
        for event in line.events:
            name, duration, start = event.name, event.duration_ns, event.start_ns
            if name not in sums:
                sums[name], operations[name] = [0.0, 0], operation_of(event)
            sums[name][0] += duration
            sums[name][1] += 1
            first, last = min(first, start), max(last, start + duration)
    kernels = [Kernel(k, ns / 1e6 / n_steps, count / n_steps, operations[k]) for k, (ns, count) in sums.items()]
    kernels.sort(key=lambda kernel: -kernel.ms)
    return Summary(tuple(kernels), sum(k.ms for k in kernels), max(last - first, 0.0) / 1e6 / n_steps)


def formatted(summary: Summary, n_shown: int = 60) -> str:
    """The longest kernels as text."""
    if not summary.kernels:
        return "no accelerator is in the profile."
    total = f"busy {summary.busy_ms:.3f} ms of {summary.span_ms:.3f} ms a step, "
    total += f"{sum(k.count for k in summary.kernels):.0f} kernels a step, {len(summary.kernels)} names"
    rows = [f"{k.ms:9.4f} ms {k.count:8.1f} ×  {k.name[:70]:70}  {k.operation[-110:]}" for k in summary.kernels]
    return "\n".join([total, *rows[:n_shown]])


def traced(run: Callable[[int], object], n: int = N_TRACED) -> Summary:
    """The kernels of n steps; `run` is warm after a first call."""
    run(n)
    return summarise(profile(run, n).planes, n)
