"""Members: K fits, each without one fold of the rows, whose predictive law is a mixture.

Each row has a prediction by the one fit that has not seen it. These out-of-fold predictions weigh the candidates (flow,
flow without noise and sparse GP) and recalibrate the mixture.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.spatial
import scipy.special
from jaxtyping import Float, Int

from ..callbacks import CallbackList
from ..errors import DataError
from ..numerics.mixtures import mixture_weights
from ..training.backends import Workers
from ..training.checkpoints import checkpoints_among, in_worker, watched
from ..training.journal import Trained
from ..training.loop import warn_of
from .calibration import MOST_PATHS, MOST_ROWS, Calibration, HonestRows, Recalibrated, recalibrated
from .law import Law
from .prediction import predictive_components, predictive_log_prob, predictive_moments
from .problems import Problem, equally_large
from .specs import FlowSpec
from .training import gp_for, is_calibrated, train

# Names of candidates.
FLOW, ODE, GP = "flow", "flow without noise", "sparse GP"
N_NEIGHBOURS = 5
MOST_NEW_ROWS = 500
# Of a member: as many as a fit needs.
LEAST_TRAINING_ROWS = 2
HERE = Workers()


@dataclasses.dataclass(frozen=True)
class Members:
    """Trained members by candidate, their weights, and out-of-fold predictions of the scaled rows.

    `first` is the first member of the first candidate, a flow where flows were fitted, whatever its weight.
    """

    first: Trained
    trained: dict[str, list[Trained]]
    weights: dict[str, float]
    calibrations: dict[str, Calibration | None]
    log_density: Float[np.ndarray, " N"]
    mean: Float[np.ndarray, "N P"]


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


def train_members(
    problems: Sequence[Problem], n_members: int, callbacks: Any = None, workers: Workers = HERE
) -> list[Members]:
    """For each problem, fit K members of each candidate, weigh the candidates and recalibrate their mixture.

    On an accelerator members that are alike, of all problems, are trained in one program. Workers of a backend train
    one member at a time.
    """
    folds = [folds_of(len(p.X), n_members, p.seed, p.groups) for p in problems]
    parts = [_parts(p, own, n_members) for p, own in zip(problems, folds, strict=True)]
    makers = [list(_candidates(p).items()) for p in problems]
    trained: list[dict[str, list[Trained]]] = [{} for _ in problems]
    # The first candidates of all problems, then the second ones of those that have several, and so on.
    rounds = [[i for i, own in enumerate(makers) if len(own) > k] for k in range(max(map(len, makers)))]
    members = [[makers[i][k][1](part) for i in places for part in parts[i]] for k, places in enumerate(rounds)]
    elsewhere = iter(
        []
        if workers.are_here
        else workers.map(_trained_alone, [(one, workers.checkpoint_dir) for own in members for one in own])
    )
    for k, places in enumerate(rounds):
        found = train(members[k], callbacks) if workers.are_here else list(itertools.islice(elsewhere, len(members[k])))
        if not workers.are_here:
            warn_of([one.status for one in found])
        for j, i in enumerate(places):
            trained[i][makers[i][k][0]] = found[j * n_members : (j + 1) * n_members]
        # The first candidate is the one that is watched; all have checkpoints.
        kept = checkpoints_among(CallbackList(callbacks))
        callbacks = watched([], kept)
    return [_mixed(p, found, f) for p, found, f in zip(problems, trained, folds, strict=True)]


def _trained_alone(problem: Problem, checkpoint_dir: Any) -> Trained:
    """In a worker."""
    return in_worker(checkpoint_dir, problem, lambda calls: train([problem], calls)[0])


def _candidates(problem: Problem) -> dict[str, Callable[[Problem], Problem]]:
    """What is mixed. Flows that would be compared with a sparse GP are mixed with one instead, and with flows without
    noise, whose means are often better where densities are not.
    """
    if not isinstance(problem.spec, FlowSpec):
        return {GP: Problem.without_flow}
    if problem.training.validation_fraction == 0.0:
        return {FLOW: lambda part: part}
    candidates = {FLOW: _kept, ODE: lambda part: _kept(part.without_noise()), GP: Problem.without_flow}
    if not problem.spec.is_stochastic:
        del candidates[ODE]
    return candidates


def _kept(problem: Problem) -> Problem:
    """A flow that is not compared with a sparse GP."""
    return dataclasses.replace(problem, keeps_flow=True)


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


def _mixed(problem: Problem, trained: dict[str, list[Trained]], folds: Int[np.ndarray, " N"]) -> Members:
    """The law of each candidate, recalibrated, and weights by the densities of out-of-fold rows."""
    held = [problem.rows(folds == k) for k in range(folds.max() + 1)]
    densities = {name: _out_of_fold(found, held, folds, _log_density) for name, found in trained.items()}
    if is_calibrated(problem):
        found = {name: _recalibrated(problem, members, folds) for name, members in trained.items()}
        weights = _weights({name: one.log_densities() for name, one in found.items()})
        calibrations = {name: found[name].calibration for name in weights}
    else:
        weights = _weights(densities)
        calibrations = dict.fromkeys(weights)
    log_density = scipy.special.logsumexp([densities[n] + np.log(w) for n, w in weights.items()], axis=0)
    means = {name: _out_of_fold(trained[name], held, folds, _mean) for name in weights}
    mean = sum(weights[name] * means[name] for name in weights)
    first, kept = next(iter(trained.values()))[0], {name: trained[name] for name in weights}
    return Members(first, kept, weights, calibrations, log_density, np.asarray(mean))


# --- out of fold ---------------------------------------------------------------------------------


def _width(model: Any) -> int:
    return model.output.basis.Z.shape[-1]


def _log_density(model: Any, held: Problem) -> np.ndarray:
    return predictive_log_prob(Law.of(model), held.X[:, : _width(model)], held.y, held.seed, held.n_paths)[0]


def _mean(model: Any, held: Problem) -> np.ndarray:
    return predictive_moments(Law.of(model), held.X[:, : _width(model)], held.seed, held.n_paths)[0]


def _out_of_fold(trained: list[Trained], held: list[Problem], folds: np.ndarray, function: Any) -> np.ndarray:
    """`function` of each member and the rows of its fold, in the order of the rows."""
    parts = [function(one.model, rows) for one, rows in zip(trained, held, strict=True)]
    found = np.empty((len(folds), *parts[0].shape[1:]))
    for k, part in enumerate(parts):
        found[folds == k] = part
    return found


def _weights(densities: dict[str, Float[np.ndarray, " N"]]) -> dict[str, float]:
    """Weights of candidates by the densities of out-of-fold rows; those without weight are left out."""
    w = mixture_weights(np.stack(list(densities.values())))
    return {name: float(value) for name, value in zip(densities, w, strict=True) if value > 0.0}


# --- recalibration of a candidate ----------------------------------------------------------------


def _recalibrated(problem: Problem, trained: list[Trained], folds: Int[np.ndarray, " N"]) -> Recalibrated:
    """The recalibration of the mixture of a candidate's members, by some of the rows, the same for all candidates."""
    chosen = np.sort(np.random.default_rng(problem.seed).permutation(len(folds))[:MOST_ROWS])
    problem, folds = problem.rows(np.isin(np.arange(len(folds)), chosen)), folds[chosen]
    components = []
    for k, one in enumerate(trained):
        rows = problem.rows(folds == k)
        X, n_paths = rows.X[:, : _width(one.model)], min(rows.n_paths, MOST_PATHS)
        components.append(predictive_components(Law.of(one.model), X, rows.seed, n_paths))
    means, variances = (_in_order([part[i] for part in components], folds) for i in (0, 1))
    between = _between(problem, trained)
    X = problem.X[:, : problem.n_inputs]
    honest = HonestRows(X, problem.y, means, variances, components[0][2], between, problem.groups)
    return recalibrated(honest, functools.partial(gp_for, problem), problem.seed)


def _in_order(parts: list[Float[np.ndarray, "T _R P"]], folds: np.ndarray) -> Float[np.ndarray, "T N P"]:
    found = np.empty((parts[0].shape[0], len(folds), parts[0].shape[2]))
    for k, part in enumerate(parts):
        found[:, folds == k] = part
    return found


def _between(problem: Problem, trained: list[Trained]) -> Float[np.ndarray, " P"]:
    """The variance of the members' means about their mean at new rows, for each output."""
    # The nearest neighbours of a copy would be its copies, and the new row the same as they are.
    X = problem.X if problem.groups is None else np.unique(problem.X, axis=0)
    X = new_rows(X, problem.seed) if len(X) > 2 else X
    means = [
        predictive_moments(Law.of(one.model), X[:, : _width(one.model)], problem.seed, MOST_PATHS)[0] for one in trained
    ]
    return np.stack(means).var(0).mean(0)


def new_rows(X: Float[np.ndarray, "N D"], seed: int) -> Float[np.ndarray, "R D"]:
    """Rows that no member has seen: x_i + (x_j − x_l)/√2, with j and l among the nearest neighbours of i.

    They are as far from the rows as these are from their neighbours, and where the rows are.
    """
    rng = np.random.default_rng(seed)
    n_neighbours = min(N_NEIGHBOURS, len(X) - 1)
    chosen = rng.permutation(len(X))[:MOST_NEW_ROWS]
    near = scipy.spatial.cKDTree(X).query(X[chosen], n_neighbours + 1)[1][:, 1:]
    first = rng.integers(0, n_neighbours, len(chosen))
    second = (first + rng.integers(1, max(2, n_neighbours), len(chosen))) % n_neighbours
    rows = np.arange(len(chosen))
    return X[chosen] + (X[near[rows, first]] - X[near[rows, second]]) / np.sqrt(2.0)
