"""What is written in more than one place says the same, and the pins cover what is installed."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import structure

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


def test_matplotlib_comes_only_with_extras_that_draw():
    with_it = {
        name for name, items in PROJECT["optional-dependencies"].items() if "matplotlib" in map(normalised, items)
    }
    assert "matplotlib" not in map(normalised, PROJECT["dependencies"])
    assert with_it == {"plot", "demo", "dev"}


def test_what_the_package_imports_is_declared():
    """By the dependencies, or by an extra where a part of the package is for those who have it."""
    of_imports = {"sklearn": "scikit-learn"}
    declared = {normalised(item) for item in PROJECT["dependencies"]}
    extras = {normalised(item) for items in PROJECT["optional-dependencies"].values() for item in items}
    of_extras = {
        "sktime.py",
        "regression/skpro.py",
        *(f"cli/{name}.py" for name in ("demo", "demo_figures", "weather")),
    }
    missing = []
    for path in structure.PACKAGE.rglob("*.py"):
        at_import = {name.partition(".")[0] for name in structure.imported_names(path, at_import=True)}
        for name in {name.partition(".")[0] for name in structure.imported_names(path)}:
            known = normalised(of_imports.get(name, name))
            is_own = name in sys.stdlib_module_names or name == "wishflow" or known in declared
            place = path.relative_to(structure.PACKAGE).as_posix()
            may_be_extra = known in extras and (name not in at_import or place in of_extras or "plotting" in place)
            if not is_own and not may_be_extra:
                missing.append((place, name))
    assert not missing


@pytest.mark.parametrize(
    "path", ["CODE_OF_CONDUCT.md", *(f".github/ISSUE_TEMPLATE/{kind}.md" for kind in ("bug_report", "feature_request"))]
)
def test_the_pages_that_a_platform_looks_for_are_there(path):
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    assert len(text) > 200
    # The front matter of a template has to say what it is called.
    assert not path.startswith(".github") or re.match(r"---\nname: .+\nabout: .+\n", text)


def test_the_page_of_a_package_index_has_no_relative_links():
    """With the address of the repository they lead there, without one only their text is left."""
    code = runpy.run_path(str(REPOSITORY / "setup.py"))
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    relative = re.compile(r"!?\[[^\]]*\]\((?!https?://)([^)]+)\)")
    targets = relative.findall(readme)
    assert len(targets) > 10
    plain = code["long_description"](readme, None)
    assert "](docs/" not in plain and not relative.search(plain) and "reproduced; forecasts" in " ".join(plain.split())
    linked = code["long_description"](readme, "https://example.org/wishflow/")
    assert all(f"https://example.org/wishflow/blob/HEAD/{path})" in linked for path in targets if "figures" not in path)
    assert "https://example.org/wishflow/raw/HEAD/docs/figures/correlation.svg)" in linked


def run(*command: object, folder: Path, **environment: str) -> str:
    """Run a command without the source tree in its path; its output."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run([*map(str, command)], cwd=folder, env=clean, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An environment with the tools that build, the sdist, and the wheel made from it."""
    folder = tmp_path_factory.mktemp("build")
    venv.create(folder / "env", with_pip=True)
    python, build = folder / "env" / "bin" / "python", tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    try:
        run(python, "-m", "pip", "install", "--quiet", *build["build-system"]["requires"], folder=folder)
    except AssertionError as error:
        if os.environ.get("CI"):  # a check that is skipped there would be none
            raise
        pytest.skip(f"the tools that build cannot be installed: {str(error)[-200:]}")
    source = folder / "source"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if not name.startswith(("studies/", "tests/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((REPOSITORY / name).read_bytes())
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})"
    run(python, "-c", code, folder=source)
    sdist = folder / f"wishflow-{PROJECT['version']}.tar.gz"
    how = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(python, "-m", "pip", "wheel", *how, sdist, folder=folder)
    return python, sdist, folder / f"wishflow-{PROJECT['version']}-py3-none-any.whl"


@pytest.mark.slow
def test_sdist_and_wheel_hold_what_they_should(built):
    _, sdist, wheel = built
    with tarfile.open(sdist) as file:
        inside = {name.partition("/")[2] for name in file.getnames()}
    assert {"README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md", "src/wishflow/py.typed"} <= inside
    assert not [name for name in inside if name.startswith(("tests/", "studies/"))]
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"wishflow-{PROJECT['version']}.dist-info/METADATA").decode()
    source = REPOSITORY / "src"
    wanted = {str(path.relative_to(source)) for path in (source / "wishflow").rglob("*.py")}
    wanted |= {"wishflow/py.typed", *(f"wishflow/report/page.{kind}" for kind in ("html", "css", "js"))}
    assert {name for name in names if name.startswith("wishflow/")} == wanted
    assert "Description-Content-Type: text/markdown" in metadata and "# wishflow" in metadata
    assert "](docs/" not in metadata


FIT = """
import numpy as np
import wishflow as wf

X = np.linspace(-2.0, 2.0, 40)[:, None]
model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, np.sin(X[:, 0]))
model.save("model.wishflow")
assert wf.load("model.wishflow").score(X, np.sin(X[:, 0])) > 0.9
print(wf.__file__)
"""


@pytest.mark.slow
def test_the_wheel_works_in_a_new_environment(built, tmp_path):
    """Its dependencies are those of the environment of the tests, whose own wishflow cannot be found there."""
    python, _, wheel = built
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel, folder=tmp_path)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip())
    # A path alone: files of editable installs beside it are not run.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert run(python.parent / "wishflow", "--version", folder=tmp_path) == f"wishflow {PROJECT['version']}\n"
    found = Path(run(python, "-c", FIT, folder=tmp_path, JAX_PLATFORMS="cpu").strip())
    assert found.is_relative_to(site) and (found.parent / "py.typed").exists()
