"""Objectives of the latent model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from ..numerics.linalg import low_rank_log_density
from ..training.objective import over_paths, weighted
from ..wishart.solver import scan_steps
from . import particle_filter as particles
from .batches import SeriesBatch
from .latent import LatentModel, PreparedReadout
from .objectives import covariates_there, ticks_first


def negative_filter_objective(
    model: LatentModel,
    batch: SeriesBatch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: DTypeLike | None = None,
    average: str = "density",
) -> tuple[Scalar, dict[str, Scalar]]:
    """−(Σ log p̂(window) − penalties) with the estimate of the guided particle filter, `n_samples` particles.

    p̂ is unbiased, so E log p̂ ≤ log E p̂, and closely: particles see what they are scored on (Maddison et al. 2017; the
    derivative by the choices of the resampling is left out, as there). Windows begin at p(x_0) = N(0, I). Where the
    readout is linear and the field has no J, E p̂ is the evidence of a window. Particles draw J ~ q without weights p/q,
    so with J the number is a predictive objective (`objectives.is_bound`).
    """
    del dtype, average  # densities of steps are not for 32 bits; the filter averages densities
    windows = batch.windows
    assert windows is not None
    prepared = particles.PreparedLatent.of(model)

    def one(key: PRNGKeyArray, h: Array, u: Array, y: Array, is_seen: Array) -> Scalar:
        return jnp.sum(particles.run(key, prepared, h, u, y, is_seen, n_samples, len(windows.h))[1][1])

    keys = jax.random.split(key, windows.h.shape[0])
    by_window = jax.vmap(one)(keys, windows.h, windows.u, windows.y, windows.is_seen)
    weights = windows.n_data / jnp.sum(windows.weights) * windows.weights
    parts = {"fit": jnp.sum(weights * by_window), **model.kl()}
    return -weighted(parts, kl_weight), parts


def negative_encoder_objective(
    model: LatentModel,
    batch: SeriesBatch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: DTypeLike | None = None,
    average: str = "log",
) -> tuple[Scalar, dict[str, Scalar]]:
    """−(Σ_t E log p(y_t | x_t) − KL(q(x_0) ‖ N(0, I)) − penalties): a window is encoded, simulated and scored.

    The Brownian path keeps its prior law, so the number lies far below the evidence of a long window. With
    `average="density"` the weights of the S paths hold p(x_0)/q(x_0), and no KL of x_0 stands beside them.
    """
    windows = batch.windows
    assert windows is not None
    field, readout = model.field.in_parts(dtype), model.readout.prepare()
    layout, exact = model.layout, windows.y.dtype
    mean, sd = model.encoder(windows.start, windows.variance == 0.0)

    def path(key: PRNGKeyArray) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
        k_start, k_path = jax.random.split(key)
        epsilon = jax.random.normal(k_start, mean.shape, exact)
        start = mean + sd * epsilon

        def tick(x: Array, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
            k, h, u, y, seen, u_there = inputs
            k_step, k_score = jax.random.split(k)
            here = field.at(layout.row(x, u).astype(field.basis.dtype))
            noise = here.increment(k_step, 1.0).astype(exact)
            x = x + h[:, None] * here.drift.astype(exact) + jnp.sqrt(h)[:, None] * noise
            F = jnp.zeros((*y.shape, 0), exact)
            if model.readout.coupling is not None:
                there = field.at(layout.row(x, u_there).astype(field.basis.dtype))
                F = readout.noise_factor(k_score, there).astype(exact)
            return x, readout_log_density(readout, x, F, y, seen)

        h, u, y, seen = ticks_first(windows)
        inputs = (jax.random.split(k_path, len(h)), h, u, y, seen, covariates_there(h, u))
        _, by_tick = scan_steps(tick, start, inputs, n_samples)
        log_ratio = jnp.sum(0.5 * epsilon**2 - 0.5 * start**2 + jnp.log(sd), -1)
        return jnp.sum(by_tick, 0), log_ratio

    fit, log_ratio = jax.vmap(path)(jax.random.split(key, n_samples))
    weights = windows.n_data / jnp.sum(windows.weights) * windows.weights
    if average == "log":
        kl = 0.5 * jnp.sum(mean**2 + sd**2 - 1.0 - 2.0 * jnp.log(sd), -1)
        parts = {"fit": jnp.sum(weights * fit.mean(0)), "kl_start": jnp.sum(weights * kl)}
    else:
        parts = {"fit": jnp.sum(weights * over_paths(fit + log_ratio, average)[0])}
    parts |= model.kl()
    return -weighted(parts, kl_weight), parts


def readout_log_density(
    readout: PreparedReadout,
    x: Float[Array, "N D"],
    F: Float[Array, "N P nu"],
    y: Float[Array, "N P"],
    is_seen: Bool[Array, "N P"],
) -> Float[Array, " N"]:
    """E_g log N(y; g(x), F Fᵀ + Λ) over the entries that are there.

    The spread of g costs ½ Σ_p var_p/Λ_p, which is exact for F = 0 and otherwise no less than the true cost.
    """
    seen = is_seen.astype(y.dtype)
    mean, variance = readout(x)
    white = readout.readout.white.value
    # Unseen entries get the density of N(0, 1) at 0, which is taken off again.
    density = low_rank_log_density(seen * (y - mean), F * seen[..., None], jnp.where(is_seen, white, 1.0))
    return density + jnp.sum(0.5 * jnp.log(2.0 * jnp.pi) * (1.0 - seen) - 0.5 * seen * variance / white, -1)
