"""Where independent calls run: in processes of this machine (loky), on a Ray or Dask cluster, or on SLURM.

The words are those of sktime: `backend=None`, "loky", "ray", "dask", "slurm", with `backend_params`. A backend is a
pool with two methods, whose futures are those of `concurrent.futures`. A call whose worker is lost (killed, out of
memory, a node that is gone) is made again; `completed` counts how often, so pools do not try again by themselves.
"""

from __future__ import annotations

import abc
import concurrent.futures as futures
import contextlib
import dataclasses
import functools
import os
import pickle
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import JobError, OptionError, unknown_option
from ..numerics.devices import computing
from ..numerics.process import outcome
from ..specs import checks
from .checkpoints import for_workers

BACKENDS = ("loky", "ray", "dask", "slurm")
# What workers that share one accelerator may take of its memory together; each program needs some besides.
MEMORY_SHARE = 0.9
RETRIES = 2
# Seconds between two looks at files that workers write.
TICK = 0.5
# Entries of `backend_params` that are ours; the others go to the backend.
OWN = ("n_jobs", "retries", "group", "memory_fraction")


class AbstractPool(abc.ABC):
    """Workers that make calls."""

    @abc.abstractmethod
    def submit(self, function: Callable, calls: Sequence[tuple]) -> list[futures.Future]:
        """A future for each call."""

    @abc.abstractmethod
    def close(self, is_complete: bool) -> None:
        """Give back what the pool has taken; where calls are not complete (Ctrl-C), end those that run."""


class LokyPool(AbstractPool):
    """Processes of this machine, started afresh; they are ended with the pool.

    Each process has an executor of its own. When loky loses a process it ends all those of the executor, and calls that
    wait fail too: here only the call fails that was made in the lost process, and another process takes its place.
    """

    def __init__(self, n_jobs: int, **options: Any) -> None:
        from joblib.externals.loky import ProcessPoolExecutor

        self._started = functools.partial(ProcessPoolExecutor, 1, **options)
        self._executors = [self._started() for _ in range(n_jobs)]
        self._waiting: queue.SimpleQueue = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock, self._is_closed = threading.Lock(), False

    def submit(self, function: Callable, calls: Sequence[tuple]) -> list[futures.Future]:
        found: list[futures.Future] = [futures.Future() for _ in calls]
        for future, call in zip(found, calls, strict=True):
            self._waiting.put((future, (function, *call)))
        for place in range(len(self._executors)):
            thread = threading.Thread(target=self._serve, args=(place,), daemon=True)
            thread.start()
            self._threads.append(thread)  # those that run: `close` waits for them
        return found

    def _serve(self, place: int) -> None:
        """Have calls made that wait, one after another, by one process."""
        while not self._is_closed:
            try:
                future, call = self._waiting.get_nowait()
            except queue.Empty:
                return
            try:
                future.set_result(self._submitted(place, call).result())
            except BaseException as error:  # Ctrl-C in a worker too: the caller hears of it, not this thread
                future.set_exception(error)
                if isinstance(error, futures.BrokenExecutor):
                    with contextlib.suppress(OSError):  # then the next call finds the lost process, and says so
                        self._replace(place)

    def _submitted(self, place: int, call: tuple) -> futures.Future:
        """The future of a call; a process that was lost while it had nothing to do is replaced first."""
        try:
            return self._executors[place].submit(*call)
        except futures.BrokenExecutor:
            self._replace(place)
            return self._executors[place].submit(*call)

    def _replace(self, place: int) -> None:
        with self._lock:
            if not self._is_closed:
                self._executors[place].shutdown()
                self._executors[place] = self._started()

    def close(self, is_complete: bool) -> None:
        with self._lock:
            self._is_closed = True
        # At the same time: each process takes some time to end.
        with futures.ThreadPoolExecutor(len(self._executors)) as ending:
            list(ending.map(lambda one: one.shutdown(wait=True, kill_workers=not is_complete), self._executors))
        for thread in self._threads:
            thread.join()


class RayPool(AbstractPool):
    """Tasks of a Ray cluster: the one that this process is connected to, or what `ray.init` finds or starts.

    Fits are tasks: the scheduler moves those of a node that is gone to another one. How this process
    authenticates is Ray's business (`RAY_AUTH_MODE`).
    """

    def __init__(self, n_jobs: int | None, ray_remote_args: Mapping[str, Any] | None = None, **options: Any) -> None:
        ray = _imported("ray")
        self.ray, self.references = ray, []  # type: ignore[var-annotated]
        self.is_own = not ray.is_initialized()
        if self.is_own:
            _connect(ray, {} if n_jobs is None else {"num_cpus": n_jobs}, options)
        self.remote_args = {"max_retries": 0, **(ray_remote_args or {})}

    def submit(self, function: Callable, calls: Sequence[tuple]) -> list[futures.Future]:
        remote = self.ray.remote(function).options(**self.remote_args)
        self.references = [remote.remote(*call) for call in calls]
        return [reference.future() for reference in self.references]

    def close(self, is_complete: bool) -> None:
        if not is_complete:
            for reference in self.references:
                self.ray.cancel(reference, force=True)
        if self.is_own:
            self.ray.shutdown()


def _connect(ray: Any, limit: dict[str, int], options: dict[str, Any]) -> None:
    """Connect to a cluster that exists, or start one. Ray refuses a number of CPUs for one that exists.

    Whether it exists is known to Ray alone: by an address, by `RAY_ADDRESS`, or by `ray start` on this machine.
    """
    try:
        ray.init(**limit, **options)
    except ValueError:
        if not limit:
            raise
        ray.init(**options)


class DaskPool(AbstractPool):
    """Tasks of a Dask cluster: that of `client`, of `address`, of the client of this process, or one of its own."""

    def __init__(self, n_jobs: int | None, client: Any = None, address: Any = None, **options: Any) -> None:
        distributed = _imported("distributed")
        self.own: list[Any] = []
        if client is None and address is None:
            with contextlib.suppress(ValueError):  # there is none
                client = distributed.get_client()
        if client is None:
            if address is None:
                address = distributed.LocalCluster(n_workers=n_jobs, threads_per_worker=1, dashboard_address=None)
                self.own = [address]
            client = distributed.Client(address, set_as_default=False)
            self.own = [client, *self.own]
        self.executor = client.get_executor(pure=False, retries=0, **options)

    def submit(self, function: Callable, calls: Sequence[tuple]) -> list[futures.Future]:
        return [self.executor.submit(function, *call) for call in calls]

    def close(self, is_complete: bool) -> None:
        self.executor.shutdown(wait=is_complete)  # without waiting, all are cancelled
        for one in self.own:
            one.close()


class SlurmPool(AbstractPool):
    """Jobs of SLURM, by submitit: one array for all calls. `cluster="local"` runs them in processes of this machine."""

    def __init__(self, n_jobs: int | None, cluster: str | None = None, log_folder: Any = None, **options: Any) -> None:
        submitit = _imported("submitit")
        if cluster is None and shutil.which("sbatch") is None:
            raise OptionError(
                "backend='slurm' given, but there is no program sbatch on this machine; run it on a node of the "
                "cluster, or pass backend_params={'cluster': 'local'} for a trial on this machine."
            )
        folder = tempfile.mkdtemp(prefix="wishflow-slurm-") if log_folder is None else os.fspath(log_folder)
        self.executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        # At most so many jobs of the array at a time.
        limit = {} if n_jobs is None or cluster == "local" else {"slurm_array_parallelism": n_jobs}
        self.executor.update_parameters(**limit, **options)
        self.jobs: list[Any] = []
        self.is_closed = threading.Event()

    def submit(self, function: Callable, calls: Sequence[tuple]) -> list[futures.Future]:
        with self.executor.batch():
            self.jobs = [self.executor.submit(function, *call) for call in calls]
        found: list[futures.Future] = [futures.Future() for _ in self.jobs]
        threading.Thread(target=self._watch, args=(found,), daemon=True).start()
        return found

    def _watch(self, found: list[futures.Future]) -> None:
        """Jobs of submitit say only when asked whether they have ended."""
        waiting = dict(zip(found, self.jobs, strict=True))
        while waiting and not self.is_closed.wait(TICK):
            for future, job in [item for item in waiting.items() if item[1].done()]:
                del waiting[future]
                try:
                    future.set_result(job.result())
                except Exception as error:
                    future.set_exception(error)

    def close(self, is_complete: bool) -> None:
        self.is_closed.set()
        if not is_complete:
            for job in self.jobs:
                job.cancel()


POOLS = {"ray": RayPool, "dask": DaskPool, "slurm": SlurmPool}


def completed(
    function: Callable,
    calls: Sequence[tuple],
    backend: str,
    backend_params: Mapping[str, Any] | None = None,
    on_tick: Callable[[], None] | None = None,
) -> Iterator[tuple[int, Any]]:
    """Make calls on a backend.

    Parameters
    ----------
    function : callable
        A function. Workers import it where it is in a module.
    calls : sequence of tuple
        The arguments of each call, which can be pickled.
    backend : {"loky", "ray", "dask", "slurm"}
        Where the calls are made.
    backend_params : dict, optional
        See `wishflow.fit_many`.
    on_tick : callable, optional
        Called about twice a second.

    Yields
    ------
    index : int
        The place of a call, in the order in which they end.
    result : object
        What it returned. An exception that the function raised is raised here.

    Raises
    ------
    JobError
        If the worker of a call is lost at every attempt.
    """
    checked_backend(backend)
    params = dict(backend_params or {})
    waiting = list(range(len(calls)))
    if not waiting:
        return
    errors: dict[int, BaseException] = {}
    for _ in range(1 + retries_of(params)):
        errors = {}
        for i, future in _one_round(function, [(i, calls[i]) for i in waiting], backend, params, on_tick):
            # Whatever a future raises is about its worker: errors of the function are among its results.
            lost = future.exception()
            if lost is not None:
                errors[i] = lost
                continue
            value, error = future.result()
            if error is not None:
                raise error
            yield i, value
        waiting = sorted(errors)
        if not waiting:
            return
    said = {i: f"{type(error).__name__}: {error}" for i, error in errors.items()}
    raise JobError(
        f"the workers of {len(said)} of {len(calls)} jobs were lost, the first by "
        f"{next(iter(said.values()))}; a worker may be out of memory: use a smaller n_jobs, or a smaller group.",
        said,
    ) from next(iter(errors.values()))


def _computed(call: bytes) -> bytes:
    """In a worker: a call whose arguments and result are read where 64-bit types are on, or they would be cut."""
    with computing():
        function, arguments = pickle.loads(call)
        return _pickled(function(*arguments))


def _pickled(value: Any) -> bytes:
    import cloudpickle

    return cloudpickle.dumps(value)


@dataclasses.dataclass(frozen=True)
class Workers:
    """Where independent parts of one computation run; without a backend in this process.

    `checkpoint_dir` is the option of a fit whose parts have checkpoints.
    """

    backend: str | None = None
    params: Mapping[str, Any] | None = None
    checkpoint_dir: Any = None

    @classmethod
    def of(cls, backend: Any, params: Any, checkpoint_dir: Any = None) -> Workers:
        """Options of a user, checked."""
        if backend is not None:
            checked_backend(backend)
        if params is not None and not isinstance(params, Mapping):
            raise OptionError(f"backend_params={params!r} given; expected a dict of options of the backend, or None.")
        return cls(backend, params, for_workers(checkpoint_dir))

    @property
    def are_here(self) -> bool:
        return self.backend is None

    @property
    def checkpoints_here(self) -> Any:
        """Checkpoints of what is trained in this process; workers have their own."""
        return self.checkpoint_dir if self.are_here else None

    def map(self, function: Callable, calls: Sequence[tuple]) -> list[Any]:
        """What a function returns for each call, in order; one after another in this process."""
        if self.backend is None or not calls:
            return [function(*call) for call in calls]
        sent = [(_pickled((function, call)),) for call in calls]
        found = dict(completed(_computed, sent, self.backend, self.params))
        with computing():
            return [pickle.loads(found[i]) for i in range(len(calls))]


def _one_round(
    function: Callable, calls: list[tuple[int, tuple]], backend: str, params: dict[str, Any], on_tick: Any
) -> Iterator[tuple[int, futures.Future]]:
    environment = environment_of(backend, params)
    sent = [(_pickled((function, call)), environment) for _, call in calls]
    pool, is_complete = _pool(backend, params, len(calls)), False
    try:
        found = pool.submit(outcome, sent)
        places = {future: i for future, (i, _) in zip(found, calls, strict=True)}
        while places:
            ended, _ = futures.wait(places, TICK, futures.FIRST_COMPLETED)
            if on_tick is not None:
                on_tick()
            for future in ended:
                yield places.pop(future), future
        is_complete = True
    finally:
        pool.close(is_complete)


def _pool(backend: str, params: dict[str, Any], n_calls: int) -> AbstractPool:
    options = {name: value for name, value in params.items() if name not in OWN}
    if backend == "loky":
        return LokyPool(min(n_processes(params), n_calls), **options)
    n_jobs = None if params.get("n_jobs") in (None, -1) else checks.positive_int("n_jobs", params["n_jobs"])
    return POOLS[backend](n_jobs, **options)


# --- options -----------------------------------------------------------------------------------------


def checked_backend(backend: Any) -> None:
    if backend not in BACKENDS:
        raise unknown_option("backend", backend, BACKENDS)


def retries_of(params: Mapping[str, Any]) -> int:
    """How often a job that failed, or whose worker was lost, is tried again."""
    return checks.whole_number("retries", params.get("retries", RETRIES), 0, 1000)


def n_processes(params: Mapping[str, Any]) -> int:
    """Processes of this machine; −1, as in joblib, is one for each CPU."""
    from joblib import effective_n_jobs

    return effective_n_jobs(params.get("n_jobs", -1))


def environment_of(backend: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Variables that workers set before they import JAX: their share of the memory of an accelerator.

    By itself each process would take three quarters of it. Processes of this machine have equal shares; tasks of Ray
    have theirs by `num_gpus`.
    """
    share = params.get("memory_fraction")
    if share is None and backend == "loky":
        share = MEMORY_SHARE / n_processes(params)
    if share is None and backend == "ray":
        n_gpus = (params.get("ray_remote_args") or {}).get("num_gpus", 1)
        share = MEMORY_SHARE * n_gpus if 0 < n_gpus < 1 else None
    found = {} if share is None else {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{float(share):.3f}"}
    if backend == "loky":  # on this machine, so the folder is there
        found |= _compilation_cache()
    return found


def _compilation_cache() -> dict[str, str]:
    import jax

    folder = jax.config.values["jax_compilation_cache_dir"]
    return {} if folder is None else {"JAX_COMPILATION_CACHE_DIR": str(folder)}


def _imported(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f'this backend needs the package {name!r}, which is not installed; expected the extra "cluster": '
            'pip install "wishflow[cluster]".'
        ) from error
