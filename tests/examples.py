"""The module that makes pages of the examples, loaded as MkDocs does it: it lies in no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("docs_gallery", Path(__file__).parent.parent / "docs" / "gallery.py")
assert _spec is not None and _spec.loader is not None
gallery = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gallery)
