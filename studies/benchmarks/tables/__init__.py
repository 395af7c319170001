"""Tables and figures of the documents, from result files alone."""

from __future__ import annotations
