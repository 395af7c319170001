"""How wide the blocks should be in which triangular factors are multiplied (`inducing.posteriors.block_width`).

    python -m studies.benchmarks.blocks            # writes studies/results/blocks.json

One process holds a compiled step for each width; they take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from wishflow.files.json import write_json_atomic
from wishflow.inducing import posteriors

from ..paths import RESULTS
from ..provenance import provenance
from .speed import ours
from .speed.worker import Prepared
from .speed.works import find_work

WORKS = ("svgp32", "diffgp", "wishart_shared", "wishart_independent", "transition")
WIDTHS = (100, 52, 34, 28, 25, 20, 16, 10)
ROUNDS, SECONDS = 5, 0.5


def prepared(work: str, width: int) -> Prepared:
    """The step of a work, compiled with blocks of that width."""
    with mock.patch.object(posteriors, "block_width", lambda *_: width):
        step = ours.prepare(find_work(work), None, "full")
        step.run(1)
    return step


def milliseconds(step: Prepared, n: int) -> float:
    started = time.perf_counter()
    step.run(n)
    return 1e3 * (time.perf_counter() - started) / n


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", nargs="+", default=WORKS)
    parser.add_argument("--output", type=Path, default=RESULTS / "blocks.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    medians = {}
    for work in options.works:
        steps = {width: prepared(work, width) for width in WIDTHS}
        n = max(1, round(1e3 * SECONDS / milliseconds(steps[WIDTHS[0]], 1)))
        rounds = [{width: milliseconds(step, n) for width, step in steps.items()} for _ in range(ROUNDS)]
        medians[work] = {str(width): statistics.median(r[width] for r in rounds) for width in WIDTHS}
        print(work, {width: round(ms, 1) for width, ms in medians[work].items()}, flush=True)
    write_json_atomic(options.output, {"median_ms": medians, "provenance": provenance()})


if __name__ == "__main__":
    main()
