"""Steps that are not finite: one is skipped, many make steps smaller and jitter larger, and the end is a good state."""

import dataclasses
import warnings
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_loop import SMALL, leaves, problem

import wishflow as wf
from wishflow.callbacks import ChunkEvent, ProgressBar
from wishflow.errors import FactorisationError, NumericalError, TrainingError
from wishflow.numerics.linalg import LAST_JITTER
from wishflow.regression import training
from wishflow.regression.steps import RowSteps
from wishflow.regression.training import train
from wishflow.training import chunk
from wishflow.training.backoff import MOST_TRIES, Trouble, another_try, warn_of_skipped_steps
from wishflow.training.loop import has_fallen
from wishflow.training.stacks import choose, stacked, unstacked


@jax.custom_vjp
def poisoned(x, is_bad):
    """The value, with a gradient of NaN where `is_bad`."""
    return x


poisoned.defvjp(
    lambda x, is_bad: (x, is_bad),
    lambda is_bad, g: (jnp.where(is_bad, jnp.nan, 1.0) * g, np.zeros(is_bad.shape, jax.dtypes.float0)),
)


@dataclasses.dataclass(frozen=True)
class Poisoned(RowSteps):
    """Steps of which a share, by their random keys, has a gradient with one NaN; and all where q is beyond `reach`."""

    share: float = 0.0
    reach: float = np.inf

    def loss(self, model, batch, key, kl_weight):
        q = model.output.posterior
        is_bad = jax.random.uniform(jax.random.fold_in(key, 7)) < self.share
        is_bad |= jnp.abs(q.mean).max() > self.reach
        mean = q.mean.at[0, 0].set(poisoned(q.mean[0, 0], is_bad))
        return RowSteps.loss(self, eqx.tree_at(lambda m: m.output.posterior.mean, model, mean), batch, key, kl_weight)


@pytest.fixture
def poison(monkeypatch):
    """Training with such steps."""
    original = training._steps

    def steps(share, reach=np.inf):
        def made(group, n_samples):
            found, items = original(group, n_samples)
            return Poisoned(**vars(found), share=share, reach=reach), items

        monkeypatch.setattr(training, "_steps", made)

    return steps


ADAM = dataclasses.replace(SMALL, max_iter=200, warm_iter=0, natural_rate=None, learning_rate=0.01, kl_warmup=0)


def test_a_few_gradients_of_nan_neither_end_a_fit_nor_reach_the_parameters(poison):
    poison(0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (trained,) = train([problem(training=ADAM)])
    history = trained.history
    assert 1 <= history["skipped"].sum() <= 10
    assert trained.status == "reached max_iter" and len(history) == 200
    assert all(np.isfinite(leaf).all() for leaf in leaves(trained))
    objective = history["objective"]
    assert np.isfinite(objective).all() and objective.iloc[-20:].mean() > objective.iloc[0]


def test_many_skipped_steps_are_told_and_few_are_not():
    trouble = Trouble(np.array([4, 30, 4]), np.array([0, 0, 2]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_skipped_steps(trouble, 200, "flow", (0, 1, 2))
    many, lowered = (str(w.message) for w in caught)
    assert "30 of 200 steps of phase 'flow' were not finite and were skipped (history_['skipped']" in many
    assert "4 of 200" in lowered and "lowered to 0.01 of what was asked for" in lowered


@pytest.mark.slow
def test_steps_become_smaller_before_training_gives_up(poison):
    poison(1.1)
    with pytest.warns(RuntimeWarning, match="even with smaller step sizes; the last good state was kept"):
        (trained,) = train([problem(training=ADAM)])
    assert len(trained.history) == (MOST_TRIES + 1) * 100 and (trained.history["skipped"] == 1.0).all()
    assert "even with smaller step sizes" in trained.status
    assert all(np.isfinite(leaf).all() for leaf in leaves(trained))


@pytest.mark.slow
def test_a_rate_that_is_too_high_is_lowered_and_training_goes_on(poison):
    """A first step of the rate asked for leads to where there is no gradient; steps that are smaller do not."""
    poison(0.0, reach=8.0)
    far = dataclasses.replace(ADAM, learning_rate=30.0)
    with pytest.warns(RuntimeWarning, match="the learning rate was lowered to 0.0*1 of what was asked for"):
        (trained,) = train([problem(training=far)])
    objective = trained.history["objective"]
    assert trained.status == "reached max_iter"
    assert objective.iloc[-20:].mean() > objective.iloc[0] + 10.0


def test_another_try_of_models_that_are_trained_together_raises_the_jitter_of_those_that_need_it():
    file = Path(__file__).parents[1] / "reference" / "v0.1.0" / "flow.safetensors"
    model = jax.tree.map(jnp.asarray, wf.load(file).model_)
    steps = RowSteps(1, "float32", False, "log", 64)
    before = [chunk.start_state(model, jax.random.key(i), steps) for i in range(2)]
    before = [eqx.tree_at(lambda s: s.skipped, one, jnp.asarray(25, jnp.int32)) for one in before]
    both = stacked(before)
    after = unstacked(choose(np.array([True, False]), another_try(both, 2), both), 2)
    for k, (one, other) in enumerate(zip(before, after, strict=True)):
        jitters = [
            (float(a.jitter), float(b.jitter)) for a, b in zip(one.model.bases(), other.model.bases(), strict=True)
        ]
        assert all(b == pytest.approx(min(10.0 * a, LAST_JITTER) if k == 0 else a) for a, b in jitters)
        assert int(other.skipped) == (0 if k == 0 else 25)
        assert jax.random.key_data(one.key).tolist() == jax.random.key_data(other.key).tolist()
        np.testing.assert_array_equal(one.model.output.posterior.mean, other.model.output.posterior.mean)


def test_typed_errors_have_one_base():
    assert issubclass(TrainingError, NumericalError) and issubclass(FactorisationError, NumericalError)
    assert issubclass(NumericalError, wf.errors.WishflowError) and issubclass(NumericalError, ArithmeticError)


def test_the_progress_line_says_how_many_steps_were_skipped(capsys):
    records = {"objective": np.zeros(4), "noise": np.ones(4), "skipped": np.array([0.0, 1.0, 1.0, 0.0])}
    bar = ProgressBar()
    bar.on_chunk(ChunkEvent("flow", 4, 4, records, 1.0))
    bar.on_end()
    found = capsys.readouterr()
    assert "2 steps skipped" in found.out + found.err


@pytest.mark.parametrize(("last", "expected"), [(1.0, False), (-50.0, True)])
def test_single_steps_that_are_not_finite_do_not_count_as_a_fall(last, expected, types_unchecked):
    phase = SimpleNamespace(n_models=2, items=SimpleNamespace(n_rows=np.array([10, 10])))
    begin = {"fit": np.zeros((2, 10))}
    fit = np.full((2, 30), last)
    fit[0, -1] = np.nan
    fit[1] = np.nan  # nothing is left: the counter of skipped steps has its say
    assert has_fallen(phase, np.ones(2), begin, {"fit": fit}, 30).tolist() == [expected, False]
