"""`fit_many`: many fits, together in one program, in processes of this machine, or on a cluster."""

from __future__ import annotations

import copy
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..callbacks import CallbackList, ChunkEvent, ProgressBar
from ..errors import DataError, JobError, ModelFileError, OptionError
from ..files.jobs import JobFolder, work
from ..numerics import platform
from ..regression.many import fit_together as fit_rows_together
from ..series.forecaster import WishartForecaster
from ..series.many import check_horizon
from ..series.many import fit_together as fit_series_together
from ..series.wide import WideForecaster
from ..specs import checks
from ..training.backends import checked_backend, completed, retries_of
from ..training.checkpoints import INTERRUPTED
from ..training.together import PartOfRun
from .described import from_json, to_json
from .loading import load

# What workers call, by name: only then is JAX imported there.
FUNCTION = f"{__name__}:fit_jobs"
# Failed jobs that a message names, and lines of a traceback that it holds where no folder keeps them.
MOST_NAMED = 5
MOST_LINES = 20


def fit_many(
    estimators: Sequence[Any],
    data: Sequence[Any],
    callbacks: Any = None,
    backend: str | None = None,
    backend_params: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> list[Any]:
    """Fit many estimators: together in one program, in processes of this machine, or on a cluster.

    Without a backend, those that are alike are trained in one program on an accelerator under `vmap`: 20 splits of a
    data set cost little more than one. Alike are those with the same options, except for `random_state`, and the same
    shapes; each other group has a program of its own. On the CPU they are trained one after another. Members
    (`n_members`) are trained in the same way.

    With a backend or a folder each fit is a job: a JSON file with the options, a file with the data, and one model file
    as its result. A call that is made again goes on with the jobs that have no result.

    Parameters
    ----------
    estimators : sequence of estimator
        Regressors, classifiers and forecasters. Options may differ.
    data : sequence
        What to fit each of them to: a pair (X, y) or a triple (X, y, groups); for a forecaster y, or a tuple (y, X) or
        (y, X, fh).
    callbacks : Callback or list of Callback, optional
        Callbacks of training. Those of the estimators are not used. All fits are one run for them: `on_end` is called
        once, and a `CSVLog` has the rows of all fits, with the place of the estimator in the column `model` (of
        regressors alone with equally many members, the place of the member among all). With a backend or a folder they
        get events of the phase "jobs", with the number of jobs that are done.
    backend : {None, "loky", "ray", "dask", "slurm"}, default=None
        Where the fits run: in this process, in processes of this machine, on a Ray or Dask cluster, or as jobs of SLURM
        (by submitit).
    backend_params : dict, optional
        Options of the backend. See Notes.
    folder : str or path, optional
        Where jobs and results are kept; all workers must see it. By default a temporary folder, which is removed at the
        end. "slurm" needs one.
    verbose : int, default=0
        1 shows how many jobs are done, and the time left.

    Returns
    -------
    list of estimator
        The same estimators, fitted.

    Raises
    ------
    DataError
        If there are not as many data sets as estimators, or if that of a regressor or classifier is neither a pair nor
        a triple.
    OptionError
        If the backend is not known, or an option of a job cannot be written as JSON (callables and other objects).
    JobError
        If jobs have failed at every attempt. It names them with their errors (`failed`). The others are fitted. Also
        if a worker does not see the folder.
    KeyboardInterrupt
        On Ctrl-C, which ends the whole run. With `checkpoint_dir` too, for forecasters and for jobs: a half-trained
        model is not kept as a result, and the same call goes on from its checkpoint. Regressors and classifiers alone,
        without a backend and a folder, are left as `fit` leaves them: at the last good state, with `status_`
        "interrupted".

    Notes
    -----
    Errors: without a backend and a folder, an error in one fit leaves all estimators as they were.

    Trained together: the numbers of rows may differ, as long as they are padded to the same size and the preset's rule
    gives the same training for them. Results are those of separate fits, up to rounding, which training amplifies.

    `backend_params` of all backends: `n_jobs`, the number of workers (−1, the default: all; on a Ray or Dask cluster
    that exists, all in any case); `retries` (2), how often a failed job, or one whose worker was lost, is tried again
    (jobs that waited then lose no attempt); `group` (1), how many jobs of equal shape a worker trains
    in one program, where it has an accelerator; `memory_fraction`, the part of the memory of an accelerator that a
    worker may take. By default workers of "loky" share 90 % of it, and tasks of Ray with `num_gpus` below 1 have that
    part. It is set before a worker imports JAX.

    All others go to the backend: to `joblib`'s loky executor; "ray": `ray_remote_args`, such as {"num_gpus": 0.5}, and
    options of `ray.init`, which is called where Ray is not connected yet; "dask": `client` or `address`, and options of
    `Client.get_executor` (without a client, a `LocalCluster` of processes is started); "slurm": options of
    `submitit.AutoExecutor.update_parameters`, and `cluster` ("local" for a trial without SLURM).

    Results do not depend on the backend. Fits of a group with several jobs differ by rounding.

    Examples
    --------
    >>> import numpy as np
    >>> import wishflow as wf
    >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
    >>> models = [wf.SparseGPRegressor(n_inducing=5, max_iter=20) for _ in range(2)]
    >>> fitted = wf.fit_many(models, [(X, np.sin(X[:, 0])), (X, np.cos(X[:, 0]))])
    >>> [model.predict(X).shape for model in fitted]
    [(40,), (40,)]
    >>> fitted = wf.fit_many(models, [(X, np.sin(X[:, 0]))] * 2, backend="loky", folder="fits")  # doctest: +SKIP
    """
    if len(estimators) != len(data):
        raise DataError(f"{len(estimators)} estimators and {len(data)} data sets were given; pass one (X, y) for each.")
    if backend is not None:
        checked_backend(backend)
    checks.verbosity(verbose)
    given = [_parts(estimator, part, i) for i, (estimator, part) in enumerate(zip(estimators, data, strict=True))]
    if not estimators:
        return []
    watching = [*CallbackList(callbacks).callbacks, *([ProgressBar()] if verbose else [])]
    if backend is None and folder is None:
        _fit_here(estimators, given, watching)
        return list(estimators)
    if backend == "slurm" and folder is None:
        raise OptionError("backend='slurm' given without a folder; expected one that all nodes share: folder='…'.")
    with tempfile.TemporaryDirectory(prefix="wishflow-jobs-") as temporary:
        jobs = JobFolder(Path(temporary if folder is None else folder).absolute())
        _fit_jobs(jobs, estimators, given, backend, dict(backend_params or {}), watching, folder is not None)
    return list(estimators)


def _parts(estimator: Any, given: Any, place: int) -> tuple:
    """What `fit` takes: a pair (X, y), with groups beside it where there are some, or what a forecaster was given."""
    if _is_series(estimator):
        return given if isinstance(given, tuple) else (given,)
    if isinstance(estimator, WideForecaster):
        raise OptionError(
            f"estimator {place} is a WideForecaster; fit_many expects regressors, classifiers and WishartForecaster: "
            "call its fit."
        )
    try:
        parts = tuple(given)
    except TypeError:  # it is no sequence
        parts = ()
    if len(parts) not in (2, 3) or hasattr(given, "shape"):
        length = f" of length {len(given)}" if hasattr(given, "__len__") else ""
        raise DataError(
            f"data set {place} is a {type(given).__name__}{length}; expected a pair (X, y) or a triple (X, y, groups)."
        )
    return parts if len(parts) == 2 or parts[2] is not None else parts[:2]


def _fit_here(estimators: Sequence[Any], data: list[tuple], callbacks: list) -> None:
    """In this process: groups of regressors and classifiers with equally many members, and forecasters as another
    group, of one run for callbacks.
    """
    groups: dict[float, list[int]] = {}  # the last group is that of forecasters
    for i, estimator in enumerate(estimators):
        n_members = math.inf if _is_series(estimator) else checks.positive_int("n_members", estimator.n_members)
        groups.setdefault(n_members, []).append(i)
    kinds = [(fit_series_together if n == math.inf else fit_rows_together, groups[n]) for n in sorted(groups)]
    if len(kinds) == 1:
        kinds[0][0](estimators, data, callbacks)
        return
    copies = [copy.copy(estimator) for estimator in estimators]  # an error in a later group undoes the first ones too
    with CallbackList(callbacks) as calls:
        for k, (fit, places) in enumerate(kinds):
            part = PartOfRun(calls, places, len(estimators))
            fitted = fit([copies[i] for i in places], [data[i] for i in places], part)
            if fitted[0].status_ == INTERRUPTED and k + 1 < len(kinds):  # others are still to come
                raise KeyboardInterrupt
    for estimator, found in zip(estimators, copies, strict=True):
        estimator.__dict__ = found.__dict__


# --- jobs --------------------------------------------------------------------------------------------


def fit_jobs(jobs: JobFolder, names: Sequence[str]) -> None:
    """In a worker: fit the estimators of jobs, and write them; several are trained together."""
    read = [jobs.read(name) for name in names]
    fitted, data = [from_json(spec) for spec, _ in read], [part for _, part in read]
    # Forecasters with checkpoints are trained one after another in any case: Ctrl-C then ends all of them.
    has_states = any(_is_series(one) and one.checkpoint_dir is not None for one in fitted)
    is_together = len(fitted) > 1 and not has_states
    if is_together:
        _fit_here(fitted, data, [])
    for name, estimator, part in zip(names, fitted, data, strict=True):
        if not is_together:
            _fit_alone(estimator, part)
        if estimator.status_ == INTERRUPTED:  # half a fit is no result; the next run goes on from its checkpoint
            raise KeyboardInterrupt
        estimator.save(jobs.result(name))


def _fit_alone(estimator: Any, data: tuple) -> None:
    if _is_series(estimator) or len(data) == 2:
        estimator.fit(*data)
    else:
        estimator.fit(*data[:2], groups=data[2])


def _is_series(estimator: Any) -> bool:
    return isinstance(estimator, WishartForecaster)


def _fit_jobs(
    jobs: JobFolder,
    estimators: Sequence[Any],
    data: list[tuple],
    backend: str | None,
    params: dict[str, Any],
    callbacks: list,
    is_kept: bool,
) -> None:
    """Write the jobs, have them done, and take over their results; the folder is kept, or it is a temporary one."""
    described = [to_json(estimator) for estimator in estimators]
    for estimator, part in zip(estimators, data, strict=True):
        if _is_series(estimator):
            check_horizon(estimator, part)
    jobs.create()
    files: dict[tuple[int, ...], str] = {}  # one file for data that several jobs share
    names = []
    # A horizon (y, X, fh) is no part of a fit.
    stored = [part[:2] if _is_series(one) else part for one, part in zip(estimators, data, strict=True)]
    for spec, part in zip(described, stored, strict=True):
        own = tuple(map(id, part))
        files[own] = files.get(own) or jobs.add_data(part)
        names.append(jobs.add(spec, files[own], __version__))
    kinds = {name: _kind(spec, part) for name, spec, part in zip(names, described, data, strict=True)}
    _do(jobs, kinds, backend, params, callbacks)
    errors = {i: jobs.error(name) for i, name in enumerate(names) if not jobs.is_done(name)}
    # All are read before the first estimator is changed.
    results = {i: _result(jobs, name, estimators[i], stored[i]) for i, name in enumerate(names) if i not in errors}
    for i, result in results.items():
        _take_over(estimators[i], result, data[i])
    if errors:
        raise _failure(errors, len(names), jobs.path / "errors" if is_kept else None)


def _do(jobs: JobFolder, kinds: dict[str, str], backend: str | None, params: dict[str, Any], callbacks: list) -> None:
    """Have the jobs done, those that fail several times."""
    waiting = [name for name in kinds if not jobs.is_done(name)]
    for name in waiting:  # of an earlier run
        jobs.forget_error(name)
    with CallbackList(callbacks) as calls:
        tell = _teller(jobs, list(kinds), calls)
        if not waiting:
            tell()
            return
        for _ in range(1 + retries_of(params)):
            groups = _groups(waiting, kinds, _group_size(params, backend))
            tasks = [(str(jobs.path), group, FUNCTION) for group in groups]
            if backend is None:
                for task in tasks:
                    work(*task)
                    tell()
            else:
                _on_backend(jobs, tasks, backend, params, tell)
            waiting = [name for name in waiting if not jobs.is_done(name) and not _is_final(jobs.error(name))]
            if not waiting:
                return


def _on_backend(
    jobs: JobFolder, tasks: list[tuple], backend: str, params: dict[str, Any], tell: Callable[[], None]
) -> None:
    if backend == "slurm":
        params = {"log_folder": jobs.path / "slurm", **params}
    try:
        # One attempt: `_do` counts those of jobs that fail and of jobs whose worker was lost alike.
        for _ in completed(work, tasks, backend, {**params, "retries": 0}, tell):
            tell()
    except JobError as error:
        if not error.failed:  # of a worker that cannot write into the folder
            raise
        for i in error.failed:
            for name in tasks[i][1]:
                if not jobs.is_done(name):
                    jobs.fail(name, error)


def _group_size(params: dict[str, Any], backend: str | None) -> int | None:
    """Jobs that one worker trains together; None for all of equal shape."""
    if params.get("group") is None:
        return None if backend is None and platform.on_accelerator() else 1
    return checks.positive_int("group", params["group"])


def _groups(names: list[str], kinds: dict[str, str], size: int | None) -> list[list[str]]:
    """Jobs of one kind, `size` of them at a time."""
    by_kind: dict[str, list[str]] = {}
    for name in names:
        by_kind.setdefault(kinds[name], []).append(name)
    found = []
    for alike in by_kind.values():
        step = len(alike) if size is None else size
        found += [alike[i : i + step] for i in range(0, len(alike), step)]
    return found


def _kind(spec: dict[str, Any], data: tuple) -> str:
    """What is equal for jobs that one program may train: all options but the seed, and the numbers of columns."""
    options = {name: value for name, value in spec["parameters"].items() if name != "random_state"}
    columns = [np.shape(part)[1:] if hasattr(part, "shape") else None for part in data[:2]]
    return json.dumps([spec["class"], options, columns], sort_keys=True)


def _teller(jobs: JobFolder, names: list[str], calls: CallbackList) -> Callable[[], None]:
    """A function that tells callbacks how many results there are, whoever has written them."""
    started, expected, told = time.perf_counter(), {jobs.result(name).name for name in names}, [-1]

    def tell() -> None:
        n_done = len(expected.intersection(os.listdir(jobs.path / "results")))
        if n_done != told[0]:
            told[0] = n_done
            calls.on_chunk(ChunkEvent("jobs", n_done, len(expected), {}, time.perf_counter() - started))

    calls.on_start("jobs", len(expected))
    return tell


def _result(jobs: JobFolder, name: str, estimator: Any, data: tuple) -> Any:
    """The estimator in the result of a job, if it is one of this job."""
    path, given = jobs.result(name), np.shape(data[0])
    try:
        found = load(path)
        if type(found) is not type(estimator):
            raise ModelFileError(f"it holds a {type(found).__name__}; expected a {type(estimator).__name__}")
        if not _is_series(found) and len(given) == 2 and found.n_features_in_ != given[1]:
            raise ModelFileError(f"its model has {found.n_features_in_} inputs; expected {given[1]}")
    except ModelFileError as error:
        raise ModelFileError(
            f"{str(path)!r} is no result of this job ({error}); remove the file, and the same call fits the job again."
        ) from error
    return found


def _take_over(estimator: Any, loaded: Any, data: tuple) -> None:
    """What was learnt, beside the options of the estimator, which a file may not hold."""
    options = estimator.get_params(deep=False)
    learnt = {name: value for name, value in vars(loaded).items() if name not in options}
    if _is_series(estimator) and len(data) > 2:
        learnt["fh_"] = data[2]
    estimator.__dict__ = {**options, **learnt}


def _is_final(error: dict[str, Any] | None) -> bool:
    return error is not None and bool(error["is_final"])


def _told(error: dict[str, Any] | None) -> str:
    return "it has neither a result nor an error" if error is None else f"{error['kind']}: {error['message']}"


def _failure(errors: dict[int, dict[str, Any] | None], n_jobs: int, folder: Path | None) -> JobError:
    """What is raised for failed jobs; `folder` holds their tracebacks, None where it is removed."""
    failed = {i: _told(error) for i, error in errors.items()}
    named = [f"{i} ({text})" for i, text in list(failed.items())[:MOST_NAMED]]
    more = f" and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
    return JobError(
        f"{len(failed)} of {n_jobs} jobs failed: {'; '.join(named)}{more}. The others are fitted; with folder=… their "
        f"results are kept, and the same call tries the failed ones again."
        + (_first_traceback(errors) if folder is None else f" Tracebacks: {str(folder)!r}."),
        failed,
    )


def _first_traceback(errors: dict[int, dict[str, Any] | None]) -> str:
    """The last lines of the first traceback."""
    lines: list[str] = next((error["traceback"].splitlines() for error in errors.values() if error is not None), [])
    return "\n".join([" The first traceback ends with:", *lines[-MOST_LINES:]]) if lines else ""
