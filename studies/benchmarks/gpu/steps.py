"""The works of `studies.benchmarks.speed` as loops of steps inside one program, the way training takes them."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wishflow.numerics.devices import compiler_options
from wishflow.numerics.platform import unrolls

from ..speed import ours
from ..speed.arithmetic import operations
from ..speed.loops import Body, looped, stacked
from ..speed.works import Work
from . import program
from .timing import median_seconds


def shrunk(work: Work) -> Work:
    """A work small enough for a trial on any machine."""
    return dataclasses.replace(work, rows=min(work.rows, 8), n_inducing=12, n_steps=min(work.n_steps, 2))


class Loop:
    """A compiled program of many steps, whose number is not part of the program. `body(carry, batch)` is one step."""

    def __init__(self, body: Body, carry: Any, batches: list[Any], has_loops: bool) -> None:
        self.carry, self.data, self.first = carry, stacked(batches), jnp.asarray(0)
        options = compiler_options(not has_loops)
        jitted = jax.jit(looped(body, len(batches)), donate_argnums=0, compiler_options=options)
        started = time.perf_counter()
        self.compiled = jitted.lower(self.carry, self.data, self.first, jnp.asarray(1)).compile()
        self.compile_s = time.perf_counter() - started

    def run(self, n: int) -> None:
        """n steps, from where the last ones ended, on the batches from the first."""
        self.carry = jax.block_until_ready(self.compiled(self.carry, self.data, self.first, jnp.asarray(n)))


def training(work: Work, form: str) -> Loop:
    """Adam steps; what is carried is (vectors, state of Adam, key, value)."""
    start, batches = ours.adam_step(work, ours.build(work, form)), ours.batches(work)
    key = jax.random.key(0)
    value = jax.eval_shape(start.take, start.vectors, start.state, batches[0], key)[3]
    carry = (*jax.tree.map(jnp.copy, (start.vectors, start.state)), key, jnp.zeros(value.shape, value.dtype))
    has_loops = not unrolls(work.n_steps)
    return Loop(lambda carry, batch: start.take(carry[0], carry[1], batch, carry[2]), carry, batches, has_loops)


def forecasting(work: Work, form: str) -> Loop:
    """Forecasts. Carried are the key, the model (its arrays must be no constants) and the last paths, so that none of
    them can be left out.
    """
    model, starts = ours.build(work, form), ours.batches(work)
    shapes = jax.eval_shape(lambda x, key: ours.forecast(work, model, x, key), starts[0], jax.random.key(0))
    paths = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def body(carry, start):
        key, k_paths = jax.random.split(carry[0])
        return key, carry[1], ours.forecast(work, carry[1], start, k_paths)

    return Loop(body, (jax.random.key(0), model, paths), starts, has_loops=True)


def loop_of(work: Work, form: str = "full") -> Loop:
    """The compiled loop of a work."""
    return (forecasting if work.kind == "forecast" else training)(work, form)


def measure(work: Work, form: str = "full") -> dict[str, Any]:
    """Times of a step in a loop and of one alone, and what its program says of itself."""
    loop = loop_of(work, form)
    in_loop = median_seconds(loop.run)
    alone = median_seconds(lambda n: [loop.run(1) for _ in range(n)])
    value = float(jnp.mean(jax.tree.leaves(loop.carry)[-1]))
    if not np.isfinite(value):
        raise FloatingPointError(f"{work.name} gives {value} after some steps; its time would mean nothing.")
    return {
        "kind": work.kind,
        "dtype": work.dtype,
        "form": form,
        "step_ms": 1e3 * in_loop,
        "alone_ms": 1e3 * alone,
        "operations": operations(work, form),
        "compile_s": loop.compile_s,
        **program.described(loop.compiled),
    }
