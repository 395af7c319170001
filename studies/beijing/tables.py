"""Tables of the comparison, from result files alone, with published numbers of the rivals below their own rows.

`score_frame` holds numbers, one in each row, and becomes a CSV file; the others hold text for readers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from .jobs import label_of
from .models import MODELS
from .protocol import BANDS
from .published import is_published, printed_bands, printed_log_density
from .results import SCORES, Results

LOG_DENSITY = "log density, hour 1"
SCORE_NAMES = {
    "crps": "CRPS",
    "crps_observed": "CRPS, measured cells",
    "energy": "energy score",
    "coverage_80": "80 % coverage",
}
AFTER_SCORES = ("crps", "energy", "coverage_80")
SECONDS = "fit, seconds"
DIGITS = {"coverage_80": 2}
BASE = "var24"
MISSING, NO_NUMBER, NOT_FINITE = "missing", "–", "not finite"


def score_frame(results: Results, has_published: bool = True) -> pd.DataFrame:
    """Every score in every band for every row of the table, with the published number as printed."""
    rows: list[tuple[Any, ...]] = []
    for name in row_names(results):
        result = results.get(("scores", name))
        log_density = None if result is None else result["log_density_1"]
        rows.append((name, "log_density", "1", _number(log_density), printed_log_density(name) or ""))
        for score in SCORES:
            printed = printed_bands(score, name) or [""] * len(BANDS)
            for band, text in zip(BANDS, printed, strict=True):
                value = None if result is None else result["bands"][score][band]
                rows.append((name, score, band, _number(value), text))
    frame = pd.DataFrame(rows, columns=["model", "score", "hours", "value", "published"])
    return frame if has_published else frame.drop(columns="published")


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def row_names(results: Results) -> list[str]:
    """All models, whether they have a result or not; training with deleted entries only where there is one."""
    names = [[model, f"{model}-missing"] for model in MODELS]
    return [name for pair in names for name in pair if name in MODELS or ("scores", name) in results]


def score_table(results: Results, is_whole: bool = True, has_published: bool = True) -> pd.DataFrame:
    """One row for each model, scores in the bands 1, 2–6, 7–24 and 25–48 hours with a stroke between them.

    With `has_published` rivals are followed by their published numbers. Without `is_whole` models that have no result
    are left out.
    """
    rows = []
    for name in row_names(results):
        result = results.get(("scores", name))
        if result is None and not is_whole:
            continue
        rows.append(_missing_row(name) if result is None else _row(name, result))
        if has_published and is_published(name):
            rows.append(_published_row(name))
    return pd.DataFrame(rows, columns=["model", LOG_DENSITY, *SCORE_NAMES.values(), SECONDS])


def _row(name: str, result: dict[str, Any]) -> dict[str, str]:
    share = result["settings"].get("missing")
    label = label_of(name) + (f" ({100 * share:.0f} %)" if share else "")
    bands = {text: _bands_text(result["bands"][score], DIGITS.get(score, 3)) for score, text in SCORE_NAMES.items()}
    log_density = _text(result["log_density_1"], 2)
    return {"model": label, LOG_DENSITY: log_density, **bands, SECONDS: f"{result['fit_seconds']:.0f}"}


def _missing_row(name: str) -> dict[str, str]:
    return {"model": label_of(name), **dict.fromkeys([LOG_DENSITY, *SCORE_NAMES.values()], MISSING), SECONDS: NO_NUMBER}


def _published_row(name: str) -> dict[str, str]:
    bands = {text: " / ".join(printed_bands(score, name) or [NO_NUMBER]) for score, text in SCORE_NAMES.items()}
    log_density = printed_log_density(name) or NO_NUMBER
    return {"model": f"{label_of(name)}, published", LOG_DENSITY: log_density, **bands, SECONDS: NO_NUMBER}


def _bands_text(bands: dict[str, Any], digits: int) -> str:
    return " / ".join(_text(bands[band], digits) for band in BANDS)


def _text(value: float | None, digits: int) -> str:
    return NOT_FINITE if value is None else f"{value:.{digits}f}"


def after_table(results: Results) -> pd.DataFrame:
    """Scores of January and February 2017, for the models that have them; the log density also by its median."""
    rows = [_after_row(name, result) for (cell, name), result in results.items() if cell == "after"]
    scores = [SCORE_NAMES[score] for score in AFTER_SCORES]
    return pd.DataFrame(rows, columns=["model", LOG_DENSITY, "its median", *scores])


def _after_row(name: str, result: dict[str, Any]) -> list[str]:
    # A density that is not finite is null in the file.
    densities = np.array(result["windows"]["log_density_1"], float)
    bands = [_bands_text(result["bands"][score], DIGITS.get(score, 3)) for score in AFTER_SCORES]
    return [label_of(name), _text(result["log_density_1"], 2), f"{np.median(densities):.2f}", *bands]


def difference_table(results: Results) -> pd.DataFrame:
    """Scores of the windows minus those of VAR(24) in the same windows: mean ± standard error of the mean.

    Below 0 is better for CRPS and energy score, above 0 for the log density.
    """
    names = [name for name in row_names(results) if ("scores", name) in results and name != BASE]
    if ("scores", BASE) not in results:
        names = []
    rows = [_difference_row(name, results["scores", name], results["scores", BASE]) for name in names]
    columns = [f"{text}, {band.replace('-', '–')} h" for text in ("CRPS", "energy score") for band in BANDS]
    return pd.DataFrame(rows, columns=["model", LOG_DENSITY, *columns])


def _difference_row(name: str, result: dict[str, Any], base: dict[str, Any]) -> list[str]:
    mine, other = result["windows"], base["windows"]
    texts = [_difference(mine["log_density_1"], other["log_density_1"], 2)]
    texts += [_difference(mine[score][band], other[score][band], 3) for score in ("crps", "energy") for band in BANDS]
    return [label_of(name), *texts]


def _difference(first: list[float], second: list[float], digits: int) -> str:
    n = min(len(first), len(second))  # window k is the same hours in every file
    difference = np.array(first[:n], float) - np.array(second[:n], float)
    if not np.isfinite(difference).all():
        return NOT_FINITE
    error = f" ± {difference.std(ddof=1) / np.sqrt(n):.{digits}f}" if n > 1 else ""
    return f"{difference.mean():+.{digits}f}{error}"
