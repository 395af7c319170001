"""The command line parses, calls and prints; nothing is computed there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner

import wishflow
from wishflow.cli.commands import app, environment
from wishflow.numerics.devices import enable_compilation_cache


@pytest.fixture
def calls(monkeypatch):
    """The calls the command makes of the demonstration, which here does nothing but answer 3."""
    made = []

    def main(output, quick=False):
        made.append((output, quick))
        return 3

    monkeypatch.setattr("wishflow.cli.demo.main", main)
    return made


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (Path("demo_output"), False)),
        (["--output", "somewhere", "--quick"], (Path("somewhere"), True)),
    ],
)
def test_demo_passes_its_options_on_and_returns_the_exit_code(calls, arguments, expected):
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert calls == [expected]
    assert result.exit_code == 3


def test_an_unknown_command_is_refused():
    assert CliRunner().invoke(app, ["dmeo"]).exit_code == 2


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
