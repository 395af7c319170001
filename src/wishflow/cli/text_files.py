"""CSV files as they come: encodings, separators, decimal commas, and the row numbers that pandas writes."""

from __future__ import annotations

import gzip
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from ..errors import DataError, OptionError
from .options import Reading

TEXT = (".csv", ".csv.gz", ".tsv", ".txt")
SEPARATORS = (",", ";", "\t", "|")
DECIMALS = (".", ",")
# Words for missing values that pandas does not know.
MISSING = ("?", "-", "--", "missing", "Missing", "NaT")
QUOTED = re.compile(r'"[^"]*"')
DECIMAL_COMMA = r"[+-]?\d+(?:,\d+)?"
# Three digits behind every comma: thousands in English, thousandths elsewhere.
UNCLEAR = r"[+-]?(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)"
DECIMAL_POINT = r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?"
# Three digits behind every point: thousandths in English, thousands elsewhere.
POINTED = r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+"
# Numbers whose decimal sign is a point, with or without commas between thousands: 1,234.5
WITH_COMMAS = r"[+-]?(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d*)?"
# Numbers whose decimal sign is a comma, with or without points between thousands: 1.234,5
WITH_THOUSANDS = rf"(?:{POINTED}|[+-]?\d+)(?:,\d+)?"
# The names that pandas gives to columns without one.
UNNAMED = "Unnamed: "
RAGGED = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")


def read_text(path: Path, reading: Reading) -> pd.DataFrame:
    """The table of a text file; separator and decimal sign are found in the file unless they are named."""
    if reading.decimal not in (None, *DECIMALS):
        raise OptionError(f"--decimal {reading.decimal!r} given; expected '.' or ','.")
    try:
        separator = reading.separator or separator_of(path, reading.encoding)
        frame = _parsed(path, separator, reading.decimal or ".", reading.encoding)
        decimal = reading.decimal or _decimal_of(frame, path, separator, reading.encoding)
        if reading.decimal is None and decimal == ",":
            frame = _parsed(path, separator, ",", reading.encoding)
    except pd.errors.EmptyDataError:
        raise DataError(f"{str(path)!r} is empty; expected a header with the names of the columns.") from None
    except UnicodeError:
        raise DataError(
            f"{str(path)!r} is not text in {reading.encoding or 'UTF-8'}; give its encoding, such as --encoding cp1252 "
            "(spreadsheets on Windows), or save it as CSV in UTF-8."
        ) from None
    except LookupError:
        raise OptionError(f"--encoding {reading.encoding!r} is unknown; expected a name such as cp1252.") from None
    except DataError:
        raise
    except (pd.errors.ParserError, ValueError) as error:
        raise DataError(_said_of(error, path, separator)) from error
    if not frame.index.equals(pd.RangeIndex(len(frame))):  # pandas takes the first cells for names of the rows
        names = ", ".join(map(str, frame.columns))
        raise DataError(
            f"the rows of {str(path)!r} have more cells than the header has names ({names}); name all columns, remove "
            "lines above the header, or give the separator, such as --separator ';'."
        )
    if decimal == ",":
        frame = _with_thousands(frame, path, is_named=reading.decimal is not None)
    elif reading.decimal is not None or _has_commas_between_thousands(frame):
        frame = _without_commas(frame)
    _warn_of_equal_names(frame, path, separator, reading.encoding)
    return _without_row_numbers(_without_empty_columns(frame, path), path)


def separator_of(path: Path, encoding: str | None = None) -> str:
    """The sign that the header has most of, outside of quotes; a comma where it has none."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding=encoding or "utf-8") as file:
        header = QUOTED.sub("", next((line for line in file if line.strip()), ""))
    return max(SEPARATORS, key=header.count)  # of equal counts the first


def _decimal_of(frame: pd.DataFrame, path: Path, separator: str, encoding: str | None) -> str:
    """The decimal sign of a file, by its table read with points.

    It is a comma where a column holds nothing but numbers such as 12,5, else a point. An error asks for the sign where
    these numbers may have thousands behind the comma, where other cells have decimal points, and where commas separate
    the columns too. In a file with commas between columns and with decimal points they are text. A column with numbers
    such as 1,234.5 says that commas separate thousands.
    """
    if _has_commas_between_thousands(frame):
        return "."
    texts = [cells for cells in _texts(frame).values() if _is_all(cells, DECIMAL_COMMA, ",")]
    if not texts:
        return "."
    example = next(cell for cell in texts[0] if "," in cell)
    if all(cells.str.fullmatch(UNCLEAR).all() for cells in texts):
        raise DataError(
            f"numbers such as {example!r} of {str(path)!r} may have thousands or decimals after the comma; give the "
            "decimal sign: --decimal '.' if commas separate thousands, else --decimal ','."
        )
    point = _decimal_point(_parsed(path, separator, ".", encoding, dtype=str))
    if separator == "," and point is not None:
        return "."
    if separator == "," or point is not None:
        beside = f"cells such as {point!r}" if point is not None else "commas between its columns"
        raise DataError(
            f"{str(path)!r} has cells such as {example!r} beside {beside}; give its decimal sign: the comma "
            "(--decimal ',') or the point (--decimal '.', which leaves 0,5 as text and takes 1,234 for thousands)."
        )
    return ","


def _parsed(path: Path, separator: str, decimal: str, encoding: str | None, dtype: type | None = None) -> pd.DataFrame:
    return pd.read_csv(
        path,
        sep=separator,
        decimal=decimal,
        encoding=encoding,
        na_values=list(MISSING),
        skipinitialspace=True,
        dtype=dtype,
        low_memory=False,  # else long columns are read in pieces, numbers of some and text of others
    )


def _texts(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """The cells that are not empty of each column of text."""
    names = [name for name in frame.columns if frame[name].dtype.kind not in "iufbM"]
    return {name: frame[name].dropna().astype(str).str.strip() for name in names}


def _is_all(cells: pd.Series, pattern: str, sign: str) -> bool:
    """Whether all cells have this form, and some of them this sign."""
    return bool(cells.str.contains(sign, regex=False).any() and cells.str.fullmatch(pattern).all())


def _decimal_point(raw: pd.DataFrame) -> str | None:
    """The first cell whose point can only be a decimal point, of a table of text."""
    for cells in _texts(raw).values():
        found = cells[cells.str.fullmatch(DECIMAL_POINT) & ~cells.str.fullmatch(POINTED)]
        if len(found):
            return str(found.iloc[0])
    return None


def _has_commas_between_thousands(frame: pd.DataFrame) -> bool:
    """Whether a column holds nothing but numbers such as 1,234.5, some of them with both signs."""
    return any(
        _is_all(cells, WITH_COMMAS, ",") and bool(cells.str.contains(r",\d{3}\.").any())
        for cells in _texts(frame).values()
    )


def _without_commas(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns such as 1,234 and 1,234.5 as numbers."""
    found = frame.copy()
    for name, cells in _texts(frame).items():
        if _is_all(cells, WITH_COMMAS, ","):
            found[name] = pd.to_numeric(cells.str.replace(",", "", regex=False)).reindex(frame.index)
    return found


def _with_thousands(frame: pd.DataFrame, path: Path, is_named: bool) -> pd.DataFrame:
    """Columns such as 1.234 as numbers beside decimal commas in the same column or by name of the sign, else an error.

    Left as text, 1.234 would later be read with a decimal point.
    """
    frame = frame.copy()
    for name, cells in _texts(frame).items():
        pointed = cells[cells.str.fullmatch(POINTED)]
        if _is_all(cells, WITH_THOUSANDS, "."):
            if not is_named and not cells.str.contains(",", regex=False).any():
                raise DataError(
                    f"numbers such as {pointed.iloc[0]!r} in column {name!r} of {str(path)!r} can be read in two ways, "
                    "as other columns have decimal commas; declare that the points separate thousands (--decimal ','), "
                    "or write decimals with commas."
                )
            plain = cells.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
            frame[name] = pd.to_numeric(plain).reindex(frame.index)
        elif len(pointed) and _is_all(cells, f"{WITH_THOUSANDS}|{DECIMAL_POINT}", "."):
            other = next(cell for cell in cells if not re.fullmatch(WITH_THOUSANDS, cell))
            raise DataError(
                f"column {name!r} of {str(path)!r} has {pointed.iloc[0]!r} and {other!r}, which can be read in two "
                "ways where the decimal sign is a comma; write decimals with commas, and thousands without points."
            )
    return frame


def _without_row_numbers(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """A first column without a name that counts the rows is what `DataFrame.to_csv` writes unless told otherwise."""
    first = f"{UNNAMED}0"
    if first not in frame.columns[:1] or not np.array_equal(frame[first], np.arange(len(frame))):
        return frame
    warnings.warn(f"the first column of {str(path)!r} has no name and counts the rows; it was left out.", stacklevel=2)
    return frame.drop(columns=first)


def _without_empty_columns(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """A separator at the end of each line makes a column with neither name nor values."""
    empty = [name for name in frame.columns if str(name).startswith(UNNAMED) and frame[name].isna().all()]
    if not empty or not len(frame):
        return frame
    columns, were = ("a column", "it was") if len(empty) == 1 else (f"{len(empty)} columns", "they were")
    warnings.warn(f"{str(path)!r} has {columns} with neither a name nor values; {were} left out.", stacklevel=2)
    return frame.drop(columns=empty)


def _warn_of_equal_names(frame: pd.DataFrame, path: Path, separator: str, encoding: str | None) -> None:
    """Say which columns have one name: pandas reads the second of them as NAME.1."""
    if not any(re.fullmatch(r".+\.\d+", str(name)) for name in frame.columns):
        return
    header = pd.read_csv(path, sep=separator, encoding=encoding, header=None, nrows=1, dtype=str, skipinitialspace=True)
    names = header.iloc[0].dropna()
    twice = names[names.duplicated()]
    if len(twice):
        name = str(twice.iloc[0])
        warnings.warn(
            f"the header of {str(path)!r} names {name!r} more than once; the second column is read as "
            f"{frame.columns[twice.index[0]]!r}. Rename it, or leave it out.",
            stacklevel=2,
        )


def _said_of(error: Exception, path: Path, separator: str) -> str:
    """What is wrong with a file that pandas cannot read."""
    ragged = RAGGED.search(str(error))
    if ragged is None:
        return f"{str(path)!r} cannot be read as CSV ({first_line(error)})."
    expected, line, found = ragged.groups()
    return (
        f"line {line} of {str(path)!r} has {found} cells; expected {expected}, as in the lines before: correct the "
        f"line, put cells that contain {separator!r} in quotes, or give the separator, such as --separator ';'."
    )


def first_line(error: Exception) -> str:
    """The first line of a message of another library."""
    return str(error).strip().partition("\n")[0]
