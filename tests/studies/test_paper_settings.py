"""The paper's settings in pieces: a run that is stopped and started again has the scores of one that is not."""

import dataclasses
import json

import numpy as np
import pytest

from studies.benchmarks import paper_settings
from studies.benchmarks.tables import reproduction
from studies.uci.paper import printed_score
from wishflow.datasets import Dataset
from wishflow.regression import presets


@pytest.fixture
def small(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    data = Dataset("boston", X, X[:, 0] + 0.1 * rng.normal(size=60), ("a", "b"), "y", "")
    rule = presets.paper_preset
    few = {"max_iter": 250, "warm_iter": 120, "sgp_iter": 120, "n_steps": 2, "n_train_samples": 1, "kl_warmup": 10}
    monkeypatch.setattr(paper_settings, "load", lambda name: data)
    monkeypatch.setitem(presets.PRESETS, "paper", lambda n, d, s=None: dataclasses.replace(rule(n, d, s), **few))
    for name, model in paper_settings.MODELS.items():
        options = {"n_inducing": 5} if name == "sgp" else {"n_inducing": 5, "n_predict_samples": 4}
        made = dataclasses.replace(model, make=lambda make=model.make, o=options, **more: make(**{**o, **more}))
        monkeypatch.setitem(paper_settings.MODELS, name, made)


def test_pieces_end_where_one_run_ends(small, tmp_path):
    whole, pieces = tmp_path / "whole.json", tmp_path / "pieces.json"
    options = ["--data", "boston", "--model", "diffwgp5", "--splits", "2"]
    assert paper_settings.main([*options, "--output", str(whole), "--checkpoints", str(tmp_path / "a")]) == 0
    stopped = [*options, "--output", str(pieces), "--checkpoints", str(tmp_path / "b")]
    codes = [paper_settings.main([*stopped, "--minutes", "1e-4"]) for _ in range(3)]
    assert codes == [paper_settings.UNFINISHED] * 3 and not pieces.exists()
    assert paper_settings.main(stopped) == 0
    expected, found = (json.loads(path.read_text())["boston, diffwgp5"] for path in (whole, pieces))
    assert found["splits"] == expected["splits"] and found["n_iter"] == expected["n_iter"] == [370, 370]
    assert found["pieces"] == 4 and expected["pieces"] == 1
    assert not list((tmp_path / "b").rglob("*.ckpt")), "checkpoints of a finished cell are removed"


def test_what_is_done_with_these_settings_is_not_trained_again(small, tmp_path, monkeypatch, capsys):
    file = tmp_path / "found.json"
    options = ["--data", "boston", "--model", "sgp", "--splits", "1", "--output", str(file)]
    options += ["--checkpoints", str(tmp_path / "c")]
    assert paper_settings.main(options) == 0
    monkeypatch.setattr(paper_settings, "piece", lambda *_: pytest.fail("it was trained again"))
    assert paper_settings.main(options) == 0
    assert "0 of 1 cells are left" in capsys.readouterr().out


def test_results_older_than_an_option_count():
    cell = paper_settings.Cell("boston", "diffgp", "paper", 5)
    settings = json.loads(json.dumps(cell.settings(455, 13)))
    older = json.loads(json.dumps(settings))
    del older["options"]["hyperprior"], older["rule"]["hyperprior"]
    assert paper_settings.is_made_with(older, settings)
    settings["rule"]["hyperprior"] = True
    assert not paper_settings.is_made_with(older, settings)
    assert not paper_settings.is_made_with({**older, "n_splits": 4}, older)
    assert not paper_settings.is_made_with({}, settings)


def test_a_cell_that_fails_is_named_and_left(small, tmp_path, monkeypatch, capsys):
    def broken(*_, **__):
        raise ValueError("no such thing")

    monkeypatch.setattr(paper_settings, "run_splits", broken)
    options = ["--data", "boston", "--model", "sgp", "--output", str(tmp_path / "x"), "--checkpoints", str(tmp_path)]
    assert paper_settings.main(options) == paper_settings.UNFINISHED
    assert "boston, sgp: ValueError: no such thing" in capsys.readouterr().out


def test_the_table_has_the_printed_means_and_the_distance_to_them():
    splits = [{"mean_log_density_of_paths": -2.0, "rmse": 3.0}, {"mean_log_density_of_paths": -2.2, "rmse": 3.2}]
    result = {"data": "boston", "model": "diffwgp5", "splits": splits}
    row = reproduction.paper_settings_row(result, "mean_log_density_of_paths")
    mean, sd = (float(text) for text in printed_score("mean_log_density_of_paths", "boston", "diffwgp5"))
    assert row["here"] == "-2.1000 ± 0.1414" and row["in the paper"] == f"{mean:.4f} ± {sd:.4f}"
    assert float(row["in its deviations"]) == pytest.approx((-2.1 - mean) / sd, abs=0.01)
    assert reproduction.paper_settings_row({**result, "model": "sgp"}, "rmse")["difference"] == reproduction.NO_NUMBER
