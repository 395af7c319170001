"""A process that does tasks of one part: `python -m studies.stress.worker PART FOLDER`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from . import models
from .workers import serve


def main() -> None:
    part, folder = sys.argv[1], Path(sys.argv[2]) / str(os.getpid())
    folder.mkdir(parents=True)
    make = importlib.import_module(f".{part}", __package__).Task
    serve(make(folder, models.SAMPLE) if part == "files" and "--sample" in sys.argv else make(folder))


if __name__ == "__main__":
    main()
