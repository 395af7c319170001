"""What an iteration of `fit_many` takes, for 1 to 100 models: the program alone, and with what the host does between.

Data are made up, in the shapes of two UCI sets. Inducing points are rows: their clusters are found on the host before
training and are no part of an iteration, and neither is the warm start of the output.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import wishflow as wf
from wishflow.callbacks import Callback, ChunkEvent
from wishflow.numerics.devices import compiler_options
from wishflow.numerics.platform import on_accelerator
from wishflow.regression import training as rows
from wishflow.regression.problems import Problem
from wishflow.regression.training import train
from wishflow.training import chunk, loop

from ..speed.arithmetic import operations
from ..speed.works import N_INDUCING, WISHART, Work
from . import program

BATCH_SIZE = 2000
N_STEPS = 10
N_CHUNKS = 6


@dataclasses.dataclass(frozen=True)
class Shape:
    """A data set by its sizes, with the form of q and how many models are trained together; `limit_ms` is what an
    iteration of twenty should take at most.
    """

    name: str
    n_rows: int
    dim: int
    limit_ms: float
    posterior: str = "rotated"
    sizes: tuple[int, ...] = (1, 5, 20, 100)
    n_inducing: int = N_INDUCING
    n_chunks: int = N_CHUNKS

    @property
    def work(self) -> Work:
        """One model's step as a work, for the count of its operations."""
        rows = min(self.n_rows, BATCH_SIZE)
        return Work(self.name, "flow", "", self.dim, rows, n_inducing=self.n_inducing, n_steps=N_STEPS, **WISHART)


KIN8NM, BOSTON = Shape("kin8nm", 7373, 8, 4.0), Shape("boston", 455, 13, 1.5)
STRUCTURED = {"posterior": "structured", "sizes": (20,)}
SHAPES = (
    KIN8NM,
    BOSTON,
    dataclasses.replace(KIN8NM, name="kin8nm_structured", **STRUCTURED),
    dataclasses.replace(BOSTON, name="boston_structured", **STRUCTURED),
)


def shrunk(shape: Shape) -> Shape:
    """A shape small enough for a trial on any machine."""
    return dataclasses.replace(shape, n_rows=40, n_inducing=12, n_chunks=3, sizes=(1, 2))


def problem_of(shape: Shape, seed: int) -> Problem:
    """diffWGP with shared columns, ρ = ν = 5, one sample, batches of 2000, without a warm start."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((shape.n_rows, shape.dim))
    y = np.sin(X @ np.linspace(-1.0, 1.0, shape.dim)) + 0.1 * rng.standard_normal(shape.n_rows)
    estimator = wf.FlowRegressor(
        wf.diffusions.Wishart(WISHART["rank"], WISHART["dof"], "shared", posterior=shape.posterior),
        n_inducing=shape.n_inducing,
        n_steps=N_STEPS,
        state_dim=shape.dim,
        max_iter=shape.n_chunks * loop.STEPS_PER_CHUNK,
        batch_size=BATCH_SIZE,
        n_train_samples=1,
        path_average="log",
        tol=0.0,
        validation_fraction=0,
        random_state=seed,
    )
    problem = estimator._prepare(X, y)
    return dataclasses.replace(problem, training=dataclasses.replace(problem.training, warm_iter=0))


class Watch:
    """Stands in for a compiled chunk of training: compiles at its first call, and times every call to its end."""

    def __init__(self, function: Callable) -> None:
        self.function = function
        self.compiled: Any = None
        self.compile_s = 0.0
        self.seconds: list[float] = []
        self.arrays: tuple = ()

    def __call__(self, *arguments: Any) -> Any:
        arrays, others = eqx.partition(arguments, eqx.is_array)
        if self.compiled is None:
            started = time.perf_counter()
            options = compiler_options(chunk.has_no_path_in_a_loop(*arguments))
            jitted = jax.jit(lambda arrays: self.function(*eqx.combine(arrays, others)), compiler_options=options)
            self.compiled = jitted.lower(arrays).compile()
            self.compile_s = time.perf_counter() - started
        self.arrays = arrays
        started = time.perf_counter()
        result = jax.block_until_ready(self.compiled(arrays))
        self.seconds.append(time.perf_counter() - started)
        return result

    def run(self, n: int) -> None:
        """n steps from where the last chunk began."""
        state, data, rates, _, steps = self.arrays
        jax.block_until_ready(self.compiled((state, data, rates, jnp.asarray(n), steps)))


class Clock(Callback):
    """The time of every chunk of every model, in seconds since the start of the fit."""

    def __init__(self) -> None:
        self.seconds: dict[int, list[float]] = {}

    def on_chunk(self, event: ChunkEvent) -> None:
        self.seconds.setdefault(event.model_index, []).append(event.seconds)


def seconds_by_iteration(ends: dict[int, list[float]], n_steps: int, is_together: bool) -> float:
    """Seconds of one iteration of all models, from the ends of their chunks of `n_steps`: medians, the first chunk of
    each, in which programs are compiled, left out. Models trained together end theirs together; else each has its turn.
    """
    by_model = [statistics.median(np.diff(seconds)) / n_steps for seconds in ends.values()]
    return float(by_model[0] if is_together else sum(by_model))


@contextmanager
def watched() -> Iterator[dict[str, Watch]]:
    """Training whose chunks are watched, with rows for inducing points."""
    watches = {name: Watch(getattr(chunk, name).__wrapped__) for name in ("train_chunk", "train_chunk_many")}
    with mock.patch.multiple(chunk, **watches), mock.patch.object(rows, "inducing_points", lambda X, n, seed: X[:n]):
        yield watches


def trained(shape: Shape, n_models: int) -> tuple[Watch, Clock, float]:
    """A short fit of all models: its watched chunks, its clock, and its seconds."""
    clock, problems = Clock(), [problem_of(shape, seed) for seed in range(n_models)]
    started = time.perf_counter()
    with watched() as watches:
        train(problems, clock)
    used = next(watch for watch in watches.values() if watch.compiled is not None)
    return used, clock, time.perf_counter() - started


def measure(shape: Shape, n_models: int) -> dict[str, Any]:
    """Times of one iteration of all models, and what its program says of itself."""
    watch, clock, fit_s = trained(shape, n_models)
    # The first and the last call estimate the objective before and after training, in steps of rate zero.
    n_steps, is_together = loop.STEPS_PER_CHUNK, on_accelerator() and n_models > 1
    in_program = statistics.median(watch.seconds[1:-1]) / n_steps * (1 if is_together else n_models)
    return {
        "data": shape.name,
        "n_models": n_models,
        "is_together": is_together,
        "iteration_ms": 1e3 * seconds_by_iteration(clock.seconds, n_steps, is_together),
        "program_ms": 1e3 * in_program,
        "limit_ms": shape.limit_ms if n_models == 20 else None,
        "operations": n_models * operations(shape.work, shape.posterior),
        "compile_s": watch.compile_s,
        "fit_s": fit_s,
        **program.described(watch.compiled),
    }
