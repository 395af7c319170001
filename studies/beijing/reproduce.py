"""`python -m studies.beijing`: run what is not done yet, then write tables, figures and the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wishflow.callbacks import clock
from wishflow.errors import OptionError
from wishflow.files.json import write_json_atomic

from ..processes import lost_process_text, pool, shared_out
from ..progress import SuiteProgress, error_text
from ..provenance import command
from ..selection import chosen
from .fits import forget
from .jobs import Job, fit_path, run
from .models import MODELS
from .pages import write_outputs
from .protocol import Parts, load_parts
from .results import is_finished, job_path, missing_cells, read_results
from .tables import score_table

MOST_MISSING = 0.9
# Fits wait in this folder beside the results until their job is scored.
FITS = "fits"


def main(
    output: Path,
    *,
    models: Iterable[str] = (),
    n_draws: int = 1000,
    n_members: int | None = None,
    missing: float = 0.0,
    n_processes: int = 1,
    backend: str | None = None,
    is_validation: bool = False,
    is_report_only: bool = False,
) -> int:
    """Run the cells asked for that have no result with these settings; returns the exit code of the command."""
    jobs = asked_jobs(chosen("models", models, MODELS), is_validation, n_draws, n_members, missing)
    if is_report_only and not read_results(output, is_validation):
        raise OptionError(
            f"there are no results in {str(output)!r}; expected files as the command without --report-only writes "
            "them: run it first, or name the folder by --output."
        )
    n_failed = 0 if is_report_only else run_jobs(output, jobs, load_parts(is_validation), n_processes, backend)
    page, results = write_outputs(output, is_validation), read_results(output, is_validation)
    print(score_table(results, is_whole=False, has_published=not is_validation).to_string(index=False))
    n_missing = len(missing_cells(results))
    print(f"{page}" + (f" ({n_missing} cells are missing)" if n_missing else ""))
    return 1 if n_failed else 0


def asked_jobs(
    models: Iterable[str],
    is_validation: bool = False,
    n_draws: int = 1000,
    n_members: int | None = None,
    missing: float = 0.0,
    changes: tuple[tuple[str, Any], ...] = (),
) -> list[Job]:
    """A job for each model, with as many members as it has if none are given.

    Entries are deleted for ours alone: random walk and VARs know no missing values.
    """
    members = {model: MODELS[model].n_members if n_members is None else n_members for model in models}
    most = max(members.values(), default=1)
    if n_draws < 2 * most:
        raise OptionError(
            f"{n_draws} draws for {most} members given; expected at least 2 draws of each member: raise --draws."
        )
    if not 0.0 <= missing <= MOST_MISSING:
        raise OptionError(
            f"missing={missing!r} given; expected the share of training entries to delete, 0 to {MOST_MISSING}."
        )
    shares = {model: missing if MODELS[model].is_ours else 0.0 for model in members}
    return [Job(model, is_validation, n_draws, n, shares[model], changes) for model, n in members.items()]


def run_jobs(output: Path, jobs: list[Job], parts: Parts, n_processes: int = 1, backend: str | None = None) -> int:
    """Make the cells that are not finished, one file each; returns how many jobs failed. Several processes load `parts`
    themselves, and write into the folder.
    """
    wanted = {job: [cell for cell in job.cells if not is_finished(output, job, cell, parts)] for job in jobs}
    pending = {job: cells for job, cells in wanted.items() if cells}
    progress = SuiteProgress({job: float(job.n_fits) for job in pending})
    n_cells, n_left = sum(len(job.cells) for job in jobs), sum(map(len, pending.values()))
    if n_left < n_cells:
        progress.say(f"{n_cells - n_left} of {n_cells} cells are done already.")
    output.mkdir(parents=True, exist_ok=True)
    n_failed = 0
    try:
        if n_processes == 1 and backend is None:
            outcomes = _one_by_one(output, pending, parts, progress)
        else:
            outcomes = _side_by_side(output.absolute(), pending, progress, n_processes, backend)
        for outcome in outcomes:
            n_failed += outcome.is_failure
            (progress.fail if outcome.is_failure else progress.finish)(outcome.text)
    finally:
        progress.close()
    return n_failed


class Outcome(NamedTuple):
    """What a job has to tell, a failure or what came out. As text: not every error can leave its process."""

    is_failure: bool
    text: str


def _outcome(
    output: Path, job: Job, cells: list[str], parts: Parts, callbacks: Any = None, typed: str | None = None
) -> Outcome:
    """Run a job and write its cells, each as soon as it is made; `typed` is the command that results name."""
    try:
        for result in run(job, parts, cells, callbacks, output / FITS):
            source = result["provenance"] if typed is None else {**result["provenance"], "command": typed}
            write_json_atomic(job_path(output, job, result["cell"]), {**result, "provenance": source})
    except Exception as error:  # the other models can still be done: hours may hang on them
        return Outcome(True, error_text(error))
    forget(fit_path(output / FITS, job))
    return Outcome(False, result_text(result))


def _one_by_one(
    output: Path, pending: Mapping[Job, list[str]], parts: Parts, progress: SuiteProgress
) -> Iterator[Outcome]:
    for job, cells in pending.items():
        progress.begin(job)
        yield _outcome(output, job, cells, parts, progress)


def _side_by_side(
    output: Path, pending: Mapping[Job, list[str]], progress: SuiteProgress, n_processes: int, backend: str | None
) -> Iterator[Outcome]:
    """The same by several processes, in the order in which they end."""
    longest_first, typed = sorted(pending, key=lambda job: job.n_fits, reverse=True), command()
    what = (longest_first, _run_alone, lambda job: (output, job, pending[job], typed))
    for job, outcome in shared_out(pool, n_processes, backend, *what):
        progress.begin(job)
        yield Outcome(True, lost_process_text(outcome)) if isinstance(outcome, BaseException) else outcome


def _run_alone(output: Path, job: Job, cells: list[str], typed: str) -> Outcome:
    """A job in a process of its own; its results name the command that was typed."""
    return _outcome(output, job, cells, load_parts(job.is_validation), typed=typed)


def result_text(result: dict[str, Any]) -> str:
    """What came out last, for the terminal."""
    seconds = f"{clock(result['fit_seconds'])} to train, {clock(result['total_seconds'])} in all"
    if "bands" not in result:
        return f"{result['cell']} made, {seconds}"
    crps = " ".join(f"{value:.3f}" for value in result["bands"]["crps"].values())
    return f"log density {result['log_density_1']:.2f}, CRPS {crps}, {seconds}"
