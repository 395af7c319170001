"""What a training step does with the data: which rows it takes and which objective it climbs. Compiled into the step.

Each class is a frozen dataclass of plain values (part of the compiled program's identity) with three pure functions,
`shuffle` once for each chunk, `batch` for each step, `loss` of a model on a batch, and what the compiler should know.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

Loss = tuple[Scalar, tuple[dict[str, Scalar], Any]]


@dataclasses.dataclass(frozen=True)
class AbstractSteps(abc.ABC):
    """How steps are made; `is_natural` says whether natural gradients move q of the output, `fixed_inducing` whose
    inducing points stay where they are ("none", "field", "all"). The rows of a batch are split over the devices of
    `mesh` (None: one device).
    """

    n_samples: int
    flow_dtype: str
    is_natural: bool
    average: str
    fixed_inducing: str = dataclasses.field(default="none", kw_only=True)
    mesh: Mesh | None = dataclasses.field(default=None, kw_only=True)

    @abc.abstractmethod
    def shuffle(self, key: PRNGKeyArray, data: PyTree) -> PyTree:
        """The order in which a chunk goes through the data."""

    @abc.abstractmethod
    def batch(self, data: PyTree, order: PyTree, i: Int[Array, ""]) -> PyTree:
        """The data of step i of a chunk."""

    @abc.abstractmethod
    def has_loops(self, model: Any, data: PyTree) -> bool:
        """Whether a step on an accelerator has loops inside: paths whose steps are not written out."""

    @abc.abstractmethod
    def loss(self, model: Any, batch: PyTree, key: PRNGKeyArray, kl_weight: Scalar | float) -> Loss:
        """The negative objective, its parts, and sites for natural gradients."""


def shuffled(key: PRNGKeyArray, weights: Float[Array, " N"]) -> Int[Array, " N"]:
    """The rows in random order, padding last."""
    return jnp.argsort(jnp.where(weights > 0, jax.random.uniform(key, weights.shape), 2.0))


def next_rows(data: Any, order: Int[Array, " N"], i: Int[Array, ""], batch_size: int) -> Any:
    """All rows where they fit, otherwise the next block of the shuffled rows, cyclically."""
    if batch_size >= data.weights.shape[0]:
        return data
    index = order[(i * batch_size + jnp.arange(batch_size)) % data.n_data.astype(int)]
    taken = jax.tree.map(lambda leaf: leaf[index], eqx.tree_at(lambda d: d.n_data, data, order))
    return eqx.tree_at(lambda d: d.n_data, taken, data.n_data)
