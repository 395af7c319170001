"""Rows per second and resident memory of `fit_dataset`, beside `fit` to rows in memory.

    python -m studies.benchmarks.streaming                 # writes studies/results/streaming.json
    python -m studies.benchmarks.streaming --rows 200000   # a trial, in .bench/trials

Parquet of ten million rows is made first (`.bench/streaming`, 0.8 GB). One process then goes once through all of it.
Others fit a part of the rows in memory, by the same steps, before it and after it. The first chunk of steps, with the
compilation, is not counted. A last process reads the batches without training. The highest resident memory is that of a
whole process, statistics and compilation included.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import wishflow as wf
from wishflow.callbacks import Callback, ChunkEvent
from wishflow.files.json import write_json_atomic
from wishflow.regression.presets import fast_preset

from ..paths import ROOT, output
from ..provenance import provenance

N_ROWS, N_INPUTS, ROWS_PER_FILE, ROWS_PER_GROUP = 10_000_000, 8, 1_000_000, 100_000
BATCH, N_INDUCING = 4000, 50
# Rows and steps of the fits in memory: more rows would take longer to shuffle, chunk by chunk.
MEMORY_ROWS, MEMORY_STEPS = 200_000, 600


class Clock(Callback):
    """Time of the clock and of processors at the end of each chunk of steps."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, float, float]] = []

    def on_chunk(self, event: ChunkEvent) -> bool:
        self.marks.append((event.step, time.perf_counter(), time.process_time()))
        return False

    def rates(self) -> dict[str, float]:
        """Rows for each second after the first chunk."""
        (first, wall, cpu), (last, wall_end, cpu_end) = self.marks[0], self.marks[-1]
        n_rows = (last - first) * BATCH
        return {"rows_per_second": n_rows / (wall_end - wall), "rows_per_cpu_second": n_rows / (cpu_end - cpu)}


def simulated(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n_rows, N_INPUTS))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n_rows)


def make_files(folder: Path, n_rows: int) -> None:
    """Parquet files, unless they are there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    for i, start in enumerate(range(0, n_rows, ROWS_PER_FILE)):
        path = folder / f"{i:04d}.parquet"
        if not path.exists():
            X, y = simulated(min(ROWS_PER_FILE, n_rows - start), i)
            columns = {f"x{j}": X[:, j] for j in range(N_INPUTS)} | {"y": y}
            pq.write_table(pa.table(columns), path, row_group_size=ROWS_PER_GROUP)


def fitted(kind: str, folder: Path, n_rows: int) -> dict[str, Any]:
    """One fit in this process: from files, once through all rows, or of rows in memory."""
    clock = Clock()
    n_iter = n_rows // BATCH if kind == "files" else MEMORY_STEPS
    preset = dataclasses.replace(fast_preset(n_rows, N_INPUTS), collapsed=False, batch_counts_paths=False)
    model = wf.SparseGPRegressor(
        N_INDUCING, preset=preset, max_iter=n_iter, batch_size=BATCH, callbacks=clock, calibrate=None
    )
    started = time.perf_counter()
    if kind == "files":
        model.fit_dataset(folder, target="y")
    else:
        model.fit(*simulated(min(MEMORY_ROWS, n_rows), 0))
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30
    X, y = simulated(2000, 10**6)
    return {
        **clock.rates(),
        "steps": model.n_iter_,
        "seconds": seconds,
        "peak_gib": peak,
        "rmse": float(np.sqrt(np.mean((_predicted(model, X) - y) ** 2))),
    }


def read(folder: Path, n_rows: int) -> dict[str, Any]:
    """One pass over the shuffled batches in this process, without training; one thread reads."""
    from wishflow.numerics.devices import computing
    from wishflow.numerics.scaling import Scaler
    from wishflow.regression.streams import STEPS_PER_CHUNK, RowStream, Scales
    from wishflow.regression.tables import Table

    scales = Scales(Scaler.identity(N_INPUTS), Scaler.identity(1), np.zeros((N_INPUTS, 0)))
    stream = RowStream(Table.open(folder, ["y"], None), scales, BATCH, 8, 0, np.zeros(0, int), "")
    wall, cpu = time.perf_counter(), time.process_time()
    with computing():
        for first in range(0, n_rows // BATCH, STEPS_PER_CHUNK):
            stream.chunk(first)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"rows_per_second": n_rows / wall, "rows_per_cpu_second": n_rows / cpu}


def _predicted(model: Any, X: np.ndarray) -> np.ndarray:
    import pandas as pd

    named = hasattr(model, "feature_names_in_")
    return model.predict(pd.DataFrame(X, columns=model.feature_names_in_) if named else X)


def measured(kind: str, folder: Path, n_rows: int) -> dict[str, Any]:
    """The same in a process of its own."""
    code = f"""
import json
from pathlib import Path
from studies.benchmarks.streaming import fitted, read
folder, n_rows = Path({str(folder)!r}), {n_rows}
print(json.dumps(read(folder, n_rows) if {kind!r} == "read" else fitted({kind!r}, folder, n_rows)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench" / "streaming")
    parser.add_argument("--output", type=Path, default=output("streaming.json"))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    folder = options.folder / str(options.rows)
    make_files(folder, options.rows)
    before = measured("memory", folder, options.rows)
    files = measured("files", folder, options.rows)
    after = measured("memory", folder, options.rows)
    found = {
        "rows": options.rows,
        "inputs": N_INPUTS,
        "batch": BATCH,
        "inducing": N_INDUCING,
        "files": files,
        "memory": [before, after],
        "read": measured("read", folder, options.rows),
        "provenance": provenance(),
    }
    is_trial = options.rows != N_ROWS and options.output == output("streaming.json")
    path = output("streaming.json", is_trial=True) if is_trial else options.output
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, found)
    print(json.dumps({name: found[name] for name in ("files", "memory", "read")}, indent=2))


if __name__ == "__main__":
    main()
