"""Work shared by several processes, which also share a device."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

import jax

from wishflow.errors import JobError
from wishflow.numerics.devices import enable_compilation_cache
from wishflow.training.backends import completed

from .paths import ROOT
from .progress import error_text

# What the processes that share an accelerator may take of its memory together; each program needs some besides.
MEMORY_SHARE = 0.9

Task = TypeVar("Task")


def shared_out(
    make_pool: Callable[[int], Executor],
    n_processes: int,
    backend: str | None,
    tasks: Sequence[Task],
    function: Callable[..., Any],
    arguments: Callable[[Task], tuple],
) -> Iterator[tuple[Task, Any]]:
    """`side_by_side`, or `on_backend` where there is one."""
    if backend is None:
        return side_by_side(make_pool, n_processes, tasks, function, arguments)
    # One process is the default, and means as many as there are.
    params: dict[str, Any] = {"n_jobs": n_processes if n_processes > 1 else -1}
    if backend == "slurm":
        params["log_folder"] = ROOT / ".bench" / "slurm"  # nodes share the repository
    return on_backend(backend, params, tasks, function, arguments)


def side_by_side(
    make_pool: Callable[[int], Executor],
    n_processes: int,
    tasks: Sequence[Task],
    function: Callable[..., Any],
    arguments: Callable[[Task], tuple],
) -> Iterator[tuple[Task, Any]]:
    """Tasks with `function(*arguments(task))`, in the order in which they end; an error takes the result's place.

    A process that is killed takes the others with it: what they had not done is tried once more.
    """
    waiting = list(tasks)
    for is_last in (False, True):
        lost = []
        with make_pool(n_processes) as running:
            futures = {running.submit(function, *arguments(task)): task for task in waiting}
            try:
                for future in as_completed(futures):
                    error = future.exception()
                    if isinstance(error, BrokenExecutor) and not is_last:
                        lost.append(futures[future])
                        continue
                    yield futures[future], future.result() if error is None else error
            finally:
                running.shutdown(cancel_futures=True)
        waiting = [task for task in waiting if task in lost]


def on_backend(
    backend: str,
    backend_params: dict[str, Any],
    tasks: Sequence[Task],
    function: Callable[..., Any],
    arguments: Callable[[Task], tuple],
) -> Iterator[tuple[Task, Any]]:
    """The same on a backend of `wishflow.fit_many`, such as "ray"."""
    try:
        for i, result in completed(function, [arguments(task) for task in tasks], backend, backend_params):
            yield tasks[i], result
    except JobError as error:
        for i, text in error.failed.items():
            yield tasks[i], JobError(text)


def pool(n_processes: int) -> Executor:
    """Processes that start afresh: a forked one would share its parent's device and threads."""
    fresh, folder = multiprocessing.get_context("spawn"), jax.config.values["jax_compilation_cache_dir"]
    return ProcessPoolExecutor(n_processes, fresh, initializer=_start_process, initargs=(n_processes, folder))


def _start_process(n_processes: int, cache: str | None) -> None:
    """In a new process, before JAX asks for a device: by itself each would take three quarters of its memory.

    The compilation cache is that of the parent.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{MEMORY_SHARE / n_processes:.3f}")
    if cache is not None:
        enable_compilation_cache(cache)


def lost_process_text(error: BaseException, else_try: str = "") -> str:
    """What went wrong with a process, with what to try."""
    return f"{error_text(error)} (a process may have run out of memory: try fewer --processes{else_try})"
