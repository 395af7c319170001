"""Columns of labels as columns of 0 and 1. Their names, COLUMN=LABEL, are all that a model file has to know."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ..errors import DataError
from .tables import PLAIN, listed, marked_number

# More labels than this are rather names of rows.
MOST_LABELS = 50


def indicators(frame: pd.DataFrame, names: Sequence[str], path: Path) -> pd.DataFrame:
    """A column for each label of these columns, which is 1 in the rows that have it."""
    columns: dict[str, pd.Series] = {}
    for name in names:
        cells = _as_labels(frame[name])
        labels = sorted(cells.unique())
        if not 2 <= len(labels) <= MOST_LABELS:
            count = "one label" if len(labels) == 1 else f"{len(labels)} labels in {len(frame)} rows"
            raise DataError(
                f"--categories {name!r}: the column of {str(path)!r} has {count}; expected 2 to {MOST_LABELS}: leave "
                "it out with --drop."
            )
        columns |= {f"{name}={label}": (cells == label).astype(float) for label in labels}
    return pd.DataFrame(columns, frame.index)


def sources(names: Sequence[str], frame: pd.DataFrame) -> dict[str, str]:
    """The column of a table that each input of a model is, or whose labels it is made of; those that are there."""
    found = {}
    for name in names:
        made_of = [column for column in frame.columns if name == column or name.startswith(f"{column}=")]
        if made_of:
            found[name] = max(made_of, key=len)
    return found


def with_indicators(frame: pd.DataFrame, made_of: dict[str, str], path: Path) -> pd.DataFrame:
    """The table with the indicators of a model; labels that the model does not know are an error."""
    labels: dict[str, list[str]] = {}
    for name, source in made_of.items():
        if name != source:
            labels.setdefault(source, []).append(name.removeprefix(f"{source}="))
    columns: dict[str, pd.Series] = {}
    for source, known in labels.items():
        cells = _as_labels(frame[source])
        is_new = frame[source].notna() & ~cells.isin(known)
        if is_new.any():
            row = int(np.flatnonzero(is_new)[0])
            raise DataError(
                f"column {source!r} of {str(path)!r} holds {cells.iloc[row]!r} in line {row + 2}; the model knows "
                f"{listed(known)}: correct the cell, remove the row, or fit to rows with this label."
            )
        columns |= {f"{source}={label}": (cells == label).astype(float) for label in known}
    return frame.assign(**columns)


def check_inputs(frame: pd.DataFrame, names: Sequence[str], path: Path) -> None:
    """Columns of text among the inputs: an error names all of them, and what to do with each."""
    texts = [name for name in names if _holds_text(frame[name])]
    if not texts:
        return
    for name in texts:
        found = marked_number(frame[name])
        if found is not None:
            raise DataError(
                f"column {name!r} of {str(path)!r} holds numbers with other signs, such as {found[0]!r} in line "
                f"{found[1]}; {PLAIN}, or leave the column out ({_options('--drop', [name])})."
            )
    few = [name for name in texts if frame[name].nunique() <= min(MOST_LABELS, len(frame) // 4)]
    others = [name for name in texts if name not in few]
    ways = []
    if few:
        ways.append(f"turn labels into inputs ({_options('--categories', few)})")
    ways.append(f"leave columns out ({_options('--drop', others or few)})")
    said = (", and " if few and others else ", or ").join(ways)
    row = int(np.flatnonzero(frame[texts[0]].notna())[0])
    raise DataError(
        f"column{'' if len(texts) == 1 else 's'} {listed(texts)} of {str(path)!r} hold{'s' if len(texts) == 1 else ''} "
        f"text, such as {str(frame[texts[0]].iloc[row])!r} in line {row + 2}; expected numbers: {said}."
    )


def _as_labels(column: pd.Series) -> pd.Series:
    """Cells as text; whole numbers are the same with empty cells among them, which make them floats, and without."""
    is_whole = column.dtype.kind == "f" and bool((column.dropna() % 1 == 0).all())
    return (column.astype("Int64") if is_whole else column).astype(str)


def _options(option: str, names: Sequence[str]) -> str:
    return " ".join(f"{option} {shlex.quote(name)}" for name in names)


def _holds_text(column: pd.Series) -> bool:
    """Whether most cells are no numbers; a few among numbers are mistakes in a column of numbers."""
    if column.dtype.kind in "iufbmM":
        return False
    is_text = pd.to_numeric(column, errors="coerce").isna() & column.notna()
    return bool(is_text.mean() > 0.5)
