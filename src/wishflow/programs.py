"""Whole compiled programs on disk: a later process neither traces nor lowers nor compiles them again.

JAX's compilation cache spares XLA's part alone; for a fit to a few hundred rows tracing takes longer than all that is
left. A program is found again by all that it is made from: the function and the code of this package, versions,
machine, compiler options, settings of JAX, and the arguments but for the numbers in their arrays. Where that cannot be
told (classes of a user, functions without a name) there is no key, and the program is traced as usual.

Files are pickles, as trustworthy as the folder they lie in, which is the user's own.
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
# Settings of JAX that change what is traced; those of a context count.
SETTINGS = (
    *("jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable"),
    *("jax_numpy_dtype_promotion", "jax_numpy_rank_promotion", "jax_debug_nans", "jax_debug_infs", "jax_disable_jit"),
)
LOADED = "/wishflow/program_load_duration"


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
        self.ready: dict[Any, Program] = {}

    def find(self, function: Callable, given: Any, options: dict[str, Any]) -> Callable[[], Any] | None:
        """A call of the program for these arguments: at hand, from its file, or made now; None where it has no key."""
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(given)):
            return None
        arguments = Arguments.of(given)
        kind = arguments.kind
        if kind is None:
            return None
        known = (function, kind, settings())
        if known not in self.ready:
            name = key(function, arguments, options)
            if name is None:
                return None
            program = load(self.folder / name)
            self.ready[known] = make(self.folder / name, function, arguments, options) if program is None else program
        program = self.ready[known]
        return lambda: program(arguments.arrays)


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled function of arrays, and what its results are put back into."""

    executable: Any
    results: Arguments

    def __call__(self, arrays: list[Any]) -> Any:
        return self.results.restored(self.executable(*arrays))


def settings() -> tuple[Any, ...]:
    """What JAX is set to, contexts included."""
    return tuple(getattr(jax.config, name, None) for name in SETTINGS)


def key(function: Callable, arguments: Arguments, options: dict[str, Any]) -> str | None:
    """The name of a program's file; None where the arguments hold code that is not known here."""
    described = repr(arguments.kind)
    if not function.__module__.startswith("wishflow.") or " at 0x" in described or not _is_known(arguments):
        return None
    text = repr((function.__module__, function.__qualname__, described, sorted(options.items()), settings()))
    return hashlib.sha256((text + surroundings()).encode()).hexdigest() + ".program"


def _is_known(arguments: Arguments) -> bool:
    """Whether all classes and functions in the arguments are of packages whose code the key knows."""
    leafless = jax.tree.unflatten(arguments.tree, [0] * len(arguments.arrays))
    try:
        operations = list(pickletools.genops(pickle.dumps((leafless, arguments.rest), protocol=2)))
    except (AttributeError, TypeError, pickle.PicklingError):
        return False
    modules = {str(value).split()[0] for operation, value, _ in operations if operation.name == "GLOBAL"}
    return all(module.split(".")[0] in KNOWN_CODE for module in modules)


@functools.cache
def surroundings() -> str:
    """Everything about this process that a program depends on: the package's code, versions, machine, device."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    versions = [importlib.metadata.version(name) for name in VERSIONS]
    device = jax.devices()[0]
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
    """Trace, compile and, where JAX can, write the program to its file."""
    found: list[Arguments] = []

    def of_arrays(*arrays: Any) -> list[Any]:
        args, kwargs = arguments.restored(arrays)
        found.append(Arguments.of(function(*args, **kwargs)))
        return found[-1].arrays

    # A program that came from JAX's own cache cannot be written again; by a name of its own it is in none.
    of_arrays.__name__ = f"{function.__name__}_{secrets.token_hex(4)}"
    executable = jax.jit(of_arrays, compiler_options=options).lower(*arguments.arrays).compile()
    results = dataclasses.replace(found[-1], arrays=[])
    skeleton = jax.tree.unflatten(results.tree, [0] * len(results.key_types))
    try:
        code = serialize_executable.serialize(executable)[0]
        stored = pickle.dumps((code, len(arguments.arrays), skeleton, results.rest, results.key_types))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(path, stored)
    except (AttributeError, NotImplementedError, OSError, TypeError, ValueError, pickle.PicklingError):
        pass  # it serves this process all the same
    return Program(executable, results)


@functools.cache
def connect_lapack() -> None:
    """JAX looks up LAPACK's functions when it lowers a program that calls one; a loaded program finds none without."""
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((2, 2), "float32"))


def load(path: Path) -> Program | None:
    """The program in a file; None where there is none, or none that this JAX can read."""
    started = time.perf_counter()
    try:
        code, n_arrays, skeleton, rest, key_types = pickle.loads(path.read_bytes())
        connect_lapack()
        trees = jax.tree.structure(((0,) * n_arrays, {})), jax.tree.structure([0] * len(key_types))
        executable = serialize_executable.deserialize_and_load(code, *trees, execution_devices=jax.devices()[:1])
    except FileNotFoundError:
        return None
    except Exception:  # a file of any content: what cannot be read is made anew
        return None
    jax.monitoring.record_event_duration_secs(LOADED, time.perf_counter() - started)
    return Program(executable, Arguments([], jax.tree.structure(skeleton), rest, key_types))
