"""Presets for time series."""

from __future__ import annotations

import dataclasses

from ..training.specs import TrainingSpec


def fast_series_preset(n_rows: int, dim: int, simulates: bool = False) -> TrainingSpec:
    """One rule for all series: the drift starts at a ridge regression, so few iterations are left to do.

    With few draws of J for a step intervals become too wide (docs/results.md, coverage); where a draw is a simulated
    path or a particle (`simulates`), fewer are taken, since each costs as much as the whole model.
    """
    del n_rows, dim
    return TrainingSpec(
        max_iter=1500,
        batch_size=512,
        learning_rate=0.01,
        n_steps=1,
        n_train_samples=8 if simulates else 32,
        warm_iter=0,
        sgp_iter=0,
        warm_rate=0.01,
        kl_warmup=0,
        natural_rate=None,
        decay=0.7,
        path_average="density",
    )


def paper_series_preset(n_rows: int, dim: int, simulates: bool = False) -> TrainingSpec:
    """The paper's settings as far as they are known; use objective="rollout" with it."""
    return dataclasses.replace(
        fast_series_preset(n_rows, dim, simulates), max_iter=10_000, batch_size=1024, learning_rate=1e-3, decay=0.0
    )


SERIES_PRESETS = {"fast": fast_series_preset, "paper": paper_series_preset}
