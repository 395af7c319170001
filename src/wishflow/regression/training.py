"""Training of regression and classification: a sparse GP, then the flow, and the choice between the two."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
from jaxtyping import PyTree

from ..callbacks import CallbackList
from ..inducing.points import inducing_points
from ..likelihoods import Gaussian
from ..numerics.devices import on_accelerator, on_device, random_key
from ..numerics.padding import size_class
from ..training.loop import DIVERGED, STOPPED, Rest, Run, Trained
from ..training.specs import TrainingSpec
from ..training.stacks import stacked, unstacked
from ..training.validation import BestState, held_back, is_ahead
from ..wishart.specs import NoDiffusion
from . import flow, sparse_gp
from . import lbfgs as collapsed
from .batches import padded_batch
from .held_back import HeldBack
from .specs import FlowSpec, SparseGPSpec
from .steps import RowSteps


@dataclasses.dataclass(frozen=True)
class Problem:
    """A model to train on scaled data; a state may be wider than the inputs, which are its first `n_inputs` columns
    (None: all). `n_paths` are the sample paths of a prediction.
    """

    spec: SparseGPSpec | FlowSpec
    training: TrainingSpec
    X: np.ndarray
    y: np.ndarray
    n_inducing: int
    seed: int
    learning_rate: float | Callable | None = None
    n_inputs: int | None = None
    n_paths: int = 100


# Variance of the field of a flow that is at rest.
AT_REST = 1e-12


def train(problems: list[Problem], callbacks: Any = None) -> list[Trained]:
    """Train every problem; those of one call must have models of equal shape where they are trained together."""
    with CallbackList(callbacks) as calls:
        if on_accelerator() and len(problems) > 1:
            return _train_group(problems, calls, list(range(len(problems))), len(problems))
        return [_train_group([p], calls, [i], len(problems))[0] for i, p in enumerate(problems)]


def _train_group(problems: list[Problem], calls: CallbackList, indices: list[int], n_models: int) -> list[Trained]:
    """Problems of equal shape; flows whose training says so are chosen by rows that are held back from it."""
    first = problems[0]
    fraction = first.training.validation_fraction
    if not isinstance(first.spec, FlowSpec) or fraction == 0.0:
        return RowsRun(problems, calls, indices, n_models).run()
    parts = [_cut(p, fraction) for p in problems]
    return _choose(problems, parts, calls, indices, n_models)


def _cut(problem: Problem, fraction: float) -> tuple[Problem, Problem]:
    """The rows to train on and those to hold back."""
    is_held = held_back(len(problem.X), fraction, problem.seed)
    return _rows(problem, ~is_held), _rows(problem, is_held)


def _rows(problem: Problem, keep: np.ndarray) -> Problem:
    return dataclasses.replace(problem, X=problem.X[keep], y=problem.y[keep])


def _choose(
    problems: list[Problem],
    parts: list[tuple[Problem, Problem]],
    calls: CallbackList,
    indices: list[int],
    n_models: int,
) -> list[Trained]:
    """The flow of each problem, or the sparse GP where the flow does not predict the held-back rows better.

    What is chosen sees all rows at the end: the flow goes on from its best state, the sparse GP is fitted anew. A flow
    that a callback stopped is kept at its best state, without further steps.
    """
    kept, held = [p for p, _ in parts], [p for _, p in parts]
    started = time.perf_counter()
    n_rows = size_class(max(len(p.X) for p in problems))

    def run_of(problems: list[Problem], whose: CallbackList, **more: Any) -> RowsRun:
        # Kept rows are padded as all rows are, and have their inducing points: both then have one program.
        return RowsRun(problems, whose, indices, n_models, n_rows=n_rows, started=started, **more)

    whole, whole_gp = run_of(problems, calls), run_of([_without_flow(p) for p in problems], CallbackList())
    seeds, n_paths = [p.seed for p in problems], problems[0].n_paths
    run = run_of(kept, calls, rows=HeldBack.of([(p.X, p.y) for p in held], seeds, n_paths), Z=whole.Z)
    flows = run.run()
    best = run.best
    assert best is not None
    gps = run_of([_without_flow(p) for p in kept], CallbackList(), Z=whole_gp.Z).run()
    inputs = HeldBack.of([(p.X[:, : p.n_inputs], p.y) for p in held], seeds, n_paths)
    reference = inputs.log_densities(stacked([jax.tree.map(on_device, gp.model) for gp in gps]))
    is_stopped = np.array([trained.status == STOPPED for trained in flows])
    is_flow = np.array([is_ahead(a, b, 0.0) for a, b in zip(best.densities, reference, strict=True)]) | is_stopped
    ends = whole.finish(best) if (is_flow & ~is_stopped).any() else flows
    if not is_flow.all():
        gps = whole_gp.run()
    chosen = []
    for i, trained in enumerate(flows):
        why = _reason(bool(is_flow[i]), best, reference[i], i)
        if not is_flow[i]:
            chosen.append(_as_flow(whole, i, trained, gps[i], why))
        elif is_stopped[i]:
            chosen.append(dataclasses.replace(trained, status=f"{STOPPED}; {why}"))
        elif ends[i].status.startswith(DIVERGED):
            status = f"{trained.status}; {why}; steps with all rows {ends[i].status} and were not taken"
            chosen.append(dataclasses.replace(trained, status=status))
        else:
            history = pd.concat([trained.history, ends[i].history], ignore_index=True)
            status = f"{trained.status}; {why}"
            chosen.append(dataclasses.replace(ends[i], history=history, n_iter=len(history), status=status))
    return chosen


def _without_flow(problem: Problem) -> Problem:
    """The sparse GP alone, of the inputs alone."""
    spec = SparseGPSpec(problem.spec.kernel, problem.spec.likelihood)
    training = problem.training.without_flow()
    return dataclasses.replace(problem, spec=spec, training=training, X=problem.X[:, : problem.n_inputs])


def _reason(is_flow: bool, best: BestState, reference: np.ndarray, i: int) -> str:
    """Which model was kept, and why."""
    flow_density, gp_density = best.densities[i].mean(), reference.mean()
    numbers = f"flow {flow_density:.4f} after {best.step[i]} iterations, sparse GP {gp_density:.4f}"
    which = "the flow was kept" if is_flow else "the sparse GP was kept"
    return f"{which} (log density of {len(reference)} held-back rows, scaled: {numbers})"


def _as_flow(run: RowsRun, i: int, trained: Trained, gp: Trained, why: str) -> Trained:
    """The sparse GP as a flow of no time, after the history of the flow that was tried."""
    spec = dataclasses.replace(run.problems[i].spec, flow_time=0.0)
    model = run.flow_from(i, spec, gp.model, dataclasses.replace(run.training, field_variance=AT_REST))
    history = pd.concat([trained.history, gp.history.assign(phase="sparse GP")], ignore_index=True)
    return Trained(jax.tree.map(np.asarray, model), history, len(history), f"{gp.status}; {why}", spec)


class RowsRun(Run):
    """A sparse GP, and the flow that starts from it where the problem asks for one."""

    def __init__(
        self,
        problems: list[Problem],
        calls: CallbackList,
        indices: Any,
        n_models: int,
        *,
        rows: HeldBack | None = None,
        n_rows: int | None = None,
        Z: list[np.ndarray] | None = None,
        started: float | None = None,
    ) -> None:
        super().__init__(problems, calls, indices, n_models, started)
        n_rows = size_class(max(len(p.X) for p in problems)) if n_rows is None else n_rows
        self.data = stacked([padded_batch(p.X, p.y, n_rows) for p in problems])
        self.n_rows = np.array([len(p.X) for p in problems])
        self.rows = rows
        # The inducing points each model starts with.
        self.Z = [inducing_points(p.X, p.n_inducing, p.seed) for p in problems] if Z is None else Z

    def run(self) -> list[Trained]:
        bases = [SparseGPSpec(p.spec.kernel, p.spec.likelihood) for p in self.problems]
        y_width = [p.y.shape[1] for p in self.problems]
        parts = zip(bases, self.Z, y_width, strict=True)
        models = stacked([sparse_gp.build(base, self.training, Z, width) for base, Z, width in parts])
        is_flow = isinstance(self.spec, FlowSpec)
        if not is_flow or self.training.warm_iter > 0:
            models = self._warm_start(models, "output" if is_flow else "fit")
        return self._package(self._flow_phase(models) if is_flow else models)

    def finish(self, best: BestState) -> list[Trained]:
        """Train on from the best states with all rows, through what is left of the schedule (`Rest`)."""
        training = self.training
        rest = Rest.after(best.step, training.max_iter)
        steps = self._steps(self._n_samples)
        return self._package(
            self._stochastic_phase(best.models, "all rows", training.max_iter, self._rate, steps, rest=rest)
        )

    @property
    def _rate(self) -> Any:
        """The peak of a flow's rates, or the schedule of a user."""
        schedule = self.problems[0].learning_rate
        return self.training.learning_rate if schedule is None else schedule

    @property
    def _n_samples(self) -> int:
        """How many paths a row has in a step."""
        return 1 if isinstance(self.spec.diffusion, NoDiffusion) else self.training.n_train_samples

    @property
    def _is_collapsed(self) -> bool:
        """Whether q of the output can be maximised out."""
        training, n = self.training, max(len(p.X) for p in self.problems)
        return training.collapsed and isinstance(self.spec.likelihood, Gaussian) and n <= training.collapsed_limit

    def _warm_start(self, models: PyTree, phase: str) -> PyTree:
        training = self.training
        if self._is_collapsed:
            return self._collapsed_phase(models, phase, training.warm_iter)
        # Where there is no flow this phase is the whole fit, and a user's schedule is its rate.
        schedule = self.problems[0].learning_rate if phase == "fit" else None
        rate = training.warm_rate if schedule is None else schedule
        return self._stochastic_phase(models, phase, training.warm_iter, rate, self._steps(1))

    def flow_from(self, i: int, spec: FlowSpec, start: Any, training: TrainingSpec) -> Any:
        """A flow near the identity whose output is that of a sparse GP."""
        problem, Z = self.problems[i], self.Z[i]
        if training.field_inducing is not None:
            Z = inducing_points(problem.X, min(training.field_inducing, problem.n_inducing), problem.seed)
        # As wide as the GP: one that was fitted beside a flow knows the inputs alone.
        Z = Z[:, : start.output.basis.Z.shape[1]]
        return flow.build(spec, training, start, Z, random_key(problem.seed + 1))

    def _flow_phase(self, models: PyTree) -> PyTree:
        spec, training = self.spec, self.training
        assert isinstance(spec, FlowSpec)
        starts = unstacked(models, len(self.problems))
        flows = stacked([self.flow_from(i, spec, start, training) for i, start in enumerate(starts)])
        return self._stochastic_phase(
            flows, "flow", training.max_iter, self._rate, self._steps(self._n_samples), self.rows
        )

    def _collapsed_phase(self, models: PyTree, phase: str, n_iter: int) -> PyTree:
        models = self._refresh_jitter(models)
        if not self.is_many and not on_accelerator():
            return self._host_collapsed(models, phase, n_iter)
        self.calls.on_start(phase, n_iter)
        start = eqx.filter_vmap(collapsed.start_collapsed) if self.is_many else collapsed.start_collapsed
        state = start(models)
        run = collapsed.collapsed_chunk_many if self.is_many else collapsed.collapsed_chunk
        best = None
        for done in range(0, n_iter, collapsed.CHUNK):
            n = min(collapsed.CHUNK, n_iter - done)
            state, records = run(state, self.data, on_device(n))
            stop = self._report(phase, done + n, n_iter, jax.device_get(records), n)
            value = np.asarray(state.value).reshape(-1)
            n_rows = np.asarray(self.data.n_data).reshape(-1)
            if np.any(value <= -collapsed.TOO_FAR * n_rows):
                raise collapsed.not_finite()
            if stop.all() or (best is not None and np.all(value - best < 1e-5 * n_rows)):
                self.status = ["converged"] * len(self.problems)
                break
            best = value
        end = collapsed.collapsed_end_many if self.is_many else collapsed.collapsed_end
        return end(self._refresh_jitter(state.model), self.data)

    def _host_collapsed(self, model: PyTree, phase: str, n_iter: int) -> PyTree:
        self.calls.on_start(phase, n_iter)
        ended = [False]

        def on_chunk(step: int, records: dict[str, np.ndarray]) -> bool:
            ended[0] = bool(self._report(phase, step, n_iter, records, len(records["bound"])).all())
            return ended[0]

        model, is_converged = collapsed.minimise_on_host(model, self.data, n_iter, on_chunk)
        if is_converged or ended[0]:
            self.status = ["converged" if is_converged else STOPPED]
        return collapsed.best_on_host(self._refresh_jitter(model), self.data)

    def _steps(self, n_samples: int) -> RowSteps:
        training = self.training
        is_natural = training.natural_rate is not None
        return RowSteps(
            n_samples,
            training.flow_dtype,
            is_natural,
            training.path_average,
            self._batch_size(n_samples),
            fixed_inducing=training.fixed_inducing,
        )

    def _batch_size(self, n_samples: int) -> int:
        """The whole data where they fit, so that the size class of the rows is the size of the batch."""
        n_rows, size = self.data.X.shape[-2], self.training.batch_rows(n_samples)
        return n_rows if max(len(p.X) for p in self.problems) <= size else size
