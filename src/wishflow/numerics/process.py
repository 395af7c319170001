"""What our computations share with the rest of the process: threads of BLAS, where JAX was started, memory maps."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import ForkError


class Holder:
    """Somebody who is inside `BlasLimit.held`, for as long as its frame is there."""


class BlasLimit:
    """One thread of BLAS for as long as anybody is inside, in any thread of Python; then as many as before.

    Libraries are looked for once: a search takes milliseconds. Holders are those of all threads: two that overlap
    would otherwise restore each other's limit, and leave BLAS at one thread for good. So would Ctrl-C that comes while
    one enters or leaves, which takes a few per cent of the time of a short prediction: leaving can be done twice, and
    a holder whose frame is gone does not count.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # an interrupted holder may be closed inside
        self._inside: weakref.WeakSet[Holder] = weakref.WeakSet()
        self._controller: Any = None
        # Threads of each library before our limit; None where there is nothing to restore.
        self._before: list[int] | None = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Inside, BLAS has one thread."""
        holder = Holder()
        try:
            self._enter(holder)
            yield
        finally:
            try:
                self._leave(holder)
            except BaseException:  # Ctrl-C in between
                self._leave(holder)
                raise

    def _enter(self, holder: Holder) -> None:
        with self._lock:
            if not self._inside:
                self._restore()  # where nobody who was inside could leave
                controller = self._found()
                self._before = [one["num_threads"] for one in controller.info()]
                controller.limit(limits=1)
                # Where another thread holds a limit of its own, ours has no effect, and there is nothing to restore.
                if any(one["num_threads"] != 1 for one in controller.info()):
                    self._before = None
            self._inside.add(holder)

    def _leave(self, holder: Holder) -> None:
        with self._lock:
            self._inside.discard(holder)
            if not self._inside:
                self._restore()

    def _restore(self) -> None:
        if self._before is None:
            return
        release_control()  # of the thread that came first: this one may be another
        for library, n_threads in zip(self._found().lib_controllers, self._before, strict=True):
            library.set_num_threads(n_threads)
        self._before = None
        release_control()

    def _found(self) -> Any:
        if self._controller is None:
            # jaxlib takes SciPy's OpenBLAS, which must be there to be found.
            import scipy.linalg.cython_blas  # noqa: F401
            import threadpoolctl

            self._controller = threadpoolctl.ThreadpoolController().select(user_api="blas")
        return self._controller


def release_control() -> None:
    """Let any thread set limits of OpenBLAS: since version 3.7 of threadpoolctl only the first thread to do so can."""
    import threadpoolctl

    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


class Origin:
    """The process in which JAX was started; a child made by `fork` has JAX's locks, but not its threads."""

    def __init__(self) -> None:
        self._process: int | None = None

    def check(self) -> None:
        """Remember this process at the first call; an error in its forked children, where a computation would hang."""
        here = os.getpid()
        if self._process is None:
            self._process = here
        if self._process != here:
            raise ForkError(
                f"process {here} was forked from process {self._process} after wishflow had computed there: JAX's "
                "threads do not survive a fork, and computations would hang. Start a new process instead: use "
                'multiprocessing.get_context("spawn"), or joblib with its default backend "loky"; or fork before the '
                "first fit, prediction or load."
            )


class Programs:
    """Our compiled programs, each of which takes dozens of memory maps.

    Linux lets a process have 65,530 of them, and beyond that LLVM ends the process. Some hundred fits to data of
    different shapes are enough.
    """

    MOST_MAPS, LEAST_RELEASED = 20_000, 5_000

    def __init__(self, maps: Path = Path("/proc/self/maps")) -> None:
        self._maps = maps
        self._releases: list[Callable[[], None]] = []
        self._n_left = 0

    def add(self, release: Callable[[], None]) -> None:
        """A function that forgets some of them; what is needed again is compiled, or read from JAX's cache."""
        self._releases.append(release)

    def make_room(self) -> bool:
        """Forget all of them where the process has too many maps, unless few have come since the last time. Other
        systems have no such limit.
        """
        if not self._maps.exists() or self._n_maps() < max(self.MOST_MAPS, self._n_left + self.LEAST_RELEASED):
            return False
        import equinox as eqx  # brings JAX, which a worker starts after its environment is set

        for release in self._releases:
            release()
        eqx.clear_caches()  # which hold the same programs
        gc.collect()
        self._n_left = self._n_maps()
        return True

    def _n_maps(self) -> int:
        return self._maps.read_bytes().count(b"\n")


# All are facts about the process, which is why they are kept here and not passed on.
BLAS = BlasLimit()
ORIGIN = Origin()
PROGRAMS = Programs()


def outcome(call: bytes, environment: Mapping[str, str]) -> tuple[Any, Exception | None]:
    """In a worker: make a call, and return its result or its error.

    Parameters
    ----------
    call : bytes
        A pickled pair of a function and its arguments. It is read after the environment is set.
    environment : mapping of str to str
        Variables that are set unless they are set already.

    Returns
    -------
    result : object
        What the function returned.
    error : Exception or None
        What it raised. After SIGTERM during a fit with checkpoints the process ends here: pools take `SystemExit` for
        a result, and would keep it.
    """
    for variable, value in environment.items():
        os.environ.setdefault(variable, value)
    try:
        function, arguments = pickle.loads(call)
        return function(*arguments), None
    except Exception as error:
        return None, error
    except SystemExit as error:
        if threading.current_thread() is threading.main_thread() and isinstance(error.code, int):
            os._exit(error.code)
        raise
