"""Bounds on the log marginal likelihood as pure functions of (model, batch, key), with named parts."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from . import filtering, particles
from .errors import OptionError
from .inducing import WhitenedPosterior, factorised, rotations
from .likelihoods import AbstractLikelihood, GaussianLikelihood
from .linalg import cholesky, each, inverse_square_root, low_rank_log_density, solve_lower
from .models import AbstractModel, DynamicsModel, LatentModel, SparseGPModel
from .models.latent import PreparedReadout
from .parameters import LowerTriangular
from .runtime import on_accelerator
from .solver import scan_steps


class Batch(eqx.Module):
    """Rows of data; `weights` is 1 for a row and 0 for padding, `n_data` the number of rows the batch stands for."""

    X: Float[Array, "B D"]
    y: Float[Array, "B P"]
    weights: Float[Array, " B"]
    n_data: Scalar


class SiteRows(eqx.Module):
    """What the expected log density of the rows of `Sites` needs beside a(x_T): their targets, k − aᵀa, the likelihood
    and its key.
    """

    y: Float[Array, "K Q"]
    unexplained: Float[Array, "K P"]
    likelihood: AbstractLikelihood
    key: PRNGKeyArray


class Sites(eqx.Module):
    """What a natural-gradient step of the output needs of a forward pass, rows being (sample, row) pairs.

    a(x_T), the curvatures λ = max(0, −E ∂² log p) and the targets λ·mean + E ∂ log p; `weights` holds N/(B S).
    `inverse` is R⁻¹ where it is known. `rows` is there where steps are to be checked (`is_damped`).
    """

    a: Float[Array, "K M"]
    curvature: Float[Array, "K P"]
    target: Float[Array, "K P"]
    weights: Float[Array, " K"]
    inverse: Float[Array, "M M"] | None = None
    rows: SiteRows | None = None


def negative_bound(
    model: AbstractModel,
    batch: Batch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: jnp.dtype | None = None,
    has_sites: bool = False,
    average: str = "log",
) -> tuple[Scalar, tuple[dict[str, Scalar], Sites | None]]:
    """−(E log p(y|g) − KL_g − c² KL_f − c KL_Σ) and its parts, unweighted, by name.

    The expectation over paths is a mean over `n_samples` (one for models without noise); over g it is the likelihood's
    own. `average` says of what it is the mean: of the logs of the densities (the paper's bound), or of the densities,
    log 1/S Σ_s exp E_g log p(y | g(x_s)), a tighter bound (Burda et al. 2016). In the first, noise of the path can only
    lower the fit, because no path knows y; in the second it can explain noise in y.
    """
    k_path, k_fit = jax.random.split(key)
    inverse = None
    if on_accelerator() and has_sites and _is_alike(model):
        bases, rotated, inverse = factorised(model.bases(), rotations(model), model.output.posterior.factors()[0])
        model = eqx.tree_at(lambda m: [*m.bases(), *rotations(m)], model, [*bases, *rotated])
    samples = n_samples if model.is_stochastic else 1
    arrived = model.carry_samples(batch.X, k_path, samples, dtype)
    a, mean, variance = model.output.projected_marginals(arrived)
    y = jnp.tile(batch.y, (samples, 1))
    log_density = model.likelihood.expected_log_density(y, mean, variance, key=k_fit)
    by_row, shares = _over_paths(log_density.reshape(samples, -1), average)
    row_weights = batch.n_data / jnp.sum(batch.weights) * batch.weights
    weights = (row_weights * shares).reshape(-1)
    # Padded rows repeat real ones, so their densities are finite and a weight of zero removes them.
    parts = {"fit": jnp.sum(row_weights * by_row), "kl_output": jnp.sum(model.output.kl()), **model.path_kl()}
    sites = _sites(model, y, a, mean, variance, weights, k_fit, inverse) if has_sites else None
    return -weighted(parts, kl_weight), (parts, sites)


def _is_alike(model: AbstractModel) -> bool:
    """Whether all bases have the same number of inducing points and the output is a single one."""
    return len(model.output.posterior.mean) == 1 and len({basis.n_inducing for basis in model.bases()}) == 1


def _over_paths(log_density: Float[Array, "S B"], average: str) -> tuple[Float[Array, " B"], Float[Array, "S B"]]:
    """The average over paths for each row, and its derivative by each path's log density: the share of that path."""
    n_samples = log_density.shape[0]
    if average == "log":
        return log_density.mean(0), jnp.full_like(log_density, 1.0 / n_samples)
    return jax.nn.logsumexp(log_density, 0) - jnp.log(n_samples), jax.nn.softmax(log_density, 0)


def bound_of(parts: dict[str, Scalar]) -> Scalar:
    """The bound with every penalty at its full weight: what the history reports."""
    return weighted(parts, 1.0)


# The power of the warm-up weight c by which each penalty is multiplied.
WARM_UP = {"kl_output": 0, "kl_start": 0, "kl_drift": 2, "kl_diffusion": 1, "kl_white": 1}


def weighted(parts: dict[str, Any], c: Any) -> Any:
    """The objective with penalties weighted by powers of c."""
    return parts["fit"] - sum(c**power * parts[name] for name, power in WARM_UP.items() if name in parts)


def _sites(model, y, a, mean, variance, weights, key, inverse) -> Sites:
    """λ and targets from the derivatives of the expected log density: d/dmean = E ∂ log p, d/dvariance = ½ E ∂² log
    p.
    """
    mean, variance, weights = jax.lax.stop_gradient((mean, variance, weights))
    likelihood = jax.lax.stop_gradient(model.likelihood)

    def total(m, v):
        return jnp.sum(likelihood.expected_log_density(y, m, v, key=key))

    slope, half_curvature = jax.grad(total, argnums=(0, 1))(mean, variance)
    curvature = jnp.maximum(-2.0 * half_curvature, 0.0)
    rows = None
    if likelihood.is_damped:
        # A row that claims to know g far better than q does speaks of where q is wide, not of the data: taken at its
        # word, one such step would tie q down for hundreds. λ·variance is at most about 1 where training ends.
        share = MOST_KNOWN / jnp.maximum(curvature * variance, MOST_KNOWN)
        curvature, slope = share * curvature, share * slope
        q = jax.lax.stop_gradient(model.output.posterior).prepare(a.dtype)
        rows = SiteRows(y, jnp.maximum(variance - q.quadratics(a), 0.0), likelihood, key)
    return Sites(a, curvature, curvature * mean + slope, weights, inverse, rows)


def natural_step(posterior: WhitenedPosterior, sites: Sites, rate: Scalar | float) -> WhitenedPosterior:
    """One natural-gradient step γ on q(v): with Π = (RRᵀ)⁻¹ and θ = Πm,

    Π ← (1−γ)Π + γ(I + Σ w λ aaᵀ),  θ ← (1−γ)θ + γ Σ w a·target.  For a Gaussian likelihood on all rows γ = 1 is the
    optimum.
    """
    identity = jnp.eye(posterior.mean.shape[-1], dtype=posterior.mean.dtype)

    def one(q):
        mean, sqrt, curvature, target = q
        inverse = solve_lower(sqrt, identity) if sites.inverse is None else sites.inverse
        precision, theta = inverse.T @ inverse, inverse.T @ (inverse @ mean)
        weighted = sites.a * (sites.weights * curvature)[:, None]
        precision = (1 - rate) * precision + rate * (identity + weighted.T @ sites.a)
        theta = (1 - rate) * theta + rate * (sites.a.T @ (sites.weights * target))
        R = inverse_square_root(0.5 * (precision + precision.T))
        return R @ (R.T @ theta), R

    means, sqrts = each(one, (posterior.mean, posterior.sqrt.value, sites.curvature.T, sites.target.T))
    return WhitenedPosterior(means, LowerTriangular.of(sqrts))


# The largest λ·variance of a row: by this factor it may narrow q.
MOST_KNOWN = 100.0
# A step that is too long is divided by SHORTER, at most as often as MOST_TRIALS says; then q stays where it is.
SHORTER = 4.0
MOST_TRIALS = 8
# By how many nats per row a step may lower the bound: curvatures that are cut off at zero make R a little too narrow.
ALLOWED_LOSS = 1e-4


def damped_step(posterior: WhitenedPosterior, sites: Sites, rate: Scalar | float) -> WhitenedPosterior:
    """`natural_step` with the first of γ, γ/4, γ/16, … that does not lower Σ w E log p − KL on the rows of the sites.

    Curvatures that change with g hold near q alone: where the rate of counts is far too small, so is its curvature, and
    exp(g) shoots over the target by orders of magnitude. The direction is one of ascent, so a step that is short enough
    raises the bound. With the paths' shares in w, kept as they are, what the sum gains is no more than what the mean of
    densities gains (Jensen). Where a likelihood is not damped this is `natural_step`.
    """
    rows = sites.rows
    if rows is None:
        return natural_step(posterior, sites, rate)

    def bound(q: WhitenedPosterior) -> Scalar:
        prepared = q.prepare(sites.a.dtype)
        variance = rows.unexplained + prepared.quadratics(sites.a)
        fit = rows.likelihood.expected_log_density(rows.y, prepared.means(sites.a), variance, key=rows.key)
        return jnp.sum(sites.weights * fit) - jnp.sum(q.kl())

    lowest = bound(posterior) - ALLOWED_LOSS * jnp.sum(sites.weights)

    def is_bad(tried):
        _, value, _, n = tried
        return ~(value >= lowest) & (n < MOST_TRIALS)  # NaN is bad

    def attempt(tried):
        _, _, rate, n = tried
        q = natural_step(posterior, sites, rate)
        return q, bound(q), rate / SHORTER, n + 1

    start = (posterior, jnp.full_like(lowest, -jnp.inf), jnp.asarray(rate, lowest.dtype), jnp.zeros((), int))
    found, value, _, _ = jax.lax.while_loop(is_bad, attempt, start)
    return jax.tree.map(lambda new, old: jnp.where(value >= lowest, new, old), found, posterior)


# --- time series ----------------------------------------------------------------------------------


class TransitionBatch(eqx.Module):
    """Single steps: inputs (x, lags, u), increments, lengths; `weights` and `n_data` as in `Batch`."""

    X: Float[Array, "B K"]
    increment: Float[Array, "B D"]
    h: Float[Array, " B"]
    weights: Float[Array, " B"]
    n_data: Scalar


class WindowBatch(eqx.Module):
    """Windows of ticks (`series.Windows`); `weights` and `n_data` count windows."""

    start: Float[Array, "B pD"]
    variance: Float[Array, "B pD"]
    h: Float[Array, "B T"]
    u: Float[Array, "B T U"]
    y: Float[Array, "B T D"]
    is_seen: Bool[Array, "B T D"]
    is_scored: Bool[Array, "B T"]
    weights: Float[Array, " B"]
    n_data: Scalar

    def repeated(self, times: int) -> WindowBatch:
        """All windows, that many times one after another."""
        return jax.tree.map(lambda x: jnp.tile(x, (times, *([1] * (x.ndim - 1)))) if x.ndim else x, self)


class SeriesBatch(eqx.Module):
    """What a series is scored on: single steps and windows, either of which may be absent."""

    transitions: TransitionBatch | None
    windows: WindowBatch | None


def negative_transition_bound(
    model: DynamicsModel,
    batch: SeriesBatch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: jnp.dtype | None = None,
    average: str = "log",
) -> tuple[Scalar, dict[str, Scalar]]:
    """−(Σ_i E_J log N(y_{i+1}; y_i + hμ, h(LJJᵀLᵀ + Λ)) − penalties) and its parts: an exact bound in J.

    Rows with gaps or holes before them are scored by the belief recursion (`filtering`). `average` says whether S draws
    of J are averaged by the log density or by the density (tighter, Burda et al. 2016): with ν = ρ the matrix JJᵀ comes
    so near to a singular one that the mean of logs has no useful maximum.
    """
    k_steps, k_windows = jax.random.split(key)
    parts = {"fit": jnp.zeros((), kernel_dtype(model)), **model.field.kl()}
    if batch.transitions is not None:
        field = model.field.prepare(dtype)
        parts["fit"] += _transition_fit(field, batch.transitions, k_steps, n_samples, average)
    if batch.windows is not None:
        parts["fit"] += _window_fit(model.field.prepare(), batch.windows, k_windows, n_samples, average)
    return -weighted(parts, kl_weight), parts


def kernel_dtype(model: DynamicsModel) -> jnp.dtype:
    return model.field.basis.Z.dtype


def _transition_fit(field, batch: TransitionBatch, key, n_samples: int, average: str) -> Scalar:
    exact = batch.increment.dtype  # factorisations of the covariance are not for 32 bits
    here = field.at(batch.X.astype(field.basis.dtype))
    h = batch.h[:, None]
    residual = batch.increment - h * here.drift.astype(exact)
    white = h * here.white.astype(exact)
    tail_dof = None if here.tail_dof is None else here.tail_dof.astype(exact)

    def one(k):
        F = jnp.sqrt(h)[..., None] * here.factor(k).astype(exact)
        return low_rank_log_density(residual, F, white, tail_dof)

    log_density = jax.vmap(one)(jax.random.split(key, n_samples))
    by_row, _ = _over_paths(log_density, average)
    return batch.n_data / jnp.sum(batch.weights) * jnp.sum(batch.weights * by_row)


def _by_tick(batch: WindowBatch):
    return tuple(jnp.swapaxes(x, 0, 1) for x in (batch.h, batch.u, batch.y, batch.is_seen))


def _covariates_there(h: Float[Array, "T B"], u: Float[Array, "T B U"]) -> Float[Array, "T B U"]:
    """Covariates of the state at the end of each tick: those of the step that leaves it.

    At the end of a window, after which there is only padding (h = 0), those of the step that led there.
    """
    h_next, u_next = (jnp.concatenate([x[1:], x[-1:]]) for x in (h, u))
    return jnp.where(h_next[..., None] > 0, u_next, u)


def _window_fit(field, batch: WindowBatch, key, n_samples: int, average: str) -> Scalar:
    """Draws of J are averaged tick by tick."""
    belief = filtering.Belief.start(batch.start, batch.variance, field.layout)
    h, u, y, is_seen = _by_tick(batch)
    _, (_, log_density) = filtering.run(key, field, belief, h, u, y, is_seen, n_samples)
    by_tick = jax.vmap(lambda draws: _over_paths(draws, average)[0])(log_density)
    by_window = jnp.sum(jnp.where(batch.is_scored.T, by_tick, 0.0), 0)
    return batch.n_data / jnp.sum(batch.weights) * jnp.sum(batch.weights * by_window)


def negative_rollout_bound(
    model: DynamicsModel,
    batch: SeriesBatch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: jnp.dtype | None = None,
    average: str = "log",
) -> tuple[Scalar, dict[str, Scalar]]:
    """The paper's objective: simulate freely from the first row of a window, score every row with N(x_t, Σ(x_t) + Λ).

    Σ and Λ are not multiplied by Δ here, and the simulated state already holds the noise: kept for comparison. Row t is
    scored with the covariates of the step that leaves it.
    """
    windows = batch.windows
    assert windows is not None
    field = model.field.prepare(dtype)
    layout, exact = model.layout, windows.y.dtype

    def at(history, u):
        return field.at(layout.row(history, u).astype(field.basis.dtype))

    def path(key, windows):
        # The field at x_t scores row t and takes the step to t + 1: T + 1 evaluations for T ticks.
        def tick(carry, inputs):
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

        h, u, y, seen = _by_tick(windows)
        inputs = (jax.random.split(key, len(h)), h, _covariates_there(h, u), y, seen, windows.is_scored.T)
        return jnp.sum(scan_steps(tick, (windows.start, at(windows.start, u[0])), inputs)[1], 0)

    # Samples are rows, not an axis of `vmap` (`AbstractModel.carry_samples` says why), and take the first key of as
    # many as there are, so that the numbers of one sample are those that it had as an axis.
    by_row = path(jax.random.split(key, n_samples)[0], windows.repeated(n_samples))
    by_window, _ = _over_paths(by_row.reshape(n_samples, -1), average)
    fit = windows.n_data / jnp.sum(windows.weights) * jnp.sum(windows.weights * by_window)
    parts = {"fit": fit, **model.field.kl()}
    return -weighted(parts, kl_weight), parts


def negative_filter_bound(
    model: LatentModel,
    batch: SeriesBatch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: jnp.dtype | None = None,
    average: str = "density",
) -> tuple[Scalar, dict[str, Scalar]]:
    """−(Σ log p̂(window) − penalties) with the estimate of the guided particle filter, `n_samples` particles.

    p̂ is unbiased, so its log is a bound, and a tight one: particles see what they are scored on (Maddison et al. 2017;
    the derivative by the choices of the resampling is left out, as there). Windows begin at p(x_0) = N(0, I).
    """
    del dtype, average  # densities of steps are not for 32 bits; the filter averages densities
    windows = batch.windows
    assert windows is not None
    prepared = particles.PreparedLatent.of(model)

    def one(key, h, u, y, is_seen):
        return jnp.sum(particles.run(key, prepared, h, u, y, is_seen, n_samples, len(windows.h))[1][1])

    keys = jax.random.split(key, windows.h.shape[0])
    by_window = jax.vmap(one)(keys, windows.h, windows.u, windows.y, windows.is_seen)
    weights = windows.n_data / jnp.sum(windows.weights) * windows.weights
    parts = {"fit": jnp.sum(weights * by_window), **model.kl()}
    return -weighted(parts, kl_weight), parts


def negative_encoder_bound(
    model: LatentModel,
    batch: SeriesBatch,
    key: PRNGKeyArray,
    *,
    kl_weight: Scalar | float = 1.0,
    n_samples: int = 1,
    dtype: jnp.dtype | None = None,
    average: str = "log",
) -> tuple[Scalar, dict[str, Scalar]]:
    """−(Σ_t E log p(y_t | x_t) − KL(q(x_0) ‖ N(0, I)) − penalties): a window is encoded, simulated and scored.

    The Brownian path keeps its prior law, so the bound is loose in long windows. With `average="density"` the weights
    of the S paths hold p(x_0)/q(x_0), and no KL of x_0 stands beside them.
    """
    windows = batch.windows
    assert windows is not None
    field, readout = model.field.prepare(dtype), model.readout.prepare()
    layout, exact = model.layout, windows.y.dtype
    mean, sd = model.encoder(windows.start, windows.variance == 0.0)

    def path(key):
        k_start, k_path = jax.random.split(key)
        epsilon = jax.random.normal(k_start, mean.shape, exact)
        start = mean + sd * epsilon

        def tick(x, inputs):
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

        h, u, y, seen = _by_tick(windows)
        inputs = (jax.random.split(k_path, len(h)), h, u, y, seen, _covariates_there(h, u))
        _, by_tick = scan_steps(tick, start, inputs, n_samples)
        log_ratio = jnp.sum(0.5 * epsilon**2 - 0.5 * start**2 + jnp.log(sd), -1)
        return jnp.sum(by_tick, 0), log_ratio

    fit, log_ratio = jax.vmap(path)(jax.random.split(key, n_samples))
    weights = windows.n_data / jnp.sum(windows.weights) * windows.weights
    if average == "log":
        kl = 0.5 * jnp.sum(mean**2 + sd**2 - 1.0 - 2.0 * jnp.log(sd), -1)
        parts = {"fit": jnp.sum(weights * fit.mean(0)), "kl_start": jnp.sum(weights * kl)}
    else:
        parts = {"fit": jnp.sum(weights * _over_paths(fit + log_ratio, average)[0])}
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


# --- the collapsed bound (Titsias 2009), Gaussian likelihood ---------------------------------


class CollapsedStatistics(NamedTuple):
    """aᵀa, aᵀy, yᵀy and Σ k_ii over the rows: all that the bound needs of the data."""

    aa: Float[Array, "M M"]
    ay: Float[Array, "M P"]
    yy: Float[Array, " P"]
    k_sum: Scalar


def collapsed_statistics(model: SparseGPModel, batch: Batch) -> CollapsedStatistics:
    """The sums over the rows of a batch."""
    basis = model.output.basis.prepare()
    a = basis.project(batch.X) * batch.weights[:, None]
    y = batch.y * batch.weights[:, None]
    k_sum = jnp.sum(model.output.basis.kernel.diagonal(batch.X) * batch.weights)
    return CollapsedStatistics(a.T @ a, a.T @ y, jnp.sum(y**2, 0), k_sum)


def _noise(model: SparseGPModel) -> Float[Array, " P"]:
    """σ² of each output; only a Gaussian likelihood has a collapsed bound."""
    if not isinstance(model.likelihood, GaussianLikelihood):
        raise OptionError(
            f"the collapsed bound was asked of a {type(model.likelihood).__name__}; "
            "it exists for the Gaussian likelihood alone."
        )
    return model.likelihood.variance


def collapsed_bound(model: SparseGPModel, batch: Batch, known: CollapsedStatistics | None = None) -> Scalar:
    """The bound at the optimal q, summed over outputs: with A = a/σ, B = I + AAᵀ = L_B L_Bᵀ, c = L_B⁻¹ A y/σ,

    −N/2 log 2πσ² − Σ log diag L_B − yᵀy/2σ² + ½ cᵀc − ½ (Σ k_ii/σ² − tr AAᵀ).

    `known` are the statistics where they were found before.
    """
    aa, ay, yy, k_sum = collapsed_statistics(model, batch) if known is None else known
    identity = jnp.eye(aa.shape[0], dtype=aa.dtype)

    def one(q):
        ay_p, yy_p, noise = q
        L_B = cholesky(identity + aa / noise)
        c = solve_lower(L_B, ay_p[:, None])[:, 0] / noise
        log_det = 0.5 * batch.n_data * jnp.log(2 * jnp.pi * noise) + jnp.sum(jnp.log(jnp.diagonal(L_B)))
        trace = 0.5 * (k_sum - jnp.trace(aa)) / noise
        return -log_det - 0.5 * yy_p / noise + 0.5 * jnp.sum(c**2) - trace

    return jnp.sum(each(one, (ay.T, yy, _noise(model))))


def optimal_posterior(
    model: SparseGPModel, batch: Batch, known: CollapsedStatistics | None = None
) -> WhitenedPosterior:
    """The q that attains the collapsed bound: R Rᵀ = B⁻¹, m = B⁻¹ A y/σ."""
    aa, ay, _, _ = collapsed_statistics(model, batch) if known is None else known
    identity = jnp.eye(aa.shape[0], dtype=aa.dtype)

    def one(q):
        ay_p, noise = q
        R = inverse_square_root(identity + aa / noise)
        return R @ (R.T @ ay_p) / noise, R

    means, sqrts = each(one, (ay.T, _noise(model)))
    return WhitenedPosterior(means, LowerTriangular.of(sqrts))
