"""Mutated result files of the studies: a file is one that a finished cell wrote, or none; no error, and no code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from wishflow.files.json import read_json

from .. import paths
from ..beijing import results as beijing
from ..uci import results as uci
from ..uci.suite import Cell
from . import limits
from .ledger import Found
from .mutations import generator, mutated_text

ROOM_BYTES = 2**28
CELL = Cell("boston", "sgp", "fast")


class Task:
    """Files by their numbers, a table of regressions and cells of the forecasts in turn."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        source = uci.cell_path(paths.RESULTS / "reproduction", CELL)
        self.contents = {"uci": source.read_bytes()}
        for name in ("linear", "traces-diagonal", "joint-wishart"):
            self.contents[name] = (paths.RESULTS / "beijing" / f"{name}.json").read_bytes()
        self.settings: dict[str, Any] = read_json(source)["settings"]
        limits.watch_for_code()

    def __call__(self, number: int) -> Found:
        found, kind = Found(number), list(self.contents)[number % len(self.contents)]
        content = mutated_text(self.contents[kind], self.contents["uci"], generator(number))
        outcome = "problem"
        try:
            with limits.room_of(ROOM_BYTES):
                outcome = self._read(kind, content)
        except Exception as error:
            found.problems.append(f"{kind}: {limits.described(error)}")
        if events := limits.seen_code():
            found.problems.append(f"{kind}: {', '.join(events)}")
        found.count("problem" if found.problems else outcome)
        return found

    def _read(self, kind: str, content: bytes) -> str:
        if kind != "uci":
            path = self.folder / "result.json"
            path.write_bytes(content)
            return "left out" if beijing.read_result(path) is None else "taken"
        path = uci.cell_path(self.folder, CELL)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        result = uci.read_result(path)
        uci.is_finished(self.folder, CELL, self.settings)
        if result is None:
            return "left out"
        for score in uci.SCORES:
            np.asarray(uci.split_scores(result, score), float)
        return "taken"
