"""How the time and the memory of a training step grow with its sizes, on the CPU.

    python -m studies.benchmarks.growth            # writes studies/results/growth.json
    python -m studies.benchmarks.growth --figure   # draws docs/figures/growth.svg from that file, measures nothing

From one base, one size at a time takes several values; the compiled steps of these values take turns. An exponent is
the slope of log time (or log bytes) over log size: over all values, and over the upper ones, where smaller terms have
faded. Beside it stands the exponent of the counted arithmetic (`speed.arithmetic`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from wishflow.files.json import write_json_atomic
from wishflow.numerics.devices import computing
from wishflow.regression.steps import RowSteps
from wishflow.training.chunk import CHUNK, Rates, start_state, train_chunk
from wishflow.training.loop import STEPS_PER_CHUNK
from wishflow.wishart import solver

from .. import paths
from ..provenance import provenance
from . import growth_figure
from .speed import ours
from .speed.arithmetic import operations
from .speed.works import LEARNING_RATE, Work, find_work

SIZES = {"dim": 16, "rows": 512, "n_inducing": 128, "n_steps": 4, "n_samples": 1, "rank": 4, "dof": 4}
N_DATA = 2**13
ROUNDS, TURN_S = 5, 0.15
QUICK_ROUNDS, QUICK_TURN_S = 2, 0.02
FIGURE = paths.ROOT / "docs" / "figures" / "growth.svg"


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A size that grows: its field in `Work` ("n_data" has none), and its values, among which is that of the base."""

    label: str
    field: str
    values: tuple[int, ...]

    @property
    def base(self) -> int:
        return N_DATA if self.field == "n_data" else SIZES[self.field]

    def chosen(self, is_quick: bool) -> tuple[int, ...]:
        """All values; for a quick look the base and the next one."""
        return tuple(v for v in self.values if v >= self.base)[:2] if is_quick else self.values


QUANTITIES = (
    Quantity("rows of data, N", "n_data", (2**13, 2**15, 2**17, 2**19)),
    Quantity("batch", "rows", (256, 512, 1024, 2048, 4096)),
    Quantity("inputs, D", "dim", (4, 8, 16, 32, 64)),
    Quantity("inducing points, M", "n_inducing", (32, 64, 128, 256, 512)),
    Quantity("rank, ρ", "rank", (1, 2, 4, 8, 16)),
    Quantity("degrees of freedom, ν", "dof", (1, 2, 4, 8, 16)),
    Quantity("sample paths, S", "n_samples", (1, 2, 4, 8)),
    Quantity("solver steps", "n_steps", (2, 4, 8, 16, 32)),
)
# Those by which a loop stores more for its derivative.
STORED_BY = ("rows", "n_samples", "n_steps")


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A form of the step, and the fields that grow in it."""

    columns: str
    is_rematerialised: bool
    fields: tuple[str, ...]

    @property
    def work(self) -> Work:
        return dataclasses.replace(find_work(f"wishart_{self.columns}"), **SIZES)


ALL = tuple(q.field for q in QUANTITIES)
CONFIGURATIONS = {
    "independent columns": Configuration("independent", False, ALL),
    "shared columns": Configuration("shared", False, ALL),
    "independent columns, rematerialised": Configuration("independent", True, STORED_BY),
}


# --- exponents -----------------------------------------------------------------------------------


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of log y over log x by least squares: p where y = c xᵖ."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def upper(values: Sequence[Any]) -> Sequence[Any]:
    """The upper half of values in rising order, the middle included; never fewer than two."""
    return values[(len(values) - 1) // 2 :]


def exponents(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """Over all values, and over the upper half."""
    return {"whole": exponent(x, y), "upper": exponent(upper(x), upper(y))}


# --- steps ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Point:
    """A compiled step: milliseconds(n) of one step, over n of them, and the bytes it needs at its peak, if known."""

    milliseconds: Callable[[int], float]
    n_bytes: int | None


def prepared(configuration: Configuration, work: Work) -> Point:
    """The step of the speed benchmark, compiled with the choice of the configuration."""
    choice = configuration.is_rematerialised
    with computing(), mock.patch.object(solver, "is_rematerialised", lambda n_bytes: choice):
        step, start = ours.training_step(work, ours.build(work, "full"))
        data = ours.batches(work)
        program = step.lower(start.vectors, start.state, data[0], jax.random.key(0)).compile()
        run = ours.runner(program, start, data, work.name)
    return Point(lambda n: 1e3 * seconds(run, n) / n, peak_bytes(program.memory_analysis()))


def peak_bytes(memory: Any) -> int:
    """What a program holds at its peak by the compiler's plan: arguments, results and everything between."""
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return int(held - memory.alias_size_in_bytes)  # results in the place of arguments count once


def prepared_chunk(work: Work, n_data: int) -> Point:
    """The library's own chunk, which picks its batches among `n_data` rows that it shuffles once."""
    with computing():
        model = ours.build(work, "full")
        data = ours.batches(dataclasses.replace(work, rows=n_data))[0]
        data = eqx.tree_at(lambda d: d.n_data, data, jnp.asarray(float(n_data)))
        steps = RowSteps(work.n_samples, work.dtype, False, "log", batch_size=work.rows)
        state = start_state(model, jax.random.key(0), steps)
        rates = Rates(*(jnp.full(CHUNK, value) for value in (LEARNING_RATE, 0.0, 1.0)))

    def run(n: int) -> None:
        with computing():
            jax.block_until_ready(train_chunk(state, data, rates, jnp.asarray(n), steps))

    def milliseconds(n: int) -> float:
        shuffling = seconds(run, 0)
        return 1e3 * ((seconds(run, n) - shuffling) / n + shuffling / STEPS_PER_CHUNK)

    return Point(milliseconds, None)


def seconds(run: Callable[[int], None], n: int) -> float:
    started = time.perf_counter()
    run(n)
    return time.perf_counter() - started


def point(configuration: Configuration, quantity: Quantity, value: int, base: Point) -> Point:
    """The base with one size changed, compiled and run once."""
    work = configuration.work
    if quantity.field == "n_data":
        made = prepared_chunk(work, value)
    elif value == quantity.base:
        made = base
    else:
        made = prepared(configuration, dataclasses.replace(work, **{quantity.field: value}))
    made.milliseconds(1)
    return made


# --- measurements --------------------------------------------------------------------------------


def in_turns(points: Sequence[Point], rounds: int, turn_s: float) -> list[list[float]]:
    """Milliseconds of every point in every round; a turn is as many steps as fill `turn_s`, one at least."""
    counts = [max(1, math.ceil(1e3 * turn_s / p.milliseconds(1))) for p in points]
    return [[p.milliseconds(n) for p, n in zip(points, counts, strict=True)] for _ in range(rounds)]


def measure(quantity: Quantity, bases: dict[str, Point], is_quick: bool) -> dict[str, dict[str, Any]]:
    """{configuration: what was found} for one quantity; the steps of all its configurations take turns."""
    values = quantity.chosen(is_quick)
    names = [name for name, c in CONFIGURATIONS.items() if quantity.field in c.fields]
    points = [point(CONFIGURATIONS[name], quantity, value, bases[name]) for name in names for value in values]
    rounds = in_turns(points, *((QUICK_ROUNDS, QUICK_TURN_S) if is_quick else (ROUNDS, TURN_S)))
    parts = [slice(i * len(values), (i + 1) * len(values)) for i in range(len(names))]
    return {
        name: described(CONFIGURATIONS[name], quantity, values, [times[part] for times in rounds], points[part])
        for name, part in zip(names, parts, strict=True)
    }


def described(
    configuration: Configuration,
    quantity: Quantity,
    values: Sequence[int],
    rounds: list[list[float]],
    points: Sequence[Point],
) -> dict[str, Any]:
    """Times, bytes and arithmetic by the values of a quantity, with their exponents."""
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]
    found = {"values": values, "median_ms": medians, "rounds_ms": rounds, "exponent": exponents(values, medians)}
    if quantity.field == "n_data":  # a step does not see how many rows there are
        return {**found, "arithmetic_exponent": {"whole": 0.0, "upper": 0.0}}
    counted = [operations(dataclasses.replace(configuration.work, **{quantity.field: value})) for value in values]
    n_bytes = [p.n_bytes for p in points]
    more = {"bytes": n_bytes, "bytes_exponent": exponents(values, n_bytes)}
    return {**found, **more, "arithmetic_exponent": exponents(values, counted)}


def measure_all(is_quick: bool) -> dict[str, dict[str, Any]]:
    """All quantities of all configurations, {configuration: {field: ...}}."""
    bases = {name: prepared(c, c.work) for name, c in CONFIGURATIONS.items()}
    found: dict[str, dict[str, Any]] = {name: {} for name in CONFIGURATIONS}
    for quantity in QUANTITIES:
        for name, part in measure(quantity, bases, is_quick).items():
            found[name][quantity.field] = part
            times = ", ".join(f"{v}: {ms:.1f}" for v, ms in zip(part["values"], part["median_ms"], strict=True))
            print(f"{quantity.label}; {name}; ms {times}; exponent {part['exponent']['upper']:.2f}", flush=True)
    return found


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="the result file; studies/results/growth.json if not given")
    parser.add_argument("--quick", action="store_true", help="two values of each size, written to .bench/trials")
    parser.add_argument("--figure", type=Path, nargs="?", const=FIGURE, help="draw the result file, measure nothing")
    options = parser.parse_args(arguments)
    options.output = options.output or paths.output("growth.json", options.quick)
    return options


def main() -> None:
    options = parse()
    if options.figure is not None:
        growth_figure.save(json.loads(options.output.read_text(encoding="utf-8")), options.figure)
        return
    started = time.perf_counter()
    labels = {q.field: q.label for q in QUANTITIES}
    result = {"labels": labels, "base": {**SIZES, "n_data": N_DATA}, "configurations": measure_all(options.quick)}
    result |= {"seconds": time.perf_counter() - started, "provenance": provenance()}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(options.output, result)


if __name__ == "__main__":
    main()
