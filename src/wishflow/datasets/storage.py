"""Finds the text of a table, in the folder `WISHFLOW_DATA`, in the user's cache or at its source, and checks it."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import os
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from ..errors import DatasetError
from ..files import write_bytes_atomic
from .registry import Original, Table

ENVIRONMENT_VARIABLE = "WISHFLOW_DATA"
TIMEOUT_SECONDS = 60.0


def read_table(table: Table) -> str:
    """The CSV text of a table, from the first place that has it; a download is kept in the cache."""
    for folder in folders():
        path = table_path(folder, table)
        if path.is_file():
            return read_verified(path, table)
    text = download(table)
    _keep(table_path(cache_folder(), table), text)
    return text


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
    return folder / "uci" / f"{table.file}.csv.gz"


def read_verified(path: Path, table: Table) -> str:
    """The text of a local file; an error where it cannot be unpacked or is not the table we know."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(
            f"{path} cannot be read as a gzip-compressed table ({error}); delete it, so that it is fetched again, "
            "or put a good copy in its place."
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != table.sha256:
        raise DatasetError(
            f"{path} is not the known version of {table.file}: its unpacked text has SHA-256 {found}, "
            f"expected {table.sha256}; delete it, so that it is fetched again, or put a good copy in its place."
        )
    return content.decode("utf-8")


def download(table: Table) -> str:
    """The table made from the original at its source. The original is checked before it is parsed, the table after."""
    if table.original is None:
        raise DatasetError(f"{table.file}: there is no source to download this version from. {_what_to_do(table)}")
    original = _verified_original(_fetch(table), table, table.original)
    text = table.original.convert(original, table.columns)
    found = hashlib.sha256(text.encode("utf-8")).hexdigest()
    if found != table.sha256:
        raise DatasetError(
            f"{table.file}: the original from {table.original.url} is right, but the table made from it has SHA-256 "
            f"{found}, expected {table.sha256}: please report this. {_what_to_do(table)}"
        )
    return text


def write_table(path: Path, text: str) -> None:
    """Write a compressed table so that readers see it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomic(path, gzip.compress(text.encode("utf-8"), mtime=0))


def _fetch(table: Table) -> bytes:
    assert table.original is not None
    request = urllib.request.Request(table.original.url, headers={"User-Agent": "wishflow"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            return response.read()
    except (OSError, http.client.HTTPException) as error:
        raise DatasetError(
            f"{table.file} is in none of the data folders, and the download from {table.original.url} failed "
            f"({type(error).__name__}: {error}). {_what_to_do(table)}"
        ) from error


def _verified_original(received: bytes, table: Table, original: Original) -> bytes:
    """The original file out of what came, taken from its archive where it lies in one."""
    content = received if original.member is None else _member(received, table, original)
    found = hashlib.sha256(content).hexdigest()
    if found != original.sha256:
        raise DatasetError(
            f"{table.file}: the file from {original.url} has SHA-256 {found}, expected {original.sha256}; "
            f"the source has changed or the download is damaged. {_what_to_do(table)}"
        )
    return content


def _member(received: bytes, table: Table, original: Original) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(received)) as archive:
            # Archives differ in their folders, not in the names of the files.
            name = next(name for name in archive.namelist() if name.rsplit("/", 1)[-1] == original.member)
            return archive.read(name)
    except (zipfile.BadZipFile, StopIteration) as error:
        raise DatasetError(
            f"{table.file}: what came from {original.url} ({len(received)} bytes) is not a zip archive with "
            f"{original.member} in it. {_what_to_do(table)}"
        ) from error


def _keep(path: Path, text: str) -> None:
    try:
        write_table(path, text)
    except OSError as error:
        warnings.warn(
            f"the downloaded table could not be kept as {path} ({error}); it will be fetched again next time.",
            stacklevel=5,
        )


def _what_to_do(table: Table) -> str:
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    state = f"{ENVIRONMENT_VARIABLE} is {named!r}" if named else f"{ENVIRONMENT_VARIABLE} is not set"
    tried = ", ".join(str(table_path(folder, table)) for folder in folders())
    return (
        f"Tried: {tried} ({state}). Set {ENVIRONMENT_VARIABLE} to a folder that holds uci/{table.file}.csv.gz: the "
        f"table of {table.page} as CSV with the columns {', '.join(table.columns)}, unpacked SHA-256 {table.sha256}."
    )
