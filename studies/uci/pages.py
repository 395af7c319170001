"""What a reader gets, from result files alone: CSV, Markdown, figures, and one HTML page."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wishflow.files.writing import write_bytes_atomic

from .. import report
from ..provenance import sources
from . import figures, paper, tables
from .results import Results, is_kept, is_kept_text, read_results, statuses
from .suite import DATA, MODELS, N_PATHS

TITLE = "“Stochastic Differential Equations with Variational Wishart Diffusions”: the UCI tables, reproduced"
SCORE_NOTES = (
    "Mean ± standard deviation over random 90/10 splits; all scores in the units of the data. The paper's score is the "
    "mean over sample paths of the log density; the mixture's is the log of the mean density, the proper score of a "
    "prediction that is a mixture. For SGP and No noise, which have one path, both are the same. RMSE and CRPS: lower "
    "is better. Coverage: share of test rows inside central 95 % intervals; 0.95 is right.",
    "The paper gives no numbers of SGP. Its splits are other ones, and its code scaled test rows by their own standard "
    "deviation; ours uses training statistics only. A rank above the dimensions of the state acts as their number. "
    "bike_paper holds two inputs whose sum is the target, as in the paper.",
)
OVERVIEW_NOTE = "Mean ± standard deviation over the splits, in the units of the data; bold: the highest of a row."
TEST_NOTES = (
    "One-sided p-values of Wilcoxon's signed-rank test over the splits, paired: small where the first model's log "
    "density is the higher one. Bold: below 0.05. Holm's correction is over the data sets of a column that have a "
    "result. diffWGP has ρ = 5. The last comparison is not in the paper, nor is the test of the mixture's score.",
)
PRESET_NOTES = {
    "fast": "one rule for all data sets, a function of their size alone",
    "paper": "the paper's own settings",
}
FIGURE_NOTE = (
    "Differences to SGP over the splits: dots are splits, the line is the median. A model far from the others is cut "
    "off, as in the paper; an arrow says how many of its splits lie outside the picture."
)


def write_outputs(folder: Path, preset: str) -> Path:
    """Write all outputs beside the cells of a preset; returns the path of the page."""
    results, place = read_results(folder, preset), folder / preset
    place.mkdir(parents=True, exist_ok=True)
    _write(place / "scores.csv", tables.score_frame(results).to_csv(index=False))
    _write(place / "wilcoxon.csv", tables.wilcoxon_frame(results).to_csv(index=False))
    _write(place / "tables.md", markdown(results, preset))
    for score in figures.SCORES:
        figure = figures.violin_figure(results, score)
        write_bytes_atomic(place / f"{score}.svg", report.svg(figure))
        write_bytes_atomic(place / f"{score}.png", report.png(figure))
    _write(place / "index.html", page(results, preset))
    return place / "index.html"


def _write(path: Path, text: str) -> None:
    write_bytes_atomic(path, text.encode())


def markdown(results: Results, preset: str) -> str:
    """All tables as one Markdown page."""
    parts = [f"# {TITLE}", preset_note(preset), *missing_note(results)]
    parts += ["## Overview: log density, mixture", OVERVIEW_NOTE, report.markdown_table(tables.overview_table(results))]
    parts += [*kept_note(results), *paths_note(results), "## Scores", *SCORE_NOTES]
    parts += [report.markdown_table(tables.score_table(results)), "## Wilcoxon tests", *TEST_NOTES]
    for score in tables.LOG_SCORES:
        parts += [f"### {_score_title(score)}", report.markdown_table(tables.wilcoxon_table(results, score))]
    listed = "\n".join(f"- {line}" for line in source_lines(results))
    return "\n\n".join([*parts, "## Sources", listed]) + "\n"


def page(results: Results, preset: str) -> str:
    """All tables and figures as one HTML page."""
    parts = [report.html_paragraph(text) for text in (preset_note(preset), *missing_note(results))]
    parts += [report.html_heading("Overview: log density, mixture"), *_notes([OVERVIEW_NOTE])]
    parts += [report.html_table(tables.overview_table(results)), *_notes([*kept_note(results), *paths_note(results)])]
    parts += [*_test_parts(results), *_figure_parts(results), *_score_parts(results)]
    parts += [report.html_heading("Sources"), report.html_list(source_lines(results))]
    return report.html_page(TITLE, parts)


def _test_parts(results: Results) -> list[str]:
    parts = [report.html_heading("Table 1: Wilcoxon tests"), *_notes(TEST_NOTES)]
    for score in tables.LOG_SCORES:
        parts += [report.html_heading(_score_title(score), 3), report.html_table(tables.wilcoxon_table(results, score))]
    return parts


def _figure_parts(results: Results) -> list[str]:
    parts = [report.html_heading("Differences to SGP"), *_notes([FIGURE_NOTE])]
    for score, title in figures.SCORES.items():
        panels = [report.html_image(figures.panel_figure(results, data, score), f"{data}: {title}") for data in DATA]
        parts += [report.html_heading(title[0].upper() + title[1:], 3), report.html_panels(panels)]
    return parts


def _score_parts(results: Results) -> list[str]:
    parts = [report.html_heading("Supplementary table: scores"), *_notes(SCORE_NOTES)]
    for data in DATA:
        parts += [report.html_heading(data, 3), report.html_table(tables.score_table(results, data))]
    return parts


def _notes(texts: Iterable[str]) -> list[str]:
    return [report.html_paragraph(text, is_note=True) for text in texts]


def preset_note(preset: str) -> str:
    return f"Every model is trained with the preset `{preset}`: {PRESET_NOTES[preset]}."


def missing_note(results: Results) -> list[str]:
    """A sentence that names the cells without a result, if there are any."""
    missing = tables.missing_cells(results)
    if not missing:
        return []
    return [f"**{len(missing)} of {len(DATA) * len(MODELS)} cells have no result yet:** {cell_names(missing)}."]


def kept_note(results: Results) -> list[str]:
    """Sentences that name the cells where a flow ended below the sparse GP, which was kept instead, if any."""
    whole = [key for key, result in results.items() if is_kept(result)]
    parts = [key for key, result in results.items() if key not in whole and any(map(is_kept_text, statuses(result)))]
    notes = []
    if whole:
        notes.append(f"On every split of these SGP was kept, so that no flow is left: {cell_names(whole)}.")
    if parts:
        notes.append(f"On some splits of these SGP was kept: {cell_names(parts)}.")
    return notes


def paths_note(results: Results) -> list[str]:
    """A sentence that names the cells of older runs, whose mixtures have fewer paths, if any."""
    counts = {key: result["settings"].get("options", {}).get("n_predict_samples") for key, result in results.items()}
    fewer = [key for key, n in counts.items() if n is not None and n < N_PATHS]
    return [f"Scored with fewer than {N_PATHS} paths, by an older run: {cell_names(fewer)}."] if fewer else []


def cell_names(cells: Iterable[tuple[str, str]]) -> str:
    """Data sets, each with its models."""
    by_data: dict[str, list[str]] = {}
    for data, model in cells:
        by_data.setdefault(data, []).append(MODELS[model].label.replace(", ", " "))
    return "; ".join(f"{data} ({', '.join(models)})" for data, models in by_data.items())


def cost_lines(results: Results) -> list[str]:
    """Minutes on each device, compilation included."""
    by_device: dict[str, list[dict[str, Any]]] = {}
    for result in results.values():
        by_device.setdefault(str(result["provenance"].get("device", "unknown")), []).append(result)
    return [f"{device}: {cost_text(made)}." for device, made in by_device.items()]


def cost_text(results: Iterable[dict[str, Any]]) -> str:
    """Number of fits, what each took added up, and how long the device was in use for them."""
    results = list(results)
    n_fits = sum(len(result["splits"]) for result in results)
    fit, score = (sum(result.get(name, 0.0) for result in results) / 60 for name in ("fit_seconds", "score_seconds"))
    return (
        f"{n_fits} fits, {fit:.1f} minutes of training and {score:.1f} of scoring; "
        f"the device was in use for {minutes_in_use(results):.1f} minutes"
    )


def minutes_in_use(results: Iterable[dict[str, Any]]) -> float:
    """Minutes in which a device worked at one cell at least: cells made side by side by several programs count once.

    A cell says when it was written and what it took, so it was made between the two; without a date it counts whole.
    Two devices of one kind at the same time count as one.
    """
    spans, minutes = [], 0.0
    for result in results:
        seconds = result.get("fit_seconds", 0.0) + result.get("score_seconds", 0.0)
        date = result["provenance"].get("date")
        if date is None:
            minutes += seconds / 60
        else:
            end = datetime.datetime.fromisoformat(date).timestamp()
            spans.append((end - seconds, end))
    last = -math.inf
    for start, end in sorted(spans):
        minutes += max(0.0, end - max(start, last)) / 60
        last = max(last, end)
    return minutes


def source_lines(results: Results) -> list[str]:
    """Where our numbers and the paper's come from, and what ours cost."""
    return [*cost_lines(results), *sources(results.values()), f"The paper's numbers: {paper.source()}"]


def _score_title(score: str) -> str:
    name = tables.SCORE_NAMES[score]
    return name[0].upper() + name[1:]
