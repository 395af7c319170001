"""Fits to Parquet that need not fit into memory."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.errors import DataError, OptionError
from wishflow.regression.presets import fast_preset

pytest.importorskip("pyarrow", reason="Parquet needs the extra parquet")

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from wishflow.numerics.devices import computing
from wishflow.numerics.scaling import Scaler
from wishflow.regression import streams, tables
from wishflow.regression.datasets import problem_of_dataset
from wishflow.regression.streams import RowStream, Scales, windows_of
from wishflow.training import checkpoints

N = 2500


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (N, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=N)
    return pd.DataFrame({"id": [f"r{i}" for i in range(N)], "a": X[:, 0], "b": 5.0 + 3.0 * X[:, 1], "y": 10.0 * y})


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    """Three files with row groups of unequal sizes."""
    path = tmp_path_factory.mktemp("rows")
    for i, (start, stop) in enumerate([(0, 1100), (1100, 1107), (1107, N)]):
        table = pa.Table.from_pandas(frame.iloc[start:stop], preserve_index=False)
        pq.write_table(table, path / f"{i}.parquet", row_group_size=300)
    return path


def stream_of(folder, n_parts=4, batch_rows=30, without=(), seed=0) -> RowStream:
    table = tables.Table.open(folder, ["y"], ["a", "b"])
    same = Scales(Scaler.identity(2), Scaler.identity(1), np.zeros((2, 0)))
    return RowStream(table, same, batch_rows, n_parts, seed, np.asarray(without, int), "")


def rows_of(stream: RowStream, n_chunks: int) -> np.ndarray:
    with computing():
        chunks = [stream.chunk(i * streams.STEPS_PER_CHUNK) for i in range(n_chunks)]
    parts = [np.concatenate([np.asarray(c.X), np.asarray(c.y)], axis=2) for c in chunks]
    return np.concatenate(parts)


def test_one_pass_finds_the_moments_of_all_rows_and_a_sample(folder, frame, monkeypatch):
    monkeypatch.setattr(tables, "SAMPLE_ROWS", 400)
    seen = []
    table = tables.Table.open(folder, ["y"], ["a", "b"])
    found = tables.summary_of(table, 3, lambda y: seen.append(len(y)))
    values, scaler = frame[["a", "b", "y"]].to_numpy(), found.moments.scaler()
    np.testing.assert_allclose(scaler.mean, values.mean(0), rtol=1e-12)
    np.testing.assert_allclose(scaler.scale, values.std(0), rtol=1e-12)
    assert len(found.index) == 400 and sum(seen) == N
    np.testing.assert_array_equal(found.rows, values[found.index])


def test_each_pass_sees_each_row_once_in_a_new_order(folder, frame, monkeypatch):
    monkeypatch.setattr(streams, "SHUFFLED_ROWS", 800)
    without = np.arange(0, 40)
    stream = stream_of(folder, n_parts=4, batch_rows=30, without=without)
    assert stream.batch_rows == 32 and stream.n_rows == N - 40
    rows = rows_of(stream, 2).reshape(200, 4, 8, 3)
    values, bounds = frame[["a", "b", "y"]].to_numpy(), [N * i // 4 for i in range(5)]
    for part in range(4):
        own = values[bounds[part] : bounds[part + 1]]
        own = own[40:] if part == 0 else own
        found = rows[:, part].reshape(-1, 3)
        first, second = found[: len(own)], found[len(own) : 2 * len(own)]
        for once in (first, second):
            np.testing.assert_array_equal(once[np.lexsort(once.T)], own[np.lexsort(own.T)])
        assert (first != second).any(axis=1).mean() > 0.9
        assert (first != own).any(axis=1).mean() > 0.9


def test_a_chunk_is_the_same_whenever_it_is_asked_for(folder):
    through, late = rows_of(stream_of(folder), 3), stream_of(folder)
    with computing():
        chunk = late.chunk(200)
    np.testing.assert_array_equal(np.asarray(chunk.X), through[200:300, :, :2])
    assert not np.array_equal(rows_of(stream_of(folder, seed=1), 1), through[:100])


def test_windows_cut_segments():
    assert list(windows_of([(0, 5, 9), (3, 0, 7)], 5)) == [[(0, 5, 9), (3, 0, 1)], [(3, 1, 6)], [(3, 6, 7)]]


SPEC = dataclasses.replace(fast_preset(N, 2), batch_size=100, batch_counts_paths=False, state_dim=None)


def test_a_sparse_gp_fits_a_folder_as_it_fits_rows_in_memory(folder, frame):
    X, y = frame[["a", "b"]], frame["y"]
    options = {"n_inducing": 15, "max_iter": 300, "preset": dataclasses.replace(SPEC, collapsed=False)}
    stored = wf.SparseGPRegressor(**options).fit_dataset(folder, target="y", columns=["a", "b"])
    memory = wf.SparseGPRegressor(calibrate=None, **options).fit(X, y)
    assert stored.n_features_in_ == 2 and stored.feature_names_in_.tolist() == ["a", "b"]
    assert stored.target_names_ == ["y"] and not stored.is_multi_output_ and len(stored.history_) == 300
    np.testing.assert_allclose(stored.x_scaler_.scale, memory.x_scaler_.scale, rtol=1e-12)
    errors = [np.mean((model.predict(X) - y) ** 2) for model in (stored, memory)]
    assert errors[0] < 1.2 * errors[1]


def test_predictions_are_written_file_by_file(folder, frame, tmp_path):
    model = wf.SparseGPRegressor(n_inducing=10, max_iter=20).fit(frame[["a", "b"]][:200], frame["y"][:200])
    out = model.predict_dataset(pyarrow.dataset.dataset(folder), tmp_path / "out", alpha=[0.1, 0.9], keep=["id"])
    assert sorted(path.name for path in out.iterdir()) == [f"part-{i:06d}.parquet" for i in range(3)]
    found = pd.read_parquet(out)
    assert found.columns.tolist() == ["id", "y_mean", "y_sd", "y_q10", "y_q90"]
    assert found["id"].tolist() == frame["id"].tolist()
    expected = model.predict_frame(frame[["a", "b"]], alpha=[0.1, 0.9])
    np.testing.assert_allclose(found.iloc[:, 1:].to_numpy(), expected.to_numpy(), rtol=1e-9)


def test_predictions_replace_no_data_and_mix_with_no_others(folder, frame, tmp_path):
    model = wf.SparseGPRegressor(n_inducing=5, max_iter=5).fit(frame[["a", "b"]][:100], frame["y"][:100])
    for inside in (folder, folder / "predictions"):
        with pytest.raises(OptionError, match="lies in the source"):
            model.predict_dataset(folder, inside)
    out = model.predict_dataset(folder, tmp_path / "out")
    with pytest.raises(OptionError, match="holds predictions already"):
        model.predict_dataset(folder, out)


def test_filtered_data_are_refused_with_what_to_do(folder):
    data = pyarrow.dataset.dataset(folder).filter(pyarrow.dataset.field("a") > 0.0)
    with pytest.raises(DataError, match="write_dataset"):
        wf.SparseGPRegressor().fit_dataset(data, target="y", columns=["a", "b"])


@pytest.mark.slow
def test_a_flow_holds_rows_of_the_sample_back(folder, frame):
    preset = dataclasses.replace(SPEC, max_iter=60, warm_iter=20, n_train_samples=1)
    model = wf.FlowRegressor(n_inducing=10, diffusion="none", preset=preset)
    model.fit_dataset(folder, target=["y"], columns=["a", "b"], devices=1)
    assert "250 held-back rows" in model.status_ and model.predict(frame[["a", "b"]][:4]).shape == (4, 1)


class Interrupt(wf.callbacks.Callback):
    """Ctrl-C after the second chunk."""

    def on_chunk(self, event):
        if event.step >= 200:
            raise KeyboardInterrupt


def test_a_fit_that_was_interrupted_goes_on(folder, tmp_path, monkeypatch):
    def fitted(**options):
        model = wf.SparseGPRegressor(n_inducing=10, max_iter=300, preset=SPEC, **options)
        return model.fit_dataset(folder, target="y", columns=["a", "b"])

    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        fitted(callbacks=Interrupt(), checkpoint_dir=tmp_path)
    assert list(tmp_path.glob("*/0001-000000100.ckpt"))
    whole, again = fitted(), fitted(checkpoint_dir=tmp_path)
    for a, b in zip(jax.tree.leaves(whole.model_), jax.tree.leaves(again.model_), strict=True):
        np.testing.assert_array_equal(a, b)


def test_other_rows_are_another_fit(tmp_path):
    """Rows outside the sample that scales and inducing points come from count too."""
    n = tables.SAMPLE_ROWS + 3000
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "y": rng.poisson(3.0, n)})
    outside = np.setdiff1d(np.arange(n), tables.sampled(n, 0))

    def name_of(rows):
        rows.to_parquet(tmp_path / "rows.parquet", row_group_size=2000)
        model = wf.SparseGPRegressor(likelihood="poisson", random_state=0)
        return checkpoints.fingerprint(problem_of_dataset(model, tmp_path / "rows.parquet", "y", ["a", "b"], 4))

    first = name_of(rows)
    assert name_of(rows.copy()) == first
    changed = rows.copy()
    changed.loc[outside[7], "y"] += 1
    assert name_of(changed) != first
    swapped = rows.copy()
    other = outside[np.argmax(rows["y"].to_numpy()[outside] != rows["y"].iloc[outside[0]])]
    swapped.loc[[outside[0], other], "y"] = rows.loc[[other, outside[0]], "y"].to_numpy()
    assert name_of(swapped) != first


def bad(**changes):
    return {"target": "y", "columns": ["a", "b"], **changes}


@pytest.mark.parametrize(
    ("options", "fit", "message"),
    [
        ({}, bad(target="z"), "no column 'z'"),
        ({}, bad(columns=["a", "id"]), "'id' is of type"),
        ({}, bad(columns=["a", "y"]), "inputs beside"),
        ({}, bad(n_parts=100), "at least 10000"),
        ({}, bad(n_parts=0), "n_parts"),
        ({"n_members": 2}, bad(), "n_members=2"),
    ],
)
def test_what_cannot_be_fitted_is_refused(folder, options, fit, message):
    with pytest.raises(wf.errors.WishflowError, match=message):
        wf.SparseGPRegressor(**options).fit_dataset(folder, **fit)


def test_missing_values_are_refused_by_their_row(frame, tmp_path):
    rows = frame.copy()
    rows.loc[1234, "b"] = np.nan
    rows.to_parquet(tmp_path / "rows.parquet", row_group_size=500)
    with pytest.raises(wf.errors.DataError, match=r"row 1234 .* column 'b'"):
        wf.SparseGPRegressor().fit_dataset(tmp_path / "rows.parquet", target="y", columns=["a", "b"])
