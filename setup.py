"""Build hook: the README as package indexes show it. All else is in pyproject.toml.

Links of the README lead to files of the repository, which an index does not have. They become links to the address
`Repository` of `[project.urls]` where there is one; otherwise links become their text, and pictures go.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent
LINK = re.compile(r"(?P<sign>!?)\[(?P<text>[^\]]*)\]\((?!https?://|#)(?P<path>[^)\s]+)\)")


def long_description(text: str, repository: str | None) -> str:
    """A page of the repository without links that are relative to it."""

    def absolute(link: re.Match[str]) -> str:
        if repository is None:
            return "" if link["sign"] else link["text"]
        kind = "raw" if link["sign"] else "blob"
        return f"{link['sign']}[{link['text']}]({repository.rstrip('/')}/{kind}/HEAD/{link['path']})"

    return LINK.sub(absolute, text)


def main() -> None:
    """What setuptools runs."""
    from setuptools import setup

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(
        long_description=long_description(readme, project.get("urls", {}).get("Repository")),
        long_description_content_type="text/markdown",
    )


if __name__ == "__main__":
    main()
