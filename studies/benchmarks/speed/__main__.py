"""How fast a training step is, beside the libraries a user would take instead.

    make bench                                                # all works, all peers: studies/results/speed.json
    python -m studies.benchmarks.speed --works rollout        # replaces the rows of this work in that file
    python -m studies.benchmarks.speed --peers gpflow         # fewer peers: a trial, written to .bench/trials
    python -m studies.benchmarks.speed --quick                # two rounds of two steps: a trial too

Each peer gets an environment of its own in .bench/, made from its pinned versions where it is missing. All contenders
of a work are running processes that take turns, a few steps each. Fractions are of the best matrix product of this run.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import subprocess
import sys
from pathlib import Path

from wishflow.files.json import read_json, write_json_atomic

from ... import paths
from ...provenance import provenance
from . import environments, record, table
from .contenders import PEER_NAMES, Contender, contenders_of
from .driver import Measurement, Worker, measure
from .works import WORKS, Work, find_work

LIMIT_MODULE = f"{__package__}.limit"
ROUNDS, QUICK_ROUNDS, QUICK_STEPS = 15, 2, 2


def matrix_product_limits() -> dict[str, float]:
    """GFLOP/s by dtype, measured in a process of its own."""
    command = [sys.executable, "-m", LIMIT_MODULE]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=environments.ROOT).stdout
    return json.loads(output.splitlines()[-1])


@functools.cache
def environment_of(name: str) -> str | environments.NotInstalled:
    """The Python of a peer; a failure is kept, so that it is not tried again for the next work."""
    print(f"environment of {name} …", file=sys.stderr, flush=True)
    try:
        return str(environments.ensure(name))
    except environments.NotInstalled as error:
        return environments.NotInstalled(f"could not be installed: {error}")


def start(contender: Contender) -> Worker:
    """A worker of the contender, in its own environment."""
    python = sys.executable if contender.environment is None else environment_of(contender.environment)
    if isinstance(python, environments.NotInstalled):
        raise python
    return Worker([python, "-m", contender.module, *contender.arguments], environments.ROOT)


def measure_work(work: Work, options: argparse.Namespace) -> list[Measurement]:
    noise = environments.FOLDER / "noise" / f"{work.name}.npz"
    noise.parent.mkdir(parents=True, exist_ok=True)
    noise.unlink(missing_ok=True)  # a peer must never follow the noise of an older run
    return measure(work, contenders_of(work, tuple(options.peers)), start, options.rounds, options.steps, noise)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    names, peers = [work.name for work in WORKS], list(PEER_NAMES)
    parser = argparse.ArgumentParser(
        "python -m studies.benchmarks.speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--works", nargs="+", choices=names, default=names, metavar="WORK", help=", ".join(names))
    parser.add_argument("--peers", nargs="*", choices=peers, default=peers, metavar="PEER", help=", ".join(peers))
    parser.add_argument("--rounds", type=int, help=f"turns of each contender (default {ROUNDS})")
    parser.add_argument("--steps", type=int, help="steps in a turn (default: about half a second of ours)")
    parser.add_argument("--quick", action="store_true", help="two rounds of two steps: does everything run?")
    parser.add_argument("--output", type=Path, help="the result file; studies/results/speed.json if not given")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.steps = options.steps or (QUICK_STEPS if options.quick else None)
    is_trial = options.quick or set(options.peers) != set(peers)  # the best peer may be missing
    options.output = options.output or paths.output("speed.json", is_trial)
    return options


def main() -> int:
    options = parse()
    works = [find_work(name) for name in options.works]
    before = matrix_product_limits()
    measured: dict[str, list[Measurement]] = {}
    for work in works:
        measured[work.name] = measure_work(work, options)
        print(table.format_work(work, table.rows_of(work, measured[work.name], before), before), "\n", flush=True)
    after = matrix_product_limits()
    limits = {dtype: max(before[dtype], after[dtype]) for dtype in before}
    rows = {work.name: table.rows_of(work, measured[work.name], limits) for work in works}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    new = record.one_run(
        rows=[dataclasses.asdict(row) for lines in rows.values() for row in lines],
        measurements=[dataclasses.asdict(m) for ms in measured.values() for m in ms],
        limits={"before": before, "after": after},
        provenance=provenance(),
    )
    write_json_atomic(options.output, record.merged(read_json(options.output), new))
    print("matrix-product limit:", ", ".join(f"{d} {v:.0f} GFLOP/s" for d, v in limits.items()))
    has_failed = any(row.status != "ok" for lines in rows.values() for row in lines if row.contender in table.FORMS)
    return int(has_failed or any(table.unequal(work, rows[work.name]) for work in works))


if __name__ == "__main__":
    sys.exit(main())
