"""Medians of repeated work, long enough for the clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

ROUNDS = 5
ROUND_S = 0.15
MOST = 500


def seconds(run: Callable[[int], object], n: int) -> float:
    """Seconds of `run(n)`, which does n pieces of work and waits for them."""
    started = time.perf_counter()
    run(n)
    return time.perf_counter() - started


def repeats(piece_s: float, round_s: float) -> int:
    """How many pieces fill a round: at least one, at most `MOST`."""
    return int(min(max(round_s / max(piece_s, 1e-9), 1), MOST))


def median_seconds(run: Callable[[int], object], round_s: float = ROUND_S, rounds: int = ROUNDS) -> float:
    """Seconds of one piece of work: the median of rounds of many pieces. The first runs, slow ones, do not count."""
    run(1)
    n = repeats(seconds(run, 3) / 3, round_s)
    return statistics.median(seconds(run, n) / n for _ in range(rounds))
