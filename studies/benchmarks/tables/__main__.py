"""Tables of the documentation, from result files alone.

    python -m studies.benchmarks.tables  # rewrites the marked parts of README.md and docs, draws docs/figures
    python -m studies.benchmarks.tables --check  # fails where they differ from what the files say

A marked part lies between `<!-- results:NAME -->` and `<!-- /results:NAME -->`.
"""

from __future__ import annotations

import argparse
import sys

from ... import paths
from . import figures
from .documents import DOCUMENTS, rendered


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = figures.stale()
    if not options.check:
        figures.draw(stale)
    for name in DOCUMENTS:
        path = paths.ROOT / name
        text = path.read_text(encoding="utf-8")
        new = rendered(text)
        if new != text:
            stale.append(name)
            if not options.check:
                path.write_text(new, encoding="utf-8")
    if options.check and stale:
        print(f"{', '.join(stale)} differ from the result files; run `python -m studies.benchmarks.tables`.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
