"""The benchmark of members: groups of splits are added to what a file holds."""

import json

import numpy as np
import pytest

import wishflow as wf
from studies.benchmarks import uci_members
from wishflow.datasets import Dataset


@pytest.fixture
def quick(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    monkeypatch.setattr(uci_members, "load", lambda name: Dataset(name, X, y, ("a", "b"), "y", ""))
    made = wf.FlowRegressor(n_members=2, max_iter=2, n_inducing=5, n_steps=2, n_predict_samples=4, random_state=0)
    monkeypatch.setitem(uci_members.MODELS, "members", lambda: made)


def test_a_run_is_continued_where_it_ended(quick, tmp_path):
    file = tmp_path / "found.json"
    options = ["--data", "boston", "--models", "members", "--output", str(file)]
    uci_members.main([*options, "--splits", "1"])
    first = json.loads(file.read_text())["boston, members"]
    uci_members.main([*options, "--splits", "3", "--group", "1"])
    found = json.loads(file.read_text())["boston, members"]
    assert len(found["splits"]) == 3 and found["splits"][0] == first["splits"][0]
    assert found["mean"]["rmse"] == pytest.approx(np.mean([row["rmse"] for row in found["splits"]]))
    shares = [found["mean"][f"weight of {name}"] for name in uci_members.CANDIDATES]
    assert sum(shares) == pytest.approx(1.0)
