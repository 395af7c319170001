"""The command line parses, calls and prints; nothing is computed there."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner

import wishflow
from wishflow.cli.commands import app, environment
from wishflow.cli.options import changed, grouped
from wishflow.numerics.devices import enable_compilation_cache


@pytest.fixture
def calls(monkeypatch):
    """The calls the command makes of the demonstration, which here does nothing."""
    made = []

    def main(terminal, output, quick=False):
        made.append((terminal.quiet, output, quick))

    monkeypatch.setattr("wishflow.cli.demo.main", main)
    return made


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (False, Path("demo_output"), False)),
        (["--output", "somewhere", "--quick", "--quiet"], (True, Path("somewhere"), True)),
    ],
)
def test_demo_passes_its_options_on(calls, arguments, expected):
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert calls == [expected]
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dmeo"], ("'dmeo'", "`wishflow --help`")),
        (["fit", "x.csv"], ("--target", "`wishflow fit --help`")),
        (["forecast", "x.csv", "--horizn", "3"], ("--horizn", "`wishflow forecast --help`")),
        (["fit", "x.csv", "-t", "y", "--max-iter", "0"], ("--max-iter", "`wishflow fit --help`")),
    ],
)
def test_wrong_arguments_get_one_line(arguments, said):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and not result.stdout
    assert len(result.stderr.splitlines()) == 1 and result.stderr.startswith("Error: ")
    assert all(part in result.stderr for part in said)
    result = CliRunner().invoke(app, [*arguments, "--json"])
    answer = json.loads(result.stdout)
    assert answer["exit_code"] == result.exit_code == 2 and not result.stderr
    assert all(part in answer["error"] for part in said)


COMMANDS = ("fit", "predict", "forecast", "evaluate", "info", "demo")


@pytest.mark.parametrize("command", COMMANDS)
def test_all_commands_have_the_same_ways_to_answer(command):
    """And help without arguments where there is nothing that could be done without."""
    text = CliRunner().invoke(app, [command, "--help"]).stdout
    assert all(option in text for option in ("--quiet", "--json", "--debug"))
    if command not in ("info", "demo"):
        result = CliRunner().invoke(app, [command])
        assert result.exit_code in (0, 2) and "--quiet" in result.stdout and not result.stderr


def test_shells_complete_commands_and_options():
    variables = {"_WISHFLOW_COMPLETE": "complete_bash", "COMP_WORDS": "wishflow forecast --cov", "COMP_CWORD": "2"}
    result = CliRunner().invoke(app, [], env=variables, prog_name="wishflow")
    assert result.stdout.split() == ["--covariates"] and result.exit_code == 0


def test_fields_that_two_groups_share_are_one_option():
    found = []

    @dataclasses.dataclass(frozen=True)
    class One:
        seed: int = 0

    @dataclasses.dataclass(frozen=True)
    class Other:
        seed: int = 0
        name: str = "x"

    def command(one, other, path="p"):
        found.append((one, other, path))

    command.__annotations__ = {"one": One, "other": Other, "path": str}
    made = grouped(command)
    assert list(inspect.signature(made).parameters) == ["path", "seed", "name"]
    made(path="q", seed=3, name="y")
    assert found == [(One(3), Other(3, "y"), "q")]
    assert changed(Other(3)) == ["--seed"] and not changed(Other())


def test_info_names_versions_and_backend():
    result = CliRunner().invoke(app, ["info"])
    assert result.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in result.output.splitlines())
    assert lines["jax"] == jax.__version__
    assert lines["backend"] == jax.default_backend()
    assert lines == environment()


def test_the_version_is_that_of_the_package():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0 and result.output == f"wishflow {wishflow.__version__}\n"


def test_reproduce_says_where_the_studies_are():
    result = CliRunner().invoke(app, ["reproduce", "uci", "--splits", "3"])
    assert result.exit_code == 2 and "make reproduce-uci" in result.output


def test_the_module_is_the_command():
    found = subprocess.run([sys.executable, "-m", "wishflow", "--help"], capture_output=True, text=True, check=True)
    assert "reproduce" in found.stdout and "demo" in found.stdout


def test_a_cache_folder_that_was_named_before_is_kept(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "named"))
        assert enable_compilation_cache() == tmp_path / "named"
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_the_cache_of_whole_programs_is_deprecated(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    try:
        with pytest.warns(FutureWarning, match=r"whole_programs is ignored .* removed in 0\.3"):
            enable_compilation_cache(tmp_path, whole_programs=True)
        assert not (tmp_path / "wishflow").exists()
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
