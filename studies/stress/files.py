"""Mutated model files: each is loaded and, where it loads, used; a finite result or one of our errors.

No code of the file runs, and memory stays within what a small file justifies.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

import wishflow as wf
from wishflow.errors import WishflowError

from . import limits, models
from .ledger import Found
from .mutations import generator, mutated_model

# Room for a file of some ten kilobytes to be read and built, and for its model to be compiled and used.
LOAD_BYTES, USE_BYTES, MOST_RESIDENT = 256 * 2**20, 2**31, 400 * 2**20
MOST_MAPS = 20_000
# Files after which maps are counted, which takes as long as to refuse some.
COUNT_EVERY = 100


class Task:
    """Files by their numbers: the kinds in turn, every second round with a right checksum."""

    def __init__(self, folder: Path, kinds: tuple[str, ...] = models.KINDS) -> None:
        self.kinds = kinds
        self.contents = models.made(folder.parent / "models", kinds)
        self.path = folder / "mutated"
        for kind, content in self.contents.items():  # threads start and programs are compiled before limits hold
            self.path.write_bytes(content)
            models.used(wf.load(self.path), kind)
        limits.watch_for_code()

    def __call__(self, number: int) -> Found:
        found, kind = Found(number), self.kinds[number % len(self.kinds)]
        before = limits.resident_bytes()
        outcome = self._outcome(found, kind, self.content(number))
        if (grown := limits.resident_bytes() - before) > MOST_RESIDENT:
            found.problems.append(f"{kind}: {grown / 2**20:.0f} MiB more memory")
        is_right = self.has_right_checksum(number)
        found.count(f"{'right' if is_right else 'wrong'} checksum: {'problem' if found.problems else outcome}")
        if number % COUNT_EVERY == 0 and limits.n_maps() > MOST_MAPS:
            jax.clear_caches()
        return found

    def has_right_checksum(self, number: int) -> bool:
        return number // len(self.kinds) % 2 == 0

    def content(self, number: int) -> bytes:
        """The file of a number."""
        rng = generator(number)
        kind, other = self.kinds[number % len(self.kinds)], self.kinds[rng.integers(len(self.kinds))]
        return mutated_model(self.contents[kind], self.contents[other], rng, self.has_right_checksum(number))

    def _outcome(self, found: Found, kind: str, content: bytes) -> str:
        self.path.write_bytes(content)
        step = "load"
        limits.seen_code()
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                with limits.room_of(LOAD_BYTES):
                    model: Any = wf.load(self.path)
                self._check_code(found, kind)
                step = "use"
                with limits.room_of(USE_BYTES):
                    numbers = np.asarray(models.used(model, kind), float)
        except Exception as error:
            if step == "load":  # compiled programs are read from their cache in use
                self._check_code(found, kind)
            if limits.is_memory_error(error):
                found.problems.append(f"{kind}, {step}: memory: {limits.described(error)}")
            elif not isinstance(error, WishflowError):
                found.problems.append(f"{kind}, {step}: {limits.described(error)}")
            return "refused by load" if step == "load" else "refused in use"
        if not np.isfinite(numbers).all():
            found.problems.append(f"{kind}: numbers that are not finite")
        return "used"

    def _check_code(self, found: Found, kind: str) -> None:
        if events := limits.seen_code():
            found.problems.append(f"{kind}: {', '.join(events)}")
