"""Which faults a suite of tests finds: `python -m tests.nightly.mutations.run --suite "tests/unit tests/contract"`.

Each fault is put into a copy of `src` in a temporary folder, and the suite runs on that copy until its first failure;
the checkout is not touched. Results are written after each fault, and a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import operators

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TESTS, SOURCE = ROOT / "tests", ROOT / "src"
FOUND, SURVIVED, TIMEOUT, STALE, NO_TESTS, BROKEN = "found", "survived", "timeout", "stale", "no tests", "error"


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A fault: its name, what it changes, and the change, a patch or a replaced stretch of a file."""

    name: str
    files: tuple[str, ...]
    said: str
    change: Path | operators.Edit

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in self.files)

    def apply(self, folder: Path) -> bool:
        """Put the fault into a copy of the sources, `folder/src`; False where it does not fit them."""
        if isinstance(self.change, operators.Edit):
            self.change.apply(folder / "src")
            return True
        alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}  # a patch outside of any repository
        command = ["git", "apply", str(self.change)]
        return subprocess.run(command, cwd=folder, env=alone, capture_output=True).returncode == 0


def patches(only: str | None) -> list[Mutant]:
    """The faults of this folder, or those whose numbers are given."""
    found = []
    for path in sorted(HERE.glob("[0-9][0-9]-*.patch")):
        files = re.findall(r"^\+\+\+ b/src/(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        found.append(Mutant(path.stem, tuple(files), path.stem[3:].replace("-", " "), path))
    wanted = {mutant.name[:2] for mutant in found} if only is None else {n.strip().zfill(2) for n in only.split(",")}
    return [mutant for mutant in found if mutant.name[:2] in wanted]


def drawn(n: int, seed: int) -> list[Mutant]:
    """Random operator mutations; the same ones for the same sources and seed."""
    edits = operators.drawn(SOURCE, n, seed)
    return [Mutant(f"s{seed}-{k:03d}", (edit.file,), edit.describe(), edit) for k, edit in enumerate(edits, 1)]


# --- the tests that import a module ---------------------------------------------------------------


def homes(module: str, name: str) -> set[str]:
    """The modules of the library behind `from module import name`."""
    path = SOURCE.joinpath(*module.split("."), f"{name}.py")
    if path.exists() or (path.parent / name / "__init__.py").exists():
        return {f"{module}.{name}"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return {module}
    home = getattr(value, "__module__", None)
    return {home if isinstance(home, str) and home.startswith("wishflow") else module}


def imported(path: Path, seen: frozenset[Path] = frozenset()) -> set[str]:
    """The modules of the library that a test names, by itself and by the helpers that lie beside it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found, aliases = set(), {}
    for node in ast.walk(tree):
        names = [(alias.name, alias) for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [(f"{node.module}.{alias.name}", alias) for alias in node.names]
        for name, alias in names:
            if name.split(".")[0] == "wishflow":
                is_module = isinstance(node, ast.Import)
                found |= {name} if is_module else homes(*name.rsplit(".", 1))
                plain = name.split(".")[0] if is_module else alias.name
                aliases[alias.asname or plain] = name if alias.asname or not is_module else plain
            helper = TESTS / f"{name.removeprefix('tests.').split('.')[0]}.py"
            if helper.exists() and helper not in seen | {path}:
                found |= imported(helper, seen | {path})
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            found |= homes(aliases[node.value.id], node.attr)
    return found


def importing(mutant: Mutant, table: dict[str, set[str]]) -> list[str]:
    """The files of tests that import a module that the mutant changes."""
    return [file for file, modules in table.items() if modules & set(mutant.modules)]


# --- runs -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """A temporary folder with a copy of `src`."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        shutil.copytree(SOURCE, Path(folder) / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        yield Path(folder)


def environment(folder: Path) -> dict[str, str]:
    paths = [str(folder / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONDONTWRITEBYTECODE": "1"}


def tested(folder: Path, arguments: list[str], limit: float) -> dict[str, Any]:
    """How the suite ends on a copy, the first test that failed, and the seconds it took."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-rfE", *arguments]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(folder), stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:  # too late, or Ctrl-C: its workers too
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        text = output.read()
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+(?: \S+)*?)(?: - .*)?$", text, re.MULTILINE)
    result = {0: SURVIVED, 1: FOUND, 5: NO_TESTS, None: TIMEOUT}.get(code, FOUND if failed else BROKEN)
    said = {"tail": text[-2000:]} if result == BROKEN else {}
    return {
        "result": result,
        "by": failed[0] if failed else None,
        "seconds": round(time.monotonic() - began, 1),
        **said,
    }


def one(mutant: Mutant, arguments: list[str] | None, limit: float) -> dict[str, Any]:
    """What the suite says of a mutant; None for no arguments: no test imports the module."""
    about = {"modules": list(mutant.modules), "said": mutant.said}
    if arguments is None:
        return {**about, "result": NO_TESTS, "by": None, "seconds": 0.0}
    with copied() as folder:
        if not mutant.apply(folder):
            return {**about, "result": STALE, "by": None, "seconds": 0.0}
        return {**about, **tested(folder, arguments, limit)}


def check_baseline(arguments: list[str], limit: float) -> dict[str, Any]:
    """The suite on a copy without a fault, which must pass."""
    with copied() as folder:
        command = [sys.executable, "-c", "import wishflow; print(wishflow.__file__)"]
        where = subprocess.run(command, cwd=ROOT, env=environment(folder), capture_output=True, text=True, check=True)
        if not Path(where.stdout.strip()).is_relative_to(folder):
            raise SystemExit(f"the package comes from {where.stdout.strip()}, not from the copy: see PYTHONPATH.")
        found = tested(folder, arguments, limit)
    if found["result"] != SURVIVED:
        raise SystemExit(
            f"the suite does not pass without a fault: {found['result']}, {found['by'] or found.get('tail')}"
        )
    return {"seconds": found["seconds"]}


def table(results: dict[str, dict[str, Any]]) -> str:
    """One line for each mutant, and how many there are of each result."""
    lines = [
        f"{name:44} {found['result']:9} {found['seconds']:7.1f} s  {','.join(found['modules'])}  {found['by'] or ''}"
        for name, found in sorted(results.items())
    ]
    counts = Counter(found["result"] for found in results.values())
    return "\n".join([*lines, ", ".join(f"{counts[key]} {key}" for key in counts) + f", of {len(results)}"])


def opened(path: Path | None, suite: str) -> dict[str, Any]:
    """The results of an earlier run of the same suite, or none."""
    if path is None or not path.exists():
        return {"suite": suite, "baseline": None, "results": {}}
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["suite"] != suite:
        raise SystemExit(f"{path} holds results of the suite {kept['suite']!r}; give another --output.")
    return kept


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="", help="arguments of pytest: files, -m, -n, …")
    parser.add_argument("--only", help="numbers of patches, such as 03,17")
    parser.add_argument("--random", type=int, metavar="N", help="N operator mutations instead of the patches")
    parser.add_argument("--seed", type=int, default=0, help="of the operator mutations")
    parser.add_argument("--importing", action="store_true", help="run the test files that import the changed module")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for each run of the suite")
    parser.add_argument(
        "--output", type=Path, metavar="FILE.json", help="results; a run goes on with those that it has"
    )
    parser.add_argument("--list", action="store_true", help="show the mutants (and their tests), and run nothing")
    return parser.parse_args()


def main() -> None:
    asked = options()
    mutants = patches(asked.only) if asked.random is None else drawn(asked.random, asked.seed)
    base = shlex.split(asked.suite)
    tests = {}
    if asked.importing:
        tests = {str(path.relative_to(ROOT)): imported(path) for path in sorted(TESTS.rglob("test_*.py"))}
    files = {mutant.name: importing(mutant, tests) for mutant in mutants}
    if asked.list:
        print("\n".join(f"{m.name}  {','.join(m.modules)}  {m.said}  {' '.join(files[m.name])}" for m in mutants))
        return
    kept = opened(asked.output, asked.suite + (" (importing)" if asked.importing else ""))
    everything = sorted(set().union(*files.values())) if asked.importing else []
    if kept["baseline"] is None and (everything or not asked.importing):
        kept["baseline"] = check_baseline([*base, *everything], max(asked.limit, 60.0 * len(everything)))
        print(f"without a fault the suite passes in {kept['baseline']['seconds']} s", flush=True)
    for mutant in mutants:
        if mutant.name not in kept["results"]:
            arguments = None if asked.importing and not files[mutant.name] else [*base, *files[mutant.name]]
            found = kept["results"][mutant.name] = one(mutant, arguments, asked.limit)
            print(f"{mutant.name}: {found['result']} {found['by'] or ''}", flush=True)
        if asked.output is not None:
            asked.output.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(table(kept["results"]))


if __name__ == "__main__":
    main()
