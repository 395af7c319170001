"""The paper's own settings, trained to their end: 50,000 iterations, six paths, 20 steps, in as many pieces as needed.

    python -m studies.benchmarks.paper_settings --data boston,concrete --model nonoise,diffgp,diffwgp5,diffwgp10 \\
        --splits 5 --checkpoints FOLDER --minutes 9       # writes studies/results/paper_settings.json

Splits are those of `studies.uci`; on an accelerator those of a cell train in one program. Training writes checkpoints.
After `--minutes` (or SIGTERM) it writes one more and ends; the same command goes on from there, bit by bit as if it had
not ended. The checkpoints of a cell are removed when its scores are written. The exit code is 3 where cells are left.
Several commands may write to one file, such as one for five splits of concrete and one for two of kin8nm.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wishflow.callbacks import Callback, ChunkEvent
from wishflow.files.json import plain, read_json, write_json_atomic
from wishflow.training.specs import TrainingSpec

from ..command import suite_errors
from ..paths import RESULTS, ROOT
from ..processes import lost_process_text, pool, side_by_side
from ..progress import error_text
from ..provenance import command, provenance
from ..selection import chosen
from ..uci.reproduce import load
from ..uci.suite import DATA, MODELS, Cell, cells
from ..uci.training import run_splits, split_rows

PRESET = "paper"
OUTPUT = RESULTS / "paper_settings.json"
CHECKPOINTS = ROOT / ".bench" / "checkpoints"
# Beside the checkpoints of a cell: the seconds of the pieces before this one.
PIECES = "pieces.json"
UNFINISHED = 3


class Deadline(Callback):
    """Asks its own process to end at the first chunk after a moment (seconds since 1970); None: never.

    During a fit with checkpoints SIGTERM writes the state first.
    """

    def __init__(self, ends_at: float | None, name: str) -> None:
        self.ends_at, self.name = ends_at, name
        self.told = time.monotonic()

    def on_chunk(self, event: ChunkEvent) -> None:
        if event.model_index == 0 and time.monotonic() - self.told > 60.0:
            self.told = time.monotonic()
            print(f"{self.name}: {event.phase}, {event.step} of {event.n_steps} iterations", flush=True)
        if self.ends_at is not None and time.time() >= self.ends_at:
            os.kill(os.getpid(), signal.SIGTERM)


def key_of(cell: Cell) -> str:
    """The name of a cell in the result file."""
    return f"{cell.data}, {cell.model}"


def piece(cell: Cell, checkpoints: Path, ends_at: float | None, typed: str) -> dict[str, Any] | str | None:
    """Train a cell until its end or that of the time: its result, None where it was stopped, text after an error."""
    own = checkpoints / f"{cell.data}-{cell.model}"
    before, started = read_json(own / PIECES) or [], time.perf_counter()
    warnings.simplefilter("ignore", RuntimeWarning)  # flows that diverge are named by their status
    try:
        result = result_of(cell, own, Deadline(ends_at, key_of(cell)))
    except SystemExit:
        write_json_atomic(own / PIECES, [*before, time.perf_counter() - started])
        return None
    except Exception as error:  # the other cells go on
        return error_text(error)
    seconds = {"fit_seconds": result["fit_seconds"] + sum(before), "pieces": len(before) + 1}
    return {**result, **seconds, "provenance": {**provenance(), "command": typed}}


def result_of(cell: Cell, checkpoints: Path, callback: Callback) -> dict[str, Any]:
    """Scores of a cell on its test parts, and the settings it was made with."""
    data = load(cell.data)
    rows = [split_rows(len(data.X), index) for index in range(cell.n_splits)]
    make = MODELS[cell.model].make

    def estimator() -> Any:
        return make(preset=PRESET, checkpoint_dir=checkpoints)

    found = run_splits(estimator, data.X, data.y, rows, callbacks=callback)
    return {"data": cell.data, "model": cell.model, "scored": "test", "settings": settings_of(cell), **found}


def settings_of(cell: Cell) -> dict[str, Any]:
    """What a result must have been made with."""
    return plain(cell.settings(*load(cell.data).X.shape))


def is_made_with(found: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether settings of a result are these.

    Of a part of the rule that was added since, it had the default. An option that was added since counts as equal: what
    options decide is in the rule.
    """
    if not found:
        return False
    defaults = {field.name: field.default for field in dataclasses.fields(TrainingSpec)}
    rule = {**{name: defaults.get(name) for name in settings["rule"]}, **found["rule"]}
    return {**found, "options": {**settings["options"], **found["options"]}, "rule": rule} == settings


def run_all(
    pending: Sequence[Cell], checkpoints: Path, ends_at: float | None, n_processes: int
) -> Iterator[tuple[Cell, dict[str, Any] | str | None]]:
    """Cells with what came out of this piece; with several processes in the order in which they end."""
    typed = command()
    if n_processes == 1:
        for cell in pending:
            yield cell, piece(cell, checkpoints, ends_at, typed)
            if ends_at is not None and time.time() >= ends_at:
                return
        return
    tasks = side_by_side(pool, n_processes, pending, piece, lambda cell: (cell, checkpoints, ends_at, typed))
    for cell, result in tasks:
        yield cell, lost_process_text(result) if isinstance(result, BaseException) else result


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="boston,concrete", help="data sets, with commas")
    parser.add_argument("--model", default=",".join(MODELS), help="models, with commas; all if none")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--checkpoints", type=Path, default=CHECKPOINTS, help="folder of the checkpoints")
    parser.add_argument("--minutes", type=float, default=None, help="stop after so many minutes; never if none")
    parser.add_argument("--processes", type=int, default=1, help="cells trained at once, each in its own process")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    ends_at = None if options.minutes is None else time.time() + 60.0 * options.minutes
    data, models = chosen("data", [options.data], DATA), chosen("model", [options.model], MODELS)
    asked = cells(data, models, PRESET, options.splits)
    results = read_json(options.output) or {}
    made = {key_of(cell): results.get(key_of(cell), {}).get("settings", {}) for cell in asked}
    left = [cell for cell in asked if not is_made_with(made[key_of(cell)], settings_of(cell))]
    for cell, result in run_all(left, options.checkpoints, ends_at, options.processes):
        if not isinstance(result, dict):
            print(f"{key_of(cell)}: {'goes on from its checkpoint' if result is None else result}", flush=True)
            continue
        # Another command may have written cells in the meantime.
        write_json_atomic(options.output, {**(read_json(options.output) or {}), key_of(cell): result})
        shutil.rmtree(options.checkpoints / f"{cell.data}-{cell.model}", ignore_errors=True)
        left = [other for other in left if other != cell]
        print(key_of(cell), {name: round(value, 4) for name, value in result["mean"].items()}, flush=True)
    size = sum(path.stat().st_size for path in options.checkpoints.rglob("*") if path.is_file()) / 2**20
    print(f"{len(left)} of {len(asked)} cells are left; their checkpoints take {size:.0f} MiB", flush=True)
    return UNFINISHED if left else 0


if __name__ == "__main__":
    with suite_errors():
        code = main()
    sys.exit(code)
