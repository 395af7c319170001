"""Standard normals for paths, drawn faster than by JAX's own generator, and seeds of forecasts."""

from __future__ import annotations

import functools
import math
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int32, Key, PRNGKeyArray, UInt32, UInt64

# erf⁻¹ in single precision: polynomials in w − 5/2 below w = 5 and in √w − 3 above it, w = −log(1 − u²) (M. Giles,
# "Approximating the erfinv function", GPU Computing Gems 2, 2012), the highest power first.
CENTRAL = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)
SPLIT = 5.0
WHOLE, UNIT = 2**24, 2.0**-24


def standard_normals(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Float[Array, "*shape"]:
    """Independent N(0, 1), reproducible by the key; float32 in about a third of the time of `jax.random.normal`.

    A call of the counter-based generator gives 64 bits, of which JAX uses 32 for a number of 32 bits; here both halves
    are used. They become a uniform number and, by the inverse of the normal distribution function, a normal one.
    """
    return normals_of_keys(key[None], shape, dtype)[0]


# Under `jit` the derivative of a path, which these have no part in, is not traced through them.
@functools.partial(jax.jit, static_argnums=(1, 2))
def normals_of_keys(keys: Key[Array, " T"], shape: tuple[int, ...], dtype: DTypeLike) -> Float[Array, "T ..."]:
    """`standard_normals` for each of a vector of keys."""
    has_wide_integers = jax.dtypes.canonicalize_dtype(np.uint64) == np.uint64
    if jnp.dtype(dtype) != jnp.float32 or not has_wide_integers:
        return jax.vmap(lambda key: jax.random.normal(key, shape, dtype))(keys)
    n = math.prod(shape)
    pairs = jax.vmap(lambda key: jax.random.bits(key, (-(-n // 2),), jnp.uint64))(keys)
    bits = jax.lax.bitcast_convert_type(pairs, jnp.uint32).reshape(len(keys), -1)[:, :n]
    return normal_quantile(odd_number(bits)).reshape(len(keys), *shape)


def odd_number(bits: UInt32[Array, "*shape"]) -> Int32[Array, "*shape"]:
    """One of the 2²⁴ odd numbers in (−2²⁴, 2²⁴), all as likely: times 2⁻²⁴ never 0 or ±1, and as often u as −u."""
    return (jax.lax.bitcast_convert_type(bits, jnp.int32) >> 8) * 2 + 1


def normal_quantile(odd: Int32[Array, "*shape"]) -> Float[Array, "*shape"]:
    """√2 erf⁻¹(u) for u = odd · 2⁻²⁴ in float32, to a few units in the last place.

    1 − u² = (1 − u)(1 + u) has no cancellation, so a plain logarithm does where `jax.lax.erf_inv` takes the slow
    log(1 + x). Both factors are made of whole numbers: of floating ones the compiler may put the constants together,
    and lose the last bit that keeps them above zero.
    """
    u, above, below = (x.astype(jnp.float32) * np.float32(UNIT) for x in (odd, WHOLE - odd, WHOLE + odd))
    w = -jnp.log(above * below)
    is_central = w < SPLIT
    v = jnp.where(is_central, w - 2.5, jnp.sqrt(w) - 3.0)
    value = jnp.zeros_like(u)
    for central, tail in zip(CENTRAL, TAIL, strict=True):
        value = jnp.where(is_central, np.float32(central), np.float32(tail)) + value * v
    return np.float32(math.sqrt(2.0)) * value * u


# --- the same generator on the host ---------------------------------------------------------------

# Threefry-2x32 with 20 rounds (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def threefry(key: UInt32[np.ndarray, " 2"], counts: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """64 bits for each count."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    x, y = (counts >> np.uint64(32)).astype(np.uint32) + keys[0], counts.astype(np.uint32) + keys[1]
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            x = x + y
            y = ((y << np.uint32(r)) | (y >> np.uint32(32 - r))) ^ x
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + np.uint32(i + 1)
    return (x.astype(np.uint64) << np.uint64(32)) | y


def host_keys(key: UInt32[np.ndarray, " 2"], n: int) -> UInt32[np.ndarray, "n 2"]:
    """`jax.random.split` of the words of a key."""
    bits = threefry(key, np.arange(n, dtype=np.uint64))
    return np.stack([bits >> np.uint64(32), bits & np.uint64(0xFFFFFFFF)], 1).astype(np.uint32)


def host_uniform(key: UInt32[np.ndarray, " 2"], n: int) -> Float[np.ndarray, " n"]:
    """`jax.random.uniform` on (−1, 1), in float64."""
    bits = threefry(key, np.arange(n, dtype=np.uint64))
    one = np.float64(1.0).view(np.uint64)
    low = np.nextafter(-1.0, 0.0)
    return np.maximum(low, ((bits >> np.uint64(12) | one).view(np.float64) - 1.0) * (1.0 - low) + low)


def noise_seed(seed: int, *origin: Any) -> int:
    """A seed for the noise of one forecast, from what it starts at; the same in every process."""
    place = zlib.crc32(" ".join(map(str, origin)).encode())
    return int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
