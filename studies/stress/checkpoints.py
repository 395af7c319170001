"""Mutated checkpoints: damage is noticed and the fit ends as without it; a state of a stranger is no more than a start.

With a right checksum the state may be any: the fit ends with finite numbers, or with one of our errors.
"""

from __future__ import annotations

import contextlib
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import wishflow as wf
from wishflow.errors import WishflowError

from . import fits, limits
from .disks import StopAfter, Stopped
from .ledger import Found
from .mutations import generator, mutated_model

KINDS = ("regressor", "forecaster")
STEPS, N_BEFORE = 400, 2
ROOM_BYTES = 2**31


class Task:
    """Checkpoints by their numbers: the kinds of fits in turn, every second round with a right checksum."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole, self.kept = {}, {}
        for kind in KINDS:
            self.whole[kind] = fits.learnt(fits.fitted(kind, None, max_iter=STEPS))
            with contextlib.suppress(Stopped):
                fits.fitted(kind, folder / kind, max_iter=STEPS, callbacks=[StopAfter(N_BEFORE)])
            self.kept[kind] = max((folder / kind).glob("*/*.ckpt"))
        limits.watch_for_code()

    def __call__(self, number: int) -> Found:
        found, kind = Found(number), KINDS[number % len(KINDS)]
        is_right = number // len(KINDS) % 2 == 0
        content = self.kept[kind].read_bytes()
        place = self.folder / "mutated"
        shutil.rmtree(place, ignore_errors=True)
        path = place / self.kept[kind].parent.name / self.kept[kind].name
        path.parent.mkdir(parents=True)
        path.write_bytes(mutated_model(content, content, generator(number), is_right))
        outcome = self._outcome(found, kind, place, is_right)
        if events := [event for event in limits.seen_code() if event in limits.PROCESSES]:
            found.problems.append(f"{kind}: {', '.join(events)}")
        outcome = "problem" if found.problems else outcome
        found.count(f"{'right' if is_right else 'wrong'} checksum: {outcome}")
        return found

    def _outcome(self, found: Found, kind: str, place: Path, is_right: bool) -> str:
        try:
            with limits.room_of(ROOM_BYTES), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                models = fits.fitted(kind, place, max_iter=STEPS)
                numbers = np.concatenate([np.ravel(_numbers(model)) for model in models])
        except Exception as error:
            if limits.is_memory_error(error) or not isinstance(error, WishflowError) or not is_right:
                found.problems.append(f"{kind}: {limits.described(error)}")
            return "refused"
        if not np.isfinite(numbers).all():
            found.problems.append(f"{kind}: numbers that are not finite")
        if fits.are_equal(self.whole[kind], fits.learnt(models)):
            return "equal"
        if not is_right:
            found.problems.append(f"{kind}: a damaged checkpoint was used")
        return "another end"


def _numbers(model: Any) -> np.ndarray:
    if isinstance(model, wf.WishartForecaster):
        return np.asarray(model.forecast(2, n_draws=4).samples)
    return np.asarray(model.predict(fits.rows()[0]))
