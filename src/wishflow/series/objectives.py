"""Objectives of the auto-regressive model, and which objective of a series is a bound."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..numerics import entries, platform
from ..numerics.linalg import low_rank_log_density
from ..training.objective import over_paths, weighted
from ..training.specs import TrainingSpec
from ..wishart import FieldValues, PreparedField
from ..wishart.base import safe_sqrt
from ..wishart.solver import scan_steps
from ..wishart.specs import Wishart, has_exact_law, has_point_drift
from . import gaussian_filter as filtering
from .autoregressive import DynamicsModel
from .batches import SeriesBatch, TransitionBatch, WindowBatch
from .specs import DynamicsSpec

Carry = tuple[Array, FieldValues]


def is_bound(spec: DynamicsSpec, training: TrainingSpec, has_windows: bool) -> bool:
    """Whether the objective of a series, as the history reports it, is a lower bound of the log evidence.

    The evidence is the density of all rows (in units of the model) given the first ones, whose law the model does not
    say, with J integrated out, at the hyperparameters as they are: kernel, Z, L, Λ, κ, and the weights of a linear
    drift, which are numbers without a prior.

    - `objective="transition"`, complete rows one step apart: Σ_i E_q log p(y_{i+1} | y_i, J) − KL_Σ is one, as in each
      step J counts at one place alone. Without J it is the log evidence itself.
    - `path_average="density"` takes the log of a mean over draws of J ~ q, without their weights p/q: a predictive
      objective. The presets take it.
    - A Gaussian-process drift with a posterior is integrated out as J is: in each step it counts at one place alone.
    - A Gaussian-process drift that is a point estimate makes it none, and so does `white_noise="state"`, whose weights
      are one: the number is below the density *given* these weights, which may lie far above the evidence.
    - Rows after gaps and rows with holes (`has_windows`) are scored by an assumed-density filter: an approximation.
    - `objective="rollout"` adds the noise of a step twice. Windows of a latent model are scored as series of their own,
      each of which begins at N(0, I), and their particles draw J as `path_average="density"` does.
    - diffGP and diffusions of a user: see `has_exact_law`.
    """
    is_direct = spec.latent is None and spec.objective == "transition" and not has_windows
    is_integrated = has_exact_law(spec.diffusion) and spec.white_noise == "constant"
    if "gp" in spec.drift and has_point_drift(spec.diffusion, spec.drift_posterior):
        is_integrated = False
    has_J = isinstance(spec.diffusion, Wishart)
    return is_direct and is_integrated and (training.averages_logs or not has_J)


def negative_transition_objective(
    model: DynamicsModel,
    batch: SeriesBatch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: DTypeLike | None = None,
    average: str = "log",
) -> tuple[Scalar, dict[str, Scalar]]:
    """−(Σ_i E_J log N(y_{i+1}; y_i + hμ, h(LJJᵀLᵀ + Λ)) − penalties) and its parts.

    Rows with gaps or holes before them are scored by the belief recursion (`filtering`). `average` says whether S draws
    of J are averaged by the log density, as written, or by the density, log E_J N(…): a predictive objective and no
    bound (`is_bound`), taken because with ν = ρ the matrix JJᵀ comes so near to a singular one that the mean of logs
    has no useful maximum.
    """
    k_steps, k_windows = jax.random.split(key)
    parts = {"fit": jnp.zeros((), kernel_dtype(model)), **model.field.kl()}
    if batch.transitions is not None:
        field = model.field.in_parts(dtype)
        parts["fit"] += _transition_fit(field, batch.transitions, k_steps, n_samples, average)
    if batch.windows is not None:
        parts["fit"] += _window_fit(model.field.in_parts(), batch.windows, k_windows, n_samples, average)
    return -weighted(parts, kl_weight), parts


def kernel_dtype(model: DynamicsModel) -> jnp.dtype:
    return model.field.basis.Z.dtype


def _transition_fit(
    field: PreparedField, batch: TransitionBatch, key: PRNGKeyArray, n_samples: int, average: str
) -> Scalar:
    exact = batch.increment.dtype  # factorisations of the covariance are not for 32 bits
    here = field.at(batch.X.astype(field.basis.dtype))
    h = batch.h[:, None]
    residual = batch.increment - h * here.drift.astype(exact)
    variances = here.drift_variances
    # A mean of densities has a random drift integrated out; a mean of logs has draws of it.
    sds = None if variances is None or average != "log" else safe_sqrt(variances.astype(exact))
    white = (here.white_over(h) if sds is None else h * here.white).astype(exact)
    tails = None if here.tails is None else here.tails.astype(exact)

    is_written_out = platform.on_accelerator() and entries.are_written_out(jax.eval_shape(here.factor, key))

    def one(k: PRNGKeyArray) -> Float[Array, " B"]:
        error = residual
        if sds is not None:
            error = residual - h * sds * jax.random.normal(jax.random.fold_in(k, 1), residual.shape, exact)
        if is_written_out:
            F = [[jnp.sqrt(batch.h) * entry.astype(exact) for entry in row] for row in here.factor_entries(k)]
            return entries.low_rank_log_density(entries.last_axis(error), F, entries.last_axis(white), tails)
        return low_rank_log_density(error, jnp.sqrt(h)[..., None] * here.factor(k).astype(exact), white, tails)

    log_density = jax.vmap(one)(jax.random.split(key, n_samples))
    by_row, _ = over_paths(log_density, average)
    return batch.n_data / jnp.sum(batch.weights) * jnp.sum(batch.weights * by_row)


def ticks_first(batch: WindowBatch) -> tuple[Array, ...]:
    return tuple(jnp.swapaxes(x, 0, 1) for x in (batch.h, batch.u, batch.y, batch.is_seen))


def covariates_there(h: Float[Array, "T B"], u: Float[Array, "T B U"]) -> Float[Array, "T B U"]:
    """Covariates of the state at the end of each tick: those of the step that leaves it.

    At the end of a window, after which there is only padding (h = 0), those of the step that led there.
    """
    h_next, u_next = (jnp.concatenate([x[1:], x[-1:]]) for x in (h, u))
    return jnp.where(h_next[..., None] > 0, u_next, u)


def _window_fit(field: PreparedField, batch: WindowBatch, key: PRNGKeyArray, n_samples: int, average: str) -> Scalar:
    """Draws of J are averaged tick by tick."""
    belief = filtering.Belief.start(batch.start, batch.variance, field.layout)
    h, u, y, is_seen = ticks_first(batch)
    _, (_, log_density) = filtering.run(key, field, belief, h, u, y, is_seen, n_samples)
    by_tick = jax.vmap(lambda draws: over_paths(draws, average)[0])(log_density)
    by_window = jnp.sum(jnp.where(batch.is_scored.T, by_tick, 0.0), 0)
    return batch.n_data / jnp.sum(batch.weights) * jnp.sum(batch.weights * by_window)


def negative_rollout_objective(
    model: DynamicsModel,
    batch: SeriesBatch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: DTypeLike | None = None,
    average: str = "log",
) -> tuple[Scalar, dict[str, Scalar]]:
    """The paper's objective: simulate freely from the first row of a window, score every row with N(x_t, Σ(x_t) + Λ).

    Σ and Λ are not multiplied by Δ here, and the simulated state already holds the noise: kept for comparison. Row t is
    scored with the covariates of the step that leaves it.
    """
    windows = batch.windows
    assert windows is not None
    field = model.field.in_parts(dtype)
    layout, exact = model.layout, windows.y.dtype

    def at(history: Array, u: Array) -> FieldValues:
        return field.at(layout.row(history, u).astype(field.basis.dtype))

    def path(key: PRNGKeyArray, windows: WindowBatch) -> Float[Array, " N"]:
        # The field at x_t scores row t and takes the step to t + 1: T + 1 evaluations for T ticks.
        def tick(carry: Carry, inputs: tuple[Array, ...]) -> tuple[Carry, Array]:
            history, here = carry
            k, h, u_there, y, seen, scored = inputs
            k_step, k_score = jax.random.split(k)
            noise = here.increment(k_step, 1.0).astype(exact)
            x = history[:, : layout.dim] + h[:, None] * here.drift.astype(exact) + jnp.sqrt(h)[:, None] * noise
            history = layout.shift(history, x)
            here = at(history, u_there)
            mask = seen.astype(exact)
            F = here.factor(k_score).astype(exact) * mask[..., None]
            white = jnp.where(seen, here.white.astype(exact), 1.0)
            # Unseen entries get the density of N(0, 1) at 0, which is taken off again.
            density = low_rank_log_density(mask * (y - x), F, white)
            density = density + 0.5 * jnp.log(2.0 * jnp.pi) * jnp.sum(1.0 - mask, -1)
            return (history, here), jnp.where(scored, density, 0.0)

        h, u, y, seen = ticks_first(windows)
        inputs = (jax.random.split(key, len(h)), h, covariates_there(h, u), y, seen, windows.is_scored.T)
        return jnp.sum(scan_steps(tick, (windows.start, at(windows.start, u[0])), inputs)[1], 0)

    # Samples are rows, not an axis of `vmap` (`AbstractModel.carry_samples` says why), and take the first key of as
    # many as there are, so that the numbers of one sample are those that it had as an axis.
    by_row = path(jax.random.split(key, n_samples)[0], windows.repeated(n_samples))
    by_window, _ = over_paths(by_row.reshape(n_samples, -1), average)
    fit = windows.n_data / jnp.sum(windows.weights) * jnp.sum(windows.weights * by_window)
    parts = {"fit": fit, **model.field.kl()}
    return -weighted(parts, kl_weight), parts
