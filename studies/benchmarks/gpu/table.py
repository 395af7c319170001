"""The accelerator's tables as Markdown, from its result file alone."""

from __future__ import annotations

from typing import Any

MISSING = "Not measured yet."
PRECISION_HEADS = {"float32": "float32", "tf32": "TF32", "float64": "float64"}


def tables(result: dict[str, Any] | None) -> str:
    """Ceilings, works and many models, each where it was measured."""
    if result is None:
        return MISSING
    ceilings = result.get("ceilings")
    failure = (ceilings or {}).get("error")
    if failure:
        ceilings = None
    parts = [
        f"The ceilings were not measured: {failure}" if failure else "",
        ceilings_table(ceilings) if ceilings else "",
        works_table(result["works"], ceilings) if result.get("works") else "",
        many_table(result["many"]) if result.get("many") else "",
    ]
    return "\n\n".join(part for part in parts if part) or MISSING


def ceilings_table(ceilings: dict[str, Any]) -> str:
    """TFLOP/s of products, and below it bytes a second and turns of loops."""
    lines = _head(["product, TFLOP/s", "shape", *PRECISION_HEADS.values()])
    for row in ceilings["products"]:
        shape = f"{row['n']} × {row['k']} × {row['m']}" + (f", {row['batch']} at once" if row["batch"] else "")
        lines.append(_row([row["name"], shape, *(f"{row['tflops'][name]:.1f}" for name in PRECISION_HEADS)]))
    memory, turns = ceilings["memory"], ceilings["turn_us"]
    rest = (
        f"Memory: {memory['copy'] / 1e12:.2f} TB/s (copy), {memory['triad'] / 1e12:.2f} TB/s (triad). "
        f"A turn of a loop with next to no work takes {turns['known']:.1f} µs where the number of turns is known to "
        f"the compiler, {turns['unknown']:.1f} µs where it is not, a call from the host {turns['call']:.1f} µs."
    )
    return "\n".join([*lines, "", rest])


def product_ceiling(ceilings: dict[str, Any] | None, dtype: str) -> float | None:
    """The best rate of any product of this dtype, operations a second; float32 at its highest precision."""
    return None if ceilings is None else 1e12 * max(row["tflops"][dtype] for row in ceilings["products"])


def memory_ceiling(ceilings: dict[str, Any] | None) -> float | None:
    return None if ceilings is None else max(ceilings["memory"].values())


def works_table(works: dict[str, dict[str, Any]], ceilings: dict[str, Any] | None) -> str:
    """Times of steps, and what share of the ceilings they reach."""
    heads = ["work", "ms a step, in a loop", "alone", "TFLOP/s (of the ceiling)", "TB/s (of the ceiling)"]
    lines = _head([*heads, "kernels", "compile, s", "memory, MB"])
    for name, work in works.items():
        if "error" in work:
            lines.append(_row([name, work["error"], *[""] * 6]))
            continue
        seconds = work["step_ms"] / 1e3
        cells = [
            name,
            f"{work['step_ms']:.3f}",
            f"{work['alone_ms']:.3f}",
            _rate(work["operations"], seconds, product_ceiling(ceilings, work["dtype"])),
            _rate(work["bytes"], seconds, memory_ceiling(ceilings)),
            _shown(work["kernels"], "d"),
            f"{work['compile_s']:.1f}",
            _shown(work["program_mb"], ".0f"),
        ]
        lines.append(_row(cells))
    return "\n".join(lines)


def many_table(many: dict[str, dict[str, Any]]) -> str:
    """Milliseconds of an iteration of all models."""
    heads = ["data", "models", "ms an iteration", "program alone", "demanded", "TFLOP/s", "kernels", "compile, s"]
    lines = _head([*heads, "memory, MB"])
    for name, found in many.items():
        if "error" in found:
            lines.append(_row([name, "", found["error"], *[""] * 6]))
            continue
        cells = [
            found["data"],
            str(found["n_models"]),
            f"{found['iteration_ms']:.3f}",
            f"{found['program_ms']:.3f}",
            "" if found["limit_ms"] is None else f"{found['limit_ms']:g}",
            _rate(found["operations"], found["program_ms"] / 1e3, None),
            _shown(found["kernels"], "d"),
            f"{found['compile_s']:.1f}",
            _shown(found["program_mb"], ".0f"),
        ]
        lines.append(_row(cells))
    return "\n".join(lines)


def _rate(amount: float | None, seconds: float, ceiling: float | None) -> str:
    """10¹² a second, with its share of the ceiling where there is one."""
    if amount is None:
        return ""
    share = "" if ceiling is None else f" ({amount / seconds / ceiling:.0%})"
    return f"{amount / seconds / 1e12:.2f}{share}"


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _head(cells: list[str]) -> list[str]:
    return [_row(cells), "|---" * len(cells) + "|"]


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
