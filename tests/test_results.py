"""Nothing in the tables is typed by hand."""

from benchmarks import tables
from wishflow.experiments.beijing.results import read_result


def test_tables_say_what_the_result_files_say():
    for name in tables.DOCUMENTS:
        text = (tables.ROOT / name).read_text()
        assert tables.rendered(text) == text, f"{name} is stale; run `python -m benchmarks.tables`."


def test_every_result_says_where_it_comes_from():
    for result in tables.uci_results().values():
        source = result["provenance"]
        assert source["command"].startswith("python -m wishflow reproduce uci")
        assert source["commit"] not in ("", "unknown")
        assert source["versions"]["jax"] and source["device"]
        assert len(result["splits"]) == 20


def test_flows_that_could_not_fall_back_did_not_have_to():
    """Cells older than that part of the rule stand for it where the flow's bound is the higher one on every split."""
    results = tables.uci_results()
    older = [key for key, r in results.items() if key[1] != "sgp" and not r["settings"]["rule"].get("falls_back")]
    for data, model in older:
        pairs = zip(results[data, model]["splits"], results[data, "sgp"]["splits"], strict=True)
        assert all(flow["bound"] > gp["bound"] for flow, gp in pairs), (data, model)


def test_results_of_beijing_are_complete_and_say_where_they_come_from():
    for path in (tables.ROOT / "results" / "beijing").glob("*.json"):
        result = read_result(path)
        assert result is not None, f"{path.name} is not what a finished cell writes"
        assert result["provenance"]["commit"] not in ("", "unknown")
