"""Atomic file writes."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_bytes_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that at every moment its path holds either the old content or all of the new one.

    The bytes go to a new file in the same folder, are forced to the disk, and then take the place of the old file.
    """
    target = Path(os.path.realpath(path))  # through links: the file they point to is replaced, not the link
    _check_target(target)
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _check_target(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"cannot write to {str(target)!r}: it is a folder; give the path of a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"cannot write {str(target)!r}: there is no folder {str(target.parent)!r}; create it first."
        )
