"""Training of regression and classification: a sparse GP, or a flow that starts from one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, PyTree

from ..callbacks import CallbackList
from ..inducing.points import inducing_points, n_points
from ..kernels import RBF
from ..likelihoods import Gaussian, Poisson
from ..numerics import platform
from ..numerics.devices import random_key
from ..numerics.meshes import on_all
from ..numerics.padding import size_class
from ..numerics.process import PROGRAMS
from ..training.journal import Clock, Journal, Trained
from ..training.loop import DIVERGED, STOPPED, StochasticPhase, went_wrong
from ..training.phases import AbstractPhase, Items, Outcome, Schedule, Stretch, run_phases, unchanged
from ..training.specs import TrainingSpec
from ..training.stacks import stacked, unstacked
from . import flow, sparse_gp
from .batches import over_devices, padded_batch
from .calibration import Calibration, HonestRows, calibrate
from .exact import LONG, ExactGP, ExactPhase, best_of_starts, sample_of
from .explained import told
from .held_back import HeldBack, words
from .lbfgs import CollapsedPhase
from .leave_one_out import leave_one_out
from .objectives import is_bound
from .problems import Problem, is_collapsed, is_exact
from .specs import FlowSpec, SparseGPSpec
from .steps import RowSteps
from .streams import StreamSteps

# Targets that are noise for the most part need few iterations and inducing points.
MOST_ITERATIONS, MOST_INDUCING = 100, 50
# What a preset chooses by the number of rows, but L-BFGS of a sparse GP does not read, at one value.
UNREAD_BY_LBFGS: dict[str, Any] = {
    "max_iter": 1,
    "batch_size": 1,
    "batch_counts_paths": False,
    "learning_rate": 1.0,
    "n_train_samples": 1,
    "path_average": "log",
    "kl_warmup": 0,
    "field_lengthscale": 1.0,
    "dof": None,
}


@dataclasses.dataclass(frozen=True)
class Group:
    """Problems of equal shape that one program trains: their data, padded and stacked, and their inducing points.

    On an accelerator problems that are alike are one group, under `vmap`; on the CPU each is a group of its own,
    because batched factorisations can hang there and gain nothing.
    """

    problems: tuple[Problem, ...]
    items: Items
    Z: tuple[np.ndarray, ...]

    @classmethod
    def of(
        cls, problems: Sequence[Problem], n_rows: int | None = None, Z: tuple[np.ndarray, ...] | None = None
    ) -> Group:
        """Padded to `n_rows` (None: to the size class of the longest)."""
        n_rows = size_class(max(len(p.X) for p in problems)) if n_rows is None else n_rows
        data: Any = problems[0].stream
        if data is None:
            data = on_all(stacked([padded_batch(p.X, p.y, n_rows) for p in problems]), problems[0].mesh)
        items = Items(data, np.array([p.n_rows for p in problems]), tuple(p.seed for p in problems))
        if Z is None:
            Z = tuple(inducing_points(p.X, p.most_inducing, p.seed) for p in problems)
        return cls(tuple(problems), items, Z)

    @property
    def spec(self) -> Any:
        return self.problems[0].spec

    @property
    def training(self) -> TrainingSpec:
        return self.problems[0].training

    @property
    def specs(self) -> list[Any]:
        return [p.spec for p in self.problems]

    @property
    def schedule(self) -> Callable | None:
        """The learning rate as a function of the step, where a user gave one."""
        return self.problems[0].learning_rate


def train(problems: list[Problem], callbacks: Any = None) -> list[Trained]:
    """Train every problem; those that are alike are trained together where the platform does that."""
    PROGRAMS.make_room()
    n_models = len(problems)
    trained: dict[int, Trained] = {}
    with CallbackList(callbacks) as calls:
        for places in alike(problems) if platform.trains_together(n_models) else [(i,) for i in range(n_models)]:
            found = train_group([problems[i] for i in places], calls, places, n_models)
            trained |= dict(zip(places, found, strict=True))
    return [trained[i] for i in range(n_models)]


def alike(problems: Sequence[Problem]) -> list[tuple[int, ...]]:
    """The places of problems that one program may train with the same result as one after another."""
    kinds: list[tuple] = []
    places: list[list[int]] = []
    for i, kind in enumerate(map(_kind, problems)):
        if kind not in kinds:
            kinds.append(kind)
            places.append([])
        places[kinds.index(kind)].append(i)
    return [tuple(own) for own in places]


def _kind(problem: Problem) -> tuple:
    """All that is taken from the first problem of a group, and all shapes.

    Log rates of counts are numbers in the arrays of a model, so they may differ, as the seed and the data may.
    """
    spec, training = problem.spec, problem.training
    if isinstance(spec, SparseGPSpec) and is_collapsed(problem):
        training = dataclasses.replace(training, **UNREAD_BY_LBFGS)
    if isinstance(spec.likelihood, Poisson):
        spec = dataclasses.replace(spec, likelihood=Poisson())
    n_held = int(problem.held_back().sum()) if problem.is_validated else 0
    n_kept = problem.n_rows - n_held
    sizes = tuple(None if n == 0 else (size_class(n), *_limits(n, training)) for n in (problem.n_rows, n_kept, n_held))
    most = problem.most_inducing
    n_inducing = (most, n_points(problem.X, most, problem.seed), problem.gp_inducing, is_exact(problem))
    widths = (problem.X.shape[1], problem.n_inputs, problem.y.shape[1])
    options = (problem.learning_rate, problem.n_paths, problem.mesh, id(problem.stream))
    return type(spec), spec, training, sizes, n_inducing, widths, options


def _limits(n_rows: int, training: TrainingSpec) -> tuple[bool, ...]:
    """Decisions that the number of rows makes: L-BFGS or stochastic steps, and whether a batch holds all rows."""
    batches = (training.batch_rows(n) for n in (1, training.n_train_samples))
    return n_rows <= training.collapsed_limit, *(n_rows <= size for size in batches)


def train_group(problems: list[Problem], calls: CallbackList, indices: tuple[int, ...], n_models: int) -> list[Trained]:
    """Problems of equal shape; rows are held back from flows whose training says so."""
    if problems[0].is_validated:
        return _train_validated(problems, calls, indices, n_models)
    group, journal = Group.of(problems), Journal(calls, indices, n_models)
    if isinstance(group.spec, FlowSpec):
        return _fitted(group, phases_of(group), start_of(group), journal).trained
    trained = _fitted_gps(group, journal)
    return [
        dataclasses.replace(one, calibration=gp_calibration(p, one.model))
        for one, p in zip(trained, problems, strict=True)
    ]


@dataclasses.dataclass(frozen=True)
class _Run:
    """A finished run."""

    outcome: Outcome
    trained: list[Trained]


def _fitted(group: Group, phases: list[AbstractPhase], models: PyTree, journal: Journal) -> _Run:
    outcome = run_phases(phases, models, journal)
    return _Run(outcome, journal.trained(outcome.models, outcome.status, group.specs))


def _fitted_gps(group: Group, journal: Journal) -> list[Trained]:
    """Sparse GPs; where q is maximised out, from the kernel and the noise of an exact GP of some of the rows."""
    if not all(map(is_collapsed, group.problems)):
        return _fitted(group, phases_of(group), start_of(group), journal).trained
    trained = _fitted(group, phases_of(group), _exact_start_of(group), journal).trained
    return [told(one, p.X, p.y) for one, p in zip(trained, group.problems, strict=True)]


def _exact_start_of(group: Group) -> PyTree:
    """Sparse GPs with kernels and noise of exact GPs, from the usual lengthscale and from a longer one."""
    n_inputs = group.problems[0].X.shape[1]
    length = max(LONG * n_inputs**0.5, group.training.output_lengthscale)
    longer = dataclasses.replace(group.training, output_lengthscale=length)
    starts = [unstacked(start_of(group, training), len(group.problems)) for training in (group.training, longer)]
    found = []
    for p, *models in zip(group.problems, *starts, strict=True):
        sample = sample_of(p.X, p.y, p.seed, p.mesh)
        gps = [ExactGP.of(on_all(model, p.mesh)) for model in models]
        found.append(best_of_starts(gps, sample, group.training.warm_iter).put_into(models[0]))
    return stacked(found)


# --- recalibration -------------------------------------------------------------------------------


def is_calibrated(problem: Problem) -> bool:
    """Whether the law of a problem may be recalibrated: its components must be normal."""
    return problem.training.calibrate and isinstance(problem.spec.likelihood, Gaussian)


def has_leave_one_out(spec: Any, problem: Problem) -> bool:
    """Whether a model of these rows predicts each of them from the others: a sparse GP, of rows in memory."""
    is_small = problem.stream is None and len(problem.X) <= problem.training.collapsed_limit
    return isinstance(spec, SparseGPSpec) and isinstance(spec.likelihood, Gaussian) and is_small


def gp_calibration(problem: Problem, model: Any) -> Calibration | None:
    """The recalibration of a sparse GP, by its predictions of each row from the others."""
    X = problem.X[:, : problem.n_inputs]
    if not is_calibrated(problem) or not has_leave_one_out(problem.spec, problem):
        return None
    means, variances, is_known = leave_one_out(model, X, problem.y, problem.groups)
    rows = HonestRows(X, problem.y, means[None], variances[None], np.ones(1), groups=problem.groups).subset(is_known)
    return calibrate(rows, functools.partial(gp_for, problem), problem.seed)


def gp_for(problem: Problem, X: Float[np.ndarray, "N D"], y: Float[np.ndarray, "N P"], n_rows: int) -> Any:
    """A sparse GP of targets that are mostly noise, with the settings of a problem; padded to a number of rows."""
    training = problem.training.without_flow()
    training = dataclasses.replace(training, collapsed=True, warm_iter=min(training.warm_iter, MOST_ITERATIONS))
    spec, n_inducing = SparseGPSpec(RBF(), Gaussian()), min(problem.most_inducing, MOST_INDUCING)
    group = Group.of([Problem(spec, training, X, y, n_inducing, problem.seed)], n_rows)
    return run_phases(phases_of(group), start_of(group), Journal(CallbackList())).models


# --- phases --------------------------------------------------------------------------------------


def start_of(group: Group, training: TrainingSpec | None = None) -> PyTree:
    """Sparse GPs at their starting values, by default those of the group's training."""
    training = group.training if training is None else training
    parts = zip(group.problems, group.Z, strict=True)
    models = [
        sparse_gp.build(SparseGPSpec(p.spec.kernel, p.spec.likelihood), training, Z, p.y.shape[1]) for p, Z in parts
    ]
    return stacked(models)


def phases_of(group: Group, rows: HeldBack | None = None) -> list[AbstractPhase]:
    """The output GP alone, and the flow that starts from it where the problem asks for one."""
    training, is_flow = group.training, isinstance(group.spec, FlowSpec)
    if not is_flow:
        return [_output_phase(group, "fit")]
    warm_start = [_output_phase(group, "output")] if training.warm_iter > 0 else []
    return [*warm_start, _flow_phase(group, "flow", functools.partial(flows_of, group), rows)]


def _output_phase(group: Group, name: str) -> AbstractPhase:
    """By L-BFGS where q of the output can be maximised out, otherwise by stochastic steps."""
    training, n_models = group.training, len(group.problems)
    # Where there is no flow this phase is the whole fit.
    is_fit = isinstance(group.spec, SparseGPSpec)
    has_bound = is_fit and is_bound(group.spec, training)
    if all(map(is_collapsed, group.problems)):
        mesh = group.problems[0].mesh
        # A warm start leads to the same flow with and without the prior.
        has_prior = is_fit and training.hyperprior
        if is_fit and all(map(is_exact, group.problems)):
            batches = tuple(unstacked(group.items.data, n_models))
            n_iter = training.warm_iter
            return ExactPhase(name, n_models, unchanged, batches, n_iter, mesh, has_prior, is_bound=has_bound)
        data = over_devices(group.items.data, mesh)
        return CollapsedPhase(name, n_models, unchanged, data, training.warm_iter, mesh, has_prior, is_bound=has_bound)
    # A user's schedule is the rate of the fit, not that of a warm start.
    rate = training.warm_rate if group.schedule is None or not is_fit else group.schedule
    schedule = Schedule(training, training.warm_iter, rate)
    steps, items = _steps(group, 1)
    return StochasticPhase(name, n_models, unchanged, steps, items, schedule, is_bound=has_bound)


def _flow_phase(
    group: Group, name: str, start: Callable, rows: HeldBack | None = None, rest: Stretch | None = None
) -> StochasticPhase:
    training = group.training
    n_samples = training.n_train_samples if group.spec.is_stochastic else 1
    rate = training.learning_rate if group.schedule is None else group.schedule
    schedule = Schedule(training, training.max_iter, rate)
    steps, items = _steps(group, n_samples)
    return StochasticPhase(
        name,
        len(group.problems),
        start,
        steps,
        items,
        schedule,
        rows,
        rest,
        is_bound=is_bound(group.spec, training),
    )


def _steps(group: Group, n_samples: int) -> tuple[RowSteps, Items]:
    """How steps are made, and of which data."""
    training, first = group.training, group.problems[0]
    how = (n_samples, training.flow_dtype, training.natural_rate is not None, training.path_average)
    more: dict[str, Any] = {"fixed_inducing": training.fixed_inducing, "mesh": first.mesh}
    if first.stream is not None:
        stream = first.stream.for_batches(training.batch_rows(n_samples))
        return StreamSteps(*how, stream.batch_rows, **more), dataclasses.replace(group.items, data=stream)
    # The whole data where they fit, so that the size class of the rows is the size of the batch.
    size = training.batch_rows(n_samples)
    size = group.items.data.X.shape[-2] if max(len(p.X) for p in group.problems) <= size else size
    return RowSteps(*how, size, **more), group.items


def flows_of(group: Group, models: PyTree) -> PyTree:
    """Flows near the identity that start from sparse GPs."""
    starts = unstacked(models, len(group.problems))
    return stacked([flow_from(group, i, group.spec, gp, group.training) for i, gp in enumerate(starts)])


def flow_from(group: Group, i: int, spec: FlowSpec, start: Any, training: TrainingSpec) -> Any:
    """A flow near the identity whose output is that of a sparse GP."""
    problem, Z = group.problems[i], group.Z[i]
    if training.field_inducing is not None:
        Z = inducing_points(problem.X, min(training.field_inducing, problem.most_inducing), problem.seed)
    # As wide as the GP: one that was fitted beside a flow knows the inputs alone.
    Z = Z[:, : start.output.basis.Z.shape[1]]
    return flow.build(spec, training, start, Z, random_key(problem.seed + 1))


# --- rows that are held back ---------------------------------------------------------------------


def _train_validated(
    problems: list[Problem], calls: CallbackList, indices: tuple[int, ...], n_models: int
) -> list[Trained]:
    """Flows without their held-back rows, and then, from the state that predicts these best, with all rows.

    `Trained.before` is that state. A flow that a callback stopped is kept without further steps.
    """
    clock = Clock()
    masks = [p.held_back() for p in problems]
    held = [p.rows(m) for p, m in zip(problems, masks, strict=True)]
    # Kept rows are padded as all rows are, and have their inducing points: both then have one program.
    n_rows = size_class(max(len(p.X) for p in problems))
    whole = Group.of(problems, n_rows)
    part = Group.of([p.rows(~m) for p, m in zip(problems, masks, strict=True)], n_rows, whole.Z)
    seeds, first = [p.seed for p in problems], problems[0]

    def fitted(group: Group, phases: list[AbstractPhase], models: PyTree) -> _Run:
        return _fitted(group, phases, models, Journal(calls, indices, n_models, clock))

    rows = HeldBack.of([(p.X, p.y) for p in held], seeds, first.n_paths, first.mesh)
    flows = fitted(part, phases_of(part, rows), start_of(part))
    best, ends = flows.outcome.best, flows.trained
    assert best is not None
    is_stopped = [trained.status == STOPPED for trained in flows.trained]
    if not all(is_stopped):
        rest = Stretch.after(best.step, whole.training.max_iter)
        ends = fitted(whole, [_flow_phase(whole, "all rows", unchanged, rest=rest)], best.models).trained
    states, found = unstacked(jax.tree.map(np.asarray, best.models), len(problems)), []
    for i, (one, last) in enumerate(zip(flows.trained, ends, strict=True)):
        one = dataclasses.replace(one, status=f"{one.status}; {words(best, i)}", before=states[i])
        found.append(one if is_stopped[i] else _continued(one, last))
    return found


def _continued(first: Trained, last: Trained) -> Trained:
    """A flow after its steps with all rows; where these diverged, as it was before them."""
    if last.status.startswith(DIVERGED):
        return dataclasses.replace(
            first, status=f"{first.status}; steps with all rows {last.status} and were not taken"
        )
    history = pd.concat([first.history, last.history], ignore_index=True)
    status = first.status + (f"; steps with all rows {last.status}" if went_wrong(last.status) else "")
    return dataclasses.replace(first, model=last.model, history=history, n_iter=len(history), status=status)
