"""Counts of the package's structure: `python -m tests.structure` prints them.

A *room* is a top-level module or folder of the package; *floors* are the longest chain of imports between rooms; an
*arrow* is one room importing another. Imports inside functions and for type checkers count as any other.
"""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "wishflow"
ROOT = "wishflow"
# The package's own front, which names what the rooms offer.
FRONT = ("__init__", "__main__")
Graph = dict[str, set[str]]


def dotted_name(path: Path, package: Path = PACKAGE) -> str:
    """The name of a module below the package: "wishart.gp", "wishart" for its folder, "" for the root."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def nodes_of(path: Path, at_import: bool = False) -> Iterator[ast.AST]:
    """All nodes of a file; with `at_import` those that run when it is imported, so none inside functions."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        yield node
        if not (at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            pending.extend(ast.iter_child_nodes(node))


def imported_names(path: Path, package: Path = PACKAGE, at_import: bool = False) -> Iterator[str]:
    """Absolute dotted names of what a file imports.

    `from .. import files` inside `training.loop` gives "wishflow.files"; `from ..files import read` gives
    "wishflow.files.read".
    """
    folder = [ROOT, *path.relative_to(package).parts[:-1]]
    for node in nodes_of(path, at_import):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            start = ".".join([*base, node.module] if node.module else base)
            yield from (f"{start}.{alias.name}" for alias in node.names)


def modules_of(package: Path = PACKAGE) -> dict[str, Path]:
    """The files of the package by their names below it."""
    return {dotted_name(path, package): path for path in sorted(package.rglob("*.py"))}


def file_graph(package: Path = PACKAGE) -> Graph:
    """Which file imports which; a name of a folder's `__init__` is an import of that file."""
    modules = modules_of(package)
    graph: Graph = {name: set() for name in modules}
    for name, path in modules.items():
        for imported in imported_names(path, package):
            top, _, rest = imported.partition(".")
            if top != ROOT:
                continue
            while rest and rest not in modules:
                rest = rest.rpartition(".")[0]
            if rest != name:
                graph[name].add(rest)
    return graph


def at_depth(graph: Graph, depth: int) -> Graph:
    """The graph of modules and folders down to a depth: at 1 that of the rooms."""

    def short(name: str) -> str:
        return ".".join(name.split(".")[:depth])

    found: Graph = {short(name): set() for name in graph}
    for name, imported in graph.items():
        found[short(name)] |= {short(other) for other in imported} - {short(name)}
    return found


def room_graph(graph: Graph) -> Graph:
    rooms = {name: imported - {""} for name, imported in at_depth(graph, 1).items() if name not in ("", *FRONT)}
    return {name: imported & set(rooms) for name, imported in rooms.items()}


def loops(graph: Graph) -> list[set[str]]:
    """Sets of modules that import each other, directly or by way of others (Tarjan's components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            part = set(stack[stack.index(name) :])
            del stack[stack.index(name) :]
            if len(part) > 1:
                found.append(part)

    for name in graph:
        if name not in index:
            visit(name)
    return found


def all_loops(graph: Graph) -> list[set[str]]:
    """Loops among files, and among folders at every depth; the root names all and is no part of them."""
    below = {name: imported - {""} for name, imported in graph.items() if name not in ("", *FRONT)}
    depth = max(name.count(".") for name in below) + 1
    return [part for d in range(1, depth + 1) for part in loops(at_depth(below, d))]


def floors(rooms: Graph) -> int:
    """The number of rooms in the longest chain of imports."""
    known: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in known:
            known[name] = 1 + max((height(other) for other in rooms[name]), default=0)
        return known[name]

    return max(height(name) for name in rooms)


def lines_of(node: ast.AST) -> int:
    """How many lines a node has in all."""
    return node.end_lineno - node.lineno + 1  # type: ignore[attr-defined]


def docstring_lines(node: ast.AST) -> int:
    """How many lines the docstrings inside a node have, its own included."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [inner for inner in ast.walk(node) if isinstance(inner, documented)]
    return sum(lines_of(inner.body[0]) for inner in found if ast.get_docstring(inner) is not None)


def function_lengths(package: Path = PACKAGE) -> list[int]:
    """Lines of each function without its docstring."""
    return [
        lines_of(node) - docstring_lines(node)
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]


def file_lengths(package: Path = PACKAGE) -> list[int]:
    """Lines of each file without docstrings, which are no code."""
    texts = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    return [len(text.splitlines()) - docstring_lines(ast.parse(text)) for text in texts]


def counts(package: Path = PACKAGE) -> dict[str, float]:
    graph = file_graph(package)
    rooms = room_graph(graph)
    lengths = file_lengths(package)
    functions = function_lengths(package)
    return {
        "rooms": len(rooms),
        "floors": floors(rooms) if not loops(rooms) else float("nan"),
        "arrows": sum(map(len, rooms.values())),
        "loops": len(all_loops(graph)),
        "files": len(lengths),
        "median file": statistics.median(lengths),
        "longest file": max(lengths),
        "median function": statistics.median(functions),
        "longest function": max(functions),
    }


if __name__ == "__main__":
    for name, value in counts().items():
        print(f"{name:18}{value:g}")
