"""Training steps in a loop that is one program, for contenders in JAX: so the library trains, and GPJax's `fit`.

A call of a program for each step would hand the pages of its memory back to the system in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Take = Callable[[Any, Any], tuple[Any, Any]]


def steps_in_a_loop(
    take: Take, start: Any, batches: list[Any], compiler_options: dict[str, Any] | None = None
) -> Callable[[int], Any]:
    """run(n): n steps `take(carried, batch) -> (carried, loss)` from where the last call ended, on the batches in turn;
    the last loss comes back. How many steps there are is an argument of the program, not a part of it.
    """
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)
    n_batches = len(batches)

    def loop(carried: Any, stacked: Any, first: Any, n: Any) -> tuple[Any, Any]:
        def one(i: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
            batch = jax.tree.map(lambda leaves: leaves[(first + i) % n_batches], stacked)
            return take(state[0], batch)

        loss = jax.eval_shape(take, carried, batches[0])[1]
        return jax.lax.fori_loop(0, n, one, (carried, jnp.zeros(loss.shape, loss.dtype)))

    program = jax.jit(loop, donate_argnums=0, compiler_options=compiler_options)
    # Copies: a call takes over the arrays that it is given.
    held = {"carried": jax.tree.map(jnp.copy, start), "first": 0}

    def run(n: int) -> Any:
        held["carried"], loss = program(held["carried"], stacked, jnp.asarray(held["first"]), jnp.asarray(n))
        held["first"] += n
        return jax.block_until_ready(loss)

    return run
