"""What a compiled program says of itself: kernels, bytes and turns of loops of one step, from its optimised text.

XLA's own count (`cost_analysis`) takes the body of a loop once, whatever the number of its turns. Here each instruction
that is a kernel reads its operands and writes its result, a slice of an array is as long as the slice, and a loop whose
number of turns is known counts as often as it turns. Caches are not known: bytes that never leave the chip count too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from typing import Any

INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][\w\-]*)\((.*)$")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$")
SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f64": 8, "s64": 8, "u64": 8, "c64": 8}
FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "opt-barrier", "partition-id"}
SLICES = ("dynamic-slice", "slice", "gather")


@dataclasses.dataclass(frozen=True)
class Cost:
    """Kernels that are started, bytes that they read and write, turns of loops inside."""

    kernels: int = 0
    bytes: int = 0
    turns: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.kernels + other.kernels, self.bytes + other.bytes, self.turns + other.turns)

    def times(self, n: int) -> Cost:
        return Cost(n * self.kernels, n * self.bytes, n * self.turns)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation; `inside` is what stands in its brackets: names of others in it, or a number."""

    name: str
    shape: str
    opcode: str
    inside: str
    rest: str
    is_root: bool

    @functools.cached_property
    def operands(self) -> tuple[str, ...]:
        return tuple(re.findall(r"%([\w.\-]+)", self.inside))

    def called(self, key: str) -> str | None:
        """The computation that `key` names, as in `body=%region_1`."""
        found = re.search(rf"\b{key}=%?([\w.\-]+)", self.rest)
        return found.group(1) if found else None

    @property
    def turns(self) -> int | None:
        """How often a loop turns, where that is known."""
        found = TURNS.search(self.rest)
        return int(found.group(1)) if found else None


def shape_bytes(shape: str) -> int:
    """Bytes of an array, or of all arrays of a tuple."""
    parts = SHAPE.findall(shape)
    return sum(SIZES.get(kind, 4) * math.prod(int(n) for n in sizes.split(",") if n) for kind, sizes in parts)


def parse(text: str) -> tuple[dict[str, list[Instruction]], str | None]:
    """The computations of a program by name, and the name of the one it begins with."""
    computations: dict[str, list[Instruction]] = {}
    entry = name = None
    for line in text.splitlines():
        head = COMPUTATION.match(line)
        if head:
            name = head.group(2)
            computations[name] = []
            entry = name if head.group(1) else entry
        elif name is not None and (found := INSTRUCTION.match(line)):
            computations[name].append(_instruction(found))
    return computations, entry


def _instruction(found: re.Match) -> Instruction:
    root, name, shape, opcode, after = found.groups()
    inside, _, rest = after.partition(")")
    return Instruction(name, shape, opcode, inside, rest, bool(root))


class Program:
    """Costs of the computations of a program."""

    def __init__(self, text: str) -> None:
        self.computations, self.entry = parse(text)
        self.of = functools.cache(self._of)

    def step(self) -> Cost | None:
        """The dearest loop whose number of turns is not known: the steps. The whole program where there is none."""
        if self.entry is None:
            return None
        loops = [i for i in self.computations[self.entry] if i.opcode == "while" and i.turns is None]
        costs = [self.of(body) for loop in loops if (body := loop.called("body"))]
        return max(costs, key=lambda cost: cost.bytes) if costs else self.of(self.entry)

    def _of(self, name: str) -> Cost:
        by_name = {i.name: i for i in self.computations.get(name, [])}
        return sum((self._cost(i, by_name) for i in by_name.values()), Cost())

    def _cost(self, it: Instruction, by_name: dict[str, Instruction]) -> Cost:
        if it.opcode in FREE or it.opcode.endswith("-done"):
            return Cost()
        if it.opcode == "while":
            n = it.turns or 1
            return self.of(it.called("body") or "").times(n) + Cost(turns=n)
        if it.opcode in ("call", "async-start"):
            return self.of(it.called("to_apply") or it.called("calls") or "")
        if it.opcode == "conditional":
            names = re.findall(r"%([\w.\-]+)", it.rest.partition("branch_computations={")[2].partition("}")[0])
            names += [name for key in ("true_computation", "false_computation") if (name := it.called(key))]
            return max((self.of(name) for name in names), key=lambda cost: cost.bytes, default=Cost())
        return Cost(1, self._traffic(it, by_name))

    def _traffic(self, it: Instruction, by_name: dict[str, Instruction]) -> int:
        """Bytes that one kernel reads and writes."""
        operands = [by_name[name].shape if name in by_name else "" for name in it.operands]
        if it.opcode == "fusion":
            inner = self.computations.get(it.called("calls") or "", [])
            return _fusion_reads(inner, operands) + _fusion_writes(inner, it.shape)
        if it.opcode in SLICES:
            return 2 * shape_bytes(it.shape)
        if it.opcode == "dynamic-update-slice":
            return 2 * shape_bytes(operands[1])
        # Bytes of no type are the scratch memory of a library; it is not read from start to end.
        written = re.sub(r"s8\[\d+\]", "", it.shape) if it.opcode == "custom-call" else it.shape
        return sum(map(shape_bytes, operands)) + shape_bytes(written)


def _users(inner: list[Instruction], name: str) -> list[tuple[Instruction, str]]:
    """Who uses a value inside a fusion, and by what name: through bitcasts, which are no work."""
    found = []
    for it in inner:
        if name in it.operands:
            found += _users(inner, it.name) if it.opcode == "bitcast" else [(it, name)]
    return found


def _fusion_reads(inner: list[Instruction], operands: list[str]) -> int:
    parameters = {int(it.inside): it.name for it in inner if it.opcode == "parameter"}
    return sum(_read(inner, parameters[i], shape) for i, shape in enumerate(operands) if i in parameters)


def _read(inner: list[Instruction], name: str, shape: str) -> int:
    """What a fusion reads of an operand: all of it, unless every user takes a slice or writes into it in place."""
    users = _users(inner, name)
    if not users:
        return 0
    parts = []
    for user, by in users:
        if user.opcode in SLICES and user.operands[0] == by:
            parts.append(shape_bytes(user.shape))
        elif user.opcode == "dynamic-update-slice" and user.operands[0] == by:
            parts.append(0)
        else:
            return shape_bytes(shape)
    return min(sum(parts), shape_bytes(shape))


def _fusion_writes(inner: list[Instruction], shape: str) -> int:
    """What a fusion writes: its result, or the slice alone where it updates an array in place."""
    by_name = {it.name: it for it in inner}
    root = next((it for it in inner if it.is_root), None)
    if root is None:
        return shape_bytes(shape)
    roots = [by_name[name] for name in root.operands if name in by_name] if root.opcode == "tuple" else [root]
    return sum(_written(it, by_name) for it in roots)


def _written(it: Instruction, by_name: dict[str, Instruction]) -> int:
    while it.opcode == "bitcast" and it.operands and it.operands[0] in by_name:
        it = by_name[it.operands[0]]
    if it.opcode == "dynamic-update-slice" and it.operands[1] in by_name:
        return shape_bytes(by_name[it.operands[1]].shape)
    return shape_bytes(it.shape)


def described(compiled: Any) -> dict[str, Any]:
    """Kernels, bytes and turns of one step of a compiled program, XLA's own counts, and the memory it needs."""
    cost = Program(compiled.as_text()).step()
    own = compiled.cost_analysis() or {}
    own = own[0] if isinstance(own, list) else own
    memory = compiled.memory_analysis()
    names = ("temp_size_in_bytes", "argument_size_in_bytes", "output_size_in_bytes")
    return {
        "kernels": None if cost is None else cost.kernels,
        "bytes": None if cost is None else cost.bytes,
        "loop_turns": None if cost is None else cost.turns,
        "xla_bytes": own.get("bytes accessed"),
        "xla_flops": own.get("flops"),
        "program_mb": None if memory is None else sum(getattr(memory, name, 0) for name in names) / 1e6,
    }
