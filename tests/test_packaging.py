"""What is written in more than one place says the same, and the pins cover what is installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import wishflow

REPOSITORY = Path(__file__).parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONSTRAINTS = [
    line
    for line in (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def normalised(requirement: str) -> str:
    """The name in a requirement, spelled as package indexes compare names."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_the_version_is_the_same_everywhere():
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert wishflow.__version__ == PROJECT["version"]
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == PROJECT["version"]
    assert f"## [{PROJECT['version']}]" in (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")


def test_constraints_are_exact_pins_and_name_no_index():
    assert not [line for line in CONSTRAINTS if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line)]
    assert len({normalised(line) for line in CONSTRAINTS}) == len(CONSTRAINTS)


@pytest.mark.parametrize("extra", [None, *PROJECT["optional-dependencies"]])
def test_every_direct_dependency_is_pinned(extra):
    wanted = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    assert {normalised(item) for item in wanted} <= {normalised(line) for line in CONSTRAINTS}


def test_cuda_comes_only_when_asked_for():
    others = [item for name, items in PROJECT["optional-dependencies"].items() if name != "cuda" for item in items]
    assert not [item for item in [*PROJECT["dependencies"], *others] if "cuda" in item or "nvidia" in item]
