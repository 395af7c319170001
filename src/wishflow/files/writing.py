"""Atomic file writes."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
import stat
import time
import zlib
from pathlib import Path

# Temporary files of other machines, of which it is not known whether their process still runs, are left so long.
OLD_SECONDS = 86_400.0


def write_bytes_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that at every moment its path holds either the old content or all of the new one.

    The bytes go to a new file in the same folder, are forced to the disk, and take the place of the old file, whose
    access rights they keep. Temporary files of processes that were killed while they wrote this file are removed.
    """
    target = Path(os.path.realpath(path))  # through links: the file they point to is replaced, not the link
    _check_target(target)
    remove_left_over(target)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    temporary = temporary_of(target)
    try:
        # Nobody else may read it before it has the rights of the file that it replaces.
        with os.fdopen(os.open(temporary, _FLAGS, 0o666 if mode is None else 0o600), "wb") as file:
            if mode is not None:
                os.chmod(temporary, mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def temporary_of(target: Path) -> Path:
    """A new name beside the target, which says whose temporary file it is."""
    return target.with_name(f"{_prefix(target)}{_machine()}-{os.getpid()}-{secrets.token_hex(8)}.tmp")


def remove_left_over(target: Path) -> None:
    """Remove temporary files of a target whose process is gone, as `kill -9` and full disks leave them."""
    _remove(target.parent, re.escape(_prefix(target)))


def remove_all_left_over(folder: Path) -> None:
    """The same for all files of a folder."""
    _remove(folder, r"\..+\.")


def _remove(folder: Path, prefix: str) -> None:
    pattern = re.compile(prefix + r"([0-9a-f]{8})-([0-9]+)-[0-9a-f]{16}\.tmp", re.DOTALL)
    with contextlib.suppress(OSError):  # a folder that can be written to, but not listed
        for found in folder.iterdir():
            match = pattern.fullmatch(found.name)
            if match is not None and _is_left_over(found, *match.groups()):
                with contextlib.suppress(OSError):
                    found.unlink()


_FLAGS = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)


def _prefix(target: Path) -> str:
    # Names of files have at most 255 bytes.
    return f".{os.fsencode(target.name)[:100].decode(errors='ignore')}."


def _machine() -> str:
    """Which machine wrote a temporary file: process numbers mean nothing on another one, or in another container."""
    space = ""
    with contextlib.suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32((platform.node() + space).encode()):08x}"


def _is_left_over(path: Path, machine: str, process: str) -> bool:
    if machine == _machine() and os.name == "posix":  # elsewhere signal 0 would end the process
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):  # there, and another user's; or no number of a process
            return False
        return False
    try:
        return time.time() - path.stat().st_mtime > OLD_SECONDS
    except OSError:
        return False


def sync_folder(folder: Path) -> None:
    """The new name, too, is on the disk, where folders can be forced there."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_target(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"cannot write to {str(target)!r}: it is a folder; give the path of a file in it.")
    if target.exists() and not target.is_file():  # a file would take the place of the device itself
        raise OSError(f"cannot write to {str(target)!r}: it is a device, a pipe or a socket; give the path of a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"cannot write {str(target)!r}: there is no folder {str(target.parent)!r}; create it first."
        )
