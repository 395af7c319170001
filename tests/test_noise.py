"""Normals for paths: their law, and the inverse error function they come from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from wishflow.numerics.devices import random_key
from wishflow.numerics.random import host_keys, host_uniform, normal_quantile, odd_number, standard_normals

N = 1_000_000


@pytest.fixture(scope="module")
def draws():
    return np.asarray(jax.jit(lambda k: standard_normals(k, (N,), jnp.float32))(jax.random.key(0)), float)


def test_draws_are_standard_normal(draws):
    assert stats.kstest(draws, "norm").pvalue > 1e-3
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (6, 15.0)):
        values = draws**power
        assert abs(values.mean() - moment) < 4 * values.std() / np.sqrt(N)
    assert abs((np.abs(draws) > 4).sum() - 2 * stats.norm.sf(4) * N) < 4 * np.sqrt(2 * stats.norm.sf(4) * N)


def test_both_halves_of_a_word_are_independent(draws):
    first, second = draws[0::2], draws[1::2]
    for a, b in ((first, second), (first**2, second**2), (np.abs(first), second)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(N / 2)


def test_every_number_has_its_mirror_image():
    bits = jnp.asarray([0, 2**31 - 1, 2**31, 2**32 - 1, 255, 256], jnp.uint32)
    np.testing.assert_array_equal(odd_number(bits), [1, 2**24 - 1, 1 - 2**24, -1, 1, 3])


def test_all_quantiles_are_those_of_scipy():
    """All 2²⁴ of them, from bits to normal in one compiled program: the compiler must not lose the last bit."""
    bits = jnp.arange(0, 2**32, 256, dtype=jnp.uint64).astype(jnp.uint32)
    found = np.asarray(jax.jit(lambda bits: normal_quantile(odd_number(bits)))(bits))
    u = np.asarray(odd_number(bits), float) * 2.0**-24
    np.testing.assert_allclose(found, np.sqrt(2) * special.erfinv(u), rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 5), (4, 3, 2)])
def test_shapes_dtypes_and_keys(shape):
    one = standard_normals(jax.random.key(1), shape, jnp.float32)
    assert one.shape == shape and one.dtype == jnp.float32
    np.testing.assert_array_equal(one, standard_normals(jax.random.key(1), shape, jnp.float32))
    assert not np.isclose(one, standard_normals(jax.random.key(2), shape, jnp.float32)).any()
    wide = standard_normals(jax.random.key(1), shape, jnp.float64)
    np.testing.assert_array_equal(wide, jax.random.normal(jax.random.key(1), shape, jnp.float64))


def test_without_wide_integers_the_draws_are_those_of_jax():
    with jax.enable_x64(False):
        found = standard_normals(jax.random.key(1), (5,), jnp.float32)
        np.testing.assert_array_equal(found, jax.random.normal(jax.random.key(1), (5,), jnp.float32))


@pytest.mark.parametrize("seed", [0, 7, 2**31 + 1, 2**40 + 3, -1])
def test_keys_and_numbers_of_the_host_are_those_of_jax(seed):
    key = jax.random.key(seed)
    words = np.asarray(jax.random.key_data(key))
    np.testing.assert_array_equal(jax.random.key_data(random_key(seed)), words)
    np.testing.assert_array_equal(host_keys(words, 3), jax.random.key_data(jax.random.split(key, 3)))
    expected = jax.random.uniform(key, (1000,), minval=np.nextafter(-1.0, 0.0))
    np.testing.assert_allclose(host_uniform(words, 1000), expected, rtol=0, atol=1e-15)


def test_a_key_is_of_the_generator_that_the_user_chose():
    with jax.default_prng_impl("rbg"):
        assert random_key(3) == jax.random.key(3)
