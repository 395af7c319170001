"""Heavier tails of the next row: whether a share of the steps is wider than the others, or steps are Student-t.

Parameters are those of highest density at the rows that training has seen, where a law must lead the Gaussian one
clearly. Rows held back decide whether it is used, by the rule of all candidates (`selection`).

A law of a trained model has the covariance of the model without it (`numerics.tails`), so that forecasts many steps
ahead, whose noise adds up, hardly change. Of constant noise the covariance has the highest likelihood too: outliers
inflate that of a sample.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np
import scipy.optimize
from jaxtyping import Float
from scipy.special import gammaln, logsumexp

from ..numerics.devices import on_device
from ..numerics.parameters import Scaled
from ..numerics.tails import Jumps
from ..training.journal import Trained
from .autoregressive import LEAST_TAIL_DOF, DynamicsModel
from .held_rows import HeldBackSteps
from .linear_gaussian import FLOOR
from .selection import DENSITY, select

SHARES = (0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.07, 0.1)
WIDTHS = (2.0, 2.5, 3.0, 4.0, 5.0, 6.5, 8.0, 12.0)
# Degrees of freedom: above the first there is a covariance, above the last the law is hardly another one.
LEAST_DOF, MOST_DOF = LEAST_TAIL_DOF + 0.01, 100.0
# Standard errors by which a law must lead at the rows that it was fitted to: there two parameters gain about one.
LEAD_SEEN = 2.0
# Fewer rows to estimate from say too little of what is rare; more of them would say no more.
LEAST_ROWS, MOST_ROWS = 100, 2000
# Rounds of scatter and degrees of freedom, each of which takes most of the way that is left.
N_ROUNDS = 20

# Jumps, degrees of freedom of Student-t steps, or None: Gaussian steps.
Law = Jumps | float | None


@dataclasses.dataclass(frozen=True)
class Steps:
    """log p(0) and rᵀB⁻¹r of the residuals r of single steps, for each draw of J: densities of D entries."""

    at_zero: Float[np.ndarray, "S N"]
    squares: Float[np.ndarray, "S N"]
    dim: int

    @classmethod
    def of(cls, held: HeldBackSteps, model: DynamicsModel, n_draws: int) -> Steps:
        return cls(*held.terms(model, n_draws), model.layout.dim)

    def __len__(self) -> int:
        return self.squares.shape[1]

    def log_densities(self, law: Law = None) -> Float[np.ndarray, " N"]:
        """As mixtures over draws of J."""
        if isinstance(law, Jumps):
            (_, narrow), (_, wide) = law.parts()
            share = float(law.share)
            parts = self._wider(float(narrow)), self._wider(float(wide))
            return np.logaddexp(np.log1p(-share) + parts[0], np.log(share) + parts[1])
        return self._wider(1.0) if law is None else self._student_t(law)

    def _wider(self, variance: float) -> Float[np.ndarray, " N"]:
        """Gaussian, with variances larger by a factor."""
        each = self.at_zero - 0.5 * self.dim * np.log(variance) - 0.5 * self.squares / variance
        return logsumexp(each, axis=0) - np.log(len(each))

    def _student_t(self, dof: float) -> Float[np.ndarray, " N"]:
        # The Gaussian constant is in `at_zero`.
        each = self.at_zero + 0.5 * self.dim * np.log(2.0 * np.pi)
        each = each + student_t_radial(self.squares / (1.0 - 2.0 / dof), self.dim, dof)
        return logsumexp(each, axis=0) - np.log(len(each)) - 0.5 * self.dim * np.log1p(-2.0 / dof)


def student_t_radial(squares: Float[np.ndarray, "*shape"], dim: int, dof: float) -> Float[np.ndarray, "*shape"]:
    """The log density of a Student-t by squared lengths under its scatter, without the determinant of the latter."""
    constant = gammaln(0.5 * (dof + dim)) - gammaln(0.5 * dof) - 0.5 * dim * np.log(np.pi * dof)
    return constant - 0.5 * (dof + dim) * np.log1p(squares / dof)


def _mean_radial(squares: Float[np.ndarray, " N"], dim: int, dof: float) -> float:
    return float(np.mean(student_t_radial(squares, dim, dof)))


def best_jumps(steps: Steps) -> Jumps:
    """Share and width of highest density."""
    pairs = [Jumps(np.array(share), np.array(width)) for share in SHARES for width in WIDTHS]
    return max(pairs, key=lambda law: float(steps.log_densities(law).sum()))


def best_dof(steps: Steps) -> float:
    """Degrees of freedom of highest density."""
    return _best_dof(lambda dof: float(steps.log_densities(dof).mean()))


def _best_dof(log_density: Callable[[float], float]) -> float:
    """The search is closed: in the logarithm of what is above the least degrees of freedom but .1."""
    low = LEAST_TAIL_DOF - 0.1
    bounds = np.log([LEAST_DOF - low, MOST_DOF - low])
    found = scipy.optimize.minimize_scalar(lambda x: -log_density(low + np.exp(x)), bounds=bounds, method="bounded")
    return float(low + np.exp(found.x))


def student_t_scatter(
    r: Float[np.ndarray, "N D"], covariance: Float[np.ndarray, "D D"]
) -> tuple[Float[np.ndarray, "D D"], float]:
    """Scatter and degrees of freedom of highest likelihood of residuals, by EM from a covariance on.

    Given s the rows are Gaussian, and E[1/s | r] = (κ + D)/(κ + rᵀS⁻¹r) weighs them; κ is searched for in between. As
    far as weights of a regression lower the covariance of its residuals, that of `covariance`, they lower the scatter.
    """
    scatter, dim = 0.5 * covariance, r.shape[1]
    freedom = np.trace(covariance) / np.trace(r.T @ r / len(r))
    floor = FLOOR * np.trace(scatter) / dim * np.eye(dim)
    for _ in range(N_ROUNDS):
        squares = np.sum(np.linalg.solve(np.linalg.cholesky(scatter), r.T) ** 2, axis=0)
        dof = _best_dof(functools.partial(_mean_radial, squares, dim))
        weights = (dof + dim) / (dof + squares)
        scatter = freedom * (weights[:, None] * r).T @ r / len(r) + floor
    return scatter, dof


def laws_of(seen: Steps, has_student_t: bool) -> list[Law]:
    """The laws that clearly lead the Gaussian one at the rows that they are fitted to."""
    if len(seen) < LEAST_ROWS:
        return []
    laws: list[Law] = [best_jumps(seen), *([best_dof(seen)] if has_student_t else [])]
    return [law for law in laws if leads(seen.log_densities(law), seen.log_densities())]


def leads(densities: Float[np.ndarray, " N"], gaussian: Float[np.ndarray, " N"]) -> bool:
    """Whether a law leads the Gaussian one where it was fitted."""
    return select([{DENSITY: densities}], {DENSITY: gaussian}, LEAD_SEEN) is not None


def kept_law(seen: Steps, held: Steps, has_student_t: bool) -> Law:
    """The law that the held-back rows are described best by."""
    laws = laws_of(seen, has_student_t)
    found = select([{DENSITY: held.log_densities(law)} for law in laws], {DENSITY: held.log_densities()})
    return None if found is None else laws[found]


def with_law(model: DynamicsModel, law: Law) -> DynamicsModel:
    """A Gaussian model whose noise has this law."""
    if law is None:
        return model
    is_none = lambda leaf: leaf is None  # noqa: E731
    if isinstance(law, Jumps):
        jumps = Jumps(on_device(law.share), on_device(law.width))
        return eqx.tree_at(lambda m: m.field.jumps, model, jumps, is_leaf=is_none)
    return eqx.tree_at(lambda m: m.field.tail_dof, model, Scaled.of(law, LEAST_TAIL_DOF), is_leaf=is_none)


def trained_with(trained: Trained, law: Law) -> Trained:
    """What was trained, with this law of its noise."""
    if law is None:
        return trained
    return dataclasses.replace(
        trained,
        model=jax.tree.map(np.asarray, with_law(trained.model, law)),
        status=f"{trained.status}; {words_of(law)}",
        spec=dataclasses.replace(trained.spec, innovations="jumps" if isinstance(law, Jumps) else "student_t"),
    )


def words_of(law: Law) -> str:
    if isinstance(law, Jumps):
        return f"{float(law.share):.1%} of the steps jump, {float(law.width):g} times as wide"
    return "Gaussian steps" if law is None else f"Student-t steps with {law:.3g} degrees of freedom"
