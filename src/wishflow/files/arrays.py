"""Trees of arrays as named arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ModelFileError

_MAX_LISTED = 10


# --- trees of arrays -------------------------------------------------------------------------


def flatten_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The array leaves of a pytree as NumPy copies under dotted path names, such as `field.noise.scale.raw`.

    Random keys are stored as their words. Leaves that are no arrays (Python numbers, functions) are left out: they are
    part of the structure, which `unflatten_arrays` takes from its template.
    """
    return {name: np.array(_stored_form(leaf), order="C") for name, leaf in _named_leaves(tree) if _is_array(leaf)}


def unflatten_arrays(template: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """A pytree like the template with the named arrays as its leaves; the inverse of `flatten_arrays`.

    Names, shapes and types must be those of the template, whose arrays may be `jax.ShapeDtypeStruct`s (except random
    keys). JAX leaves become JAX arrays on the default device, NumPy leaves NumPy arrays.
    """
    import jax

    named = _named_leaves(template)
    differences = _differences({name: _stored_shape(leaf) for name, leaf in named if _is_array(leaf)}, arrays)
    if differences:
        more = [f"and {len(differences) - _MAX_LISTED} more"] if len(differences) > _MAX_LISTED else []
        raise ModelFileError(
            "the arrays do not fit the model: "
            + "; ".join(differences[:_MAX_LISTED] + more)
            + ". Build the model with the "
            "settings the arrays were saved with, or save it again with this version of wishflow."
        )
    leaves = [_restored(leaf, arrays[name], name) if _is_array(leaf) else leaf for name, leaf in named]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(template), leaves)


def part_of(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with the prefix, under the rest of their names."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = [(_path_name(path), leaf) for path, leaf in leaves]
    names = [name for name, _ in named]
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise ModelFileError(
            f"several arrays of the tree are named {repeated[0]!r}; use keys that remain different as text."
        )
    return named


def _path_name(path: tuple[Any, ...]) -> str:
    import jax

    parts = [jax.tree_util.keystr((entry,), simple=True) for entry in path]
    # A dot inside a key is escaped, so that {"a.b": x} and {"a": {"b": x}} do not share a name.
    return ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in parts) or "array"


def _is_array(leaf: Any) -> bool:
    import jax

    return isinstance(leaf, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct)


def _is_random_key(leaf: Any) -> bool:
    import jax

    return not isinstance(leaf, np.ndarray | np.generic) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _stored_form(leaf: Any) -> Any:
    import jax

    return jax.random.key_data(leaf) if _is_random_key(leaf) else leaf


def _stored_shape(leaf: Any) -> tuple[tuple[int, ...], np.dtype]:
    import jax

    stored = jax.eval_shape(jax.random.key_data, leaf) if _is_random_key(leaf) else leaf
    return tuple(stored.shape), np.dtype(stored.dtype)


def _differences(
    expected: Mapping[str, tuple[tuple[int, ...], np.dtype]], arrays: Mapping[str, np.ndarray]
) -> list[str]:
    """One phrase for each array that is missing, not expected, or of another shape or type."""
    found = []
    for name, (shape, dtype) in expected.items():
        if name not in arrays:
            found.append(f"{name!r} is missing")
        elif arrays[name].shape != shape:
            found.append(f"{name!r} has shape {arrays[name].shape}, expected {shape}")
        elif arrays[name].dtype != dtype:
            found.append(f"{name!r} has type {arrays[name].dtype}, expected {dtype}")
    return found + [f"{name!r} is not part of the model" for name in arrays if name not in expected]


def _restored(leaf: Any, array: np.ndarray, name: str) -> Any:
    """The array as the kind of leaf the template has."""
    import jax

    from ..numerics.devices import require_x64

    if isinstance(leaf, np.ndarray):
        return np.array(array)
    if isinstance(leaf, np.generic):
        return array[()]
    if _is_random_key(leaf):
        return jax.random.wrap_key_data(jax.numpy.array(array), impl=jax.random.key_impl(leaf))
    if array.dtype.itemsize == 8 and array.dtype.kind in "fiu":  # JAX may halve its width without a word
        require_x64(f"the saved array {name!r}")
    return jax.numpy.array(array)
