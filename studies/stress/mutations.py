"""Mutated files: bytes of model files, checkpoints and JSON results, changed at random; half of them are well formed.

A mutation is a function of the number of the file: a problem can be looked at again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from wishflow.files.model_file import FORMAT_NAME, checksum

MOST_CHANGES = 4
VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 7, 60, 1000, 10**6, 10**9, 10**12, 2**63, 10**30),
    *(0.5, -0.5, 1e-300, 1e308, -1e308, 5e-324, "x", "", "Ω" * 50, "__class__", "os.system", "a\x00b", "1e400"),
    *([], {}, [[]], [0], [-1, 5], [1, 1], {"kind": "RBF"}, {"kind": "Nothing"}, {"kind": ["RBF"]}, {"": None}),
]
NUMBERS = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e30, -1e20, 1e-300, 0.0, -0.0, -1.0, 1.0, 1e6]
TYPES = [np.float32, np.float64, np.float16, np.int64, np.int8, np.uint32, np.bool_]
SHAPES: list[tuple[int, ...]] = [(0,), (0, 10**9), (10**9, 0), (), (1,), (1, 1), (3, 0), (2, 2, 2)]

Arrays = dict[str, np.ndarray]


def generator(number: int) -> np.random.Generator:
    """The random numbers of a file."""
    return np.random.default_rng([26, number])


# --- whole files -----------------------------------------------------------------------------


def mutated_model(content: bytes, others: bytes, rng: np.random.Generator, is_well_formed: bool) -> bytes:
    """A model file or a checkpoint, changed; well formed: a safetensors file with the right checksum.

    `others` is the content of another file, parts of which may take the place of its own.
    """
    if not is_well_formed and rng.random() < 0.7:
        return mutated_bytes(content, others, rng)
    metadata, arrays = unpacked(content)
    text, kept = metadata["header"], metadata["sha256"]
    for _ in range(1 + min(rng.geometric(0.6) - 1, MOST_CHANGES - 1)):
        chance = rng.random()
        if chance < 0.5:
            text = json.dumps(mutated_json(_parsed(text), rng))
        elif chance < 0.55:
            text = mutated_bytes(text.encode(), b"{}[],:", rng).decode(errors="replace")
        elif chance < 0.56:
            text = str(rng.choice(["[", '{"a":'])) * int(rng.integers(1, 20_000)) + text
        elif chance < 0.58:
            metadata = {**metadata, "format_version": str(rng.choice(["1", "2", "3", "-1", "9" * 50]))}
        else:
            arrays = mutated_arrays(arrays, rng)
    sha256 = checksum(text, arrays) if is_well_formed else kept
    return safetensors.numpy.save(arrays, {**metadata, "format": FORMAT_NAME, "header": text, "sha256": sha256})


def unpacked(content: bytes) -> tuple[dict[str, str], Arrays]:
    """Metadata and arrays of a file."""
    length = int.from_bytes(content[:8], "little")
    arrays = safetensors.numpy.load(content)
    return json.loads(content[8 : 8 + length])["__metadata__"], {name: arrays[name] for name in sorted(arrays)}


def mutated_text(content: bytes, others: bytes, rng: np.random.Generator) -> bytes:
    """A JSON file, changed as a text or as what it says."""
    if rng.random() < 0.4:
        return mutated_bytes(content, others, rng)
    if rng.random() < 0.05:
        return str(rng.choice(["[", '{"a":'])).encode() * int(rng.integers(1, 200_000))
    value = json.loads(content)
    for _ in range(int(rng.integers(1, MOST_CHANGES + 1))):
        value = mutated_json(value, rng)
    return json.dumps(value).encode()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # changed as a text before
        return {}


# --- bytes -----------------------------------------------------------------------------------


def mutated_bytes(content: bytes, others: bytes, rng: np.random.Generator) -> bytes:
    """Bytes flipped, replaced, cut, put in, or taken from another file."""
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, MOST_CHANGES + 1))):
        n = max(1, len(changed))
        place, length = int(rng.integers(n)), int(min(rng.geometric(0.05), n))
        kind = rng.integers(7)
        if kind == 0 and changed:
            changed[place % len(changed)] ^= int(1 << rng.integers(8))
        elif kind == 1:
            changed[place : place + length] = rng.bytes(length)
        elif kind == 2:
            del changed[place:]
        elif kind == 3:
            del changed[place : place + length]
        elif kind == 4:
            changed[place:place] = changed[place : place + length]
        elif kind == 5:
            start = int(rng.integers(max(1, len(others))))
            changed[place : place + length] = others[start : start + length]
        else:
            changed[:8] = int(rng.choice([0, 7, 10**5, 2**31, 2**62])).to_bytes(8, "little")
    return bytes(changed)


# --- what a header says ----------------------------------------------------------------------


def mutated_json(value: Any, rng: np.random.Generator) -> Any:
    """The value with one of its parts, at any depth, changed."""
    places = list(_places(value))
    if not places:
        return VALUES[rng.integers(len(VALUES))]
    place = places[rng.integers(len(places))]
    return _with_part(value, place, lambda part: _other(part, value, places, rng))


GONE = object()


def _other(part: Any, whole: Any, places: list[tuple], rng: np.random.Generator) -> Any:
    kind = rng.integers(6)
    if kind == 0:
        return GONE
    if kind == 1:  # what stands elsewhere
        return _part(whole, places[rng.integers(len(places))])
    if kind == 2 and isinstance(part, int | float) and not isinstance(part, bool):
        return [part + 1, part - 1, -part, part * 10, part * 10**6, part / 3, str(part)][rng.integers(7)]
    if kind == 3 and isinstance(part, list):
        return [part * 2, part[::-1], part[1:], [*part, None]][rng.integers(4)]
    if kind == 4 and isinstance(part, dict):
        return {**part, str(rng.choice(["kind", "", "extra", "rank"])): VALUES[rng.integers(len(VALUES))]}
    if kind == 5:
        return [part] if rng.random() < 0.5 else _nested(int(rng.choice([1, 30, 100])))
    return VALUES[rng.integers(len(VALUES))]


def _nested(depth: int) -> Any:
    value: Any = {"kind": "RBF"}
    for _ in range(depth):
        value = {"kind": "Sum", "parts": [value]}
    return value


def _places(value: Any, at: tuple = ()) -> Any:
    """The places of all parts, as keys from the top; those of long lists are a few of them."""
    if len(at) > 40:
        return
    keys = list(value) if isinstance(value, dict) else range(min(len(value), 4)) if isinstance(value, list) else ()
    for key in keys:
        yield (*at, key)
        yield from _places(value[key], (*at, key))


def _part(value: Any, place: tuple) -> Any:
    for key in place:
        value = value[key]
    return value


def _with_part(value: Any, place: tuple, change: Callable[[Any], Any]) -> Any:
    """A copy with the part at a place changed; `GONE` takes it out."""
    if not place:
        return change(value)
    key, rest = place[0], place[1:]
    changed = _with_part(value[key], rest, change)
    if isinstance(value, dict):
        parts = {k: changed if k == key else v for k, v in value.items()}
        return {k: v for k, v in parts.items() if v is not GONE}
    return [v for v in [*value[:key], changed, *value[key + 1 :]] if v is not GONE]


# --- arrays ----------------------------------------------------------------------------------


def mutated_arrays(arrays: Mapping[str, np.ndarray], rng: np.random.Generator) -> Arrays:
    """The arrays with one of them changed, taken out or under another name."""
    if not arrays:
        return {"x": np.zeros(3)}
    names = list(arrays)
    name, other = (names[rng.integers(len(names))] for _ in range(2))
    rest = {key: value for key, value in arrays.items() if key != name}
    kind = rng.integers(5)
    if kind == 0:
        return rest
    if kind == 1:
        return {**rest, str(rng.choice([other, name + "x", name[1:], "model.x"])) or "x": arrays[name]}
    if kind == 2:
        return {**arrays, name: arrays[other]}
    return {**arrays, name: np.ascontiguousarray(_changed(arrays[name], rng))}


def _changed(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An array of another shape, type or content."""
    kind = rng.integers(8)
    if kind == 0:
        return array[:-1] if array.ndim else np.zeros(2)
    if kind == 1:
        return np.zeros(SHAPES[rng.integers(len(SHAPES))], array.dtype)
    if kind == 2:
        with np.errstate(all="ignore"):
            return array.astype(TYPES[rng.integers(len(TYPES))])
    if kind == 3:
        return array.T.reshape(-1) if rng.random() < 0.5 else array[None]
    if kind == 4:
        return np.concatenate([array, array]) if array.ndim else array[None]
    changed = array.copy()
    if not changed.size:
        return changed
    with np.errstate(all="ignore"):
        if kind == 5 and changed.dtype.kind == "f":
            return changed * float(rng.choice([-1.0, 0.0, 1e-20, 1e8, 1e20, 1e200]))
        value = float(rng.choice(NUMBERS)) if changed.dtype.kind == "f" else int(rng.choice([0, 1, 100, 127]))
        if kind == 6:
            changed[...] = value
        else:
            changed.flat[rng.integers(changed.size)] = value
    return changed
