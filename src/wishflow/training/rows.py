"""Training of regression and classification: a sparse GP, then the flow, and the choice between the two."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
from jaxtyping import Float, PyTree

from ..callbacks import CallbackList
from ..initialise import inducing_points, padded_batch, size_class
from ..models import flow, sparse_gp
from ..runtime import on_accelerator, on_device, random_key
from ..specs import FlowSpec, Gaussian, NoDiffusion, SparseGPSpec, TrainingSpec
from . import collapsed
from .loop import DIVERGED, FIRST_PART, STOPPED, Problem, Run, Trained, first_part
from .schedule import rate_shape
from .stacks import stacked, unstacked
from .steps import RowSteps
from .validation import BestState, HeldBack, held_back, is_ahead

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

    What is chosen is trained on all rows at the end: the flow goes on from its best state for a few steps, the sparse
    GP is fitted anew.
    """
    kept, held = [p for p, _ in parts], [p for _, p in parts]
    seeds = [p.seed for p in problems]
    rows = HeldBack.of([(p.X, p.y) for p in held], seeds, problems[0].n_paths)
    # Padded as all rows are: the programs that go on with those are the same.
    n_rows = _n_padded(problems)
    run = RowsRun(kept, calls, indices, n_models, rows, n_rows)
    flows = run.run()
    best = run.best
    assert best is not None
    reference = _sparse_gp_densities(kept, held, indices, n_models, n_rows)
    is_flow = [is_ahead(a, b) for a, b in zip(best.densities, reference, strict=True)]
    whole = RowsRun(problems, calls, indices, n_models)
    ends = whole.finish(best) if any(is_flow) else flows
    gps = flows if all(is_flow) else _sparse_gps(problems, indices, n_models, n_rows)
    chosen = []
    for i, trained in enumerate(flows):
        why = _reason(is_flow[i], best, reference[i], i)
        if not is_flow[i]:
            chosen.append(_as_flow(whole, i, trained, gps[i], why))
            continue
        history = _joined(trained.history, ends[i].history)
        # Who stopped the flow does not want more steps, and steps that went astray are not taken.
        is_best_state = trained.status == STOPPED or ends[i].status.startswith(DIVERGED)
        last = trained if is_best_state else ends[i]
        status = f"{trained.status}; {why}"
        chosen.append(dataclasses.replace(last, history=history, n_iter=len(history), status=status))
    return chosen


def _n_padded(problems: list[Problem]) -> int:
    return size_class(max(len(p.X) for p in problems))


def _sparse_gps(problems: list[Problem], indices: list[int], n_models: int, n_rows: int) -> list[Trained]:
    """The sparse GP alone, of the inputs alone, for each problem; `n_rows` with padding."""
    return RowsRun([_without_flow(p) for p in problems], CallbackList(), indices, n_models, None, n_rows).run()


def _sparse_gp_densities(
    kept: list[Problem], held: list[Problem], indices: list[int], n_models: int, n_rows: int
) -> list[Float[np.ndarray, " R"]]:
    """The log densities of held-back rows by sparse GPs of the others."""
    models = [jax.tree.map(on_device, trained.model) for trained in _sparse_gps(kept, indices, n_models, n_rows)]
    rows = HeldBack.of([(p.X[:, : p.n_inputs], p.y) for p in held], [p.seed for p in held], held[0].n_paths)
    return rows.log_densities(stacked(models))


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
    history = _joined(trained.history, gp.history.assign(phase="sparse GP"))
    return Trained(jax.tree.map(np.asarray, model), history, len(history), f"{gp.status}; {why}", spec)


def _joined(first: pd.DataFrame, then: pd.DataFrame) -> pd.DataFrame:
    """One history after another; seconds go on."""
    if then.empty:
        return first
    later = then.assign(seconds=first["seconds"].iloc[-1] + then["seconds"])
    return pd.concat([first, later], ignore_index=True)


class RowsRun(Run):
    """A sparse GP, and the flow that starts from it where the problem asks for one."""

    def __init__(
        self,
        problems: list[Problem],
        calls: CallbackList,
        indices: Any,
        n_models: int,
        rows: HeldBack | None = None,
        n_rows: int | None = None,
    ) -> None:
        super().__init__(problems, calls, indices, n_models)
        n_rows = _n_padded(problems) if n_rows is None else n_rows
        self.data = stacked([padded_batch(p.X, p.y, n_rows) for p in problems])
        self.n_rows = np.array([len(p.X) for p in problems])
        self.rows = rows

    @functools.cached_property
    def Z(self) -> list[np.ndarray]:
        """The inducing points each model starts with."""
        return [inducing_points(p.X, p.n_inducing, p.seed) for p in self.problems]

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
        """Train on from the best states, with all rows, for a time in proportion to the time it took to get there.

        Rates fall by a cosine from what they were there to zero.
        """
        training, schedule = self.training, self.problems[0].learning_rate
        n_iter = training.max_iter - first_part(training.max_iter)
        n_left = np.minimum(n_iter, np.round(best.step * (1.0 / FIRST_PART - 1.0)).astype(int))
        rates = (
            training.learning_rate * rate_shape(training, training.max_iter, best.step)
            if schedule is None
            else np.asarray(schedule(best.step))
        )

        def falling(positions: np.ndarray) -> np.ndarray:
            left = (n_iter - np.asarray(positions)) / np.maximum(n_left, 1)[:, None]
            shape = rates[:, None] * 0.5 * (1.0 - np.cos(np.pi * np.clip(left, 0.0, 1.0)))
            return shape if np.ndim(positions) > 1 else shape[0]

        self.training = dataclasses.replace(training, decay=1.0, rate_warmup=0, kl_warmup=0, tolerance=0.0)
        steps = self._steps(self._n_samples)
        return self._package(
            self._stochastic_phase(best.models, "all rows", n_iter, falling, steps, start_at=n_iter - n_left)
        )

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
        rate = training.learning_rate if self.problems[0].learning_rate is None else self.problems[0].learning_rate
        return self._stochastic_phase(flows, "flow", training.max_iter, rate, self._steps(self._n_samples), self.rows)

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
