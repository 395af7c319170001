"""Small fits with checkpoints, and all that they learnt as arrays."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.files.writing import write_bytes_atomic

# A state is written after every hundred steps.
N_STEPS = 600
SMALL = {"n_inducing": 8, "random_state": 0, "tol": 0}
FLOW = {**SMALL, "n_steps": 2, "max_iter": N_STEPS}
SERIES = {**SMALL, "rank": 1, "max_iter": N_STEPS}


def rows(shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=60) + shift * X[:, 1]


def hours() -> pd.DataFrame:
    walk = np.random.default_rng(1).normal(size=(210, 2)).cumsum(axis=0)  # rows enough that the forecaster trains
    return pd.DataFrame(walk, pd.date_range("2024-01-01", periods=210, freq="h"), ["a", "b"])


def _many(callbacks: Any = None, **options: Any) -> list[Any]:
    models = [wf.FlowRegressor(validation_fraction=0, **{**FLOW, **options}) for _ in range(2)]
    return wf.fit_many(models, [rows(), rows(1.0)], callbacks)


def _labels(**options: Any) -> list[Any]:
    X, y = rows()
    return [wf.FlowClassifier(**{**FLOW, **options}).fit(X, y > 0)]


# Each fits anew with the given options of checkpoints, and returns its models.
FITS: dict[str, Callable[..., list[Any]]] = {
    "regressor": lambda **k: [wf.FlowRegressor(validation_fraction=0.2, **{**FLOW, **k}).fit(*rows())],
    "classifier": _labels,
    "forecaster": lambda **k: [wf.WishartForecaster(lags=1, **{**SERIES, **k}).fit(hours())],
    "fit_many": _many,
    "members": lambda **k: [wf.FlowRegressor(validation_fraction=0, n_members=2, **{**FLOW, **k}).fit(*rows())],
}
KINDS = tuple(FITS)


def fitted(kind: str, folder: Path | None, **options: Any) -> list[Any]:
    """The models of a kind, with a checkpoint after each chunk in a folder, or without."""
    often = None if folder is None else wf.Checkpointing(folder, every_seconds=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FITS[kind](checkpoint_dir=often, **options)


def learnt(models: list[Any]) -> dict[str, np.ndarray]:
    """All numbers that fits have learnt, and their histories but for the seconds."""
    parts: list[Any] = []
    for model in models:
        members = getattr(model, "members_", ())
        parts += [model.model_, *(members.values() if isinstance(members, dict) else [one.model for one in members])]
        bands = model.calibration_
        parts += [vars(bands) if hasattr(bands, "horizons") else bands]
        parts += [model.history_.drop(columns=["phase", "seconds"]).to_numpy(float)]
    return {str(i): np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(parts))}


def are_equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Whether two fits have learnt the same, bit by bit."""
    same = [one[name].tobytes() == other[name].tobytes() for name in one if name in other]
    return len(one) == len(other) == len(same) and all(same)


def run(kind: str, folder: Path | None, out: Path) -> None:
    """Fit, and write what was learnt."""
    content = io.BytesIO()
    np.savez(content, **learnt(fitted(kind, folder)))  # type: ignore[arg-type]
    write_bytes_atomic(out, content.getvalue())
