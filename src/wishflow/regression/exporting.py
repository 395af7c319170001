"""A fitted predictor as one program of StableHLO, which runs without this package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import jax
import jax.export
import jax.numpy as jnp
import jaxtyping
import numpy as np
from jaxtyping import Array, Float

from ..numerics.devices import computing, random_key
from ..numerics.scaling import Scaler
from .law import Law
from .prediction import moments


def exported_moments(
    law: Law,
    x_scaler: Scaler,
    y_scaler: Scaler,
    directions: Float[np.ndarray, "D K"],
    seed: int,
    n_samples: int,
    platforms: Sequence[str] | None = None,
) -> bytes:
    """The program of X (N, D) → mean (N, P) and standard deviation (N, P) in the units of the data, for any N.

    Its arrays have 32 bits, JAX's default; inside it computes in 64.
    """
    with computing():
        key, law = random_key(seed), jax.tree.map(jnp.asarray, law)

        def predict(X: Float[Array, "N D"]) -> tuple[Float[Array, "N P"], Float[Array, "N P"]]:
            rows = (X.astype(jnp.float64) - x_scaler.mean) / x_scaler.scale
            mean, covariance = moments(law, jnp.hstack([rows, rows @ directions]), key, n_samples)
            sd = jnp.sqrt(jnp.diagonal(covariance, axis1=1, axis2=2))
            found = mean * y_scaler.scale + y_scaler.mean, sd * y_scaler.scale
            return found[0].astype(jnp.float32), found[1].astype(jnp.float32)

        shape = jax.export.symbolic_shape(f"n, {len(x_scaler.mean)}")
        program = jax.export.export(jax.jit(predict), platforms=platforms)
        with _without_checks():
            return bytes(program(jax.ShapeDtypeStruct(shape, jnp.float32)).serialize())


@contextlib.contextmanager
def _without_checks() -> Iterator[None]:
    """Where shapes are checked at run time, do not: jaxtyping has no notion of symbolic sizes."""
    is_off = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", is_off)
