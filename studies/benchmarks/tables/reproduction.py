"""Tables of docs/reproduction.md, from the cells of `studies.uci`, `studies.beijing` and `benchmarks.differences`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from wishflow.files.json import read_json

from ... import paths
from ...beijing import results as beijing
from ...beijing.jobs import JOINED
from ...beijing.models import MODELS as SERIES_MODELS
from ...provenance import sources
from ...report import markdown_table
from ...uci import pages, tables
from ...uci.paper import printed_score
from ...uci.results import Results, is_kept, is_kept_text, paired_scores, read_results, split_scores
from ...uci.suite import DATA, MODELS, N_SPLITS
from ..differences import LABELS
from .text import NOT_MEASURED

NO_NUMBER = "–"
# The log density of the mixture that diffWGP is to reach: the paper's best flow or better, and what sampled deep GPs
# reach; beside them what SGP is to reach, with its allowance.
BARS = {
    "boston": -2.45,
    "concrete": -3.00,
    "kin8nm": 1.35,
    "naval": 9.0,
    "power": -2.76,
    "protein": -2.77,
    "wine_white": -1.035,
    "bike_paper": -0.41,
}
AIMS = {"concrete": -2.90, "kin8nm": 1.38, "power": -2.68, "protein": -2.62}
SGP_BARS = {"boston": -2.45, "concrete": -3.18, "kin8nm": 0.97, "naval": 9.0, "power": -2.81, "wine_white": -1.06}
SGP_ALLOWANCE = 0.01
# A flow may lose this much to SGP, or as much as one standard error.
MOST_LOST = 0.02
MOST_MINUTES = 30.0
# Where nothing is done otherwise: what the differences are measured from.
BASE_VARIANT = "right"
# The scores by which a flow may lose, and those of the paper's that they are held against.
LOSSES = {
    "log_density": "Log density, mixture",
    "mean_log_density_of_paths": "Log density, paper's score",
    "rmse": "RMSE",
}
PRINTED_FOR = {
    "log_density": "mean_log_density_of_paths",
    "mean_log_density_of_paths": "mean_log_density_of_paths",
    "rmse": "rmse",
}
# What the paper prints for each cell.
PRINTED_SCORES = ("mean_log_density_of_paths", "rmse")
FAIR_COVERAGE = (0.93, 0.97)


def uci_results() -> Results:
    """Test results by (data, model), in the order of the paper's tables."""
    return read_results(paths.RESULTS / "reproduction", "fast")


def overview_table() -> str:
    """The log density of the mixture, all data sets and models."""
    return markdown_table(tables.overview_table(uci_results()))


def score_table() -> str:
    """The supplementary table: a row for each cell that has a result, and what is missing or was not kept."""
    results = uci_results()
    table = tables.score_table(results)
    has_result = [key in results for key in ((data, model) for data in DATA for model in MODELS)]
    notes = [*pages.missing_note(results), *pages.kept_note(results), *pages.paths_note(results)]
    return "\n\n".join([markdown_table(table[has_result]) if results else NOT_MEASURED, *notes])


def wilcoxon_tables() -> str:
    """Table 1 for the paper's score and for the mixture's."""
    results = uci_results()
    parts = []
    for score in tables.LOG_SCORES:
        parts += [f"{tables.SCORE_NAMES[score].capitalize()}:", markdown_table(tables.wilcoxon_table(results, score))]
    return "\n\n".join(parts)


def bar_table() -> str:
    """What diffWGP is to reach on each data set, whether it does, and how it stands to SGP split by split."""
    results = uci_results()
    rows = []
    for data, bar in BARS.items():
        means = {model: mean_of(results.get((data, model))) for model in ("diffwgp5", "diffwgp10")}
        row = {"data": data, "bar": f"{bar:.3f}"}
        for model, mean in means.items():
            row[MODELS[model].label] = verdict(mean, bar)
        row["aim"] = f"{AIMS[data]:.3f}" if data in AIMS else NO_NUMBER
        row["aim, ρ = 5"] = verdict(means["diffwgp5"], AIMS[data]) if data in AIMS else NO_NUMBER
        for model, name in (("diffwgp5", "ρ = 5"), ("diffwgp10", "ρ = 10")):
            row[f"{name} − SGP, ± standard error"] = paired_text(results, data, model)
        rows.append(row)
    return markdown_table(pd.DataFrame(rows))


def mean_of(result: dict[str, Any] | None) -> float | None:
    """Mean log density of the mixture over the splits; NaN where one of them is not finite."""
    return None if result is None else float(np.mean(split_scores(result, "log_density")))


def verdict(mean: float | None, bar: float, allowance: float = 0.0) -> str:
    """The number and whether it reaches the bar; an allowance is named where it was needed."""
    if mean is None:
        return "not measured yet"
    if not np.isfinite(mean):
        return "not finite: missed"
    short = bar - mean
    if short <= 0.0:
        return f"{mean:.3f}, reached"
    return f"{mean:.3f}, " + (f"reached within {allowance:g}" if short <= allowance else f"missed by {short:.2g}")


def paired_text(results: Results, data: str, model: str) -> str:
    """Mean difference to SGP over the splits and whether a flow loses no more to it than it may."""
    if (data, model) not in results or (data, "sgp") not in results:
        return "not measured yet"
    first, base = paired_scores(results[data, model], results[data, "sgp"], "log_density")
    mean, error = mean_and_error(first - base)
    is_reached = mean >= -MOST_LOST or mean >= -error
    return f"{mean:+.3f} ± {error:.3f}, {'reached' if is_reached else 'missed'}"


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def sgp_bar_table() -> str:
    """What SGP is to reach."""
    results = uci_results()
    rows = [
        {"data": data, "bar": f"{bar:.3f}", "SGP": verdict(mean_of(results.get((data, "sgp"))), bar, SGP_ALLOWANCE)}
        for data, bar in SGP_BARS.items()
    ]
    return markdown_table(pd.DataFrame(rows))


def worse_lists() -> str:
    """Where flows of ours lose: to our SGP by more than a standard error of the paired difference, to the paper's own
    mean of the same model; left out are those that SGP replaced on every split. Then the coverage of all intervals.
    """
    results, numbers = uci_results(), {}
    for row in tables.score_frame(results).itertuples():
        numbers[row.data, row.model, row.score] = row
    flows = [key for key, result in results.items() if key[1] != "sgp" and not is_kept(result)]
    lines = []
    for score, name in LOSSES.items():
        sign = -1.0 if score == "rmse" else 1.0
        lines.append((f"{name}, worse than our SGP", [k for k in flows if _loses_to_sgp(results, *k, score, sign)]))
        printed = PRINTED_FOR[score]
        pairs = {key: (numbers[*key, score].mean, numbers[*key, printed].paper_mean) for key in flows}
        lost = [key for key, (ours, paper) in pairs.items() if paper and sign * ours < sign * _number(paper)]
        lines.append((f"{name}, worse than the paper prints for the same model", lost))
    low, high = FAIR_COVERAGE
    coverages = {key: numbers[*key, "coverage_95"].mean for key in results}
    lines.append(
        (f"95 % intervals that cover less than {100 * low:.0f} %", [k for k, c in coverages.items() if c < low])
    )
    lines.append(
        (f"95 % intervals that cover more than {100 * high:.0f} %", [k for k, c in coverages.items() if c > high])
    )
    return bullets(f"{name}: {pages.cell_names(keys)}." for name, keys in lines if keys)


def _loses_to_sgp(results: Results, data: str, model: str, score: str, sign: float) -> bool:
    first, base = paired_scores(results[data, model], results[data, "sgp"], score)
    mean, error = mean_and_error(sign * (first - base))
    return mean < -error


def _number(printed: str) -> float:
    """A number of the paper's; of "<0.0001" its limit."""
    return float(printed.lstrip("<"))


def cost() -> str:
    """Minutes by device, and whether the whole suite stays within its limit on an accelerator."""
    results = uci_results()
    lines = pages.cost_lines(results)
    made = [result for result in results.values() if "(gpu)" in result["provenance"]["device"]]
    minutes = pages.minutes_in_use(made)
    n_fits, n_all = sum(len(result["splits"]) for result in made), len(DATA) * len(MODELS) * N_SPLITS
    if n_fits == n_all:
        is_within = minutes <= MOST_MINUTES
        lines.append(f"All {n_all} fits: {minutes:.1f} minutes, {'within' if is_within else 'above'} the limit of 30.")
    else:
        lines.append(f"{n_fits} of {n_all} fits were made on a GPU, so the limit of 30 minutes cannot be judged yet.")
    return bullets(lines)


def source_list() -> str:
    """Commands, commits and machines of the cells."""
    return bullets(sources(uci_results().values())) or NOT_MEASURED


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def joint_table() -> str:
    """Correlations of the two temperatures in the forecasts of the first window."""
    results = beijing.read_results(paths.RESULTS / "beijing")
    found = {model: results["joint", model] for model in JOINED if ("joint", model) in results}
    if not found:
        return NOT_MEASURED
    rows = [
        {"model": SERIES_MODELS[model].label}
        | {f"{part['hour']} h ahead": f"{part['correlation']:.2f}" for part in result["hours"]}
        for model, result in found.items()
    ]
    return markdown_table(pd.DataFrame(rows))


def paper_settings_table() -> str:
    """The paper's settings to their end, beside the paper's printed means: how many of its deviations lie between."""
    found = read_json(paths.RESULTS / "paper_settings.json") or {}
    by_key = {(result["data"], result["model"]): result for result in found.values()}
    keys = [(data, model) for data in DATA for model in MODELS if (data, model) in by_key]
    if not keys:
        return NOT_MEASURED
    rows = [paper_settings_row(by_key[key], score) for key in keys for score in PRINTED_SCORES]
    seconds = sum(result["fit_seconds"] for result in by_key.values())
    n_fits = sum(len(result["splits"]) for result in by_key.values())
    note = f"{n_fits} fits, {seconds / 60:.0f} minutes of training, in up to"
    note += f" {max(result['pieces'] for result in by_key.values())} pieces."
    return "\n\n".join([markdown_table(pd.DataFrame(rows)), note, bullets(sources(by_key.values()))])


def paper_settings_row(result: dict[str, Any], score: str) -> dict[str, str]:
    """One score of a cell, the paper's, and the difference, also in standard deviations of the paper's splits."""
    values = split_scores(result, score)
    mean, sd = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else np.nan
    printed = printed_score(score, result["data"], result["model"])
    row = {"data": result["data"], "model": MODELS[result["model"]].label, "score": tables.SCORE_NAMES[score]}
    row |= {"splits": str(len(values)), "here": f"{mean:.4f} ± {sd:.4f}"}
    if printed is None:
        return row | dict.fromkeys(("in the paper", "difference", "in its deviations"), NO_NUMBER)
    difference = mean - _number(printed[0])
    scaled = f"{difference / _number(printed[1]):+.2f}"
    return row | {
        "in the paper": " ± ".join(printed),
        "difference": f"{difference:+.4f}",
        "in its deviations": scaled,
    }


def difference_table() -> str:
    """diffWGP with one thing done as in the paper or in its code, against the same without it, split by split."""
    found = [read_json(path) for path in sorted((paths.RESULTS / "differences").glob("*.json"))]
    by_key = {(result["data"], result["variant"]): result for result in found if result is not None}
    if not by_key:
        return NOT_MEASURED
    names = dict.fromkeys(data for data, _ in by_key)
    rows = [
        difference_row(data, variant, by_key)
        for data in sorted(names, key=list(DATA).index)
        for variant in LABELS
        if (data, variant) in by_key
    ]
    return "\n\n".join([markdown_table(pd.DataFrame(rows)), bullets(sources(by_key.values()))])


def difference_row(data: str, variant: str, by_key: dict[tuple[str, str], dict[str, Any]]) -> dict[str, str]:
    """Scores of one variant; a plus is a gain over the base in a log density and a loss in the RMSE."""
    result, base = by_key[data, variant], by_key.get((data, BASE_VARIANT))
    kept = " (SGP kept on some splits)" if any(map(is_kept_text, result["status"])) else ""
    row = {"data": data, "variant": LABELS[variant] + kept, "splits": str(len(result["splits"]))}
    for score in ("log_density", "mean_log_density_of_paths", "rmse"):
        name = tables.SCORE_NAMES[score]
        row[name] = f"{np.mean(split_scores(result, score)):.4g}"
        if variant == BASE_VARIANT or base is None:
            row[f"{name}: difference"] = NO_NUMBER
        else:
            first, second = paired_scores(result, base, score)
            mean, error = mean_and_error(first - second)
            row[f"{name}: difference"] = f"{mean:+.2g} ± {error:.1g}"
    return row
