"""Result files are complete, and the documents say what is in them: nothing in a table is typed by hand."""

import itertools
import json
import re

import numpy as np

from studies import paths
from studies.beijing.results import read_result
from studies.benchmarks import coverage
from studies.benchmarks.tables import figures, reproduction
from studies.benchmarks.tables.documents import DOCUMENTS, PARTS, rendered
from studies.provenance import command
from studies.uci.results import SCORES, split_scores
from studies.uci.suite import DATA, MODELS

MARK = re.compile(r"<!-- results:(\w+) -->\n(.*?)<!-- /results:\1 -->", re.S)


def some(items):
    """The items as a list: a test that loops over none would prove nothing."""
    found = list(items)
    assert found, "nothing to test"
    return found


def test_tables_say_what_the_result_files_say():
    for name in some(DOCUMENTS):
        text = (paths.ROOT / name).read_text()
        assert rendered(text) == text, f"{name} is stale; run `python -m studies.benchmarks.tables`."


def test_figures_show_what_the_result_files_say():
    assert figures.names()
    assert not figures.stale(), "figures are stale; run `python -m studies.benchmarks.tables`."


def test_every_mark_has_a_part_and_every_part_a_place():
    """A mark that nothing fills would stand empty for ever."""
    found = {name: MARK.findall((paths.ROOT / name).read_text()) for name in DOCUMENTS}
    for name, marks in some(found.items()):
        text = (paths.ROOT / name).read_text()
        assert marks and len(marks) == text.count("<!-- results:") == text.count("<!-- /results:"), name
        assert all(part in PARTS and content.strip() for part, content in marks), name
    assert {part for marks in found.values() for part, _ in marks} == set(PARTS)


def test_every_result_says_where_it_comes_from():
    for result in some(reproduction.uci_results().values()):
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
    for key, result in some(results.items()):
        assert all(np.isfinite(split_scores(result, score)).all() for score in SCORES), key


def test_every_flow_could_be_replaced_by_the_sparse_gp():
    """Also those of older cells, which compared bounds; models of one table are made by one rule."""
    flows = {key: result for key, result in reproduction.uci_results().items() if key[1] != "sgp"}
    for key, result in some(flows.items()):
        rule = result["settings"]["rule"]
        assert rule.get("falls_back") or rule.get("validation_fraction"), key


def test_results_of_beijing_are_complete_and_say_where_they_come_from():
    for path in some((paths.RESULTS / "beijing").glob("*.json")):
        result = read_result(path)
        assert result is not None, f"{path.name} is not what a finished cell writes"
        assert result["provenance"]["commit"] not in ("", "unknown")


def test_intervals_cover_what_they_say_in_every_band_of_horizons():
    """Within 5 points for every truth, with the draws of J of the preset and with more; of committed code."""
    result = json.loads((paths.RESULTS / "coverage.json").read_text())
    assert re.fullmatch("[0-9a-f]{40}", result["provenance"]["commit"])
    assert set(result["ways"]) == set(coverage.WAYS) and {len(truths) for truths in result["ways"].values()} == {3}
    ways = [result["ways"][way] for way in ("32 draws of J, as in the preset", "64 draws of J")]
    for truth, found in some(itertools.chain(*(truths.items() for truths in ways))):
        for level, part in some(found["levels"].items()):
            shares = {band: 100.0 * share for band, (share, _) in some(part["bands"].items())}
            assert all(abs(share - float(level)) < 5.0 for share in shares.values()), (truth, level, shares)


def test_commands_name_no_folder_of_a_machine(monkeypatch):
    inside = f"--draws={paths.ROOT}/studies/a"
    words = ["run", "score", "/anywhere/draws-1", "results/a.json", "--part", "0/4", "--output=/any/b", inside]
    monkeypatch.setattr("sys.argv", words)
    assert command().endswith(" score draws-1 results/a.json --part 0/4 --output=b --draws=studies/a")
