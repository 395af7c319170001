"""Commands write the files that tables and pages read, and there are no others."""

import importlib
import importlib.util
import inspect
import subprocess
from pathlib import Path

import pytest

from studies import paths
from studies.beijing.__main__ import main as beijing_command
from studies.benchmarks import checks, differences, first_use, growth, waiting
from studies.benchmarks.gpu import __main__ as gpu
from studies.benchmarks.race import __main__ as race
from studies.benchmarks.speed import __main__ as speed
from studies.benchmarks.speed import contenders
from studies.benchmarks.tables import figures
from studies.benchmarks.tables.documents import DOCUMENTS, rendered
from studies.stress import __main__ as stress
from studies.uci.__main__ import main as uci_command

FOLDER = paths.ROOT / "studies"
JOBS = paths.TUNING / "jobs"
# What commands need to be told besides.
POSITIONAL = {
    "held_back": ["boston"],
    "tune_uci": [str(JOBS / "uci-59.json")],
    "tune_beijing": [str(JOBS / "beijing-18.json")],
    "mixtures": ["score", str(JOBS / "mixtures-11.json"), "DRAWS"],
}
# It writes documents.
TABLES = "tables"


def benchmarks():
    """The modules that are commands, by the names they are called by."""
    found = {}
    for path in sorted((FOLDER / "benchmarks").rglob("*.py")):
        if "argparse.ArgumentParser" in path.read_text(encoding="utf-8"):
            parts = path.relative_to(paths.ROOT).with_suffix("").parts
            name = ".".join(part for part in parts[2:] if part != "__main__")
            found[name] = ".".join(parts)
    assert TABLES in found
    return {name: module for name, module in found.items() if name != TABLES}


BENCHMARKS = benchmarks()


def output_of(name):
    """Where a command writes if it is not told."""
    return importlib.import_module(BENCHMARKS[name]).parse(POSITIONAL.get(name, [])).output


def outputs():
    suites = [inspect.signature(main).parameters["output"].default for main in (uci_command, beijing_command)]
    return [*suites, stress.parse([]).output, *map(output_of, BENCHMARKS)]


def tracked():
    """The result files of the repository; all that are there where git knows none."""
    command = ["git", "-C", str(paths.ROOT), "ls-files", "-z", str(paths.RESULTS)]
    done = subprocess.run(command, capture_output=True, text=True)
    names = [name for name in done.stdout.split("\0") if name]
    found = [paths.ROOT / name for name in names] or [path for path in paths.RESULTS.rglob("*") if path.is_file()]
    return {path for path in found if path.exists()}


@pytest.fixture(scope="module")
def read():
    """The result files that the tables and figures of the documents read."""
    found, original = set(), Path.read_text

    def spy(path, *arguments, **options):
        found.add(path)
        return original(path, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", spy)
        for name in DOCUMENTS:
            rendered((paths.ROOT / name).read_text(encoding="utf-8"))
        figures.stale()
    return {path for path in found if path.is_relative_to(paths.RESULTS) and path.exists()}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_command_writes_a_file_of_the_results_and_says_which(name):
    output = output_of(name)
    assert output.is_relative_to(paths.RESULTS) and output.exists()
    text = importlib.import_module(BENCHMARKS[name]).__doc__
    assert str(output.relative_to(paths.ROOT)) in text and f"python -m studies.benchmarks.{name}" in text


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_overview_names_every_command_and_what_it_writes(name):
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    written = output_of(name)
    assert f"`python -m studies.benchmarks.{name}" in text
    assert written.parent == paths.TUNING or f"`{written.name}" in text


def test_what_the_tables_read_is_what_commands_write(read):
    assert len(read) > 100
    written = outputs()
    logs = {paths.tuning_output(path, suffix) for path in JOBS.iterdir() for suffix in (".json", ".jsonl")}
    strange = [path for path in read - logs if not any(path.is_relative_to(output) for output in written)]
    assert not strange


def test_no_result_file_is_there_that_nothing_reads(read):
    """A table, a figure, or a page that names it; lists of jobs go with their logs."""
    pages = [paths.ROOT / "README.md", FOLDER / "tuning.md", *(paths.ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    files = tracked()
    assert read <= files
    in_search = {path for path in files if path.is_relative_to(paths.TUNING)}  # tests/studies/test_searches.py
    assert not sorted(path.name for path in files - read - in_search if path.name not in text)


def test_every_file_lies_where_a_command_writes():
    rest = [path for path in tracked() if not path.is_relative_to(paths.TUNING)]
    assert rest and not [path for path in rest if not any(path.is_relative_to(output) for output in outputs())]


@pytest.mark.parametrize(
    ("parse", "words"),
    [
        (speed.parse, ["--quick"]),
        (speed.parse, ["--peers", "gpflow"]),
        (gpu.parse, ["--quick"]),
        (gpu.parse, ["--trace", "kin8nm-20"]),
        (growth.parse, ["--quick"]),
        (differences.parse, ["--max-iter", "3"]),
    ],
)
def test_trials_leave_the_results_alone(parse, words, tmp_path):
    assert parse(words).output.parent == paths.TRIALS
    assert parse([*words, "--output", str(tmp_path)]).output == tmp_path


def test_modules_that_commands_start_are_there():
    started = [contender.module for contender in (*contenders.OURS, *contenders.PEERS)]
    started += [module for _, module, _ in race.CONTENDERS.values()]
    started += [module.MODULE for module in (first_use, waiting, checks, differences)] + [speed.LIMIT_MODULE]
    assert len(started) > 10
    assert not [name for name in started if importlib.util.find_spec(name) is None]
