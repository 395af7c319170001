"""Rows held back from training: which ones, what they decide, and that the rest of training does not know them."""

import dataclasses
import functools

import jax
import numpy as np
import optax
import pytest
from factories import make_batch, make_flow, make_sparse_gp
from test_loop import SMALL, leaves, problem

from wishflow.callbacks import Callback, CallbackList
from wishflow.kernels import RBF
from wishflow.likelihoods import Gaussian
from wishflow.numerics.devices import computing
from wishflow.numerics.mixtures import mixture_weights
from wishflow.regression import training as rows
from wishflow.regression.held_back import HeldBack
from wishflow.regression.law import Law
from wishflow.regression.members import PRIOR_ROWS, train_mixtures
from wishflow.regression.models import output_components, predictive_log_density
from wishflow.regression.prediction import predictive_log_prob
from wishflow.regression.specs import SparseGPSpec
from wishflow.regression.training import train
from wishflow.training import loop, validation
from wishflow.training.journal import Journal
from wishflow.training.loop import HELD_OUT
from wishflow.training.phases import Stretch, run_phases
from wishflow.training.stacks import choose, stacked, unstacked
from wishflow.training.validation import BestState, held_back, is_ahead

VALIDATED = dataclasses.replace(SMALL, validation_fraction=0.1)


@pytest.mark.parametrize(
    ("n_rows", "fraction", "expected"),
    [(700, 0.1, 70), (700, 0.3, 210), (60, 0.1, 10), (12, 0.1, 4), (3, 0.1, 1), (2, 0.5, 1), (10_000, 0.1, 500)],
)
def test_a_fraction_of_the_rows_is_held_back(n_rows, fraction, expected):
    """A tenth, but no fewer than ten where there are thirty, and no more than are needed to decide."""
    chosen = held_back(n_rows, fraction, seed=0)
    assert chosen.shape == (n_rows,) and chosen.sum() == expected
    np.testing.assert_array_equal(chosen, held_back(n_rows, fraction, seed=0))
    if n_rows > 100:
        assert (chosen != held_back(n_rows, fraction, seed=1)).any()


@pytest.mark.slow
def test_the_mixture_over_paths_is_that_of_the_components():
    """Without noise in the paths both have one component, the same."""
    model, batch, key = make_flow("none"), make_batch(), jax.random.key(0)
    found = predictive_log_density(model, batch.X, batch.y, key, 100)
    means, variances = output_components(model, batch.X, key, 100)
    expected = model.likelihood.predictive_log_density(batch.y, means, variances, key)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_more_paths_give_the_same_density_up_to_their_error():
    """Two estimates with keys of their own; each path of a row has noise of its own."""
    model, batch = make_flow("wishart-shared"), make_batch()
    one, other = (predictive_log_density(model, batch.X, batch.y, jax.random.key(k), 4000) for k in (0, 1))
    np.testing.assert_allclose(one, other, atol=0.2)
    assert np.abs(np.asarray(one - other)).min() > 0.0


def test_a_stack_is_chosen_from_model_by_model():
    first, second = make_sparse_gp(), jax.tree.map(lambda leaf: leaf + 1.0, make_sparse_gp())
    new, old = stacked([first, first]), stacked([second, second])
    mixed = unstacked(choose(np.array([True, False]), new, old), 2)
    for part, whole in zip(mixed, (first, second), strict=True):
        for a, b in zip(jax.tree.leaves(part), jax.tree.leaves(whole), strict=True):
            np.testing.assert_array_equal(a, b)
    assert choose(np.array([False]), first, second) is second


def test_the_best_state_is_kept_and_a_state_that_predicts_nothing_never_is():
    good, batch = make_sparse_gp(), make_batch()
    held = HeldBack.of([(np.asarray(batch.X), np.asarray(batch.y))], [0], 100)
    worse = _with_mean(good, 3.0)
    broken = _with_mean(good, np.nan)
    best, scores = BestState.of(held, worse), []
    for step, model in ((100, broken), (200, good), (300, worse)):
        best, means = best.scored(held, model, step)
        scores.append(means[0])
    assert np.isnan(scores[0]) and scores[1] > scores[2]
    assert best.step == 200 and best.stale == 1 and best.models is good
    np.testing.assert_allclose(best.densities[0].mean(), scores[1])


def _with_mean(model, shift):
    return dataclasses.replace(
        model,
        output=dataclasses.replace(
            model.output,
            posterior=dataclasses.replace(model.output.posterior, mean=model.output.posterior.mean + shift),
        ),
    )


def test_an_early_state_must_be_ahead_of_the_last_one_by_a_standard_error():
    """The best of many equal states is ahead of the last one by chance: the last is kept, if it predicts at all."""
    good, batch = make_sparse_gp(), make_batch()
    held = HeldBack.of([(np.asarray(batch.X), np.asarray(batch.y))], [0], 100)
    for shift, expected in ((1e-9, 200), (3.0, 100), (np.nan, 100)):
        best, last = BestState.of(held, _with_mean(good, 4.0)), _with_mean(good, shift)
        for model, step in ((good, 100), (last, 200)):
            best, _ = best.scored(held, model, step)
        if shift == 1e-9:  # a lead of all rows alike has no error: make it one of chance
            by_chance = best.last[1][0] + np.where(np.arange(len(batch.X)) % 2, 1.01, -1.0)
            best = dataclasses.replace(best, densities=(by_chance,))
        best = best.settled()
        assert best.step == expected
        assert best.models is (last if expected == 200 else good)


def test_ahead_is_counted_in_standard_errors_of_the_mean_of_paired_differences():
    rng = np.random.default_rng(0)
    reference, noise = rng.normal(size=100), rng.normal(size=100)
    noise = (noise - noise.mean()) / noise.std(ddof=1)  # a standard error of 0.1
    for lead in (0.0, 0.5, 1.0):
        assert is_ahead(reference + noise + 0.1 * lead + 0.005, reference, lead)
        assert not is_ahead(reference + noise + 0.1 * lead - 0.005, reference, lead)
    assert not is_ahead(np.append(reference, np.nan), np.append(reference, 0.0), 0.0)
    assert is_ahead(reference, np.where(noise > 1.0, -np.inf, reference), 0.0)
    assert not is_ahead(np.ones(1), np.zeros(1), 0.0)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([30_000, *[100] * 700], 500),  # the large group would be more than 500 rows
        ([*[400] * 10], 400),  # two groups would be
        ([60, 40], 40),  # each is more than a third: the smaller one
        ([1, *[600] * 9], 601),  # one row decides nothing
        ([97, 2, 1], 3),  # more would leave nothing to train on
        ([99, 1], 1),
    ],
)
def test_groups_that_keep_the_limits_are_held_back(sizes, expected):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    for seed in range(5):
        assert held_back(len(groups), 0.2, seed, groups).sum() == expected


def test_held_back_rows_take_no_part_in_the_training_of_a_flow():
    """Other targets in the rows held back: the same flow before it goes on with all rows."""
    plain = problem(training=VALIDATED)
    y = np.where(held_back(60, 0.1, 0)[:, None], 100.0, plain.y)
    (flow,), (other,) = train([plain]), train([dataclasses.replace(plain, y=y)])
    is_before = (flow.history["phase"] != "all rows").to_numpy()
    assert 0 < is_before.sum() < len(is_before)
    np.testing.assert_array_equal(flow.history["objective"][is_before], other.history["objective"][is_before])
    assert not np.array_equal(flow.history["objective"][~is_before], other.history["objective"][~is_before])


def test_weights_are_found_by_rows_that_neither_model_has_seen():
    """Densities of held-back rows by the flow before it sees them, and by a sparse GP without them."""
    one = problem(training=dataclasses.replace(VALIDATED, calibrate=False, validation_fraction=0.5), n=120)
    (mixture,) = train_mixtures([one], 1)
    held = one.rows(one.held_back())
    flow, gp = (mixture.trained[name][0] for name in ("flow", "sparse GP"))
    with computing():
        seen = predictive_log_prob(Law.of(flow.before), held.X, held.y, held.seed, held.n_paths)[0]
        (kept,) = train([one.rows(~one.held_back()).without_flow()])
        other = predictive_log_prob(Law.of(kept.model), held.X, held.y, held.seed, held.n_paths)[0]
    expected = mixture_weights(np.stack([seen, other]), PRIOR_ROWS)
    assert list(mixture.weights.values()) == pytest.approx(list(expected))
    assert gp.spec == SparseGPSpec(RBF(), Gaussian()) and mixture.first is flow


def test_a_flow_ends_on_all_rows_and_says_so(monkeypatch):
    monkeypatch.setattr(validation.BestState, "scored", _always_better)
    long = dataclasses.replace(VALIDATED, max_iter=300, kl_warmup=20)
    (kept,) = train([problem(training=long)])
    assert kept.status.startswith("reached max_iter; log density of 10 held-back rows")
    counts = kept.history["phase"].value_counts()
    assert counts["flow"] == 210 and counts["all rows"] == 90
    scored = kept.history[kept.history[HELD_OUT].notna()]
    assert scored["step"].tolist() == [99, 199, 209] and (np.diff(kept.history["seconds"]) >= 0).all()


def _always_better(self, rows, models, step):
    last = (models, self.densities, np.asarray(step))
    return BestState(models, self.densities, np.full(len(self.step), step), self.stale, last), np.zeros(len(self.step))


def test_what_is_left_of_a_schedule_takes_time_in_proportion_to_the_best_state():
    """Found after 0, 100 or 210 of 300 iterations: 20 steps at least, 3/7 of the iterations before, 90 at most."""
    for step, n_steps in ((0, 20), (100, 43), (210, 90)):
        rest = Stretch.after(np.array([step]), 300)
        assert rest.n_steps(rest.position, 300) == n_steps
        assert rest.position + n_steps * rest.stride == pytest.approx(300)
    several = Stretch.after(np.array([0, 100, 210]), 300)
    assert several.n_steps(several.position, 300) == 90


@pytest.mark.parametrize("rate", [0.02, optax.constant_schedule(0.02), lambda step: 0.02 + 0.0 * step])
def test_rates_and_weights_go_on_from_the_best_state(monkeypatch, rate):
    """A flow that was best after 100 of 300 iterations: the cosine goes on from a third of its way to its end, and the
    warm-up of the KL terms from half of its own.
    """
    seen = []
    monkeypatch.setattr(validation.BestState, "scored", functools.partialmethod(_best_at, 100))
    rates_from = loop.rates_from
    monkeypatch.setattr(loop, "rates_from", lambda *args: seen.append(rates_from(*args)) or seen[-1])
    long = dataclasses.replace(VALIDATED, max_iter=300, kl_warmup=200, decay=1.0, learning_rate=0.02)
    is_schedule = callable(rate)
    one = dataclasses.replace(problem(training=long), learning_rate=rate if is_schedule else None)
    events = Events()
    (kept,) = train([one], [events])
    assert (kept.history["phase"] == "all rows").sum() == 43
    assert events.planned == [("output", 4), ("flow", 210), ("all rows", 43)]
    last = [rates for rates in seen if np.asarray(rates.kl_weight).any()][-1]
    adam, natural, weight = (np.asarray(part)[:44] for part in (last.adam, last.natural, last.kl_weight))
    assert weight[0] == pytest.approx(101 / 200) and weight[-2] == 1.0 and weight[-1] == 0.0
    assert natural[0] == pytest.approx(0.1 * 0.5 * (1.0 + np.cos(np.pi / 3)))
    if is_schedule:
        np.testing.assert_allclose(adam[:-1], 0.02)
    else:
        assert adam[0] == pytest.approx(0.02 * 0.75) and (np.diff(adam) < 0).all() and adam[-1] == 0.0


class Events(Callback):
    def __init__(self):
        self.planned = []

    def on_start(self, phase, n_steps):
        self.planned.append((phase, n_steps))


def _best_at(self, best_step, rows, models, step):
    last, steps = (self.models, self.densities, np.asarray(best_step)), np.full(len(self.step), best_step)
    return BestState(self.models, self.densities, steps, self.stale, last), np.zeros(len(self.step))


def test_a_flow_that_a_callback_stops_is_kept_without_further_steps():
    class Impatient(Callback):
        def on_chunk(self, event):
            return event.phase == "flow"

    (kept,) = train([problem(training=dataclasses.replace(VALIDATED, max_iter=400))], [Impatient()])
    assert kept.status.startswith("stopped by a callback; log density of 10 held-back rows")
    assert kept.history["phase"].value_counts().to_dict() == {"flow": 100, "output": 4} and kept.spec.flow_time == 1.0


@pytest.mark.slow
def test_several_models_at_once_are_held_back_from_as_each_is_alone(monkeypatch):
    """The branch of accelerators on the CPU; folds differ by a row."""
    long = dataclasses.replace(VALIDATED, max_iter=40, validation_fraction=0.25)
    problems = [problem(seed, training=long, n=n) for seed, n in ((0, 56), (1, 60))]  # 14 and 15 rows held back
    alone = [train([one])[0] for one in problems]
    monkeypatch.setattr("wishflow.numerics.platform.trains_together", lambda n_models: n_models > 1)
    monkeypatch.setattr("wishflow.numerics.platform.minimises_on_host", lambda n_models: False)
    for one, other in zip(train(problems), alone, strict=True):
        assert one.history["phase"].unique().tolist() == other.history["phase"].unique().tolist()
        for a, b in zip(leaves(one), leaves(other), strict=True):
            assert a.shape == b.shape and np.isfinite(a).all()


def test_training_ends_where_held_back_rows_are_predicted_no_better(monkeypatch):
    """No state is better than the first: training ends after twenty chunks."""
    monkeypatch.setattr(validation.BestState, "scored", _never_better)
    long = dataclasses.replace(VALIDATED, max_iter=3500, kl_warmup=20)
    (kept,) = train([problem(training=long)])
    assert (kept.history["phase"] == "flow").sum() == 2000
    assert "after 0 iterations" in kept.status


def _never_better(self, rows, models, step):
    return dataclasses.replace(self, stale=self.stale + 1), np.zeros(len(self.stale))


def test_without_a_fraction_all_rows_are_trained_on():
    (plain,) = train([problem()])
    group, journal = rows.Group.of([problem()]), Journal(CallbackList())
    outcome = run_phases(rows.phases_of(group), rows.start_of(group), journal)
    (direct,) = journal.trained(outcome.models, outcome.status, group.specs)
    assert plain.status == "reached max_iter" and HELD_OUT not in plain.history
    for a, b in zip(leaves(plain), leaves(direct), strict=True):
        np.testing.assert_array_equal(a, b)
