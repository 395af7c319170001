"""Training steps in a loop that is one program, for contenders in JAX: so the library trains, and GPJax's `fit`.

A call of a program for each step would hand the pages of its memory back to the system in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Body = Callable[[Any, Any], Any]
Take = Callable[[Any, Any], tuple[Any, Any]]


def stacked(batches: list[Any]) -> Any:
    """All batches in one, with a first axis for them."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)


def looped(body: Body, n_batches: int) -> Callable[[Any, Any, Any, Any], Any]:
    """steps(carry, batches, first, n): n times `body(carry, batch)` on the batches in turn, beginning with the one at
    `first`. How many there are is an argument, not a part of the program.
    """

    def steps(carry: Any, batches: Any, first: Any, n: Any) -> Any:
        def one(i: Any, carry: Any) -> Any:
            return body(carry, jax.tree.map(lambda leaves: leaves[(first + i) % n_batches], batches))

        return jax.lax.fori_loop(0, n, one, carry)

    return steps


def steps_in_a_loop(
    take: Take, start: Any, batches: list[Any], compiler_options: dict[str, Any] | None = None
) -> Callable[[int], float]:
    """run(n): n steps `take(carried, batch) -> (carried, loss)` from where the last call ended, on the batches in turn;
    the last loss comes back.
    """
    data, loss = stacked(batches), jax.eval_shape(take, start, batches[0])[1]
    steps = looped(lambda carry, batch: take(carry[0], batch), len(batches))
    program = jax.jit(steps, donate_argnums=0, compiler_options=compiler_options)
    # Copies: a call takes over the arrays that it is given.
    held = {"carry": (jax.tree.map(jnp.copy, start), jnp.zeros(loss.shape, loss.dtype)), "first": 0}

    def run(n: int) -> float:
        held["carry"] = program(held["carry"], data, jnp.asarray(held["first"]), jnp.asarray(n))
        held["first"] += n
        return float(held["carry"][1])

    return run
