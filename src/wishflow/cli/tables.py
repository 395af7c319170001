"""Tables of users: CSV and Parquet files in and out, columns by name, numbers and time stamps."""

from __future__ import annotations

import difflib
import io
import shlex
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import DataError, OptionError
from ..files.writing import write_bytes_atomic
from .options import Reading
from .text_files import TEXT, first_line, read_text

PARQUET = (".parquet", ".pq")
# What tables and reports are written as.
TABLES, PAGE = (".csv", ".tsv", *PARQUET), (".html",)
MONTHS = 12
# How similar the name of another file must be to be suggested.
NEAR = 0.75
DATE = r"\s*\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(?:[ T].*)?"
# Dates that are written as whole numbers, by their digits.
COMPACT_DATES = {8: "%Y%m%d", 6: "%Y%m"}
# Numbers with a currency, a percent sign or thousands: $1,234.50, 12 %, 1'234.50 CHF.
DIGITS = r"(?:\d+|\d{1,3}(?:[.,'\s]\d{3})+)(?:[.,]\d*)?"
CURRENCIES = "[$€£¥₹]|USD|EUR|GBP|JPY|CHF|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|TRY|BRL|MXN|ZAR|KRW|SGD|HKD"
MARKED = rf"\s*(?:{CURRENCIES})?\s*[+-]?\s*{DIGITS}\s*(?:{CURRENCIES}|%)?\s*"
PLAIN = "expected plain numbers such as 1234.5: remove currency signs, percent signs and thousands separators"


# --- files -----------------------------------------------------------------------------------


def read_table(path: Path, reading: Reading) -> pd.DataFrame:
    """The table of a file, CSV or Parquet by its extension."""
    if not path.exists():
        raise DataError(f"there is no file {str(path)!r}; check the path.{similar_files(path)}")
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder; expected one CSV or Parquet file.")
    if path.suffix.lower() in PARQUET:
        frame = _read_parquet(path)
    elif path.name.lower().endswith(TEXT):
        frame = read_text(path, reading)
    else:
        raise DataError(f"{str(path)!r} has the extension {path.suffix!r}; expected .csv, .tsv or .parquet.")
    if not len(frame):
        raise DataError(f"{str(path)!r} has no rows below its header; expected at least one.")
    _check_names(frame, path)
    return frame


def similar_files(path: Path) -> str:
    """The question whether a file with a similar name was meant; nothing where there is none."""
    known = [other.name for other in path.parent.glob("*")] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, known, 1, NEAR)
    return f" Did you mean {near[0]!r}?" if near else ""


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise DataError(f"{_needs_pyarrow(path)} give CSV.") from None
    except Exception as error:  # pyarrow reports damage by errors of its own
        raise DataError(f"{str(path)!r} cannot be read as Parquet ({first_line(error)}).") from error
    # pandas keeps an index beside the columns; here it is a column like the others.
    return frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()


def _check_names(frame: pd.DataFrame, path: Path) -> None:
    names = [str(name) for name in frame.columns]
    frame.columns = pd.Index(names)
    if all(_is_number(name) for name in names) and len(names) > 1:
        raise DataError(
            f"the first line of {str(path)!r} holds numbers ({', '.join(names[:3])}, …); expected the names of the "
            "columns: add a header."
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_output(path: Path | None, extensions: Sequence[str], what: str) -> None:
    """An output that cannot be written is found before the work is done."""
    if path is None:
        return
    if extensions and not path.name.lower().endswith(tuple(extensions)):
        expected = " or ".join(filter(None, [", ".join(extensions[:-1]), extensions[-1]]))
        raise OptionError(f"{what} {str(path)!r} has the extension {path.suffix!r}; expected {expected}.")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"{what} {str(path)!r} is in a folder that does not exist; make it first.")
    if path.is_dir():
        raise OptionError(f"{what} {str(path)!r} is a folder; expected the name of a file.")
    if path.suffix.lower() in PARQUET and find_spec("pyarrow") is None:
        raise DataError(f"{what} {_needs_pyarrow(path)} write CSV.")


def _needs_pyarrow(path: Path) -> str:
    return f"{str(path)!r} needs the package pyarrow; install it (pip install 'wishflow[parquet]'), or"


def write_table(frame: pd.DataFrame, path: Path | None) -> None:
    """Write a table to a file by its extension, or as CSV to standard output."""
    if path is None:
        print(frame.to_csv(index=False), end="")
        return
    if path.suffix.lower() in PARQUET:
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        write_bytes_atomic(path, buffer.getvalue())
    else:
        sep = "\t" if path.suffix.lower() == ".tsv" else ","
        write_bytes_atomic(path, frame.to_csv(index=False, sep=sep).encode())


# --- columns ---------------------------------------------------------------------------------


def check_columns(frame: pd.DataFrame, names: Sequence[str], path: Path, what: str) -> None:
    """Every name must be a column; an error names the nearest one."""
    for name in names:
        if name in frame.columns:
            continue
        known = {str(column).strip().lower(): column for column in frame.columns}
        near = difflib.get_close_matches(name.strip().lower(), list(known), 1, 0.5)
        hint = f" Did you mean {known[near[0]]!r}?" if near else ""
        raise DataError(f"{what} {name!r} is not a column of {str(path)!r}, which has {listed(frame.columns)}.{hint}")


def split_names(given: Sequence[str] | None, frame: pd.DataFrame) -> list[str]:
    """Names of columns, several of them in one text with commas between; a column whose name has commas is one."""
    found = []
    for text in given or []:
        found += [text] if text in frame.columns else [name.strip() for name in text.split(",") if name.strip()]
    return found


def listed(names: Any, most: int = 8) -> str:
    """Names in quotes, the first ones of many."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(str(name)) for name in names[:most]) + more


def counted(number: int, name: str) -> str:
    """A number of things: 1 row, 2 rows."""
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def marked_number(column: pd.Series) -> tuple[str, int] | None:
    """Of a column whose cells are all numbers with other signs, the first such cell and its line; None for others."""
    cells = column.dropna().astype(str)
    if not len(cells) or not cells.str.fullmatch(MARKED).all():
        return None
    row = int(np.flatnonzero(column.notna() & pd.to_numeric(column, errors="coerce").isna())[0])
    return str(column.iloc[row]), row + 2


def numbers(frame: pd.DataFrame, names: Sequence[str], path: Path, remedy: str) -> pd.DataFrame:
    """These columns as float64; text in them is an error that names the column, the value and its line."""
    for name in names:
        if frame[name].dtype.kind in "iufb":
            continue
        if frame[name].dtype.kind in "mM":
            raise DataError(f"column {name!r} of {str(path)!r} holds dates; expected numbers: {remedy}.")
        bad = pd.to_numeric(frame[name], errors="coerce").isna() & frame[name].notna()
        if not bad.any():
            continue
        row = int(np.flatnonzero(bad)[0])
        is_text = bool(bad.mean() > 0.5)
        share = "text" if is_text else f"text in {int(bad.sum())} of {len(bad)} rows"
        what = remedy if is_text else "correct these cells, or leave them empty"
        raise DataError(
            f"column {name!r} of {str(path)!r} holds {share}, such as {str(frame[name].iloc[row])!r} in line "
            f"{row + 2}; expected numbers: {what}."
        )
    found = frame[list(names)].apply(pd.to_numeric).astype(float)
    for name in names:
        if np.isinf(found[name]).any():
            row = int(np.flatnonzero(np.isinf(found[name]))[0])
            raise DataError(f"column {name!r} of {str(path)!r} holds infinity in line {row + 2}; leave the cell empty.")
    return found


def without_missing(
    frame: pd.DataFrame, path: Path, drop: bool, targets: Sequence[str] = (), may_drop: bool = True
) -> pd.DataFrame:
    """Rows without empty cells; an error names the column with most of them unless they are dropped.

    `may_drop` says whether columns can be left out too.
    """
    holes = frame.isna()
    if not holes.any(axis=None):
        return frame
    if not drop:
        worst = str(holes.sum().idxmax())
        row = int(np.flatnonzero(holes[worst])[0])
        share = f"{int(holes[worst].sum())} of {len(frame)} rows (line {row + 2} first)"
        said = f"{worst!r} of {str(path)!r} is empty in {share}"
        if worst in targets:
            raise DataError(f"the target {said}; leave these rows out with --drop-missing.")
        column = (
            f"leave the column out (--drop {shlex.quote(worst)}), or the rows" if may_drop else "or leave the rows out"
        )
        raise DataError(f"column {said}; fill the cells, {column} (--drop-missing).")
    kept = frame[~holes.any(axis=1)]
    if not len(kept):
        raise DataError(f"every row of {str(path)!r} has an empty cell; leave columns out with --drop.")
    return kept


# --- time ------------------------------------------------------------------------------------


def time_index(frame: pd.DataFrame, name: str, path: Path, date_format: str | None = None) -> pd.Index:
    """A column as stamps: numbers stay numbers unless a format of dates is given, text must be dates."""
    column = frame[name]
    if column.isna().any():
        row = int(np.flatnonzero(column.isna())[0])
        raise DataError(f"the time column {name!r} of {str(path)!r} is empty in line {row + 2}; remove the row.")
    if column.dtype.kind in "iu" and date_format is not None:
        column = _digits(column, date_format)
    if column.dtype.kind in "iufM":
        _warn_of_compact_dates(column, name, path)
        return pd.Index(column, name=name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            stamps = _parsed(column, date_format)
        except DataError:
            raise
        except (UserWarning, ValueError):
            raise DataError(_no_dates(column, name, path, date_format)) from None
    return pd.DatetimeIndex(stamps, name=name)


def _warn_of_compact_dates(column: pd.Series, name: str, path: Path) -> None:
    """Whole numbers such as 20240131 stay numbers: the next one is 20240132."""
    form = COMPACT_DATES.get(len(str(column.iloc[0]))) if column.dtype.kind in "iu" else None
    if form is None:
        return
    stamps = pd.to_datetime(column.astype(str), format=form, errors="coerce")
    if stamps.dt.year.between(1900, 2100).all():
        warnings.warn(
            f"the time column {name!r} of {str(path)!r} holds numbers such as {column.iloc[0]}, which are not read as "
            f"dates; if they are dates, add --date-format {form}.",
            stacklevel=3,
        )


def _digits(column: pd.Series, date_format: str) -> pd.Series:
    """Whole numbers as dates of this format are written: 1022024 lost the zero at its beginning."""
    return column.astype(str).str.zfill(len(pd.Timestamp(0).strftime(date_format)))


def _parsed(column: pd.Series, date_format: str | None) -> Any:
    day_first = date_format is None and _has_day_first(column)
    try:
        return pd.to_datetime(column, format=date_format, dayfirst=day_first)
    except (ValueError, FutureWarning) as error:  # a warning before pandas 3
        if "utc=True" not in str(error):  # clocks that change in summer have two offsets
            raise
        return pd.to_datetime(column, format=date_format, utc=True, dayfirst=day_first)


def _has_day_first(column: pd.Series) -> bool:
    """Whether dates such as 31.01.2024 begin with the day; pandas would take 01.02.2024 for the second of January."""
    parts = column.astype(str).str.extract(r"^\s*(\d{1,2})[./-](\d{1,2})[./-]\d{4}").astype(float)
    if not parts.notna().all(axis=None):
        return False
    first, second = parts.max()
    if max(first, second) <= MONTHS:
        raise DataError(
            f"dates such as {str(column.iloc[0])!r} may begin with the day or with the month; give the format, for "
            "example --date-format '%d.%m.%Y %H:%M'."
        )
    return bool(first > MONTHS)


def _no_dates(column: pd.Series, name: str, path: Path, date_format: str | None) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bad = pd.to_datetime(column, format=date_format, errors="coerce").isna()
    if bad.all() or not bad.any():
        example = f"{str(column.iloc[0])!r} in line 2"
    else:
        row = int(np.flatnonzero(bad)[0])
        example = f"{str(column.iloc[row])!r} in line {row + 2}"
    wanted = "dates such as 2024-01-31 13:00" if date_format is None else f"dates of the form {date_format}"
    return (
        f"the time column {name!r} of {str(path)!r} cannot be read at {example}; expected {wanted}: correct the cell, "
        "or give the format of the dates, such as --date-format '%d.%m.%Y %H:%M'."
    )


def guessed_time(frame: pd.DataFrame, path: Path, date_format: str | None = None) -> str:
    """The only column that holds dates; of several the only one without empty cells."""
    candidates = [name for name in frame.columns if _holds_dates(frame[name], date_format)]
    whole = [name for name in candidates if frame[name].notna().all()]
    candidates = whole or candidates
    if len(candidates) == 1:
        return str(candidates[0])
    what = "no column holds dates" if not candidates else f"several columns hold dates ({listed(candidates)})"
    raise DataError(f"{what} in {str(path)!r}; name the column of the time stamps with --time.")


def _holds_dates(column: pd.Series, date_format: str | None) -> bool:
    """Whether the first cells are dates, or most of them look like dates: `time_index` says what is wrong with them."""
    if column.dtype.kind == "M":
        return True
    cells = column.dropna().iloc[:20]
    if not len(cells) or column.dtype.kind in ("fb" if date_format is not None else "iufb"):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if date_format is not None and column.dtype.kind in "iu":
            return bool(pd.to_datetime(_digits(cells, date_format), format=date_format, errors="coerce").notna().all())
        cells = cells.astype(str)
        are_dates = cells.str.contains(r"\d") & pd.to_datetime(cells, errors="coerce").notna()  # "may" is a label
    return bool(are_dates.all() or cells.str.fullmatch(DATE).mean() > 0.5)
