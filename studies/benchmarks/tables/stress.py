"""Tables of docs/reliability.md: promises with their tests and figures, and what the stress run has found."""

from __future__ import annotations

from typing import Any

from ...stress.__main__ import PARTS as FULL
from .text import NOT_MEASURED, grid, result, source_text

FILE, FIGURES = "stress.json", "promises.json"
TITLES = {
    "kills": "`kill -9` during a fit with checkpoints",
    "disks": "full disks and read-only folders during such a fit",
    "inputs": "odd data for all estimators",
    "files": "mutated model files, loaded and used",
    "checkpoints": "mutated checkpoints, fits resumed",
    "results": "mutated result files of the studies",
}
FILES, CHECKPOINTS, STRESS = "tests/test_files.py", "tests/training/test_checkpoints.py", "tests/studies/test_stress.py"
# Each promise, the tests that prove it, and the parts of the stress run that measure it.
PROMISES: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    (
        "An error, or Ctrl-C without `checkpoint_dir`, in `fit`, `fit_many` or `update` leaves the estimator exactly "
        "as it was. This includes members and forecasters.",
        ("tests/estimators/test_refit.py",),
        ("disks",),
    ),
    (
        "If training ends with an objective below its start, or without finite numbers, it warns. It keeps its start, "
        "its last good state, or the state that held-back rows choose. If no usable state is left, it raises "
        "`TrainingError`.",
        ("tests/training/test_divergence.py",),
        (),
    ),
    (
        "A step that is not finite is skipped and counted, and changes no parameter. After many skipped steps, "
        "training resumes from the last good state with more jitter and steps ten times smaller, at most three times; "
        'then it stops at that state. `history_["skipped"]`, `verbose`, `summary()` and warnings report it.',
        ("tests/training/test_backoff.py",),
        (),
    ),
    (
        "Numerical failures raise a `NumericalError` (`TrainingError`, `FactorisationError`) that names the cause and "
        "the remedy. Predictions are finite in float32 and float64 for 50 inducing points, each of them four times, "
        "for lengthscales of 0.001 and 1000, and for constant and identical columns.",
        ("tests/estimators/test_hard_numbers.py",),
        (),
    ),
    (
        "`summary()` and `diagnose` report a diffusion that has collapsed relative to the observation noise.",
        ("tests/estimators/test_summary.py",),
        (),
    ),
    (
        "Draws of a sparse GP with the true kernel and noise are calibrated: the ranks of the true values are uniform "
        "over 200 runs (χ², p > 0.01).",
        ("tests/agreement/test_calibration_of_draws.py",),
        ("calibration of draws",),
    ),
    (
        "Model files of version 0.1.0 and of the development version, which has one for every class of estimators, "
        "load and give the same predictions as they did when they were written. Draws of latent models of version "
        "0.1.0 differ: random numbers are drawn in another order.",
        ("tests/reference",),
        (),
    ),
    (
        "Eight threads that predict while two others fit, and four processes that fit at the same time, get exactly "
        "the same numbers as when each runs alone.",
        ("tests/test_side_by_side.py",),
        ("threads",),
    ),
    (
        "In 200 fits of 20 to 400 rows in one process, the second hundred fits add at most 40 MiB of resident memory.",
        ("tests/test_side_by_side.py",),
        ("two hundred fits",),
    ),
    (
        "A fit with `checkpoint_dir` that is killed can be resumed, and its result is bit-for-bit that of an "
        "uninterrupted fit (CPU). An L-BFGS phase restarts from its beginning, with the same result.",
        (CHECKPOINTS, "tests/training/test_restarts.py", STRESS),
        ("kills",),
    ),
    (
        "Checkpoints and model files are either complete or absent. After a full disk, a folder without permissions "
        "or `kill -9`, the previous file is still there. Temporary files of killed processes are removed by the next "
        "write of the same file, and by the next run of the same fit (after a day, if the process ran on another "
        "machine or in another container).",
        (FILES, CHECKPOINTS, STRESS),
        ("kills", "disks"),
    ),
    ("A file that is replaced keeps its access permissions.", (FILES,), ()),
    (
        "Loading a model file runs no code from it. A file that contradicts itself raises `ModelFileError` before "
        "anything is built, and uses no more memory than its size justifies. A model that loads gives finite numbers "
        "or raises an error of the package.",
        ("tests/estimators/test_hostile_files.py", STRESS),
        ("files",),
    ),
    (
        "A damaged checkpoint is ignored with a warning, and the fit ends as it would without it. A checkpoint made by "
        "someone else runs no code; the fit ends with finite numbers or an error of the package.",
        (CHECKPOINTS, STRESS),
        ("checkpoints",),
    ),
    ("A damaged result file of a study is treated as missing.", (STRESS,), ("results",)),
    (
        "Any data give finite results or an error of the package. Data with at least ten rows of numbers and a target "
        "that varies can be fitted.",
        ("tests/estimators/test_bad_input.py", STRESS),
        ("inputs",),
    ),
    (
        "Times (as inputs, targets or labels), masked entries, labels of mixed types and time stamps that nanoseconds "
        "cannot represent raise `DataError`.",
        ("tests/estimators/test_bad_input.py",),
        (),
    ),
    (
        "Downloads have a maximum size, packed and unpacked, and a time limit. Damaged, encrypted and nested archives "
        "raise `DatasetError`.",
        ("tests/test_datasets.py",),
        (),
    ),
    (
        "Threads may fit and predict at the same time. BLAS uses one thread while any of them computes, and its "
        "previous number of threads afterwards.",
        ("tests/test_process.py",),
        (),
    ),
    (
        "In a process that was forked after wishflow has computed, a call raises `ForkError` at once. JAX that other "
        "code started before the fork is not detected. Processes of joblib's default backend work.",
        ("tests/test_process.py",),
        (),
    ),
    (
        "A sparse GP predicts a million rows in less than 20 seconds on two cores, in blocks.",
        ("tests/test_process.py",),
        ("a million rows",),
    ),
]


def promise_table() -> str:
    """Promises, their tests, and how often they held in the stress run, or what the tests have measured."""
    found, figures_of_tests = result(FILE) or {}, (result(FIGURES) or {}).get("figures", {})
    lines = ["| promise | tests | measured |", "|---|---|---|"]
    for promise, tests, parts in PROMISES:
        figures = "; ".join(
            _figure(part, found.get(part)) if part in TITLES else figures_of_tests.get(part, NOT_MEASURED)
            for part in parts
        )
        lines.append(f"| {promise} | {', '.join(f'`{test}`' for test in tests)} | {figures or 'by the tests'} |")
    return "\n".join(lines)


def stress_table() -> str:
    """Each part of the stress run: how far it is, and what came out."""
    found = result(FILE)
    if not found:
        return NOT_MEASURED
    rows = {}
    for part, title in TITLES.items():
        if part not in found:
            names = ("cases", "outcomes", "problems", "longest task, s")
            rows[title] = {"tasks": f"0 of {FULL[part][0]:,}", **dict.fromkeys(names, "–")}
            continue
        one = found[part]
        ways = sorted(one["outcomes"].items(), key=lambda item: -item[1])
        rows[title] = {
            "tasks": f"{one['n_tasks']:,} of {FULL[part][0]:,}",
            "cases": f"{_n_cases(one):,}",
            "outcomes": "; ".join(f"{name} {n:,}" for name, n in ways),
            "problems": str(len(one["problems"])),
            "longest task, s": f"{one['longest']:.0f}",
        }
    first = next(one for part, one in found.items() if part in TITLES)
    commits = {commit for one in found.values() for commit in one["commits"]}
    names = sorted({commit.split("-")[0][:12] for commit in commits})
    # `source_text` says which trees had changes by the end of the name.
    last = names[-1] + ("-dirty" if any(commit.endswith("-dirty") for commit in commits) else "")
    source = source_text({**first["provenance"], "command": "python -m studies.stress", "commit": last})
    source = source.replace(names[-1], ", ".join(names))
    return f"{grid('part', rows)}\n\nSource: {source}."


def _figure(part: str, found: dict[str, Any] | None) -> str:
    if found is None:
        return f"{part}: not measured yet"
    n_bad = len(found["problems"])
    done = f"{found['n_tasks']:,} of {FULL[part][0]:,} tasks run"
    return f"{part}: {_n_cases(found) - n_bad:,} of {_n_cases(found):,} cases ({done})"


def _n_cases(found: dict[str, Any]) -> int:
    """Cases that were tried; some need what a computer may lack."""
    return sum(n for name, n in found["outcomes"].items() if "skipped" not in name)
