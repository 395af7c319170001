"""`state_dim`: flows whose state is the inputs and random directions of them."""

import dataclasses

import numpy as np
import pytest

import wishflow as wf
from wishflow.errors import ModelFileError, OptionError
from wishflow.files.model_file import read_model, write_model
from wishflow.numerics.scaling import Scaler, random_directions, with_directions
from wishflow.regression import many, presets

SMALL_CLASSES = {"n_inducing": 12, "max_iter": 60, "n_steps": 2, "n_predict_samples": 8, "random_state": 0}
SMALL = {**SMALL_CLASSES, "validation_fraction": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 2)) * [1.0, 30.0] + [5.0, -40.0]
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=150)


@pytest.fixture(scope="module")
def wide(data):
    return wf.FlowRegressor(state_dim=5, **SMALL).fit(*data)


# --- the state -------------------------------------------------------------------------------------


def test_directions_have_variance_one_and_fill_the_plane(data):
    Z = Scaler.of(data[0]).forward(data[0])
    states = with_directions(Z, random_directions(Z, 6, seed=1))
    assert states.shape == (150, 6)
    np.testing.assert_array_equal(states[:, :2], Z)
    np.testing.assert_allclose(states.std(axis=0), 1.0, rtol=1e-12)
    angles = np.arctan2(*random_directions(Z, 6, seed=1)) % np.pi
    assert np.diff(np.sort(angles)).min() > 1e-3  # no direction twice


def test_constant_inputs_give_constant_directions():
    Z = np.zeros((20, 3))
    assert np.isfinite(random_directions(Z, 5, seed=0)).all()
    np.testing.assert_array_equal(with_directions(Z, random_directions(Z, 5, seed=0)), 0.0)


def test_as_wide_as_the_inputs_is_the_flow_of_the_paper(data):
    """Bit for bit, where the rule leaves the state alone."""
    plain, same = (wf.FlowRegressor(state_dim=width, **SMALL).fit(*data) for width in (None, 2))
    assert plain.directions_.shape == same.directions_.shape == (2, 0)
    np.testing.assert_array_equal(plain.predict(data[0]), same.predict(data[0]))
    np.testing.assert_array_equal(plain.history_["objective"], same.history_["objective"])


@pytest.mark.parametrize(
    "n_rows, n_inputs, expected",
    [(599, 4, None), (600, 1, 3), (600, 4, 12), (7373, 8, 12), (41157, 10, 12), (41157, 11, None)],
)
def test_the_rule(n_rows, n_inputs, expected):
    rule = presets.fast_preset(n_rows, n_inputs)
    assert rule.state_dim == expected
    assert rule.without_flow().state_dim is None and presets.fast_class_preset(n_rows, n_inputs).state_dim is None
    assert presets.paper_preset(n_rows, n_inputs).state_dim is None
    width = n_inputs if expected is None else expected
    assert rule.field_lengthscale == rule.output_lengthscale == width**0.5
    assert presets.fast_class_preset(n_rows, n_inputs).field_lengthscale == n_inputs**0.5
    # A given width wins, and lengthscales follow it.
    given = presets.fast_preset(n_rows, n_inputs, state_dim=16)
    assert given.state_dim == 16 and given.field_lengthscale == 4.0 and given.dof == rule.dof
    assert given.sgp_lengthscale == rule.sgp_lengthscale


# --- what a user sees ------------------------------------------------------------------------------


def test_results_are_of_the_inputs(wide, data):
    X, y = data
    assert wide.n_features_in_ == 2 and wide.model_.output.basis.Z.shape[1] == 5
    paths = wide.flow_paths(X[:7])
    assert paths.shape == (3, 7, 2)
    np.testing.assert_allclose(paths[0], X[:7])
    covariance = wide.mean_covariance(X[:7])
    assert covariance.shape == (7, 2, 2) and (np.linalg.eigvalsh(covariance) > 0).all()
    # In units of X: the second input is thirty times the first.
    assert 100 < np.median(covariance[:, 1, 1] / covariance[:, 0, 0]) < 9000
    assert np.sqrt(np.mean((wide.predict(X) - y) ** 2)) < 0.5 * y.std()


def test_rows_do_not_depend_on_the_rows_beside_them(wide, data):
    np.testing.assert_allclose(wide.predict(data[0][:1]), wide.predict(data[0])[:1], rtol=1e-9)


def test_a_classifier_has_wider_states_too(data):
    X, y = data
    fitted = wf.FlowClassifier(state_dim=4, **SMALL_CLASSES).fit(X, y > 0)
    assert fitted.model_.output.basis.Z.shape[1] == 4
    assert fitted.score(X, y > 0) > 0.75


def test_a_state_holds_all_inputs(data):
    with pytest.raises(OptionError, match=r"state_dim=1 with 2 inputs; .*expected at least 2"):
        wf.FlowRegressor(state_dim=1).fit(*data)


# --- files -----------------------------------------------------------------------------------------


def test_files_keep_the_directions(wide, data, tmp_path):
    wide.save(tmp_path / "wide.safetensors")
    again = wf.load(tmp_path / "wide.safetensors")
    np.testing.assert_array_equal(again.directions_, wide.directions_)
    np.testing.assert_array_equal(again.predict(data[0]), wide.predict(data[0]))


def test_files_from_before_there_were_wider_states(data, tmp_path):
    fitted = wf.FlowRegressor(**SMALL).fit(*data)
    fitted.save(tmp_path / "new.safetensors")
    header, arrays = read_model(tmp_path / "new.safetensors")
    del arrays["directions_"], header["shapes"]["state_dim"], header["parameters"]["state_dim"]
    del header["training"]["state_dim"]
    write_model(tmp_path / "old.safetensors", header, arrays)
    np.testing.assert_array_equal(wf.load(tmp_path / "old.safetensors").predict(data[0]), fitted.predict(data[0]))


# --- the rule as it is -----------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """The rule for 600 rows with hardly any steps: what it decides, not how good it is."""
    rule = presets.fast_preset
    few = {"max_iter": 4, "kl_warmup": 2, "sgp_iter": 40, "warm_iter": 5, "learning_rate": 0.3}
    monkeypatch.setitem(presets.PRESETS, "fast", lambda *n, **w: dataclasses.replace(rule(*n, **w), **few))


def smooth(n):
    X = np.random.default_rng(5).normal(size=(n, 2))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1]


@pytest.mark.slow
def test_a_gp_that_has_all_the_weight_is_that_of_the_inputs(quick, tmp_path):
    """Steps far too long for data without noise: the flow loses, and predictions are near those of a sparse GP."""
    X, y = smooth(600)
    options = {"n_inducing": 20, "random_state": 0}
    with pytest.warns(RuntimeWarning, match="diverged"):
        kept = wf.FlowRegressor(**options).fit(X, y)
    gp = wf.SparseGPRegressor(**options).fit(X, y)
    assert kept.training_.state_dim == 6 and kept.weights_["sparse GP"] > 0.8
    np.testing.assert_allclose(kept.predict(X), gp.predict(X), atol=0.3)
    kept.save(tmp_path / "kept.safetensors")
    np.testing.assert_array_equal(wf.load(tmp_path / "kept.safetensors").predict(X), kept.predict(X))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:training of model .* diverged:RuntimeWarning")
def test_folds_on_both_sides_of_the_limit_are_fitted_together(quick):
    """Of 666 rows some folds of ten have 599 and some 600."""
    X, y = smooth(600)
    options = {"n_inducing": 8, "random_state": 0, "max_iter": 3, "validation_fraction": 0}
    data = [(X[:n], y[:n]) for n in (599, 600)]
    fitted = wf.fit_many([wf.FlowRegressor(**options) for _ in data], data)
    for model, (X, y) in zip(fitted, data, strict=True):
        alone = wf.FlowRegressor(**options).fit(X, y)
        assert model.directions_.shape[1] == (4 if len(X) == 600 else 0)
        np.testing.assert_allclose(model.predict(X[:5]), alone.predict(X[:5]), rtol=1e-10)


def test_each_fit_of_a_call_has_the_rule_of_its_own_size(monkeypatch):
    monkeypatch.setattr("wishflow.numerics.platform.trains_together", lambda n_models: True)
    asked = []

    def stop(problems, n_members, callbacks):
        asked.extend((problem.X.shape[1], problem.training) for problem in problems)
        raise InterruptedError

    monkeypatch.setattr(many, "train_mixtures", stop)
    X, y = smooth(600)
    with pytest.raises(InterruptedError):
        wf.fit_many([wf.FlowRegressor() for _ in range(2)], [(X[:n], y[:n]) for n in (599, 600)])
    assert [width for width, _ in asked] == [2, 6]
    assert [training for _, training in asked] == [wf.FlowRegressor()._training(n, 2) for n in (599, 600)]


@pytest.mark.parametrize(
    "kernel", [wf.kernels.RBF(active_dims=(1,)), wf.kernels.RBF() + wf.kernels.Linear(active_dims=(0,))]
)
def test_a_kernel_that_names_inputs_means_inputs(kernel):
    assert wf.FlowRegressor(kernel=kernel)._training(700, 2).state_dim == 2
    assert wf.FlowRegressor(kernel=kernel, state_dim=4)._training(700, 2).state_dim == 4
    assert wf.FlowRegressor(kernel=wf.kernels.RBF() + wf.kernels.Linear())._training(700, 2).state_dim == 6
    with pytest.raises(OptionError, match=r"active_dims=.* given for 2 inputs"):
        wf.FlowRegressor(kernel=wf.kernels.RBF(active_dims=(3,))).fit(*smooth(600))


def test_a_file_whose_directions_do_not_fit_is_refused(wide, tmp_path):
    wide.save(tmp_path / "wide.safetensors")
    header, arrays = read_model(tmp_path / "wide.safetensors")
    arrays["directions_"] = arrays["directions_"][:, :1]
    write_model(tmp_path / "wrong.safetensors", header, arrays)
    with pytest.raises(ModelFileError, match=r"directions of shape \(2, 1\); expected \(2, 3\)"):
        wf.load(tmp_path / "wrong.safetensors")
    del arrays["directions_"]
    write_model(tmp_path / "without.safetensors", header, arrays)
    with pytest.raises(ModelFileError, match="directions_"):
        wf.load(tmp_path / "without.safetensors")
