"""What a process may take while it reads a file of a stranger, and signs that it ran code of it."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Of code that a file must not start. Compilation and the import of our own modules need `exec` and `open`.
PROCESSES = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen", "socket.connect")
# What reading a file has no use for either; a whole fit has.
CODE = (*PROCESSES, "pickle.find_class", "shutil.rmtree", "os.remove")

_SEEN: list[str] = []


def watch_for_code() -> None:
    """Note what Python's audit events say of processes, connections and unpickled classes, from now on."""
    sys.addaudithook(lambda event, _: _SEEN.append(event) if event in CODE else None)


def seen_code() -> list[str]:
    """The events since the last call."""
    found = list(_SEEN)
    _SEEN.clear()
    return found


@contextlib.contextmanager
def room_of(n_bytes: int) -> Iterator[None]:
    """Inside, the process has so many bytes of address space more than it had."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def resident_bytes() -> int:
    """The largest part of the memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def n_maps() -> int:
    """Memory maps of the process; compiled programs take some, and Linux allows 65,530."""
    return Path("/proc/self/maps").read_bytes().count(b"\n")


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def is_memory_error(error: BaseException | None) -> bool:
    """Whether the want of memory is the error or what led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def described(error: BaseException) -> str:
    """Kind, text and place of an error, in one line."""
    place: Any = error.__traceback__
    where = ""
    while place is not None:
        name = place.tb_frame.f_code.co_filename
        if "wishflow" in name:
            where = f" at {name.rpartition('wishflow/')[2]}:{place.tb_lineno}"
        place = place.tb_next
    return f"{type(error).__name__}: {str(error)[:200]}{where}"
