"""Contexts around our own computations: 64-bit types, matrix-product precision, BLAS threads.

Nothing here changes a process-wide setting: each context restores what it found.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, PRNGKeyArray

from ..errors import PrecisionError
from .process import BLAS, ORIGIN, PROGRAMS

# For annotations of what takes arrays of the host as they are: `Float[AnyArray, "N D"]`.
AnyArray = Array | np.ndarray

# On a GPU most of a compilation goes into trials of ways to multiply matrices. Without Triton's ways there are far
# fewer; steps may be slower, by less than a fit of a few thousand of them saves (docs/performance.md).
GPU_OPTIONS: dict[str, Any] = {"xla_gpu_enable_triton_gemm": False}
# Kernels that do not depend on each other side by side: most of ours leave a large GPU half idle. It takes more memory,
# and where paths are loops it is slower (docs/performance.md).
SIDE_BY_SIDE: dict[str, Any] = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
# On the CPU a program of ours can take longer to compile than to run. With these options of XLA a flow compiles three
# times sooner and runs as fast: its work is in matrix products and factorisations, which LLVM does not see.
# Sums by blocks (the pass that is left out) are much to compile and no faster, and gradients in float32 are as near to
# those in float64 without them (docs/performance.md).
QUICK_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_disable_hlo_passes": "tree_reduction_rewriter",
}


@contextlib.contextmanager
def computing() -> Iterator[None]:
    """Everything the estimators compute runs inside this context.

    - 64-bit types are on: Kzz, its Cholesky factor and the KL terms need them.
    - Matrix products run at the highest precision: TF32 operands are off by 6e-4 relative. Products of some gradients
      say otherwise (`numerics.linalg.GRADIENT_PRECISION`).
    - OpenBLAS uses one thread: XLA has its own pool, and the two fight on few cores. Threads of Python may overlap
      here: the last one to leave restores the number of BLAS threads.
    - Settings of users by which JAX and NumPy refuse what is meant here have no effect: strict types and ranks,
      transfers, underflow.

    In a process that was forked after wishflow has computed it raises `ForkError`: there a computation would never end.
    """
    ORIGIN.check()
    with (  # not an ExitStack: Ctrl-C could come after a setting is made and before the stack knows of it
        jax.enable_x64(True),
        jax.default_matmul_precision("highest"),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.transfer_guard("allow"),
        np.errstate(under="ignore"),
        BLAS.held(),
    ):
        yield


def require_x64(what: str) -> None:
    """Refuse to run a float64 model while JAX would silently cast it to 32 bits."""
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise PrecisionError(
            f"{what} holds float64 arrays, but JAX works in 32 bits here; wrap the call in "
            "`with wishflow.numerics.devices.computing():` or in `with jax.enable_x64(True):`."
        )


def on_device(values: Any, dtype: DTypeLike | None = None) -> Array:
    """The values as an array of JAX. NumPy's are moved there: `jnp.asarray` would compile a program for each shape.
    Plain numbers become arrays of a strong type.
    """
    if isinstance(values, jax.Array):
        return jnp.asarray(values, dtype)
    return jax.device_put(np.array(values, dtype))


def random_key(seed: int) -> PRNGKeyArray:
    """`jax.random.key`, whose program for the 64 bits of a seed is longer to compile than its key is to write down."""
    if jax.config.jax_default_prng_impl != "threefry2x32":  # type: ignore[attr-defined]
        return jax.random.key(seed)
    words = np.array([seed >> 32, seed], np.int64).astype(np.uint32)
    return jax.random.wrap_key_data(jax.device_put(words), impl="threefry2x32")


def compiler_options(is_side_by_side: bool = False) -> dict[str, Any]:
    """Those of the options for this backend that this version of XLA knows; on a GPU with kernels side by side or
    without.
    """
    backend = jax.default_backend()
    return _known_options(backend, is_side_by_side and backend == "gpu")


@functools.cache
def _known_options(backend: str, is_side_by_side: bool) -> dict[str, Any]:
    gpu_options = {**GPU_OPTIONS, **SIDE_BY_SIDE} if is_side_by_side else GPU_OPTIONS
    wanted = {"cpu": QUICK_OPTIONS, "gpu": gpu_options}.get(backend, {})
    if _are_known(wanted):
        return dict(wanted)
    return {name: value for name, value in wanted.items() if _are_known({name: value})}


def _are_known(options: dict[str, Any]) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:  # "No such compile option"
        return False
    return True


def compiled(function: Callable, *, side_by_side: Callable[..., bool] | None = None) -> Callable:
    """`eqx.filter_jit` with our compiler options, looked up at the first call: importing starts no backend.

    `side_by_side` says of the arguments whether kernels of a GPU are to run side by side; never if there is none.
    """

    @functools.cache
    def program(is_side_by_side: bool) -> Callable:
        return eqx.filter_jit(function, compiler_options=compiler_options(is_side_by_side))  # type: ignore[call-overload]

    PROGRAMS.add(program.cache_clear)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        is_side_by_side = side_by_side is not None and side_by_side(*args, **kwargs)
        return program(is_side_by_side)(*args, **kwargs)

    return call


def enable_compilation_cache(folder: str | Path | None = None, *, whole_programs: bool = False) -> Path:
    """Turn on JAX's compilation cache, for users who ask for it.

    This is the one function that changes a process-wide setting of JAX, and only a user, the command line, the Makefile
    or the test configuration calls it.

    Parameters
    ----------
    folder : str or path, optional
        Where programs are kept. By default the folder that JAX_COMPILATION_CACHE_DIR names, or else `wishflow/jax` in
        the user's cache folder.
    whole_programs : bool, default=False
        Deprecated: it does nothing, and will be removed in 0.3.

    Returns
    -------
    Path
        The folder.

    Warns
    -----
    FutureWarning
        If `whole_programs` is set.

    Examples
    --------
    >>> import wishflow as wf
    >>> folder = wf.enable_compilation_cache()  # doctest: +SKIP
    """
    if whole_programs:
        warnings.warn(
            "whole_programs is ignored since version 0.2 and will be removed in 0.3: JAX's own cache is used.",
            FutureWarning,
            stacklevel=2,
        )
    if folder is None:
        folder = getattr(jax.config, "jax_compilation_cache_dir", None) or None  # may be named by an empty string
    if folder is None:
        from platformdirs import user_cache_path

        folder = user_cache_path("wishflow") / "jax"
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    return path
