"""Paths of the auto-regressive model given some of their cells: particles that know what is ahead of them.

A step of a particle, given a draw of J (and of the scale of Student-t noise), is normal. Given cells g of the row that
it leads to are conditioned on exactly; the others are drawn from the product of what is left of the step and ψ'
(`ahead`), the law of the cells that are given later. The weight of a step is

    w = p(g | H, J) ∫ p(x' | H, J, g) ψ'(H') dx' / ψ(H),

so that all weights of a path together are its density over that of its proposal. For a linear Gaussian model they are
the same for all paths, which are then independent draws of the exact law. Particles that lose their weight are replaced
by others with their whole pasts.

Where steps may jump each particle has a pattern of jumps and a ψ of its own (`jumps_ahead`). A step is then drawn from
the mixture of its narrow and its wide law, each times ψ', with the probabilities that the pattern leaves them.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Scalar

from ..inducing import for_prediction
from ..numerics.linalg import log_det, small_whitener
from ..numerics.tails import Jumps, elliptical_log_density, normal_beyond, tail_draw, tail_variance
from ..wishart import FieldValues, PreparedField
from ..wishart.constant import PreparedConstant
from . import resampling

# Draws of J for each particle and step, of which the cells of its row choose one.
N_CANDIDATES = 8


class Cells(eqx.Module):
    """What is given at each tick, and A and s of ψ after it.

    `side` is 1 for given cells at the high limit of paths and −1 at the low one, which steps may cross; None: there are
    none.
    """

    y: Float[Array, "T D"]
    is_given: Bool[Array, "T D"]
    rows: Float[Array, "T n K"]
    targets: Float[Array, "T n"]
    side: Int[Array, "T D"] | None = None
    jumps: JumpsAhead | None = None


class JumpsAhead(eqx.Module):
    """A, s and the constant of log ψ after each tick for each pattern of jumps, the last of which is the rest; log
    probabilities of a narrow and of a wide step, of the rest by the state of a path; and its state after a jump
    (`jumps_ahead.Patterns`).
    """

    rows: Float[Array, "T C n K"]
    targets: Float[Array, "T C n"]
    constants: Float[Array, "T C"]
    log_shares: Float[Array, "T C 2"]
    rest_shares: Float[Array, "T 5 2"]
    after_jump: Int[Array, "T 5"]

    def shares(self, pattern: Int[Array, " S"], jumped: Int[Array, " S"]) -> Float[Array, "S 2"]:
        """Log probabilities of a narrow and of a wide step for each particle, at one tick."""
        is_rest = pattern == len(self.log_shares) - 1
        return jnp.where(is_rest[:, None], self.rest_shares[jumped], self.log_shares[pattern])

    def towards(
        self, rest: Float[Array, "S R"], pattern: Int[Array, " S"], dim: int
    ) -> tuple[Float[Array, "S n D"], Float[Array, "S n"]]:
        """A_x and s − A_rest·rest of each particle, at one tick."""
        by_rest = jnp.einsum("sk,cnk->scn", rest, self.rows[:, :, dim:])
        return self.rows[:, :, :dim][pattern], self.targets[pattern] - by_rest[jnp.arange(len(rest)), pattern]

    def log_ahead(self, history: Float[Array, "S K"], pattern: Int[Array, " S"]) -> Float[Array, " S"]:
        """log ψ of each particle, at one tick."""
        of_all = jnp.einsum("sk,cnk->scn", history, self.rows)[jnp.arange(len(history)), pattern]
        return self.constants[pattern] - 0.5 * jnp.sum((self.targets[pattern] - of_all) ** 2, -1)


class Particles(eqx.Module):
    """Histories, the first particle that each comes from, log weights, and log ψ; where steps may jump also patterns
    and the states of paths that jumps lead to.
    """

    history: Float[Array, "S K"]
    origin: Int[Array, " S"]
    log_weights: Float[Array, " S"]
    log_ahead: Float[Array, " S"]
    pattern: Int[Array, " S"] | None = None
    jumped: Int[Array, " S"] | None = None


class Normal(eqx.Module):
    """N(mean, covariance) for each particle; coordinates that are known have no covariance."""

    mean: Float[Array, "S D"]
    covariance: Float[Array, "S D D"]

    def given(self, x: Float[Array, "#S D"], is_known: Bool[Array, " D"]) -> tuple[Normal, Array, Array]:
        """The law given some coordinates of x; the squared length of these, and the log determinant."""
        known = is_known.astype(self.mean.dtype)
        W = small_whitener(_among(self.covariance, known))
        r = jnp.einsum("sij,sj->si", W, jnp.where(is_known, x - self.mean, 0.0))
        gain = (self.covariance * known) @ jnp.swapaxes(W, -1, -2)  # Q_:o Wᵀ, so that K = gain W
        mean = jnp.where(is_known, x, self.mean + jnp.einsum("sdi,si->sd", gain, r))
        rest = (1.0 - known)[:, None] * (1.0 - known)
        covariance = (self.covariance - gain @ jnp.swapaxes(gain, -1, -2)) * rest
        return Normal(mean, covariance), jnp.sum(r * r, -1), log_det(W)


def _among(covariance: Float[Array, "S D D"], chosen: Float[Array, " D"]) -> Float[Array, "S D D"]:
    """The covariance of chosen coordinates; the others become independent, with variance one."""
    return covariance * (chosen[:, None] * chosen) + jnp.diag(1.0 - chosen)


def log_ahead(
    history: Float[Array, "S K"], rows: Float[Array, "n K"], targets: Float[Array, " n"]
) -> Float[Array, " S"]:
    """log ψ."""
    return -0.5 * jnp.sum((targets - history @ rows.T) ** 2, -1)


def row_law(
    key: PRNGKeyArray, here: FieldValues, x: Float[Array, "S D"], h: Scalar, cells: Cells, scale: Scalar | None = None
) -> tuple[Normal, Float[Array, " S"]]:
    """The law of the next row given the cells of it (one tick of `cells`) and a draw of J, and the log density of
    these.

    The variance s of noise with tails is `scale`, or else drawn from its law given the cells (`tail_variance`).
    """
    k_noise, k_scale, k_limits = jax.random.split(key, 3)
    F = here.factor(k_noise)
    noise = F @ jnp.swapaxes(F, -1, -2) + here.white[..., None] * jnp.eye(x.shape[-1], dtype=x.dtype)
    at_limit = None if cells.side is None else cells.is_given & (cells.side != 0)
    is_exact = cells.is_given if at_limit is None else cells.is_given & ~at_limit
    law, squares, log_determinant = Normal(x + h * here.drift, h * noise).given(cells.y[None], is_exact)
    n_exact, tails = jnp.sum(is_exact), here.tails if scale is None else None
    if scale is not None:
        squares, log_determinant = squares / scale, log_determinant + n_exact * jnp.log(scale)
        law = Normal(law.mean, scale * law.covariance)
    density = elliptical_log_density(squares, log_determinant, n_exact, tails)
    if tails is not None:
        scale = tail_variance(tail_draw(k_scale, (len(x),), x.dtype, tails, n_exact), tails, squares, n_exact)
        law = Normal(law.mean, scale[:, None, None] * law.covariance)
    if at_limit is None or cells.side is None:
        return law, density
    beyond, log_mass = _beyond(k_limits, law, cells.y, jnp.where(at_limit, cells.side, 0))
    law, _, _ = law.given(beyond, at_limit)
    return Normal(jnp.where(at_limit, cells.y, law.mean), law.covariance), density + log_mass


def _beyond(
    key: PRNGKeyArray, law: Normal, limit: Float[Array, " D"], side: Int[Array, " D"]
) -> tuple[Float[Array, "S D"], Float[Array, " S"]]:
    """Draws of the coordinates with a side, beyond their limits, and the log of an unbiased estimate of the probability
    to be there (the simulator of Geweke, Hajivassiliou and Keane, as in `running.censored`).
    """
    has_side = (side != 0).astype(limit.dtype)
    B = _among(law.covariance, has_side)
    L = B @ jnp.swapaxes(small_whitener(B), -1, -2)  # B L⁻ᵀ
    uniform = jax.random.uniform(key, law.mean.shape, law.mean.dtype)

    def column(e: Array, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
        j, row, mean, limit, side, u = inputs
        diagonal = jnp.take_along_axis(row, jnp.broadcast_to(j, (len(row), 1)), axis=1)[:, 0]
        drawn, log_mass = normal_beyond(u, (limit - mean - jnp.sum(row * e, axis=1)) / diagonal, side)
        return e.at[:, j].set(jnp.where(side == 0, 0.0, drawn)), log_mass

    columns = (jnp.arange(len(side)), jnp.swapaxes(L, 0, 1), law.mean.T, limit, side, uniform.T)
    e, log_masses = jax.lax.scan(column, jnp.zeros_like(law.mean), columns)
    return law.mean + jnp.einsum("sij,sj->si", L, e), jnp.sum(log_masses, axis=0)


class Towards(eqx.Module):
    """The law q ∝ N(x; mean, covariance) exp(−½ ‖targets − rows x‖²) of the free cells of a row.

    With ρ = targets − rows·mean and Π = Q⁻¹ + AᵀA = W⁻¹W⁻ᵀ it is N(mean + Π⁻¹Aᵀρ, Π⁻¹), and `log_mass` is the log of
    the integral, −½ (log|Q| + log|Π| + ‖ρ‖² − ‖W Aᵀρ‖²).
    """

    mean: Float[Array, "S D"]
    W: Float[Array, "S D D"]
    pull: Float[Array, "S D"]
    log_mass: Float[Array, " S"]

    @classmethod
    def of(
        cls, law: Normal, free: Float[Array, " D"], rows: Float[Array, "*#S n D"], targets: Float[Array, "S n"]
    ) -> Towards:
        # Known coordinates become independent of the others, with variance one: they have no part in anything.
        A = rows * free
        to_white = small_whitener(_among(law.covariance, free))
        W = small_whitener(jnp.swapaxes(to_white, -1, -2) @ to_white + jnp.swapaxes(A, -1, -2) @ A)
        rho = targets - jnp.einsum("...nd,...d->...n", rows, law.mean)
        pull = jnp.einsum("sij,sj->si", W, jnp.einsum("...n,...nd->...d", rho, A))
        squares = jnp.sum(rho**2, -1) - jnp.sum(pull**2, -1)
        return cls(law.mean, W, pull, -0.5 * (log_det(to_white) + log_det(W) + squares))

    def draw(self, key: PRNGKeyArray, free: Float[Array, " D"]) -> Float[Array, "S D"]:
        epsilon = free * jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.einsum("sij,si->sj", self.W, self.pull + epsilon)


def next_row(
    key: PRNGKeyArray, here: FieldValues, history: Float[Array, "S K"], h: Scalar, cells: Cells, n_candidates: int
) -> tuple[Float[Array, "S D"], Float[Array, " S"]]:
    """Draws of the next row, and the logs of p(g | H) ∫ p(x' | H, g) ψ' dx', which are the weights times ψ.

    J (with all else that makes a step normal) is one of several draws for each particle, chosen by that integral; the
    mean of the integrals takes its place in the weight.
    """
    dim, size = here.drift.shape[1], history.shape[1]
    k_laws, k_choice, k_row = jax.random.split(key, 3)
    x, rest, free = history[:, :dim], history[:, : size - dim], 1.0 - cells.is_given.astype(history.dtype)
    targets = cells.targets - rest @ cells.rows[:, dim:].T

    def candidate(k: PRNGKeyArray) -> tuple[Towards, Array]:
        law, log_density = row_law(k, here, x, h, cells)
        towards = Towards.of(law, free, cells.rows[:, :dim], targets)
        return towards, log_density + towards.log_mass

    candidates, log_masses = jax.vmap(candidate)(jax.random.split(k_laws, n_candidates))
    chosen = jax.random.categorical(k_choice, log_masses, axis=0)
    towards = jax.tree.map(lambda part: part[chosen, jnp.arange(len(x))], candidates)
    return towards.draw(k_row, free), jax.nn.logsumexp(log_masses, axis=0) - jnp.log(n_candidates)


def next_jumping_row(
    key: PRNGKeyArray,
    here: FieldValues,
    before: Particles,
    h: Scalar,
    cells: Cells,
    n_candidates: int,
) -> tuple[Float[Array, "S D"], Float[Array, " S"], Bool[Array, " S"]]:
    """`next_row` for noise with jumps, and which steps are wide: each draw of J is there with both variances."""
    ahead, tails, pattern = cells.jumps, here.tails, before.pattern
    assert ahead is not None and isinstance(tails, Jumps) and pattern is not None and before.jumped is not None
    dim, (n, size) = here.drift.shape[1], before.history.shape
    k_laws, k_choice, k_row = jax.random.split(key, 3)
    x, rest = before.history[:, :dim], before.history[:, : size - dim]
    free = 1.0 - cells.is_given.astype(x.dtype)
    rows, targets = ahead.towards(rest, pattern, dim)
    shares = ahead.shares(pattern, before.jumped)

    def candidate(k: PRNGKeyArray, scale: Scalar) -> tuple[Towards, Array]:
        law, log_density = row_law(k, here, x, h, cells, scale)
        towards = Towards.of(law, free, rows, targets)
        return towards, log_density + towards.log_mass

    scales = jnp.stack([s for _, s in tails.parts()])
    keys = jnp.repeat(jax.random.split(k_laws, n_candidates), 2)
    candidates, log_masses = jax.vmap(candidate)(keys, jnp.tile(scales, n_candidates))
    log_masses = log_masses + jnp.tile(shares.T, (n_candidates, 1)) + ahead.constants[pattern]
    chosen = jax.random.categorical(k_choice, log_masses, axis=0)
    towards = jax.tree.map(lambda part: part[chosen, jnp.arange(n)], candidates)
    log_mass = jax.nn.logsumexp(log_masses, axis=0) - jnp.log(n_candidates)
    return towards.draw(k_row, free), log_mass, chosen % 2 == 1


def run(
    key: PRNGKeyArray,
    field: PreparedField,
    history: Float[Array, "S K"],
    h: Float[Array, " T"],
    u: Float[Array, "T U"],
    cells: Cells,
    at_start: tuple[Float[Array, " S"], Int[Array, " S"] | None],
    limits: Float[Array, "2 D"] | None = None,
) -> tuple[Particles, Float[Array, "T S D"], Int[Array, "T S"]]:
    """Particles after all ticks, their states after each, and the particle before the tick that each comes from.

    `history` are draws of the law of histories times ψ at the start, `at_start` its logs and the patterns of particles.
    Ticks of no length move nothing. With `limits` a step of a free cell ends at the limit that it would cross.
    """
    n_ticks, n = len(h), len(history)
    k_field, k_ticks = jax.random.split(key)
    if field.has_drift_posterior:
        field = field.drawn(k_field, n, one_for_each_row=True)
    layout, field = field.layout, for_prediction(field, n * n_ticks)
    is_constant = field.noise is None or isinstance(field.noise, PreparedConstant)
    has_jumps = cells.jumps is not None
    n_candidates = 1 if is_constant and (has_jumps or field.tails is None) else N_CANDIDATES // (1 + has_jumps)

    def tick(before: Particles, inputs: tuple[Array, Array, Array, Cells]) -> tuple[Particles, tuple[Array, Array]]:
        k, h, u, here = inputs
        k_row, k_resample = jax.random.split(k)
        is_step, h = h > 0, jnp.where(h > 0, h, 1.0)
        X = layout.row(before.history, jnp.broadcast_to(u, (n, len(u))))
        values = _of_rows(field, before.origin).at(X)
        jumped = before.jumped
        if here.jumps is None or jumped is None:
            x, log_mass = next_row(k_row, values, before.history, h, here, n_candidates)
        else:
            x, log_mass, is_wide = next_jumping_row(k_row, values, before, h, here, n_candidates)
            jumped = jnp.where(is_wide, here.jumps.after_jump[jumped], jumped)
        moved = layout.shift(before.history, x)
        ahead = _log_ahead(moved, here, before.pattern)
        log_weights = before.log_weights + log_mass - before.log_ahead
        if limits is not None:
            # The proposal knew of no limits.
            proposed = ahead
            x = jnp.where(here.is_given, here.y, jnp.clip(x, limits[0], limits[1]))
            moved = layout.shift(before.history, x)
            ahead = _log_ahead(moved, here, before.pattern)
            log_weights = log_weights + ahead - proposed
        chosen, log_weights = resampling.where_poor(k_resample, log_weights)
        kept = [None if part is None else part[chosen] for part in (before.pattern, jumped)]
        after = Particles(moved[chosen], before.origin[chosen], log_weights, ahead[chosen], *kept)
        after = jax.tree.map(lambda new, old: jnp.where(is_step, new, old), after, before)
        return after, (after.history[:, : layout.dim], jnp.where(is_step, chosen, jnp.arange(n)))

    log_weights, (first, pattern) = jnp.zeros(n, history.dtype), at_start
    jumped = None if pattern is None else jnp.zeros_like(pattern)
    start = Particles(history, jnp.arange(n), log_weights, first, pattern, jumped)
    end, (states, parents) = jax.lax.scan(tick, start, (jax.random.split(k_ticks, n_ticks), h, u, cells))
    return end, states, parents


def _log_ahead(history: Float[Array, "S K"], cells: Cells, pattern: Int[Array, " S"] | None) -> Float[Array, " S"]:
    """log ψ after one tick of the cells."""
    if cells.jumps is None or pattern is None:
        return log_ahead(history, cells.rows, cells.targets)
    return cells.jumps.log_ahead(history, pattern)


def _of_rows(field: PreparedField, origin: Int[Array, " S"]) -> PreparedField:
    """The field whose drift is that of each particle's own path."""
    if field.gp_normals is None or field.gp_weights is None:
        return field
    return dataclasses.replace(field, gp_weights=field.gp_weights[origin], gp_normals=field.gp_normals[origin])
