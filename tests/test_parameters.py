"""Constrained parameters: the way there and back, the constraint itself, derivatives at the edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wishflow.errors import OptionError
from wishflow.numerics.devices import computing
from wishflow.numerics.parameters import Free, LowerTriangular, Positive, UnitRows

MANY = settings(max_examples=60, deadline=None)


@MANY
@given(value=st.floats(1e-7, 1e7), floor=st.sampled_from([1e-8, 1e-6, 0.0]))
def test_positive_holds_the_value_it_was_made_of(value, floor):
    with computing():
        assert float(Positive.of(value + floor, floor).value) == pytest.approx(value + floor, rel=1e-9)


@MANY
@given(raw=st.floats(-700.0, 1e6))
def test_positive_is_above_its_floor_whatever_the_raw_number(raw):
    with computing():
        parameter = Positive(jnp.asarray(raw), 1e-8)
        assert float(parameter.value) >= 1e-8
        assert np.isfinite(parameter.value)
        assert 0.0 <= jax.grad(lambda r: Positive(r, 1e-8).value)(parameter.raw) <= 1.0


@pytest.mark.parametrize("value", [0.0, 1e-8])
def test_values_at_or_below_the_floor_are_lifted_just_over_it(value):
    lifted = float(Positive.of(value, 1e-8).value)
    assert 1e-8 < lifted < 1.1e-8


@pytest.mark.parametrize("value", [-3.0, [1.0, -1e-9], float("nan")])
def test_negative_values_are_refused(value):
    with pytest.raises(OptionError, match="expected positive numbers"):
        Positive.of(value)


def test_positive_keeps_shape_and_order():
    values = np.array([[0.1, 2.0, 30.0], [1e-6, 1.0, 500.0]])
    np.testing.assert_allclose(Positive.of(values).value, values, rtol=1e-9)
    assert np.all(np.diff(Positive.of(np.sort(values.ravel())).raw) > 0)


def lower_triangular(seed, *batch, size=4):
    matrix = np.tril(np.random.default_rng(seed).normal(size=(*batch, size, size)), -1)
    return matrix + np.eye(size) * np.exp(np.random.default_rng(seed + 1).normal(size=(*batch, size, 1)))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_lower_triangular_there_and_back(batch):
    matrix = lower_triangular(0, *batch)
    parameter = LowerTriangular.of(jnp.asarray(matrix))
    np.testing.assert_allclose(parameter.value, matrix, rtol=1e-14, atol=1e-16)
    np.testing.assert_allclose(parameter.log_diagonal, np.log(np.diagonal(matrix, axis1=-2, axis2=-1)), rtol=1e-14)


def test_any_raw_matrix_gives_a_lower_triangle_with_a_positive_diagonal():
    raw = jnp.asarray(np.random.default_rng(2).normal(size=(5, 4, 4)) * 3.0)
    value = np.asarray(LowerTriangular(raw).value)
    assert np.all(np.triu(value, 1) == 0.0)
    assert np.all(np.diagonal(value, axis1=-2, axis2=-1) > 0.0)
    # Entries above the diagonal are no parameters: they change nothing.
    np.testing.assert_array_equal(LowerTriangular(jnp.tril(raw)).value, value)


def test_unit_rows_have_norm_one_and_forget_the_length_of_raw():
    raw = jnp.asarray(np.random.default_rng(3).normal(size=(5, 2)))
    value = UnitRows(raw).value
    np.testing.assert_allclose(jnp.sum(value**2, -1), 1.0, rtol=1e-14)
    lengths = jnp.asarray([0.1, 1.0, 7.0, 100.0, 1e-3])[:, None]
    np.testing.assert_allclose(UnitRows(raw * lengths).value, value, rtol=1e-13)
    # Moving along the row itself does nothing, so the gradient of any function is orthogonal to it.
    gradient = jax.grad(lambda r: jnp.sum(jnp.sin(UnitRows(r).value)))(raw)
    np.testing.assert_allclose(jnp.sum(gradient * raw, -1), 0.0, atol=1e-14)


def test_free_is_the_identity():
    raw = jnp.asarray([1.0, -2.0])
    assert Free(raw).value is raw


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [LowerTriangular, UnitRows, Free, lambda raw: Positive(raw, 1e-8)])
def test_values_follow_the_dtype_of_raw(kind, dtype):
    assert kind(jnp.ones((2, 2), dtype)).value.dtype == dtype
