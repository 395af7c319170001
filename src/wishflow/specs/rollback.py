"""Undo what a call that failed did to estimators whose base class, of another package, changes them before our code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def rolled_back(*estimators: Any) -> Iterator[None]:
    """An error inside, or Ctrl-C, leaves the attributes of the estimators as they were.

    Values are not copied: code inside replaces them and does not change them in place.
    """
    before = [dict(vars(one)) for one in estimators]
    try:
        yield
    except BaseException:
        for one, attributes in zip(estimators, before, strict=True):
            one.__dict__ = attributes
        raise
