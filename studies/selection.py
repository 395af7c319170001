"""Names a person asks for on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from wishflow.errors import unknown_option


def chosen(option: str, given: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names asked for, each item one name or several with commas, in the order of the known; none means all."""
    known = list(known)
    names = [name.strip() for item in given for name in item.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise unknown_option(option, name, known)
    return [name for name in known if name in names or not names]
