"""From measurements to the table: medians, quartiles, ratios, fractions of the limit, and whether the work was the
same.
"""

from __future__ import annotations

import dataclasses
import statistics

from .arithmetic import operations
from .contenders import OURS
from .driver import Measurement
from .works import Work

# How far the values of equal work may lie apart, relative to ours: rounding, by the dtype of the work.
TOLERANCE = {"float32": 1e-5, "float64": 1e-8}
FORMS = {contender.name: contender.form for contender in OURS}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table; `ratio` is the best peer's median by this one's, above 1 where this one is faster."""

    work: str
    contender: str
    status: str
    median_ms: float | None = None
    quartiles_ms: tuple[float, float] | None = None
    compile_s: float | None = None
    peak_mb: float | None = None
    ratio: float | None = None
    limit_fraction: float | None = None
    difference: float | None = None


def quartiles(seconds: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(seconds) == 1:
        return seconds[0], seconds[0], seconds[0]
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return low, middle, high


def is_equal_work(contender: str) -> bool:
    return FORMS.get(contender, "full") == "full"


def rows_of(work: Work, measurements: list[Measurement], limits: dict[str, float]) -> list[Row]:
    """The lines of one work; `limits` in GFLOP/s by dtype."""
    medians = {m.contender: statistics.median(m.seconds) for m in measurements if m.seconds}
    best_peer = min((s for name, s in medians.items() if name not in FORMS), default=None)
    ours = next((m.value for m in measurements if m.contender == "ours"), None)
    return [_row(work, m, best_peer, ours, limits) for m in measurements]


def _row(work: Work, m: Measurement, best_peer: float | None, ours: float | None, limits: dict[str, float]) -> Row:
    difference = None
    if is_equal_work(m.contender) and m.value is not None and ours:
        difference = abs(m.value - ours) / abs(ours)
    if not m.seconds:
        return Row(work.name, m.contender, m.status, compile_s=m.compile_s, difference=difference)
    low, middle, high = quartiles(m.seconds)
    rate = operations(work, FORMS.get(m.contender, "full")) / middle / 1e9
    return Row(
        work.name,
        m.contender,
        m.status,
        1e3 * middle,
        (1e3 * low, 1e3 * high),
        m.compile_s,
        m.peak_mb,
        None if best_peer is None else best_peer / middle,
        rate / limits[work.dtype],
        difference,
    )


def unequal(work: Work, rows: list[Row]) -> list[Row]:
    """The lines that claim the same work but give another value: the benchmark would be wrong."""
    # Written so that a NaN counts as unequal.
    return [row for row in rows if row.difference is not None and not row.difference <= TOLERANCE[work.dtype]]


HEADER = ("", "ms/step", "quartiles", "compile s", "peak MB", "× best peer", "of limit", "value differs by")


def _cells(row: Row) -> tuple[str, ...]:
    low_high = "" if row.quartiles_ms is None else "{:.1f} – {:.1f}".format(*row.quartiles_ms)
    return (
        row.contender,
        _shown(row.median_ms, ".1f"),
        low_high,
        _shown(row.compile_s, ".1f"),
        _shown(row.peak_mb, ".0f"),
        _shown(row.ratio, ".2f"),
        _shown(row.limit_fraction, ".0%"),
        _shown(row.difference, ".0e") if is_equal_work(row.contender) else "other q",
    )


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def format_work(work: Work, rows: list[Row], limits: dict[str, float]) -> str:
    """The table of one work as text, failures below it."""
    gflop = operations(work) / 1e9
    title = f"{work.name}: {work.says}"
    needs = f"{gflop:.2f} GFLOP, at least {1e3 * gflop / limits[work.dtype]:.1f} ms at the matrix-product limit"
    lines = [HEADER, *(_cells(row) for row in rows if row.median_ms is not None)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    table = ["  ".join(_aligned(line, widths)) for line in lines]
    failures = [f"{row.contender}: {row.status}" for row in rows if row.status != "ok"]
    warnings = [
        f"{row.contender}: NOT THE SAME WORK, its value lies {row.difference:.1e} from ours"
        for row in unequal(work, rows)
    ]
    return "\n".join([title, needs, *table, *failures, *warnings])


def _aligned(line: tuple[str, ...], widths: list[int]) -> list[str]:
    """The first column to the left, numbers to the right."""
    first, *others = zip(line, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
