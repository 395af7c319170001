"""`write_report`: the parts of a report, put into one page with its style, its script and its data."""

from __future__ import annotations

import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OptionError
from ..files.writing import write_bytes_atomic
from . import fits, scores_parts, series_parts
from .numbers import span_in_words


def write_report(
    path: str | Path,
    *,
    title: str | None = None,
    forecast: Any = None,
    history: Any = None,
    model: Any = None,
    scores: Any = None,
    rows: tuple[Any, Any] | None = None,
) -> Path:
    """Write a report to one HTML file, which needs no network.

    Parameters
    ----------
    path : str or path
        The file.
    title : str, optional
        The title of the page.
    forecast : Forecast, optional
        Shown as fan charts, with the correlations of its draws at each time.
    history : DataFrame, optional
        Observed values before and during the forecast. With a forecaster as `model` also the correlations of its
        noise along these rows, with their bands.
    model : estimator, optional
        A fitted estimator: what was trained and how it ended.
    scores : Dataset or dict of str to Dataset, optional
        Scores of `backtest`, by the name of the model: calibration by horizon, models compared by horizon.
    rows : tuple of X and y, optional
        Rows that took no part in training of a regressor or a classifier: calibration and errors.

    Returns
    -------
    path
        The file.

    Raises
    ------
    OptionError
        If there is nothing to report.

    Examples
    --------
    >>> import numpy as np
    >>> import wishflow as wf
    >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
    >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, np.sin(X[:, 0]))
    >>> wf.report.write_report("report.html", model=model).name
    'report.html'
    """
    parts: list[dict[str, Any]] = []
    if forecast is not None:
        parts += [series_parts.fan(forecast, history), *series_parts.forecast_correlations(forecast)]
    if history is not None and hasattr(model, "correlation"):
        parts += series_parts.noise_correlations(model, history)
    if scores is not None:
        parts += scores_parts.by_horizon(scores if isinstance(scores, dict) else {"model": scores})
    if rows is not None and model is not None:
        parts += fits.held_out(model, *rows)
    if model is not None:
        parts += fits.training(model)
    if not parts and model is None:
        raise OptionError("nothing to report was given; expected a forecast, a model or scores.")
    shown = "Forecast" if forecast is not None else "Backtest" if model is None else type(model).__name__
    text = _page(title or f"{shown} by wishflow", _subtitle(forecast, model), fits.words(model), parts)
    write_bytes_atomic(path, text.encode())
    return Path(path)


def _subtitle(forecast: Any, model: Any) -> str:
    said = []
    if forecast is not None:
        span = span_in_words(forecast.index[0], forecast.index[-1])
        n_draws = forecast.samples.shape[0]
        said.append(f"{len(forecast.columns)} series, {len(forecast.index)} steps from {span}, {n_draws} draws")
    if model is not None:
        said.append(f"{type(model).__name__}: {model.status_}")
    return ". ".join(said)


def _page(title: str, subtitle: str, training: str, parts: list[dict[str, Any]]) -> str:
    folder = resources.files(__package__)
    pieces = {
        "TITLE": html.escape(title),
        "SUBTITLE": html.escape(subtitle),
        "TRAINING": training,
        "STYLE": (folder / "page.css").read_text(encoding="utf-8").strip(),
        "SCRIPT": (folder / "page.js").read_text(encoding="utf-8").strip(),
        "DATA": _json({"parts": parts}),
    }
    text = (folder / "page.html").read_text(encoding="utf-8")
    # Cut at the places first: what is put in may hold such words itself.
    pieces_and_marks = text.split("@")
    return "".join(pieces.get(part, part) for part in pieces_and_marks)


def _json(value: Any) -> str:
    """JSON inside a script element: no text may end the element."""
    text = json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a report cannot contain a {type(value).__name__}")
