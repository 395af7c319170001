"""What a part of the stress run has found so far, in one result file; a run goes on where the one before it ended."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from wishflow.files.json import read_json, write_json_atomic

from ..provenance import provenance

SAVE_SECONDS = 20.0
# Characters of the description of a problem.
MOST_CHARACTERS = 400


@dataclasses.dataclass
class Found:
    """What one task found: outcomes of its cases, and what must not be, each in words."""

    number: int
    outcomes: dict[str, int] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


class Ledger:
    """The results of one part: how many tasks are done (the first ones), and the sums of what they found."""

    def __init__(self, path: Path, part: str) -> None:
        self.path, self.part = path, part
        found = (read_json(path) or {}).get(part, {})
        self.n_tasks: int = found.get("n_tasks", 0)
        self.outcomes: dict[str, int] = found.get("outcomes", {})
        self.problems: list[dict[str, Any]] = found.get("problems", [])
        self.seconds: float = found.get("seconds", 0.0)
        self.longest: float = found.get("longest", 0.0)
        self.commits: list[str] = found.get("commits", [])
        self.provenance: dict[str, Any] = found.get("provenance", {})
        self._saved = time.monotonic()

    @property
    def n_cases(self) -> int:
        return sum(self.outcomes.values())

    def add(self, found: Found) -> None:
        """Count what a task found; the task is one that was not done before."""
        self.n_tasks = max(self.n_tasks, found.number + 1)
        for outcome, n in found.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + n
        self.seconds += found.seconds
        self.longest = max(self.longest, found.seconds)
        self._describe(found)
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()

    def replace(self, found: Found) -> None:
        """A task that had problems was done again: it has the outcomes and the problems that it has now."""
        before = [one for one in self.problems if one["number"] == found.number]
        self.problems = [one for one in self.problems if one["number"] != found.number]
        for outcome in before[0].get("outcomes", {}) if before else {}:
            self.outcomes[outcome] -= before[0]["outcomes"][outcome]
        for outcome, n in (found.outcomes if before and "outcomes" in before[0] else {}).items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + n
        self.outcomes = {outcome: n for outcome, n in self.outcomes.items() if n}
        self._describe(found)

    def _describe(self, found: Found) -> None:
        one = {"number": found.number, "outcomes": dict(found.outcomes)}
        self.problems += [{**one, "what": what[:MOST_CHARACTERS]} for what in found.problems]

    def save(self) -> None:
        self.provenance = provenance()
        commit = str(self.provenance["commit"])
        self.commits = [*(one for one in self.commits if one != commit), commit]
        names = ("n_tasks", "outcomes", "problems", "seconds", "longest", "commits", "provenance")
        whole = read_json(self.path) or {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(self.path, {**whole, self.part: {name: getattr(self, name) for name in names}})
        self._saved = time.monotonic()
