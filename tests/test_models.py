"""Models: predictions that do not depend on the other rows, joint draws, and the building of flows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import DIM, make_flow, make_sparse_gp, points, quick_jit
from montecarlo import assert_moments

from wishflow.kernels import Periodic
from wishflow.regression import flow, presets, sparse_gp
from wishflow.regression.models import carry_shared, n_components, output_components, sample_latent, sample_outputs
from wishflow.regression.specs import FlowSpec, SparseGPSpec
from wishflow.wishart.specs import NoDiffusion

components = functools.partial(quick_jit, static_argnames="n_samples")(output_components)


@pytest.mark.parametrize(
    "options",
    [
        {"diffusion": "gp"},
        {"diffusion": "wishart-independent-white"},
        {"diffusion": "wishart-shared-white", "sampling": "pathwise"},
    ],
    ids=["gp", "wishart", "pathwise"],
)
def test_one_row_or_all_rows_in_any_order_give_the_same_numbers(options, key):
    model, X = make_flow(**options), points(2, 6)
    means, variances = (np.asarray(part) for part in components(model, X, key, n_samples=4))
    assert means.shape == variances.shape == (4, 6, 2)
    assert means.std(0).min() > 1e-4  # paths are random
    order = np.array([3, 0, 5, 1, 4, 2])
    for rows in (order, np.array([4])):
        got = components(model, jnp.asarray(np.asarray(X)[rows]), key, n_samples=4)
        np.testing.assert_allclose(got[0], means[:, rows], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(got[1], variances[:, rows], rtol=1e-9, atol=1e-9)


def test_models_without_noise_predict_with_one_component(key):
    for model in (make_sparse_gp(), make_flow("none")):
        assert n_components(model, 50) == 1
        assert components(model, points(2, 6), key, n_samples=50)[0].shape == (1, 6, 2)
    assert n_components(make_flow("diagonal"), 50) == 50


def test_components_of_a_sparse_gp_are_its_marginals(key):
    model, X = make_sparse_gp(), points(3, 6)
    got = components(model, X, key, n_samples=3)
    expected = quick_jit(lambda m: m.output.conditioned().marginals(X))(model)
    for part, marginal in zip(got, expected, strict=True):
        np.testing.assert_allclose(part[0], marginal, rtol=1e-12, atol=1e-14)


def test_shared_noise_is_the_same_for_equal_rows_and_fresh_in_training(key):
    """Prediction: two equal rows arrive at the same place. Training: each row has noise of its own."""
    model, X = make_flow("wishart-shared-white"), jnp.asarray(np.tile(points(4, 1), (2, 1)))
    shared, fresh = quick_jit(lambda m: (carry_shared(m, X, key, 3), m.carry(X, key)))(model)
    np.testing.assert_allclose(shared[:, 0], shared[:, 1], rtol=1e-12)
    assert np.abs(fresh[0] - fresh[1]).max() > 1e-3
    assert np.abs(shared[0] - shared[1]).max() > 1e-3


def test_paths_end_where_rows_are_carried(key):
    model, X = make_flow("wishart-shared-white", n_steps=3), points(5, 4)
    paths, end = quick_jit(lambda m: (m.paths(X, key), m.carry(X, key)))(model)
    assert paths.shape == (3, 4, DIM)
    np.testing.assert_allclose(paths[-1], end, rtol=1e-12)


def test_joint_draws_of_y_have_the_moments_of_the_predictive_law(key, monkeypatch):
    """One function g for all rows, observation noise of each row's own: covariance between rows without the noise."""
    monkeypatch.setattr("wishflow.inducing.pathwise.N_FEATURES", 24)
    model, X = make_sparse_gp(), points(6, 3)

    @quick_jit
    def law(model):
        """Mean and covariance of the first output's g from the sparse GP's own formula."""
        basis = model.output.basis.prepare()
        a = basis.project(X)
        b = a @ model.output.posterior.sqrt.value[0]
        covariance = model.output.basis.kernel.matrix(X, X) - a @ a.T + b @ b.T
        return a @ model.output.posterior.mean[0], covariance, model.likelihood.variance[0]

    mean, covariance, noise = (np.asarray(part) for part in law(model))
    draw = quick_jit(lambda keys: jax.lax.map(lambda k: sample_outputs(model, X, k)[:, 0], keys, batch_size=1000))
    assert_moments(draw(jax.random.split(key, 10_000)), mean, covariance + noise * np.eye(3))


def test_latent_draws_fall_back_where_a_kernel_has_no_features(key):
    """A periodic kernel: the draw at X and its period apart is the same function value."""
    spec = SparseGPSpec(kernel=Periodic(period=2.0, lengthscale=1.0))
    model = sparse_gp.build(spec, presets.fast_preset(10, DIM), points(1, 5), 2)
    X = np.asarray(points(7, 2))
    both = quick_jit(lambda m: sample_latent(m.output, jnp.asarray(np.vstack([X, X + 2.0])), key))(model)
    assert np.abs(both[:2]).min() > 1e-3
    np.testing.assert_allclose(both[:2], both[2:], atol=5e-3)  # the draw is jittered by √1e-8


def test_a_time_dependent_flow_has_inducing_times_spread_over_the_flow():
    model = make_flow("wishart-shared", time_dependent=True)
    assert model.field.basis.Z.shape == (6, DIM + 1)
    spec = FlowSpec(diffusion=NoDiffusion(), flow_time=2.0, time_dependent=True)
    start = make_sparse_gp()
    built = flow.build(spec, presets.fast_preset(10, DIM), start, points(8, 4), jax.random.key(0))
    np.testing.assert_allclose(np.sort(np.asarray(built.field.basis.Z)[:, -1]), [0.25, 0.75, 1.25, 1.75])
    np.testing.assert_array_equal(np.asarray(built.field.basis.Z)[:, :DIM], points(8, 4))


def test_a_flow_starts_at_the_identity_with_the_output_of_the_sparse_gp(key):
    """Drift zero, so without noise nothing moves; output GP and likelihood are those of the start."""
    start, X = make_sparse_gp(), points(9, 4)
    spec = FlowSpec(diffusion=NoDiffusion(), n_steps=4)
    built = flow.build(spec, presets.fast_preset(10, DIM), start, points(8, 4), key)
    np.testing.assert_array_equal(quick_jit(lambda m: m.carry(X, key))(built), X)
    assert built.output is start.output and built.likelihood is start.likelihood
    assert not built.is_stochastic and make_flow("diagonal").is_stochastic
