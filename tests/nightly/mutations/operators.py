"""Random faults in the operators and constants of the sources, drawn by a seed.

An edit is a comparison that has another sign, + for −, a constant that is one more or less, `and` for `or`, a dropped
`not`, or swapped values of a `where`; each kind is as likely as the others. What only says something is left out:
errors, formatted text, annotations, and the modules in `LEFT_OUT`.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

LEFT_OUT = ("wishflow/plotting/", "wishflow/report/", "wishflow/cli/")
COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}


@dataclasses.dataclass(frozen=True)
class Edit:
    """Bytes of a file, from `start` to before `end`, that become others."""

    file: str
    kind: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def apply(self, source: Path) -> None:
        path = source / self.file
        data = path.read_bytes()
        path.write_bytes(data[: self.start] + self.after.encode() + data[self.end :])

    def describe(self) -> str:
        return f"line {self.line}: {' '.join(self.before.split())} → {self.after}"


def drawn(source: Path, n: int, seed: int) -> list[Edit]:
    """n edits of the package below `source`; the same ones for the same sources and seed."""
    by_kind: dict[str, list[Edit]] = {}
    for path in sorted(source.glob("wishflow/**/*.py"), key=lambda path: path.relative_to(source).as_posix()):
        for edit in edits_of(path, path.relative_to(source).as_posix()):
            by_kind.setdefault(edit.kind, []).append(edit)
    draw, found = random.Random(seed), []
    while len(found) < n and by_kind:
        kind = draw.choice(sorted(by_kind))
        edits = by_kind[kind]
        found.append(edits.pop(draw.randrange(len(edits))))
        by_kind = by_kind if edits else {key: rest for key, rest in by_kind.items() if key != kind}
    return found


def edits_of(path: Path, file: str) -> Iterator[Edit]:
    """All edits of a file, in the order of its text."""
    if file.startswith(LEFT_OUT):
        return
    data = path.read_bytes()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in nodes(ast.parse(data)):
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        for changed in changes(node):
            yield Edit(
                file,
                type(node).__name__,
                node.lineno,
                start,
                end,
                data[start:end].decode(),
                f"({ast.unparse(changed)})",
            )


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Expressions that do something, from the outside to the inside."""
    if isinstance(node, ast.Raise | ast.JoinedStr):
        return
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from nodes(child)


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What an expression may become."""
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in COMPARISONS[type(op)]:
                yield _with(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node):
        yield _with(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        others = (node.value + step for step in (1, -1))
        yield from (_with(node, value=other) for other in others if other != node.value)
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "where" and len(node.args) == 3:
        yield _with(node, args=[node.args[0], node.args[2], node.args[1]])


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _is_text(node: ast.BinOp) -> bool:
    """Whether text is put together."""
    parts = (part for side in (node.left, node.right) for part in ast.walk(side))
    return any(isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str) for part in parts)
