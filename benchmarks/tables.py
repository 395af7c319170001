"""Tables of the documentation, from result files alone.

    python -m benchmarks.tables             # rewrites the marked parts of README.md and docs/results.md
    python -m benchmarks.tables --check     # fails where they differ from what the files say

A marked part lies between `<!-- results:NAME -->` and `<!-- /results:NAME -->`.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from wishflow import specs
from wishflow.experiments.beijing import results as beijing
from wishflow.experiments.beijing.tables import score_table
from wishflow.experiments.uci.results import read_results
from wishflow.experiments.uci.suite import DATA, MODELS
from wishflow.files import read_json
from wishflow.report import markdown_table

from .gpu import table as gpu

ROOT = Path(__file__).parent.parent
TUNED = {"diffwgp": "diffwgp5"}
DOCUMENTS = ("README.md", "docs/results.md", "docs/tuning.md", "docs/performance.md")
BARS = {
    ("boston", "sgp"): -2.45,
    ("concrete", "sgp"): -3.18,
    ("kin8nm", "sgp"): 0.97,
    ("naval", "sgp"): 9.0,
    ("power", "sgp"): -2.81,
    ("wine_white", "sgp"): -1.06,
    ("kin8nm", "diffwgp5"): 1.33,
    ("concrete", "diffwgp5"): -3.03,
    ("boston", "diffwgp5"): -2.47,
}


def uci_results() -> dict[tuple[str, str], dict]:
    """Test results by (data, model), in the order of the paper's tables."""
    return read_results(ROOT / "results" / "reproduction", "fast")


def uci_table() -> str:
    """Log density, RMSE, coverage: mean ± standard deviation over the splits."""
    lines = [
        "| data | model | log density (mixture) | mean of logs | RMSE | 95 % coverage | seconds, all splits | bar |",
        "|---|---|---|---|---|---|---|---|",
    ]
    results = uci_results()
    for data, model in itertools.product(DATA, MODELS):
        bar = BARS.get((data, model))
        if (data, model) in results:
            lines.append(_row(data, MODELS[model].label, results[data, model], bar))
        elif bar is not None:
            lines.append(f"| {data} | {MODELS[model].label} | not measured yet | | | | | {bar:g} |")
    return "\n".join(lines)


def _row(data: str, label: str, result: dict, bar: float | None) -> str:
    mean, sd = result["mean"], result["sd"]
    cells = [
        data,
        label,
        f"{mean['log_density']:.3f} ± {sd['log_density']:.3f}",
        f"{mean['mean_log_density_of_paths']:.3f}",
        f"{mean['rmse']:.4g}",
        f"{mean['coverage_95']:.3f}",
        f"{result['fit_seconds']:.0f}",
        "" if bar is None else f"{bar:g} ({'reached' if mean['log_density'] >= bar - 0.01 else 'missed'})",
    ]
    return "| " + " | ".join(cells) + " |"


def waiting_table() -> str:
    """Seconds a person waits with the defaults."""
    path = ROOT / "results" / "waiting.json"
    if not path.exists():
        return "Not measured yet."
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
    return markdown_table(score_table(results, is_whole=False)) if has_scores else "Not measured yet."


def recovery_table() -> str:
    """Median relative error of Σ̄ on known SDEs."""
    sdes = _result("recovery.json")["sdes"]
    cells = {sde: {way: f"{part['median_error']:.1%}" for way, part in found.items()} for sde, found in sdes.items()}
    return _grid("SDE", cells)


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
        changes = _changes({**job.get("set", {}), **job.get("options", {})})
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


def _tried(kind: str) -> Iterator[tuple[str, dict, dict]]:
    """File, job and result of every line of a search, in the order of the files' numbers."""
    paths = (ROOT / "results" / "tuning").glob(f"{kind}-*.jsonl")
    for path in sorted(paths, key=lambda path: int(path.stem.partition("-")[2])):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            yield path.stem, line["job"], line


def _changes(settings: dict) -> str:
    return ", ".join(_setting(name, value) for name, value in settings.items()) or "none"


def _setting(name: str, value: object) -> str:
    if isinstance(value, dict):  # a spec: the fields that it sets
        usual = {field.name: field.default for field in dataclasses.fields(specs.from_json(value))}
        parts = ((key, part) for key, part in value.items() if key != "kind" and part != usual[key])
        return ", ".join(_setting(key, part) for key, part in parts)
    return f"{name} {value if isinstance(value, str) or value is None else format(value, 'g')}"


def _result(name: str) -> dict:
    return json.loads((ROOT / "results" / name).read_text())


def speed_table() -> str:
    """Steps of ours and of the peers, all works."""
    whole, series = (_result(name)["rows"] for name in ("speed.json", "speed_series.json"))
    again = {row["work"] for row in series}
    return _speed_rows([*(row for row in whole if row["work"] not in again), *series])


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
    """Ours before and after, in the works that were measured both times, each beside the best peer of its run."""
    files = [_result(name)["rows"] for name in ("speed_before.json", "speed.json")]
    before, after = ({r["work"]: r for r in rows if r["contender"] == "ours"} for rows in files)
    lines = ["| work | before, ms (× best peer) | after, ms (× best peer) |", "|---|---|---|"]
    for work in before:
        cells = [f"{rows[work]['median_ms']:.1f} ({rows[work]['ratio']:.2f})" for rows in (before, after)]
        lines.append(f"| {work} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def blocks_table() -> str:
    """Milliseconds of a step by the width of the blocks of triangular factors."""
    medians = _result("blocks.json")["median_ms"]
    return _grid("work, ms a step", {w: {k: f"{ms:.1f}" for k, ms in found.items()} for w, found in medians.items()})


def gpu_tables() -> str:
    """The accelerator's ceilings and steps, and where they come from."""
    result = read_json(ROOT / "results" / "gpu.json")
    source = "" if result is None else f"\n\nSource: {_source(result['provenance'])}."
    return gpu.tables(result) + source


def speed_sources() -> str:
    """Where the numbers of the speed tables come from."""
    names = ("speed.json", "speed_series.json", "speed_before.json", "blocks.json")
    found = [_result(name)["provenance"] for name in names]
    return "\n".join(f"- {_source(p)}, {p['cpu_count']} cores" for p in found)


def sources() -> str:
    """Commands, commits and machines of the result files."""
    seen = dict.fromkeys(_source(result["provenance"]) for result in uci_results().values())
    return "\n".join(f"- {line}" for line in seen)


def _source(p: dict) -> str:
    return f"`{p['command']}`, commit {p['commit'][:12]}, {p['device']}, jax {p['versions']['jax']}"


PARTS = {
    "uci": uci_table,
    "waiting": waiting_table,
    "sources": sources,
    "tuning": tuning_table,
    "beijing": beijing_table,
    "tuning_beijing": beijing_tuning_table,
    "recovery": recovery_table,
    "latent": latent_table,
    "speed": speed_table,
    "speed_change": speed_change_table,
    "blocks": blocks_table,
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
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        if not path.exists():
            continue
        text = path.read_text()
        new = rendered(text)
        if new != text:
            stale.append(name)
            if not options.check:
                path.write_text(new)
    if options.check and stale:
        print(f"{', '.join(stale)} differ from the result files; run `python -m benchmarks.tables`.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
