"""The UCI suite: what is run and what is skipped, tables against other routes to their numbers, the page."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import json
import re
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import typer
from rich.console import Console
from typer.testing import CliRunner

import wishflow as wf
from studies import progress, report
from studies import provenance as provenance_module
from studies.selection import chosen
from studies.uci import figures, pages, paper, reproduce, tables, training
from studies.uci.__main__ import main as command
from studies.uci.results import SCORES, cell_path, is_finished, read_result, read_results
from studies.uci.suite import DATA, MODELS, Cell, cells
from wishflow import metrics
from wishflow.callbacks import ChunkEvent
from wishflow.datasets import load_uci
from wishflow.errors import DatasetError, OptionError
from wishflow.files.json import plain, write_json_atomic
from wishflow.regression import presets

N_SPLITS = 20
SETTINGS = {"preset": "fast", "n_splits": N_SPLITS}
BOTH_PRESETS = [pytest.param(name, marks=[] if name == "fast" else pytest.mark.long) for name in presets.PRESETS]
SOURCE = {"command": "python -m studies.uci", "commit": "0" * 40, "device": "none", "versions": {"jax": "0"}}


def made_scores(data: str, model: str) -> dict[str, np.ndarray]:
    """Scores of 20 splits that differ from cell to cell; those of SGP and of the flows share what the splits do."""
    rng = np.random.default_rng([DATA.index(data), list(MODELS).index(model)])
    shared = np.random.default_rng(DATA.index(data)).normal(size=N_SPLITS)
    return {name: shared + 0.5 * rng.normal(size=N_SPLITS) for name in SCORES}


def write_cell(folder, data, model, scores=None, **changes):
    scores = made_scores(data, model) if scores is None else scores
    rows = [{name: values[s] for name, values in scores.items()} for s in range(len(scores["rmse"]))]
    result = {"data": data, "model": model, "settings": SETTINGS, "splits": rows, "fit_seconds": 60.0}
    path = cell_path(folder, Cell(data, model))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, {**result, **training.summary(rows), "provenance": SOURCE, **changes})
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of the whole grid but for two cells; in a third, one split is not finite."""
    folder = tmp_path_factory.mktemp("results")
    for data in DATA:
        for model in MODELS:
            if (data, model) not in [("power", "diffwgp10"), ("protein", "sgp")]:
                write_cell(folder, data, model)
    broken = made_scores("naval", "nonoise")
    broken["log_density"][3] = np.nan
    write_cell(folder, "naval", "nonoise", broken)
    return folder


@pytest.fixture(scope="module")
def results(folder):
    return read_results(folder, "fast")


# --- what is asked for -----------------------------------------------------------------------


def test_names_come_repeated_or_with_commas_and_in_the_order_of_the_suite():
    assert chosen("data", ["power, boston", "naval"], DATA) == ["boston", "naval", "power"]
    assert chosen("data", [], DATA) == list(DATA)
    assert [cell.model for cell in cells(["boston"], ["sgp", "diffgp"], "fast", 3)] == ["sgp", "diffgp"]


def test_settings_of_a_cell_follow_the_preset_and_the_number_of_splits():
    cell = Cell("boston", "diffwgp10")
    settings = cell.settings(506, 13)
    assert settings["options"]["rank"] == 10
    assert settings["rule"] == presets.fast_preset(456, 13).to_json()
    assert settings != dataclasses.replace(cell, preset="paper").settings(506, 13)
    assert settings != dataclasses.replace(cell, n_splits=5).settings(506, 13)
    assert json.loads(json.dumps(settings)) == settings


def test_a_result_of_more_splits_holds_those_of_fewer(tmp_path):
    cell = Cell("boston", "sgp")
    more, fewer = (dataclasses.replace(cell, n_splits=n).settings(506, 13) for n in (N_SPLITS, 5))
    write_cell(tmp_path, "boston", "sgp", settings=more)
    assert is_finished(tmp_path, cell, more) and is_finished(tmp_path, cell, fewer)
    assert not is_finished(tmp_path, cell, dataclasses.replace(cell, n_splits=N_SPLITS + 1).settings(506, 13))
    changed = {**fewer, "rule": {**fewer["rule"], "sgp_iter": 7}}
    assert not is_finished(tmp_path, cell, changed)


def test_a_result_of_sgp_does_not_hang_on_settings_of_flows(monkeypatch):
    cell, flow = Cell("boston", "sgp"), Cell("boston", "diffwgp5")
    before = cell.settings(506, 13), flow.settings(506, 13)
    rule = presets.fast_preset

    def changed(**changes):
        monkeypatch.setitem(presets.PRESETS, "fast", lambda n, d: dataclasses.replace(rule(n, d), **changes))
        return cell.settings(506, 13), flow.settings(506, 13)

    sgp, wgp = changed(n_steps=7, batch_size=11)
    assert sgp == before[0] and wgp != before[1]
    assert changed(noise_variance=0.3)[0] != before[0]
    assert changed(batch_size=11, collapsed_limit=100)[0] != changed(batch_size=12, collapsed_limit=100)[0]


# --- which cells are run ---------------------------------------------------------------------


@pytest.fixture
def runs(monkeypatch):
    """The cells that are trained, none of them really: five rows of data, scores that are made up."""
    done = []

    def run_cell(cell, data, group, callbacks):
        done.append((cell.data, cell.model))
        if cell.model == "diffgp":
            raise MemoryError("too many splits at once")
        rows = [dict.fromkeys((*SCORES, "objective"), 1.0)] * cell.n_splits
        settings = cell.settings(*data.X.shape)
        return {
            "data": cell.data,
            "model": cell.model,
            "settings": settings,
            "splits": rows,
            "fit_seconds": 1.0,
            **training.summary(rows),
            "provenance": SOURCE,
        }

    data = wf.datasets.Dataset("made", np.zeros((50, 2)), np.zeros(50), ("a", "b"), "y", "")
    monkeypatch.setattr(reproduce, "load", lambda name: data)
    monkeypatch.setattr(reproduce, "run_cell", run_cell)
    return done


SOME = [Cell("boston", "sgp", n_splits=2), Cell("boston", "nonoise", n_splits=2)]
KEYS = [(cell.data, cell.model) for cell in SOME]


def test_finished_cells_are_skipped_and_others_are_not(tmp_path, runs, capsys):
    assert reproduce.run_cells(tmp_path, SOME) == 0
    assert runs == KEYS
    assert reproduce.run_cells(tmp_path, SOME) == 0
    assert runs == KEYS
    assert "2 of 2 cells are done already" in capsys.readouterr().out
    cell_path(tmp_path, SOME[0]).unlink()
    reproduce.run_cells(tmp_path, SOME)
    assert runs == [*KEYS, KEYS[0]]


@pytest.mark.parametrize("change", ["cut", "empty", "one split less", "a score less", "no JSON object"])
def test_a_broken_or_partial_file_is_no_result(tmp_path, runs, change):
    reproduce.run_cells(tmp_path, SOME[:1])
    path = cell_path(tmp_path, SOME[0])
    text, content = path.read_text(), json.loads(path.read_text())
    if change == "one split less":
        content["splits"].pop()
    if change == "a score less":
        del content["splits"][0]["crps"]
    path.write_text(
        {"cut": text[: len(text) // 2], "empty": "", "no JSON object": "[]"}.get(change, json.dumps(content))
    )
    assert read_result(path) is None
    reproduce.run_cells(tmp_path, SOME[:1])
    assert runs == KEYS[:1] * 2
    assert path.read_text() == text


def test_other_settings_are_another_result(tmp_path, runs, monkeypatch):
    reproduce.run_cells(tmp_path, SOME[:1])
    reproduce.run_cells(tmp_path, [dataclasses.replace(SOME[0], n_splits=3)])
    assert len(runs) == 2
    rule = presets.fast_preset
    monkeypatch.setitem(presets.PRESETS, "fast", lambda n, d: dataclasses.replace(rule(n, d), sgp_iter=7))
    assert not is_finished(tmp_path, SOME[0], SOME[0].settings(50, 2))


def test_a_result_stands_for_what_it_did_not_know_yet(tmp_path):
    """An option that came later and is None says nothing; one that says something is another result, as a rule is."""
    cell = Cell("concrete", "diffwgp5")
    settings = cell.settings(1030, 8)
    assert settings["options"]["state_dim"] is None and settings["rule"]["state_dim"] == 12
    older = {"options": dict(settings["options"]), "rule": dict(settings["rule"])}
    del older["options"]["state_dim"]

    def is_found(**changes):
        write_cell(tmp_path, cell.data, cell.model, settings=plain({**settings, **older, **changes}))
        return is_finished(tmp_path, cell, settings)

    assert is_found()
    assert not is_found(options={**settings["options"], "state_dim": 5})
    del older["rule"]["state_dim"]  # made with the inputs as the state
    assert not is_found()


def test_a_cell_that_fails_leaves_the_others_alone(tmp_path, runs, capsys):
    asked = [Cell("boston", model, n_splits=2) for model in ("sgp", "diffgp", "diffwgp5")]
    assert reproduce.run_cells(tmp_path, asked) == 1
    assert len(runs) == 3
    assert "failed: MemoryError: too many splits at once" in capsys.readouterr().out
    assert sorted(path.stem for path in tmp_path.rglob("*.json")) == ["boston-diffwgp5", "boston-sgp"]


def test_cells_side_by_side_are_the_same_cells(tmp_path, runs, monkeypatch, capsys):
    """A failure is reported and harms no other; what is done is skipped."""
    monkeypatch.setattr(reproduce, "pool", ThreadPoolExecutor)
    asked = [Cell("boston", model, n_splits=2) for model in ("sgp", "diffgp", "diffwgp5")]

    def run(name, n_processes):
        assert reproduce.run_cells(tmp_path / name, asked, n_processes=n_processes) == 1
        assert "failed: MemoryError: too many splits at once" in capsys.readouterr().out
        found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / name).rglob("*.json")}
        return {key: {**result, "provenance": None} for key, result in found.items()}

    assert run("alone", 1) == run("beside", 3)
    assert len(runs) == 6
    assert reproduce.run_cells(tmp_path / "beside", asked[:1], n_processes=3) == 0
    assert len(runs) == 6


def test_of_cells_side_by_side_the_longest_start_first(runs, monkeypatch):
    """One worker takes them in the order in which they were handed in."""
    monkeypatch.setattr(reproduce, "pool", lambda n: ThreadPoolExecutor(1))
    cells_of = [Cell("boston", model, n_splits=2) for model in ("sgp", "diffwgp5", "nonoise")]
    list(
        reproduce._side_by_side(dict(zip(cells_of, (1.0, 3.0, 2.0), strict=True)), None, SuiteProgressOfNone(), 1, None)
    )
    assert runs == [("boston", "diffwgp5"), ("boston", "nonoise"), ("boston", "sgp")]


def test_a_process_that_dies_costs_no_other_cell(runs, monkeypatch):
    """The first pool breaks; what it had not done is done by a second. Where that breaks too, it is reported."""

    class Breaking(ThreadPoolExecutor):
        n_breaks = 0

        def submit(self, *arguments):
            if Breaking.n_breaks > 0:
                Breaking.n_breaks -= 1
                future = Future()
                future.set_exception(BrokenProcessPool("a child process terminated abruptly"))
                return future
            return super().submit(*arguments)

    monkeypatch.setattr(reproduce, "pool", Breaking)
    work = {cell: 1.0 for cell in SOME}

    def results(n_breaks):
        Breaking.n_breaks = n_breaks
        return dict(reproduce._side_by_side(work, None, SuiteProgressOfNone(), 2, None))

    assert [results(2)[cell]["model"] for cell in SOME] == [cell.model for cell in SOME]
    texts = results(4)
    assert all("terminated abruptly" in texts[cell] and "fewer --processes" in texts[cell] for cell in SOME)


def test_who_starts_processes_asks_for_no_device(tmp_path, runs, monkeypatch):
    monkeypatch.setattr(reproduce, "pool", ThreadPoolExecutor)
    monkeypatch.setattr(reproduce, "on_accelerator", lambda: pytest.fail("the device was asked for"))
    assert reproduce.run_cells(tmp_path, SOME, n_processes=2) == 0


class SuiteProgressOfNone:
    """Nobody watches."""

    def begin(self, cell):
        pass


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Ray forks, which JAX warns of
def test_processes_of_their_own_find_the_same_numbers(tmp_path):
    """Training has its own seeds, so who does it does not matter."""
    try:
        load_uci("boston")
    except DatasetError as missing:
        pytest.skip(str(missing))
    asked = [Cell("boston", "sgp", n_splits=1)]
    ways = {"alone": {}, "beside": {"n_processes": 2}}
    ways |= {"ray": {"backend": "ray"}} if importlib.util.find_spec("ray") else {}
    for name, options in ways.items():
        assert reproduce.run_cells(tmp_path / name, asked, **options) == 0
    for cell in asked:
        alone, *others = (read_result(cell_path(tmp_path / name, cell)) for name in ways)
        for other in others:
            assert alone["splits"] == other["splits"]
            assert alone["provenance"]["command"] == other["provenance"]["command"]


def test_the_exit_code_tells_of_failures_and_the_page_is_written_all_the_same(tmp_path, runs, monkeypatch, capsys):
    monkeypatch.setattr(figures, "SCORES", {})  # drawn in other tests
    assert reproduce.main(tmp_path, data=["boston"], models=["diffgp"], n_splits=2) == 1
    assert "40 of 40 cells are missing" in capsys.readouterr().out
    assert (tmp_path / "fast" / "index.html").exists()
    assert reproduce.main(tmp_path, data=["boston"], models=["sgp"], n_splits=2) == 0
    assert re.search("data +SGP +No noise.*\n *boston +1.000", capsys.readouterr().out)


# --- training and scores ---------------------------------------------------------------------


class Guess:
    """A stand-in for a model: a mixture of two normals whatever x; it knows how many rows it was fitted to."""

    n_iter_, status_ = 3, "converged"
    training_ = presets.fast_preset(10, 2)

    def predict_components(self, X, return_weights=False):
        assert return_weights
        means = np.stack([X[:, 0] - 1.0, X[:, 0] + 2.0])
        return means, np.stack([np.full(len(X), 0.5), np.full(len(X), 2.0)]), np.array([0.5, 0.5])

    @property
    def history_(self):
        return pd.DataFrame({"objective": [-1.0, -2.0], "noise": [0.3, 0.2]})


def test_scores_of_a_mixture_agree_with_other_routes():
    rng = np.random.default_rng(0)
    y = rng.normal(size=40)
    means, stds = rng.normal(size=(6, 40)), rng.uniform(0.3, 1.5, size=(6, 40))
    counts = np.array([1, 2, 3, 1, 2, 1])
    means, stds, weights = np.repeat(means, 10, axis=0), np.repeat(stds, 10, axis=0), np.repeat(counts / 100.0, 10)
    scores = training.score_mixture(y, means, stds**2, weights)
    density = scipy.stats.norm(means, stds).pdf(y)
    assert scores["log_density"] == pytest.approx(np.log(weights @ density).mean())
    assert scores["mean_log_density_of_paths"] == pytest.approx((weights @ np.log(density)).mean())
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((y - weights @ means) ** 2)))
    repeats = np.repeat(counts, 10) * 120
    draws = rng.normal(np.repeat(means, repeats, axis=0), np.repeat(stds, repeats, axis=0))
    assert scores["crps"] == pytest.approx(metrics.crps_samples(y, draws).mean(), abs=0.01)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    assert scores["coverage_95"] == pytest.approx(metrics.coverage(y, low, high), abs=0.026)


@pytest.mark.parametrize(("group", "sizes"), [(None, [5]), (2, [2, 2, 1])])
def test_splits_are_trained_in_groups_and_scored_in_their_order(monkeypatch, group, sizes):
    seen = []

    def fit_many(estimators, data, callbacks):
        seen.append(len(data))
        assert callbacks == "callbacks"
        return estimators

    monkeypatch.setattr(wf, "fit_many", fit_many)
    X, y = np.arange(100.0)[:, None], np.arange(100.0)
    rows = [training.split_rows(100, s) for s in range(5)]
    result = training.run_splits(Guess, X, y, rows, group=group, callbacks="callbacks")
    assert seen == sizes
    assert len(result["splits"]) == len(result["n_iter"]) == 5
    assert result["splits"][0]["rmse"] == pytest.approx(0.5)
    assert result["mean"]["objective"] == -1.5 and result["sd"]["noise"] == 0.0


def test_validation_reads_no_test_row():
    train, test = training.split_rows(200, 3)
    fitted, held = training.split_rows(200, 3, is_validation=True)
    assert set(fitted) | set(held) == set(train)
    assert not set(test) & set(held)


def test_a_result_says_where_it_comes_from(monkeypatch):
    monkeypatch.setenv("WISHFLOW_COMMIT", "abc")
    made = provenance_module.provenance()
    assert made["commit"] == "abc"
    assert made["versions"]["jax"] and made["device"].endswith("(cpu)")


# --- tables ----------------------------------------------------------------------------------


def test_the_paper_has_a_number_or_none_for_every_cell_of_its_tables():
    for score in ("mean_log_density_of_paths", "rmse"):
        found = {(data, model): paper.printed_score(score, data, model) for data in DATA for model in MODELS}
        absent = {key for key, pair in found.items() if pair is None and key[1] != "sgp"}
        assert absent == {("naval", "nonoise"), ("power", "diffwgp10")}
    assert paper.printed_score("mean_log_density_of_paths", "boston", "diffwgp5") == ("-3.1014", "0.8984")
    assert paper.printed_score("crps", "boston", "diffgp") is None
    assert paper.printed_p_value("diffwgp5", "diffgp", "concrete") == "0.0348"
    assert all(paper.printed_p_value("diffgp", "sgp", data) for data in DATA)


def test_scores_are_means_and_deviations_over_the_splits(results):
    frame = tables.score_frame(results).set_index(["data", "model", "score"])
    assert len(frame) == len(DATA) * len(MODELS) * len(SCORES)
    for key, row in frame.iterrows():
        data, model, score = key
        if (data, model) in results and key != ("naval", "nonoise", "log_density"):
            values = made_scores(data, model)[score]
            assert row["mean"] == pytest.approx(sum(values) / N_SPLITS)
            assert row["sd"] == pytest.approx(np.sqrt(sum((values - values.mean()) ** 2) / (N_SPLITS - 1)))
    assert frame.loc[("boston", "diffgp", "rmse"), "paper_mean"] == "2.9628"
    assert np.isnan(frame.loc[("naval", "nonoise", "log_density"), "mean"])
    assert np.isnan(frame.loc[("protein", "sgp", "rmse"), "mean"])


def test_what_is_missing_is_said_and_never_guessed(results):
    table = tables.score_table(results).set_index(["data", "model"])
    ours = [name for name in tables.SCORE_NAMES.values()]
    assert (table.loc[("protein", "SGP"), ours] == "missing").all()
    assert table.loc[("naval", "No noise"), "log density, mixture"] == "not finite"
    assert table.loc[("power", "diffWGP, ρ = 10"), "RMSE in the paper"] == "–"
    assert tables.missing_cells(results) == [("power", "diffwgp10"), ("protein", "sgp")]
    tests = tables.wilcoxon_table(results, "log_density").set_index("data")
    assert tests.loc["protein", "diffGP vs. SGP: p"] == "missing"
    assert tests.loc["protein", "diffWGP vs. diffGP: p"] != "missing"


def test_the_overview_has_the_highest_mean_in_bold_and_the_best_of_the_paper(results):
    table = tables.overview_table(results).set_index("data")
    labels = [model.label for model in MODELS.values()]
    for data in DATA:
        found = {MODELS[m].label: made_scores(data, m)["log_density"].mean() for m in MODELS if (data, m) in results}
        found.pop("No noise" if data == "naval" else "", None)  # not finite there
        best = max(found, key=lambda label: found[label])
        assert [label for label in labels if table.loc[data, label].startswith("**")] == [best]
    assert table.loc["protein", "SGP"] == "missing"
    assert table.loc["protein", tables.BEST_NAME] == "-2.7678 (No noise)"
    assert table.loc["naval", tables.BEST_NAME] == "8.2736 (diffWGP, ρ = 5)"


def test_p_values_are_those_of_scipy_on_the_raw_scores(results):
    frame = tables.wilcoxon_frame(results)
    assert len(frame) == 2 * 3 * len(DATA)
    for row in frame.itertuples():
        if row.data == "protein" and row.second == "sgp":
            assert np.isnan(row.p) and row.n_splits == 0
            continue
        difference = made_scores(row.data, row.first)[row.score] - made_scores(row.data, row.second)[row.score]
        assert row.p == pytest.approx(scipy.stats.wilcoxon(difference, alternative="greater").pvalue)
        assert row.n_splits == N_SPLITS


def test_p_is_small_where_the_first_model_is_better():
    """One of the 2²⁰ equally likely signs of the ranks is as extreme as all of them positive."""
    worse, gain = np.random.default_rng(0).normal(size=20), np.linspace(0.1, 0.2, 20)
    assert tables.wilcoxon_p(worse + gain, worse) == pytest.approx(2.0**-20)
    assert tables.wilcoxon_p(worse, worse + gain) == pytest.approx(1.0)
    assert tables.wilcoxon_p(worse, worse) == 1.0
    assert np.isnan(tables.wilcoxon_p(np.append(worse, np.nan), np.append(worse, 0.0)))


def test_holm_by_hand():
    """Sorted .01 .02 .03 .04 become 4 × .01, 3 × .02, then 2 × .03 and 1 × .04, which may not fall below .06."""
    np.testing.assert_allclose(tables.holm([0.03, 0.01, 0.04, 0.02]), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(tables.holm([0.5, np.nan, 0.01, 0.8]), [1.0, np.nan, 0.03, 1.0])


def test_cells_with_fewer_splits_are_compared_on_those_both_have(tmp_path):
    short = {name: values[:8] for name, values in made_scores("boston", "diffgp").items()}
    write_cell(tmp_path, "boston", "diffgp", short, settings={"n_splits": 8})
    write_cell(tmp_path, "boston", "sgp")
    frame = tables.wilcoxon_frame(read_results(tmp_path, "fast")).set_index(["score", "first", "second", "data"])
    row = frame.loc[("log_density", "diffgp", "sgp", "boston")]
    other = made_scores("boston", "sgp")["log_density"][:8]
    assert row["n_splits"] == 8
    assert row["p"] == pytest.approx(scipy.stats.wilcoxon(short["log_density"], other, alternative="greater").pvalue)


# --- figures and pages -----------------------------------------------------------------------


def test_differences_are_taken_split_by_split(results):
    values = figures.differences(results, "boston", "rmse")
    assert list(values) == ["nonoise", "diffgp", "diffwgp5", "diffwgp10"]
    expected = made_scores("boston", "diffgp")["rmse"] - made_scores("boston", "sgp")["rmse"]
    np.testing.assert_allclose(values["diffgp"], expected)
    assert all(group is None for group in figures.differences(results, "protein", "rmse").values())


def test_a_model_far_from_the_others_is_cut_off_and_the_others_are_not():
    rng = np.random.default_rng(0)
    near = [0.1 * rng.normal(size=20) + shift for shift in (0.0, 0.1, 0.2)]
    low, high = figures.view_limits([*near, -1440.0 + 500.0 * rng.normal(size=20)])
    assert low < min(map(np.min, near)) < 0.0 < max(map(np.max, near)) < high
    assert low > -5.0
    assert figures.view_limits([]) is None
    assert figures.view_limits([np.zeros(3)]) == (-1.0, 1.0)
    # Differences that are nothing are not blown up to the size of the panel.
    low, high = figures.view_limits([1e-9 * rng.normal(size=20)], least=0.5)
    assert low < -0.5 and high > 0.5


@pytest.fixture(scope="module")
def page(folder):
    """The page, and all that is written beside it; with one score drawn, to save time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "SCORES", {"rmse": figures.SCORES["rmse"]})
        return pages.write_outputs(folder, "fast")


def test_everything_a_reader_wants_is_written(page):
    names = {path.name for path in page.parent.iterdir()}
    assert {"index.html", "scores.csv", "wilcoxon.csv", "tables.md", "rmse.png", "rmse.svg", "cells"} == names
    assert (page.parent / "rmse.png").read_bytes().startswith(b"\x89PNG")


def test_files_hold_the_tables(page, results):
    read = pd.read_csv(page.parent / "wilcoxon.csv", keep_default_na=False, na_values={"p": [""], "p_holm": [""]})
    pd.testing.assert_frame_equal(read, tables.wilcoxon_frame(results))
    text = (page.parent / "tables.md").read_text()
    assert report.markdown_table(tables.score_table(results)) in text
    for score in tables.LOG_SCORES:
        assert report.markdown_table(tables.wilcoxon_table(results, score)) in text


def test_the_page_holds_every_table_and_figure(page, results):
    text = page.read_text()
    wanted = [tables.score_table(results, data) for data in DATA]
    wanted += [tables.wilcoxon_table(results, score) for score in tables.LOG_SCORES]
    for table in [*wanted, tables.overview_table(results)]:
        assert report.html_table(table) in text
    assert text.count("<img ") == len(DATA)
    assert "2 of 40 cells have no result yet" in text
    assert SOURCE["command"] in text


def test_the_page_needs_nothing_but_itself(page):
    text = page.read_text()
    assert "<script" not in text and "@import" not in text and "url(" not in text
    assert all(source.startswith("data:") for source in re.findall(r'(?:src|href)="([^"]*)"', text))
    assert not re.search(r"https?://", text)
    assert 'name="viewport"' in text


def test_cells_made_side_by_side_count_once():
    def made(date, seconds):
        return {"fit_seconds": seconds - 10.0, "score_seconds": 10.0, "provenance": {"date": date}}

    # 12:00 to 12:04 and 12:01 to 12:03 overlap; 12:05 to 12:06 is apart, and an hour of UTC + 1 is the same time.
    cells = [made("2026-01-01T12:04:00+00:00", 240.0), made("2026-01-01T12:03:00+00:00", 120.0)]
    cells += [made("2026-01-01T13:06:00+01:00", 60.0)]
    assert pages.minutes_in_use(cells) == pytest.approx(5.0)
    assert pages.minutes_in_use([*cells, {"fit_seconds": 30.0, "provenance": {}}]) == pytest.approx(5.5)


def test_the_page_says_what_it_took_and_where_a_flow_was_not_kept(tmp_path):
    gpu = {**SOURCE, "device": "made (gpu)"}
    write_cell(
        tmp_path,
        "naval",
        "nonoise",
        status=["reached max_iter; the flow was kept (…)", "converged; the sparse GP was kept (…)"],
        score_seconds=30.0,
    )
    write_cell(tmp_path, "naval", "diffgp", provenance=gpu)
    settings = {**SETTINGS, "options": {"n_predict_samples": 100}}
    write_cell(tmp_path, "boston", "diffgp", provenance=gpu, settings=settings)
    text = pages.markdown(read_results(tmp_path, "fast"), "fast")
    assert (
        "made (gpu): 40 fits, 2.0 minutes of training and 0.0 of scoring; the device was in use for 2.0 minutes."
        in text
    )
    assert "none: 20 fits, 1.0 minutes of training and 0.5 of scoring; the device was in use for 1.5 minutes." in text
    assert "On some splits of these SGP was kept: naval (No noise)." in text
    assert "fewer than 1000 paths, by an older run: boston (diffGP)." in text
    assert "**37 of 40 cells have no result yet:** boston (SGP, No noise, diffWGP ρ = 5, diffWGP ρ = 10); " in text


def test_the_same_results_give_the_same_files(results):
    figure = [report.svg(figures.panel_figure(results, "boston", "rmse")) for _ in range(2)]
    assert figure[0] == figure[1]
    assert pages.markdown(results, "fast") == pages.markdown(results, "fast")


def test_text_of_a_table_is_text_on_the_page():
    table = pd.DataFrame({"p": ["**<0.0001**", "a|b"]})
    assert "<td><b>&lt;0.0001</b></td>" in report.html_table(table)
    assert report.markdown_table(table).splitlines()[-1] == "| a\\|b |"


# --- progress --------------------------------------------------------------------------------


def event(step, index=0, phase="flow"):
    return ChunkEvent(phase, step, 10, {"objective": np.array([-1.0])}, 1.0, index, 2)


def test_a_log_file_gets_one_plain_line_for_each_cell():
    text = io.StringIO()
    shown = progress.SuiteProgress({cell: 1.0 for cell in SOME}, Console(file=text, width=200))
    for cell in SOME:
        shown.begin(cell)
        shown.on_chunk(event(10))
        shown.on_end()
        result = {"mean": {"log_density": -2.5}, "sd": {"log_density": 0.25}, "fit_seconds": 61.0}
        shown.finish(reproduce.result_text(result))
    shown.close()
    lines = text.getvalue().splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        "[1 of 2] boston, SGP: log density -2.500 ± 0.250, 1:01 to train",
        "[2 of 2] boston, No noise: log density -2.500 ± 0.250, 1:01 to train",
    ]
    assert lines[1].endswith("about 0:00 left")


@pytest.mark.parametrize("order", [[(5, 0), (10, 0), (5, 1), (10, 1)], [(5, 0), (5, 1), (10, 0), (10, 1)]])
def test_the_bar_moves_with_models_one_after_another_or_side_by_side(order):
    shown = progress.SuiteProgress(
        {SOME[0]: 3.0, SOME[1]: 1.0}, Console(file=io.StringIO(), force_terminal=True, width=200)
    )
    shown.begin(SOME[0])
    shown.on_chunk(event(10, phase="output"))
    ticks = []
    for step, index in order:
        shown.on_chunk(event(step, index))
        ticks.append(shown.ticks)
    shown.close()
    assert ticks == [187, 375, 562, 750]


def test_time_left_goes_by_the_work_left(monkeypatch):
    shown = progress.SuiteProgress({SOME[0]: 3.0, SOME[1]: 1.0}, Console(file=io.StringIO()))
    assert np.isnan(shown.left())
    monkeypatch.setattr(progress.time, "perf_counter", lambda: shown.started + 60.0)
    shown.begin(SOME[0])
    shown.fail(progress.error_text(ValueError("no")))
    assert shown.left() == pytest.approx(20.0)


# --- the command -----------------------------------------------------------------------------


def invoke(*arguments):
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def test_the_command_passes_its_options_on(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(reproduce, "main", lambda output, **options: calls.append((output, options)) or 3)
    given = ("--data", "boston,power", "--data", "naval", "--models", "sgp", "--splits", 5, "--preset", "paper")
    result = invoke(*given, "--group", 2, "--processes", 3, "--output", tmp_path, "--report-only")
    assert result.exit_code == 3
    assert calls == [
        (
            tmp_path,
            {
                "data": ["boston,power", "naval"],
                "models": ["sgp"],
                "n_splits": 5,
                "preset": "paper",
                "group": 2,
                "n_processes": 3,
                "backend": None,
                "is_report_only": True,
            },
        )
    ]


def test_help_names_the_options():
    text = invoke("--help").output
    names = ("data", "models", "splits", "preset", "group", "processes", "output", "report-only")
    assert all(f"--{name}" in text for name in names)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--data", "bosten"), ["data='bosten'", *map(repr, DATA)]),
        (("--models", "sgp,diffwgp"), ["models='diffwgp'", *map(repr, MODELS)]),
        (("--preset", "slow"), ["preset='slow'", "'fast'", "'paper'"]),
        (("--report-only",), ["no results of preset 'fast'", "run it first"]),
    ],
)
def test_the_command_says_what_came_and_what_is_allowed(tmp_path, arguments, words):
    result = invoke("--output", tmp_path / "none", *arguments)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("arguments", [("--splits", 0), ("--group", 0)])
def test_numbers_below_one_are_refused(arguments):
    assert invoke(*arguments).exit_code == 2


def test_main_refuses_names_that_are_not_known(tmp_path):
    with pytest.raises(OptionError, match="'boston'"):
        reproduce.main(tmp_path, data=["housing"])


@pytest.fixture
def brief(monkeypatch):
    """Both presets with a few iterations; figures are drawn in other tests."""
    for name, rule in dict(presets.PRESETS).items():
        monkeypatch.setitem(
            presets.PRESETS,
            name,
            lambda n, d, rule=rule: dataclasses.replace(rule(n, d), max_iter=3, sgp_iter=3, warm_iter=3),
        )
    monkeypatch.setattr(figures, "SCORES", {})


@pytest.mark.slow
@pytest.mark.parametrize("preset", BOTH_PRESETS)
def test_boston_from_the_command_to_the_page(tmp_path, brief, preset):
    """Two splits and a few iterations, twice: the second time nothing is trained."""
    try:
        load_uci("boston")
    except DatasetError as error:
        pytest.skip(f"the data are not here: {error}")
    arguments = ("--data", "boston", "--models", "sgp,diffwgp5", "--splits", 2, "--group", 1, "--output", tmp_path)
    arguments += ("--preset", preset)
    first = invoke(*arguments)
    assert first.exit_code == 0, first.output
    assert "38 of 40 cells are missing" in first.output
    results = read_results(tmp_path, preset)
    assert sorted(results) == [("boston", "diffwgp5"), ("boston", "sgp")]
    for result in results.values():
        assert all(np.isfinite(list(row.values())).all() for row in result["splits"])
        assert result["provenance"]["commit"] and result["training"]["max_iter"] == 3
    again = invoke(*arguments)
    assert "2 of 2 cells are done already" in again.output
    assert read_results(tmp_path, preset) == results
    assert [path.name for path in tmp_path.iterdir()] == [preset]
    assert (tmp_path / preset / "index.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("preset", BOTH_PRESETS)
@pytest.mark.filterwarnings("ignore:training of model .* diverged:RuntimeWarning")
def test_every_model_is_finite_on_data_like_naval(tmp_path, brief, monkeypatch, preset):
    """Constant inputs, equal inputs, inputs on a grid and next to no noise: the paper has no number of No noise."""
    rng = np.random.default_rng(0)
    speed = rng.integers(1, 10, size=(300, 1)) / 3.0
    X = np.hstack([speed, speed, np.full((300, 2), 288.0), rng.normal(size=(300, 2)) + speed])
    y = 0.97 + 0.01 * np.tanh(X[:, 4] - X[:, 5]) + 1e-6 * rng.normal(size=300)
    data = wf.datasets.Dataset("made", X, y, tuple("abcdef"), "y", "")
    monkeypatch.setattr(reproduce, "load", lambda name: data)
    assert reproduce.main(tmp_path, data=["naval"], n_splits=1, preset=preset) == 0
    results = read_results(tmp_path, preset)
    assert list(results) == [("naval", model) for model in MODELS]
    for key, result in results.items():
        assert all(np.isfinite(list(row.values())).all() for row in result["splits"]), key
