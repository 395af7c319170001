"""Files: the same predictions bit for bit, and nothing of a file is ever run."""

import dataclasses
import json
import subprocess
import sys

import equinox as eqx
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from small import SMALL_GP

import wishflow as wf
from wishflow.errors import ModelFileError
from wishflow.files.model_file import read_model, write_model
from wishflow.likelihoods import Poisson, StudentT
from wishflow.numerics.devices import computing
from wishflow.regression import flow as flow_models
from wishflow.regression import presets, sparse_gp
from wishflow.regression.members import Mixture
from wishflow.regression.specs import FlowSpec, SparseGPSpec
from wishflow.training import Trained

kernels, diffusions = wf.kernels, wf.diffusions
KERNELS = {
    "rbf": "rbf",
    "one lengthscale": kernels.RBF(lengthscale=0.7, ard=False),
    "matern12": "matern12",
    "matern32": "matern32",
    "matern52": kernels.Matern52(variance=2.0),
    "linear": kernels.Linear(ard=True),
    "periodic": kernels.Periodic(period=0.5),
    "sum": kernels.RBF(active_dims=(0,)) + kernels.Linear() + kernels.Matern32(active_dims=(1,)),
    "product": kernels.RBF() * kernels.Periodic(active_dims=(1,)),
    "sum of products": kernels.RBF() * kernels.Linear() + kernels.Matern12(ard=False),
}
DIFFUSIONS = {
    "none": {"diffusion": "none"},
    "gp": {"diffusion": "gp"},
    "diagonal": {"diffusion": diffusions.Diagonal(white=0.3)},
    "wishart": {"rank": 1},
    "wishart, white, free rows": {"diffusion": diffusions.Wishart(rank=None, dof=3, white=0.1, unit_rows=False)},
    "wishart, independent": {"columns": "independent", "time_dependent": True},
    "wishart, pathwise": {"sampling": "pathwise"},
}


def built(estimator, X, y):
    """The estimator as if fitted, with parameters at random: what is stored does not depend on how it was found."""
    problem = estimator._prepare(X, y)
    rng = np.random.default_rng(0)
    with computing():
        Z = rng.normal(size=(7, X.shape[1]))
        base = SparseGPSpec(problem.spec.kernel, problem.spec.likelihood)
        model = sparse_gp.build(base, problem.training, Z, problem.y.shape[1])
        if isinstance(problem.spec, FlowSpec):
            model = flow_models.build(problem.spec, problem.training, model, Z[:5], _key())
        model = _moved(model, rng)
    history = pd.DataFrame({"phase": ["fit"], "step": [0], "objective": [-1.5], "noise": [np.nan]})
    trained = Trained(model, history, 1, "built", problem.spec)
    estimator._accept(Mixture(trained, {"model": [trained]}, {"model": 1.0}, {"model": None}))
    return estimator


def _key():
    import jax

    return jax.random.key(1)


def _moved(model, rng):
    import jax

    def move(path, leaf):
        is_jitter = getattr(path[-1], "name", "") == "jitter"
        return np.asarray(leaf) + (0.0 if is_jitter else 0.1 * rng.normal(size=np.shape(leaf)))

    return jax.tree_util.tree_map_with_path(move, model)


def round_trip(estimator, folder):
    estimator.save(folder / "model")
    return wf.load(folder / "model")


def assert_same_arrays(first, second):
    import jax

    leaves, others = jax.tree.leaves(first.model_), jax.tree.leaves(second.model_)
    assert jax.tree.structure(first.model_) == jax.tree.structure(second.model_)
    for leaf, other in zip(leaves, others, strict=True):
        assert leaf.dtype == other.dtype and np.array_equal(leaf, other)


# --- what comes back -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gp", "flow", "flow_of_two", "classifier"])
def test_everything_learnt_comes_back(name, X, request, tmp_path):
    fitted = request.getfixturevalue(name)
    loaded = round_trip(fitted, tmp_path)
    assert type(loaded) is type(fitted)
    assert loaded.get_params() == fitted.get_params()
    assert_same_arrays(fitted, loaded)
    assert (loaded.spec_, loaded.training_) == (fitted.spec_, fitted.training_)
    pd.testing.assert_frame_equal(loaded.history_, fitted.history_)
    for attribute in ("n_features_in_", "n_iter_", "seed_", "status_"):
        assert getattr(loaded, attribute) == getattr(fitted, attribute)
    assert set(vars(loaded)) == set(vars(fitted))


@pytest.mark.slow
def test_a_flow_that_fell_back_to_the_sparse_gp_comes_back_as_such(X, y, tmp_path, monkeypatch):
    """Its flow time is zero, though the option says one: predictions are those of the sparse GP, before and after."""
    rule = dataclasses.replace(
        presets.fast_preset(len(X), X.shape[1]), max_iter=4, kl_warmup=2, sgp_iter=40, batch_size=64, learning_rate=0.15
    )
    monkeypatch.setitem(presets.PRESETS, "fast", lambda n, d: rule)
    fitted = wf.FlowRegressor(n_inducing=8).fit(X, y)
    assert "sparse GP" in fitted.status_ and fitted.flow_time == 1.0
    gp = wf.SparseGPRegressor(n_inducing=8).fit(X, y)
    np.testing.assert_allclose(fitted.predict(X), gp.predict(X), rtol=1e-9)
    loaded = round_trip(fitted, tmp_path)
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))


@pytest.mark.parametrize("estimator", [wf.SparseGPRegressor(), wf.FlowRegressor(rank=1)], ids=["gp", "flow"])
def test_a_file_that_calls_its_objective_a_bound_loads(estimator, X, y, tmp_path):
    """As those of 0.1 do, whatever it was; of a file that has both, both come back."""
    old = built(estimator, X, y)
    old.history_ = old.history_.rename(columns={"objective": "bound"})
    assert round_trip(old, tmp_path).history_["objective"].tolist() == [-1.5]
    assert "bound" not in round_trip(old, tmp_path).history_
    old.history_ = old.history_.assign(objective=-2.0)
    pd.testing.assert_frame_equal(round_trip(old, tmp_path).history_, old.history_)


def test_predictions_are_bitwise_equal(flow, flow_of_two, X, y, Y, tmp_path):
    for fitted, target in ((flow, y), (flow_of_two, Y)):
        loaded = round_trip(fitted, tmp_path)
        for method in (
            lambda m: m.predict(X, return_std=True),
            lambda m: m.predict(X, return_cov=True)[1],
            lambda m: m.predict_interval(X),
            lambda m, target=target: m.log_prob(X, target),
            lambda m: m.sample_y(X, 3),
        ):
            assert np.array_equal(method(fitted), method(loaded))


@pytest.mark.slow
def test_predictions_are_equal_in_another_process(gp, X, tmp_path):
    gp.save(tmp_path / "model")
    np.save(tmp_path / "X.npy", X)
    code = "import sys, numpy as np, wishflow as wf; a, b, c = sys.argv[1:]; np.save(c, wf.load(a).predict(np.load(b)))"
    files = [str(tmp_path / name) for name in ("model", "X.npy", "p.npy")]
    subprocess.run([sys.executable, "-c", code, *files], check=True, timeout=120)
    # Another process compiles without the options of these tests: equal up to the order of a few additions.
    np.testing.assert_allclose(np.load(files[2]), gp.predict(X), rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel(kernel, X, y, tmp_path):
    model = built(wf.SparseGPRegressor(kernel=KERNELS[kernel]), X, y)
    loaded = round_trip(model, tmp_path)
    assert loaded.kernel == KERNELS[kernel]
    assert_same_arrays(model, loaded)


@pytest.mark.parametrize("kernel", ["rbf", "sum of products"])
@pytest.mark.parametrize("diffusion", DIFFUSIONS)
def test_every_diffusion(diffusion, kernel, X, Y, tmp_path):
    model = built(wf.FlowRegressor(kernel=KERNELS[kernel], **DIFFUSIONS[diffusion]), X, Y)
    loaded = round_trip(model, tmp_path)
    assert loaded.get_params() == model.get_params()
    assert_same_arrays(model, loaded)


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "student_t", StudentT(scale=0.1, dof=9.0)])
def test_every_likelihood(likelihood, X, tmp_path):
    counts = np.arange(len(X)).astype(float)
    model = built(wf.SparseGPRegressor(likelihood=likelihood), X, counts)
    loaded = round_trip(model, tmp_path)
    assert_same_arrays(model, loaded)
    assert loaded.likelihood == likelihood


def test_counts_of_files_without_log_rates_are_predicted_as_before(X, tmp_path):
    """Such a file says nothing of them, neither in its specs nor in its arrays: they are zero."""
    counts = np.arange(len(X)).astype(float)
    model = built(wf.SparseGPRegressor(likelihood=Poisson(log_rate=0.0)), X, counts)
    model.model_ = eqx.tree_at(lambda m: m.likelihood.log_rate, model.model_, np.zeros(1))
    model.save(tmp_path / "model")

    def age(header, arrays):
        del header["spec"]["likelihood"]["log_rate"], arrays["model.likelihood.log_rate"]
        header["parameters"]["likelihood"] = "poisson"

    old = wf.load(rewritten(tmp_path / "model", tmp_path / "old", age))
    assert np.array_equal(old.predict(X), model.predict(X))
    assert np.array_equal(old.log_prob(X, counts), model.log_prob(X, counts))
    assert np.array_equal(round_trip(old, tmp_path).predict(X), model.predict(X))


def test_a_sum_of_kernels_predicts_the_same_bits(X, y, tmp_path):
    model = built(wf.SparseGPRegressor(kernel=KERNELS["sum of products"]), X, y)
    assert np.array_equal(round_trip(model, tmp_path).predict(X), model.predict(X))


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], dtype=object),
        np.array([3, 17]),
        np.array([False, True]),
        np.array([-1.5, 2.5, 7.0]).astype(np.float32).round(),
        np.array([1, 2, 3], dtype=np.uint8),
    ],
    ids=lambda c: f"{c.dtype}",
)
def test_classes_keep_their_type(classes, X, tmp_path):
    labels = np.resize(classes, len(X))
    model = built(wf.FlowClassifier(diffusion="none"), X, labels)
    loaded = round_trip(model, tmp_path)
    assert loaded.classes_.dtype == model.classes_.dtype
    assert np.array_equal(loaded.classes_, classes)


def test_names_of_columns_are_kept(X, y, tmp_path):
    model = built(wf.SparseGPRegressor(), pd.DataFrame(X, columns=["größe", "b.c"]), y)
    assert round_trip(model, tmp_path).feature_names_in_.tolist() == ["größe", "b.c"]


def test_what_cannot_be_stored_is_left_out(X, y, tmp_path):
    """Callbacks, schedules and generators are no part of what was learnt."""
    import optax

    options = {"callbacks": wf.callbacks.EarlyStop(), "random_state": np.random.RandomState(3)}
    model = built(wf.FlowRegressor(learning_rate=optax.constant_schedule(0.1), **options), X, y)
    loaded = round_trip(model, tmp_path)
    assert loaded.callbacks is loaded.learning_rate is loaded.random_state is None
    assert loaded.seed_ == model.seed_ != 0


def test_numpy_numbers_as_options(X, y, tmp_path):
    model = built(wf.SparseGPRegressor(n_inducing=np.int64(7), learning_rate=np.float32(0.5)), X, y)
    assert round_trip(model, tmp_path).get_params() == model.get_params()


# --- files that are refused ------------------------------------------------------------------


class Surprise(wf.SparseGPRegressor):
    """A class of a user's own."""

    calls = 0

    def __init__(self, n_inducing=100, kernel="rbf", likelihood="gaussian", preset="fast", max_iter=None,
                 batch_size=None, learning_rate=None, random_state=None, callbacks=None, verbose=0):  # fmt: skip
        super().__init__(n_inducing, kernel, likelihood, preset, max_iter, batch_size, learning_rate, random_state,
                         callbacks, verbose)  # fmt: skip
        Surprise.calls += 1


def test_classes_of_others_only_where_they_are_passed(X, y, tmp_path):
    model = built(Surprise(**SMALL_GP), X, y)
    model.save(tmp_path / "model")
    before = Surprise.calls
    with pytest.raises(ModelFileError, match=r"holds a 'Surprise'.*custom=\{'Surprise': YourClass\}"):
        wf.load(tmp_path / "model")
    assert Surprise.calls == before
    loaded = wf.load(tmp_path / "model", custom={"Surprise": Surprise})
    assert type(loaded) is Surprise
    assert_same_arrays(model, loaded)


def rewritten(source, target, change):
    """A file with a valid checksum whose header was changed."""
    header, arrays = read_model(source)
    change(header, arrays)
    write_model(target, header, arrays)
    return target


@pytest.mark.parametrize(
    "change",
    [
        lambda h, a: h.pop("class"),
        lambda h, a: h.update({"class": "os.system"}),
        lambda h, a: h.update({"class": ["SparseGPRegressor"]}),
        lambda h, a: h.pop("parameters"),
        lambda h, a: h["parameters"].update(unknown=3),
        lambda h, a: h["parameters"].update(kernel={"kind": "Popen", "args": ["true"]}),
        lambda h, a: h["spec"].update(kind="TrainingSpec"),
        lambda h, a: h["spec"].update(kernel={"kind": "RBF", "lengthscale": -1.0}),
        lambda h, a: h["spec"].update(kernel={"kind": "RBF", "shape": 3}),
        lambda h, a: h["shapes"].update(n_inducing=3),
        lambda h, a: h["shapes"].update(n_inducing="many"),
        lambda h, a: h["attributes"].pop("n_features_in_"),
        lambda h, a: h.update(history_columns=["phase", "other"]),
        lambda h, a: h.update(history_phases=[]),
        lambda h, a: a.pop("x_scaler_.mean"),
        lambda h, a: a.pop("model.output.basis.Z"),
        lambda h, a: a.update({"model.extra": np.ones(2)}),
    ],
)
def test_headers_that_describe_no_model(change, gp, tmp_path):
    gp.save(tmp_path / "model")
    with pytest.raises(ModelFileError):
        wf.load(rewritten(tmp_path / "model", tmp_path / "other", change))


def test_attributes_of_a_header_cannot_replace_methods(gp, X, tmp_path):
    gp.save(tmp_path / "model")
    other = rewritten(tmp_path / "model", tmp_path / "other", lambda h, a: h["attributes"].update(predict="no"))
    assert np.array_equal(wf.load(other).predict(X), gp.predict(X))


def test_damaged_files(gp, tmp_path):
    gp.save(tmp_path / "model")
    content = (tmp_path / "model").read_bytes()
    damaged = {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "flipped": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        "pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        "other": safetensors.numpy.save({"a": np.ones(2)}),
    }
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ModelFileError, match=name):
            wf.load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="no model file"):
        wf.load(tmp_path / "nowhere")


def test_files_hold_versions_and_no_code(gp, tmp_path):
    gp.save(tmp_path / "model")
    header, arrays = read_model(tmp_path / "model")
    assert header["class"] == "SparseGPRegressor"
    assert header["file"]["versions"]["jax"]
    json.dumps(header)
    assert all(array.dtype.kind in "fiu" for array in arrays.values())


def test_saving_over_a_file_that_cannot_be_written_keeps_it(gp, tmp_path, monkeypatch):
    gp.save(tmp_path / "model")
    before = (tmp_path / "model").read_bytes()
    monkeypatch.setattr(gp, "status_", object())
    with pytest.raises((ModelFileError, TypeError)):
        gp.save(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == before
