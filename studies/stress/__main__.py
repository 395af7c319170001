"""Kills, hostile files and odd inputs in large numbers; what is found goes to studies/results/stress.json.

    python -m studies.stress                            # all parts, to their full counts; goes on where it ended
    python -m studies.stress --only files --minutes 20  # one part, for some time
    python -m studies.stress --only files --again       # the tasks that had problems, after a fix

Each part has numbered tasks: a kill, a full disk, a block of inputs, a mutated file. `--count` says how many there are
to be in all.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..paths import ROOT, output
from .ledger import Found, Ledger
from .workers import Program, run_tasks

FOLDER = ROOT / ".bench" / "stress"
# Tasks of each part, the most seconds of one, and the tasks of one process: most of its first ones goes into programs.
PARTS = {
    "kills": (50, 900.0, 1000),
    "disks": (10, 900.0, 1000),
    "inputs": (120, 900.0, 120),
    "files": (100_000, 120.0, 10_000),
    "checkpoints": (1000, 600.0, 500),
    "results": (5000, 60.0, 5000),
}


def run_part(
    part: str, numbers: Iterable[int], deadline: float, folder: Path = FOLDER, is_sample: bool = False
) -> Iterator[Found]:
    """What the tasks of a part find."""
    _, seconds, n_tasks = PARTS[part]
    return run_tasks(Program(part, folder / part, seconds, n_tasks, is_sample), numbers, deadline)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    parser.add_argument("--count", type=int, help="tasks of each part in all; by default the full number")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="for each part")
    parser.add_argument("--again", action="store_true", help="do the tasks again that had problems")
    parser.add_argument("--output", type=Path, default=output("stress.json"))
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    if wrong := [part for part in options.only if part not in PARTS]:
        parser.error(f"{wrong[0]!r} is no part; expected some of {', '.join(PARTS)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    for part in options.only:
        ledger = Ledger(options.output, part)
        wanted = PARTS[part][0] if options.count is None else options.count
        again = sorted({one["number"] for one in ledger.problems})
        numbers: Iterable[int] = again if options.again else range(ledger.n_tasks, wanted)
        deadline = time.monotonic() + 60.0 * options.minutes
        try:
            for found in run_part(part, numbers, deadline):
                (ledger.replace if options.again else ledger.add)(found)
                for what in found.problems:
                    print(f"{part} {found.number}: {what}", flush=True)
        finally:
            ledger.save()
        print(f"{part}: {ledger.n_tasks} of {wanted} tasks, {ledger.n_cases} cases, {len(ledger.problems)} problems")
    return int(any(Ledger(options.output, part).problems for part in options.only))


if __name__ == "__main__":
    sys.exit(main())
