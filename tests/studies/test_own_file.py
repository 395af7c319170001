"""The commands of the pages are ones that the command line takes, and the timing runs those of the tutorial."""

import re
import shlex

import pytest
import typer

from studies.benchmarks import own_file
from studies.paths import ROOT
from wishflow.cli.commands import app

# All pages but the one of mistakes.
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]
PAGES.remove("docs/howto/troubleshooting.md")
WRITTEN = re.compile(r"(?:^|\$ |`)(wishflow (?:fit|predict|forecast|evaluate|info|demo)[^`\n]*)", re.MULTILINE)


def commands_of(page):
    return WRITTEN.findall((ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", [command for page in PAGES for command in commands_of(page)])
def test_commands_of_the_pages_are_parsed(command):
    """Names of options and values, without running anything."""
    _, name, *arguments = shlex.split(command)
    if "…" in command or not arguments:
        pytest.skip("shortened")
    parser = typer.main.get_command(app).commands[name]
    assert parser.make_context(name, arguments).params


def test_an_option_that_is_not_known_is_found():
    parser = typer.main.get_command(app).commands["fit"]
    with pytest.raises(Exception, match="No such option"):
        parser.make_context("fit", ["data.csv", "--taget", "y"])


def test_every_step_of_the_tutorial_is_timed():
    text = own_file.PAGE.read_text(encoding="utf-8")
    found = own_file.commands(text)
    assert list(found) == list(own_file.STEPS) and len(own_file.PYTHON.findall(text)) == 1
    for step, command in found.items():
        assert command.split()[1] == ("forecast" if step == "next" else step)
        assert f"<!-- results:own_file_{step} -->" in text.split(command)[1]


def test_a_command_is_timed_with_what_it_prints(tmp_path):
    found = own_file.timed("wishflow info --json", tmp_path, tmp_path / "cache")
    assert '"jax"' in found["printed"] and found["seconds"] > 0.0 and found["processor_seconds"] > 0.0


def test_a_command_that_fails_is_no_time(tmp_path):
    with pytest.raises(own_file.subprocess.CalledProcessError):
        own_file.timed("wishflow info nothing.wishflow", tmp_path, tmp_path / "cache")
