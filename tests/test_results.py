"""Nothing in the tables is typed by hand."""

import itertools
import json
import re
import shutil

import numpy as np
import pytest

from studies.beijing.results import read_result
from studies.benchmarks import coverage, document_figures, levers, reproduction, tables
from studies.provenance import command
from studies.uci.results import SCORES, split_scores
from studies.uci.suite import DATA, MODELS
from wishflow.files.json import write_json_atomic

MARK = re.compile(r"<!-- results:(\w+) -->\n(.*?)<!-- /results:\1 -->", re.S)


def test_tables_say_what_the_result_files_say():
    for name in tables.DOCUMENTS:
        text = (tables.ROOT / name).read_text()
        assert tables.rendered(text) == text, f"{name} is stale; run `python -m studies.benchmarks.tables`."


def test_figures_show_what_the_result_files_say():
    assert not document_figures.stale(), "figures are stale; run `python -m studies.benchmarks.tables`."


def test_every_mark_has_a_part_and_every_part_a_place():
    """A mark that nothing fills would stand empty for ever."""
    found = {name: MARK.findall((tables.ROOT / name).read_text()) for name in tables.DOCUMENTS}
    for name, marks in found.items():
        text = (tables.ROOT / name).read_text()
        assert len(marks) == text.count("<!-- results:") == text.count("<!-- /results:"), name
        assert all(part in tables.PARTS and content.strip() for part, content in marks), name
    assert {part for marks in found.values() for part, _ in marks} == set(tables.PARTS)


def test_every_result_says_where_it_comes_from():
    for result in reproduction.uci_results().values():
        source = result["provenance"]
        assert source["command"].startswith(
            ("python -m wishflow reproduce uci", "python -m wishflow.cli reproduce uci", "python -m studies.uci")
        )
        assert source["commit"] not in ("", "unknown")
        assert source["versions"]["jax"] and source["device"]
        assert len(result["splits"]) == 20


def test_every_score_of_every_cell_is_finite():
    """All forty are there: five models on eight data sets, no more and no fewer."""
    results = reproduction.uci_results()
    assert set(results) == {(data, model) for data in DATA for model in MODELS} and len(results) == 40
    for key, result in results.items():
        assert all(np.isfinite(split_scores(result, score)).all() for score in SCORES), key


def test_flows_that_could_not_fall_back_did_not_have_to():
    """Cells older than that part of the rule stand for it where the flow's bound is the higher one on every split."""
    results = reproduction.uci_results()
    older = [key for key, r in results.items() if key[1] != "sgp" and not r["settings"]["rule"].get("falls_back")]
    for data, model in older:
        pairs = zip(results[data, model]["splits"], results[data, "sgp"]["splits"], strict=True)
        assert all(flow["bound"] > gp["bound"] for flow, gp in pairs), (data, model)


def test_results_of_beijing_are_complete_and_say_where_they_come_from():
    for path in (tables.ROOT / "results" / "beijing").glob("*.json"):
        result = read_result(path)
        assert result is not None, f"{path.name} is not what a finished cell writes"
        assert result["provenance"]["commit"] not in ("", "unknown")


def test_intervals_cover_what_they_say_in_every_band_of_horizons():
    """Within 5 points for every truth, with the draws of J of the preset and with more; of committed code."""
    result = json.loads((tables.ROOT / "results" / "coverage.json").read_text())
    assert re.fullmatch("[0-9a-f]{40}", result["provenance"]["commit"])
    assert set(result["ways"]) == set(coverage.WAYS) and {len(truths) for truths in result["ways"].values()} == {3}
    ways = [result["ways"][way] for way in ("32 draws of J, as in the preset", "64 draws of J")]
    for truth, found in itertools.chain(*(truths.items() for truths in ways)):
        for level, part in found["levels"].items():
            shares = {band: 100.0 * share for band, (share, _) in part["bands"].items()}
            assert all(abs(share - float(level)) < 5.0 for share in shares.values()), (truth, level, shares)


# --- how the page on the paper is made, from made-up results ---------------------------------------


SOURCE = {"command": "made", "commit": "0" * 40, "device": "made (gpu)", "versions": {"jax": "0"}}


def made_result(values, **others):
    rows = [dict.fromkeys(SCORES, float(value)) for value in values]
    result = {"splits": rows, "status": ["converged"], "provenance": SOURCE, "settings": {"n_splits": len(rows)}}
    return {**result, "fit_seconds": 60.0, "score_seconds": 6.0, **others}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty repository."""
    monkeypatch.setattr(reproduction, "ROOT", tmp_path)
    monkeypatch.setattr(document_figures, "ROOT", tmp_path)
    return tmp_path


def write_cell(root, data, model, values, **others):
    path = root / "results" / "reproduction" / "fast" / "cells" / f"{data}-{model}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, made_result(values, data=data, model=model, **others))


def test_without_results_the_page_says_so(root):
    for part in (reproduction.score_table, reproduction.difference_table, reproduction.joint_table):
        assert part().startswith("Not measured yet.")
    assert reproduction.bar_table().count("not measured yet") == 4 * len(DATA) + len(reproduction.AIMS)
    assert "cannot be judged yet" in reproduction.cost()
    assert reproduction.source_list() == "Not measured yet."


@pytest.mark.parametrize(
    ("mean", "allowance", "words"),
    [
        (-2.4, 0.0, "-2.400, reached"),
        (-2.45, 0.0, "-2.450, reached"),
        (-2.4501, 0.0, "-2.450, missed by 0.0001"),
        (-2.455, 0.01, "-2.455, reached within 0.01"),
        (-2.47, 0.01, "-2.470, missed by 0.02"),
        (np.nan, 0.01, "not finite: missed"),
        (None, 0.0, "not measured yet"),
    ],
)
def test_a_bar_is_reached_or_missed(mean, allowance, words):
    assert reproduction.verdict(mean, -2.45, allowance) == words


@pytest.mark.parametrize(
    ("loss", "is_reached"), [([0.01, 0.02], True), ([0.03, 0.03], False), ([-0.1, 0.2], True), ([-1.0, -1.0], True)]
)
def test_a_flow_may_lose_little_to_sgp_or_a_standard_error(root, loss, is_reached):
    base = np.arange(4.0)
    write_cell(root, "power", "sgp", base)
    write_cell(root, "power", "diffwgp5", base - np.tile(loss, 2))
    write_cell(root, "power", "diffwgp10", base - np.tile(loss, 2))
    (row,) = [line for line in reproduction.bar_table().splitlines() if "| power |" in line]
    ends = [cell.split(", ")[-1].strip() for cell in row.split("|")[-3:-1]]  # both ranks
    assert ends == ["reached" if is_reached else "missed"] * 2


def test_the_limit_of_time_is_judged_when_all_fits_are_there(root):
    for data in DATA:
        for model in MODELS:
            write_cell(root, data, model, np.zeros(20))
    assert "All 800 fits: 44.0 minutes, above the limit of 30." in reproduction.cost()
    for data in DATA:
        write_cell(root, data, "diffgp", np.zeros(20), fit_seconds=1.0, score_seconds=0.0)
        write_cell(root, data, "sgp", np.zeros(20), fit_seconds=1.0, score_seconds=0.0)
    assert "All 800 fits: 26.7 minutes, within the limit of 30." in reproduction.cost()


def test_differences_are_paired_and_the_base_has_none(root):
    folder = root / "results" / "differences"
    folder.mkdir(parents=True)
    base, gain = np.array([1.0, 5.0, 3.0]), np.array([0.1, 0.2, 0.3])
    write_json_atomic(folder / "kin8nm-right.json", made_result(base, data="kin8nm", variant="right"))
    write_json_atomic(folder / "kin8nm-mixed_kl.json", made_result(base + gain, data="kin8nm", variant="mixed_kl"))
    lines = reproduction.difference_table().splitlines()
    assert "| 3 | 3 | – | 3 | – |" in lines[2] and "ν = ρ" in lines[2]
    assert f"+0.2 ± {0.1 / np.sqrt(3):.1g}" in lines[3] and "unwhitened" in lines[3]


def test_a_figure_is_stale_when_its_numbers_change(root, monkeypatch):
    write_cell(root, "power", "sgp", np.arange(4.0))
    before = document_figures.digest("uci_rmse.svg")
    write_cell(root, "power", "sgp", np.arange(4.0), fit_seconds=1.0)
    assert document_figures.digest("uci_rmse.svg") == before
    write_cell(root, "power", "sgp", np.arange(4.0) + 1.0)
    assert document_figures.digest("uci_rmse.svg") != before
    monkeypatch.setattr(document_figures, "FOLDER", root)
    name = "uci_rmse.svg"
    assert name in document_figures.stale()
    shutil.copy(tables.ROOT / "docs" / "figures" / name, root / name)  # one of other numbers
    assert name in document_figures.stale()


def line(data, gain, commit="a", splits=20, **settings):
    job = {"data": data, "model": "diffwgp5", "splits": splits, "set": settings}
    return "uci-1", job, {"mean": {"log_density": gain}, "provenance": {"commit": commit}}


def test_levers_are_pairs_that_differ_by_them_alone():
    spec = {"kind": "Wishart", "rank": 5, "dof": 1, "columns": "shared"}
    lines = [
        line("power", 1.0),
        line("power", 1.5, diffusion=spec),
        line("power", 1.2, flow_time=2.0),
        line("power", 1.9, flow_time=2.0, diffusion=spec),
        line("power", 9.0, commit="b", diffusion=spec),  # made by other code
        line("power", 9.0, splits=4),
        line("power", 9.5, splits=4, diffusion=spec),  # on few splits
        line("naval", 3.0, diffusion=spec),  # alone
    ]
    found = list(levers.pairs(lines, levers.LEVERS["degrees of freedom ν of the noise"]))
    assert [(pair.data, pair.setting, round(pair.gain, 9)) for pair in found] == [
        ("power", "dof 1", 0.5),
        ("power", "dof 1", 0.7),
    ]
    table = levers.lever_table(lines)
    assert "| degrees of freedom ν of the noise | power | 2 | +0.600 | +0.500 to +0.700 | dof 1 |" in table
    assert "| flow time T | power | 2 | +0.300 | +0.200 to +0.400 | flow_time 2.0 |" in table
    assert table.splitlines()[-1].startswith("Without such a pair: density over several paths")


def test_the_search_files_hold_json():
    for path in (tables.ROOT / "results" / "tuning").glob("*.jsonl"):
        assert all(json.loads(text)["job"] for text in path.read_text().splitlines()), path.name


def test_commands_name_no_folder_of_a_machine(monkeypatch):
    monkeypatch.setattr(
        "sys.argv", ["run", "score", "/anywhere/draws-1", "results/a.json", "--part", "0/4", "--output=/any/b"]
    )
    assert command().endswith(" score draws-1 results/a.json --part 0/4 --output=b")
