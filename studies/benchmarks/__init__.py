"""Benchmarks: scripts that measure, and write result files."""

from __future__ import annotations
