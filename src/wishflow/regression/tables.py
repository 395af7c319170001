"""Parquet and Arrow data that do not fit into memory: their parts, and one pass of statistics."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..errors import DataError, OptionError
from ..numerics.meshes import gathered, n_processes, process_number
from ..numerics.scaling import Scaler

# Rows that are read at once.
READ_ROWS = 65_536
# Rows that inducing points, held-back rows and scales without a closed form come from.
SAMPLE_ROWS = 10_500


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of a data set, cut into units (row groups of Parquet, or whole files) that are read one at a time.

    The rows have numbers, from 0, in the order of the units. `columns` are the inputs, then the targets.
    """

    units: tuple[Any, ...]
    sizes: Int[np.ndarray, " U"]
    columns: tuple[str, ...]
    n_inputs: int
    schema: Any

    @classmethod
    def open(cls, source: Any, targets: Sequence[str], columns: Sequence[str] | None) -> Table:
        """The inputs are all columns but the targets where none are named."""
        dataset = opened(source)
        names = dataset.schema.names
        inputs = [name for name in names if name not in targets] if columns is None else list(columns)
        _check_columns(dataset.schema, [*inputs, *targets])
        if not inputs or set(inputs) & set(targets):
            raise OptionError(f"columns={inputs} and target={list(targets)} given; expected inputs beside the targets.")
        units = tuple(unit for fragment in dataset.get_fragments() for unit in _units_of(fragment))
        sizes = np.array([_size_of(unit) for unit in units], int)
        return cls(units, sizes, (*inputs, *targets), len(inputs), dataset.schema)

    @property
    def n_rows(self) -> int:
        return int(self.sizes.sum())

    @property
    def starts(self) -> Int[np.ndarray, " U"]:
        """The number of the first row of each unit."""
        return np.cumsum(self.sizes) - self.sizes

    def blocks(self, unit: int) -> Iterator[Float[np.ndarray, "n C"]]:
        """The rows of a unit in order, as numbers."""
        for batch in batches_of(self.units[unit], self.columns, self.schema):
            yield numbers_of(batch, self.columns)


def opened(source: Any) -> Any:
    """A `pyarrow.dataset.Dataset`: as it was given, or of a file, a folder or a list of files."""
    dataset = arrow_datasets()
    if isinstance(source, dataset.Dataset):
        try:
            next(iter(source.get_fragments()), None)
        except ValueError as error:  # pyarrow reads no single files of what was filtered or projected
            raise DataError(
                f"the data cannot be read file by file ({error}); expected files as they are: write the filtered rows "
                "first, by pyarrow.dataset.write_dataset(data.filter(...), folder, format='parquet')."
            ) from error
        return source
    if not isinstance(source, str | Path | list | tuple):
        raise OptionError(f"source={source!r} given; expected a path, a list of paths or a pyarrow.dataset.Dataset.")
    paths = [str(path) for path in source] if isinstance(source, list | tuple) else str(source)
    try:
        return dataset.dataset(paths, format="parquet", partitioning="hive")
    except (OSError, ValueError) as error:  # errors of pyarrow are both
        raise DataError(f"{source!r} cannot be read as Parquet ({str(error).partition(chr(10))[0]}).") from error


def arrow_datasets() -> Any:
    """The module `pyarrow.dataset`, which is an extra."""
    try:
        import pyarrow.dataset
    except ImportError:
        raise ImportError("Parquet and Arrow data need pyarrow: pip install 'wishflow[parquet]'.") from None
    return pyarrow.dataset


def _check_columns(schema: Any, wanted: list[str]) -> None:
    import pyarrow as pa

    for name in wanted:
        if name not in schema.names:
            raise DataError(f"there is no column {name!r}; expected one of {schema.names}.")
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise DataError(f"column {name!r} is of type {kind}; expected numbers: leave it out, or convert it.")


def _units_of(fragment: Any) -> list[Any]:
    """The row groups of a Parquet file; other files are one unit."""
    return list(fragment.split_by_row_group()) if hasattr(fragment, "split_by_row_group") else [fragment]


def _size_of(unit: Any) -> int:
    """The number of rows; `count_rows` of a row group is that of its file."""
    groups = getattr(unit, "row_groups", None)
    return unit.count_rows() if groups is None else sum(group.num_rows for group in groups)


def batches_of(unit: Any, columns: Sequence[str], schema: Any) -> Iterator[Any]:
    """The record batches of a unit in order, read ahead as little as possible: memory counts here."""
    options = {}
    if hasattr(unit, "split_by_row_group"):
        scan = arrow_datasets().ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False)
        options["fragment_scan_options"] = scan
    yield from unit.to_batches(
        schema=schema,
        columns=list(columns),
        batch_size=READ_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
        **options,
    )


def numbers_of(batch: Any, columns: Sequence[str]) -> Float[np.ndarray, "n C"]:
    """Columns of a record batch in float64; missing values are NaN."""
    found = np.empty((batch.num_rows, len(columns)))
    for i, name in enumerate(columns):
        found[:, i] = batch.column(name).to_numpy(zero_copy_only=False)
    return found


# --- one pass ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Moments:
    """Count, mean, sum of squared deviations and largest absolute value of each column."""

    n: float
    mean: Float[np.ndarray, " C"]
    squares: Float[np.ndarray, " C"]
    largest: Float[np.ndarray, " C"]

    @classmethod
    def of(cls, values: Float[np.ndarray, "n C"]) -> Moments:
        if not len(values):
            return cls(0.0, *np.zeros((3, values.shape[1])))
        mean = values.mean(axis=0)
        return cls(float(len(values)), mean, ((values - mean) ** 2).sum(axis=0), np.abs(values).max(axis=0))

    def joined(self, other: Moments) -> Moments:
        """Those of both sets of rows (Chan, Golub and LeVeque 1979)."""
        n = self.n + other.n
        if n == 0.0:
            return self
        step = other.mean - self.mean
        mean = self.mean + step * (other.n / n)
        squares = self.squares + other.squares + step**2 * (self.n * other.n / n)
        return Moments(n, mean, squares, np.maximum(self.largest, other.largest))

    def scaler(self) -> Scaler:
        """As `Scaler.of` all rows: a constant column is left at scale one."""
        sd = np.sqrt(self.squares / self.n)
        is_constant = sd <= 1e-10 * np.where(self.largest > 0.0, self.largest, 1.0)
        return Scaler(self.mean, np.where(is_constant, 1.0, sd))


@dataclasses.dataclass(frozen=True)
class Summary:
    """Statistics of all rows, a sample of them with their numbers, and a fingerprint of all rows in their order."""

    moments: Moments
    rows: Float[np.ndarray, "S C"]
    index: Int[np.ndarray, " S"]
    fingerprint: str


def summary_of(table: Table, seed: int, check: Callable[[np.ndarray], None]) -> Summary:
    """One pass over the rows, of which each process reads its own part; `check` sees all targets."""
    index = sampled(table.n_rows, seed)
    moments, sample = Moments.of(np.zeros((0, len(table.columns)))), np.zeros((len(index), len(table.columns)))
    digests = np.zeros((len(table.units), hashlib.sha256().digest_size), np.uint8)  # units of other processes are zero
    for unit in range(process_number(), len(table.units), n_processes()):
        at, digest = int(table.starts[unit]), hashlib.sha256()
        for block in table.blocks(unit):
            digest.update(np.ascontiguousarray(block).data)
            _check_finite(block, table.columns, at)
            check(block[:, table.n_inputs :])
            moments = moments.joined(Moments.of(block))
            first, last = np.searchsorted(index, [at, at + len(block)])
            sample[first:last] = block[index[first:last] - at]
            at += len(block)
        digests[unit] = np.frombuffer(digest.digest(), np.uint8)
    parts = gathered((np.array(moments.n), moments.mean, moments.squares, moments.largest, sample, digests))
    joined = Moments.of(np.zeros((0, len(table.columns))))
    for n, mean, squares, largest in zip(*parts[:4], strict=True):
        joined = joined.joined(Moments(float(n), mean, squares, largest))
    fingerprint = hashlib.sha256(parts[5].sum(axis=0, dtype=np.uint8)).hexdigest()
    return Summary(joined, parts[4].sum(axis=0), index, fingerprint)


def sampled(n_rows: int, seed: int) -> Int[np.ndarray, " S"]:
    """Numbers of a sample of rows, in order; few rows are all taken."""
    if n_rows <= SAMPLE_ROWS:
        return np.arange(n_rows)
    rng = np.random.default_rng(np.random.SeedSequence([seed, n_rows]))
    return np.sort(rng.choice(n_rows, SAMPLE_ROWS, replace=False, shuffle=False))


def _check_finite(block: np.ndarray, columns: Sequence[str], first: int) -> None:
    if np.isfinite(block).all():
        return
    row, column = np.argwhere(~np.isfinite(block))[0]
    raise DataError(
        f"row {first + row} has no finite number in column {columns[column]!r}; expected one everywhere: write the "
        "other rows to Parquet first (pyarrow.dataset.write_dataset(data.filter(...), folder)), or fill them in."
    )
