"""The months after the Beijing comparison: which rows they are, and which fits are taken."""

import json

import numpy as np
import pandas as pd
import pytest

from studies.beijing.protocol import Parts
from studies.benchmarks import beijing_after

STAMPS = pd.date_range("2016-12-28", periods=240, freq="h", tz="Asia/Shanghai")


@pytest.fixture
def frame(monkeypatch):
    frame = pd.DataFrame({"a": np.arange(240.0), "b": 3.0}, index=STAMPS)
    monkeypatch.setattr(beijing_after, "load_beijing", lambda interpolate=False: frame)
    return frame


def made_parts(frame):
    mean, sd = frame.iloc[:60].mean(), pd.Series({"a": 2.0, "b": 5.0})
    train, rest = ((part - mean) / sd for part in (frame.iloc[:60], frame.iloc[60:140]))
    return Parts(train, rest, rest.notna(), mean, sd)


def test_what_was_scored_is_the_past_of_what_comes_after_it(frame):
    parts = made_parts(frame)
    after = beijing_after.parts_after(parts)
    pd.testing.assert_index_equal(after.train.index.append(after.rest.index), STAMPS, exact="equiv")
    pd.testing.assert_frame_equal(after.rest * parts.sd + parts.mean, frame.iloc[140:])
    assert (len(after.rest), after.n_windows) == (100, 2) and after.is_observed.shape == after.rest.shape


@pytest.mark.parametrize(("has_fit", "said"), [(False, "holds no fit"), (True, "holds a fit to 61 rows")])
def test_fits_of_another_run_are_refused(frame, tmp_path, has_fit, said):
    if has_fit:
        (tmp_path / "ensemble.wf").touch()
        (tmp_path / "ensemble.json").write_text(json.dumps({"settings": {"n_rows": 61, "commit": "x"}}))
    with pytest.raises(SystemExit, match=said):
        beijing_after.ensemble_of(tmp_path, made_parts(frame))
