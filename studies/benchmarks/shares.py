"""Several processes share a list of jobs: --part 0/4, --part 1/4, … take every fourth one each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def share_of(items: Sequence[Item], part: str) -> list[Item]:
    """The items at i, i + n, i + 2n, … for the part "i/n"."""
    first, _, count = part.partition("/")
    return list(items)[int(first) :: int(count)]
