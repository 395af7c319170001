"""`fit` and `predict`: rows of a table in, a model file or predictions out."""

from __future__ import annotations

import dataclasses
import math
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import FlowClassifier, FlowRegressor, SparseGPRegressor, WishartForecaster, enable_compilation_cache, load
from ..errors import DataError, ModelFileError, OptionError, unknown_option
from .categories import check_inputs, indicators, sources, with_indicators
from .options import Reading, RowColumns, RowModel
from .tables import (
    PAGE,
    PARQUET,
    PLAIN,
    TABLES,
    check_columns,
    check_output,
    counted,
    listed,
    marked_number,
    numbers,
    read_table,
    similar_files,
    split_names,
    without_missing,
    write_table,
)
from .terminal import Terminal
from .text_files import TEXT

MODELS, TASKS = ("flow", "sgp"), ("auto", "regress", "classify")
MODEL_FILE = (".wishflow",)
# Rows that are predicted at once; progress is shown between these blocks.
BLOCK = 5_000
# Standard deviations of the training inputs from their mean: what lies beyond is named in a note.
FAR = 6.0
# So many labels are classes, however few the rows are.
FEW_LABELS = 10
REMEDY = "encode the column as numbers, or leave it out with --drop"


@dataclasses.dataclass(frozen=True)
class Rows:
    """Inputs and targets of a table, and what they are for."""

    X: pd.DataFrame
    y: pd.DataFrame
    classifies: bool


@dataclasses.dataclass(frozen=True)
class Source:
    """Where rows come from: a file, and what its columns are."""

    path: Path
    columns: RowColumns
    drop_missing: bool = False
    reading: Reading = dataclasses.field(default_factory=Reading)

    def table(self) -> pd.DataFrame:
        """The whole table."""
        return read_table(self.path, self.reading)


def built(model: RowModel, classifies: bool, verbose: int) -> Any:
    """The estimator of these options."""
    if model.model not in MODELS:
        raise unknown_option("--model", model.model, MODELS)
    if classifies and model.model == "sgp":
        raise OptionError("--model sgp is for numbers, but the target holds classes; use --model flow.")
    cls = FlowClassifier if classifies else {"flow": FlowRegressor, "sgp": SparseGPRegressor}[model.model]
    return cls(n_members=model.members, random_state=model.seed, max_iter=model.max_iter, verbose=verbose)


def read_rows(source: Source, targets: Sequence[str]) -> Rows:
    """Inputs and targets of a file, checked; text among the inputs is an error unless it holds categories."""
    path, task = source.path, source.columns.task
    if not targets:
        raise OptionError("neither --target nor --horizon was given; expected --target for rows, --horizon for series.")
    if task not in TASKS:
        raise unknown_option("--task", task, TASKS)
    frame = source.table()
    targets = split_names(targets, frame)
    if not targets:
        raise OptionError("--target names no column; expected the name of one, such as --target price.")
    inputs, labels = _roles(source, frame, targets)
    classifies = _classifies(frame, targets, task)
    if classifies and task == "auto":
        _check_labels(frame[targets[0]], path)
    check_inputs(frame, inputs, path)
    X = numbers(frame, inputs, path, REMEDY)
    remedy = "correct the cells, or use --task classify"
    y = frame[list(targets)] if classifies else numbers(frame, targets, path, remedy)
    whole = without_missing(pd.concat([X, frame[labels], y], axis=1), path, source.drop_missing, targets)
    y = whole[list(targets)]
    X = pd.concat([whole[inputs], indicators(whole, labels, path)], axis=1)
    return Rows(X, y.astype(str) if classifies and frame[targets[0]].dtype.kind not in "iuf" else y, classifies)


def _roles(source: Source, frame: pd.DataFrame, targets: Sequence[str]) -> tuple[list[str], list[str]]:
    """The columns that are inputs as they are, and those whose labels are."""
    path = source.path
    drop, labels = (split_names(names, frame) for names in (source.columns.drop, source.columns.categories))
    roles: dict[str, str] = {}
    for option, names in {"--target": targets, "--drop": drop, "--categories": labels}.items():
        check_columns(frame, names, path, option)
        for name in names:
            if roles.setdefault(name, option) != option:
                raise OptionError(f"{name!r} is named by {roles[name]} and by {option}; name it once.")
    inputs = [name for name in frame.columns if name not in roles]
    if not inputs and not labels:
        raise DataError(f"no column of {str(path)!r} is left as an input; its columns are {listed(frame.columns)}.")
    return inputs, list(dict.fromkeys(labels))


def _classifies(frame: pd.DataFrame, targets: Sequence[str], task: str) -> bool:
    is_text = frame[targets[0]].dtype.kind not in "iuf"
    is_auto = task == "auto" and len(targets) == 1
    classifies = task == "classify" or (is_auto and is_text and _holds_words(frame[targets[0]]))
    if classifies and len(targets) > 1:
        raise OptionError(f"{len(targets)} targets given with classes; a classifier has one --target.")
    return classifies


def _check_labels(column: pd.Series, path: Path) -> None:
    """Text that was not declared to be classes must look like labels: numbers with other signs, dates and names of
    rows would each be a class.
    """
    found, n_labels, n_rows = marked_number(column), column.nunique(), int(column.notna().sum())
    if found is not None:
        raise DataError(
            f"the target {column.name!r} of {str(path)!r} holds numbers with other signs, such as {found[0]!r} in line "
            f"{found[1]}; {PLAIN}, or add --task classify if they are labels."
        )
    if n_labels > max(FEW_LABELS, n_rows // 2):
        cell, line = str(column.dropna().iloc[0]), int(np.flatnonzero(column.notna())[0]) + 2
        raise DataError(
            f"the target {column.name!r} of {str(path)!r} holds text, such as {cell!r} in line {line}, with {n_labels} "
            f"different values in {n_rows} rows; expected numbers, or labels that repeat: correct the column, or add "
            "--task classify."
        )


def _holds_words(column: pd.Series) -> bool:
    """Whether a text column holds classes; a few words among numbers are mistakes in a column of numbers."""
    column = column.dropna()
    return column.dtype.kind == "b" or bool(pd.to_numeric(column, errors="coerce").isna().mean() > 0.5)


def run_fit(
    terminal: Terminal, source: Source, targets: Sequence[str], output: Path, model: RowModel, report: Path | None
) -> None:
    """Fit a model to a table and write it to a file."""
    check_output(output, MODEL_FILE, "-o")
    check_output(report, PAGE, "--report")
    rows = read_rows(source, targets)
    fitted, seconds = fitted_to(terminal, rows, model)
    fitted.save(output)
    if report is not None:
        fitted.report(report)
    kind = "classification" if rows.classifies else "regression"
    answer = {
        **{"model": str(output), "class": type(fitted).__name__, "task": kind, "rows": len(rows.X)},
        **{"inputs": list(rows.X.columns), "targets": list(rows.y.columns), "status": fitted.status_},
        **{"seconds": round(seconds, 2), "report": None if report is None else str(report)},
    }
    words = (
        f"{kind} of {listed(rows.y.columns)} from {counted(rows.X.shape[1], 'input')}, {counted(len(rows.X), 'row')}, "
        f"{seconds:.1f} s\n"
        f"{fitted.status_}\nmodel written to {output}"
    )
    terminal.result(answer, words + ("" if report is None else f", report to {report}"))


def fitted_to(terminal: Terminal, rows: Rows, model: RowModel) -> tuple[Any, float]:
    """The model fitted to rows, and how many seconds it took."""
    estimator = built(model, rows.classifies, terminal.verbose)
    if not rows.classifies:
        _hint_at_classes(terminal, rows.y)
    _hint_at_ids(terminal, rows.X)
    enable_compilation_cache()
    start = time.perf_counter()
    y = rows.y.iloc[:, 0] if rows.y.shape[1] == 1 else rows.y
    return estimator.fit(rows.X, y), time.perf_counter() - start


def _hint_at_classes(terminal: Terminal, y: pd.DataFrame) -> None:
    for name in y.columns:
        if y[name].nunique() == 2:
            terminal.note(f"Note: target {name!r} has two values; to treat them as classes, add --task classify.")


def _hint_at_ids(terminal: Terminal, X: pd.DataFrame) -> None:
    for name in X.columns:
        values = X[name].to_numpy(float)
        if len(values) > FEW_LABELS and (values % 1.0 == 0.0).all() and (np.diff(values) > 0.0).all():
            terminal.note(
                f"Note: the input {name!r} is a whole number that grows from row to row; if it is an id, leave it out "
                f"with --drop {shlex.quote(name)}."
            )


# --- prediction ------------------------------------------------------------------------------


def run_predict(
    terminal: Terminal, model: Path, source: Source, output: Path | None, quantiles: Sequence[str], keep: bool
) -> None:
    """Predict the rows of a table and write them beside its columns."""
    check_table_output(terminal, output, "predictions")
    levels = checked_levels(quantiles)
    fitted = regressor_of(model)
    frame = source.table()
    X = inputs_of(fitted, frame, source)
    _note_far_rows(terminal, fitted, X)
    parts = []
    with terminal.progress("predict", len(X)) as advance:
        for start in range(0, len(X), BLOCK):
            parts.append(predictions(fitted, X.iloc[start : start + BLOCK], levels))
            advance(len(parts[-1]))
    found = pd.concat(parts)
    write_table(pd.concat([frame.loc[found.index], found], axis=1) if keep else found, output)
    if output is not None:
        answer = {"predictions": str(output), "rows": len(found), "columns": list(found.columns)}
        terminal.result(answer, f"{counted(len(found), 'row')} written to {output}: {', '.join(found.columns)}")


def check_table_output(terminal: Terminal, output: Path | None, what: str) -> None:
    """A table goes to a file, or to standard output unless the answer goes there."""
    check_output(output, TABLES, "-o")
    if output is None and terminal.as_json:
        raise OptionError(f"--json given without -o; name a file for the {what}.")


def checked_levels(quantiles: Sequence[str]) -> list[float]:
    """Probabilities between 0 and 1, sorted; several may be in one text, with commas between."""
    levels = [_level(text) for texts in quantiles for text in texts.split(",") if text.strip()]
    if quantiles and not levels:
        raise OptionError("--quantile names no probability; expected such as --quantile 0.1,0.9.")
    return sorted(set(levels))


def _level(text: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = math.nan
    if not 0.0 < level < 1.0:
        raise OptionError(f"--quantile {text.strip()} given; expected probabilities between 0 and 1, such as 0.05.")
    return level


def loaded(path: Path) -> Any:
    """The estimator of a model file; a table in its place is named as such."""
    if path.name.lower().endswith((*TEXT, *PARQUET)):
        raise ModelFileError(f"{str(path)!r} is a table; expected a model file, as written by `wishflow fit`.")
    if not path.exists():
        raise ModelFileError(f"there is no model file {str(path)!r}; check the path.{similar_files(path)}")
    return load(path)


def regressor_of(path: Path) -> Any:
    """The regressor or classifier of a model file."""
    fitted = loaded(path)
    if isinstance(fitted, WishartForecaster):
        raise ModelFileError(
            f"{str(path)!r} holds a WishartForecaster, which does not predict rows of a table; use "
            f"`wishflow forecast --from {path}`."
        )
    enable_compilation_cache()
    return fitted


def inputs_of(fitted: Any, frame: pd.DataFrame, source: Source) -> pd.DataFrame:
    """The columns that a model was fitted to, in its order; others are left out."""
    names, path = getattr(fitted, "feature_names_in_", None), source.path
    if names is None:
        raise ModelFileError(
            f"the model was fitted to an array of {fitted.n_features_in_} columns without names, so columns of "
            f"{str(path)!r} cannot be found by name; fit it to a DataFrame, or use `wishflow fit`."
        )
    made_of = sources(list(names), frame)
    # Inputs that were made of labels are named by the column that is to hold them.
    missing = list(dict.fromkeys(name.partition("=")[0] for name in names if name not in made_of))
    if missing:
        raise DataError(
            f"{str(path)!r} lacks {listed(missing)}; the model was fitted to the columns {listed(names)}: add "
            f"{'it' if len(missing) == 1 else 'them'}, or fit without."
        )
    X = numbers(with_indicators(frame, made_of, path), list(names), path, "correct the cells")
    kept = without_missing(frame[list(dict.fromkeys(made_of.values()))], path, source.drop_missing, may_drop=False)
    return X.loc[kept.index]


def _note_far_rows(terminal: Terminal, fitted: Any, X: pd.DataFrame) -> None:
    with np.errstate(over="ignore"):
        distance = np.abs(fitted.x_scaler_.forward(X.to_numpy()))
    is_far = distance > FAR
    if is_far.any():
        worst = str(X.columns[int(is_far.sum(axis=0).argmax())])
        terminal.note(
            f"Warning: {int(is_far.any(axis=1).sum())} of {len(X)} rows lie more than {FAR:g} standard deviations "
            f"from the training data (mostly in {worst!r}); predictions there fall back on the prior."
        )


def predictions(fitted: Any, X: pd.DataFrame, levels: Sequence[float]) -> pd.DataFrame:
    """Mean, sd and quantiles of each target, or the class and the probabilities of all."""
    return fitted.predict_frame(X) if hasattr(fitted, "classes_") else fitted.predict_frame(X, levels)
