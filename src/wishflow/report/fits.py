"""Parts of a page about a fit: what was trained and how it ended, and how rows outside of training are predicted."""

from __future__ import annotations

import html
import warnings
from typing import Any

import numpy as np

from .numbers import few_digits, thinned

MOST_POINTS = 600
N_BINS = 10


def words(model: Any) -> str:
    """Options, status and summary of a model, as HTML: readable without a script."""
    if model is None:
        return ""
    lines = [model.summary()]
    given = [f"{name}={value!r}" for name, value in _given_options(model).items()]
    if given:
        lines += ["", "options given: " + ", ".join(given)]
    text = html.escape("\n".join(lines))
    title = '<h2 id="trained">What was trained</h2>'
    return f'<section aria-labelledby="trained">{title}<pre tabindex="0">{text}</pre></section>'


def _given_options(model: Any) -> dict[str, Any]:
    """Options that are not the defaults, but for those of the screen."""
    defaults = type(model)().get_params(deep=False)
    options = model.get_params(deep=False).items()
    return {k: v for k, v in options if k not in ("verbose", "callbacks") and repr(v) != repr(defaults[k])}


def training(model: Any) -> list[dict[str, Any]]:
    """The objective along training, and the scores of held-back rows."""
    history = model.history_
    charts = []
    keys = ["phase", "member"] if "member" in history else ["phase"]
    for key, part in history.groupby(keys, sort=False):
        phase = ", member ".join(map(str, key))
        values = part["objective"].to_numpy(float)
        if len(values) > 1:
            rows = thinned(len(values), 1, 400)
            name = f"objective, {phase}"
            caption = f"{name}: log density of the scaled data less penalties, by iteration; higher is better."
            charts.append(
                {"name": name, "caption": caption, "x": (rows + 1).tolist(), "y": few_digits(values[rows], 6)}
            )
    held = getattr(model, "validation_history_", None)
    if held is not None and {"step", "log_density"} <= set(held.columns) and len(held) > 1:
        name = "log density of held-back rows"
        points = {"x": held["step"].astype(int).tolist(), "y": few_digits(held["log_density"])}
        charts.append({"name": name, "caption": f"{name}, by iteration; higher is better.", **points})
    if not charts:
        return []
    return [{"part": "plain", "title": "Training", "charts": charts}]


def held_out(model: Any, X: Any, y: Any) -> list[dict[str, Any]]:
    """Calibration and errors of rows outside of training."""
    return _of_classes(model, X, y) if hasattr(model, "classes_") else _of_numbers(model, X, y)


def _of_numbers(model: Any, X: Any, y: Any) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # they are in the words of the diagnosis
        found = model.diagnose(X, y)
    names = getattr(model, "target_names_", None) or [f"target {i + 1}" for i in range(found.pit.shape[1])]
    mean, seen = np.asarray(model.predict(X)).reshape(len(found.pit), -1), np.asarray(y).reshape(len(found.pit), -1)
    rows = thinned(len(mean), 1, MOST_POINTS)
    density = found.histogram / found.histogram.sum() * len(found.histogram)
    bins = np.arange(len(density)) / len(density)
    caption = "How often observed values fall into each tenth of their predictive distribution; 1 is right everywhere."
    pit = {
        "name": "PIT histogram (flat is right)",
        "caption": caption,
        "kind": "bars",
        "width": 1 / len(density),
        "nominal": 1.0,
    }
    charts: list[dict[str, Any]] = [{**pit, "x": few_digits(bins), "y": few_digits(density)}]
    for j, name in enumerate(names):
        points = {"x": few_digits(mean[rows, j]), "y": few_digits(seen[rows, j])}
        caption = f"{name}: observed value (upwards) against predicted mean; on the dashed line both are the same."
        charts.append({"name": f"{name}: observed against predicted", "kind": "points", "caption": caption, **points})
    note = str(found).replace("\n", "; ") + "."
    return [{"part": "plain", "title": "Rows outside of training", "note": note, "charts": charts}]


def _of_classes(model: Any, X: Any, y: Any) -> list[dict[str, Any]]:
    """How often a class came true, by the probability it was given."""
    p, labels = model.predict_proba(X), np.asarray(y).ravel()
    charts = []
    for j, label in enumerate(model.classes_):
        bins = np.minimum((p[:, j] * N_BINS).astype(int), N_BINS - 1)
        there = [b for b in range(N_BINS) if (bins == b).any()]
        said, came = ([float(v[bins == b].mean()) for b in there] for v in (p[:, j], labels == label))
        charts.append(
            {"name": f"reliability of {label}", "kind": "points", "x": few_digits(said), "y": few_digits(came)}
        )
    accuracy = float(np.mean(model.classes_[p.argmax(axis=1)] == labels))
    log_prob = float(np.mean(model.log_prob(X, y)))
    note = (
        f"{len(labels)} rows: accuracy {accuracy:.3f}, mean log probability {log_prob:.3f}. Points: "
        "how often a class came true against the probability it was given; on the dashed line it is right."
    )
    return [{"part": "plain", "title": "Rows outside of training", "note": note, "charts": charts}]
