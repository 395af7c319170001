"""Model files: a JSON header and named arrays in one safetensors file, written atomically, checked when read.

Nothing here knows a class of the package, and nothing read from a file is executed: a header comes back as plain
dictionaries, lists, strings, numbers, booleans and None, arrays as NumPy arrays. Reading and writing need no JAX.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from ..errors import ModelFileError
from .json import plain
from .trust import check_depth, check_empty
from .writing import write_bytes_atomic

FORMAT_NAME = "wishflow-model"
FORMAT_VERSION = 2
# Version 1 is that of wishflow 0.1.
READABLE_VERSIONS = (1, 2)
# Options of estimators that belong to a computer, not to a model: files do not hold them, and none is read from them.
NOT_STORED = ("callbacks", "checkpoint_dir", "backend", "backend_params")
# The types that safetensors and NumPy share; a model of another type is refused when it is saved, not when it is read.
_DTYPES = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64"),
}


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
        "sha256": checksum(text, arrays),
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
    if metadata.get("sha256") != checksum(text, arrays):
        raise ModelFileError(
            f"the checksum of {str(path)!r} does not match its content: the file was changed after it was saved; "
            "copy it again from its source or save the model again."
        )
    header = _parse_header(path, text)
    _check_same_version(path, metadata["format_version"], header)
    check_empty(arrays)
    return header, arrays


def _check_same_version(path: Path, version: str, header: Mapping[str, Any]) -> None:
    """The format version stands in the metadata, which the checksum does not cover, and in the header, which it does.

    Files of all versions have both. The first is read before anything else of a newer file; the second decides.
    """
    about = header.get("file")
    if not isinstance(about, dict) or str(about.get("format_version")) != version:
        raise ModelFileError(
            f"the metadata of {str(path)!r} give format version {version}, but its header gives another: the file was "
            "changed after it was saved; copy it again from its source or save the model again."
        )


def _parse_header(path: Path, text: str) -> dict[str, Any]:
    try:
        header = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ModelFileError(f"the header of {str(path)!r} is not a JSON object; save the model again.")
    check_depth(header)
    return header


def _refused(name: str) -> None:
    """NaN and infinity are no JSON, though Python reads them."""
    raise ValueError(name)


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


def checksum(text: str, arrays: Mapping[str, np.ndarray]) -> str:
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
            f"{str(path)!r} cannot be read ({error}): it is damaged, truncated or not a wishflow model file; "
            "copy it again from its source or save the model again."
        ) from error


def _check_format(path: Path, metadata: Mapping[str, str]) -> None:
    name, version = metadata.get("format"), metadata.get("format_version", "")
    if name != FORMAT_NAME:
        raise ModelFileError(
            f"{str(path)!r} is a safetensors file of format {name!r}, expected {FORMAT_NAME!r}; "
            "give a file written by the save method of a wishflow estimator."
        )
    if version.isdecimal() and len(version) < 10 and int(version) > FORMAT_VERSION:
        raise ModelFileError(
            f"{str(path)!r} has format version {version}, but this wishflow reads versions up to {FORMAT_VERSION}; "
            "update wishflow, or save the model with this version."
        )
    if version not in map(str, READABLE_VERSIONS):
        raise ModelFileError(
            f"{str(path)!r} has format version {version[:9]!r}, expected one of {READABLE_VERSIONS}; save the model "
            "again."
        )
