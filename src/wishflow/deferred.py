"""Names of a package that are imported when they are first asked for (PEP 562).

JAX, scikit-learn, pandas and xarray take seconds to import; a program that asks for a part of them waits for that part.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def deferred(
    package: str, names: Mapping[str, Iterable[str]], modules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: `names` says what comes from which of its modules, `modules` which of
    them are reached by their own names.

    A type checker does not see these names: the package imports them once more under `TYPE_CHECKING`.
    """
    homes = {name: module for module, own in names.items() for name in own}
    own_names = {*homes, *modules}

    def get(name: str) -> Any:
        if name not in own_names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = importlib.import_module(f"{package}.{homes.get(name, name)}")
        value = getattr(found, name) if name in homes else found
        setattr(sys.modules[package], name, value)  # asked for once: the next time it is there
        return value

    def names_of_package() -> list[str]:
        return sorted(own_names | set(vars(sys.modules[package])))

    return get, names_of_package
