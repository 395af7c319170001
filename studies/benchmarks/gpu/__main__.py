"""How fast training is on an accelerator, beside what the machine can do at best.

    python -m studies.benchmarks.gpu                             # everything; writes studies/results/gpu.json
    python -m studies.benchmarks.gpu --only ceilings,kin8nm-20   # some parts: a work, data-models, or a group
    python -m studies.benchmarks.gpu --trace kin8nm-20           # the kernels of a step, printed; .bench/trials
    python -m studies.benchmarks.gpu --quick                     # tiny sizes: does everything run? .bench/trials

The file is written after each part; parts that are not measured again stay in it. Groups: ceilings, works, many,
kin8nm, boston. Times are of whatever device JAX takes; on the CPU many models are trained one after another.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from wishflow.files.json import read_json, write_json_atomic
from wishflow.numerics.devices import computing

from ... import paths
from ...provenance import provenance
from ..speed.works import WORKS
from . import ceilings, many, steps, table, trace


@dataclasses.dataclass(frozen=True)
class Part:
    """One measurement. `prepare` gives `run(n)`, n steps of it, for a trace."""

    group: str
    name: str
    measure: Callable[[], dict[str, Any]]
    prepare: Callable[[], Callable[[int], object]] | None = None

    def is_named_by(self, word: str) -> bool:
        """By its own name, its group, or the data that many models are fitted to."""
        return word in (self.name, self.group, self.name.partition("-")[0])


def parts(is_quick: bool) -> list[Part]:
    """All measurements in their order."""
    works = [steps.shrunk(work) for work in WORKS] if is_quick else WORKS
    shapes = [many.shrunk(shape) for shape in many.SHAPES] if is_quick else many.SHAPES
    return [
        Part("ceilings", "ceilings", lambda: ceilings.measure(is_quick)),
        *(_work_part(work) for work in works),
        *(_many_part(shape, n) for shape in shapes for n in shape.sizes),
    ]


def _work_part(work: Any) -> Part:
    return Part("works", work.name, lambda: steps.measure(work), lambda: steps.loop_of(work).run)


def _many_part(shape: many.Shape, n: int) -> Part:
    short = dataclasses.replace(shape, n_chunks=2)
    return Part("many", f"{shape.name}-{n}", lambda: many.measure(shape, n), lambda: many.trained(short, n)[0].run)


def chosen(available: list[Part], words: list[str]) -> list[Part]:
    """The parts that the words name, in their own order; all where there are no words."""
    for word in words:
        if not any(part.is_named_by(word) for part in available):
            raise ValueError(f"no part is called {word!r}; choose among {', '.join(p.name for p in available)}.")
    return [part for part in available if not words or any(part.is_named_by(word) for word in words)]


def placed(result: dict[str, Any], part: Part, found: dict[str, Any]) -> dict[str, Any]:
    """The result with what was found of one part; the ceilings are a group by themselves."""
    if part.group == part.name:
        return {**result, part.group: found}
    return {**result, part.group: {**result.get(part.group, {}), part.name: found}}


def attempted(part: Part) -> dict[str, Any]:
    """What a part measures. A failure is written in its place: the other parts still tell something."""
    try:
        return part.measure()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def memory() -> dict[str, Any] | None:
    """Bytes in use on the device, now and at most so far, where it says so."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return {key: stats[key] for key in ("bytes_in_use", "peak_bytes_in_use") if key in stats} or None


def measure_all(some: list[Part], output: Path) -> bool:
    """Measure the parts one after another, beside those that the file holds already, whose provenance is kept under
    "earlier"; whether all went well.
    """
    result: dict[str, Any] = read_json(output) or {}
    held = {"ceilings"} & set(result) | {name for group in ("works", "many") for name in result.get(group, {})}
    if held - {part.name for part in some}:
        result = {**result, "earlier": [*result.get("earlier", []), result["provenance"]]}
    else:
        result = {}
    is_good = True
    for part in some:
        started = time.perf_counter()
        found = attempted(part)
        found = {**found, "device_memory": memory(), "seconds": time.perf_counter() - started}
        is_good = is_good and "error" not in found
        result = placed(result, part, found)
        write_json_atomic(output, {**result, "provenance": provenance()})
        print(f"{part.name}: {_headline(found)} ({found['seconds']:.1f} s)", flush=True)
    print(table.tables(result))
    return is_good


def _headline(found: dict[str, Any]) -> str:
    keys = ("error", "step_ms", "alone_ms", "iteration_ms", "program_ms", "kernels", "loop_turns", "compile_s")
    return ", ".join(f"{key} {_short(found[key])}" for key in keys if found.get(key) is not None)


def _short(value: Any) -> str:
    return format(value, ".4g") if isinstance(value, float) else str(value)


def trace_all(some: list[Part], output: Path) -> None:
    """Profile the parts; the longest kernels are printed, all are written, under "traces"."""
    result: dict[str, Any] = read_json(output) or {}
    traces: dict[str, Any] = {}
    for part in some:
        if part.prepare is None:
            continue
        summary = trace.traced(part.prepare())
        traces[part.name] = dataclasses.asdict(summary)
        write_json_atomic(output, {**result, "traces": traces, "provenance": provenance()})
        print(f"{part.name}: {trace.formatted(summary)}", flush=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m studies.benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="the result file; studies/results/gpu.json if not given")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], metavar="NAME,…", help="some parts")
    parser.add_argument("--trace", type=lambda text: text.split(","), metavar="NAME,…", help="kernels of these instead")
    options = parser.parse_args(arguments)
    is_trial = options.quick or bool(options.trace)
    options.output = options.output or paths.output("gpu_trace.json" if options.trace else "gpu.json", is_trial)
    return options


def main() -> int:
    options = parse()
    available = parts(options.quick)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with computing():
        if options.trace:
            trace_all(chosen(available, options.trace), options.output)
            return 0
        return 0 if measure_all(chosen(available, options.only), options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
