"""Tables of the documentation, from result files alone.

    python -m studies.benchmarks.tables  # rewrites the marked parts of README.md and docs, draws docs/figures
    python -m studies.benchmarks.tables --check  # fails where they differ from what the files say

A marked part lies between `<!-- results:NAME -->` and `<!-- /results:NAME -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from wishflow.files.json import read_json

from ..beijing import results as beijing
from ..beijing.models import MODELS as beijing_models
from ..beijing.tables import score_table
from ..report import markdown_table
from ..uci.suite import MODELS
from . import document_figures, levers, reproduction
from .gpu import table as gpu
from .mixtures import MOST_KINDS, best_mixtures, kinds_of, mixture_energy
from .reproduction import NOT_MEASURED, ROOT

N_MIXTURES = 3
SPEED_RUNS = ("speed_latest.json", "speed_windows.json")
EARLIER_SPEED_RUNS = ("speed_before.json", "speed.json", "speed_series.json", "speed_now.json", "speed_single.json")
TUNED = {"diffwgp": "diffwgp5"}
DOCUMENTS = ("README.md", "docs/reproduction.md", "docs/results.md", "docs/tuning.md", "docs/performance.md")
GROWTH_FIGURE = "figures/growth.svg"  # beside the page that shows it; drawn by `python -m studies.benchmarks.growth`
GROWTH_PAIR = ("independent columns", "independent columns, rematerialised")


def waiting_table() -> str:
    """Seconds a person waits with the defaults."""
    path = ROOT / "results" / "waiting.json"
    if not path.exists():
        return NOT_MEASURED
    result = json.loads(path.read_text())
    lines = ["| estimator | fit, seconds (limit) | 200 rows, seconds (limit) |", "|---|---|---|"]
    for name, limit in result["limits"].items():
        median = result["median"][name]
        cells = [f"{median[k]:.1f} ({limit[k]:g})" for k in ("fit", "predict")]
        lines.append(f"| `{name}()` | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def beijing_table() -> str:
    """Rolling forecasts over 2016, with the rows of the models that have a result."""
    results = beijing.read_results(ROOT / "results" / "beijing")
    has_scores = any(cell == "scores" for cell, _ in results)
    return markdown_table(score_table(results, is_whole=False)) if has_scores else NOT_MEASURED


def beijing_after_table() -> str:
    """Rolling forecasts over January and February 2017."""
    found = _result("beijing_after.json")
    rows = {}
    for name in (name for name in found if name in beijing_models):
        bands = {key: " / ".join(f"{v:.3f}" for v in found[name]["bands"][key].values()) for key in ("crps", "energy")}
        densities = found[name]["windows"]["log_density_1"]
        first = {"log density, hour 1": f"{np.mean(densities):.2f}", "its median": f"{np.median(densities):.2f}"}
        rows[beijing_models[name].label] = {**first, "CRPS": bands["crps"], "energy score": bands["energy"]}
    return _grid("model", rows)


def recovery_table() -> str:
    """Median relative error of Σ̄ on known SDEs."""
    sdes = _result("recovery.json")["sdes"]
    cells = {sde: {way: f"{part['median_error']:.1%}" for way, part in found.items()} for sde, found in sdes.items()}
    return _grid("SDE", cells)


def coverage_table() -> str:
    """Shares of values in their intervals by band of horizons, means over truths; the largest miss of any of these."""
    rows = {}
    for way, truths in _result("coverage.json")["ways"].items():
        cells, misses = {}, []
        for level in next(iter(truths.values()))["levels"]:
            bands = [found["levels"][level]["bands"] for found in truths.values()]
            shares = np.array([[100.0 * share for name, (share, _) in b.items() if name != "all"] for b in bands])
            cells[f"{level} %"] = " / ".join(f"{share:.1f}" for share in shares.mean(axis=0))
            misses.append(np.abs(shares - float(level)).max())
        rows[way] = {**cells, "largest miss, one truth and band": f"{max(misses):.1f}"}
    return _grid("objective", rows)


def _grid(corner: str, rows: dict[str, dict[str, str]]) -> str:
    """A table with the names of rows and columns; all rows have the same columns."""
    columns = list(next(iter(rows.values())))
    lines = [f"| {corner} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(cells[column] for column in columns) + " |" for name, cells in rows.items()]
    return "\n".join(lines)


def latent_table() -> str:
    """The latent model beside others on a noisy view of a small state."""
    models = _result("latent.json")["models"]
    lines = [
        "| model | log density of a row | CRPS, 1 step | CRPS, 24 steps | seconds to fit |",
        "|---|---|---|---|---|",
    ]
    for name, found in models.items():
        others = [f"{found[key]:{form}}" if key in found else "" for key, form in LATENT_COLUMNS]
        lines.append(f"| {name} | {found['log_density']:.3f} | " + " | ".join(others) + " |")
    return "\n".join(lines)


LATENT_COLUMNS = (("crps_1", ".3f"), ("crps_24", ".3f"), ("seconds", ".0f"))


def tuning_table() -> str:
    """What was tried on validation parts, in the order it was tried."""
    lines = [
        "| file | data | model | splits | settings that differ from the rule of that time | log density | more paths |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for file, job, line in _tried("uci"):
        wider = {"state_dim": job["state_dim"]} if "state_dim" in job else {}
        changes = _changes({**job.get("set", {}), **job.get("options", {}), **wider})
        score = f"{line['mean']['log_density']:.3f} ± {line['sd']['log_density']:.3f}"
        label = MODELS[TUNED.get(job["model"], job["model"])].label
        more = line["mean"].get("log_density_of_more_paths")
        first = f"| {file} | {job['data']} | {label} | {job.get('splits', 20)} | {changes} | {score} | "
        lines.append(first + ("" if more is None else f"{more:.3f}") + " |")
    return "\n".join(lines)


def beijing_tuning_table() -> str:
    """What was tried on October to December 2015, in the order it was tried."""
    lines = ["| file | model | settings | log density, hour 1 | CRPS | energy score | 80 % coverage |"]
    lines.append("|---|---|---|---|---|---|---|")
    for file, job, line in _tried("beijing"):
        changes = _changes({**job.get("set", {}), **({"members": job["members"]} if "members" in job else {})})
        names = ("crps", "energy", "coverage_80")
        cells = [" / ".join(f"{v:.3f}" for v in line["bands"][name].values()) for name in names]
        first = f"| {file} | {job['model']} | {changes} | {line['log_density_1']:.2f} | "
        lines.append(first + " | ".join(cells) + " |")
    return "\n".join(lines)


def mixtures_table() -> str:
    """Energy scores on validation parts of single models, and of the best mixtures of several kinds."""
    lines = ["| file | members | energy score |", "|---|---|---|"]
    paths = (ROOT / "results" / "tuning").glob("mixtures-*.json")
    for path in sorted(paths, key=_number):
        found = json.loads(path.read_text())
        names, table = list(found["jobs"]), (np.array(found["to_data"]), np.array(found["between"]))
        for i, name in enumerate(names):
            who = f"`{name}`: {_changes(found['jobs'][name])}"
            lines.append(_mixture_line(path.stem, who, mixture_energy(*table, (i,))))
        kinds = kinds_of(names)
        is_mixed = len(kinds) < len(names)  # several fits of a kind are a mixture already
        for size in range(1 if is_mixed else 2, MOST_KINDS + 1 if is_mixed else 5):
            for mixed, energy in best_mixtures(*table, kinds, size)[:N_MIXTURES]:
                lines.append(_mixture_line(path.stem, " + ".join(f"`{kind}`" for kind in mixed), energy))
    return "\n".join(lines)


def _mixture_line(file: str, who: str, energy: np.ndarray) -> str:
    return f"| {file} | {who} | " + " / ".join(f"{value:.3f}" for value in energy) + " |"


def _tried(kind: str) -> Iterator[tuple[str, dict, dict]]:
    """File, job and result of every line of a search, in the order of the files' numbers."""
    paths = (ROOT / "results" / "tuning").glob(f"{kind}-*.jsonl")
    for path in sorted(paths, key=_number):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            yield path.stem, line["job"], line


def _number(path: Path) -> int:
    """The number of a file of a search."""
    return int(path.stem.partition("-")[2])


def _changes(settings: dict) -> str:
    return ", ".join(_setting(name, value) for name, value in settings.items()) or "none"


def _setting(name: str, value: object) -> str:
    if isinstance(value, dict):  # a spec: the fields that it sets, today's defaults included: they may change
        return ", ".join(_setting(key, part) for key, part in value.items() if key != "kind")
    if isinstance(value, list):
        return f"{name} ({', '.join(format(part, 'g') for part in value)})"
    return f"{name} {value if isinstance(value, str) or value is None else format(value, 'g')}"


def _result(name: str) -> dict:
    return json.loads((ROOT / "results" / name).read_text())


def speed_table() -> str:
    """Steps of ours and of the peers, all works."""
    return _speed_rows(_latest_speeds())


def _latest_speeds() -> list[dict]:
    """The rows of the newest runs; a later run replaces all rows of its works."""
    runs = [_result(name)["rows"] for name in SPEED_RUNS]
    latest = {row["work"]: run for run in runs for row in run}
    return [row for work, run in latest.items() for row in run if row["work"] == work]


def _speed_rows(rows: list[dict]) -> str:
    lines = [
        "| work | | ms a step | × best peer | of the limit | compile, s | peak, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["median_ms"] is None:
            lines.append(f"| {row['work']} | {row['contender']} | {row['status']} | | | | |")
            continue
        cells = [
            f"{row['median_ms']:.1f}",
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
            f"{row['limit_fraction']:.0%}",
            f"{row['compile_s']:.1f}",
            f"{row['peak_mb']:.0f}",
        ]
        lines.append(f"| {row['work']} | {row['contender']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def speed_change_table() -> str:
    """Ours in the runs that hold the same works, one after another, each beside the best peer of its run."""
    first, then, series, later, after = (_by_contender(_result(name)["rows"]) for name in EARLIER_SPEED_RUNS)
    now = _by_contender(_latest_speeds())
    runs = {"first": first, "then": {**then, **series}, "later": later, "after that": after, "now": now}
    rows = {}
    for key in now:
        if key[1].startswith("ours"):
            found = {name: run.get(key) for name, run in runs.items()}
            rows[", ".join(key)] = {
                name: "" if row is None else f"{row['median_ms']:.1f} ({_ratio(row)})" for name, row in found.items()
            }
    return _grid("ms a step (× best peer)", rows)


def _ratio(row: dict) -> str:
    return "not compared" if row["ratio"] is None else f"{row['ratio']:.2f}"


def _by_contender(rows: list[dict]) -> dict[tuple[str, str], dict]:
    """Those of the rows that have a time."""
    return {(row["work"], row["contender"]): row for row in rows if row["median_ms"] is not None}


CHEAPER_FORMS = ("structured", "rotated")


def structured_table() -> str:
    """What one factor or one rotation for all outputs of q loses, against a factor for each: the bound of the training
    rows, per row, from pairs of one file."""
    found: dict[tuple[str, str], dict[str, dict]] = {}
    for file, job, line in _tried("uci"):
        diffusion = job.get("options", {}).get("diffusion")
        form = diffusion.get("posterior") if isinstance(diffusion, dict) else None
        if "n_train" in line and form in (*CHEAPER_FORMS, "full"):
            found.setdefault((job["data"], file), {})[form] = line
    rows: dict[str, dict[str, str]] = {}
    for (data, file), lines in found.items():
        for form in CHEAPER_FORMS:
            if {form, "full"} <= set(lines):
                pair = [lines[form], lines["full"]]
                bounds = [line["mean"]["bound"] / line["n_train"] for line in pair]
                scores = [line["mean"]["log_density_of_more_paths"] for line in pair]
                rows[f"{data}, {form} q ({file})"] = {
                    "bound per row": f"{bounds[0]:.4f}",
                    "full q": f"{bounds[1]:.4f}",
                    "lost": f"{bounds[1] - bounds[0]:+.4f}",
                    "held-out log density": f"{scores[0]:.3f}",
                    "held-out, full q": f"{scores[1]:.3f}",
                    "splits": str(pair[0]["job"]["splits"]),
                }
    return _grid("data", dict(sorted(rows.items()))) if rows else NOT_MEASURED


def blocks_table() -> str:
    """Milliseconds of a step by the width of the blocks of triangular factors."""
    medians = _result("blocks.json")["median_ms"]
    return _grid("work, ms a step", {w: {k: f"{ms:.1f}" for k, ms in found.items()} for w, found in medians.items()})


def growth_table() -> str:
    """Exponents of the step time by each size: over all values and over the upper ones; then those of the counted
    arithmetic over the upper ones.
    """
    result = _growth()
    if result is None:
        return NOT_MEASURED
    found = {name: parts for name, parts in result["configurations"].items() if "n_data" in parts}
    rows = {}
    for field, label in result["labels"].items():
        values = next(iter(found.values()))[field]["values"]
        cells = {name: _exponents(parts[field]) for name, parts in found.items()}
        rows[label] = {"from, to": f"{values[0]}, {values[-1]}", **cells}
    return _grid("size", rows) + f"\n\n![Step time and peak memory by each size]({GROWTH_FIGURE})"


def _growth() -> dict | None:
    return _result("growth.json") if (ROOT / "results" / "growth.json").exists() else None


def _exponents(part: dict) -> str:
    found = part["exponent"]
    return f"{found['whole']:z.2f}, {found['upper']:z.2f} ({part['arithmetic_exponent']['upper']:z.2f})"


def growth_memory_table() -> str:
    """Peak memory of a step with its loop stored and rematerialised, and what the second costs in time."""
    result = _growth()
    if result is None:
        return NOT_MEASURED
    stored, again = (result["configurations"][name] for name in GROWTH_PAIR)
    rows = {}
    for field in again:
        pair = (stored[field], again[field])
        cells = {name: _megabytes(part) for name, part in zip(("stored, MB", "rematerialised, MB"), pair, strict=True)}
        ratio = again[field]["median_ms"][-1] / stored[field]["median_ms"][-1]
        values = stored[field]["values"]
        label = f"{result['labels'][field]}, {values[0]} to {values[-1]}"
        rows[label] = {**cells, "time at the end": f"× {ratio:.2f}"}
    return _grid("size", rows)


def _megabytes(part: dict) -> str:
    first, last = (part["bytes"][i] / 2**20 for i in (0, -1))
    return f"{first:.0f} to {last:.0f} ({part['bytes_exponent']['upper']:z.2f})"


def gpu_tables() -> str:
    """The accelerator's ceilings and steps, and where they come from."""
    result = read_json(ROOT / "results" / "gpu.json")
    if result is None:
        return gpu.tables(result)
    runs = [result["provenance"], *reversed(result.get("earlier", []))]
    return gpu.tables(result) + f"\n\nSource: {'; other rows: '.join(_source(run) for run in runs)}."


def first_use_table() -> str:
    """Seconds before the first result."""
    result = _result("first_use.json")
    names = {
        "import": "`import wishflow`",
        "regressor": "… and `wishflow.FlowRegressor`",
        "cold": "fit, no cache",
        "warm": "fit, from a warm cache of JAX",
        "whole": "fit, from a warm cache of whole programs",
    }
    limits = {key: f"{limit:g}" for key, limit in result["limits"].items()}
    rows = {key: {"seconds": f"{s:.3g}", "limit": limits.get(key, "")} for key, s in result["median"].items()}
    return _grid("", {text: rows[key] for key, text in names.items() if key in rows})


def race_table() -> str:
    """Seconds to a fixed score, or the score where a contender was given up."""
    result = read_json(ROOT / "results" / "race.json")
    if result is None:
        return NOT_MEASURED
    rows = {name: race_row(attempts, result["target"]) for name, attempts in result["attempts"].items()}
    goal = f"seconds to a log density of {result['target']:g}"
    grid = {
        name: {goal: seconds, "log density then": score, "after": after}
        for name, (seconds, score, after) in rows.items()
    }
    return _grid(f"{result['data']}, first split", grid) + f"\n\nSource: {_source(result['provenance'])}."


def race_row(attempts: list[dict], target: float) -> tuple[str, str, str]:
    """Seconds of the attempt that reaches the target, its score and what it was; or what the last one came to."""
    last = next((attempt for attempt in attempts if attempt["score"] >= target), attempts[-1])
    is_reached = last["score"] >= target
    seconds = f"{last['seconds']:.0f}" if is_reached else f"not in {last['seconds']:.0f}"
    return seconds, f"{last['score']:.3f}", f"{last['label']} ({last['n_iter']})"


def speed_sources() -> str:
    """Where the numbers of the speed tables come from."""
    names = [*SPEED_RUNS, *EARLIER_SPEED_RUNS, "blocks.json", "first_use.json"]
    names += [] if _growth() is None else ["growth.json"]
    found = {name: _result(name)["provenance"] for name in names}
    return "\n".join(f"- `results/{name}`: {_source(p)}, {p['cpu_count']} cores" for name, p in found.items())


def _source(p: dict) -> str:
    commit, *is_changed = p["commit"].split("-")
    changed = ", with changes" if is_changed else ""
    return f"`{p['command']}`, commit {commit[:12]}{changed}, {p['device']}, jax {p['versions']['jax']}"


def lever_table() -> str:
    """What each lever gained on validation parts."""
    return levers.lever_table(list(_tried("uci")))


PARTS = {
    "overview": reproduction.overview_table,
    "scores": reproduction.score_table,
    "wilcoxon": reproduction.wilcoxon_tables,
    "bars": reproduction.bar_table,
    "sgp_bars": reproduction.sgp_bar_table,
    "cost": reproduction.cost,
    "worse": reproduction.worse_lists,
    "sources": reproduction.source_list,
    "joint": reproduction.joint_table,
    "differences": reproduction.difference_table,
    "levers": lever_table,
    "waiting": waiting_table,
    "tuning": tuning_table,
    "beijing": beijing_table,
    "tuning_beijing": beijing_tuning_table,
    "mixtures": mixtures_table,
    "beijing_after": beijing_after_table,
    "recovery": recovery_table,
    "coverage": coverage_table,
    "latent": latent_table,
    "speed": speed_table,
    "speed_change": speed_change_table,
    "blocks": blocks_table,
    "growth": growth_table,
    "growth_memory": growth_memory_table,
    "structured": structured_table,
    "first_use": first_use_table,
    "race": race_table,
    "speed_sources": speed_sources,
    "gpu": gpu_tables,
}


def rendered(text: str) -> str:
    """A document with its marked parts made anew."""
    for name, make in PARTS.items():
        pattern = re.compile(rf"(<!-- results:{name} -->\n).*?(\n?<!-- /results:{name} -->)", re.S)
        if pattern.search(text):
            table = make()
            text = pattern.sub(lambda m, table=table: m.group(1) + table + "\n" + m.group(2).lstrip("\n"), text)
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = document_figures.stale()
    if not options.check:
        document_figures.draw(stale)
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text()
        new = rendered(text)
        if new != text:
            stale.append(name)
            if not options.check:
                path.write_text(new)
    if options.check and stale:
        print(f"{', '.join(stale)} differ from the result files; run `python -m studies.benchmarks.tables`.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
