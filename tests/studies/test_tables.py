"""How tables are made of result files, with results made up."""

import shutil

import numpy as np
import pytest

from studies import paths
from studies.benchmarks.tables import figures, forecasting, levers, performance, reproduction, searches
from studies.benchmarks.tables.documents import PARTS
from studies.uci.results import SCORES
from studies.uci.suite import DATA, MODELS
from wishflow.files.json import write_json_atomic

SOURCE = {"command": "made", "commit": "0" * 40, "device": "made (gpu)", "versions": {"jax": "0"}}


def made_result(values, **others):
    rows = [dict.fromkeys(SCORES, float(value)) for value in values]
    result = {"splits": rows, "status": ["converged"], "provenance": SOURCE, "settings": {"n_splits": len(rows)}}
    return {**result, "fit_seconds": 60.0, "score_seconds": 6.0, **others}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of results in which there is none yet."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    return tmp_path


def write_cell(folder, data, model, values, **others):
    path = folder / "reproduction" / "fast" / "cells" / f"{data}-{model}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, made_result(values, data=data, model=model, **others))


def test_without_results_the_page_says_so(folder):
    parts = [reproduction.score_table, reproduction.difference_table, reproduction.joint_table]
    parts += [part for part in PARTS.values() if part.__module__ in (forecasting.__name__, performance.__name__)]
    for part in (*parts, searches.structured_table):
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
def test_a_flow_may_lose_little_to_sgp_or_a_standard_error(folder, loss, is_reached):
    base = np.arange(4.0)
    write_cell(folder, "power", "sgp", base)
    write_cell(folder, "power", "diffwgp5", base - np.tile(loss, 2))
    write_cell(folder, "power", "diffwgp10", base - np.tile(loss, 2))
    (row,) = [line for line in reproduction.bar_table().splitlines() if "| power |" in line]
    ends = [cell.split(", ")[-1].strip() for cell in row.split("|")[-3:-1]]  # both ranks
    assert ends == ["reached" if is_reached else "missed"] * 2


def test_the_limit_of_time_is_judged_when_all_fits_are_there(folder):
    for data in DATA:
        for model in MODELS:
            write_cell(folder, data, model, np.zeros(20))
    assert "All 800 fits: 44.0 minutes, above the limit of 30." in reproduction.cost()
    for data in DATA:
        write_cell(folder, data, "diffgp", np.zeros(20), fit_seconds=1.0, score_seconds=0.0)
        write_cell(folder, data, "sgp", np.zeros(20), fit_seconds=1.0, score_seconds=0.0)
    assert "All 800 fits: 26.7 minutes, within the limit of 30." in reproduction.cost()


def test_differences_are_paired_and_the_base_has_none(folder):
    folder = folder / "differences"
    folder.mkdir()
    base, gain = np.array([1.0, 5.0, 3.0]), np.array([0.1, 0.2, 0.3])
    write_json_atomic(folder / "kin8nm-right.json", made_result(base, data="kin8nm", variant="right"))
    write_json_atomic(folder / "kin8nm-mixed_kl.json", made_result(base + gain, data="kin8nm", variant="mixed_kl"))
    lines = reproduction.difference_table().splitlines()
    assert "| 3 | 3 | – | 3 | – |" in lines[2] and "ν = ρ" in lines[2]
    assert f"+0.2 ± {0.1 / np.sqrt(3):.1g}" in lines[3] and "unwhitened" in lines[3]


def test_a_figure_is_stale_when_its_numbers_change(folder, monkeypatch):
    write_cell(folder, "power", "sgp", np.arange(4.0))
    before = figures.digest("uci_rmse.svg")
    write_cell(folder, "power", "sgp", np.arange(4.0), fit_seconds=1.0)
    assert figures.digest("uci_rmse.svg") == before
    write_cell(folder, "power", "sgp", np.arange(4.0) + 1.0)
    assert figures.digest("uci_rmse.svg") != before
    monkeypatch.setattr(figures, "FOLDER", folder)
    name = "uci_rmse.svg"
    assert name in figures.stale()
    shutil.copy(paths.ROOT / "docs" / "figures" / name, folder / name)  # one of other numbers
    assert name in figures.stale()


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
