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
DECIMAL_COMMA = r"[+-]?\d+(,\d+)?"
# Three digits behind every comma: thousands in English, thousandths elsewhere.
UNCLEAR = r"[+-]?[1-9]\d{0,2}(,\d{3})+|\d+"
UNNAMED = "Unnamed: 0"


def read_text(path: Path, reading: Reading) -> pd.DataFrame:
    """The table of a text file; separator and decimal sign are found in the file unless they are named."""
    if reading.decimal not in (None, *DECIMALS):
        raise OptionError(f"--decimal {reading.decimal!r} given; expected '.' or ','.")
    try:
        separator = reading.separator or separator_of(path, reading.encoding)
        frame = _parsed(path, separator, reading.decimal or ".", reading.encoding)
        if reading.decimal is None and _has_decimal_commas(frame, path):
            frame = _parsed(path, separator, ",", reading.encoding)
    except pd.errors.EmptyDataError:
        raise DataError(f"{str(path)!r} is empty; expected a header with the names of the columns.") from None
    except UnicodeError:
        raise DataError(
            f"{str(path)!r} is no text in {reading.encoding or 'UTF-8'}; name its encoding, such as --encoding cp1252 "
            "(spreadsheets on Windows), or save it as CSV in UTF-8."
        ) from None
    except LookupError:
        raise OptionError(f"--encoding {reading.encoding!r} is unknown; expected a name such as cp1252.") from None
    except DataError:
        raise
    except (pd.errors.ParserError, ValueError) as error:
        raise DataError(f"{str(path)!r} cannot be read as CSV ({first_line(error)}).") from error
    if not frame.index.equals(pd.RangeIndex(len(frame))):  # pandas takes the first cells for names of the rows
        names = ", ".join(map(str, frame.columns))
        raise DataError(
            f"the rows of {str(path)!r} have more cells than the header has names ({names}); name all columns, or say "
            "what separates them, such as --separator ';'."
        )
    return _without_row_numbers(frame, path)


def separator_of(path: Path, encoding: str | None = None) -> str:
    """The sign that the header has most of, outside of quotes; a comma where it has none."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding=encoding or "utf-8") as file:
        header = QUOTED.sub("", next((line for line in file if line.strip()), ""))
    return max(SEPARATORS, key=header.count)  # of equal counts the first


def _parsed(path: Path, separator: str, decimal: str, encoding: str | None) -> pd.DataFrame:
    return pd.read_csv(
        path, sep=separator, decimal=decimal, encoding=encoding, na_values=list(MISSING), skipinitialspace=True
    )


def _has_decimal_commas(frame: pd.DataFrame, path: Path) -> bool:
    """Whether a column of text holds nothing but numbers with commas, such as 12,5."""
    found = []
    for name in frame.columns:
        if frame[name].dtype.kind in "iufbM":
            continue
        cells = frame[name].dropna().astype(str).str.strip()
        if len(cells) and cells.str.contains(",").any() and cells.str.fullmatch(DECIMAL_COMMA).all():
            found.append(cells)
    if found and all(cells.str.fullmatch(UNCLEAR).all() for cells in found):
        example = next(cell for cell in found[0] if "," in cell)
        raise DataError(
            f"numbers such as {example!r} of {str(path)!r} may have thousands or decimals behind the comma; write "
            "thousands without commas, or say that these are decimals: --decimal ','."
        )
    return bool(found)


def _without_row_numbers(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """A first column without a name that counts the rows is what `DataFrame.to_csv` writes unless told otherwise."""
    if UNNAMED not in frame.columns[:1] or not np.array_equal(frame[UNNAMED], np.arange(len(frame))):
        return frame
    warnings.warn(f"the first column of {str(path)!r} has no name and counts the rows; it was left out.", stacklevel=2)
    return frame.drop(columns=UNNAMED)


def first_line(error: Exception) -> str:
    """The first line of a message of another library."""
    return str(error).strip().partition("\n")[0]
