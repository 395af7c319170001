"""`wishflow reproduce uci`: train what is not done yet, then write tables, figures and the page."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...callbacks import clock
from ...datasets import Dataset, load_uci
from ...errors import OptionError, unknown_option
from ...files import plain, write_json_atomic
from ...presets import PRESETS
from ..progress import SuiteProgress
from ..provenance import provenance
from ..selection import chosen
from .pages import write_outputs
from .results import cell_path, is_finished, read_results
from .suite import DATA, MODELS, N_SPLITS, Cell, cells
from .tables import missing_cells
from .training import run_splits, split_rows


def main(
    output: Path,
    *,
    data: Iterable[str] = (),
    models: Iterable[str] = (),
    n_splits: int = N_SPLITS,
    preset: str = "fast",
    group: int | None = None,
    is_report_only: bool = False,
) -> int:
    """Run the cells asked for that have no result with these settings; returns the exit code of the command."""
    if preset not in PRESETS:
        raise unknown_option("preset", preset, list(PRESETS))
    asked = cells(chosen("data", data, DATA), chosen("models", models, MODELS), preset, n_splits)
    if is_report_only and not read_results(output, preset):
        raise OptionError(
            f"there are no results of preset {preset!r} in {str(output)!r}; expected files as the command without "
            "--report-only writes them: run it first, or name the folder by --output."
        )
    n_failed = 0 if is_report_only else run_cells(output, asked, group)
    page = write_outputs(output, preset)
    n_missing = len(missing_cells(read_results(output, preset)))
    print(f"{page}" + (f" ({n_missing} of {len(DATA) * len(MODELS)} cells are missing)" if n_missing else ""))
    return 1 if n_failed else 0


def run_cells(output: Path, asked: list[Cell], group: int | None = None) -> int:
    """Train and score the cells that are not finished, one file each; returns how many failed."""
    loaded = {name: load(name) for name in dict.fromkeys(cell.data for cell in asked)}
    pending = [cell for cell in asked if not is_finished(output, cell, cell.settings(*loaded[cell.data].X.shape))]
    progress = SuiteProgress({cell: cell.work(*loaded[cell.data].X.shape) for cell in pending})
    if len(pending) < len(asked):
        progress.say(f"{len(asked) - len(pending)} of {len(asked)} cells are done already.")
    n_failed = 0
    try:
        for cell in pending:
            progress.begin(cell)
            try:
                result = run_cell(cell, loaded[cell.data], group, progress)
            except Exception as error:  # the other cells can still be done: hours may hang on them
                n_failed += 1
                progress.fail(error)
                continue
            path = cell_path(output, cell)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json_atomic(path, result)
            progress.finish(told(result))
    finally:
        progress.close()
    return n_failed


def told(result: dict[str, Any]) -> str:
    """What came out, for the terminal."""
    score, sd = (result[part]["log_density"] for part in ("mean", "sd"))
    return f"log density {score:.3f} ± {sd:.3f}, {clock(result['fit_seconds'])} to train"


def load(name: str) -> Dataset:
    """A data set of the suite. That `bike_paper` leaks is known here, and said on the page."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return load_uci(name)


def run_cell(cell: Cell, data: Dataset, group: int | None = None, callbacks: object = None) -> dict[str, Any]:
    """What the result file of a cell holds."""
    rows = [split_rows(len(data.X), index) for index in range(cell.n_splits)]
    result = run_splits(cell.estimator, data.X, data.y, rows, group=group, callbacks=callbacks)
    return {
        "data": cell.data,
        "model": cell.model,
        "scored": "test",
        "settings": plain(cell.settings(*data.X.shape)),
        "group": group,
        **result,
        "provenance": provenance(),
    }
