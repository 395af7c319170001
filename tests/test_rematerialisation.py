"""Loops store what their derivative needs, or compute it again: the same gradients, chosen by size."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import make_batch, make_flow, quick_jit, series_problem

from wishflow.regression.objectives import negative_objective
from wishflow.series.latent_objectives import negative_filter_objective
from wishflow.series.objectives import negative_rollout_objective, negative_transition_objective
from wishflow.series.specs import Latent
from wishflow.wishart import solver
from wishflow.wishart.solver import (
    MOST_STORED,
    STORED_LIMIT,
    computed_bytes,
    is_rematerialised,
    scan_steps,
    stored_bytes,
)


def sine(x, _):
    """A step whose derivative keeps cos x, eight bytes for each number."""
    return jnp.sin(x), None


def has_remat(program) -> bool:
    """Whether a program in JAX's own words computes something again; the word for it depends on the version."""
    return any(word in str(program) for word in ("remat", "checkpoint"))


def shape(*sizes) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.float64)


def test_the_rule_switches_at_the_limit():
    assert STORED_LIMIT == 2**31
    assert not is_rematerialised(STORED_LIMIT) and is_rematerialised(STORED_LIMIT + 1)


def test_stored_bytes_of_steps_that_are_counted_by_hand():
    assert stored_bytes(sine, shape(50, 3), shape(10)) == 8 * 50 * 3
    found = []

    def value(W):
        found.append(stored_bytes(lambda x, _: (jnp.sin(x @ W), None), shape(50, 3), shape(10)))
        return jnp.sum(W)

    jax.grad(value)(jnp.ones((3, 3)))
    assert found == [8 * (50 * 3 + 50 * 3 + 3 * 3)]  # cos(xW), x for the derivative by W, W for that by x


@pytest.mark.parametrize(
    "n_steps, n_copies, expected", [(256, 1, False), (257, 1, True), (64, 4, False), (65, 4, True)]
)
def test_a_loop_is_rematerialised_where_it_would_store_more_than_the_limit(n_steps, n_copies, expected):
    """2²⁰ numbers of eight bytes in each step: 256 steps are the limit. By shapes alone; nothing is computed."""

    def gradient(x, inputs):
        return jax.grad(lambda x: jnp.sum(scan_steps(sine, x, inputs, n_copies)[0]))(x)

    assert has_remat(jax.make_jaxpr(gradient)(shape(2**20), shape(n_steps))) == expected


def flow_loss(diffusion, sampling="marginal"):
    model, batch = make_flow(diffusion, sampling=sampling), make_batch()
    return model, lambda model, key: negative_objective(model, batch, key, n_samples=2)[0]


def series_loss(function, **options):
    model, batch = series_problem(**options)
    return model, lambda model, key: function(model, batch, key, n_samples=2)[0]


LOSSES = {
    "flow": lambda: flow_loss("wishart-independent"),
    "flow, one draw of J for a path": lambda: flow_loss("wishart-shared", "pathwise"),
    "rollout": lambda: series_loss(negative_rollout_objective, objective="rollout"),
    "transition": lambda: series_loss(negative_transition_objective),
    "particle filter": lambda: series_loss(negative_filter_objective, latent=Latent(2)),
}
QUICK = ("flow",)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in LOSSES])
def test_gradients_do_not_depend_on_what_is_stored(name, key):
    model, loss = LOSSES[name]()
    found = []
    for choice in (False, True):
        with mock.patch.object(solver, "is_rematerialised", lambda n_bytes, choice=choice: choice):
            traced = quick_jit(lambda m, k: jax.value_and_grad(loss)(m, k)).trace(model, key)
        assert has_remat(traced.jaxpr) == choice
        found.append(traced.lower().compile()(model, key))
    (stored, stored_gradient), (again, again_gradient) = found
    assert float(stored) == pytest.approx(float(again), rel=1e-12)
    for a, b in zip(jax.tree.leaves(stored_gradient), jax.tree.leaves(again_gradient), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_no_derivative_is_traced_where_it_cannot_store_too_much():
    """In prediction above all, which takes none."""
    with mock.patch.object(solver, "stored_bytes", side_effect=AssertionError("a derivative was traced")) as traced:
        jax.make_jaxpr(lambda x, inputs: scan_steps(sine, x, inputs)[0])(shape(50), shape(10))
        with pytest.raises(AssertionError, match="was traced"):
            jax.make_jaxpr(lambda x, inputs: scan_steps(sine, x, inputs)[0])(shape(2**20), shape(100))
    assert traced.call_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_no_derivative_stores_more_than_a_multiple_of_what_the_step_computes(name, key):
    model, loss = LOSSES[name]()
    found = []

    def spy(step, start, inputs):
        found.append((stored_bytes(step, start, inputs), computed_bytes(step, start, inputs)))
        return found[-1][1]

    with mock.patch.object(solver, "computed_bytes", spy):
        jax.eval_shape(jax.grad(loss), model, key)
    assert found and all(stored <= 0.5 * MOST_STORED * computed for stored, computed in found)


def test_the_estimate_is_near_what_the_compiled_program_needs(key):
    """Temporary memory with rows enough that the loop is most of it, against the estimate."""
    model, batch = make_flow("wishart-independent", n_steps=20), make_batch(n=2000)
    found = []

    def spy(*args):
        found.append(stored_bytes(*args))
        return found[-1]

    with mock.patch.object(solver, "stored_bytes", spy), mock.patch.object(solver, "MOST_STORED", 2**40):
        program = quick_jit(jax.grad(lambda m, k: negative_objective(m, batch, k)[0])).lower(model, key).compile()
    assert program.memory_analysis().temp_size_in_bytes == pytest.approx(20 * found[-1], rel=0.25)
