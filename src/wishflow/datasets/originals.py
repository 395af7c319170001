"""From the files as their authors published them to our tables: CSV, one header line, commas, the target last.

Every converter takes the bytes of the original and the column names of our table and gives the text of the table, digit
by digit as in the source; only the workbook of `power` goes through floating-point numbers.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def as_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The text of a table: header and rows, commas between cells, a line feed after each line."""
    return "".join(",".join(row) + "\n" for row in [columns, *rows])


def unchanged(original: bytes, columns: Sequence[str]) -> str:
    """The original is the table."""
    return original.decode("utf-8")


def from_blanks(original: bytes, columns: Sequence[str]) -> str:
    """Numbers separated by any run of blanks, no header. (Fixed column widths would cut digits off in boston.)"""
    return as_table(columns, (line.split() for line in _lines(original)))


def from_naval(original: bytes, columns: Sequence[str]) -> str:
    """As `from_blanks`, with the two targets swapped: the compressor decay kMc comes last."""
    rows = (line.split() for line in _lines(original))
    return as_table(columns, ([*row[:16], row[17], row[16]] for row in rows))


def from_comma_separated(original: bytes, columns: Sequence[str]) -> str:
    """Commas and a header line; blanks around the cells are dropped."""
    return as_table(columns, _cells(original, ",")[1:])


def from_semicolon_separated(original: bytes, columns: Sequence[str]) -> str:
    """Semicolons and a header line."""
    return as_table(columns, _cells(original, ";")[1:])


def from_target_first(original: bytes, columns: Sequence[str]) -> str:
    """Commas and a header line, with the target in the first column."""
    return as_table(columns, ([*row[1:], row[0]] for row in _cells(original, ",")[1:]))


def from_workbook(original: bytes, columns: Sequence[str]) -> str:
    """The first sheet of an .xlsx workbook of numbers under one line of names."""
    with zipfile.ZipFile(io.BytesIO(original)) as workbook:
        sheet = ElementTree.fromstring(workbook.read("xl/worksheets/sheet1.xml"))
    # Cells without a value are formatting only.
    rows = [[value.text or "" for value in row.iter(f"{SHEET}v")] for row in sheet.iter(f"{SHEET}row")]
    return as_table(columns, ([_shortest(value) for value in row] for row in rows[1:] if row))


def _lines(original: bytes) -> list[str]:
    return [line for line in original.decode("utf-8").splitlines() if line.strip()]


def _cells(original: bytes, separator: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(separator)] for line in _lines(original)]


def _shortest(value: str) -> str:
    """The shortest digits that give the same float64; workbooks write 8.34 as 8.3399999999999999."""
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)
