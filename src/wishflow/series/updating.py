"""Training that continues after `fit`: the rows kept for it, the rows held back from it, whether its result is used.

New rows cover only some of the states of a series. So training continues with the new rows *and* with a reservoir of
the past. The latest of the new rows are held back from it. The new parameters replace the present ones only if two
groups of rows are described no worse: the held-back rows, which neither model was trained on, and the latest of the old
rows, which both were trained on.

Old rows are not held back: the present parameters were fitted to them, so a model trained without them would score
worse there for that reason alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from ..numerics.devices import computing
from ..training.specs import TrainingSpec
from .data.units import TAIL, Tail, Units
from .running import runner_of
from .specs import DynamicsSpec, memory_of
from .training import SeriesProblem, train_series
from .windows import scored_items

# Rows of the past that are kept for training, of all series of a panel together, and the fewest of each of them.
RESERVOIR, MOST_RESERVOIR = 4096, 1_000_000
LEAST = 2 * TAIL
# Older rows are kept or dropped in blocks of at least so many units of time.
BLOCK = 96
# Training that continues is near its end: a fifth of the iterations of `fit`, at a tenth of its rate.
ITERATIONS, RATE = 1 / 5, 0.1
# The share of old and of new rows that decide whether new parameters are used (the latest of both), and the most old
# ones.
OLD_SHARE, NEW_SHARE, MOST_OLD = 1 / 6, 1 / 4, 400
# How much these rows may lose, in standard errors of the mean loss. With 0 half of all harmless changes would be
# rejected, and all changes that follow a changing series. With 1 a loss stays within the error of that many rows.
TOLERANCE = 1.0


# --- the rows that are kept -------------------------------------------------------------------------


def reservoir_of(units: Units, tails: Mapping[Any, Tail], size: int = RESERVOIR) -> dict[Any, Tail]:
    """The rows of each series that training can continue with: all of them up to `size` rows.

    Of longer series the latest half of that number is kept, and older rows in blocks spread over the past. The series
    of a panel share the number. A size of zero keeps none.
    """
    if not size:
        return {}
    n_most = max(size // len(tails), min(LEAST, size))
    return {key: _thinned(units, tail, n_most) for key, tail in tails.items()}


def _thinned(units: Units, tail: Tail, n_most: int) -> Tail:
    """The latest n/2 rows, and of older ones each 2ᵏth block of time, with the smallest k that leaves at most n rows.

    Blocks are those of the axis of time and not of the rows, so those that are kept later were kept before: a block
    is dropped as a whole, and a row that was dropped is not needed again. They are longer than `max_gap`, so what is
    dropped between two of them cuts the series, and no step leads across.
    """
    n = len(tail.index)
    if n <= n_most:
        return tail
    length = max(BLOCK, 2.0 * units.max_gap * units.step, 2.0 * memory_of(units.lags))
    block = np.floor(units.axis.units(tail.index, 0.0) / length).astype(np.int64)
    is_latest = np.arange(n) >= n - n_most // 2
    for k in range(1, 40):
        keep = is_latest | (block % 2**k == 0)
        if keep.sum() <= n_most:
            return units.rows(tail, keep)
    return units.rows(tail, is_latest)


def merged(units: Units, past: Mapping[Any, Tail], new: Mapping[Any, Tail]) -> dict[Any, Tail]:
    """All series of the past, with the new rows of those that have some; series that were not known start."""
    joined = {key: units.joined(past[key], rows) if key in past else rows for key, rows in new.items()}
    return {**past, **joined}


# --- the rows that decide ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Judges:
    """The rows of a series that decide whether new parameters are used.

    Both models were trained on `old` rows, and neither on `new` ones.
    """

    old: Bool[np.ndarray, " N"]
    new: Bool[np.ndarray, " N"]

    @classmethod
    def of(cls, tail: Tail, past: Tail | None) -> Judges:
        """The latest rows of each kind; `past` holds the rows that were known before the update, None of a new series.

        Rows that `past` holds are old, corrected ones too. New rows come after the last of them. Rows before that one
        which `past` does not hold are of neither kind: the reservoir may have dropped them after `fit` learnt from
        them. Rows without a value are of neither kind.

        The latest old rows: where a series has changed for good they are the first to be of the new kind, so that
        parameters that follow it are taken.
        """
        has_value = _has_value(tail)
        known = tail.index[:0] if past is None else past.index[_has_value(past)]
        is_old = has_value & tail.index.isin(known)
        is_new = has_value & np.asarray(tail.index > known[-1]) if len(known) else has_value
        n_old, n_new = int(OLD_SHARE * is_old.sum()), int(NEW_SHARE * is_new.sum())
        return cls(_last_of(is_old, min(n_old, MOST_OLD)), _last_of(is_new, n_new if n_new > 1 else 0))


def _has_value(tail: Tail) -> np.ndarray:
    return ~np.isnan(tail.values).all(axis=1)


def _last_of(flags: np.ndarray, n: int) -> np.ndarray:
    chosen = np.zeros(len(flags), bool)
    chosen[np.flatnonzero(flags)[-n:] if n else []] = True
    return chosen


def _trained_rows(units: Units, tail: Tail, judges: Judges) -> Tail:
    """The rows before the first one that is held back.

    Held-back rows are the last ones of a series with a value; rows without a value may lie between them.
    """
    return units.rows(tail, slice(None, int(judges.new.argmax()) if judges.new.any() else None))


def _scores(
    model: Any, units: Units, rows: Mapping[Any, Tail], judges: Mapping[Any, Judges], seed: int
) -> tuple[Float[np.ndarray, " A"], Float[np.ndarray, " B"]]:
    """Log densities of the rows that decide given those before them: of old rows, of new ones (model units)."""
    runner, old, new = runner_of(model), [np.zeros(0)], [np.zeros(0)]
    for key, tail in rows.items():
        at = np.flatnonzero(judges[key].old | judges[key].new)
        if not len(at):
            continue
        start = max(int(at[0]) - TAIL - memory_of(units.lags), 0)
        part = units.rows(tail, slice(start, None))
        ticks = units.ticks(part)
        scores = runner.row_log_density(ticks, len(part.index), seed) if ticks else np.full(len(part.index), np.nan)
        old.append(scores[judges[key].old[start:]])
        new.append(scores[judges[key].new[start:]])
    return np.concatenate(old), np.concatenate(new)


# --- training ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Gain:
    """Mean gain in log density over n rows, and its standard error (paired: of the differences)."""

    mean: float
    error: float
    n: int

    @classmethod
    def of(cls, before: Float[np.ndarray, " N"], after: Float[np.ndarray, " N"]) -> Gain:
        # Rows without a past have no score, neither before nor after.
        has_score = ~np.isnan(before)
        before, after = before[has_score], after[has_score]
        n = len(before)
        with np.errstate(invalid="ignore"):
            gains = np.where(after == before, 0.0, after - before)
        if np.isinf(gains).any():
            # The mean is infinite and has no error. A density that became zero is a loss, whatever others gained.
            is_lost = np.isnan(gains) | (gains == -np.inf)
            return cls(-np.inf if is_lost.any() else np.inf, 0.0, n)
        return cls(float(gains.mean()) if n else 0.0, float(gains.std(ddof=1)) / np.sqrt(n) if n > 1 else 0.0, n)

    def __str__(self) -> str:
        return f"{self.mean:+.4f} nats a row ({self.n} rows)"


def is_taken(old: Gain, new: Gain) -> bool:
    """Whether neither part lost more than its noise."""
    return all(gain.mean >= -TOLERANCE * gain.error for gain in (old, new))


@dataclasses.dataclass(frozen=True)
class UpdateOutcome:
    """The parameters to continue with, the history of training, and whether, in words, the new parameters are used."""

    model: Any
    history: pd.DataFrame
    status: str


def train_further(
    model: Any,
    spec: DynamicsSpec,
    training: TrainingSpec,
    units: Units,
    rows: Mapping[Any, Tail],
    past: Mapping[Any, Tail],
    seed: int,
    schedule: Callable | None,
    callbacks: Callable[[int], list],
) -> UpdateOutcome:
    """Train a model from its present parameters on `rows`, and use the new parameters if they are no worse.

    `past` holds those of the rows that were known before. `callbacks` makes the callbacks, given the number of items.
    """
    judges = {key: Judges.of(tail, past.get(key)) for key, tail in rows.items()}
    trained_rows = {key: _trained_rows(units, tail, judges[key]) for key, tail in rows.items()}
    ticks = [part for tail in trained_rows.values() if len(tail.index) for part in units.ticks(tail)]
    shorter = dataclasses.replace(
        training,
        max_iter=max(1, int(ITERATIONS * training.max_iter)),
        learning_rate=RATE * training.learning_rate,
        kl_warmup=0,
        decay=1.0,
    )
    rate = None if schedule is None else (lambda position: RATE * schedule(position))
    items = scored_items(ticks, spec) if ticks else None
    problem = (
        None if items is None else SeriesProblem(spec, shorter, model.layout, *items, None, None, seed, rate, model)
    )
    if problem is None or not problem.n_items:
        status = "the update left the parameters as they were: no two of its rows follow each other closely enough"
        return UpdateOutcome(model, pd.DataFrame(), status)
    with computing():
        trained = train_series(problem, callbacks(problem.n_items))
    before, after = (_scores(m, units, rows, judges, seed) for m in (model, trained.model))
    gains = [Gain.of(*pair) for pair in zip(before, after, strict=True)]
    taken = is_taken(*gains)
    said = f"old rows gained {gains[0]}, new rows that were held back {gains[1]}"
    status = f"update {'accepted' if taken else 'rejected, the parameters were kept'}: {said}; {trained.status}"
    history = trained.history.assign(phase="update" if taken else "rejected update")
    return UpdateOutcome(trained.model if taken else model, history, status)
