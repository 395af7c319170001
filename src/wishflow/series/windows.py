"""Arrays of time series: from rows with stamps and holes to what the objectives of the dynamics run over.

A *tick* is one Euler step of the model: a gap is cut into ⌈Δ/δ⌉ equal ticks, and only the last of them ends at a row.
Where state, lags and the next row are complete, a tick is scored by itself (`Transitions`); all other rows are scored
by the belief recursion over a window of ticks (`Windows`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from ..errors import DataError
from .specs import DynamicsSpec, Lags, chosen_lags, joint_run_of, memory_of

BURN_IN = 5
WINDOW = 16
# Of the latent model: rows the encoder of x_0 sees, and ticks of a window (the path keeps its prior law: not too many).
ENCODED_ROWS = 5
LATENT_WINDOW = 24
# Of a window: the tick before it, the first one that is scored, the last one.
Span = tuple[int, int, int]
# Stamps in floating point: a gap of 2δ (1 + 1e-9) is two steps, not three.
SLACK = 1e-6


@dataclasses.dataclass(frozen=True)
class Series:
    """One series: increasing times in units of the model, values with NaN for what is missing, known covariates."""

    times: Float[np.ndarray, " N"]
    values: Float[np.ndarray, "N D"]
    covariates: Float[np.ndarray, "N U"]

    def __len__(self) -> int:
        return len(self.times)


@dataclasses.dataclass(frozen=True)
class Ticks:
    """A stretch without gaps that are too long. Tick 0 is its first row; `row` is −1 where a tick ends at no row.

    The step into tick t has length h[t] and covariates u[t].
    """

    h: Float[np.ndarray, " T"]
    u: Float[np.ndarray, "T U"]
    y: Float[np.ndarray, "T D"]
    row: Int[np.ndarray, " T"]


@dataclasses.dataclass(frozen=True)
class Transitions:
    """Steps from a known history to a complete row: inputs (x, lags, u), increment, length of the step, the row."""

    X: Float[np.ndarray, "N K"]
    increment: Float[np.ndarray, "N D"]
    h: Float[np.ndarray, " N"]
    row: Int[np.ndarray, " N"]

    def __len__(self) -> int:
        return len(self.h)


@dataclasses.dataclass(frozen=True)
class Windows:
    """Stretches of ticks for the belief recursion; `start` is the history before the first tick, with the variance of
    what is not known of it (zero: it is).
    """

    start: Float[np.ndarray, "K pD"]
    variance: Float[np.ndarray, "K pD"]
    h: Float[np.ndarray, "K T"]
    u: Float[np.ndarray, "K T U"]
    y: Float[np.ndarray, "K T D"]
    is_seen: Bool[np.ndarray, "K T D"]
    is_scored: Bool[np.ndarray, "K T"]
    row: Int[np.ndarray, "K T"]

    def __len__(self) -> int:
        return len(self.h)


def n_substeps(gap: float | Float[np.ndarray, "*n"], step: float) -> Int[np.ndarray, "*n"] | np.int64:
    """⌈Δ/δ⌉: the number of equal steps a gap is cut into, in training, scoring and forecasting alike."""
    return np.maximum(1, np.ceil(np.asarray(gap) / step - SLACK)).astype(int)


def to_ticks(series: Series, step: float, lags: Lags, max_gap: float) -> list[Ticks]:
    """Cut a series at gaps above `max_gap`·δ and the other gaps into ticks.

    With lag 1 alone, rows without any entry are dropped. With more, the rows must lie on a grid of spacing δ; rows
    without entries stay as grid points, and only runs of them that are too long cut the series.
    """
    has_entry = ~np.isnan(series.values).all(axis=1)
    if memory_of(lags) > 1:
        jumps = np.flatnonzero(np.diff(series.times) > max_gap * step * (1 + SLACK)) + 1
        pieces = np.split(np.arange(len(series)), jumps)
        for piece in pieces:
            _require_grid(series.times[piece], step)
        stretches = [piece[rows] for piece in pieces for rows in _stretches(has_entry[piece], int(max_gap))]
        return [_grid_ticks(series, rows, step) for rows in stretches]
    keep = np.flatnonzero(has_entry)
    if not len(keep):
        return []
    cuts = np.flatnonzero(np.diff(series.times[keep]) > max_gap * step * (1 + SLACK)) + 1
    return [_gap_ticks(series, part, step) for part in np.split(keep, cuts)]


def _require_grid(times: np.ndarray, step: float) -> None:
    gaps = np.diff(times)
    if len(gaps) and np.abs(gaps / step - 1.0).max() > 1e-3:
        worst = int(np.abs(gaps / step - 1.0).argmax())
        raise DataError(
            f"lags above 1 need rows on a regular grid of spacing {step:g}; rows {worst} and {worst + 1} are "
            f"{gaps[worst]:g} apart. Pass freq= to put the series on a grid (holes are allowed), or use lags=1."
        )


def _stretches(has_entry: np.ndarray, max_gap: int) -> list[np.ndarray]:
    """Grid rows from first to last entry, cut where more than `max_gap` rows in a row are empty."""
    present = np.flatnonzero(has_entry)
    if not len(present):
        return []
    parts = np.split(present, np.flatnonzero(np.diff(present) > max_gap) + 1)
    return [np.arange(part[0], part[-1] + 1) for part in parts]


def _grid_ticks(series: Series, rows: np.ndarray, step: float) -> Ticks:
    return Ticks(np.full(len(rows), step), series.covariates[rows], series.values[rows], rows)


def _gap_ticks(series: Series, rows: np.ndarray, step: float) -> Ticks:
    gaps = np.diff(series.times[rows])
    counts = np.concatenate([[1], n_substeps(gaps, step)]) if len(rows) > 1 else np.ones(1, int)
    lengths = np.concatenate([[step], gaps])
    owner = np.repeat(np.arange(len(rows)), counts)
    is_last = np.zeros(len(owner), bool)
    is_last[np.cumsum(counts) - 1] = True
    y = np.where(is_last[:, None], series.values[rows][owner], np.nan)
    h = (lengths / counts)[owner]
    ends = series.times[rows[0]] + np.cumsum(h) - h[0]
    # A row without entries still says what the covariates were: a tick has those of the first row at or after its end.
    nearest = np.minimum(np.searchsorted(series.times, ends - SLACK * step), rows[owner])
    return Ticks(h, series.covariates[nearest], y, np.where(is_last, rows[owner], -1))


def all_ticks(series: list[Series], spec: DynamicsSpec, step: float) -> list[Ticks]:
    """All series in steps of one length; gaps of one length cut them, whatever the step."""
    return [part for s in series for part in to_ticks(s, step, spec.lags, spec.max_gap * spec.step / step)]


def whole_gaps(series: list[Series], spec: DynamicsSpec) -> Transitions:
    """Transitions over gaps of up to one unit without cuts: of a gap that is cut no increment is seen but the sum."""
    found, _ = cut(all_ticks(series, spec, max(1.0, spec.step)), spec.lags)
    if not len(found):
        raise DataError(
            "no two rows follow each other closely enough to learn from; raise max_gap, which counts steps of "
            f"step={spec.step:g}, or lower lags."
        )
    return found


def imputed(series: Series) -> Series:
    """The series with holes filled by straight lines in time, ends by the nearest value: for starting values alone."""
    values = series.values.copy()
    for column in values.T:
        is_there = ~np.isnan(column)
        column[:] = np.interp(series.times, series.times[is_there], column[is_there]) if is_there.any() else 0.0
    return Series(series.times, values, series.covariates)


def value_range(series: list[Series]) -> Float[np.ndarray, "2 D"]:
    """The lowest and the highest value of each column."""
    values = np.concatenate([s.values for s in series])
    return np.stack([np.nanmin(values, axis=0), np.nanmax(values, axis=0)])


# --- what is scored ------------------------------------------------------------------------------


def scored_items(ticks: list[Ticks], spec: DynamicsSpec) -> tuple[Transitions | None, Windows]:
    """What the objective is a sum over; windows of simulations are as long in time for any step up to the unit."""
    n_ticks = int(n_substeps(1.0, spec.step))
    if spec.latent is not None:
        return None, latent_windows(ticks, n_ticks * LATENT_WINDOW)
    if spec.objective == "transition":
        return cut(ticks, spec.lags)
    return None, rollouts(ticks, spec.lags, n_ticks * WINDOW)


def cut(ticks: list[Ticks], lags: Lags) -> tuple[Transitions, Windows]:
    """Every row with an entry and a past once: complete steps as transitions, the rest in windows."""
    n_least, longest = _row_distances(ticks)
    # Ticks a window may have: as many rows where rows are several ticks apart, and any gap from end to end.
    most = max(WINDOW * n_least, -(-longest // 8) * 8)
    found = [_split(part, lags, most) for part in ticks]
    longest = max((end - start for _, spans, _ in found for start, _, end in spans), default=1)
    length = most if n_least == 1 else 1 << (longest - 1).bit_length()
    slow = [_windows(part, spans, needed, lags, length) for part, (_, spans, needed) in zip(ticks, found, strict=True)]
    return _join(Transitions, [fast for fast, _, _ in found]), _join(Windows, slow)


def _row_distances(ticks: list[Ticks]) -> tuple[int, int]:
    """The smallest and the largest number of ticks from one row to the next."""
    distances = [np.diff(np.flatnonzero(part.row >= 0)) for part in ticks]
    joined = np.concatenate([np.ones(0, int), *distances])
    return (int(joined.min()), int(joined.max())) if len(joined) else (1, 1)


Part = TypeVar("Part", Transitions, Windows)


def _join(kind: type[Part], parts: Sequence[Part]) -> Part:
    fields = [field.name for field in dataclasses.fields(kind)]
    return kind(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def _split(ticks: Ticks, lags: Lags, most: int) -> tuple[Transitions, list[Span], np.ndarray]:
    """Complete steps, the spans of ticks that score all other rows, and the ticks that are scored there."""
    is_complete = ~np.isnan(ticks.y).any(axis=1)
    is_known = _all_at(is_complete, lags)
    fast = np.flatnonzero(is_known[:-1] & is_complete[1:])
    needed = ~np.isnan(ticks.y).all(axis=1)
    needed[fast + 1] = False
    needed[: memory_of(lags)] = False  # the first rows are the past of those that follow
    spans = _spans(needed, is_known, np.flatnonzero(ticks.row >= 0), memory_of(lags), most)
    return _transitions(ticks, fast, lags), spans, needed


def _all_at(flags: np.ndarray, lags: Lags) -> np.ndarray:
    """Whether the flag holds at t − l + 1 for all lags l."""
    at = np.arange(len(flags))
    return np.all([flags[np.maximum(at + 1 - lag, 0)] & (at + 1 >= lag) for lag in chosen_lags(lags)], axis=0)


def lagged(y: np.ndarray, at: np.ndarray, lags: Lags) -> np.ndarray:
    """y_{t−l+1} for all lags l side by side for each t of `at`; before the beginning there is NaN."""
    memory = memory_of(lags)
    padded = np.concatenate([np.full((memory, y.shape[1]), np.nan), y])
    return np.concatenate([padded[at + memory + 1 - lag] for lag in chosen_lags(lags)], axis=1)


def histories(
    y: Float[np.ndarray, "T D"], at: Int[np.ndarray, " K"], lags: Lags
) -> tuple[Float[np.ndarray, "K pD"], Float[np.ndarray, "K pD"]]:
    """All rows back to the longest lag side by side, (y_t, y_{t−1}, …), for each t of `at`, and their variances.

    What was seen has the variance zero. Holes among the first lags that follow each other (`joint_run_of`) are at
    N(0, 1): windows start early enough to forget that. Older ones are used within a window before it is forgotten; they
    are filled from what was seen before and after them, up to t, as if the series were a random walk (`bridged`).
    """
    memory, run, dim = memory_of(lags), joint_run_of(lags), y.shape[1]
    seen = lagged(y, at, memory)
    values, variance = np.nan_to_num(seen), np.isnan(seen).astype(float)
    if run < memory and len(at) and variance[:, run * dim :].any():
        mean, spread = bridged(seen.reshape(len(at), memory, dim))
        values[:, run * dim :] = mean[:, run:].reshape(len(at), -1)
        variance[:, run * dim :] = spread[:, run:].reshape(len(at), -1)
    return values, variance


def bridged(
    rows: Float[np.ndarray, "K p D"],
) -> tuple[Float[np.ndarray, "K p D"], Float[np.ndarray, "K p D"]]:
    """Means and variances at all rows of random walks, given their entries that are not NaN; no variance is above 1.

    A walk moves by as much as its entries do: their squared differences over their distances are its rate. Between
    entries a and b rows away it is a Brownian bridge: a straight line, rate · ab/(a + b). Beyond the last entry it
    stays, rate · a. Without entries it is N(0, 1).
    """
    p = rows.shape[1]
    place, is_there, values = np.arange(p)[None, :, None], ~np.isnan(rows), np.nan_to_num(rows)
    left = np.maximum.accumulate(np.where(is_there, place, -1), axis=1)
    right = np.minimum.accumulate(np.where(is_there, place, p)[:, ::-1], axis=1)[:, ::-1]
    at_left, at_right = (np.take_along_axis(values, np.clip(side, 0, p - 1), axis=1) for side in (left, right))
    has_left, has_right = left >= 0, right < p
    a, b = np.where(has_left, place - left, 0), np.where(has_right, right - place, 0)
    share = np.where(has_left & has_right, a / np.maximum(a + b, 1), ~has_left)  # of the entry on the right
    distance = np.where(has_left & has_right, a * (1.0 - share), a + b)
    variance = np.where(has_left | has_right, np.minimum(_walk_rate(values, is_there, left) * distance, 1.0), 1.0)
    return (1.0 - share) * at_left + share * at_right, variance


def _walk_rate(values: np.ndarray, is_there: np.ndarray, left: np.ndarray) -> Float[np.ndarray, "K 1 D"]:
    """Squared differences of entries that follow each other over their distances; 1 where there are not two."""
    before = np.concatenate([np.full_like(left[:, :1], -1), left[:, :-1]], axis=1)
    is_pair = is_there & (before >= 0)
    moved = values - np.take_along_axis(values, np.maximum(before, 0), axis=1)
    length = np.sum(np.where(is_pair, np.arange(values.shape[1])[None, :, None] - before, 0), axis=1, keepdims=True)
    total = np.sum(np.where(is_pair, moved**2, 0.0), axis=1, keepdims=True)
    return np.where(length > 0, total / np.maximum(length, 1), 1.0)


def rollouts(ticks: list[Ticks], lags: Lags, length: int = WINDOW) -> Windows:
    """Overlapping windows of `length` ticks, a new one every half window, all rows scored: for free simulation.

    Windows start at rows. One whose next row is further away than its length ends there.
    """
    spans = [_free_spans(part, memory_of(lags), length) for part in ticks]
    most = max([length, WINDOW, *(end - start for start, _, end in itertools.chain(*spans))])
    parts = zip(ticks, spans, strict=True)
    return _join(Windows, [_windows(p, found, ~np.isnan(p.y).all(axis=1), lags, most) for p, found in parts])


def _free_spans(ticks: Ticks, memory: int, length: int) -> list[Span]:
    """(start, first scored tick, end) of the windows of `rollouts`."""
    last = len(ticks.h) - 1
    starts = range(memory - 1, max(last - length // 2, memory), max(1, length // 2))
    rows = np.flatnonzero(ticks.row >= 0)
    at_rows = {int(rows[np.searchsorted(rows, start, side="right") - 1]) for start in starts if start < last}
    after = {start: int(np.append(rows, last)[np.searchsorted(rows, start, side="right")]) for start in at_rows}
    # Who has waited for a row starts anew there.
    after |= {row: row for start, row in after.items() if start + length < row < last}
    return [(start, start + 1, min(max(start + length, row), last)) for start, row in sorted(after.items())]


def _transitions(ticks: Ticks, at: np.ndarray, lags: Lags) -> Transitions:
    X = np.concatenate([lagged(ticks.y, at, lags), ticks.u[at + 1]], axis=1)
    return Transitions(X, ticks.y[at + 1] - ticks.y[at], ticks.h[at + 1], ticks.row[at + 1])


def _spans(
    needed: Bool[np.ndarray, " T"],
    is_known: Bool[np.ndarray, " T"],
    rows: Int[np.ndarray, " R"],
    memory: int,
    most: int,
) -> list[Span]:
    """(start, first scored tick, end) of windows that together score every needed tick once; `rows` are ticks too.

    A window starts at the row before the first needed tick where the history there is known; elsewhere it starts some
    rows earlier, with unknown coordinates, and its first rows are not scored. It ends where the history is known again
    and nothing is needed next, or when it has `most` ticks.
    """
    spans: list[Span] = []
    t, size = 0, len(needed)
    while True:
        rest = np.flatnonzero(needed[t:])
        if not len(rest):
            return spans
        first = t + int(rest[0])
        start, scored_from = _window_start(first, is_known, rows, memory, most)
        end = start
        while end + 1 < size and end - start < most:
            end += 1
            if is_known[end] and end >= scored_from and (end + 1 >= size or not needed[end + 1]):
                break
        if needed[scored_from : end + 1].any():
            spans.append((start, scored_from, end))
        t = end + 1


def _window_start(first: int, is_known: np.ndarray, rows: np.ndarray, memory: int, most: int) -> tuple[int, int]:
    """Where the window of a needed tick starts, and the tick it is scored from."""
    at = int(np.searchsorted(rows, first))
    if is_known[rows[at - 1]]:
        return int(rows[at - 1]), first
    oldest = at - 1 - BURN_IN
    start = max(int(rows[max(oldest, memory - 1)]), first - most)
    known = np.flatnonzero(is_known[start:first])
    if len(known):
        return start + int(known[0]), first
    if oldest >= memory - 1:
        return start, first
    after = memory + BURN_IN
    return start, int(rows[after]) if after < len(rows) else len(is_known)


def _windows(ticks: Ticks, spans: list[Span], needed: np.ndarray, lags: Lags, length: int) -> Windows:
    """The ticks after `start` up to `end` of each span."""
    h, u, y, row = _stacked(ticks, [(start + 1, end + 1) for start, _, end in spans], length)
    is_scored = np.zeros(h.shape, bool)
    for k, (start, scored_from, end) in enumerate(spans):
        inside = np.arange(start + 1, end + 1)
        is_scored[k, : len(inside)] = needed[inside] & (inside >= scored_from)
    history = histories(ticks.y, np.array([start for start, _, _ in spans], int), lags)
    seen = ~np.isnan(y)
    return Windows(*history, h, u, np.nan_to_num(y), seen, is_scored, row)


def _stacked(ticks: Ticks, ranges: list[tuple[int, int]], length: int) -> tuple[np.ndarray, ...]:
    """h, u, y and row of stretches of ticks, filled up to `length` by ticks of no length at which nothing is seen."""
    n, (_, dim), n_u = len(ranges), ticks.y.shape, ticks.u.shape[1]
    filled = (np.zeros((n, length)), np.zeros((n, length, n_u)), np.full((n, length, dim), np.nan))
    parts = (*filled, np.full((n, length), -1))
    for k, (first, end) in enumerate(ranges):
        for part, source in zip(parts, (ticks.h, ticks.u, ticks.y, ticks.row), strict=True):
            part[k, : end - first] = source[first:end]
    return parts


def latent_windows(ticks: list[Ticks], length: int = LATENT_WINDOW) -> Windows:
    """Stretches of at most `length` ticks that begin at a row, each row in one of them.

    The first tick has no length: it is where x_0 is seen. `start` holds the first `ENCODED_ROWS` rows of the stretch
    side by side, `variance` is one where they have no entry.
    """
    found = []
    for part in ticks:
        ranges = _row_ranges(part.row, length)
        h, u, y, row = _stacked(part, ranges, length)
        h[:, 0] = 0.0
        first = np.stack([_first_rows(part.y[a:b], part.row[a:b]) for a, b in ranges])
        seen = ~np.isnan(y)
        variance = np.isnan(first).astype(float)
        scored = seen.any(axis=-1)
        found.append(Windows(np.nan_to_num(first), variance, h, u, np.nan_to_num(y), seen, scored, row))
    return _join(Windows, found)


def _row_ranges(row: np.ndarray, length: int) -> list[tuple[int, int]]:
    """Half-open ranges of ticks that begin at a row and end at one, none longer than `length` where rows allow it."""
    at_rows = np.flatnonzero(row >= 0)
    ranges, i = [], 0
    while i < len(at_rows):
        inside = at_rows[i:][at_rows[i:] < at_rows[i] + length]
        ranges.append((int(inside[0]), int(inside[-1]) + 1))
        i += len(inside)
    return ranges


def _first_rows(y: np.ndarray, row: np.ndarray) -> np.ndarray:
    rows = y[row >= 0][:ENCODED_ROWS]
    padding = np.full((ENCODED_ROWS - len(rows), y.shape[1]), np.nan)
    return np.concatenate([rows, padding]).reshape(-1)
