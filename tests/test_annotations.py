"""Annotations: they are checked in this run, and all of them can be."""

import importlib
import inspect
import pkgutil
import typing

import jax.numpy as jnp
import jaxtyping
import pytest

import wishflow
from wishflow.numerics import linalg

# Imported for the type checker alone.
UNKNOWN = {"Console"}


def functions():
    """The functions of the package, those of its classes among them."""
    for found in pkgutil.walk_packages(wishflow.__path__, "wishflow."):
        if found.name in ("wishflow.sktime", "wishflow.regression.skpro", "wishflow.__main__", "wishflow.cli.__main__"):
            continue
        module = importlib.import_module(found.name)
        for item in vars(module).values():
            if getattr(item, "__module__", None) != found.name:
                continue
            members = vars(item).values() if inspect.isclass(item) else [item]
            for member in members:
                member = getattr(member, "fget", None) or getattr(member, "__func__", member)
                # Constructors that dataclasses write stand in modules that need not know the types of inherited fields.
                if inspect.isfunction(member) and member.__name__ not in ("__init__", "__new__"):
                    yield member


def test_shapes_are_checked_in_this_run():
    with pytest.raises(jaxtyping.TypeCheckError, match="cholesky"):
        linalg.cholesky(jnp.zeros((2, 3)))


def test_types_are_checked_in_this_run():
    with pytest.raises(jaxtyping.TypeCheckError, match="parts_of"):
        linalg.parts_of("many")


@pytest.mark.usefixtures("types_unchecked")
def test_checks_can_be_left_out():
    linalg.lower_half(jnp.zeros((2, 2), int))


def test_every_annotation_has_a_meaning():
    """One that cannot be evaluated is not checked, and nothing says so."""
    broken, n = {}, 0
    for function in functions():
        n += 1
        try:
            typing.get_type_hints(function)
        except Exception as error:
            if getattr(error, "name", None) not in UNKNOWN:
                broken[f"{function.__module__}.{function.__qualname__}"] = repr(error)
    assert n > 500 and not broken, broken
