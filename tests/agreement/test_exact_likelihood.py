"""The log marginal likelihood of an exact GP against scikit-learn, finite differences and the collapsed bound."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from factories import quick_jit
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from wishflow import kernels, likelihoods
from wishflow.inducing import InducingBasis, SparseGP
from wishflow.kernels import RBF, Linear, Matern32
from wishflow.numerics import linalg
from wishflow.numerics.devices import computing
from wishflow.numerics.parameters import Positive
from wishflow.regression.batches import padded_batch
from wishflow.regression.collapsed import collapsed_bound, optimal_posterior
from wishflow.regression.exact import ExactGP, log_marginal_likelihood
from wishflow.regression.sparse_gp import SparseGPModel

N, D = 30, 2
NOISES = np.array([0.05, 0.2])
KERNELS = {
    "rbf": (RBF(variance=1.3, lengthscale=1.1), 1.3 * sk.RBF(1.1)),
    "matern32": (Matern32(variance=0.8, lengthscale=1.5), 0.8 * sk.Matern(1.5, nu=1.5)),
    "sum": (
        RBF(variance=1.0, lengthscale=1.0) + Linear(variance=0.5),
        1.0 * sk.RBF(1.0) + 0.5 * sk.DotProduct(0.0, sigma_0_bounds="fixed"),
    ),
}
likelihood_of = quick_jit(log_marginal_likelihood)
gradient_of = quick_jit(jax.grad(log_marginal_likelihood))


def make_data(seed=0, n_rows=N):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, D))
    y = np.column_stack([np.sin(2 * X[:, 0]) + X[:, 1], X[:, 0] * X[:, 1]]) + 0.1 * rng.normal(size=(n_rows, 2))
    return X, (y - y.mean(0)) / y.std(0)


def make_gp(spec):
    likelihood = eqx.tree_at(lambda part: part.noise, likelihoods.build("gaussian", 2), Positive.of(NOISES))
    return ExactGP(kernels.build(spec, D), likelihood)


@pytest.mark.parametrize("name", KERNELS)
def test_it_is_that_of_scikit_learn_whatever_the_padding(name):
    """Two outputs with noise of their own; 32 and 64 rows hold 30."""
    spec, exact_kernel = KERNELS[name]
    X, y = make_data()
    exact = [GaussianProcessRegressor(exact_kernel, alpha=noise, optimizer=None) for noise in NOISES]
    total = sum(gp.fit(X, y[:, p]).log_marginal_likelihood_value_ for p, gp in enumerate(exact))
    with computing():
        found = [float(likelihood_of(make_gp(spec), padded_batch(X, y, n))) for n in (32, 64)]
    np.testing.assert_allclose(found, total, rtol=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_its_gradient_is_that_of_finite_differences(name):
    batch = padded_batch(*make_data())
    gp = make_gp(KERNELS[name][0])
    gradient = jax.tree.leaves(gradient_of(gp, batch))
    leaves, structure = jax.tree.flatten(gp)
    for i, leaf in enumerate(leaves):
        for place in np.ndindex(leaf.shape):

            def at(shift, i=i, place=place, leaf=leaf):
                moved = [jnp.asarray(leaf).at[place].add(shift) if j == i else one for j, one in enumerate(leaves)]
                return float(likelihood_of(jax.tree.unflatten(structure, moved), batch))

            slope = (at(1e-5) - at(-1e-5)) / 2e-5
            np.testing.assert_allclose(gradient[i][place], slope, rtol=1e-6, atol=1e-6)


@quick_jit
def solve(model, batch, X):
    """The bound, and the marginals of f at the optimal q."""
    q = optimal_posterior(model, batch)
    best = eqx.tree_at(lambda m: m.output.posterior, model, q)
    return collapsed_bound(model, batch), *best.output.conditioned().marginals(X)


@pytest.mark.parametrize("name", KERNELS)
def test_with_inducing_points_at_the_rows_bound_and_predictions_are_exact(name):
    spec, exact_kernel = KERNELS[name]
    X, y = make_data()
    new, gp, batch = make_data(1)[0], make_gp(spec), padded_batch(X, y)
    with computing():
        basis = InducingBasis.of(gp.kernel, X, 1e-12)
        bound, mean, variance = solve(SparseGPModel(SparseGP.prior(basis, 2), gp.likelihood), batch, new)
        np.testing.assert_allclose(bound, likelihood_of(gp, batch), rtol=1e-7)
    for p, noise in enumerate(NOISES):
        exact = GaussianProcessRegressor(exact_kernel, alpha=noise, optimizer=None).fit(X, y[:, p])
        exact_mean, exact_sd = exact.predict(new, return_std=True)
        np.testing.assert_allclose(mean[:, p], exact_mean, rtol=0, atol=1e-6)
        np.testing.assert_allclose(variance[:, p], exact_sd**2, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [5, 37, 64])
def test_inverse_by_halves(size, monkeypatch):
    monkeypatch.setattr(linalg, "UNSPLIT", 8)
    A = np.random.default_rng(size).normal(size=(size, size))
    L = np.linalg.cholesky(A @ A.T + np.eye(size))
    with computing():
        W, inverse = linalg.inverse_from_factor(jnp.asarray(L))
    np.testing.assert_allclose(W, np.linalg.inv(L), atol=1e-10)
    np.testing.assert_allclose(inverse, np.linalg.inv(L @ L.T), atol=1e-10)
