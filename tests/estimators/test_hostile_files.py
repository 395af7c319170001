"""Model files of strangers: one clear error, whatever they hold, and no memory beyond what their size justifies."""

import contextlib
import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from test_storage import rewritten

import wishflow as wf
from wishflow import specs
from wishflow.errors import ModelFileError, OptionError, WishflowError
from wishflow.files.model_file import read_model, write_model
from wishflow.files.trust import check_counts
from wishflow.series import DynamicsSpec

pytestmark = pytest.mark.usefixtures("types_unchecked")
TIMES = pd.date_range("2024-01-01", periods=60, freq="h")
SERIES = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)).cumsum(axis=0), TIMES, ["a", "b"])


@pytest.fixture(scope="module")
def files(gp, flow, classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    series = wf.WishartForecaster(max_iter=3, n_inducing=6, rank=1, validation_fraction=0).fit(SERIES)
    inner = wf.WishartForecaster(lags=1, max_iter=3, n_inducing=5, rank=1, validation_fraction=0)
    noise = np.random.default_rng(1).normal(size=(60, 6))
    rows = pd.DataFrame(SERIES[["a"]].to_numpy() + noise, TIMES.tz_localize("UTC"), list("abcdef"))
    wide = wf.WideForecaster(n_factors=1, own_lags=1, forecaster=inner).fit(rows)
    members = wf.SparseGPRegressor(n_inducing=5, max_iter=3, n_members=2).fit(noise[:, :1], noise[:, 1])
    models = {"gp": gp, "flow": flow, "classifier": classifier, "members": members, "series": series, "wide": wide}
    for name, model in models.items():
        model.save(folder / name)
    return folder


def deep(depth):
    return {"kind": "Sum", "parts": [deep(depth - 1)]} if depth else {"kind": "RBF"}


def filled(name, value):
    def change(header, arrays):
        arrays[name] = arrays[name].copy()
        arrays[name].flat[0] = value

    return change


def retyped_level(header, arrays):
    name = "y_scaler.mean" if "y_scaler.mean" in arrays else "y_scaler_.mean"
    arrays[name] = np.full(arrays[name].shape, np.nan, np.complex64)


def widened(n_columns, **spec):
    """A series of many columns, each array of which fits the header, but for those of the model."""

    def change(header, arrays):
        header["columns"] = [f"c{i}" for i in range(n_columns)]
        header["typical_values"] = [1.0] * n_columns
        header["spec"].update(spec)
        for name in ("y_scaler.mean", "y_scaler.scale"):
            arrays[name] = np.ones(n_columns)
        for name in [name for name in arrays if name.endswith(".values")]:
            arrays[name] = np.zeros((len(arrays[name]), n_columns))

    return change


def independent(rank, dof):
    """A flow in many dimensions whose noise has a posterior for each entry of J."""

    def change(header, arrays):
        header["shapes"]["state_dim"] = rank
        header["spec"]["diffusion"].update(rank=rank, dof=dof, columns="independent")

    return change


def retyped(name):
    return lambda header, arrays: arrays.update({name: arrays[name].astype(np.complex64)})


def repeated(name):
    return lambda header, arrays: arrays.update({name: np.concatenate([arrays[name][:1], arrays[name]])})


def horizons(n, n_scales, order=1):
    """Factors of a recalibration of two columns."""
    return {"calibration.horizons": np.arange(1.0, n + 1)[::order], "calibration.scales": np.ones((n_scales, 2))}


def column(name):
    return lambda header, arrays: arrays.update({name: np.zeros(3)})


CHANGES = {
    "nested kernels": (("gp", "flow", "series"), lambda h, a: h["spec"].update(kernel=deep(100))),
    "nested options": (("gp", "flow"), lambda h, a: h["parameters"].update(kernel=deep(100))),
    "many inducing points": (("gp", "flow"), lambda h, a: h["shapes"].update(n_inducing=100_000)),
    "many points of a series": (("series",), lambda h, a: h.update(n_inducing=100_000)),
    "a wide state": (("gp", "flow"), lambda h, a: h["shapes"].update(state_dim=10**9)),
    "many targets": (("gp", "flow"), lambda h, a: h["shapes"].update(n_targets=10**9)),
    "many classes": (
        ("classifier",),
        lambda h, a: h["spec"].update(likelihood={"kind": "Categorical", "n_classes": 10**9}),
    ),
    "a high rank": (("flow", "series"), lambda h, a: h["spec"]["diffusion"].update(rank=10**8)),
    "many lags": (("series",), lambda h, a: h["spec"].update(lags=10**9)),
    "a latent state": (("series",), lambda h, a: h["spec"].update(latent={"kind": "Latent", "dim": 10**7})),
    "many columns and many lags": (("series",), widened(300, lags=300)),
    "a high rank and many degrees of freedom": (("flow",), independent(300, 1000)),
    "many paths": (("flow",), lambda h, a: h["parameters"].update(n_predict_samples=10**9)),
    "a point that is NaN": (("gp", "flow"), filled("model.output.basis.Z", np.nan)),
    "an infinite mean": (("gp", "flow"), filled("model.output.posterior.mean", np.inf)),
    "a mean beyond all bounds": (("gp", "flow"), filled("model.output.posterior.mean", 1e300)),
    "a scale of zero": (("gp", "flow"), filled("y_scaler_.scale", 0.0)),
    "a negative scale": (("series",), filled("y_scaler.scale", -1.0)),
    "a scale of another length": (("gp", "flow"), column("y_scaler_.scale")),
    "scales of another length": (("series",), column("y_scaler.mean")),
    "one name too many": (("gp",), lambda h, a: h["names"].update(features=["a", "b", "c"])),
    "names that are numbers": (("gp",), lambda h, a: h["names"].update(targets=[1])),
    "classes twice": (("classifier",), lambda h, a: h["names"].update(classes=["high", "high"])),
    "a third class": (("classifier",), lambda h, a: h["names"].update(classes=["a", "b", "c"])),
    "a negative jitter": (("gp", "flow"), filled("model.output.basis.jitter", -1.0)),
    "no typical value": (("series",), lambda h, a: h.update(typical_values=[1.0])),
    "a typical value of zero": (("series",), lambda h, a: h.update(typical_values=[1.0, 0.0])),
    "a typical value beyond all bounds": (("series",), lambda h, a: h.update(typical_values=[1.0, 1e308])),
    "a typical value as text": (("series",), lambda h, a: h.update(typical_values=[1.0, "1"])),
    "an unknown period": (("series",), lambda h, a: h.update(periods=["fortnight"])),
    "a key that is not there": (("series",), lambda h, a: h.update(keys=["x"])),
    "no member at all": (("series",), lambda h, a: h.update(members=[])),
    "infinite rows": (("series",), filled("tail.0.values", np.inf)),
    "rows out of order": (("series",), filled("tail.0.index", 2**62)),
    "rows of another length": (("series",), column("tail.0.index")),
    "no unit of time": (("series",), lambda h, a: h["axis"].update(unit=0.0)),
    "lags inside a list": (("series",), lambda h, a: h["spec"].update(lags=[[1], 2])),
    "lags out of order": (("series",), lambda h, a: h["spec"].update(lags=[1, 3, 2])),
    "a gap that is text": (("series",), lambda h, a: h["spec"].update(max_gap="x")),
    "a gap that is a list": (("series",), lambda h, a: h["spec"].update(max_gap=[1, 2])),
    "a step of next to nothing": (("series",), lambda h, a: h["spec"].update(step=1e-300)),
    "a step that takes for ever": (("series",), lambda h, a: h["spec"].update(step=1e-7)),
    "a hole of many small steps": (
        ("series",),
        lambda h, a: (
            h["spec"].update(step=1e-3, max_gap=1e12),
            a.update({"tail.0.index": a["tail.0.index"] + (10**17 * (np.arange(len(a["tail.0.index"])) > 0))}),
        ),
    ),
    "a unit of next to nothing": (
        ("series",),
        lambda h, a: (h["axis"].update(unit=1e-9 * h["axis"]["unit"]), h["spec"].update(max_gap=1e12)),
    ),
    "limits of other columns": (("series",), lambda h, a: a.update(limits=np.zeros((2, 7)))),
    "limits the wrong way": (("series",), lambda h, a: a.update(limits=np.array([[1.0, 1.0], [0.0, 0.0]]))),
    "limits that are no numbers": (("series",), lambda h, a: a.update(limits=np.full((2, 2), np.nan))),
    "complex levels of targets": (("gp", "flow", "series"), retyped_level),
    "paths without end": (
        ("flow",),
        lambda h, a: (h["spec"].update(n_steps=10**5), h["parameters"].update(n_predict_samples=10**5)),
    ),
    "a step of nothing": (("series",), lambda h, a: h["spec"].update(step=0.0)),
    "no value to start from": (("series",), lambda h, a: a["tail.0.values"].fill(np.nan)),
    "horizons of another number": (("series",), lambda h, a: a.update(horizons(3, 2))),
    "horizons out of order": (("series",), lambda h, a: a.update(horizons(2, 2, -1))),
    "many points beside an empty array": (
        ("gp",),
        lambda h, a: (h["shapes"].update(n_inducing=10**6), a.update({"history.x": np.zeros((0, 10**9))})),
    ),
    "endless steps": (("flow",), lambda h, a: h["spec"].update(n_steps=10**12)),
    "an index without names": (("series",), lambda h, a: h.update(index_names=[])),
    "factors that are a panel": (("wide",), lambda h, a: h["factors"]["flags"].update(is_panel=True)),
    "factors with covariates": (("wide",), lambda h, a: h["factors"].update(x_columns=[])),
    "factors of other names": (("wide",), lambda h, a: h["factors"].update(columns=["x"])),
    "factors of another time zone": (("wide",), lambda h, a: h["index"].update(zone="Asia/Tokyo")),
    "own lags beyond all rows": (("wide",), lambda h, a: h.update(own_lags=[10**30])),
    "own lags beyond the rows": (
        ("wide",),
        lambda h, a: (h.update(own_lags=[1, 10**30]), repeated("own.weights")(h, a)),
    ),
    "own weights that explode": (("wide",), filled("own.weights", 1.5)),
    "own weights beyond all bounds": (("wide",), lambda h, a: a.update({"own.weights": 1e200 + a["own.weights"]})),
    "complex loadings": (("wide",), retyped("loadings.V")),
    "complex levels": (("wide",), retyped("loadings.mean")),
    "complex rows": (("wide",), retyped("tail.values")),
    "factors without variance": (("wide",), filled("loadings.variance", 0.0)),
    "a posterior beyond all bounds": (("gp", "flow"), filled("model.output.posterior.sqrt.raw", 1e30)),
    "a candidate has no members": (("members",), lambda h, a: h["members"][0].update(n_members=0)),
    "a row of no length": (("flow",), lambda h, a: a["model.field.noise.scale.raw"].fill(1e-300)),
    "no word about targets": (("gp", "flow"), lambda h, a: h["attributes"].pop("is_multi_output_")),
    "a period more": (("series",), lambda h, a: h["periods"].append("week")),
    "a seed that is text": (("gp", "series"), lambda h, a: h["attributes"].update(seed_="x")),
}
# The files have some ten kilobytes.
MOST_BYTES = 50_000_000
CASES = [(kind, name) for name, (kinds, _) in CHANGES.items() for kind in kinds]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_file_that_contradicts_itself_is_refused(kind, name, files, tmp_path):
    path = rewritten(files / kind, tmp_path / "changed", CHANGES[name][1])
    with at_most(MOST_BYTES), pytest.raises(ModelFileError):
        wf.load(path)


@contextlib.contextmanager
def at_most(n_bytes):
    """Arrays of NumPy take no more memory inside, at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n_bytes, f"{peak / 1e6:.0f} MB"


def test_memory_of_large_arrays_is_seen():
    with pytest.raises(AssertionError, match="MB"), at_most(MOST_BYTES):
        np.zeros(2 * MOST_BYTES // 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (widened(300, lags=300), "the linear drift would have 27000000 numbers"),
        (independent(300, 1000), "rank × dof would have 300000 numbers"),
    ],
)
def test_products_of_usual_counts_are_bounded(change, message, files, tmp_path):
    kind = "series" if "linear" in message else "flow"
    with pytest.raises(ModelFileError, match=message):
        wf.load(rewritten(files / kind, tmp_path / "changed", change))


def test_an_empty_array_raises_no_limit():
    """It may have any length, and takes no room in the file."""
    with pytest.raises(ModelFileError, match="n_inducing=1000000"):
        check_counts({"n_inducing": 10**6}, {"empty": np.zeros((0, 10**9))})
    check_counts({"n_inducing": 10**6}, {"full": np.zeros(10**6, bool)})


@pytest.mark.parametrize("shape", [(10**9, 0), (0, 10**9)])
def test_empty_arrays_of_great_length_are_refused_before_anything_is_done_with_them(shape, tmp_path):
    write_model(tmp_path / "model", {}, {"empty": np.zeros(shape), "other": np.zeros(3)})
    with pytest.raises(ModelFileError, match="no entries"):
        read_model(tmp_path / "model")
    write_model(tmp_path / "model", {}, {"empty": np.zeros((3, 0))})
    assert read_model(tmp_path / "model")[1]["empty"].shape == (3, 0)


@pytest.mark.parametrize(
    "fields", [{"max_gap": float("inf")}, {"max_gap": "x"}, {"lags": (1.0, 2)}, {"kernel": "rbf"}, {"step": True}]
)
def test_fields_of_specs_have_the_types_of_their_annotations(fields):
    with pytest.raises(OptionError, match="of DynamicsSpec is a"):
        specs.from_json({"kind": DynamicsSpec.__name__, **fields})
    assert specs.from_json({"kind": DynamicsSpec.__name__, "max_gap": 24, "lags": [1, 3]}).lags == (1, 3)


def test_attributes_of_a_forecaster_are_those_that_are_known(files, tmp_path):
    change = lambda h, a: h["attributes"].update(predict="no", model_=3)  # noqa: E731
    loaded = wf.load(rewritten(files / "series", tmp_path / "changed", change))
    assert "predict" not in vars(loaded) and loaded.predict(2).shape == (2, 2)


@pytest.mark.parametrize("kind", ["gp", "flow", "classifier", "series", "wide"])
def test_what_files_do_not_hold_is_not_read_from_them(kind, files, tmp_path):
    """A refit would send rows to a backend, or write to a folder, that a stranger chose."""
    said = {"backend": "slurm", "checkpoint_dir": "/tmp/x", "backend_params": {"a": 1}, "callbacks": [1]}
    change = lambda h, a: (h if kind == "wide" else {"forecaster": h["parameters"]})["forecaster"].update(said)  # noqa: E731
    loaded = wf.load(rewritten(files / kind, tmp_path / "changed", change))
    options = (loaded.forecaster if kind == "wide" else loaded).get_params(deep=False)
    assert not any(options[name] for name in said)


def test_a_version_of_many_digits(files, tmp_path):
    import safetensors.numpy

    content = safetensors.numpy.save({"x": np.zeros(1)}, {"format": "wishflow-model", "format_version": "9" * 5000})
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ModelFileError, match="format version"):
        wf.load(tmp_path / "x")


VALUES = [None, True, -1, 0, 1, 7, 10**6, 10**12, 1e308, -0.5, "x", "", [], {}, [[]], {"kind": "RBF"}, "Ω" * 50]


def mutated(value, rng):
    """The value with one entry, somewhere inside, replaced by another or taken out."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = list(value)[rng.integers(len(value))]
        if rng.random() < 0.05:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutated(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        i = int(rng.integers(len(value)))
        return [*value[:i], mutated(value[i], rng), *value[i + 1 :]]
    return VALUES[rng.integers(len(VALUES))]


def mutated_arrays(arrays, rng):
    name = list(arrays)[rng.integers(len(arrays))]
    array = arrays[name].copy()
    kind = rng.integers(5)
    if kind == 0:
        return {key: value for key, value in arrays.items() if key != name}
    if kind == 1:
        return {**arrays, name: array[:-1] if array.ndim else np.zeros(2)}
    if kind == 2:
        return {**arrays, name: array.astype(np.float32 if array.dtype != np.float32 else np.int64)}
    if array.size:
        array.flat[rng.integers(array.size)] = (
            rng.choice([np.nan, np.inf, 1e308, -1e20, 0.0, -1.0]) if array.dtype.kind == "f" else 0
        )
    return {**arrays, name: array}


@pytest.mark.parametrize("kind", ["gp", "flow", "classifier", "series", "wide"])
def test_mutated_files_with_a_right_checksum(kind, files, tmp_path, X):
    """A sample with a fixed seed: an error of ours, or a model that gives finite numbers."""
    header, arrays = read_model(files / kind)
    rng, n_loaded = np.random.default_rng(0), 0
    for i in range(60):
        changed = json.loads(json.dumps(header))
        others = arrays
        if i % 2:
            changed = mutated(changed, rng)
        else:
            others = mutated_arrays(arrays, rng)
        if not isinstance(changed, dict):
            continue
        write_model(tmp_path / "changed", changed, others)
        try:
            model = wf.load(tmp_path / "changed")
            n_loaded += 1
            found = (
                model.predict(3)
                if kind in ("series", "wide")
                else model.predict_proba(X)
                if kind == "classifier"
                else model.predict(X)
            )
        except WishflowError:
            continue
        assert np.isfinite(np.asarray(found, float)).all(), changed
    assert n_loaded > 5
