"""Sparse GPs whose inducing points are the rows, starts from exact GPs, and fits that explain nothing."""

import warnings

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import wishflow as wf
from wishflow.callbacks import Callback
from wishflow.errors import OptionError, TrainingWarning
from wishflow.numerics import platform
from wishflow.regression import exact, training
from wishflow.regression.explained import NOTHING
from wishflow.regression.members import _parts


def waves(n_rows, n_inputs=2, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n_rows, n_inputs))
    return X, np.sin(2.0 * X[:, 0]) + X[:, -1] ** 2 + noise * rng.normal(size=n_rows)


def four_of_many(n_rows, n_inputs=32, noise=0.3, seed=0):
    """Four inputs matter, in pairs. The bound of a sparse GP leads to noise alone, from long lengthscales too."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_inputs))
    return X, np.sin(1.5 * X[:, 0]) * X[:, 1] + X[:, 2] * X[:, 3] + noise * rng.normal(size=n_rows)


def blocks(n_inputs, n_rows=300, seed=0):
    """Two inputs matter, and the function jumps."""
    rng = np.random.default_rng([n_inputs, seed])
    X = rng.normal(size=(n_rows, n_inputs))
    return X, 2.0 * (X[:, 0] > 0.0) * (X[:, 1] > 0.0) + 0.5 * rng.normal(size=n_rows)


# --- exact fits ----------------------------------------------------------------------------------


def test_the_default_is_the_exact_gp_of_scikit_learn():
    X, y = waves(300)
    new, truth = waves(100, seed=1)
    model = wf.SparseGPRegressor(calibrate=None).fit(X, y)
    kernel = sk.ConstantKernel() * sk.RBF(np.ones(2)) + sk.WhiteKernel()
    scaled = (X - X.mean(0)) / X.std(0)
    other = GaussianProcessRegressor(kernel, normalize_y=True).fit(scaled, y)
    mean, sd = other.predict((new - X.mean(0)) / X.std(0), return_std=True)
    np.testing.assert_allclose(model.predict(new), mean, atol=1e-2)
    density = -0.5 * np.log(2.0 * np.pi * sd**2) - 0.5 * ((truth - mean) / sd) ** 2
    np.testing.assert_allclose(model.log_prob(new, truth).mean(), density.mean(), atol=1e-2)
    np.testing.assert_allclose(model.history_["bound"].iloc[-1], other.log_marginal_likelihood_value_, rtol=1e-3)


def test_inducing_points_by_default(monkeypatch):
    """All rows up to a number, then fewer with more rows, never below 100; a number that is given is taken."""
    assert exact.automatic_inducing(exact.EXACT_ROWS) == exact.EXACT_ROWS
    numbers = [exact.automatic_inducing(n) for n in (exact.EXACT_ROWS + 1, 4000, 8000, 16_000, 10**6)]
    assert numbers == sorted(numbers, reverse=True) and numbers[-1] == 100 and numbers[1] == 200
    X, y = waves(40)
    assert wf.SparseGPRegressor(max_iter=3, calibrate=None).fit(X, y).model_.output.basis.Z.shape == (40, 2)
    assert wf.SparseGPRegressor(7, max_iter=3, calibrate=None).fit(X, y).model_.output.basis.Z.shape == (7, 2)
    most = {
        "paper": wf.SparseGPRegressor(preset="paper"),
        "student": wf.SparseGPRegressor(likelihood="student_t"),
        "flow": wf.FlowRegressor(),
    }
    assert {name: model._prepare(X, y).most_inducing for name, model in most.items()} == dict.fromkeys(most, 100)
    assert most["flow"]._prepare(X, y).without_flow().most_inducing == exact.EXACT_ROWS
    with pytest.raises(OptionError, match="expected 'auto' or a whole number"):
        wf.SparseGPRegressor("all").fit(X, y)


@pytest.mark.parametrize("model", [wf.SparseGPRegressor(), wf.FlowRegressor(), wf.SparseGPRegressor(5)])
def test_members_have_one_shape(model):
    """Folds of 32 and 33 distinct rows are of two size classes."""
    parts = _parts(model._prepare(*waves(65)), np.arange(65) % 2, 2)
    for own in (parts, [part.without_flow() for part in parts]):
        points = [training.Group.of([part]).Z[0].shape for part in own]
        assert points[0] == points[1]


def test_copies_of_rows_have_one_inducing_point():
    X, y = waves(40)
    model = wf.SparseGPRegressor(calibrate=None).fit(np.tile(X, (2, 1)), np.r_[y, y + 0.01])
    assert model.model_.output.basis.Z.shape == (40, 2) and model.status_ == "converged"


def test_callbacks_see_the_fit_and_stop_it():
    seen = []

    class Stop(Callback):
        def on_chunk(self, event):
            seen.append((event.phase, event.step))
            return True

    X, y = waves(60, noise=0.0)
    model = wf.SparseGPRegressor(calibrate=None, hyperprior=None, callbacks=Stop()).fit(X, y)
    assert len(seen) == 1 and seen[0] == ("fit", model.n_iter_)


def test_several_targets_and_problems_on_an_accelerator(monkeypatch):
    """Exact fits have their turn one after another, each with the result and the history that it has alone."""
    monkeypatch.setattr(platform, "trains_together", lambda n_models: n_models > 1)
    monkeypatch.setattr(platform, "minimises_on_host", lambda n_models: False)
    X, y = waves(50)
    data = [(X, np.column_stack([y, X[:, 0]])), (X, np.column_stack([X[:, 1] ** 2, y]))]
    fitted = wf.fit_many([wf.SparseGPRegressor(calibrate=None, max_iter=30) for _ in data], data)
    for model, (_, targets) in zip(fitted, data, strict=True):
        alone = wf.SparseGPRegressor(calibrate=None, max_iter=30).fit(X, targets)
        assert model.n_iter_ == alone.n_iter_ and model.status_ == alone.status_
        np.testing.assert_allclose(model.predict(X), alone.predict(X), rtol=1e-6, atol=1e-8)


# --- starts --------------------------------------------------------------------------------------


def test_many_inputs_are_found():
    X, y = four_of_many(700)
    model = wf.SparseGPRegressor(n_inducing=40, max_iter=30, calibrate=None).fit(X[:500], y[:500])
    assert np.sqrt(np.mean((model.predict(X[500:]) - y[500:]) ** 2)) < 0.7 * y[500:].std()
    lengthscales = np.asarray(model.model_.output.basis.kernel.lengthscale.value)
    assert lengthscales[:4].max() < lengthscales[4:].min()


@pytest.mark.parametrize("seed", range(3))
def test_many_inputs_do_not_end_as_noise(seed):
    """A function that jumps, in forty inputs: half a nat for each row ahead on rows that nobody saw."""
    X, y = blocks(40, 800, seed)
    model = wf.SparseGPRegressor(n_inducing=40, max_iter=100, calibrate=None).fit(X[:300], y[:300])
    noise_alone = -0.5 * np.log(2.0 * np.pi * y[:300].var()) - 0.5
    assert NOTHING not in model.status_ and len(model.history_) == model.n_iter_
    assert model.log_prob(X[300:], y[300:]).mean() > noise_alone + 0.2


# --- nothing to explain --------------------------------------------------------------------------


@pytest.mark.parametrize("n_inducing", ["auto", 20])
def test_noise_is_left_as_noise_and_said(n_inducing):
    X, _ = blocks(8)
    y = np.random.default_rng(1).normal(size=300)
    with pytest.warns(TrainingWarning, match="explains nothing: the predictions are the mean"):
        model = wf.SparseGPRegressor(n_inducing=n_inducing, calibrate=None).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert NOTHING in model.status_
    assert np.abs(mean - y.mean()).max() < 0.5 * y.std() and abs(std.mean() / y.std() - 1.0) < 0.1


def test_members_that_explain_nothing_are_one_warning():
    X, _ = blocks(3, 100)
    y = np.random.default_rng(2).normal(size=100)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = wf.SparseGPRegressor(n_members=2).fit(X, y)
    assert model.status_.endswith(NOTHING) and [w.category for w in caught] == [TrainingWarning]


def test_signals_and_few_rows_are_not_called_noise():
    assert NOTHING not in wf.SparseGPRegressor(calibrate=None).fit(*waves(40, noise=1.0)).status_
    X, _ = waves(10)
    assert NOTHING not in wf.SparseGPRegressor().fit(X, np.random.default_rng(0).normal(size=10)).status_
