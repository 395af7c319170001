"""Tables of the suite, from result files alone: scores beside the paper's, and Wilcoxon tests beside its Table 1.

A `*_frame` holds numbers, one in each row, and becomes a CSV file; a `*_table` holds text for readers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.stats import wilcoxon

from .paper import printed_p_value, printed_score
from .results import SCORES, Results, paired_scores, split_scores
from .suite import DATA, MODELS

SCORE_NAMES = {
    "mean_log_density_of_paths": "log density, paper's score",
    "log_density": "log density, mixture",
    "rmse": "RMSE",
    "crps": "CRPS",
    "coverage_95": "95 % coverage",
}
BEST_NAME = "best flow in the paper, its score"
PAPER_NAMES = {"mean_log_density_of_paths": "log density in the paper", "rmse": "RMSE in the paper"}
# The first is asked to be better than the second. The last pair is ours: the paper does not test it.
COMPARISONS = (("diffgp", "sgp"), ("diffwgp5", "diffgp"), ("diffwgp5", "sgp"))
PAPER_SCORE = "mean_log_density_of_paths"
LOG_SCORES = (PAPER_SCORE, "log_density")
LEVEL = 0.05
MISSING, NO_NUMBER = "missing", "–"


def score_frame(results: Results) -> pd.DataFrame:
    """Mean and standard deviation over splits of each score, for all cells of the grid, with the paper's as printed."""
    rows = []
    for data in DATA:
        for model in MODELS:
            for score in SCORES:
                result = results.get((data, model))
                values = np.array([]) if result is None else split_scores(result, score)
                paper = printed_score(score, data, model) or ("", "")
                rows.append((data, model, score, len(values), *_mean_and_sd(values), *paper))
    columns = ["data", "model", "score", "n_splits", "mean", "sd", "paper_mean", "paper_sd"]
    return pd.DataFrame(rows, columns=columns)


def _mean_and_sd(values: np.ndarray) -> tuple[float, float]:
    mean = float(np.mean(values)) if len(values) else np.nan
    return mean, float(np.std(values, ddof=1)) if len(values) > 1 else np.nan


def score_table(results: Results, data: str | None = None) -> pd.DataFrame:
    """The supplementary table: a row for each data set (or the one named) and model, mean ± standard deviation."""
    numbers = {(row.data, row.model, row.score): row for row in score_frame(results).itertuples()}
    names = DATA if data is None else (data,)
    rows = [_score_row(results, numbers, name, model) for name in names for model in MODELS]
    table = pd.DataFrame(rows)
    return table if data is None else table.drop(columns="data")


def _score_row(results: Results, numbers: dict[Any, Any], data: str, model: str) -> dict[str, str]:
    result = results.get((data, model))
    row = {"data": data, "model": MODELS[model].label}
    for score, name in SCORE_NAMES.items():
        row[name] = _mean_text(score, numbers[data, model, score])
        if score in PAPER_NAMES:
            row[PAPER_NAMES[score]] = " ± ".join(printed_score(score, data, model) or (NO_NUMBER,))
    row["splits"] = NO_NUMBER if result is None else str(len(result["splits"]))
    row["fit, seconds"] = NO_NUMBER if result is None else f"{result['fit_seconds']:.0f}"
    return row


def _mean_text(score: str, cell: Any) -> str:
    if not cell.n_splits:
        return MISSING
    if not np.isfinite(cell.mean):
        return "not finite"
    form, spread = ("{:.3f}", "{:.3f}") if score in (*LOG_SCORES, "coverage_95") else ("{:#.4g}", "{:#.2g}")
    return form.format(cell.mean) + ("" if np.isnan(cell.sd) else " ± " + spread.format(cell.sd))


def overview_table(results: Results) -> pd.DataFrame:
    """Data sets down, models across: the log density of the mixture, the highest in bold; then the paper's best."""
    numbers: dict[Any, Any] = {
        (row.data, row.model): row for row in score_frame(results).itertuples() if row.score == "log_density"
    }
    rows = []
    for data in DATA:
        means = [numbers[data, model].mean for model in MODELS if numbers[data, model].n_splits]
        best = max(means) if len(means) > 1 else np.nan
        row = {"data": data}
        for model, shown in MODELS.items():
            text = _mean_text("log_density", numbers[data, model])
            row[shown.label] = f"**{text}**" if numbers[data, model].mean == best else text
        rows.append({**row, BEST_NAME: best_printed(data)})
    return pd.DataFrame(rows)


def best_printed(data: str) -> str:
    """The highest log density the paper prints for a data set, in its own score, and whose it is."""
    found = {model: printed_score(PAPER_SCORE, data, model) for model in MODELS}
    means = {model: pair[0] for model, pair in found.items() if pair is not None}
    best = max(means, key=lambda model: float(means[model]))
    return f"{means[best]} ({MODELS[best].label})"


def wilcoxon_frame(results: Results) -> pd.DataFrame:
    """One-sided p-values for both log scores, all comparisons and data sets, with Holm's correction over data sets."""
    rows = []
    for score in LOG_SCORES:
        for first, second in COMPARISONS:
            tests = [_test(results, data, first, second, score) for data in DATA]
            corrected = holm([p for _, p in tests])
            for data, (n, p), adjusted in zip(DATA, tests, corrected, strict=True):
                paper = (printed_p_value(first, second, data) if score == PAPER_SCORE else None) or ""
                rows.append((score, first, second, data, n, p, adjusted, paper))
    columns = ["score", "first", "second", "data", "n_splits", "p", "p_holm", "paper"]
    return pd.DataFrame(rows, columns=columns)


def _test(results: Results, data: str, first: str, second: str, score: str) -> tuple[int, float]:
    if (data, first) not in results or (data, second) not in results:
        return 0, np.nan
    better, worse = paired_scores(results[data, first], results[data, second], score)
    return len(better), wilcoxon_p(better, worse)


def wilcoxon_p(first: Float[np.ndarray, " n"], second: Float[np.ndarray, " n"]) -> float:
    """p of the signed-rank test of equal medians against "`first` tends to be greater", pairs being splits.

    The paper words its alternative as a negative location shift, of the second model against the first.
    """
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return np.nan
    if np.array_equal(first, second):  # no rank carries a sign
        return 1.0
    return float(wilcoxon(first, second, alternative="greater").pvalue)


def holm(p: ArrayLike) -> np.ndarray:
    """p-values corrected for their number m by Holm's step-down rule; NaN stays and does not count.

    The k-th smallest becomes max over j ≤ k of min(1, (m − j + 1) p_(j)) (Holm 1979).
    """
    p = np.asarray(p, float)
    order = np.argsort(p)[: np.isfinite(p).sum()]  # NaN is sorted to the end
    corrected = np.full(len(p), np.nan)
    steps = np.arange(len(order), 0, -1) * p[order]
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def wilcoxon_table(results: Results, score: str) -> pd.DataFrame:
    """Table 1: a row for each data set; for each comparison p, p after Holm, and the paper's; bold below 0.05."""
    tests: dict[Any, Any] = {
        (row.score, row.first, row.second, row.data): row for row in wilcoxon_frame(results).itertuples()
    }
    table = pd.DataFrame({"data": list(DATA)})
    for first, second in COMPARISONS:
        title = f"{_short(first)} vs. {_short(second)}"
        cells = [tests[score, first, second, data] for data in DATA]
        table[f"{title}: p"] = [_p_text(cell.p, cell.n_splits) for cell in cells]
        table[f"{title}: p, Holm"] = [_p_text(cell.p_holm, cell.n_splits) for cell in cells]
        if any(cell.paper for cell in cells):
            table[f"{title}: in the paper"] = [_printed_p_text(cell.paper) for cell in cells]
    return table


def _short(model: str) -> str:
    """The model as Table 1 names it: its ρ is 5 throughout."""
    return MODELS[model].label.partition(",")[0]


def _p_text(p: float, n: int) -> str:
    if not n:
        return MISSING
    if np.isnan(p):
        return "not finite"
    text = "<0.0001" if p < 1e-4 else f"{p:.4f}"
    return f"**{text}**" if p < LEVEL else text


def _printed_p_text(text: str) -> str:
    if not text:
        return NO_NUMBER
    return f"**{text}**" if float(text.removeprefix("<")) < LEVEL else text


def missing_cells(results: Results) -> list[tuple[str, str]]:
    """Data set and model of the cells without a result."""
    return [(data, model) for data in DATA for model in MODELS if (data, model) not in results]
