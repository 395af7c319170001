"""Shuffled batches of rows from a table that does not fit into memory.

The rows are cut into equal parts, and each batch has as many rows of each. A part has an order of its own for each pass
through it: its units in random order, and within windows of some thousand rows all rows in random order. Which rows a
step sees is a function of seed and step alone. So a fit goes on from any step, and since a device reads whole parts,
the same steps are taken whatever the number of devices and processes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

from ..numerics.devices import on_device
from ..numerics.meshes import on_all, split_by
from ..numerics.scaling import Scaler, with_directions
from ..training.loop import STEPS_PER_CHUNK
from ..training.phases import AbstractStream
from .batches import Batch
from .steps import RowSteps
from .tables import Table

# Rows of all parts among which they are shuffled.
SHUFFLED_ROWS = 2**18


class ChunkRows(eqx.Module):
    """The rows of all steps of a chunk; `n_data` is the number of rows that a batch stands for."""

    X: Float[Array, "T B D"]
    y: Float[Array, "T B P"]
    n_data: Scalar


@dataclasses.dataclass(frozen=True)
class StreamSteps(RowSteps):
    """Batches that come in the order of the steps: data are `ChunkRows`."""

    def shuffle(self, key: PRNGKeyArray, data: Any) -> PyTree:
        return None

    def batch(self, data: Any, order: PyTree, i: Int[Array, ""]) -> PyTree:
        X, y = data.X[i], data.y[i]
        return Batch(X, y, jnp.ones(len(X), X.dtype), data.n_data)


@dataclasses.dataclass(frozen=True)
class Scales:
    """How rows of a table become states and targets of a model; `n_columns` of a state are used (None: all)."""

    x: Scaler
    y: Scaler
    directions: np.ndarray
    n_columns: int | None = None

    def applied(self, rows: Float[np.ndarray, "n C"]) -> tuple[np.ndarray, np.ndarray]:
        n_inputs = len(self.x.mean)
        X = with_directions(self.x.forward(rows[:, :n_inputs]), self.directions)[:, : self.n_columns]
        return X, self.y.forward(rows[:, n_inputs:])


class RowStream(AbstractStream):
    """The chunks of a fit to a table, without some of its rows; the next one is read while one is trained on.

    `fingerprint` is that of all rows of the table.
    """

    def __init__(
        self,
        table: Table,
        scales: Scales,
        batch_rows: int,
        n_parts: int,
        seed: int,
        without: Int[np.ndarray, " W"],
        fingerprint: str,
        mesh: Mesh | None = None,
    ) -> None:
        self.table, self.scales, self.n_parts, self.seed, self.mesh = table, scales, n_parts, seed, mesh
        self.fingerprint = fingerprint
        self.without_rows = np.sort(without)
        self.batch_rows = n_parts * -(-batch_rows // n_parts)
        self._cursors: dict[int, Cursor] = {}
        # One thread for all chunks: memory that ever new threads ask for would not be given back.
        self._reader = ThreadPoolExecutor(1, "wishflow-rows")
        self._ahead: tuple[int, Future] | None = None
        self._last: tuple[int, Any] | None = None

    def __repr__(self) -> str:
        """What tells the stream from others; devices do not."""
        table, scales = self.table, self.scales
        numbers = [scales.x.mean, scales.x.scale, scales.y.mean, scales.y.scale, table.sizes, self.without_rows]
        shape = (self.fingerprint, table.columns, scales.n_columns, self.batch_rows, self.n_parts, self.seed)
        return f"RowStream{shape}{[part.tolist() for part in numbers]}"

    @property
    def n_rows(self) -> int:
        return self.table.n_rows - len(self.without_rows)

    # --- other streams of the same table ---

    def without(self, rows: Int[np.ndarray, " W"]) -> RowStream:
        """Without rows of the given numbers."""
        return self._changed(without=np.union1d(self.without_rows, rows))

    def narrowed(self, n_columns: int | None) -> RowStream:
        """With the first columns of the states alone."""
        return self._changed(scales=dataclasses.replace(self.scales, n_columns=n_columns))

    def for_batches(self, batch_rows: int) -> RowStream:
        """With batches of so many rows, up to a multiple of the number of parts."""
        return self._changed(batch_rows=batch_rows)

    def on(self, mesh: Mesh | None) -> RowStream:
        """With rows split over the devices of a mesh."""
        return self._changed(mesh=mesh)

    def _changed(self, **changes: Any) -> RowStream:
        own = {
            "table": self.table,
            "scales": self.scales,
            "batch_rows": self.batch_rows,
            "n_parts": self.n_parts,
            "seed": self.seed,
            "without": self.without_rows,
            "fingerprint": self.fingerprint,
            "mesh": self.mesh,
        }
        return RowStream(**{**own, **changes})

    # --- chunks ---

    def chunk(self, first: int) -> ChunkRows:
        if self._last is not None and self._last[0] == first:  # the start of a phase looks at its first chunk
            return self._last[1]
        ahead, self._ahead, self._last = self._ahead, None, None
        parts = None if ahead is None else ahead[1].result()  # an error of the reader is raised here
        if parts is None or ahead is None or ahead[0] != first:
            parts = self._read(first)
        data = self._placed(parts)
        self._last = (first, data)
        self._ahead = (first + STEPS_PER_CHUNK, self._reader.submit(self._read, first + STEPS_PER_CHUNK))
        return data

    def _read(self, first: int) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """The scaled rows of a chunk of each part that this process has devices for, (T, b, ·)."""
        b = self.batch_rows // self.n_parts
        found = {}
        for part in self._own_parts():
            cursor = self._cursors.get(part)
            if cursor is None or cursor.position != first * b:
                cursor = self._cursors[part] = Cursor(self, part, first * b)
            rows = cursor.take(STEPS_PER_CHUNK * b)
            X, y = self.scales.applied(rows)
            found[part] = (X.reshape(STEPS_PER_CHUNK, b, -1), y.reshape(STEPS_PER_CHUNK, b, -1))
        return found

    def _own_parts(self) -> list[int]:
        if self.mesh is None:
            return list(range(self.n_parts))
        each = self.n_parts // self.mesh.size
        own = [i for i, one in enumerate(self.mesh.devices.flat) if one.process_index == jax.process_index()]
        return [part for i in own for part in range(i * each, (i + 1) * each)]

    def _placed(self, parts: dict[int, tuple[np.ndarray, np.ndarray]]) -> ChunkRows:
        b = self.batch_rows // self.n_parts

        def whole(which: int) -> Any:
            some = next(iter(parts.values()))[which]
            shape = (STEPS_PER_CHUNK, self.batch_rows, some.shape[-1])

            def block(start: int, stop: int) -> np.ndarray:
                return np.concatenate([parts[part][which] for part in range(start // b, stop // b)], axis=1)

            return split_by(block, shape, self.mesh)

        return ChunkRows(whole(0), whole(1), on_all(on_device(float(self.n_rows)), self.mesh))


# --- the order of the rows of a part -------------------------------------------------------------


class Cursor:
    """A place in the endless sequence of the rows of a part."""

    def __init__(self, stream: RowStream, part: int, position: int) -> None:
        self.position = position
        self._windows = windows_from(stream, part, position)
        self._rest = np.zeros((0, len(stream.table.columns)))

    def take(self, n: int) -> Float[np.ndarray, "n C"]:
        """The next n rows."""
        taken, n_taken = [], 0
        while n_taken < n:
            if not len(self._rest):
                self._rest = next(self._windows)
            part, self._rest = self._rest[: n - n_taken], self._rest[n - n_taken :]
            taken.append(part)
            n_taken += len(part)
        self.position += n
        return np.concatenate(taken)


# Rows of a unit, from the first to before the last.
Segment = tuple[int, int, int]


def windows_from(stream: RowStream, part: int, position: int) -> Iterator[Float[np.ndarray, "n C"]]:
    """The windows of a part, shuffled, from a place in its sequence on, pass after pass."""
    reader = UnitReader(stream.table)
    segments, n_rows = part_segments(stream, part)
    turn, skip = divmod(position, n_rows)
    while True:
        rng = np.random.default_rng(np.random.SeedSequence([stream.seed, part, turn]))
        order = [segments[i] for i in rng.permutation(len(segments))]
        for number, window in enumerate(windows_of(order, max(1, SHUFFLED_ROWS // stream.n_parts))):
            numbers = np.concatenate([stream.table.starts[u] + np.arange(a, b) for u, a, b in window])
            keep = ~np.isin(numbers, stream.without_rows, assume_unique=True)
            n_kept = int(keep.sum())
            if skip >= n_kept:  # of a fit that goes on: not read
                skip -= n_kept
                continue
            rows = np.concatenate([reader.read(*segment) for segment in window])[keep]
            shuffle = np.random.default_rng(np.random.SeedSequence([stream.seed, part, turn, number]))
            yield rows[shuffle.permutation(n_kept)][skip:]
            skip = 0
        turn += 1


def part_segments(stream: RowStream, part: int) -> tuple[list[Segment], int]:
    """The rows of one of n equal parts as segments of units, and their number without those that are left out."""
    table = stream.table
    first, last = (table.n_rows * i // stream.n_parts for i in (part, part + 1))
    found = []
    for unit, (start, size) in enumerate(zip(table.starts, table.sizes, strict=True)):
        a, b = max(first, start) - start, min(last, start + size) - start
        if a < b:
            found.append((unit, int(a), int(b)))
    n_without = int(np.diff(np.searchsorted(stream.without_rows, [first, last]))[0])
    return found, last - first - n_without


def windows_of(segments: list[Segment], size: int) -> Iterator[list[Segment]]:
    """Segments one after another, cut into windows of `size` rows; the last one may have fewer."""
    window: list[Segment] = []
    room = size
    for unit, a, b in segments:
        while a < b:
            n = min(room, b - a)
            window.append((unit, a, a + n))
            a, room = a + n, room - n
            if room == 0:
                yield window
                window, room = [], size
    if window:
        yield window


class UnitReader:
    """Rows of units by their numbers; those that follow on what was read last need no new start."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._unit, self._at = -1, 0
        self._blocks: Iterator[np.ndarray] = iter(())
        self._rest = np.zeros((0, len(table.columns)))

    def read(self, unit: int, first: int, last: int) -> Float[np.ndarray, "n C"]:
        if unit != self._unit or first < self._at:
            self._unit, self._at, self._blocks = unit, 0, self._table.blocks(unit)
            self._rest = self._rest[:0]
        self._next(first - self._at, is_kept=False)
        return np.concatenate(self._next(last - first, is_kept=True))

    def _next(self, n: int, is_kept: bool) -> list[np.ndarray]:
        found = []
        while n > 0:
            if not len(self._rest):
                self._rest = next(self._blocks)
            part, self._rest = self._rest[:n], self._rest[n:]
            n, self._at = n - len(part), self._at + len(part)
            if is_kept:
                found.append(part)
        return found
