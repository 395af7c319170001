"""What the machine can do at best: products of matrices by shape and precision, bytes of memory, turns of loops.

Products come many at a time in one program, each of arrays of its own, so that starting them is a small part of the
time and none can be left out or merged with another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .timing import median_seconds

# name: dtype of the operands and precision of the product
PRECISIONS = {"float32": ("float32", "highest"), "tf32": ("float32", "default"), "float64": ("float64", "highest")}
N_TURNS = 200


@dataclasses.dataclass(frozen=True)
class Product:
    """(batch, n, k) times (batch, k, m), `count` times in one program; batch 0 is one product without that axis."""

    name: str
    says: str
    n: int
    k: int
    m: int
    batch: int = 0
    count: int = 16

    @property
    def operations(self) -> float:
        return 2.0 * max(self.batch, 1) * self.n * self.k * self.m * self.count

    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        front = (self.batch,) if self.batch else ()
        return (*front, self.n, self.k), (*front, self.k, self.m)


# Rows are a batch of 2000, M = 100; twenty models are twenty products in one call.
PRODUCTS = (
    Product("square", "8192 × 8192", 8192, 8192, 8192, count=1),
    Product("distances", "k(X, Z), D = 8", 2000, 8, 100),
    Product("project", "a = k(X, Z) Lz⁻ᵀ", 2000, 100, 100),
    Product("factors", "25 factors side by side", 2000, 100, 2500),
    Product("gradient", "sum over rows", 100, 2000, 100),
    Product("project, 20 models", "a = k(X, Z) Lz⁻ᵀ", 2000, 100, 100, batch=20, count=8),
    Product("gradient, 20 models", "sum over rows", 100, 2000, 100, batch=20, count=8),
)
MEMORY_FLOATS = 2**28


def shrunk(product: Product) -> Product:
    """A product small enough for a trial on any machine."""
    n, k, m = (min(size, 64) for size in (product.n, product.k, product.m))
    return dataclasses.replace(product, n=n, k=k, m=m, batch=min(product.batch, 2), count=2)


def waiting(function: Callable, *arrays: Any) -> Callable[[int], Any]:
    """`run(n)`: n calls of a compiled function one after another, then one wait."""

    def run(n: int) -> Any:
        for _ in range(n):
            result = function(*arrays)
        return jax.block_until_ready(result)

    return run


def product_rate(product: Product, dtype: str, precision: str) -> float:
    """Operations a second."""
    stacks = [jax.random.normal(jax.random.key(0), (product.count, *shape), dtype) for shape in product.shapes()]
    pairs = list(zip(*map(list, stacks), strict=True))
    multiply = jax.jit(lambda pairs: [jnp.matmul(A, B, precision=precision) for A, B in pairs])
    return product.operations / median_seconds(waiting(multiply, pairs))


def measure_products(products: tuple[Product, ...]) -> list[dict[str, Any]]:
    """TFLOP/s of each product at each precision."""
    rows = []
    for product in products:
        rates = {name: product_rate(product, *way) / 1e12 for name, way in PRECISIONS.items()}
        rows.append({**dataclasses.asdict(product), "tflops": rates})
    return rows


def measure_memory(n_floats: int) -> dict[str, float]:
    """Bytes a second of y = x + 1 (two arrays) and of z = x + 3 y (three), float32 arrays far larger than caches."""
    x, y = (jnp.full((n_floats,), value, jnp.float32) for value in (1.0, 2.0))
    shift, triad = jax.jit(lambda x: x + 1.0), jax.jit(lambda x, y: x + 3.0 * y)
    return {
        "copy": 8.0 * n_floats / median_seconds(waiting(shift, x)),
        "triad": 12.0 * n_floats / median_seconds(waiting(triad, x, y)),
    }


def measure_turns() -> dict[str, float]:
    """Microseconds of one turn of a loop with next to no work: of a number of turns known to the compiler (the solver's
    steps), of one known when it runs (training steps), and of a call of a program from the host.
    """

    def turns(n, x):
        return jax.lax.fori_loop(0, n, lambda i, x: x * 0.5 + 1.0, x)

    x = jnp.ones((128, 128), jnp.float32)
    known, unknown = jax.jit(lambda x: turns(N_TURNS, x)), jax.jit(turns)
    call = jax.jit(lambda x: x * 0.5 + 1.0)
    return {
        "known": 1e6 * median_seconds(waiting(known, x)) / N_TURNS,
        "unknown": 1e6 * median_seconds(waiting(unknown, jnp.asarray(N_TURNS), x)) / N_TURNS,
        "call": 1e6 * median_seconds(waiting(call, x)),
    }


def measure(is_quick: bool) -> dict[str, Any]:
    """All of them."""
    products = tuple(map(shrunk, PRODUCTS)) if is_quick else PRODUCTS
    return {
        "products": measure_products(products),
        "memory": measure_memory(2**16 if is_quick else MEMORY_FLOATS),
        "turn_us": measure_turns(),
    }
