"""The peers: one worker for each library, run by the Python of that library's own environment.

A peer sees NumPy, its own library and `works`, `problem`, `worker` of this package, never wishflow.
"""

from __future__ import annotations
