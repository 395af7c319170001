"""Parts of an objective, and averages over sample paths."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar


def over_paths(log_density: Float[Array, "S B"], average: str) -> tuple[Float[Array, " B"], Float[Array, "S B"]]:
    """The average over paths for each row, and its derivative by each path's log density: the share of that path."""
    n_samples = log_density.shape[0]
    if average == "log":
        return log_density.mean(0), jnp.full_like(log_density, 1.0 / n_samples)
    return jax.nn.logsumexp(log_density, 0) - jnp.log(n_samples), jax.nn.softmax(log_density, 0)


def objective_of(parts: dict[str, Scalar]) -> Scalar:
    """The objective with every penalty at its full weight, whatever the warm-up: what the history reports."""
    return weighted(parts, 1.0)


# The power of the warm-up weight c by which each penalty is multiplied; 1 for penalties of other names.
WARM_UP = {"kl_output": 0, "kl_start": 0, "kl_drift": 2, "kl_diffusion": 1, "kl_white": 1}


def weighted(parts: dict[str, Any], c: Any) -> Any:
    """The objective with penalties weighted by powers of c: all parts whose names begin with "kl_"."""
    penalties = {name: value for name, value in parts.items() if name.startswith("kl_")}
    return parts["fit"] - sum(c ** WARM_UP.get(name, 1) * value for name, value in penalties.items())
