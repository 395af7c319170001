"""Programs, files and objects that other tools read."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import wishflow as wf
from wishflow.callbacks import ChunkEvent
from wishflow.series.forecast import Forecast

QUICK = {"n_inducing": 8, "max_iter": 10, "random_state": 0}
FLOW = {**QUICK, "n_steps": 2, "n_predict_samples": 4}

# What a user of the file would write; `wishflow` must not be needed.
READER = """
import sys
import jax.export
import numpy as np

program = jax.export.deserialize(open(sys.argv[1], "rb").read())
X = np.load(sys.argv[2])
for rows in (X, X[:3]):
    mean, sd = program.call(rows)
np.savez(sys.argv[3], *map(np.asarray, program.call(X)))
assert "wishflow" not in sys.modules and "equinox" not in sys.modules
"""


def data(n=200):
    """Rows whose errors are wide on one side, so that laws are recalibrated by input."""
    rng = np.random.default_rng(0)
    X = rng.normal([100.0, -3.0], [20.0, 0.1], (n, 2)).astype(np.float32)
    return X, 5.0 * X[:, 0] + np.where(X[:, 0] > 100.0, 10.0, 0.5) * rng.normal(size=n)


def run_program(folder, model, X):
    model.export(folder / "program.bin")
    np.save(folder / "X.npy", X)
    paths = [str(folder / name) for name in ("program.bin", "X.npy", "out.npz")]
    subprocess.run([sys.executable, "-c", READER, *paths], check=True, timeout=120)
    with np.load(folder / "out.npz") as found:
        return found["arr_0"], found["arr_1"]


@pytest.mark.parametrize(
    "model",
    [wf.SparseGPRegressor(**QUICK), wf.FlowRegressor(n_members=2, **FLOW)],
    ids=["sparse GP", "members"],
)
def test_an_exported_program_predicts_without_the_package(model, tmp_path):
    pytest.importorskip("flatbuffers")
    X, y = data()
    model.fit(X, y)
    laws = model.calibration_.values() if hasattr(model, "members_") else [model.calibration_]
    assert any(law is not None and law.log_scale is not None for law in laws)
    mean, sd = run_program(tmp_path, model, X)
    expected = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(sd[:, 0], expected[1], rtol=1e-4)


def test_an_exported_classifier_gives_probabilities(tmp_path):
    pytest.importorskip("flatbuffers")
    X, y = data()
    model = wf.FlowClassifier(**FLOW).fit(X, y > 500.0)
    mean, _ = run_program(tmp_path, model, X)
    np.testing.assert_allclose(mean[:, 0], model.predict_proba(X)[:, 1], rtol=1e-4, atol=1e-6)


def test_tensorboard_reads_every_step(tmp_path):
    pytest.importorskip("tensorboardX")
    log = wf.callbacks.TensorBoardLog(tmp_path)
    X, y = data()
    model = wf.SparseGPRegressor(callbacks=[log], **QUICK).fit(X, y)
    pickle.loads(pickle.dumps(log))
    # Chunks that end within one second have files of their own.
    for step in (2, 4, 6):
        log.on_chunk(ChunkEvent("late", step, 6, {"objective": np.array([1.0, 2.0])}, 0.1))
    events = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    # A record names its tag, in plain letters.
    assert events.count(b"/objective") == len(model.history_) + 6


def forecast(index, columns=("a", "b")):
    samples = np.random.default_rng(0).normal(size=(20, len(index), len(columns)))
    return Forecast(samples, index, pd.Index(columns))


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2024-03-30", periods=4, freq="12h", tz="Europe/Paris"),
        pd.date_range("2024-01-01", periods=4, freq="D"),
        pd.period_range("2024-01", periods=4, freq="M"),
        pd.RangeIndex(4),
    ],
    ids=["time zone", "days", "periods", "numbers"],
)
def test_forecasts_are_written_to_netcdf_and_read_back(index, tmp_path):
    made = forecast(index)
    made.to_xarray().to_netcdf(tmp_path / "f.nc", engine="scipy")
    with xr.open_dataset(tmp_path / "f.nc", engine="scipy") as found:
        np.testing.assert_array_equal(found["forecast"], made.samples.values)
        assert list(found["variable"].values) == ["a", "b"]
        stamps = pd.Index(found["time"].values)
        if "time_zone" in found.attrs:
            stamps = stamps.tz_localize("UTC").tz_convert(found.attrs["time_zone"])
        if "period" in found.attrs:
            stamps = stamps.to_period(found.attrs["period"])
        assert list(stamps) == list(index)


def test_arviz_has_the_draws_as_one_chain():
    pytest.importorskip("arviz")
    made = forecast(pd.date_range("2024-01-01", periods=4, freq="h", tz="UTC"))
    found = made.to_arviz()["posterior_predictive"]["forecast"]
    assert found.dims == ("chain", "draw", "time", "variable") and found.shape == (1, 20, 4, 2)
    np.testing.assert_array_equal(found.values[0], made.samples.values)
