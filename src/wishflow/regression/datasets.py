"""Fits to, and predictions of, tables that do not fit into memory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import likelihoods, specs
from ..errors import DataError, OptionError
from ..files.writing import remove_left_over, sync_folder, temporary_of
from ..likelihoods import LIKELIHOODS, LikelihoodSpec
from ..numerics.devices import computing
from ..numerics.meshes import n_processes, process_number
from ..numerics.scaling import Scaler
from ..specs import checks
from .problems import Problem
from .streams import RowStream, Scales
from .tables import Table, batches_of, numbers_of, opened, summary_of

# Fewer rows than this in each part are for `fit`.
LEAST_ROWS = 100


def problem_of_dataset(estimator: Any, source: Any, target: Any, columns: Any, n_parts: Any) -> Problem:
    """What is to be trained on a table; scales come from all rows, all else from a sample."""
    n_parts = checks.positive_int("n_parts", n_parts)
    if checks.positive_int("n_members", estimator.n_members) > 1:
        raise OptionError(f"n_members={estimator.n_members} given to fit_dataset; expected 1: members need all rows.")
    targets = [target] if isinstance(target, str) else list(target)
    table = Table.open(source, targets, columns)
    if table.n_rows < LEAST_ROWS * n_parts:
        raise DataError(
            f"the data have {table.n_rows} rows; expected at least {LEAST_ROWS * n_parts} for n_parts={n_parts}: use "
            "fit, or fewer parts."
        )
    likelihood = specs.resolve("likelihood", estimator.likelihood, LIKELIHOODS, LikelihoodSpec)
    check = likelihoods.build(likelihood, len(targets)).validate
    seed = checks.fixed_seed(estimator.random_state)
    with computing():
        summary = summary_of(table, seed, check)
    n, scaler = table.n_inputs, summary.moments.scaler()
    frame = pd.DataFrame(summary.rows, columns=list(table.columns))
    X, y = frame[list(table.columns[:n])], frame[target if isinstance(target, str) else targets]
    scalers = Scaler(scaler.mean[:n], scaler.scale[:n]), Scaler(scaler.mean[n:], scaler.scale[n:])
    problem = estimator._prepare(X, y, n_rows=table.n_rows, scalers=scalers)
    scales = Scales(estimator.x_scaler_, estimator.y_scaler_, estimator.directions_)
    batch_rows, without = problem.training.batch_size, np.zeros(0, int)
    stream = RowStream(table, scales, batch_rows, n_parts, seed, without, summary.fingerprint)
    return dataclasses.replace(problem, stream=stream, index=summary.index)


def predicted_dataset(model: Any, source: Any, destination: Any, alpha: Any, keep: Sequence[str]) -> Path:
    """Predictions of each file of a table, as a file of their own."""
    dataset, folder = opened(source), Path(destination)
    inputs = list(getattr(model, "feature_names_in_", ())) or _all_but(dataset, model, keep)
    missing = [name for name in [*inputs, *keep] if name not in dataset.schema.names]
    if missing:
        raise DataError(f"there is no column {missing[0]!r}; expected one of {dataset.schema.names}.")
    _check_destination(folder, source)
    folder.mkdir(parents=True, exist_ok=True)
    for number, fragment in enumerate(dataset.get_fragments()):
        if number % n_processes() == process_number():
            batches = batches_of(fragment, list(dict.fromkeys([*keep, *inputs])), dataset.schema)
            parts = (_predicted(model, batch, inputs, alpha, keep) for batch in batches if batch.num_rows)
            _write_parts(folder / f"part-{number:06d}.parquet", parts)
    return folder


def _check_destination(folder: Path, source: Any) -> None:
    """Predictions must replace no data, be no part of them, and not mix with those of another call."""
    if (
        isinstance(source, str | Path)
        and Path(source).is_dir()
        and folder.resolve().is_relative_to(Path(source).resolve())
    ):
        raise OptionError(
            f"the destination {str(folder)!r} lies in the source {str(source)!r}; expected a folder outside of it: "
            "predictions would be read as data."
        )
    if n_processes() == 1 and any(folder.glob("part-*.parquet")):
        raise OptionError(
            f"the destination {str(folder)!r} holds predictions already; expected a new folder, or remove its "
            "part-*.parquet first: parts of two models would be read as one."
        )


def _predicted(model: Any, batch: Any, inputs: list[str], alpha: Any, keep: Sequence[str]) -> Any:
    """Predictions of some rows as a table of Arrow, after the columns that are kept."""
    import pyarrow as pa

    X = pd.DataFrame(numbers_of(batch, inputs), columns=inputs)
    found = pa.Table.from_pandas(model.predict_frame(X, alpha), preserve_index=False)
    for name in reversed(keep):
        found = found.add_column(0, name, batch.column(name))
    return found


def _write_parts(path: Path, parts: Iterator[Any]) -> None:
    """Tables of Arrow as one Parquet file, which has its name when it is complete."""
    import pyarrow.parquet as pq

    remove_left_over(path)
    partial, writer = temporary_of(path), None
    try:
        for part in parts:
            writer = pq.ParquetWriter(partial, part.schema) if writer is None else writer
            writer.write_table(part)
        if writer is not None:
            writer.close()
            with open(partial, "r+b") as file:
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync_folder(path.parent)
    except BaseException:
        if writer is not None:
            writer.close()
        partial.unlink(missing_ok=True)
        raise


def _all_but(dataset: Any, model: Any, keep: Sequence[str]) -> list[str]:
    """The inputs of a model that was fitted to arrays: all columns, in their order, that are not kept aside."""
    names = [name for name in dataset.schema.names if name not in keep]
    if len(names) != model.n_features_in_:
        raise DataError(
            f"the data have {len(names)} columns besides those to keep, and the model {model.n_features_in_} "
            "inputs without names; expected the same number: fit to a frame, or select the columns."
        )
    return names
