"""Recalibration of predictive laws by rows that took no part in training.

The recalibrated law is that of μ(x) + c s(x) (Y − μ(x)), Y having the law of the model with mean μ(x). s(x) is a
constant, or a function of the inputs, exp(½ h(x)), where the errors say so; c is 1, or, with small probabilities, a
width w > 1: of heavy tails, and of errors as none of the rows has. A mixture of normals stays one, so mean, standard
deviation, quantiles, draws, components and density all describe one law, whose density integrates to one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Array, Bool, Float, Int, Scalar

from ..numerics.devices import AnyArray, compiled
from ..numerics.padding import size_class
from .batches import padded_batch
from .sparse_gp import SparseGPModel

# Fewer rows (groups, where rows have them) say too little of a scale, or of a scale that depends on the inputs.
LEAST_ROWS = 30
LEAST_ROWS_BY_INPUT = 60
# Parts of the rows: a width that depends on the inputs is judged by the errors of each part, and found without them.
N_PARTS = 3
# With fewer groups than this share of the rows, a scale does not depend on the inputs.
LEAST_SHARE = 0.5
# More rows, or paths of their predictions, would say no more.
MOST_ROWS = 5000
MOST_PATHS = 100
# Level of the likelihood-ratio test that scales and tails must pass.
LEVEL = 0.95
# A scale by inputs must be ahead by this many standard errors of the mean gain, on errors that it was not found by.
LEAST_LEAD = 1.0
# Parts of the log of a scale by inputs that are tried: where errors are few the half of it is often better.
SHARES = (0.5, 1.0)
# Scales have a ratio of which the widths of tails, 1, 2.01 and 3, are powers: widening a law goes along the grid.
STEP = 3.0 ** (1.0 / 11.0)
SCALES = STEP ** np.arange(-35.0, 12.0)
WIDTH_STEPS = (0, 7, 11)
WIDTHS = tuple(STEP**steps for steps in WIDTH_STEPS)
TAILS = ((0.0, 1.0), *((share, width) for share in (0.02, 0.05, 0.1, 0.2, 0.3) for width in WIDTHS[1:]))
# After n errors the next one is of another kind than all of them with a probability of about ½/(n + 1) (Krichevsky and
# Trofimov 1981). Such errors are so many times as wide: without them one row that is 20 deviations off costs 200 nats.
RARE_WIDTH = 5.0
# Squared errors in units of their variance, before their logarithm.
SMALLEST_SQUARE = 1e-6
# |h| at most, for scales from 1/4 to 4: with a law that is far too narrow at one row, its error costs a whole table.
LARGEST_LOG = 2.0 * float(np.log(4.0))
# Factors that laws of several candidates are tried with together, and the rows after which errors say as much of the
# factor as the assumption that it is one. Each law is as wide as its own errors; their mixture is wider than its own.
POOLED = np.exp(np.linspace(-0.5, 0.2, 15))
POOLED_ROWS = 30.0

# A sparse GP of scaled inputs and targets, which are padded to a number of rows.
FitGP = Callable[[Float[np.ndarray, "N D"], Float[np.ndarray, "N P"], int], SparseGPModel]


class Calibration(eqx.Module):
    """s(x), and the shares of K kinds of tails and their widths w."""

    scale: Float[AnyArray, " P"]
    tail_share: Float[AnyArray, " K"]
    tail_width: Float[AnyArray, " K"]
    log_scale: SparseGPModel | None = None
    unit: Float[AnyArray, " P"] | None = None

    @classmethod
    def neutral(cls, n_outputs: int) -> Calibration:
        """The one that changes nothing."""
        return cls(np.ones(n_outputs), np.zeros(1), np.ones(1))

    def scales(self, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        """s(x) of each output at states, whose first columns are the scaled inputs."""
        scale = jnp.broadcast_to(jnp.asarray(self.scale), (X.shape[0], len(self.scale)))
        if self.log_scale is None:
            return scale
        return scale * jnp.exp(0.5 * self._log_scales(X))

    def _log_scales(self, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
        assert self.log_scale is not None and self.unit is not None
        output = self.log_scale.output
        h = output.conditioned().means(X[:, : output.basis.Z.shape[-1]]) * self.unit
        return jnp.clip(h, -LARGEST_LOG, LARGEST_LOG)

    def parts(self) -> tuple[tuple[Scalar, Scalar], ...]:
        """Probability and factor c of the parts of the law, its centre first."""
        shares, widths = jnp.asarray(self.tail_share), jnp.asarray(self.tail_width)
        return ((1.0 - jnp.sum(shares), jnp.ones_like(widths[0])), *zip(shares, widths, strict=True))

    def parts_at(self, X: Float[Array, "N D"]) -> tuple[tuple[Scalar, Float[Array, "N P"]], ...]:
        """Log probability of the parts, and their scales c s(x) at states."""
        scales = self.scales(X)
        return tuple((jnp.log(share), scales * width) for share, width in self.parts())

    def widened(self, factor: float) -> Calibration:
        """All scales times a factor."""
        return eqx.tree_at(lambda calibration: calibration.scale, self, np.asarray(self.scale) * factor)

    def describe(self) -> str:
        """What it does, in words."""
        by_input = " and depend on the inputs" if self.log_scale is not None else ""
        sizes = ", ".join(f"{value:.2f}" for value in np.asarray(self.scale))
        tails = [
            f"; {share:.1%} of the mass is {width:.0f} times as wide"
            for share, width in zip(np.asarray(self.tail_share), np.asarray(self.tail_width), strict=True)
            if share > 0.0
        ]
        return f"recalibrated: deviations from the mean are multiplied by {sizes}{by_input}{''.join(tails)}"


@dataclasses.dataclass(frozen=True)
class HonestRows:
    """Rows with predictions by models that have not seen them: T normal components for each, with weights.

    Each row is predicted by one member of a mixture. The mixture of all is wider, by the factor `wider` of each output,
    and its mean has errors that are smaller, by the factor `smaller`. Rows with equal numbers in `groups` are not
    independent (None: each row is a group of its own): tests count groups, not rows.
    """

    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, "N P"]
    means: Float[np.ndarray, "T N P"]
    variances: Float[np.ndarray, "T N P"]
    weights: Float[np.ndarray, " T"]
    smaller: Float[np.ndarray, " P"] | float = 1.0
    wider: Float[np.ndarray, " P"] | float = 1.0
    groups: Int[np.ndarray, " N"] | None = None

    def subset(self, keep: np.ndarray) -> HonestRows:
        """Some of the rows."""
        return dataclasses.replace(
            self,
            X=self.X[keep],
            y=self.y[keep],
            means=self.means[:, keep],
            variances=self.variances[:, keep],
            groups=None if self.groups is None else self.groups[keep],
        )

    def first_of_groups(self) -> tuple[Int[np.ndarray, " G"], Int[np.ndarray, " N"]]:
        """The first row of each group, and for each row the place of its group among them."""
        if self.groups is None:
            return np.arange(len(self.y)), np.arange(len(self.y))
        _, first, numbers = np.unique(self.groups, return_index=True, return_inverse=True)
        return first, numbers

    def by_group(self, values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " G"]:
        """The mean of a number of each row over the rows of each group."""
        numbers = self.first_of_groups()[1]
        return np.bincount(numbers, values) / np.bincount(numbers)

    @functools.cached_property
    def centre(self) -> Float[np.ndarray, "N P"]:
        """μ(x)."""
        return np.einsum("t,tnp->np", self.weights, self.means)

    @functools.cached_property
    def _constants(self) -> Float[np.ndarray, "T N"]:
        """What does not depend on y in the log of weight and density of each component."""
        return np.log(self.weights)[:, None] - 0.5 * np.log(2.0 * np.pi * self.variances).sum(-1)

    @functools.cached_property
    def _half_precisions(self) -> Float[np.ndarray, "T N P"]:
        return 0.5 / self.variances

    @functools.cached_property
    def variance(self) -> Float[np.ndarray, "N P"]:
        """The variance of y by the models."""
        return np.einsum("t,tnp->np", self.weights, self.variances + (self.means - self.centre) ** 2)

    def errors(self) -> Float[np.ndarray, "N P"]:
        """y − μ of the mixture of all members, in units in which it is as wide as the components are."""
        return (self.y - self.centre) * self.smaller / self.wider

    def log_densities(
        self, errors: Float[np.ndarray, "N P"], scale: Float[np.ndarray, "#N P"] | float
    ) -> Float[np.ndarray, " N"]:
        """Log density of errors in these units where the law is `scale` times as wide about μ, joint over outputs."""
        off = self.centre + errors / scale - self.means
        logs = self._constants - np.einsum("tnp,tnp,tnp->tn", off, off, self._half_precisions)
        # scipy.special.logsumexp takes three times as long, and this is where recalibration spends its time.
        highest = logs.max(0)
        np.exp(logs - highest, out=logs)
        return highest + np.log(logs.sum(0)) - np.broadcast_to(np.log(scale * self.wider), errors.shape).sum(-1)


@dataclasses.dataclass(frozen=True)
class Recalibrated:
    """A recalibration, None where the law of the models is as good, beside the rows that asked for it.

    `scales` are those of the recalibrated law at the rows; a scale that depends on the inputs is, at each row, found
    without that row. `tails` are the shares and widths of its tails.
    """

    calibration: Calibration | None
    rows: HonestRows
    scales: Float[np.ndarray, "N P"]
    tails: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, calibration: Calibration | None, rows: HonestRows, scales: Float[np.ndarray, "N P"]) -> Recalibrated:
        """A recalibration whose scales at the rows are known."""
        if calibration is None:
            return cls(None, rows, scales)
        tails = zip(calibration.tail_share.tolist(), calibration.tail_width.tolist(), strict=True)
        return cls(calibration, rows, scales, tuple((share, width) for share, width in tails if share > 0.0))

    def widened(self, factor: float) -> Recalibrated:
        """The law with all scales times a factor."""
        calibration = Calibration.neutral(self.rows.y.shape[1]) if self.calibration is None else self.calibration
        return dataclasses.replace(self, calibration=calibration.widened(factor), scales=factor * self.scales)

    def log_densities(self) -> Float[np.ndarray, " N"]:
        """Log density of each row by the recalibrated law."""
        return self.log_densities_of(self.rows.errors())

    def log_densities_of(self, errors: Float[np.ndarray, "N P"]) -> Float[np.ndarray, " N"]:
        """The same of given errors."""
        parts = ((1.0 - sum(share for share, _ in self.tails), 1.0), *self.tails)
        logs = [np.log(share) + self.rows.log_densities(errors, width * self.scales) for share, width in parts]
        return scipy.special.logsumexp(np.stack(logs), axis=0)


def recalibrated(rows: HonestRows, fit_gp: FitGP, seed: int) -> Recalibrated:
    """The recalibration that the rows ask for; `fit_gp` fits a sparse GP to scaled inputs and targets."""
    if len(rows.y) > MOST_ROWS:
        rows = rows.subset(np.random.default_rng(seed).permutation(len(rows.y))[:MOST_ROWS])
    none = Recalibrated(None, rows, np.ones_like(rows.y))
    if len(rows.first_of_groups()[0]) < LEAST_ROWS:
        return none
    errors, sds = rows.errors(), np.sqrt(rows.variance)
    before = none.log_densities_of(errors)
    if not np.isfinite(before).all():
        return none
    # Outputs have scales of their own; what all of them have in common is found with the tails.
    by_output = np.sqrt(np.mean((errors / sds) ** 2, 0)) if errors.shape[1] > 1 else np.ones(1)
    by_output = np.clip(by_output, SCALES[0], SCALES[-1])
    same = np.broadcast_to(by_output, errors.shape)
    scale, tail, found = _scale_and_tails(rows, errors, same)
    by_input = _ErrorSizes.of(rows, errors, sds)
    h = None if by_input is None else by_input.left_out(fit_gp, seed)
    if by_input is not None and h is not None:
        widths = {share: np.exp(0.5 * np.clip(share * h, -LARGEST_LOG, LARGEST_LOG)) for share in SHARES}
        tried = [(share, *_scale_and_tails(rows, errors, by_output * width)) for share, width in widths.items()]
        share, scale_h, tail_h, found_h = max(tried, key=lambda one: float(one[-1].sum()))
        gain = rows.by_group(found_h - found)
        if gain.mean() > LEAST_LEAD * gain.std() / np.sqrt(len(gain)):
            scales = np.clip(scale_h * by_output, SCALES[0], SCALES[-1])
            tails, gp = _with_rare(rows, tail_h), jax.tree.map(np.asarray, by_input.fitted(fit_gp))
            calibration = Calibration(scales, *tails, gp, share * by_input.unit)
            return Recalibrated.of(calibration, rows, scales * widths[share])
    # One scale for each output, and the tails.
    if not 2.0 * rows.by_group(found - before).sum() > scipy.stats.chi2.ppf(LEVEL, errors.shape[1] + 1):
        return none
    scales = np.clip(scale * by_output, SCALES[0], SCALES[-1])
    calibration = Calibration(scales, *_with_rare(rows, tail))
    return Recalibrated.of(calibration, rows, np.broadcast_to(scales, errors.shape))


def calibrate(rows: HonestRows, fit_gp: FitGP, seed: int) -> Calibration | None:
    """The recalibration that the rows ask for; None where the law of the models is as good."""
    return recalibrated(rows, fit_gp, seed).calibration


def _with_rare(rows: HonestRows, tail: tuple[float, float]) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Shares and widths of the tail that the rows ask for, and of errors as none of them has."""
    rare, (share, width) = 0.5 / (len(rows.first_of_groups()[0]) + 1.0), tail
    return np.array([(1.0 - rare) * share, rare]), np.array([width, RARE_WIDTH])


def _scale_and_tails(
    rows: HonestRows, errors: Float[np.ndarray, "N P"], relative: Float[np.ndarray, "N P"]
) -> tuple[float, tuple[float, float], Float[np.ndarray, " N"]]:
    """The constant factor and the tails of highest density, and the densities of the rows.

    All tails are tried on a coarse grid of factors; the best of them on a fine one.
    """

    def densities(scale: float, tail: tuple[float, float]) -> Float[np.ndarray, " N"]:
        tails = () if tail[0] == 0.0 else (tail,)
        return Recalibrated(None, rows, scale * relative, tails).log_densities_of(errors)

    wider = SCALES[-1] * STEP ** np.arange(1.0, WIDTH_STEPS[-1] + 1.0)
    coarse = np.stack([rows.log_densities(errors, s * relative) for s in (*SCALES, *wider)])
    at_width = {width: coarse[steps : steps + len(SCALES)] for width, steps in zip(WIDTHS, WIDTH_STEPS, strict=True)}
    totals = np.stack([_with_tail(at_width[1.0], at_width[width], share).sum(-1) for share, width in TAILS])
    best_tail = int(np.argmax([_peak(values) for values in totals]))
    tail, best_scale = TAILS[best_tail], int(np.argmax(totals[best_tail]))
    fine = np.clip(SCALES[best_scale] * STEP ** np.linspace(-1.0, 1.0, 9), SCALES[0], SCALES[-1])
    found = [densities(float(scale), tail) for scale in fine]
    best = int(np.argmax([values.sum() for values in found]))
    return float(fine[best]), tail, found[best]


def _peak(values: Float[np.ndarray, " S"]) -> float:
    """The highest value between equally spaced points, by the parabola through the highest of them and its two
    neighbours.
    """
    i = int(np.argmax(values))
    if i in (0, len(values) - 1):
        return float(values[i])
    before, here, after = values[i - 1 : i + 2]
    bend = 2.0 * here - before - after
    return float(here + (after - before) ** 2 / (8.0 * bend)) if bend > 0.0 else float(here)


def _with_tail(
    narrow: Float[np.ndarray, "*shape"], wide: Float[np.ndarray, "*shape"], share: float
) -> Float[np.ndarray, "*shape"]:
    """Log densities where a share of the mass is wide."""
    return narrow if share == 0.0 else np.logaddexp(np.log1p(-share) + narrow, np.log(share) + wide)


@dataclasses.dataclass(frozen=True)
class _ErrorSizes:
    """What a GP of the log of squared errors is fitted to: one row for each group, targets without a mean and of unit
    variance, the unit of the targets, and the place of each row's group.

    Each group is one row of that GP, its first one, and has one h: errors of a group are alike, and a GP of all of them
    would take what they have in common for a scale that depends on the inputs. Where most rows are copies there is no
    such GP. A model that follows copies is too sure of what lies between two close rows. Each of the two is predicted
    from the other, so both errors are large, and the GP would find a large scale there that new rows do not have.
    """

    X: Float[np.ndarray, "G D"]
    targets: Float[np.ndarray, "G P"]
    unit: Float[np.ndarray, " P"]
    numbers: Int[np.ndarray, " N"]

    @classmethod
    def of(
        cls, rows: HonestRows, errors: Float[np.ndarray, "N P"], sds: Float[np.ndarray, "N P"]
    ) -> _ErrorSizes | None:
        """None where groups are too few, or all errors alike."""
        first, numbers = rows.first_of_groups()
        if len(first) < max(LEAST_ROWS_BY_INPUT, LEAST_SHARE * len(numbers)):
            return None
        logs = np.log((errors / sds) ** 2 + SMALLEST_SQUARE)[first]
        unit = logs.std(0)
        if not (np.isfinite(unit).all() and (unit > 1e-6).all()):
            return None
        return cls(rows.X[first], (logs - logs.mean(0)) / unit, unit, numbers)

    def fitted(self, fit_gp: FitGP, keep: Bool[np.ndarray, " G"] | slice = slice(None)) -> SparseGPModel:
        """The GP of some of the groups; padded alike, all such fits share one program."""
        return fit_gp(self.X[keep], self.targets[keep], size_class(len(self.X)))

    def left_out(self, fit_gp: FitGP, seed: int) -> Float[np.ndarray, "N P"]:
        """h at each row by a GP that has not seen the part of the groups that it belongs to."""
        part = np.random.default_rng(seed).permutation(len(self.X)) % N_PARTS
        h = np.empty_like(self.targets)
        for k in range(N_PARTS):
            model = self.fitted(fit_gp, part != k)
            own = padded_batch(self.X[part == k], self.targets[part == k], size_class(len(self.X)))
            h[part == k] = np.asarray(_means(jax.tree.map(jnp.asarray, model), own.X))[: (part == k).sum()]
        return (h * self.unit)[self.numbers]


@compiled
def _means(model: SparseGPModel, X: Float[Array, "N D"]) -> Float[Array, "N P"]:
    return model.output.conditioned().means(X)


# --- several candidates --------------------------------------------------------------------------


def pooled_factor(laws: Sequence[Recalibrated], weights: Float[np.ndarray, " K"]) -> float:
    """By how much the deviations of all laws from their means are multiplied where they are mixed: the factor of
    highest density, drawn towards one where rows are few.

    A mixture of laws that each have the right width for their errors is too wide, because its mean has smaller errors.
    """

    def density(factor: float) -> float:
        logs = np.stack([law.widened(factor).log_densities() for law in laws])
        return float(scipy.special.logsumexp(logs + np.log(weights)[:, None], axis=0).sum())

    n_groups = len(laws[0].rows.first_of_groups()[0])
    if n_groups < LEAST_ROWS:
        return 1.0
    return float(max(POOLED, key=density)) ** (n_groups / (n_groups + POOLED_ROWS))
