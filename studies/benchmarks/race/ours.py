"""`FlowRegressor`, asked for more and more iterations; or with the paper's preset, stopped when the time is over.

    python -m studies.benchmarks.race.ours SPLIT.npz TARGET MINUTES fast|paper

A fit's schedule depends on its length, so each length is a fit of its own, from nothing, its compilation included.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax

import wishflow as wf
from wishflow.callbacks import Callback, ChunkEvent

from .data import Split, score

LENGTHS = (250, 500, 1000, 2000, 4000, 6000)
N_PATHS = 100


class Deadline(Callback):
    """Stops a fit at the end of the first chunk after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_chunk(self, event: ChunkEvent) -> bool:
        return event.seconds > self.seconds


def attempt(split: Split, label: str, **options: Any) -> dict[str, Any]:
    """A fit: its seconds and the score it reaches."""
    jax.clear_caches()  # programs do not depend on the length of a fit: the next one would find them
    model = wf.FlowRegressor(n_predict_samples=N_PATHS, random_state=0, **options)
    started = time.perf_counter()
    model.fit(split.X, split.y)
    seconds = time.perf_counter() - started
    reached = score(split, *model.predict_components(split.X_test))
    return {"label": label, "seconds": seconds, "score": reached, "n_iter": int(model.n_iter_), "status": model.status_}


def main() -> None:
    path, target, minutes, preset = sys.argv[1:]
    split, limit = Split.load(Path(path)), 60 * float(minutes)
    if preset == "paper":
        found = attempt(split, "paper preset", preset="paper", callbacks=[Deadline(limit)])
        print(json.dumps(found), flush=True)
        return
    left = limit
    for length in LENGTHS:
        found = attempt(split, f"max_iter={length}", max_iter=length)
        print(json.dumps(found), flush=True)
        left -= found["seconds"]
        if found["score"] >= float(target) or left < 0.0:
            return


if __name__ == "__main__":
    main()
