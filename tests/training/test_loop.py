"""The loop on the host: one or many, stopping, mending, and what it keeps."""

import dataclasses
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import WISHARTS, make_batch, make_flow, make_sparse_gp, quick_jit

import wishflow as wf
from wishflow.callbacks import Callback, EarlyStop
from wishflow.files import flatten_arrays, unflatten_arrays
from wishflow.inducing.points import inducing_points
from wishflow.numerics.devices import computing
from wishflow.numerics.padding import size_class
from wishflow.regression import lbfgs as collapsed
from wishflow.regression import presets
from wishflow.regression import training as rows
from wishflow.regression.batches import padded_batch
from wishflow.regression.problems import Problem
from wishflow.regression.specs import FlowSpec
from wishflow.regression.steps import RowSteps
from wishflow.regression.training import alike, train
from wishflow.training import chunk
from wishflow.training.loop import STATUSES, advance, begin, end, is_over, stopped
from wishflow.training.objective import weighted
from wishflow.training.steps import next_rows, shuffled

SMALL = dataclasses.replace(
    presets.fast_preset(60, 2),
    max_iter=6,
    kl_warmup=3,
    warm_iter=4,
    sgp_iter=4,
    n_steps=2,
    batch_size=64,
    validation_fraction=0.0,
)


def problem(seed=0, spec=None, training=SMALL, n=60):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, :1]) + 0.1 * rng.normal(size=(n, 1))
    return Problem(FlowSpec(n_steps=2) if spec is None else spec, training, X, y, 8, seed)


def leaves(trained):
    return jax.tree.leaves(trained.model)


def test_many_problems_give_what_each_gives_alone():
    together = train([problem(0), problem(1)])
    alone = [train([problem(0)])[0], train([problem(1)])[0]]
    for a, b in zip(together, alone, strict=True):
        for x, y in zip(leaves(a), leaves(b), strict=True):
            np.testing.assert_array_equal(x, y)


def test_the_end_on_the_host_is_that_of_the_other_devices():
    model, batch = make_sparse_gp(), make_batch()
    with computing():
        on_host, elsewhere = collapsed.best_on_host(model, batch), collapsed.collapsed_end(model, batch)
    for x, y in zip(jax.tree.leaves(on_host), jax.tree.leaves(elsewhere), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
    assert np.abs(np.asarray(on_host.output.posterior.mean - model.output.posterior.mean)).max() > 0.01


def test_small_leaves_are_packed_into_one_vector_and_come_back(monkeypatch):
    monkeypatch.setattr(chunk, "LARGE", 6)
    narrow = jnp.arange(6.0, dtype=jnp.float32).reshape(2, 3)
    tree = {"a": jnp.arange(2.0), "b": narrow, "c": (jnp.ones(()), None, jnp.zeros((1, 5), jnp.float32))}
    (vector, large), unpack = chunk.packed(tree)
    assert [part.shape for part in (vector, *large)] == [(8,), (2, 3)]
    assert eqx.tree_equal(unpack((vector, large)), tree)


@pytest.mark.slow
def test_large_leaves_are_trained_as_they_are_in_a_vector(key, monkeypatch):
    """The averages of Adam after a step, which are gradients, are the same for each leaf."""
    model, batch = make_flow(WISHARTS[0]), make_batch()
    steps, rates = RowSteps(1, "float64", False, "log", 8), [jnp.asarray(rate) for rate in (0.01, 0.1, 1.0)]

    def averages():
        state = chunk.start_state(model, key, steps)
        moved, _ = quick_jit(lambda state, batch: chunk.step(state, batch, *rates, steps))(state, batch)
        vectors = moved.optimiser.mu
        return vectors, chunk.packed(eqx.partition(model, chunk.trainable(model, steps))[0])[1](vectors)

    (_, none), together = averages()
    monkeypatch.setattr(chunk, "LARGE", 20)
    (_, large), apart = averages()
    assert not none and large
    for x, y in zip(jax.tree.leaves(together), jax.tree.leaves(apart), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


def test_history_has_one_row_for_each_iteration_and_the_named_parts():
    (trained,) = train([problem()])
    assert trained.n_iter == len(trained.history) == SMALL.warm_iter + SMALL.max_iter
    flow = trained.history[trained.history["phase"] == "flow"]
    names = {
        "objective",
        "fit",
        "kl_output",
        "kl_drift",
        "kl_diffusion",
        "noise",
        "diffusion_norm",
        "drift_norm",
        "skipped",
    }
    assert names <= set(flow.columns)
    parts = flow["fit"] - flow["kl_output"] - flow["kl_drift"] - flow["kl_diffusion"]
    np.testing.assert_allclose(flow["objective"], parts, rtol=1e-12)
    assert "bound" not in trained.history  # the drift is a point estimate, and the warm start is another model


class Impatient(Callback):
    def on_chunk(self, event):
        return event.phase == "flow"


def test_a_callback_can_stop_the_flow():
    long = dataclasses.replace(SMALL, max_iter=400)
    trained = train([problem(training=long)], [Impatient()])[0]
    assert trained.status == "stopped by a callback"
    assert (trained.history["phase"] == "flow").sum() == 100


def test_early_stop_works_as_a_callback():
    long = dataclasses.replace(SMALL, max_iter=500)
    trained = train([problem(training=long)], EarlyStop(patience=1, min_delta=1e9))[0]
    assert (trained.history["phase"] == "flow").sum() < 500


def test_a_flat_objective_ends_training_by_convergence():
    flat = dataclasses.replace(SMALL, max_iter=2000, kl_warmup=0, decay=0.5, tolerance=1e6)
    trained = train([problem(training=flat)])[0]
    assert trained.status == "converged"
    assert (trained.history["phase"] == "flow").sum() < 2000


@pytest.mark.slow
def test_steps_that_are_not_finite_are_skipped_and_the_last_good_state_is_kept():
    settings, rates = RowSteps(1, "float32", True, "log", 64), [jnp.asarray(rate) for rate in (0.01, 0.1, 1.0)]
    (trained,) = train([problem()])
    model = jax.tree.map(jnp.asarray, trained.model)
    data = padded_batch(problem().X, problem().y)
    bad = dataclasses.replace(data, y=data.y.at[0].set(jnp.nan))
    state = chunk.start_state(model, jax.random.key(0), settings)
    after, report = eqx.filter_jit(chunk.step)(state, bad, *rates, settings)
    assert report["skipped"] == 1.0 and after.skipped == 1
    for x, y in zip(jax.tree.leaves(after.model), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(x, y)


def test_training_that_never_takes_a_step_says_so_and_returns_finite_numbers():
    wild = dataclasses.replace(SMALL, max_iter=200, learning_rate=1e200)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained = train([problem(training=wild)])[0]
    assert "not finite" in trained.status
    assert any("lower learning_rate" in str(w.message) for w in caught)
    assert all(np.isfinite(leaf).all() for leaf in leaves(trained))


def test_size_classes_are_few_and_close():
    sizes = [size_class(n) for n in range(1, 5000)]
    assert all(size >= n for n, size in enumerate(sizes, start=1))
    assert all(size <= max(32, 1.25 * n + 8) for n, size in enumerate(sizes, start=1))
    assert len(set(sizes)) < 40


def test_padding_repeats_rows_with_weight_zero():
    X, y = np.arange(10.0).reshape(5, 2), np.arange(5.0)[:, None]
    batch = padded_batch(X, y)
    assert batch.X.shape == (32, 2) and batch.weights.sum() == 5 and batch.n_data == 5
    np.testing.assert_array_equal(batch.X[:5], X)


def test_a_minibatch_pass_sees_every_row_once():
    data = padded_batch(np.arange(100.0)[:, None], np.zeros((100, 1)))
    order = shuffled(jax.random.key(3), data.weights)
    seen = np.concatenate([np.asarray(next_rows(data, order, jnp.asarray(i), 25).X)[:, 0] for i in range(4)])
    assert sorted(seen) == list(range(100))


def test_inducing_points_are_distinct_rows_where_there_are_few():
    """Points between them fill up the number asked for, or a size class: one program serves many numbers of rows."""
    X = np.repeat(np.arange(6.0)[:, None], 5, axis=0)
    for n_inducing, expected in ((10, 10), (100, 32)):
        Z = inducing_points(X, n_inducing, 0)
        assert len(Z) == expected == len(np.unique(Z))
        np.testing.assert_array_equal(Z[:6], np.arange(6.0)[:, None])
    assert inducing_points(np.random.default_rng(0).normal(size=(500, 3)), 10, 0).shape == (10, 3)


def test_problems_that_one_program_would_not_train_alike_are_kept_apart():
    start = problem(n=60)
    others = {
        "training": dataclasses.replace(SMALL, max_iter=SMALL.max_iter + 1),
        "spec": dataclasses.replace(start.spec, n_steps=3),
        "n_inducing": 7,
        "learning_rate": lambda step: 0.01,
        "n_paths": 50,
    }
    changed = [dataclasses.replace(start, **{name: value}) for name, value in others.items()]
    sizes = [problem(n=n) for n in (59, 70)]  # 59 rows are padded as 60 are
    assert alike([start, *changed, dataclasses.replace(start, seed=1), *sizes]) == [
        (0, 6, 7),
        *((i,) for i in range(1, 6)),
        (8,),
    ]


def test_inducing_points_that_are_fixed_are_not_moved_and_a_field_may_have_fewer():
    training = dataclasses.replace(SMALL, max_iter=2, fixed_inducing="field", field_inducing=5)
    start = problem(training=training)
    model = train([start])[0].model
    output, field = model.bases()
    assert [len(output.Z), len(field.Z)] == [8, 5]
    np.testing.assert_array_equal(field.Z, inducing_points(start.X, 5, start.seed))
    assert not np.array_equal(output.Z, inducing_points(start.X, 8, start.seed))
    for fixed, moves in (("none", [True, True]), ("field", [True, False]), ("all", [False, False])):
        steps = RowSteps(1, "float32", True, "log", 64, fixed_inducing=fixed)
        assert [basis.Z for basis in chunk.trainable(model, steps).bases()] == moves


def test_unknown_names_of_fixed_points_are_refused():
    with pytest.raises(wf.errors.OptionError, match="'none', 'field', 'all'"):
        dataclasses.replace(SMALL, fixed_inducing="fields")


def test_many_models_have_a_program_in_common():
    """What an accelerator would run is traced only: on the CPU batched factorisations can hang."""
    steps = RowSteps(1, "float32", True, "log", 64)
    models = [train([problem(seed, training=dataclasses.replace(SMALL, max_iter=0))])[0].model for seed in (0, 1)]
    data = [padded_batch(problem(seed).X, problem(seed).y) for seed in (0, 1)]
    rates = chunk.Rates(*(jnp.full((2, chunk.CHUNK), 0.01) for _ in range(3)))

    def stacked(trees):
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)

    with computing():
        states = stacked([chunk.start_state(model, jax.random.key(0), steps) for model in models])
        run = eqx.filter_vmap(lambda s, d, r: chunk.run_steps(s, d, r, jnp.asarray(3), steps))
        after, records = eqx.filter_eval_shape(run, states, stacked(data), rates)
    assert jax.tree.structure(after) == jax.tree.structure(states)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(states), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert {record.shape for record in records.values()} == {(2, chunk.CHUNK)}


@pytest.mark.parametrize(
    ("diffusion", "n_rows"), [(wf.diffusions.Wishart(rank=2), 8), (wf.diffusions.NoDiffusion(), 32)]
)
def test_a_batch_that_counts_paths_has_fewer_rows_where_there_is_noise(diffusion, n_rows, monkeypatch):
    """Every row of a model without noise has one path, so all of the batch are rows."""
    training = dataclasses.replace(
        SMALL, batch_size=32, n_train_samples=4, batch_counts_paths=True, warm_iter=0, max_iter=1
    )
    seen = []
    monkeypatch.setattr(chunk, "train_chunk", lambda state, data, rates, n, steps: seen.append(steps) or 1 / 0)
    with pytest.raises(ZeroDivisionError), computing():
        train([problem(spec=FlowSpec(diffusion=diffusion, n_steps=2), training=training)])
    assert [steps.batch_size for steps in seen] == [n_rows]


def test_a_batch_counts_rows_where_it_does_not_count_paths():
    spec = dataclasses.replace(SMALL, batch_size=32)
    assert spec.batch_rows(4) == 32
    assert dataclasses.replace(spec, batch_counts_paths=True).batch_rows(4) == 8
    assert dataclasses.replace(spec, batch_counts_paths=True).batch_rows(64) == 1


def test_the_state_between_chunks_is_one_tree_that_can_be_written_and_read(tmp_path):
    """Training that goes on from the file ends where training in one go ends, bit for bit."""
    long = dataclasses.replace(SMALL, max_iter=250, validation_fraction=0.0)
    group = rows.Group.of([problem(training=long)])
    with computing():
        phase = rows.phases_of(group)[-1]
        first = begin(phase, phase.start(rows.start_of(group)), (0,))
        state, _, _ = advance(phase, first)
        arrays = flatten_arrays(state)
        np.savez(tmp_path / "state.npz", **{str(i): array for i, array in enumerate(arrays.values())})
        with np.load(tmp_path / "state.npz") as file:
            read = {name: file[str(i)] for i, name in enumerate(arrays)}
        again = unflatten_arrays(first, read)
        ends = []
        for one in (state, again):
            while not is_over(phase, one):
                one, _, _ = advance(phase, one)
            ends.append(end(phase, one, first.train))
    for a, b in zip(jax.tree.leaves(ends[0].models), jax.tree.leaves(ends[1].models), strict=True):
        np.testing.assert_array_equal(a, b)
    assert ends[0].status == ends[1].status == ("reached max_iter",)


def test_a_callback_does_not_change_how_a_model_ended():
    """Converged and given up stay what they are; the others are stopped."""
    group = rows.Group.of([problem()])
    with computing():
        phase = rows.phases_of(group)[-1]
        state = begin(phase, phase.start(rows.start_of(group)), (0,))
    for status, expected in ((0, "stopped by a callback"), (1, "converged"), (3, "stopped by a callback")):
        ended = stopped(phase, dataclasses.replace(state, status=np.array([status])), np.array([True]))
        assert STATUSES[ended.status[0]] == expected and is_over(phase, ended)


def test_every_penalty_is_part_of_the_objective():
    parts = {"fit": 10.0, "kl_drift": 1.0, "kl_output": 2.0, "kl_of_a_user": 4.0, "noise": 100.0}
    assert weighted(parts, 1.0) == 3.0
    assert weighted(parts, 0.5) == 10.0 - 0.25 - 2.0 - 2.0
