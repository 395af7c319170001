"""Members: K fits, each without one fold of the rows, whose predictive law is a mixture.

Each row has a prediction by the one fit that has not seen it. These out-of-fold predictions weigh the candidates (flow
and sparse GP) and recalibrate the mixture.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import scipy.spatial
import scipy.special
from jaxtyping import Float, Int

from ..callbacks import CallbackList
from ..errors import DataError
from ..numerics.padding import size_class
from ..training.journal import Trained
from .calibration import MOST_ROWS, Calibration, HonestRows, calibrate
from .law import Law
from .prediction import predictive_components, predictive_log_prob, predictive_moments
from .specs import FlowSpec
from .training import Problem, gp_for, is_calibrated, train

# Candidates of less weight than this are left out.
LEAST_WEIGHT = 0.02
N_WEIGHT_STEPS = 500
N_NEIGHBOURS = 5
MOST_NEW_ROWS = 500


@dataclasses.dataclass(frozen=True)
class Members:
    """Trained members by candidate, their weights, and out-of-fold predictions of the scaled rows.

    `first` is the first member of the first candidate, a flow where flows were fitted, whatever its weight.
    """

    first: Trained
    trained: dict[str, list[Trained]]
    weights: dict[str, float]
    calibration: Calibration | None
    log_density: Float[np.ndarray, " N"]
    mean: Float[np.ndarray, "N P"]


def folds_of(n_rows: int, n_members: int, seed: int) -> Int[np.ndarray, " N"]:
    """The fold of each row, at random."""
    if n_rows < 2 * n_members:
        raise DataError(f"n_members={n_members} given for {n_rows} rows; expected at least two rows for each member.")
    return np.random.default_rng(np.random.SeedSequence([seed, n_rows, n_members])).permutation(n_rows) % n_members


def train_members(problem: Problem, n_members: int, callbacks: Any = None) -> Members:
    """Fit K members of each candidate, weigh the candidates and recalibrate their mixture."""
    folds = folds_of(len(problem.X), n_members, problem.seed)
    is_flow = isinstance(problem.spec, FlowSpec)
    # Flows that would be compared with a sparse GP are mixed with one instead.
    is_mixed = is_flow and problem.training.validation_fraction > 0.0
    parts = _parts(problem, folds, n_members, keeps_flow=is_mixed)
    trained: dict[str, list[Trained]] = {}
    if is_flow:
        trained["flow"] = train(parts, callbacks)
        callbacks = CallbackList()
    if is_mixed or not is_flow:
        trained["sparse GP"] = train([part.without_flow() for part in parts], callbacks)
    held = [problem.rows(folds == k) for k in range(n_members)]
    densities = {name: _out_of_fold(found, held, folds, _log_density) for name, found in trained.items()}
    weights = _weights(densities)
    log_density = scipy.special.logsumexp([densities[n] + np.log(w) for n, w in weights.items()], axis=0)
    means = {name: _out_of_fold(trained[name], held, folds, _mean) for name in weights}
    mean = sum(weights[name] * means[name] for name in weights)
    first, trained = next(iter(trained.values()))[0], {name: trained[name] for name in weights}
    calibration = _calibration(problem, trained, weights, folds)
    return Members(first, trained, weights, calibration, log_density, np.asarray(mean))


def _parts(problem: Problem, folds: Int[np.ndarray, " N"], n_members: int, keeps_flow: bool) -> list[Problem]:
    """The problem of each member: all folds but one.

    The law of a member is not recalibrated, but that of the mixture. All have as many inducing points as the one with
    the fewest distinct rows can have, so that they have one shape.
    """
    training = dataclasses.replace(problem.training, calibrate=False)
    fewest = min(len(np.unique(problem.X[folds != k], axis=0)) for k in range(n_members))
    n_inducing = min(problem.n_inducing, size_class(fewest))
    parts = [problem.rows(folds != k) for k in range(n_members)]
    return [
        dataclasses.replace(
            part,
            training=training,
            keeps_flow=keeps_flow,
            n_inducing=n_inducing,
            seed=(problem.seed + k) % 2**32,
        )
        for k, part in enumerate(parts)
    ]


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
    """Weights of candidates that maximise Σ_n log Σ_c w_c p_c(y_n), by the steps of expectation maximisation."""
    names = list(densities)
    logs = np.stack([densities[name] for name in names])
    logs = np.where(np.isfinite(logs), logs, -1e300)
    w = np.full(len(names), 1.0 / len(names))
    for _ in range(N_WEIGHT_STEPS if len(names) > 1 else 0):
        with np.errstate(divide="ignore"):
            w = scipy.special.softmax(logs + np.log(w)[:, None], axis=0).mean(1)
    w = np.where(w < LEAST_WEIGHT, 0.0, w)
    return {name: float(value) for name, value in zip(names, w / w.sum(), strict=True) if value > 0.0}


# --- recalibration of the mixture ----------------------------------------------------------------


def _calibration(
    problem: Problem,
    trained: dict[str, list[Trained]],
    weights: dict[str, float],
    folds: Int[np.ndarray, " N"],
) -> Calibration | None:
    if not is_calibrated(problem):
        return None
    chosen = np.sort(np.random.default_rng(problem.seed).permutation(len(folds))[:MOST_ROWS])
    problem, folds, n_members = problem.rows(np.isin(np.arange(len(folds)), chosen)), folds[chosen], folds.max() + 1
    held = [problem.rows(folds == k) for k in range(n_members)]
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for name, found in trained.items():
        components = [
            predictive_components(Law.of(one.model), rows.X[:, : _width(one.model)], rows.seed, rows.n_paths)
            for one, rows in zip(found, held, strict=True)
        ]
        means, variances = (_in_order([c[i] for c in components], folds) for i in (0, 1))
        parts.append((means, variances, weights[name] * components[0][2]))
    means, variances, shares = (np.concatenate([part[i] for part in parts]) for i in (0, 1, 2))
    between = _between(problem, trained, weights)
    rows = HonestRows(problem.X[:, : problem.n_inputs], problem.y, means, variances, shares, between)
    return calibrate(rows, functools.partial(gp_for, problem), problem.seed)


def _in_order(parts: list[Float[np.ndarray, "T _R P"]], folds: np.ndarray) -> Float[np.ndarray, "T N P"]:
    found = np.empty((parts[0].shape[0], len(folds), parts[0].shape[2]))
    for k, part in enumerate(parts):
        found[:, folds == k] = part
    return found


def _between(problem: Problem, trained: dict[str, list[Trained]], weights: dict[str, float]) -> Float[np.ndarray, " P"]:
    """The variance of the members' means about their mean at new rows, for each output."""
    X = new_rows(problem.X, problem.seed)
    by_member = sum(
        weight
        * np.stack(
            [
                predictive_moments(Law.of(one.model), X[:, : _width(one.model)], problem.seed, problem.n_paths)[0]
                for one in trained[name]
            ]
        )
        for name, weight in weights.items()
    )
    return np.asarray(by_member).var(0).mean(0)


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
