"""The matrix-product limit: the best rate of a large product in JAX on this machine, as one line of JSON (GFLOP/s)."""

from __future__ import annotations

import json
import time

import jax
import jax.numpy as jnp

SIZE = 2048
REPEATS = 8


def gflops(dtype: str) -> float:
    """The best of some products of two SIZE × SIZE matrices."""
    key = jax.random.key(0)
    A = jax.random.normal(key, (SIZE, SIZE), jnp.dtype(dtype))
    product = jax.jit(lambda A: A @ A)
    jax.block_until_ready(product(A))
    best = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        jax.block_until_ready(product(A))
        best = min(best, time.perf_counter() - started)
    return 2.0 * SIZE**3 / best / 1e9


def main() -> None:
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        print(json.dumps({dtype: gflops(dtype) for dtype in ("float32", "float64")}))


if __name__ == "__main__":
    main()
