"""Several devices, of one or several processes, as one mesh over which the rows of a batch are split.

Parameters are on every device. A program is written for the whole batch, and the compiler splits it: random numbers
belong to a place in the batch, so that results do not depend on the number of devices, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from ..errors import OptionError

# The axis of the mesh.
ROWS = "rows"


def data_mesh(devices: Any) -> Mesh | None:
    """The mesh that the option `devices` stands for: None, "all", a number of devices, or devices of JAX."""
    if devices is None:
        return None
    known = jax.devices()
    if isinstance(devices, str) and devices == "all":
        chosen = known
    elif isinstance(devices, int | np.integer) and not isinstance(devices, bool):
        if not 1 <= devices <= len(known):
            raise OptionError(f"devices={devices} given; expected 1 to {len(known)}, the devices that JAX has here.")
        chosen = known[: int(devices)]
    elif isinstance(devices, Sequence) and devices and all(isinstance(one, jax.Device) for one in devices):
        chosen = list(devices)
    else:
        raise OptionError(f"devices={devices!r} given; expected None, 'all', a number, or a list of jax.devices().")
    if len({one.process_index for one in chosen}) < jax.process_count():
        raise OptionError(
            f"devices={devices!r} given in one of {jax.process_count()} processes, some of which would have no device; "
            "expected devices of all processes: pass 'all', or start fewer processes."
        )
    return Mesh(np.array(chosen), (ROWS,))


def n_processes() -> int:
    """How many processes compute together."""
    return jax.process_count()


def process_number() -> int:
    """The number of this process, from 0."""
    return jax.process_index()


def is_first_process() -> bool:
    """Whether this process is the one that writes files; always where there is one process."""
    return jax.process_index() == 0


def agreed(values: np.ndarray, mesh: Mesh | None) -> np.ndarray:
    """The values of the first process in all processes: what they decide, all do."""
    if mesh is None or jax.process_count() == 1:
        return values
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return np.asarray(broadcast_one_to_all(values))


def gathered(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays of all processes, each stacked along a new first axis."""
    if jax.process_count() == 1:
        return [np.asarray(array)[None] for array in arrays]
    from jax.experimental.multihost_utils import process_allgather

    return [np.asarray(array) for array in process_allgather(tuple(arrays))]


def on_all(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """The arrays of a tree on every device of the mesh; as they are without one."""
    if mesh is None:
        return tree
    sharding = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda leaf: _placed(leaf, sharding), tree)


def split_over(values: np.ndarray, mesh: Mesh | None, axis: int) -> Any:
    """An array of the host with one axis split over the devices, of which each process moves its own part."""
    if mesh is None:
        return jax.device_put(values)
    return _placed(values, NamedSharding(mesh, PartitionSpec(*[None] * axis, ROWS)))


def split_by(block: Callable[[int, int], np.ndarray], shape: tuple[int, ...], mesh: Mesh | None) -> Any:
    """An array whose second axis is split over the devices; `block` gives the part between two places of that axis."""
    if mesh is None:
        return jax.device_put(block(0, shape[1]))
    sharding = NamedSharding(mesh, PartitionSpec(None, ROWS))

    def part(index: Any) -> np.ndarray:
        start, stop, _ = index[1].indices(shape[1])
        return block(start, stop)

    return jax.make_array_from_callback(shape, sharding, part)


def _placed(leaf: Any, sharding: NamedSharding) -> Any:
    if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
        return leaf
    if isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        words = _placed(jax.random.key_data(leaf), sharding)
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    values = np.asarray(leaf)
    # Every process has the same values and moves them to its own devices: `device_put` would compare them first.
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


# --- inside programs -----------------------------------------------------------------------------


def split_rows(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Tell the compiler to split the first axis of the arrays over the devices; it need not divide."""
    return tree if mesh is None else _constrained(tree, NamedSharding(mesh, PartitionSpec(ROWS)), 1)


def kept_whole(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """Tell the compiler to keep the arrays on every device."""
    return tree if mesh is None else _constrained(tree, NamedSharding(mesh, PartitionSpec()), 0)


def _constrained(tree: PyTree, sharding: NamedSharding, least_axes: int) -> PyTree:
    def one(leaf: Any) -> Any:
        is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf if is_key or leaf.ndim < least_axes else jax.lax.with_sharding_constraint(leaf, sharding)

    return jax.tree.map(one, tree)
