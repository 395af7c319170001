"""Finds the text of a table, in the folder `WISHFLOW_DATA`, in the user's cache or at its source, and checks it."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import lzma
import os
import threading
import time
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from ..errors import DatasetError
from ..files.writing import write_bytes_atomic
from .registry import Original, Table

ENVIRONMENT_VARIABLE = "WISHFLOW_DATA"
# Of one wait for an answer, and of a whole download.
TIMEOUT_SECONDS = 60.0
TOTAL_SECONDS = 900.0
TICK_SECONDS = 0.1
# No original is larger, packed or unpacked (with all that is in its archive): more is a mistake, or a trap.
MOST_BYTES = 2**27
# Archives inside archives: one level is known.
MOST_NESTED = 2
PIECE = 2**16
# What damaged, encrypted or unusual archives raise.
ARCHIVE_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, LookupError, OSError, RuntimeError, ValueError),
)


def read_table(table: Table) -> str:
    """The CSV text of a table, from the first place that has it; a download is kept in the cache."""
    return read_tables([table])[0]


def read_tables(tables: Sequence[Table]) -> list[str]:
    """The CSV texts of several tables. An address that holds more than one of them is fetched once."""
    texts, received = [], dict[str, bytes]()
    for table in tables:
        path = find_table(table)
        if path is not None:
            texts.append(read_verified(path, table))
        else:
            texts.append(download(table, received))
            _keep(table_path(cache_folder(), table), texts[-1])
    return texts


def find_table(table: Table) -> Path | None:
    """The local file of a table, from the first folder that has it."""
    return next((path for folder in folders() if (path := table_path(folder, table)).is_file()), None)


def folders() -> Iterator[Path]:
    """The folders that are searched, in order: the one named by `WISHFLOW_DATA`, if set, and the user's cache.

    One at a time: the cache folder is asked for (and platformdirs imported) only where the first has no such table.
    """
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named:
        yield Path(named).expanduser()
    yield cache_folder()


def cache_folder() -> Path:
    """Where downloads are kept."""
    from platformdirs import user_cache_path

    return user_cache_path("wishflow") / "data"


def table_path(folder: Path, table: Table) -> Path:
    """The file of a table inside a data folder."""
    return folder / table.place


def read_verified(path: Path, table: Table) -> str:
    """The text of a local file; an error where it cannot be unpacked or is not the table we know."""
    try:
        with gzip.open(path) as file:
            content = _limited(file)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DatasetError(
            f"{path} cannot be read as a gzip-compressed table ({error}); delete it to download it again, "
            "or replace it by a good copy."
        ) from error
    remedy = "delete it to download it again, or replace it by a good copy."
    return verified(content, table, str(path), remedy)


def verified(content: bytes, table: Table, where: str, remedy: str) -> str:
    """The text of a table; an error that names the place and what to do where it is not the table we know."""
    found = hashlib.sha256(content).hexdigest()
    if found != table.sha256:
        raise DatasetError(
            f"{where} is not the known version of {table.file}: its unpacked text has SHA-256 {found}, "
            f"expected {table.sha256}; {remedy}"
        )
    return content.decode("utf-8")


def download(table: Table, received: dict[str, bytes] | None = None) -> str:
    """The table made from the original at its source. The original is checked before it is parsed, the table after.

    `received` holds what came from each address; it is used before anything is fetched, and filled.
    """
    if table.original is None:
        raise DatasetError(f"{table.file}: there is no source to download this version from. {what_to_do(table)}")
    received = {} if received is None else received
    if table.original.url not in received:
        received[table.original.url] = _fetch(table)
    original = _verified_original(received[table.original.url], table, table.original)
    text = table.original.convert(original, table.columns)
    found = hashlib.sha256(text.encode("utf-8")).hexdigest()
    if found != table.sha256:
        raise DatasetError(
            f"{table.file}: the original from {table.original.url} is correct, but the table made from it has SHA-256 "
            f"{found}, expected {table.sha256}: please report this. {what_to_do(table)}"
        )
    return text


def write_table(path: Path, text: str) -> None:
    """Write a compressed table so that readers see it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomic(path, gzip.compress(text.encode("utf-8"), mtime=0))


def _fetch(table: Table) -> bytes:
    assert table.original is not None
    request = urllib.request.Request(table.original.url, headers={"User-Agent": "wishflow"})

    def received() -> bytes:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            return _received(response)

    try:
        return _in_time(received)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DatasetError(
            f"{table.file} is in none of the data folders, and the download from {table.original.url} failed "
            f"({type(error).__name__}: {error}). {what_to_do(table)}"
        ) from error


def _in_time(function: Callable[[], bytes]) -> bytes:
    """What a function returns; an error where it takes too long: a server may also drip its headers."""
    found: Future = Future()

    def run() -> None:
        try:
            found.set_result(function())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name="wishflow-download", daemon=True).start()
    for _ in range(max(1, round(TOTAL_SECONDS / TICK_SECONDS))):  # on Windows no wait ends with Ctrl-C
        if wait([found], TICK_SECONDS).done:
            return found.result()
    raise TimeoutError(f"the download was not complete after {TOTAL_SECONDS:g} seconds")


def _received(response: Any) -> bytes:
    """All that comes; an error where it is too much, or takes too long, which also ends the thread."""
    pieces, size, end = [], 0, time.monotonic() + TOTAL_SECONDS
    read = getattr(response, "read1", response.read)  # returns what is there, without waiting for a whole piece
    while piece := read(PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes were received")
        if time.monotonic() > end:
            raise TimeoutError(f"the download was not complete after {TOTAL_SECONDS:g} seconds")
    return b"".join(pieces)


def _limited(file: Any, most: int | None = None) -> bytes:
    """The content of a compressed file, of a size that is not known before."""
    most = MOST_BYTES if most is None else most
    content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"its unpacked content has more than {most} bytes")
    return content


def _verified_original(received: bytes, table: Table, original: Original) -> bytes:
    """The original file of a download, taken from its archive if it is in one."""
    content = received if original.member is None else _member(received, table, original)
    found = hashlib.sha256(content).hexdigest()
    if found != original.sha256:
        raise DatasetError(
            f"{table.file}: the file from {original.url} has SHA-256 {found}, expected {original.sha256}; "
            f"the source has changed or the download is damaged. {what_to_do(table)}"
        )
    return content


def _member(received: bytes, table: Table, original: Original) -> bytes:
    why = ""
    try:
        for name, content in _unpacked(received):
            if name == original.member:
                return content
    except ARCHIVE_ERRORS as error:
        why = f" ({type(error).__name__}: {error})"
    raise DatasetError(
        f"{table.file}: the download from {original.url} ({len(received)} bytes) is not a zip archive that "
        f"contains {original.member}{why}. {what_to_do(table)}"
    )


def _unpacked(received: bytes, left: list[int] | None = None, depth: int = 1) -> Iterator[tuple[str, bytes]]:
    """Names, without their folders, and contents of the files in an archive, and of those in archives inside it.

    Archives differ in their folders, not in the names of the files. `left` is how many bytes may still be unpacked.
    """
    if depth > MOST_NESTED:
        raise ValueError(f"archives are nested more than {MOST_NESTED} levels deep")
    left = [MOST_BYTES] if left is None else left
    with zipfile.ZipFile(io.BytesIO(received)) as archive:
        for path in archive.namelist():
            with archive.open(path) as file:
                content = _limited(file, left[0])
            left[0] -= len(content)
            if path.endswith(".zip"):
                yield from _unpacked(content, left, depth + 1)
            else:
                yield path.rsplit("/", 1)[-1], content


def _keep(path: Path, text: str) -> None:
    try:
        write_table(path, text)
    except OSError as error:
        warnings.warn(
            f"the downloaded table could not be saved as {path} ({error}); it will be downloaded again next time.",
            stacklevel=5,
        )


def what_to_do(table: Table) -> str:
    """For errors: where the table was looked for and where it may be put."""
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    state = f"{ENVIRONMENT_VARIABLE} is {named!r}" if named else f"{ENVIRONMENT_VARIABLE} is not set"
    tried = ", ".join(str(table_path(folder, table)) for folder in folders())
    return (
        f"Tried: {tried} ({state}). Set {ENVIRONMENT_VARIABLE} to a folder that holds {table.place}: the "
        f"table of {table.page} as CSV with the columns {', '.join(table.columns)}, unpacked SHA-256 {table.sha256}."
    )
