"""Several models of equal shape as one tree with a leading axis; a single model stays as it is."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, PyTree


def stacked(trees: list[PyTree]) -> PyTree:
    """The trees as one."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees) if len(trees) > 1 else trees[0]


def unstacked(tree: PyTree, n_models: int) -> list[PyTree]:
    """The parts of `stacked`."""
    if n_models == 1:
        return [tree]
    return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in range(n_models)]


def choose(condition: Bool[np.ndarray, " K"], new: PyTree, old: PyTree) -> PyTree:
    """For each of the K models the new one where the condition holds, and the old one elsewhere."""
    if condition.all():
        return new
    if not condition.any():
        return old

    def pick(a: Any, b: Any) -> Any:
        return jnp.where(condition.reshape(-1, *([1] * (a.ndim - 1))), a, b)

    return jax.tree.map(pick, new, old)
