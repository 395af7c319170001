"""Speed of training steps on the CPU, beside libraries that do the same: `python -m studies.benchmarks.speed`."""

from __future__ import annotations
