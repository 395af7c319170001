"""`python -m studies.uci`: train what is not done yet, then write tables, figures and the page."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wishflow.callbacks import clock
from wishflow.datasets import Dataset, load_uci
from wishflow.errors import OptionError, unknown_option
from wishflow.files.json import plain, write_json_atomic
from wishflow.numerics.platform import on_accelerator
from wishflow.regression.presets import PRESETS

from ..processes import lost_process_text, pool, shared_out
from ..progress import SuiteProgress, error_text
from ..provenance import command, provenance
from ..selection import chosen
from .pages import write_outputs
from .results import cell_path, is_finished, read_results
from .suite import DATA, MODELS, N_SPLITS, STEP_OVERHEAD, Cell, cells
from .tables import missing_cells, overview_table
from .training import run_splits, split_rows


def main(
    output: Path,
    *,
    data: Iterable[str] = (),
    models: Iterable[str] = (),
    n_splits: int = N_SPLITS,
    preset: str = "fast",
    group: int | None = None,
    n_processes: int = 1,
    backend: str | None = None,
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
    n_failed = 0 if is_report_only else run_cells(output, asked, group, n_processes, backend)
    page, results = write_outputs(output, preset), read_results(output, preset)
    print(overview_table(results).to_string(index=False))
    n_missing = len(missing_cells(results))
    print(f"{page}" + (f" ({n_missing} of {len(DATA) * len(MODELS)} cells are missing)" if n_missing else ""))
    return 1 if n_failed else 0


def run_cells(
    output: Path, asked: list[Cell], group: int | None = None, n_processes: int = 1, backend: str | None = None
) -> int:
    """Train and score the cells that are not finished, one file each; returns how many failed."""
    loaded = {name: load(name) for name in dict.fromkeys(cell.data for cell in asked)}
    pending = [cell for cell in asked if not is_finished(output, cell, cell.settings(*loaded[cell.data].X.shape))]
    # Who asks for the device takes most of its memory, so with processes of their own this one does not ask.
    overhead = STEP_OVERHEAD if backend is not None or n_processes > 1 or on_accelerator() else 0
    work = {cell: cell.work(*loaded[cell.data].X.shape, overhead=overhead) for cell in pending}
    progress = SuiteProgress(work)
    if len(pending) < len(asked):
        progress.say(f"{len(asked) - len(pending)} of {len(asked)} cells are done already.")
    n_failed = 0
    try:
        if n_processes == 1 and backend is None:
            results = _one_by_one(pending, loaded, group, progress)
        else:
            results = _side_by_side(work, group, progress, n_processes, backend)
        for cell, result in results:
            if isinstance(result, str):
                n_failed += 1
                progress.fail(result)
                continue
            path = cell_path(output, cell)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json_atomic(path, result)
            progress.finish(result_text(result))
    finally:
        progress.close()
    return n_failed


def _one_by_one(
    pending: list[Cell], loaded: Mapping[str, Dataset], group: int | None, progress: SuiteProgress
) -> Iterator[tuple[Cell, dict[str, Any] | str]]:
    """Cells with their results, or with what went wrong: the others can still be done, hours may hang on them."""
    for cell in pending:
        progress.begin(cell)
        yield cell, _result_or_error(cell, loaded[cell.data], group, progress)


def _result_or_error(cell: Cell, data: Dataset, group: int | None, callbacks: object) -> dict[str, Any] | str:
    try:
        return run_cell(cell, data, group, callbacks)
    except Exception as error:  # as text: not every error can be sent from one process to another
        return error_text(error)


def _side_by_side(
    work: Mapping[Cell, float], group: int | None, progress: SuiteProgress, n_processes: int, backend: str | None
) -> Iterator[tuple[Cell, dict[str, Any] | str]]:
    """The same by several processes, in the order in which they end; the longest start first, so that all end alike."""
    longest_first, typed = sorted(work, key=work.__getitem__, reverse=True), command()
    what = (longest_first, _run_alone, lambda cell: (cell, group, typed))
    for cell, result in shared_out(pool, n_processes, backend, *what):
        progress.begin(cell)
        yield cell, lost_process_text(result, ", or --group") if isinstance(result, BaseException) else result


def _run_alone(cell: Cell, group: int | None, typed: str) -> dict[str, Any] | str:
    """A cell in a process of its own; its result names the command that was typed."""
    result = _result_or_error(cell, load(cell.data), group, None)
    if isinstance(result, str):
        return result
    return {**result, "provenance": {**result["provenance"], "command": typed}}


def result_text(result: dict[str, Any]) -> str:
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
