"""Tables of docs/results.md: forecasts, known noise, coverage, a hidden state."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import paths
from ...beijing import results as beijing
from ...beijing.tables import after_table, score_table
from ...report import markdown_table
from ..forecasts import BASELINES, OURS, paired_block_error
from ..irregular import BAR
from ..irregular import BASELINES as LAWS
from ..wide import ON_GPU
from ..wide import OURS as WIDE
from .text import NOT_MEASURED, grid, result, source_of, source_text

IRREGULAR_NAMES = {"wishflow": "`WishartForecaster()`"}
LATENT_COLUMNS = {
    "CRPS, 1 step": ("crps_1", ".3f"),
    "CRPS, 24 steps": ("crps_24", ".3f"),
    "seconds to fit": ("seconds", ".0f"),
}


def beijing_table() -> str:
    """Rolling forecasts over 2016, with the rows of the models that have a result."""
    results = beijing.read_results(paths.RESULTS / "beijing")
    has_scores = any(cell == "scores" for cell, _ in results)
    return markdown_table(score_table(results, is_whole=False)) if has_scores else NOT_MEASURED


def beijing_after_table() -> str:
    """Rolling forecasts over January and February 2017."""
    table = after_table(beijing.read_results(paths.RESULTS / "beijing"))
    return markdown_table(table) if len(table) else NOT_MEASURED


def default_table() -> str:
    """CRPS of the forecaster without options and of auto-regressions at three horizons, and its coverage."""
    found = result("forecasts.json")
    if found is None:
        return NOT_MEASURED
    rows = {}
    for name, cells in found.items():
        ours = cells[OURS]
        labels = [*BASELINES, OURS]
        crps = {label: _numbers(cells[label]["crps"]) if label in cells else "–" for label in labels}
        rows[name.replace("_", " ")] = {
            "steps": "/".join(map(str, ours["horizons"])),
            **crps,
            "CRPS vs. best other (± standard error)": _leads(cells),
            "80 % coverage, WishartForecaster()": _numbers(ours["coverage"], ".2f"),
            "fit, s": f"{ours['seconds']:.0f}",
        }
    commits = sorted({cells[OURS]["provenance"]["commit"][:12] for cells in found.values()})
    p = next(iter(found.values()))[OURS]["provenance"]
    source = f"`python -m studies.benchmarks.forecasts`, commits {', '.join(commits)}, {p['device']}"
    return f"{grid('series', rows)}\n\nSource: {source}, {p['cpu_count']} cores."


def _leads(cells: dict[str, Any]) -> str:
    """At each horizon our CRPS less the lowest of the others, in percent of that, with a paired block standard error
    where the scores of single origins are kept.
    """
    ours, found = cells[OURS], []
    for i, horizon in enumerate(ours["horizons"]):
        best = min((cell for label, cell in cells.items() if label != OURS), key=lambda cell: cell["crps"][i])
        lowest = best["crps"][i]
        said = f"{100.0 * (ours['crps'][i] / lowest - 1.0):+.1f}"
        if "origins" in ours and "origins" in best:
            pair = [np.array(cell["origins"], float)[:, i] for cell in (ours, best)]
            error = paired_block_error(*pair, -(-horizon // ours["origin_step"]))
            said += f"±{100.0 * error / lowest:.1f}"
        found.append(said)
    return " / ".join(found) + " %"


def _numbers(values: list[float], form: str = ".3f") -> str:
    return "/".join(format(value, form).removeprefix("0") for value in values)


def wide_table() -> str:
    """CRPS of 500 series and of every tenth of them, time and memory of the fits."""
    found = result("wide.json")
    if found is None:
        return NOT_MEASURED
    rows = {
        label.replace(WIDE, f"`{WIDE}`"): {
            "CRPS, all series": _numbers(cell["crps"]) if "crps" in cell else "–",
            "80 % coverage, all series": _numbers(cell["coverage"], ".2f") if "coverage" in cell else "–",
            "CRPS, every tenth series": _numbers(cell["some"]["crps"]),
            "80 % coverage, every tenth series": _numbers(cell["some"]["coverage"], ".2f"),
            "fit, s": f"{cell['seconds']:.0f}",
            "peak memory, MiB": f"{cell['peak_mib']:.0f}",
        }
        for label, cell in found.items()
    }
    source = source_of([cell for name, cell in found.items() if name != ON_GPU], "python -m studies.benchmarks.wide")
    ours, best = found[WIDE], found["VAR of pairs + harmonics"]
    pair = [np.array(cell["origins"], float) for cell in (ours, best)]
    leads = [f"{one:+.4f} ± {paired_block_error(*p, 1):.4f}" for one, p in _differences(*pair)]
    said = [
        f"`{WIDE}` found {ours['n_factors']} factors. Its CRPS minus that of the VARs with harmonics",
        f"(± standard error over origins): {', '.join(leads)}. An update and 500 draws at an origin take",
        f"{ours['forecast_seconds']:.2f} s.",
        "Fit times of the others include forecasting; that of AutoETS is for 50 series. Other programs ran on the",
        f"same cores. A process that only holds the data takes {ours['start_mib']:.0f} MiB.",
        f"GPU row: {source_text(found[ON_GPU]['provenance'])}." if ON_GPU in found else "",
    ]
    cores = ours["provenance"]["cpu_count"]
    return f"{grid('forecaster', rows)}\n\n{' '.join(filter(None, said))}\n\nSource: {source}, {cores} cores."


def _differences(first: np.ndarray, second: np.ndarray) -> list[tuple[float, tuple[np.ndarray, np.ndarray]]]:
    """Mean differences of scores (origin, horizon) by horizon, and the scores themselves."""
    return [((a - b).mean(), (a, b)) for a, b in zip(first.T, second.T, strict=True)]


def recovery_table() -> str:
    """Median relative error of Σ̄ on known SDEs."""
    found = result("recovery.json")
    if found is None:
        return NOT_MEASURED
    sdes = found["sdes"].items()
    return grid("SDE", {sde: {way: f"{part['median_error']:.1%}" for way, part in ways.items()} for sde, ways in sdes})


def coverage_table() -> str:
    """Shares of values in their intervals by band of horizons, means over truths; the largest miss of any of these."""
    measured = result("coverage.json")
    if measured is None:
        return NOT_MEASURED
    rows = {}
    for way, truths in measured["ways"].items():
        cells, misses = {}, []
        for level in next(iter(truths.values()))["levels"]:
            bands = [found["levels"][level]["bands"] for found in truths.values()]
            shares = np.array([[100.0 * share for name, (share, _) in b.items() if name != "all"] for b in bands])
            cells[f"{level} %"] = " / ".join(f"{share:.1f}" for share in shares.mean(axis=0))
            misses.append(np.abs(shares - float(level)).max())
        rows[way] = {**cells, "largest error, any system and band": f"{max(misses):.1f}"}
    return grid("objective", rows)


def iterations_table() -> str:
    """CRPS and coverage of the default forecaster by its number of iterations, before any test part."""
    measured = result("iterations.json")
    if measured is None:
        return NOT_MEASURED
    rows = {}
    for name, cells in measured.items():
        for n, cell in cells.items():
            kept = cell["model"].partition("kept: ")[2].partition(" (")[0]
            rows[f"{name.replace('_', ' ')}, {n}"] = {
                "CRPS": _numbers(cell["crps"]),
                "80 % coverage": _numbers(cell["coverage"], ".2f"),
                "kept model": kept,
                "fit, s": f"{cell['seconds']:.0f}",
            }
    cells = [cell for part in measured.values() for cell in part.values()]
    source = source_of(cells, "python -m studies.benchmarks.iterations")
    return f"{grid('series, iterations', rows)}\n\nSource: {source}."


def short_coverage_table() -> str:
    """Coverage of 80 % intervals of short simulated series by way, and what the default's CRPS gains."""
    measured = result("short_coverage.json")
    if measured is None:
        return NOT_MEASURED
    rows = {}
    for name, cells in measured["kinds"].items():
        found = cells["ways"]
        widths = ("posterior of the weights", "default")
        plain, *others = (np.array(found[way]["crps"]) for way in ("bands of the model", *widths))
        changes = {way: other / plain - 1.0 for way, other in zip(widths, others, strict=True)}
        rows[name] = {
            **{way: _numbers(part["coverage"], ".2f") for way, part in found.items()},
            "± over single series": _numbers(found["default"]["spread"], ".2f"),
            **{
                f"CRPS change, {way}": " / ".join(f"{100.0 * c:+.1f}" for c in change) + " %"
                for way, change in changes.items()
            },
        }
    source = source_of(measured["kinds"].values(), "python -m studies.benchmarks.short_coverage")
    return f"{grid('kind', rows)}\n\nSource: {source}."


def irregular_table() -> str:
    """Nats a value of joint densities at irregular stamps, means over seeds, beside the truth and the bar."""
    found = result("irregular.json")
    if found is None:
        return NOT_MEASURED
    rows = {}
    for name, cells in found.items():
        means = {label: np.mean([cell[label] for cell in cells.values()]) for label in ("truth", *LAWS, "wishflow")}
        gap = means["truth"] - means["wishflow"]
        rows[name] = {
            "seeds": str(len(cells)),
            **{IRREGULAR_NAMES.get(label, label): f"{value:.3f}" for label, value in means.items()},
            f"gap to the truth (bar {BAR})": f"{gap:.3f}",
        }
    source = source_of(
        (c for cells in found.values() for c in cells.values()), "python -m studies.benchmarks.irregular"
    )
    return f"{grid('problem', rows)}\n\nSource: {source}."


def latent_table() -> str:
    """The latent model beside others on a noisy view of a small state."""
    found = result("latent.json")
    if found is None:
        return NOT_MEASURED
    rows = {}
    for name, part in found["models"].items():
        others = {head: f"{part[key]:{form}}" if key in part else "" for head, (key, form) in LATENT_COLUMNS.items()}
        rows[name] = {"log density of a row": f"{part['log_density']:.3f}", **others}
    return grid("model", rows)
