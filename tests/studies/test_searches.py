"""The page of what was tried says what the logs of the searches say, and leaves none out."""

import itertools
import json
import re

import numpy as np
import pytest

from studies import paths
from studies.benchmarks import mixtures, tune_beijing, tune_uci
from studies.benchmarks.tables.searches import tried

PAGE = (paths.ROOT / "studies" / "tuning.md").read_text(encoding="utf-8")
PARTS = [" ".join(text.split()) for text in re.split(r"\n(?=- \*\*|\n|#)", PAGE)]
ENTRIES = [text for text in PARTS if text.startswith("- **")]
FILE = re.compile(r"`((?:uci|beijing|mixtures)-\d+|classes\.json)`(?: to `\w+-(\d+)`)?")
# Scores have three decimals, log densities of the Beijing series two after ten or more.
SCORE = re.compile(r"(?<![\d.])−?\d*\.\d{3}(?!\d)|(?<![\d.])\d\d\.\d\d(?!\d)")
LOGS = sorted(path for path in paths.TUNING.iterdir() if path.is_file())
JOBS = sorted((paths.TUNING / "jobs").iterdir())


def files_of(text):
    """The names of files in a text; `uci-9` to `uci-11` names three."""
    names = set()
    for first, last in FILE.findall(text):
        kind, _, number = first.partition("-")
        names |= {f"{kind}-{i}" for i in range(int(number), int(last) + 1)} if last else {first.removesuffix(".json")}
    return names & {path.stem for path in LOGS}


def scores_of(name):
    """All numbers of a file that an entry may quote."""
    kind = name.partition("-")[0]
    if kind == "classes":
        runs = json.loads((paths.TUNING / "classes.json").read_text())["runs"]
        return [
            np.mean([run["log_loss"] for run in runs[data][rule]]) for data in runs for rule in ("labels", "numbers")
        ]
    if kind == "mixtures":
        found = json.loads((paths.TUNING / f"{name}.json").read_text())
        pairs, kinds = (np.array(found["to_data"]), np.array(found["between"])), mixtures.kinds_of(found["jobs"])
        alone = [mixtures.mixture_energy(*pairs, (i,)) for i in range(len(found["jobs"]))]
        sizes = range(1, min(len(kinds), mixtures.MOST_KINDS) + 1)
        mixed = [mixtures.best_mixtures(*pairs, kinds, size) for size in sizes]
        return np.concatenate([*alone, *(energy for _, energy in itertools.chain(*mixed))])
    lines = [line for file, _, line in tried(kind) if file == name]
    if kind == "uci":
        return [value for line in lines for key, value in line["mean"].items() if key.startswith("log_density")]
    bands = [value for line in lines for score in line["bands"].values() for value in score.values()]
    return [*bands, *(line["log_density_1"] for line in lines)]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry[4:].split(".")[0][:40])
def test_an_entry_names_its_files_its_numbers_and_the_decision(entry):
    names, quoted = files_of(entry), SCORE.findall(entry)
    assert names and quoted and "Decision: " in entry
    known = np.concatenate([scores_of(name) for name in sorted(names)])
    for text in quoted:
        digits = len(text.partition(".")[2])
        is_there = np.abs(np.round(known, digits) - float(text.replace("−", "-"))) < 1e-9
        assert is_there.any(), f"{text} is in none of {', '.join(sorted(names))}"


def test_every_file_of_a_search_is_on_the_page():
    assert len(ENTRIES) > 40 and len(LOGS) > 80
    assert files_of(" ".join(ENTRIES)) == {path.stem for path in LOGS}


def parse_mixtures(words):
    return mixtures.parse(["score", *words, "DRAWS"])


def test_every_file_of_a_search_is_what_its_command_writes():
    """The list of jobs has the name of the file, and holds all jobs that are in it."""
    parse = {"uci": tune_uci.parse, "beijing": tune_beijing.parse, "mixtures": parse_mixtures}
    written = {parse[path.stem.partition("-")[0]]([str(path)]).output: path for path in JOBS}
    assert set(written) == set(LOGS) - {paths.TUNING / "classes.json"}
    for output, jobs in written.items():
        asked = json.loads(jobs.read_text())
        if isinstance(asked, dict):
            assert json.loads(output.read_text())["jobs"].items() <= asked.items(), output.name
        else:
            lines = [json.loads(text) for text in output.read_text().splitlines()]
            assert lines and all(line["job"] in asked for line in lines), output.name
