"""Default estimators on twelve public tables: sparse GP, flow and the mixture of five members.

    python -m studies.benchmarks.public_tables --jobs 16     # writes studies/results/public_tables.json
    python -m studies.benchmarks.public_tables --summary     # prints what the file says

Tables are those of `public_table_sets`, fixed before any model was scored on them. Each fold of one random partition
into ten is scored by models that are fitted to the other nine. Inputs and targets are scaled by the training rows, so
log densities and RMSE are in units of the target's standard deviation. Fit times include compilation.

Results are written after every call: a run can be stopped and continued. A fold that fails is reported, and tried
again by the next run. On an accelerator the `--group` folds of a call are trained in one program, and their seconds are
shared out. Processes of `--jobs` compute with one thread each. A machine without the package of the tables reads them
by `--tables FILE.npz`, which `--export FILE.npz` writes elsewhere.

Bars of the summary: intervals cover as often as `COVERED` says, for each table and model; members score at least as
the better of flow and sparse GP, less `MEMBERS_MARGIN`; the sparse GP scores at least as the one that is not
recalibrated, less `RECALIBRATED_MARGIN`.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import wishflow as wf
from wishflow.files.json import write_json_atomic
from wishflow.training.loop import went_wrong

from ..paths import RESULTS
from ..processes import pool, side_by_side
from ..progress import error_text
from ..provenance import provenance
from ..uci.training import score_mixture
from .public_table_sets import SEED, SETS, Table

N_FOLDS = 10
MODELS: dict[str, Callable[[], Any]] = {
    "sparse_gp": wf.SparseGPRegressor,
    "plain_sparse_gp": functools.partial(wf.SparseGPRegressor, calibrate=None),
    "flow": wf.FlowRegressor,
    "members": functools.partial(wf.FlowRegressor, n_members=5),
}
SCORES = ("log_density", "coverage_95", "coverage_80", "rmse")
# Bars, by what they are about.
COVERED = {"coverage_95": (0.92, 0.985), "coverage_80": (0.75, 0.87)}
MEMBERS_MARGIN = 0.05
RECALIBRATED_MARGIN = 0.02
COMPARISONS = (
    ("members", ("flow", "sparse_gp"), MEMBERS_MARGIN),
    ("sparse_gp", ("plain_sparse_gp",), RECALIBRATED_MARGIN),
)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ONE_THREAD_OF_XLA = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

Results = dict[str, dict[str, Any]]
# Name of the table, name of the model, numbers of folds that are fitted in one call.
Task = tuple[str, str, tuple[int, ...]]


# --- tables ------------------------------------------------------------------------------------------


@functools.cache
def load(data: str, tables: Path | None = None) -> Table:
    """A table from its package, or from a file of `export`."""
    if tables is None:
        return SETS[data].make()
    with np.load(tables) as arrays:
        return arrays[f"{data}/X"], arrays[f"{data}/y"]


def export(path: Path, names: Sequence[str]) -> None:
    """Write tables into one file."""
    arrays = {f"{name}/{key}": values for name in names for key, values in zip("Xy", load(name), strict=True)}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)


def fold_rows(n_rows: int, fold: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to score."""
    parts = np.array_split(np.random.default_rng([SEED, n_rows]).permutation(n_rows), N_FOLDS)
    return np.concatenate([part for i, part in enumerate(parts) if i != fold]), parts[fold]


def scaled(table: Table, train: np.ndarray) -> Table:
    """The table in units of its training rows, without inputs that are constant there."""
    X, y = table
    X = X[:, X[train].std(0) > 0.0]
    return (X - X[train].mean(0)) / X[train].std(0), (y - y[train].mean()) / y[train].std()


# --- runs --------------------------------------------------------------------------------------------


def score_folds(data: str, model: str, folds: Sequence[int], tables: Path | None = None) -> list[dict[str, Any]]:
    """For each fold, fit a model to the nine others and score it."""
    warnings.simplefilter("ignore", RuntimeWarning)  # flows that diverge are kept as they were before
    table = load(data, tables)
    rows = [fold_rows(len(table[1]), fold) for fold in folds]
    parts = [(scaled(table, train), train, test) for train, test in rows]
    started = time.perf_counter()
    models = wf.fit_many([MODELS[model]() for _ in folds], [(X[train], y[train]) for (X, y), train, _ in parts])
    seconds = (time.perf_counter() - started) / len(folds)
    return [scored(one, X[test], y[test], seconds) for one, ((X, y), _, test) in zip(models, parts, strict=True)]


def scored(fitted: Any, X: np.ndarray, y: np.ndarray, seconds: float) -> dict[str, Any]:
    """What is kept of a fold."""
    scores = score_mixture(y, *fitted.predict_components(X, return_weights=True))
    return {
        "n_test": len(y),
        **{name: scores[name] for name in SCORES},
        "fit_seconds": seconds,
        "weights": {name: float(weight) for name, weight in getattr(fitted, "weights_", {}).items()},
        "status": fitted.status_,
        "provenance": provenance(),  # the process of the command itself does not take a device
    }


def read(path: Path) -> Results:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def key(data: str, model: str) -> str:
    return f"{data}, {model}"


def waiting(
    results: Results, names: Sequence[str], models: Sequence[str], n_folds: int, n_together: int = 1
) -> list[Task]:
    """Folds without scores; the longest fits come first, so that no process is left alone with them."""
    tasks: list[Task] = []
    for data, model in itertools.product(names, models):
        known = results.get(key(data, model), {}).get("folds", {})
        left = [fold for fold in range(n_folds) if str(fold) not in known]
        tasks += [
            (data, model, tuple(folds)) for folds in (left[i : i + n_together] for i in range(0, len(left), n_together))
        ]
    work = list(MODELS)
    return sorted(tasks, key=lambda task: (-work.index(task[1]), -SETS[task[0]].n_rows))


def add(results: Results, data: str, model: str, fold: int, scores: dict[str, Any], table: Table) -> None:
    """Put the scores of a fold into the results."""
    n_rows, n_inputs = table[0].shape
    cell = results.setdefault(
        key(data, model), {"data": data, "model": model, "n_rows": n_rows, "n_inputs": n_inputs, "folds": {}}
    )
    made = scores.pop("provenance")
    cell["folds"][str(fold)] = scores | {"commit": made["commit"]}
    cell["folds"] = dict(sorted(cell["folds"].items(), key=lambda item: int(item[0])))
    cell["provenance"] = made  # that of the last fold


def limit_threads() -> None:
    """Processes that start from here on compute with one thread each."""
    os.environ.update(ONE_THREAD)
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_THREAD_OF_XLA}".strip()


def run(options: argparse.Namespace) -> list[Task]:
    """Score the folds that are not in the file yet; those that failed are returned."""
    results = read(options.output)
    tasks = waiting(results, options.data.split(","), options.models.split(","), options.folds, options.group)
    if options.jobs > 1:
        limit_threads()
        found = side_by_side(pool, options.jobs, tasks, score_folds, lambda task: (*task, options.tables))
    else:
        found = ((task, _attempt(*task, options.tables)) for task in tasks)
    failed = []
    for (data, model, folds), rows in found:
        if isinstance(rows, BaseException):
            failed.append((data, model, folds))
            print(f"{key(data, model)}, folds {folds}: {error_text(rows)}", flush=True)
            continue
        for fold, scores in zip(folds, rows, strict=True):
            add(results, data, model, fold, scores, load(data, options.tables))
            shown = {label: round(scores[label], 4) for label in (*SCORES, "fit_seconds")}
            print(f"{key(data, model)}, fold {fold}:", shown, flush=True)
        write_json_atomic(options.output, results)
    return failed


def _attempt(*task: Any) -> list[dict[str, Any]] | Exception:
    try:
        return score_folds(*task)
    except Exception as error:
        return error


# --- summary -----------------------------------------------------------------------------------------


def averages(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Means over folds, coverage over all scored rows, and whether coverage is within the bars."""
    folds = list(cell["folds"].values())
    sizes = [fold["n_test"] for fold in folds]
    found: dict[str, Any] = {"data": cell["data"], "model": cell["model"], "n_folds": len(folds)}
    for name in (*SCORES, "fit_seconds"):
        weights = sizes if name in COVERED else None
        found[name] = float(np.average([fold[name] for fold in folds], weights=weights))
    candidates = sorted({name for fold in folds for name in fold["weights"]})
    found["weights"] = {name: float(np.mean([fold["weights"].get(name, 0.0) for fold in folds])) for name in candidates}
    found["status"] = sorted({re.split("[;,]", fold["status"])[0] for fold in folds})
    found["n_recalibrated"] = sum("recalibrated" in fold["status"] for fold in folds)
    found["n_wrong"] = sum(went_wrong(fold["status"]) for fold in folds)
    found["is_covered"] = all(low <= found[name] <= high for name, (low, high) in COVERED.items())
    return found


def compared(results: Results, data: str, model: str, rivals: Sequence[str], margin: float) -> dict[str, Any] | None:
    """The lead of a model over the best of its rivals, on the folds that all of them have."""
    cells = [results.get(key(data, name), {}).get("folds", {}) for name in (model, *rivals)]
    folds = sorted(set.intersection(*map(set, cells)), key=int)
    if not folds:
        return None
    own, *others = (float(np.mean([cell[fold]["log_density"] for fold in folds])) for cell in cells)
    return {
        "data": data,
        "model": model,
        "rivals": list(rivals),
        "n_folds": len(folds),
        "lead": own - max(others),
        "holds": own >= max(others) - margin,
    }


def summary(results: Results) -> dict[str, list[dict[str, Any]]]:
    """What the results say for each table and model, and for each table and comparison."""
    order = [key(data, model) for data, model in itertools.product(SETS, MODELS)]
    cells = [averages(results[name]) for name in order if results.get(name, {}).get("folds")]
    found = [compared(results, data, *one) for one, data in itertools.product(COMPARISONS, SETS)]
    return {"cells": cells, "comparisons": [one for one in found if one is not None]}


def report(results: Results) -> str:
    """The summary as text."""
    found = summary(results)
    lines = [
        f"{'table':<14} {'model':<16} {'folds':>5} {'log density':>11} {'95 %':>6} {'80 %':>6} {'RMSE/sd':>8} "
        f"{'seconds':>8}  covered  status, weights"
    ]
    for one in found["cells"]:
        words = [
            *one["status"],
            f"{one['n_recalibrated']} recalibrated",
            *([f"{one['n_wrong']} WENT WRONG"] if one["n_wrong"] else []),
            *(f"{name} {weight:.2f}" for name, weight in one["weights"].items()),
        ]
        lines.append(
            f"{one['data']:<14} {one['model']:<16} {one['n_folds']:>5} {one['log_density']:>11.3f} "
            f"{one['coverage_95']:>6.3f} {one['coverage_80']:>6.3f} {one['rmse']:>8.4f} {one['fit_seconds']:>8.1f}  "
            f"{'yes' if one['is_covered'] else 'NO':<7}  {', '.join(words)}"
        )
    for model in MODELS:
        cells = [one for one in found["cells"] if one["model"] == model]
        if cells:
            n_covered = sum(one["is_covered"] for one in cells)
            lines.append(f"{model}: coverage within {_bars()} on {n_covered} of {len(cells)} tables")
    for model, rivals, margin in COMPARISONS:
        rows = [one for one in found["comparisons"] if (one["model"], one["rivals"]) == (model, list(rivals))]
        if rows:
            n_held = sum(one["holds"] for one in rows)
            rival = " and ".join(rivals)
            best = f"the better of {rival}" if len(rivals) > 1 else rival
            lines.append(f"{model} at least {best} − {margin} on {n_held} of {len(rows)} tables:")
            lines += [
                f"  {one['data']:<14} {one['lead']:+.3f} ({one['n_folds']} folds)" + ("" if one["holds"] else "  NO")
                for one in rows
            ]
    return "\n".join(lines)


def _bars() -> str:
    return " and ".join(f"[{low}, {high}] ({name[-2:]} %)" for name, (low, high) in COVERED.items())


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(SETS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--folds", type=int, default=N_FOLDS, help="the first so many of the ten folds")
    parser.add_argument("--jobs", type=int, default=1, help="processes with one thread each")
    parser.add_argument("--group", type=int, default=1, help="folds that are fitted in one call")
    parser.add_argument("--tables", type=Path, help="read the tables from this file")
    parser.add_argument("--export", type=Path, help="write the tables to this file, and end")
    parser.add_argument("--summary", action="store_true", help="print what the results say, and end")
    parser.add_argument("--output", type=Path, default=RESULTS / "public_tables.json")
    options = parser.parse_args(arguments)
    for name, known in (("data", SETS), ("models", MODELS)):
        unknown = [word for word in getattr(options, name).split(",") if word not in known]
        if unknown:
            parser.error(f"--{name}: no {', '.join(unknown)}; there are {', '.join(known)}")
    if not 1 <= options.folds <= N_FOLDS:
        parser.error(f"--folds: from 1 to {N_FOLDS}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    if options.export is not None:
        export(options.export, options.data.split(","))
    elif options.summary:
        print(report(read(options.output)))
    else:
        failed = run(options)
        if failed:
            n_failed = sum(len(folds) for _, _, folds in failed)
            raise SystemExit(f"{n_failed} folds have failed; run the command again to try them once more.")


if __name__ == "__main__":
    main()
