"""Data of users in files of jobs: what comes back is equal to what was given, to the order in memory."""

import numpy as np
import pandas as pd
import pytest

from wishflow.errors import DataError
from wishflow.files.model_file import read_model, write_model
from wishflow.files.tables import from_arrays, to_arrays

STAMPS = pd.date_range("2024-03-30", periods=4, freq="h", tz="Europe/Berlin")
FRAME = pd.DataFrame(np.arange(8.0).reshape(4, 2), STAMPS, ["a", "b"])
MIXED = pd.DataFrame({"x": [1, 2, 3, 4], "y": [0.5, np.nan, 1.0, 2.0], "z": ["a", "b", None, "c"]})


def through_a_file(value, path):
    header, arrays = to_arrays(value)
    write_model(path / "data", {"data": header}, arrays)
    header, arrays = read_model(path / "data")
    return from_arrays(header["data"], arrays)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME,
        FRAME.iloc[[0, 2, 3]],
        FRAME.tz_localize(None).set_axis(pd.date_range("2024-01-02", periods=4, freq="B").as_unit("s")),
        FRAME.set_axis(pd.period_range("2024-01", periods=4, freq="M", name="month")),
        FRAME.set_axis(pd.MultiIndex.from_product([["u", "v"], [1.5, 2.5]], names=["id", None])),
        FRAME.set_axis(pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]), axis=1),
        FRAME.reset_index(drop=True).astype("float32"),
        MIXED,
    ],
)
def test_frames_come_back(frame, tmp_path):
    found = through_a_file(frame, tmp_path)
    pd.testing.assert_frame_equal(found, frame, check_freq=True)
    if len(set(frame.dtypes)) == 1:
        assert found.to_numpy().flags.f_contiguous == frame.to_numpy().flags.f_contiguous
    pd.testing.assert_series_equal(through_a_file(frame.iloc[:, 0], tmp_path), frame.iloc[:, 0])


def test_tuples_dictionaries_and_arrays_come_back(tmp_path):
    X = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    found = through_a_file((X, np.array(["u", "v"]), None, {("a", 1): FRAME, 2: FRAME["a"]}), tmp_path)
    assert found[0].flags.f_contiguous and np.array_equal(found[0], X)
    assert found[1].dtype == "<U1" and found[1].tolist() == ["u", "v"] and found[2] is None
    pd.testing.assert_frame_equal(found[3]["a", 1], FRAME)
    pd.testing.assert_series_equal(found[3][2], FRAME["a"])
    stamps = np.array(["2024-01-01", "NaT"], "datetime64[D]")
    assert np.array_equal(through_a_file(stamps, tmp_path), stamps, equal_nan=True)
    assert np.array_equal(through_a_file([[1, 2], [3, 4]], tmp_path), [[1, 2], [3, 4]])


def test_objects_that_are_no_data_are_refused():
    with pytest.raises(DataError, match="neither a number nor text"):
        to_arrays(np.array([object()]))
