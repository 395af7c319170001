"""What is done otherwise on an accelerator than on the CPU: every such decision, by name.

The CPU is fast at small products and slow to compile; batched factorisations can hang there. An accelerator is fast at
few large operations, and waits for each one that is started.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

# Steps of a loop that are written out on an accelerator.
UNROLLED_STEPS = 20


def on_accelerator() -> bool:
    """Whether the default device is something other than the CPU."""
    return jax.default_backend() != "cpu"


def trains_together(n_models: int) -> bool:
    """Models of equal shape in one program, under `vmap`."""
    return on_accelerator() and n_models > 1


def minimises_on_host(n_models: int) -> bool:
    """L-BFGS of SciPy around a compiled gradient, instead of a compiled L-BFGS."""
    return n_models == 1 and not on_accelerator()


def batches_factorisations() -> bool:
    """One factorisation of a stack of matrices, instead of one for each matrix."""
    return on_accelerator()


def joins_products() -> bool:
    """One large product for all that is linear in the same rows, instead of a few smaller ones."""
    return on_accelerator()


def multiplies_zeros(dtype: DTypeLike) -> bool:
    """Triangular factors as they are, in one product, instead of blocks without the zeros above them: in float32, where
    TF32 is several times as fast. In float64 the zeros would cost up to three quarters more.
    """
    return on_accelerator() and jnp.dtype(dtype) == jnp.float32


def unrolls(n_steps: int) -> bool:
    """The steps of a path are written out: what a loop keeps for its derivative is copied, in and out."""
    return on_accelerator() and n_steps <= UNROLLED_STEPS


def prediction_blocks() -> int:
    """How many blocks of rows, as they are on the CPU, are predicted at once."""
    return 4 if on_accelerator() else 1
