"""A process that does tasks of one part: `python -m studies.stress.worker PART FOLDER`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from . import inputs, models
from .workers import serve

# A sample is made of few cases, and of files of few kinds: few models are fitted before.
SAMPLES = {"files": (models.SAMPLE,), "inputs": (inputs.N_SAMPLE,)}


def main() -> None:
    part, folder = sys.argv[1], Path(sys.argv[2]) / str(os.getpid())
    folder.mkdir(parents=True)
    make = importlib.import_module(f".{part}", __package__).Task
    serve(make(folder, *(SAMPLES.get(part, ()) if "--sample" in sys.argv else ())))


if __name__ == "__main__":
    main()
