"""Model files: a JSON header and named arrays in one safetensors file, written atomically, checked when read.

Nothing here knows a class of the package, and nothing read from a file is executed: a header comes back as plain
dictionaries, lists, strings, numbers, booleans and None, arrays as NumPy arrays. Reading and writing need no JAX.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from .atomic import write_bytes_atomic
from .errors import ModelFileError

FORMAT_NAME = "wishflow-model"
FORMAT_VERSION = 1
# The types that safetensors and NumPy share; a model of another type is refused when it is saved, not when it is read.
_DTYPES = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64"),
}
_MAX_LISTED = 10


# --- model files -----------------------------------------------------------------------------


def write_model(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a header of plain JSON values and named arrays to one file; an old file stays until it is complete.

    The entry "file" of the header belongs to this function: format, format version, package versions, time of writing.
    The SHA-256 checksum covers the header and names, types, shapes and bytes of all arrays.
    """
    arrays = {name: _storable(name, array) for name, array in arrays.items()}
    text = _header_text({**header, "file": _provenance()})
    metadata = {
        "format": FORMAT_NAME,
        "format_version": str(FORMAT_VERSION),
        "header": text,
        "sha256": _checksum(text, arrays),
    }
    write_bytes_atomic(path, safetensors.numpy.save(arrays, metadata))


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file made by `write_model`, bit for bit; `ModelFileError` where they cannot be trusted."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no model file {str(path)!r}; check the path given to load.")
    if not path.is_file():
        raise ModelFileError(f"{str(path)!r} is not a file; expected the path of one model file, as given to save.")
    metadata, arrays = _read_safetensors(path)
    _check_format(path, metadata)
    text = metadata.get("header", "")
    if metadata.get("sha256") != _checksum(text, arrays):
        raise ModelFileError(
            f"the checksum of {str(path)!r} does not match its content: the file was changed after it was saved; "
            "copy it again from its source or save the model again."
        )
    return _parse_header(path, text), arrays


def _parse_header(path: Path, text: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ModelFileError(f"the header of {str(path)!r} is not a JSON object; save the model again.")
    return header


def _storable(name: str, array: Any) -> np.ndarray:
    """The array as safetensors stores it: contiguous, little endian, of a type that it knows."""
    if name == "__metadata__":
        raise ModelFileError("an array is named '__metadata__', which safetensors keeps for itself; rename it.")
    array = np.asarray(array, order="C")  # np.ascontiguousarray would turn 0-d arrays into 1-d ones
    if array.dtype.name not in _DTYPES:
        raise ModelFileError(
            f"array {name!r} has type {array.dtype}; a model file holds {', '.join(sorted(_DTYPES))}: convert it, "
            "or put text into the header."
        )
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _header_text(header: dict[str, Any]) -> str:
    try:
        return json.dumps(plain(header), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"the header cannot be written as JSON ({error}); expected dictionaries with text keys, lists, text, "
            "finite numbers, booleans and None: keep other numbers among the arrays."
        ) from error


def _provenance() -> dict[str, Any]:
    versions = {package: _version(package) for package in ("wishflow", "jax", "numpy")}
    return {
        "format": FORMAT_NAME,
        "format_version": FORMAT_VERSION,
        "versions": {**versions, "python": platform.python_version()},
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return "unknown"


def _checksum(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over the header text, then name, type, shape and bytes of each array in order of the names."""
    digest = hashlib.sha256(json.dumps(text).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _read_safetensors(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    try:
        with safetensors.safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            # Another program's file may hold types NumPy lacks; `_check_format` refuses it, so its arrays are not read.
            names = file.keys() if metadata.get("format") == FORMAT_NAME else []
            return metadata, {name: file.get_tensor(name) for name in names}
    except OSError:
        raise
    except Exception as error:  # safetensors reports damage by errors of several types
        raise ModelFileError(
            f"{str(path)!r} cannot be read ({error}): it is damaged, cut short or no wishflow model file; "
            "copy it again from its source or save the model again."
        ) from error


def _check_format(path: Path, metadata: Mapping[str, str]) -> None:
    name, version = metadata.get("format"), metadata.get("format_version", "")
    if name != FORMAT_NAME:
        raise ModelFileError(
            f"{str(path)!r} is a safetensors file of format {name!r}, expected {FORMAT_NAME!r}; "
            "give a file written by the save method of a wishflow estimator."
        )
    if version.isdecimal() and int(version) > FORMAT_VERSION:
        raise ModelFileError(
            f"{str(path)!r} has format version {version}, but this wishflow reads versions up to {FORMAT_VERSION}; "
            "update wishflow, or save the model with this version."
        )
    if version != str(FORMAT_VERSION):
        raise ModelFileError(
            f"{str(path)!r} has format version {version!r}, expected {FORMAT_VERSION}; save the model again."
        )


# --- JSON ----------------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """The content of a JSON file; None where there is no file, or one that is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_json_atomic(path: str | os.PathLike[str], data: Any) -> None:
    """Write results as an indented JSON file, atomically; NaN and infinities, which JSON lacks, become null."""
    text = json.dumps(_finite(plain(data)), allow_nan=False, ensure_ascii=False, indent=2)
    write_bytes_atomic(path, (text + "\n").encode())


def plain(value: Any) -> Any:
    """The value in JSON types alone: NumPy arrays and tuples become lists, NumPy numbers Python numbers, paths text."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise TypeError(f"key {wrong[0]!r} is a {type(wrong[0]).__name__}, expected text")
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r} is a {type(value).__name__}, which JSON lacks")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- trees of arrays -------------------------------------------------------------------------


def flatten_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The array leaves of a pytree as NumPy copies under dotted path names, such as `field.gp.q_mean.raw`.

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


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = [(_path_name(path), leaf) for path, leaf in leaves]
    names = [name for name, _ in named]
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if repeated:
        raise ModelFileError(
            f"several arrays of the tree are named {repeated[0]!r}; give its entries keys that differ as text."
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

    return not isinstance(leaf, np.ndarray | np.generic) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


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

    from .runtime import require_x64

    if isinstance(leaf, np.ndarray):
        return np.array(array)
    if isinstance(leaf, np.generic):
        return array[()]
    if _is_random_key(leaf):
        return jax.random.wrap_key_data(jax.numpy.array(array), impl=jax.random.key_impl(leaf))
    if array.dtype.itemsize == 8 and array.dtype.kind in "fiu":  # JAX may halve its width without a word
        require_x64(f"the saved array {name!r}")
    return jax.numpy.array(array)
