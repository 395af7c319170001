"""Docstrings of the public API: complete in the sense of numpydoc, and their examples run."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import io
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import wishflow
from wishflow.specs import registry

MODULES = (
    *("callbacks", "datasets", "diffusions", "errors", "kernels", "likelihoods", "metrics", "plotting", "series"),
    *("report", "sktime", "regression.skpro"),
)
# Modules that need a package of the same name, from an extra that may not be installed.
OF_EXTRAS = {"sktime", "regression.skpro"}

# What numpydoc may find wrong, and is wrong here too. Left out: layout of quotes (GL02), summaries as commands (SS05),
# obligatory extended summaries (ES01) and cross references (SA01).
CODES = {
    *("GL03", "GL05", "GL06", "GL07", "GL08", "GL10", "SS01", "SS02", "SS03", "SS04", "SS06"),
    *("PR01", "PR02", "PR03", "PR04", "PR05", "PR06", "PR07", "PR08", "PR09", "PR10"),
    *("RT01", "RT02", "RT03", "RT04", "RT05", "YD01", "SA02", "SA03", "SA04"),
}
# Of classes and functions; methods are shown in the examples of their class where they are quick to show.
WITH_EXAMPLES = {*CODES, "EX01"}
OF_ERRORS = {"GL08", "SS01", "SS02", "SS03", "SS06"}
# Examples that fit a flow compile for longer than `make test` can wait.
SLOW = {"FlowClassifier", "FlowRegressor"}


def public_objects() -> dict[str, Any]:
    """Classes and functions by their public names."""
    found = {name: getattr(wishflow, name) for name in wishflow.__all__}
    for name in MODULES:
        if name in OF_EXTRAS and importlib.util.find_spec(name.split(".")[-1]) is None:
            continue
        module = importlib.import_module(f"wishflow.{name}")
        found |= {f"{name}.{key}": value for key, value in exported(module)}
    return {name: value for name, value in found.items() if is_documented(value)}


def exported(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """What `__all__` names; else what a package has gathered, or a module has defined, without a leading underscore."""
    names = getattr(module, "__all__", None)
    home = module.__name__
    for name, value in sorted(vars(module).items()):
        is_own = str(getattr(value, "__module__", "")).startswith(home)
        if name in names if names is not None else not name.startswith("_") and is_own:
            yield name, value


def is_documented(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def methods_of(cls: type) -> Iterator[tuple[type, str, Any]]:
    """Public methods and properties, each of the first class that has it: what overrides one has its contract."""
    for name in dir(cls):
        homes = [base for base in cls.__mro__ if name in vars(base)]
        if name.startswith("_") or not homes or not homes[-1].__module__.startswith("wishflow."):
            continue
        value = vars(homes[-1])[name]
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(value) or isinstance(value, property):
            yield homes[-1], name, value


PUBLIC = public_objects()
# One name for a method that several classes inherit.
METHODS = {
    f"{cls.__name__}.{name}": method
    for value in PUBLIC.values()
    if inspect.isclass(value)
    for cls, name, method in methods_of(value)
}


def faults(value: Any, codes: set[str]) -> list[str]:
    validate = pytest.importorskip("numpydoc.validate", reason="numpydoc is in the extra dev")
    from numpydoc.docscrape import get_doc_object

    if isinstance(value, property):  # a value, not a call: it has a docstring
        return [] if value.__doc__ else ["GL08: no docstring"]
    found = validate.validate(get_doc_object(value))["errors"]
    if getattr(value, "_is_protocol", False):  # is not called
        codes = codes - {"PR01"}
    return [f"{code}: {text}" for code, text in found if code in codes]


@pytest.mark.parametrize("name", PUBLIC)
def test_classes_and_functions_are_documented(name):
    is_error = inspect.isclass(PUBLIC[name]) and issubclass(PUBLIC[name], Exception)
    assert not faults(PUBLIC[name], OF_ERRORS if is_error else WITH_EXAMPLES)
    assert is_error or doctest.DocTestParser().get_examples(PUBLIC[name].__doc__)


def test_methods_are_documented():
    wrong = {name: found for name, method in METHODS.items() if (found := faults(method, CODES))}
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong.items())


def test_an_undocumented_parameter_is_found():
    def f(x: int, y: int) -> int:
        """Add numbers.

        Parameters
        ----------
        x : int
            One of them.
        """
        return x + y

    assert {fault[:4] for fault in faults(f, WITH_EXAMPLES)} == {"PR01", "RT01", "EX01"}


def examples() -> list[Any]:
    """Docstrings with examples, slow ones marked."""
    parser = doctest.DocTestParser()
    found = {**PUBLIC, **METHODS}
    tests = [parser.get_doctest(value.__doc__ or "", {}, name, None, None) for name, value in found.items()]
    return [
        pytest.param(test, id=test.name, marks=pytest.mark.slow if test.name in SLOW else ())
        for test in tests
        if test.examples
    ]


@pytest.mark.parametrize("example", examples())
def test_examples_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for table in ("_KINDS", "_BUILDERS"):  # what an example registers is forgotten
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    report = io.StringIO()
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=report.write)
    assert result.failed == 0, report.getvalue()
