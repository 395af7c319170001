"""What a reader gets, from result files alone: CSV, Markdown, figures, and one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

import wishflow as wf
from wishflow.files.writing import write_bytes_atomic

from .. import report
from ..provenance import sources
from . import figures, published, tables
from .jobs import PLAIN, SILENT_OPTIONS, Job, label_of
from .models import MODELS
from .results import Results, missing_cells, read_results

TITLE = "“Stochastic Differential Equations with Variational Wishart Diffusions”: the Beijing series, reproduced"
PARTS_NOTES = {
    False: "26 distinct hourly series, interpolated, in units of the training part's standard deviations; trained on "
    "2014 and 2015, forecasts of 48 hours from origins 48 hours apart over 2016.",
    True: "**Validation**: 26 distinct hourly series, interpolated, in units of the training part's standard "
    "deviations; trained on January 2014 to September 2015, forecasts of 48 hours from origins 48 hours apart over "
    "October to December 2015. Nothing of 2016 is read.",
}
SCORE_NOTE = (
    "Four numbers are means over 1, 2–6, 7–24 and 25–48 hours ahead. Log density: joint over the series, of the first "
    "hour; the mixture over the draws of the model's transition densities, higher is better. CRPS (mean over the "
    "series) and energy score: fair estimators, lower is better; “measured cells” leaves interpolated ones out. "
    "Coverage: share of cells inside central 80 % intervals; 0.80 is right. Rows marked “published”, if any, repeat "
    "numbers of the test year printed before this run."
)
DIFFERENCE_NOTE = (
    "Score of a window minus that of VAR(24) in the same window: mean ± standard error over the windows. Below 0 is "
    "better for CRPS and energy score, above 0 for the log density."
)
# Options that the forecaster without options chooses, as settings show them.
CHOSEN = ("lags", "calendar", "transform", "rank", "white_noise", "n_inducing")
AFTER_TITLE = "January and February 2017"
AFTER_NOTE = (
    "The same fits, conditioned on 2016, forecasts of 48 hours from origins 48 hours apart. Nothing was chosen on "
    "these months. Log densities are of laws without point masses, in units of the training part's standard deviations."
)
HOUR_NOTE = "Scores by hour ahead, divided by those of VAR(24): below 1 is better. High curves leave the picture."
TRACE_NOTES = (
    "The first window, simulated freely from the last training row, 50 times. Above: for each path, the log density of "
    "the observed row under the model's step from where the path stood an hour before, joint over the series; mean "
    "over the paths ± 2 standard errors. This is what the paper's figure shows, with one difference: the paper adds "
    "the noise of the step to the path and then scores with that noise again; here it is counted once.",
    "Below: the log of the mean density over the same paths, the score of the forecast itself. A path far from what "
    "came drags the mean of logs down, and hardly touches the mixture. Heights are drawn to scale down to −100 and by "
    "their logarithm below. The paper has 34 columns, calendar and repeated "
    "ones among them; the heights are not comparable with its own.",
)
JOINT_NOTE = (
    "Forecast draws of the temperatures at Shunyi and Tiantan, their kernel density (contours hold 50 % and 90 % of "
    "the draws) and what was observed (cross). The paper shows Tiantan and Dongsi, but these share one weather "
    "station: their temperature columns are equal in every row, the density of the pair is degenerate, and a "
    "correlation of 1 is in the data, not learnt. One hour ahead, diagonal noise cannot correlate at all; later the "
    "drift carries what the noise does not."
)


def write_outputs(folder: Path, is_validation: bool = False) -> Path:
    """Write all outputs to a folder below that of the result files; returns the path of the page."""
    results = read_results(folder, is_validation)
    place = folder / ("report-validation" if is_validation else "report")
    place.mkdir(parents=True, exist_ok=True)
    _write(place / "scores.csv", tables.score_frame(results, not is_validation).to_csv(index=False))
    _write(place / "tables.md", markdown(results, is_validation))
    drawn = all_figures(results)
    for name, figure in drawn.items():
        write_bytes_atomic(place / f"{name}.svg", report.svg(figure))
        write_bytes_atomic(place / f"{name}.png", report.png(figure))
    _write(place / "index.html", page(results, is_validation, drawn))
    return place / "index.html"


def _write(path: Path, text: str) -> None:
    write_bytes_atomic(path, text.encode())


def all_figures(results: Results) -> dict[str, Figure]:
    return {
        "traces": figures.trace_figure(results),
        "joint": figures.joint_figure(results),
        "hours": figures.hour_figure(results),
    }


def markdown(results: Results, is_validation: bool = False) -> str:
    """All tables as one Markdown page."""
    parts = [f"# {TITLE}", PARTS_NOTES[is_validation], *missing_note(results)]
    parts += ["## Rolling comparison", SCORE_NOTE, report.markdown_table(_scores(results, is_validation))]
    differences = tables.difference_table(results)
    if len(differences):
        parts += ["## Differences to VAR(24)", DIFFERENCE_NOTE, report.markdown_table(differences)]
    after = tables.after_table(results)
    if len(after):
        parts += [f"## {AFTER_TITLE}", AFTER_NOTE, report.markdown_table(after)]
    for title, lines in (("Settings", setting_lines(results)), ("Sources", source_lines(results))):
        parts += [f"## {title}", "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def page(results: Results, is_validation: bool, drawn: dict[str, Figure]) -> str:
    """All tables and figures as one HTML page."""
    parts = [report.html_paragraph(text) for text in (PARTS_NOTES[is_validation], *missing_note(results))]
    parts += [report.html_heading("Rolling comparison"), report.html_paragraph(SCORE_NOTE, is_note=True)]
    parts += [report.html_table(_scores(results, is_validation))]
    differences = tables.difference_table(results)
    if len(differences):
        parts += [report.html_heading("Differences to VAR(24)"), report.html_paragraph(DIFFERENCE_NOTE, is_note=True)]
        parts += [report.html_table(differences)]
    after = tables.after_table(results)
    if len(after):
        parts += [report.html_heading(AFTER_TITLE), report.html_paragraph(AFTER_NOTE, is_note=True)]
        parts += [report.html_table(after)]
    parts += _figure("Scores by hour ahead", drawn["hours"], HOUR_NOTE)
    parts += _figure("Traces of the log density", drawn["traces"], *TRACE_NOTES)
    parts += _figure("Joint density of two temperatures", drawn["joint"], JOINT_NOTE)
    parts += [report.html_heading("Settings"), report.html_list(setting_lines(results))]
    parts += [report.html_heading("Sources"), report.html_list(source_lines(results))]
    return report.html_page(TITLE, parts)


def _scores(results: Results, is_validation: bool) -> pd.DataFrame:
    """Published numbers are those of the test year."""
    return tables.score_table(results, has_published=not is_validation)


def _figure(title: str, figure: Figure, *notes: str) -> list[str]:
    texts = [report.html_paragraph(note, is_note=True) for note in notes]
    image = report.html_image(figure, f"{title}: {notes[0]}")
    return [report.html_heading(title), *texts, report.html_single(image)]


def missing_note(results: Results) -> list[str]:
    """A sentence that names the cells without a result, if there are any."""
    missing = missing_cells(results)
    if not missing:
        return []
    n_cells = sum(len(Job(model).cells) for model in MODELS)
    names = ", ".join(f"{MODELS[model].label} ({cell})" for cell, model in missing)
    return [f"**{len(missing)} of {n_cells} cells have no result yet:** {names}."]


def setting_lines(results: Results) -> list[str]:
    """For each of our models with scores: options that are not the defaults, members, draws, iterations."""
    found = [(name, result) for (cell, name), result in results.items() if cell == "scores"]
    lines = [_setting_line(name, result) for name, result in found if "rule" in result["settings"]]
    return lines or ["No model of ours has a result yet."]


def _setting_line(name: str, result: dict[str, Any]) -> str:
    settings, chosen = result["settings"], result.get("chosen")
    kinds = ["`" + ", ".join(f"{k}={v!r}" for k, v in kind.items()) + "`" for kind in settings.get("varied", [])]
    in_turn = f"; members in turn with {'; '.join(kinds)}" if kinds else ""
    n_members, n_draws = settings["n_members"], settings["n_draws"]
    counts = f"{n_members} {'member' if n_members == 1 else 'members'}, {n_draws} draws"
    iterations = settings["rule"]["max_iter"] if chosen is None else chosen["max_iter"]
    said = _options_text(settings["options"]) if chosen is None else f"chosen {_options_text(chosen, CHOSEN)}"
    kept = "" if chosen is None else f"; {chosen['status']}"
    return f"{label_of(name)}: {said}{in_turn}; {counts}, {iterations} iterations{kept}"


def _options_text(options: dict[str, Any], names: tuple[str, ...] | None = None) -> str:
    """Options as they are typed; those that are not the plain ones where no names are given."""
    shown = _changed(options) if names is None else {name: options[name] for name in names}
    return f"`{', '.join(_option(key, value) for key, value in shown.items())}`"


def _option(name: str, value: Any) -> str:
    """An option as it is typed; a transform by kind of series ("PM2.5") where all stations have it in common."""
    if name == "transform" and isinstance(value, dict):
        kinds: dict[str, set[Any]] = {}
        for column, chosen in value.items():
            kinds.setdefault(column.split()[-1], set()).add(chosen)
        is_common = {kind for kind, found in kinds.items() if len(found) == 1}
        named = {kind if (kind := column.split()[-1]) in is_common else column: v for column, v in value.items()}
        value = {name: chosen for name, chosen in named.items() if chosen is not None}
    return f"{name}={value!r}"


def _changed(options: dict[str, Any]) -> dict[str, Any]:
    defaults = {**wf.WishartForecaster().get_params(deep=False), **PLAIN}
    return {k: v for k, v in options.items() if k not in SILENT_OPTIONS and v != defaults.get(k)}


def source_lines(results: Results) -> list[str]:
    """Where our numbers and the published ones come from, and what ours cost."""
    scored = [result for (cell, _), result in results.items() if cell == "scores"]
    minutes = sum(result["fit_seconds"] for result in scored) / 60
    windows = sorted({result["settings"]["n_windows"] for result in scored})
    lines = [f"Windows scored: {', '.join(map(str, windows))}. Training took {minutes:.1f} minutes in all."]
    return [*(lines if scored else []), *sources(results.values()), f"Published numbers: {published.source()}"]
