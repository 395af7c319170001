"""Whole compiled programs on disk: a later process neither traces nor lowers nor compiles them again.

JAX's compilation cache spares XLA's part alone; for a fit to a few hundred rows tracing takes longer than all that is
left. A program is found again by all that it is made from: the function and the code of this package, versions,
machine, compiler options, settings of JAX, and the arguments but for the numbers in their arrays. Where that cannot be
told (classes of a user, functions without a name) there is no key, and the program is traced as usual.

Files are pickles, as trustworthy as the folder they lie in; those of other users are not read.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import pickle
import pickletools
import platform
import secrets
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
from jax.experimental import serialize_executable

from .atomic import write_bytes_atomic

# Code that the key knows, by content or by version.
KNOWN_CODE = ("wishflow", "jax", "jaxlib", "equinox", "optax", "numpy", "builtins", "copyreg", "_codecs")
VERSIONS = ("jax", "jaxlib", "equinox", "optax", "numpy")
PACKAGE = Path(__file__).parent
# Settings of JAX, by a part of their name, that change no program; all others are in the key.
HARMLESS = (
    *("cache", "log", "traceback", "dump", "pprint", "guard", "captured", "url", "regex", "proxy", "topology"),
    *("cross_host", "distributed", "preemption", "share_binary", "leaked_clients", "recoverability"),
)
# With one of these JAX is to look into programs; with a device of its own it is another machine.
UNUSUAL = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_default_device")
LOADED = "/wishflow/program_load_duration"
# Code that was changed since may not be the one that was imported.
IMPORTED = time.time()


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Arguments of a call: arrays (random keys as numbers), and the rest."""

    arrays: list[Any]
    tree: Any
    rest: Any
    key_types: tuple[Any, ...]

    @classmethod
    def of(cls, given: Any) -> Arguments:
        dynamic, rest = eqx.partition(given, eqx.is_array)
        leaves, tree = jax.tree.flatten(dynamic)
        key_types = tuple(_key_type(leaf) for leaf in leaves)
        numbers = [
            leaf if kind is None else jax.random.key_data(leaf) for leaf, kind in zip(leaves, key_types, strict=True)
        ]
        return cls(numbers, tree, rest, key_types)

    def restored(self, arrays: Any) -> Any:
        leaves = [_as_keys(array, kind) for array, kind in zip(arrays, self.key_types, strict=True)]
        return eqx.combine(jax.tree.unflatten(self.tree, leaves), self.rest)

    @property
    def kind(self) -> tuple[Any, ...] | None:
        """All but the numbers, to be compared; None where something in the rest cannot be."""
        leaves, tree = jax.tree.flatten(self.rest)
        shapes = tuple((a.shape, a.dtype, getattr(a, "weak_type", False)) for a in self.arrays)
        try:
            hash((self.tree, tree, tuple(leaves)))
        except TypeError:
            return None
        # Types too: 1, 1.0 and True are equal.
        return self.tree, tree, tuple(leaves), tuple(map(type, leaves)), shapes, self.key_types


def _key_type(leaf: Any) -> str | None:
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return str(jax.random.key_impl(leaf)) if is_key else None


def _as_keys(array: Any, kind: str | None) -> Any:
    return array if kind is None else jax.random.wrap_key_data(array, impl=kind)


class StoredPrograms:
    """The programs in a folder, and those that this process has at hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ready: dict[Any, Program | None] = {}

    def find(self, function: Callable, given: Any, options: dict[str, Any]) -> Callable[[], Any] | None:
        """A call of the program for these arguments: at hand, from its file, or made now; None where it has no key."""
        if any(getattr(jax.config, name, None) for name in UNUSUAL) or not _are_here(given):
            return None
        arguments = Arguments.of(given)
        kind = arguments.kind
        if kind is None:
            return None
        known = (function, kind, settings())
        if known not in self.ready:
            self.ready[known] = self._loaded_or_made(function, arguments, options)
        program = self.ready[known]
        return None if program is None else lambda: program(arguments.arrays)

    def _loaded_or_made(self, function: Callable, arguments: Arguments, options: dict[str, Any]) -> Program | None:
        name = key(function, arguments, options)
        if name is None:
            return None
        program = load(self.folder / name)
        return make(self.folder / name, function, arguments, options) if program is None else program


def _are_here(given: Any) -> bool:
    """Whether all arrays have their numbers (under `jit` they have none), and have them on the first device."""
    here = {jax.local_devices()[0]}
    arrays = [leaf for leaf in jax.tree.leaves(given) if isinstance(leaf, jax.Array)]
    return all(not isinstance(array, jax.core.Tracer) and array.devices() == here for array in arrays)


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled function of arrays, and what its results are put back into."""

    executable: Any
    results: Arguments

    def __call__(self, arrays: list[Any]) -> Any:
        return self.results.restored(self.executable(*arrays))


def settings() -> tuple[Any, ...]:
    """What JAX is set to, contexts included."""
    return tuple(getattr(jax.config, name, None) for name in _names_of_settings())


@functools.cache
def _names_of_settings() -> tuple[str, ...]:
    return tuple(name for name in sorted(jax.config.values) if not any(part in name for part in HARMLESS))


def key(function: Callable, arguments: Arguments, options: dict[str, Any]) -> str | None:
    """The name of a program's file; None where function or arguments hold code that is not known here."""
    is_plain = function.__module__.startswith("wishflow.") and not (function.__closure__ or function.__defaults__)
    if not is_plain or not _is_known(arguments) or not is_as_imported():
        return None
    described = repr(arguments.kind)
    if " at 0x" in described:
        return None
    text = repr((function.__module__, function.__qualname__, described, sorted(options.items()), settings()))
    return hashlib.sha256((text + surroundings()).encode()).hexdigest() + ".program"


def _is_known(arguments: Arguments) -> bool:
    """Whether all classes and functions in the arguments are of packages whose code the key knows."""
    leafless = jax.tree.unflatten(arguments.tree, [0] * len(arguments.arrays))
    try:
        pickled = pickle.dumps((leafless, arguments.rest), protocol=2, fix_imports=False)
        operations = list(pickletools.genops(pickled))
    except Exception:  # whatever a class of a user raises: it is not known
        return False
    modules = {str(value).split()[0] for operation, value, _ in operations if operation.name == "GLOBAL"}
    return all(module.split(".")[0] in KNOWN_CODE for module in modules)


def is_as_imported() -> bool:
    """Whether the files of the package are those that this process runs, as far as their dates tell."""
    dates = [path.stat().st_mtime for path in PACKAGE.rglob("*.py")]
    return bool(dates) and max(dates) < IMPORTED


@functools.cache
def surroundings() -> str:
    """Everything about this process that a program depends on: the package's code, versions, machine, device."""
    code = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        code.update(str(path.relative_to(PACKAGE)).encode() + path.read_bytes())
    versions = [importlib.metadata.version(name) for name in VERSIONS]
    device = jax.local_devices()[0]
    machine = [platform.machine(), platform.python_version(), _features(), str(os.cpu_count())]
    flags = [os.environ.get("XLA_FLAGS", ""), device.device_kind, str(device.client.platform_version)]
    return repr((code.hexdigest(), versions, machine, flags, jax.device_count()))


def _features() -> str:
    """The instructions this processor knows: programs for the CPU are made for them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.lower().startswith(("flags", "features"))), platform.processor())


def make(path: Path, function: Callable, arguments: Arguments, options: dict[str, Any]) -> Program:
    """Trace, compile and, where that is possible, write the program to its file."""
    found: list[Arguments] = []

    def of_arrays(*arrays: Any) -> list[Any]:
        args, kwargs = arguments.restored(arrays)
        found.append(Arguments.of(function(*args, **kwargs)))
        return found[-1].arrays

    # A program that came from JAX's own cache is written without its machine code, and nothing tells. By a name of its
    # own it is in no cache.
    of_arrays.__name__ = f"{function.__name__}_{secrets.token_hex(4)}"
    executable = jax.jit(of_arrays, compiler_options=options).lower(*arguments.arrays).compile()
    results = dataclasses.replace(found[-1], arrays=[])
    skeleton = jax.tree.unflatten(results.tree, [0] * len(results.key_types))
    try:
        code = serialize_executable.serialize(executable)[0]
        stored = pickle.dumps((code, len(arguments.arrays), skeleton, results.rest, results.key_types))
        if is_as_imported():
            write_bytes_atomic(path, stored)
    except Exception as error:  # it serves this process all the same
        warnings.warn(
            f"the program {function.__name__!r} cannot be kept in {str(path.parent)!r} "
            f"({type(error).__name__}: {error}) and will be compiled again by the next process; "
            "is there room, and may this user write there?",
            RuntimeWarning,
            stacklevel=2,
        )
    return Program(executable, results)


@functools.cache
def connect_lapack() -> None:
    """JAX looks up LAPACK's functions when it lowers a program that calls one; a loaded program finds none without."""
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((2, 2), "float32"))


def load(path: Path) -> Program | None:
    """The program in a file of this user; None where there is none, or none that this JAX can read."""
    started = time.perf_counter()
    try:
        if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            return None
        code, n_arrays, skeleton, rest, key_types = pickle.loads(path.read_bytes())
        connect_lapack()
        trees = jax.tree.structure(((0,) * n_arrays, {})), jax.tree.structure([0] * len(key_types))
        executable = serialize_executable.deserialize_and_load(code, *trees, execution_devices=jax.local_devices()[:1])
    except Exception:  # no file, or one of any content: what cannot be read is made anew
        return None
    jax.monitoring.record_event_duration_secs(LOADED, time.perf_counter() - started)
    return Program(executable, Arguments([], jax.tree.structure(skeleton), rest, key_types))
