"""Speed on an accelerator, beside what the machine can do at best: `python -m studies.benchmarks.gpu`."""

from __future__ import annotations
