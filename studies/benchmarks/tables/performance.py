"""Tables of docs/performance.md: steps, growth, an accelerator, first use, waiting."""

from __future__ import annotations

from typing import Any

from ..gpu import table as gpu
from ..speed.works import find_work
from .text import NOT_MEASURED, grid, result, source_text

GROWTH_FIGURE = "figures/growth.svg"  # beside the page that shows it; `python -m studies.benchmarks.growth --figure`
GROWTH_PAIR = ("independent columns", "independent columns, rematerialised")
# The tables of the page that do not say themselves where they come from.
SOURCES = ("blocks.json", "first_use.json", "growth.json")


def speed_table() -> str:
    """Steps of ours and of the peers, all works."""
    found = result("speed.json")
    if found is None:
        return NOT_MEASURED
    lines = [
        "| work | | ms per step | × best peer | share of the limit | compile, s | peak, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
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


def blocks_table() -> str:
    """Milliseconds of a step by the width of the blocks of triangular factors."""
    found = result("blocks.json")
    if found is None:
        return NOT_MEASURED
    medians = found["median_ms"]
    return grid("work, ms per step", {w: {k: f"{ms:.1f}" for k, ms in found.items()} for w, found in medians.items()})


def growth_table() -> str:
    """Exponents of the step time by each size: over all values and over the upper ones; then those of the counted
    arithmetic over the upper ones.
    """
    measured = result("growth.json")
    if measured is None:
        return NOT_MEASURED
    found = {name: parts for name, parts in measured["configurations"].items() if "n_data" in parts}
    rows = {}
    for field, label in measured["labels"].items():
        values = next(iter(found.values()))[field]["values"]
        cells = {name: _exponents(parts[field]) for name, parts in found.items()}
        rows[label] = {"from, to": f"{values[0]}, {values[-1]}", **cells}
    return grid("size", rows) + f"\n\n![Step time and peak memory by each size]({GROWTH_FIGURE})"


def _exponents(part: dict[str, Any]) -> str:
    found = part["exponent"]
    return f"{found['whole']:z.2f}, {found['upper']:z.2f} ({part['arithmetic_exponent']['upper']:z.2f})"


def growth_memory_table() -> str:
    """Peak memory of a step with its loop stored and rematerialised, and what the second costs in time."""
    measured = result("growth.json")
    if measured is None:
        return NOT_MEASURED
    stored, again = (measured["configurations"][name] for name in GROWTH_PAIR)
    rows = {}
    for field in again:
        pair = (stored[field], again[field])
        cells = {name: _megabytes(part) for name, part in zip(("stored, MB", "rematerialised, MB"), pair, strict=True)}
        ratio = again[field]["median_ms"][-1] / stored[field]["median_ms"][-1]
        values = stored[field]["values"]
        label = f"{measured['labels'][field]}, {values[0]} to {values[-1]}"
        rows[label] = {**cells, "time ratio at the largest size": f"× {ratio:.2f}"}
    return grid("size", rows)


def _megabytes(part: dict[str, Any]) -> str:
    first, last = (part["bytes"][i] / 2**20 for i in (0, -1))
    return f"{first:.0f} to {last:.0f} ({part['bytes_exponent']['upper']:z.2f})"


def gpu_tables() -> str:
    """The accelerator's ceilings and steps, and where they come from."""
    found = result("gpu.json")
    if found is None:
        return NOT_MEASURED
    runs = [found["provenance"], *reversed(found.get("earlier", []))]
    return gpu.tables(found) + f"\n\nSource: {'; other rows: '.join(source_text(run) for run in runs)}."


def first_use_table() -> str:
    """Seconds before the first result."""
    found = result("first_use.json")
    if found is None:
        return NOT_MEASURED
    names = {
        "import": "`import wishflow`",
        "regressor": "… and `wishflow.FlowRegressor`",
        "cold": "fit, no cache",
        "warm": "fit, with a warm JAX cache",
    }
    limits = {key: f"{limit:g}" for key, limit in found["limits"].items()}
    rows = {key: {"seconds": f"{s:.3g}", "limit": limits.get(key, "")} for key, s in found["median"].items()}
    return grid("", {text: rows[key] for key, text in names.items() if key in rows})


def waiting_table() -> str:
    """Seconds a person waits with the defaults."""
    found = result("waiting.json")
    if found is None:
        return NOT_MEASURED
    rows = {}
    for name, line in found["lines"].items():
        median, limit = line["median"], line["limit"]
        fit, predict = (f"{median[key]:.1f} ({limit[key]:g})" for key in ("fit", "predict"))
        call, *data = name.split(", ")
        shown = ", ".join([f"`{call}`", *data])
        rows[shown] = {"fit, seconds (limit)": fit, "predict 200 rows or forecast 24 steps, seconds (limit)": predict}
    return grid("estimator", rows)


def latency_table() -> str:
    """Seconds from a new row of a series to a forecast."""
    found = result("update_latency.json")
    if found is None:
        return NOT_MEASURED
    rows = {}
    for name, run in found["runs"].items():
        times = {f"{part}, seconds": f"{run[part]['wall']:.3f}" for part in ("update", "forecast")}
        both = f"{run['both']['wall']:.3f} ({found['limit']:g})"
        rows[name] = {
            "kept model": run["kept"],
            **times,
            "both, seconds (limit)": both,
            "longest, seconds": f"{run['longest']:.3f}",
        }
    return f"{grid('forecaster', rows)}\n\nSource: {source_text(found['provenance'])}."


def together_table() -> str:
    """Forecasters trained together, beside one by one."""
    found = result("many_forecasters.json")
    if not found:
        return NOT_MEASURED
    rows = {
        name: {
            "training steps per second, one by one": f"{run['alone']['steps_per_second']:,.0f}",
            "training steps per second, together": f"{run['together']['steps_per_second']:,.0f}",
            f"ratio (bar {found['limit']:.0f})": f"{run['steps_per_second_ratio']:.1f}",
            "whole fits per second, one by one": f"{run['alone']['fits_per_second']:.3g}",
            "whole fits per second, together": f"{run['together']['fits_per_second']:.3g}",
            "ratio": f"{run['fits_per_second_ratio']:.1f}",
        }
        for name, run in found["runs"].items()
    }
    return f"{grid('100 forecasters', rows)}\n\nSource: {source_text(found['provenance'])}."


def devices_table() -> str:
    """How far fits on one device and on several agree."""
    found = result("many_devices.json")
    if found is None:
        return NOT_MEASURED
    rows = {
        name: {
            f"objective over {found['steps']} steps, nats per row": f"{run['nats_per_row']:.0e}",
            "objective, relative": f"{run['relative']:.0e}",
            "predicted means, in predicted standard deviations": f"{run['mean_by_sd']:.0e}",
        }
        for name, run in found["runs"].items()
    }
    about = f"largest difference between 1 and {found['devices']} devices"
    return f"{grid(about, rows)}\n\nSource: {source_text(found['provenance'])}."


def streaming_table() -> str:
    """Rows per second and memory of a fit to files, and of fits to rows in memory."""
    found = result("streaming.json")
    if found is None:
        return NOT_MEASURED
    first, second = found["memory"]
    name = f"{found['rows']:,} rows of Parquet"
    runs = {name: found["files"], "in memory, run before": first, "in memory, run after": second}
    rows = {
        name: {
            "steps": f"{run['steps']}",
            "rows per second": f"{run['rows_per_second']:,.0f}",
            "rows per CPU second": f"{run['rows_per_cpu_second']:,.0f}",
            "peak resident memory, GiB (limit 2)": f"{run['peak_gib']:.2f}",
        }
        for name, run in runs.items()
    }
    about = f"{found['inputs']} inputs, {found['inducing']} inducing points, batches of {found['batch']} rows"
    return f"{grid(about, rows)}\n\nSource: {source_text(found['provenance'])}."


# What the projection assumes of a computer with eight GPUs, which was not there to be measured: bytes and seconds of a
# sum over them by NVLink, and sums of a step that wait for each other.
N_GPUS, LINK_BYTES, LINK_SECONDS, N_SUMS = 8, 4.5e11, 2e-5, 6
MANY_ROWS = 10**9


def projection_table() -> str:
    """Minutes for a pass over a billion rows, from measured steps of one GPU and measured reading."""
    steps, files = result("gpu.json"), result("streaming.json")
    if steps is None or files is None:
        return NOT_MEASURED
    rows = {}
    for name, key in (("sparse GP, M = 100", "svgp64"), ("diffWGP flow, M = 100, 20 Euler steps", "wishart_shared")):
        work = find_work(key)
        n_steps = MANY_ROWS / (N_GPUS * work.rows)
        traffic = 8 * (2 + work.n_posteriors) * work.n_inducing**2
        sums = 2 * traffic / LINK_BYTES + N_SUMS * LINK_SECONDS
        seconds = {"steps": n_steps * steps["works"][key]["step_ms"] / 1e3, "sums over GPUs": n_steps * sums}
        seconds["reading, CPU time of one process"] = MANY_ROWS / files["read"]["rows_per_cpu_second"]
        rows[name] = {f"{part}, minutes": f"{value / 60:.1f}" for part, value in seconds.items()}
    return grid(f"one pass over {MANY_ROWS:.0e} rows on {N_GPUS} GPUs (projection)", rows)


def checks_table() -> str:
    """Seconds and outcome of scikit-learn's checks of estimators."""
    found = result("checks.json")
    if found is None:
        return NOT_MEASURED
    rows = {}
    for name, run in found["runs"].items():
        counts = {status: str(run.get(status, 0)) for status in ("passed", "skipped", "failed")}
        rows[f"`{name}()`"] = {"seconds (limit)": f"{run['seconds']:.0f} ({found['limit']:g})", **counts}
    return grid("estimator", rows) + f"\n\nSource: {source_text(found['provenance'])}."


def race_table() -> str:
    """Seconds to a fixed score, or the score where a contender was given up."""
    found = result("race.json")
    if found is None:
        return NOT_MEASURED
    rows = {name: race_row(attempts, found["target"]) for name, attempts in found["attempts"].items()}
    goal = f"seconds to a log density of {found['target']:g}"
    cells = {
        name: {goal: seconds, "log density reached": score, "setting (iterations or epochs)": after}
        for name, (seconds, score, after) in rows.items()
    }
    return grid(f"{found['data']}, first split", cells) + f"\n\nSource: {source_text(found['provenance'])}."


def race_row(attempts: list[dict[str, Any]], target: float) -> tuple[str, str, str]:
    """Seconds of the attempt that reaches the target, its score and what it was; or what the last one came to."""
    last = next((attempt for attempt in attempts if attempt["score"] >= target), attempts[-1])
    is_reached = last["score"] >= target
    seconds = f"{last['seconds']:.0f}" if is_reached else f"not in {last['seconds']:.0f}"
    return seconds, f"{last['score']:.3f}", f"{last['label']} ({last['n_iter']})"


def source_list() -> str:
    """Where the numbers of the page come from: the runs of the speed benchmark with their works, then other files."""
    speeds = (result("speed.json") or {"runs": []})["runs"]
    lines = [f"`speed.json` ({', '.join(run['works'])}): {_source(run['provenance'])}" for run in speeds]
    others = {name: result(name) for name in SOURCES}
    lines += [f"`{name}`: {_source(found['provenance'])}" for name, found in others.items() if found is not None]
    return "\n".join(f"- {line}" for line in lines) or NOT_MEASURED


def _source(p: dict[str, Any]) -> str:
    return f"{source_text(p)}, {p['cpu_count']} cores"
