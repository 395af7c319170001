"""Mixtures of candidates (flow, flow without noise, sparse GP), weighed by rows that they have not seen.

One fit of each candidate holds back some rows. K members are fits without one fold each, so that each row has a
prediction by the one that has not seen it. Both ways these predictions recalibrate the candidates and weigh them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from ..callbacks import CallbackList
from ..errors import DataError
from ..numerics.mixtures import mixture_weights
from ..training.backends import Workers
from ..training.checkpoints import checkpoints_among, in_worker, watched
from ..training.journal import Trained
from ..training.loop import warn_of
from .calibration import MOST_PATHS, MOST_ROWS, Calibration, HonestRows, Recalibrated, pooled_factor, recalibrated
from .law import Law
from .prediction import predictive_components, predictive_log_prob, predictive_moments, predictive_scales
from .problems import Problem, equally_large
from .specs import FlowSpec
from .training import gp_for, has_leave_one_out, is_calibrated, train

# Names of candidates.
FLOW, ODE, GP = "flow", "flow without noise", "sparse GP"
# Of a member: as many as a fit needs.
LEAST_TRAINING_ROWS = 2
# A flow is tried where at least so many of the rows, all in all, are predicted by fits that have not seen them. Fewer
# say neither how wide its law must be nor how much weight it earns.
LEAST_UNSEEN, LEAST_UNSEEN_OF_MEMBERS = 30, 100
# Rows that count as divided equally between candidates: few rows do not give one of them all the weight.
PRIOR_ROWS = 20.0
# Rows at which the means of members are compared with each other.
MOST_COMPARED = 1000
HERE = Workers()


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Trained models by candidate, one for each member, their weights and recalibrations, and a sentence about them.

    `first` is the first model of the first candidate, a flow where flows were fitted, whatever its weight. Several
    members have out-of-fold predictions of all scaled rows.
    """

    first: Trained
    trained: dict[str, list[Trained]]
    weights: dict[str, float]
    calibrations: dict[str, Calibration | None]
    why: str = ""
    log_density: Float[np.ndarray, " N"] | None = None
    mean: Float[np.ndarray, "N P"] | None = None


def folds_of(
    n_rows: int, n_members: int, seed: int, groups: Int[np.ndarray, " N"] | None = None
) -> Int[np.ndarray, " N"]:
    """The fold of each row, at random; the rows of a group are in one fold, and folds are of about equal size."""
    if n_rows < 2 * n_members:
        raise DataError(f"n_members={n_members} given for {n_rows} rows; expected at least two rows for each member.")
    rng = np.random.default_rng(np.random.SeedSequence([seed, n_rows, n_members]))
    if groups is None:
        return rng.permutation(n_rows) % n_members
    _, numbers, counts = np.unique(groups, return_inverse=True, return_counts=True)
    if len(counts) < n_members:
        raise DataError(
            f"n_members={n_members} given for {len(counts)} groups of rows; expected at least one group for each "
            "member: pass fewer members. Rows with equal inputs are one group."
        )
    order = rng.permutation(len(counts))
    fold_of_group, sizes = np.empty(len(counts), int), np.zeros(n_members, int)
    for group in order[np.argsort(-counts[order], kind="stable")]:  # the largest first, each into the smallest fold
        fold_of_group[group] = fold = sizes.argmin()
        sizes[fold] += counts[group]
    if n_rows - sizes.max() < LEAST_TRAINING_ROWS:
        raise DataError(
            f"one group holds {counts.max()} of {n_rows} rows, which leaves {n_rows - sizes.max()} for the member that "
            f"is fitted without it; expected at least {LEAST_TRAINING_ROWS} rows: add rows of other groups, or pass "
            "n_members=1."
        )
    return fold_of_group[numbers]


def train_mixtures(
    problems: Sequence[Problem], n_members: int, callbacks: Any = None, workers: Workers = HERE
) -> list[Mixture]:
    """For each problem, fit its candidates, recalibrate and weigh them.

    On an accelerator fits that are alike, of all problems, are trained in one program. Workers of a backend train one
    member at a time.
    """
    folds = [_folds(p, n_members) for p in problems]
    todo = [_candidates(p, own, n_members) for p, own in zip(problems, folds, strict=True)]
    trained: list[dict[str, list[Trained]]] = [{} for _ in problems]
    # The first candidates of all problems, then the second ones of those that have several, and so on.
    rounds = []
    for k in range(max(map(len, todo))):
        names = [(i, list(own)[k]) for i, own in enumerate(todo) if len(own) > k]
        rounds.append((names, [part for i, name in names for part in todo[i][name]]))
    is_here = workers.are_here or n_members == 1
    elsewhere = iter(
        []
        if is_here
        else workers.map(_trained_alone, [(one, workers.checkpoint_dir) for _, own in rounds for one in own])
    )
    for names, own in rounds:
        found = iter(train(own, callbacks) if is_here else itertools.islice(elsewhere, len(own)))
        for i, name in names:
            trained[i][name] = list(itertools.islice(found, len(todo[i][name])))
            if not is_here:
                warn_of([one.status for one in trained[i][name]])
        # The first candidate is the one that is watched; all have checkpoints.
        callbacks = watched([], checkpoints_among(CallbackList(callbacks)))
    return [_mixed(p, found, f, n_members) for p, found, f in zip(problems, trained, folds, strict=True)]


def _trained_alone(problem: Problem, checkpoint_dir: Any) -> Trained:
    """In a worker."""
    return in_worker(checkpoint_dir, problem, lambda calls: train([problem], calls)[0])


def _folds(problem: Problem, n_members: int) -> Int[np.ndarray, " N"]:
    """For each row, the number of the fold that it belongs to; of one fit 0 where it is held back, and −1 elsewhere."""
    if n_members > 1:
        return folds_of(len(problem.X), n_members, problem.seed, problem.groups)
    return np.where(problem.held_back(), 0, -1) if problem.is_validated else np.full(len(problem.X), -1)


def _candidates(problem: Problem, folds: Int[np.ndarray, " N"], n_members: int) -> dict[str, list[Problem]]:
    """The fits of each candidate: the last `n_members` are kept, and the first ones have not seen their folds.

    Members of flows are mixed with flows without noise too, whose means are often better where densities are not.
    """
    if not problem.is_validated and n_members == 1:
        return {FLOW if isinstance(problem.spec, FlowSpec) else GP: [problem]}
    fits = [problem] if n_members == 1 else _parts(problem, folds, n_members)
    flat = [fit.without_flow() for fit in fits]
    if not isinstance(problem.spec, FlowSpec):
        return {GP: flat}
    if not problem.is_validated:
        return {FLOW: fits}
    n_unseen = int((folds >= 0).sum())
    if n_unseen < (LEAST_UNSEEN if n_members == 1 else LEAST_UNSEEN_OF_MEMBERS):
        return {GP: flat}
    if n_members == 1:
        return {FLOW: fits, GP: [problem.rows(folds < 0).without_flow(), *flat]}
    noiseless = {ODE: [fit.without_noise() for fit in fits]} if problem.spec.is_stochastic else {}
    return {FLOW: fits, **noiseless, GP: flat}


def _parts(problem: Problem, folds: Int[np.ndarray, " N"], n_members: int) -> list[Problem]:
    """The problem of each member: all folds but one.

    The law of a member is not recalibrated, but that of the mixture.
    """
    training = dataclasses.replace(problem.training, calibrate=False)
    parts = [
        dataclasses.replace(problem.rows(folds != k), training=training, seed=(problem.seed + k) % 2**32)
        for k in range(n_members)
    ]
    return equally_large(parts)


def _mixed(
    problem: Problem, trained: dict[str, list[Trained]], folds: Int[np.ndarray, " N"], n_members: int
) -> Mixture:
    """The law of each candidate, recalibrated, and weights by the densities of rows that it has not seen."""
    first = next(iter(trained.values()))[0]
    kept = {name: found[-n_members:] for name, found in trained.items()}
    if n_members == 1 and len(kept) == 1:
        return Mixture(first, kept, dict.fromkeys(kept, 1.0), dict.fromkeys(kept, first.calibration))
    unseen = {name: [_unseeing(one, n_members) for one in found[:n_members]] for name, found in trained.items()}
    held = [problem.rows(folds == k) for k in range(n_members)]
    densities = {name: _joined(models, held, folds, _log_density) for name, models in unseen.items()}
    calibrations: dict[str, Calibration | None] = dict.fromkeys(kept)
    if is_calibrated(problem):
        laws = {}
        for name, models in unseen.items():
            by_itself = n_members == 1 and has_leave_one_out(kept[name][0].spec, problem)
            calibration = trained[name][0].calibration
            laws[name] = _law_of(problem, models, folds, by_itself, calibration)
            calibrations[name] = kept[name][0].calibration if by_itself else laws[name].calibration
        weights = _weights({name: law.log_densities() for name, law in laws.items()})
        factor = pooled_factor([laws[name] for name in weights], np.array(list(weights.values())))
        if len(weights) > 1 and factor != 1.0:
            n_outputs = problem.y.shape[1]
            calibrations = {
                name: (calibrations[name] or Calibration.neutral(n_outputs)).widened(factor) for name in weights
            }
    else:
        weights = _weights(densities)
    why = ", ".join(f"{name} {weight:.2f}" for name, weight in weights.items())
    chosen = {name: kept[name] for name in weights}
    calibrations = {name: calibrations[name] for name in weights}
    if n_members == 1:
        scores = ", ".join(f"{name} {values.mean():.4f}" for name, values in densities.items())
        why += f" (log density of {len(held[0].X)} held-back rows before recalibration, scaled: {scores})"
        return Mixture(first, chosen, weights, calibrations, why)
    log_density = scipy.special.logsumexp([densities[n] + np.log(w) for n, w in weights.items()], axis=0)
    means = {name: _joined(unseen[name], held, folds, _mean) for name in weights}
    mean = sum(weights[name] * means[name] for name in weights)
    return Mixture(first, chosen, weights, calibrations, why, log_density, np.asarray(mean))


def _unseeing(trained: Trained, n_members: int) -> Any:
    """The model that has not seen its fold: a flow alone goes on with the rows that were held back from it."""
    return trained.before if n_members == 1 and trained.before is not None else trained.model


# --- rows that were not seen ---------------------------------------------------------------------


def _width(model: Any) -> int:
    return model.output.basis.Z.shape[-1]


def _log_density(model: Any, held: Problem) -> np.ndarray:
    return predictive_log_prob(Law.of(model), held.X[:, : _width(model)], held.y, held.seed, held.n_paths)[0]


def _mean(model: Any, held: Problem) -> np.ndarray:
    return predictive_moments(Law.of(model), held.X[:, : _width(model)], held.seed, held.n_paths)[0]


def _joined(models: list[Any], held: list[Problem], folds: Int[np.ndarray, " N"], function: Any) -> np.ndarray:
    """`function` of each model and the rows of its fold, in the order of the rows."""
    return _in_order([function(model, rows) for model, rows in zip(models, held, strict=True)], folds)


def _in_order(parts: list[np.ndarray], folds: Int[np.ndarray, " N"]) -> np.ndarray:
    """Parts, one for each fold, in the order of the rows that have one."""
    found, of = np.empty((int((folds >= 0).sum()), *parts[0].shape[1:])), folds[folds >= 0]
    for k, part in enumerate(parts):
        found[of == k] = part
    return found


def _weights(densities: dict[str, Float[np.ndarray, " N"]]) -> dict[str, float]:
    """Weights of candidates by the densities of unseen rows; those without weight are left out."""
    w = mixture_weights(np.stack(list(densities.values())), PRIOR_ROWS)
    return {name: float(value) for name, value in zip(densities, w, strict=True) if value > 0.0}


# --- recalibration of a candidate ----------------------------------------------------------------


def _law_of(
    problem: Problem, models: list[Any], folds: Int[np.ndarray, " N"], is_given: bool, calibration: Calibration | None
) -> Recalibrated:
    """The recalibrated law of a candidate at unseen rows, some of them where there are many, the same for all
    candidates: by these rows themselves, or as it is given.
    """
    rows = np.flatnonzero(folds >= 0)
    rows = np.sort(rows[np.random.default_rng(problem.seed).permutation(len(rows))[:MOST_ROWS]])
    some, folds = problem.rows(np.isin(np.arange(len(folds)), rows)), folds[rows]
    components = []
    for k, model in enumerate(models):
        own = some.rows(folds == k)
        n_paths = min(own.n_paths, MOST_PATHS)
        found = predictive_components(Law.of(model), own.X[:, : _width(model)], own.seed, n_paths)
        components.append((np.moveaxis(found[0], 0, 1), np.moveaxis(found[1], 0, 1), found[2]))
    means, variances = (np.moveaxis(_in_order([part[i] for part in components], folds), 1, 0) for i in (0, 1))
    X = some.X[:, : problem.n_inputs]
    honest = HonestRows(X, some.y, means, variances, components[0][2], groups=some.groups)
    if len(models) > 1:
        smaller, wider = _mixing(some, models, honest)
        honest = dataclasses.replace(honest, smaller=smaller, wider=wider)
    if not is_given:
        return recalibrated(honest, functools.partial(gp_for, problem), problem.seed)
    scales = np.ones_like(some.y) if calibration is None else predictive_scales(calibration, X)
    return Recalibrated.of(calibration, honest, scales)


def _mixing(
    problem: Problem, models: list[Any], rows: HonestRows
) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"]]:
    """By which factors the mixture of all members has smaller errors than single members, and is wider.

    With b the mean variance of the members' means about their mean, at rows that one of them has not seen, errors of
    the mixture have the mean square e² − b, and its own variance is v + b: √(1 − b/e²) and √(1 + b/v). All three are
    means over the same rows, so that a few rows which members disagree about count in each. Members that have seen a
    row agree more than on a new one: b is too small rather than too large.
    """
    some = np.random.default_rng(problem.seed).permutation(len(problem.X))[:MOST_COMPARED]
    means = [
        predictive_moments(Law.of(model), problem.X[some, : _width(model)], problem.seed, MOST_PATHS)[0]
        for model in models
    ]
    between = np.stack(means).var(0).mean(0)
    square = ((rows.y - rows.centre)[some] ** 2).mean(0)
    # Many members whose errors have nothing in common halve the mean square at the least that is believed.
    smaller = np.clip(1.0 - between / np.maximum(square, 1e-300), 0.5, 1.0)
    return np.sqrt(smaller), np.sqrt(1.0 + between / rows.variance[some].mean(0))
