"""The numbers behind the pictures of regressors and classifiers; `wishflow.plotting` draws them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from sklearn.utils.validation import check_is_fitted

from ..errors import DataError
from ..numerics.grids import plane_grid, visible_times
from .data import names_of_targets

N_CURVE = 200
N_GROUPS = 10
FIELD_TITLE = "Drift over {:.2g}, noise over {:.2g} of flow time"


def plot_training(model: Any, axes: Any) -> Any:
    from .. import plotting

    check_is_fitted(model, "model_")
    return plotting.plot_training(model.history_, getattr(model, "validation_history_", None), axes)


def plot_bands(model: Any, X: Any, y: Any, feature: Any, target: Any, coverages: Sequence[float], ax: Any) -> Any:
    """Intervals along one input, with the other inputs at their medians."""
    from .. import plotting

    check_is_fitted(model, "model_")
    rows, names, targets = np.asarray(X, float), input_names(model), names_of_targets(model)
    column, output = place("feature", feature, names), place("target", target, targets)
    x = np.linspace(rows[:, column].min(), rows[:, column].max(), N_CURVE)
    line = np.repeat(np.median(rows, axis=0)[None], N_CURVE, axis=0)
    line[:, column] = x
    wide = sorted(coverages, reverse=True)
    levels = [0.5, *(0.5 + sign * 0.5 * coverage for coverage in wide for sign in (-1, 1))]
    curves = model.predict_quantiles(_like(X, line), levels).reshape(N_CURVE, len(targets), -1)[:, output]
    if y is not None:
        seen = np.asarray(y, float).reshape(len(rows), -1)[:, output]
        ax = plotting.plot_points(rows[:, column], seen, label="observed", ax=ax)
    for i, coverage in enumerate(wide):
        middle = curves[:, 0] if i == len(wide) - 1 else None
        ends = curves[:, 1 + 2 * i], curves[:, 2 + 2 * i]
        ax = plotting.plot_band(x, *ends, middle, label=f"{coverage:.0%} interval", ax=ax)
    ax.set(xlabel=names[column], ylabel=targets[output])
    if len(names) > 1:
        ax.set_title("Other inputs at their medians", fontsize="small")
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_calibration(model: Any, X: Any, y: Any, axes: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # over-confidence is what the picture shows
        return model.diagnose(X, y).plot(axes)


def plot_reliability(model: Any, X: Any, y: Any, ax: Any) -> Any:
    from .. import plotting

    p, labels = model.predict_proba(X), np.asarray(y).ravel()
    shown = model.classes_ if len(model.classes_) > 2 else model.classes_[1:]  # of two the other says the same
    said, came = {}, {}
    for label in shown:
        found = grouped(p[:, list(model.classes_).index(label)], labels == label)
        said[str(label)], came[str(label)] = found
    return plotting.plot_reliability(said, came, ax=ax)


def grouped(p: Float[np.ndarray, " N"], is_so: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean probability and share of hits in tenths of [0, 1] that hold rows."""
    groups: Int[np.ndarray, " N"] = np.minimum((p * N_GROUPS).astype(int), N_GROUPS - 1)
    there = np.unique(groups)
    return (
        np.array([p[groups == group].mean() for group in there]),
        np.array([is_so[groups == group].mean() for group in there]),
    )


def plot_flow(model: Any, X: Any, features: Any, random_state: Any, ax: Any) -> Any:
    """Paths in the plane of two inputs; of one input against the flow time."""
    from .. import plotting

    paths, names = model.flow_paths(X, random_state), input_names(model)
    if len(names) == 1:
        times = np.linspace(0.0, float(model.spec_.flow_time), len(paths))
        across = np.broadcast_to(times[:, None], paths.shape[:2])
        ax = plotting.plot_paths(np.stack([across, paths[..., 0]], axis=-1), is_square=False, ax=ax)
        ax.set(xlabel="flow time", ylabel=names[0])
        return ax
    pair = [place("features", feature, names) for feature in _two(features, names)]
    ax = plotting.plot_paths(paths[..., pair], is_square=False, ax=ax)
    ax.set(xlabel=names[pair[0]], ylabel=names[pair[1]])
    return ax


def plot_field(model: Any, X: Any, features: Any, n_side: int, ax: Any) -> Any:
    """Drift and noise over a grid of two inputs, with the other inputs at their medians."""
    from .. import plotting

    check_is_fitted(model, "model_")
    rows, names = np.asarray(X, float), input_names(model)
    pair = [place("features", feature, names) for feature in _two(features, names)]
    points, spacing = plane_grid(rows[:, pair], n_side)
    line = np.repeat(np.median(rows, axis=0)[None], len(points), axis=0)
    line[:, pair] = points
    drift = model.mean_drift(_like(X, line))[:, pair]
    rates = model.mean_covariance(_like(X, line))[:, pair][:, :, pair]
    long, short = visible_times(drift, rates, spacing)
    ax = plotting.plot_field(points, long * drift, short * rates, is_square=False, ax=ax)
    ax.set(xlabel=names[pair[0]], ylabel=names[pair[1]], title=FIELD_TITLE.format(long, short))
    return ax


def input_names(model: Any) -> list[str]:
    known = getattr(model, "feature_names_in_", None)
    return [f"x{i + 1}" for i in range(model.n_features_in_)] if known is None else list(known)


def place(option: str, wanted: Any, names: list[str]) -> int:
    """The number of a column that is named, or numbered."""
    if isinstance(wanted, int | np.integer) and not isinstance(wanted, bool) and 0 <= wanted < len(names):
        return int(wanted)
    if wanted in names:
        return names.index(wanted)
    raise DataError(f"{option}={wanted!r} is not known; expected one of {names}, or a number below {len(names)}.")


def _two(features: Any, names: list[str]) -> Any:
    if isinstance(features, str) or len(features) != 2:
        raise DataError(f"features={features!r} given; expected two of {names}.")
    return features


def _like(X: Any, rows: Float[np.ndarray, "N D"]) -> Any:
    """Rows as a frame where X is one, so that names of columns are found."""
    return pd.DataFrame(rows, columns=X.columns) if hasattr(X, "columns") else rows
