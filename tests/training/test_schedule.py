"""Rates and convergence on the host."""

import dataclasses

import numpy as np
import optax
import pytest

import wishflow as wf
from wishflow.likelihoods import Gaussian
from wishflow.regression import presets
from wishflow.regression.regressors import flow_spec
from wishflow.training.schedule import PATIENCE, Watch, decay_start, rate_shape, rates_from
from wishflow.wishart.specs import Wishart

TRAINING = dataclasses.replace(
    presets.fast_preset(1000, 4), decay=0.5, kl_warmup=200, natural_rate=0.1, tolerance=1e-3, rate_warmup=10
)


def test_rate_warms_up_stays_and_falls_to_zero():
    rates = rates_from(TRAINING, 0.02, 400, np.arange(400))
    adam = np.asarray(rates.adam)
    assert adam[0] == 0.0 and np.isclose(adam[10:200], 0.02).all()
    assert (np.diff(adam[200:400]) < 0).all() and adam[399] < 1e-5
    assert (adam[400:] == 0).all(), "steps past the end must not move a finished model"
    assert (np.asarray(rates.natural)[400:] == 0).all()


@pytest.mark.parametrize("n_warm, decay", [(0, 0.0), (0, 0.5), (10, 0.0), (10, 0.5), (300, 0.5), (0, 1.0)])
def test_the_shape_is_that_of_the_schedules_of_optax(n_warm, decay):
    training, n_iter, n_decay = dataclasses.replace(TRAINING, rate_warmup=n_warm, decay=decay), 400, int(400 * decay)
    n_warm = min(n_warm, n_iter - n_decay)
    parts, ends = [optax.constant_schedule(1.0)], []
    if n_warm:
        parts, ends = [optax.linear_schedule(0.0, 1.0, n_warm), *parts], [n_warm]
    if n_decay:
        parts, ends = [*parts, optax.cosine_decay_schedule(1.0, n_decay)], [*ends, n_iter - n_decay]
    joined = optax.join_schedules(parts, ends)
    positions = np.arange(n_iter + 50).reshape(2, -1)
    expected = [[float(joined(p)) for p in row] for row in positions]
    np.testing.assert_allclose(rate_shape(training, n_iter, positions), expected, atol=1e-6)


def test_models_at_different_positions_have_the_rates_of_each():
    starts = np.array([0, 150, 390])
    together = rates_from(TRAINING, 0.02, 400, starts[:, None] + np.arange(20))
    for i, start in enumerate(starts):
        alone = rates_from(TRAINING, 0.02, 400, start + np.arange(20))
        np.testing.assert_array_equal(together.adam[i], alone.adam)
        np.testing.assert_array_equal(together.kl_weight[i], alone.kl_weight)


def test_kl_weight_rises_linearly_to_one():
    c = np.asarray(rates_from(TRAINING, 0.02, 400, np.arange(400)).kl_weight)
    assert np.isclose(c[99], 0.5) and (c[199:400] == 1.0).all()


def test_an_optax_schedule_replaces_ours():
    schedule = optax.exponential_decay(0.1, 50, 0.5)
    adam = np.asarray(rates_from(TRAINING, schedule, 400, np.arange(100)).adam)
    assert np.allclose(adam[:100], 0.1 * 0.5 ** (np.arange(100) / 50))


def test_flat_models_jump_to_the_decay_and_then_stop_and_rising_ones_go_on():
    n_iter, n_rows = 4000, np.array([1000.0, 1000.0])
    watch, position = Watch.of(2), np.array([300.0, 300.0])
    for k in range(PATIENCE + 1):
        objective = np.array([-500.0, -500.0 + 10.0 * k])
        watch, position = watch.advanced(TRAINING, n_iter, n_rows, np.array([300.0, 300.0]), objective)
    assert position.tolist() == [decay_start(TRAINING, n_iter), 300]
    for k in range(PATIENCE):
        objective = np.array([-500.0, 0.0 + 10.0 * k])
        watch, position = watch.advanced(TRAINING, n_iter, n_rows, np.array([2500.0, 2500.0]), objective)
    assert position.tolist() == [n_iter, 2500]


def test_nothing_is_judged_before_the_kl_terms_have_their_weight():
    watch = Watch.of(1)
    for _ in range(3 * PATIENCE):
        watch, position = watch.advanced(TRAINING, 4000, np.array([10.0]), np.array([150.0]), np.array([0.0]))
        assert position == 150


def test_a_tolerance_of_zero_never_stops():
    watch, training = Watch.of(1), dataclasses.replace(TRAINING, tolerance=0.0)
    for _ in range(3 * PATIENCE):
        watch, position = watch.advanced(training, 4000, np.array([10.0]), np.array([3000.0]), np.array([0.0]))
        assert position == 3000


@pytest.mark.parametrize("n_rows, n_inputs", [(10, 1), (455, 13), (927, 8), (7373, 8), (41157, 9)])
def test_the_fast_rule_is_sensible_everywhere(n_rows, n_inputs):
    rule = presets.fast_preset(n_rows, n_inputs)
    assert 300 <= rule.max_iter <= 6000 and 0.005 <= rule.learning_rate <= 0.02
    assert rule.kl_warmup <= rule.max_iter and rule.batch_size <= 2000


@pytest.mark.parametrize("n_rows", [10, 150, 455, 7373])
def test_the_rule_for_labels_takes_fewer_and_longer_steps(n_rows):
    rule, other = presets.fast_class_preset(n_rows, 4), presets.fast_preset(n_rows, 4)
    assert 200 <= rule.max_iter < other.max_iter and rule.learning_rate >= other.learning_rate
    assert rule.kl_warmup == rule.max_iter // 2 and rule.warm_iter == 0


@pytest.mark.parametrize("n_inputs, expected", [(2, 1), (10, 1), (11, None), (30, None)])
def test_the_degrees_of_freedom_of_the_rule_are_those_of_the_named_diffusion_alone(n_inputs, expected):
    """A rule may say ν of "wishart"; who gives a spec says it himself, and labels and the paper have ν = ρ."""
    rule = presets.fast_preset(1000, n_inputs)

    def dof(training, **options):
        return flow_spec(wf.FlowRegressor(**options), training, Gaussian()).diffusion.dof

    assert dof(rule) == expected
    assert dof(rule, diffusion=Wishart(dof=3)) == 3 and dof(rule, diffusion=Wishart()) is None
    assert dof(rule, columns="independent") is None and dof(rule, sampling="pathwise") is None
    assert (
        wf.FlowClassifier()._training(1000, n_inputs).dof is None and dof(presets.paper_preset(1000, n_inputs)) is None
    )


@pytest.mark.parametrize("name", ["wishart", "gp"])
def test_the_form_of_q_is_the_rules_for_a_named_diffusion_and_the_papers_is_full(name):
    def form(training, diffusion=name):
        return flow_spec(wf.FlowRegressor(diffusion), training, Gaussian()).diffusion.posterior

    fast, paper = presets.fast_preset(1000, 4), presets.paper_preset(1000, 4)
    assert (form(fast), form(paper)) == ("rotated", "full")
    assert form(dataclasses.replace(fast, posterior="structured")) == "structured"
    assert form(paper, Wishart(posterior="diagonal")) == "diagonal"
    with pytest.raises(ValueError, match="posterior"):
        dataclasses.replace(fast, posterior="none")
