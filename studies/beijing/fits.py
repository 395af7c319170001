"""Fits that wait in files until they are scored: a job can then be stopped in its fit, and between fit and scores."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wishflow as wf
from wishflow.files.json import plain, read_json, write_json_atomic


def kept_fit(
    path: Path | None, settings: dict[str, Any], fit: Callable[[], wf.WishartForecaster]
) -> tuple[wf.WishartForecaster, float]:
    """A fitted forecaster and the seconds its training took: from the file where it was made with these settings, else
    trained, and kept there if there is a path.
    """
    settings = plain(settings)
    kept = None if path is None else read_json(_settings_path(path))
    if path is not None and path.exists() and kept is not None and kept["settings"] == settings:
        return wf.load(path), kept["seconds"]
    started = time.perf_counter()
    forecaster = fit()
    seconds = time.perf_counter() - started
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _settings_path(path).unlink(missing_ok=True)
        forecaster.save(path)
        # Last: the settings say that the model beside them is complete.
        write_json_atomic(_settings_path(path), {"settings": settings, "seconds": seconds})
    return forecaster, seconds


def forget(path: Path) -> None:
    """Remove a fit that was kept and its checkpoints; first what says that it is there."""
    for part in (_settings_path(path), path):
        part.unlink(missing_ok=True)
    shutil.rmtree(checkpoint_folder(path), ignore_errors=True)


def checkpoint_folder(path: Path) -> Path:
    """Where the checkpoints of a fit lie until it is scored."""
    return path.with_suffix(".checkpoints")


def _settings_path(path: Path) -> Path:
    return path.with_suffix(".json")
