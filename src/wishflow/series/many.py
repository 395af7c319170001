"""Fit many forecasters of equal shape."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ..callbacks import CallbackList


def fit_together(forecasters: Sequence[Any], data: Sequence[tuple], callbacks: Any = None) -> list[Any]:
    """Fit forecasters (`wishflow.fit_many`); an error in one fit leaves all of them as they were."""
    watching = list(CallbackList(callbacks).callbacks)
    fitted = []
    for forecaster, part in zip(forecasters, data, strict=True):
        one = copy.copy(forecaster)
        one.callbacks, one.verbose = watching, 0
        fitted.append(one.fit(*part))
    for forecaster, one in zip(forecasters, fitted, strict=True):
        one.callbacks, one.verbose = forecaster.callbacks, forecaster.verbose
        forecaster.__dict__ = one.__dict__
    return list(forecasters)
