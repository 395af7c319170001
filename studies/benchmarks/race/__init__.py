"""Seconds to a fixed test score, from the first call to a model that reaches it."""

from __future__ import annotations
