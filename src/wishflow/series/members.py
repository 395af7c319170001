"""Members of a forecaster: models of the same series that differ by their start, and by their kind, and are mixed.

Lags, calendar, transform and sizes are chosen once and are the same for all members. The innovations of every second
member are Student-t where those of the forecaster are Gaussian and held-back rows weigh the members. Behind an
exponential, the inverse of a logarithmic transform, a Student-t has no mean, so there all members are of one kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from .running.mixture import member_seed
from .specs import DynamicsSpec


@dataclasses.dataclass(frozen=True)
class Member:
    """A model of a mixture and what it is."""

    spec: DynamicsSpec
    model: Any

    @property
    def name(self) -> str:
        """Its kind in words."""
        return f"{self.spec.drift} drift, {type(self.spec.diffusion).__name__} noise, {self.spec.innovations}"


def plans_of(spec: DynamicsSpec, seed: int, n_members: int, is_weighed: bool) -> list[tuple[DynamicsSpec, int]]:
    """Spec and seed of each member; the first has those of the forecaster.

    Parameters
    ----------
    spec : DynamicsSpec
        The model of the forecaster.
    seed : int
        The seed of the forecaster.
    n_members : int
        How many members there are.
    is_weighed : bool
        Whether members of another kind are taken: held-back rows weigh them, and means of Student-t laws exist.

    Returns
    -------
    list of (DynamicsSpec, int)
        One pair for each member.
    """
    heavy = dataclasses.replace(spec, innovations="student_t") if is_weighed else spec
    return [(heavy if k % 2 else spec, member_seed(seed, k)) for k in range(n_members)]


def joined(tables: Sequence[pd.DataFrame | None]) -> pd.DataFrame | None:
    """Tables of the members, one below the other; several have a column "member"."""
    found = [table for table in tables if table is not None]
    if len(tables) == 1 or not found:
        return found[0] if found else None
    numbered = [table.assign(member=k) for k, table in enumerate(tables) if table is not None]
    return pd.concat(numbered, ignore_index=True)


def status_of(trained: Sequence[Any], weights: Float[np.ndarray, " K"]) -> str:
    """How the training of each member ended, and its weight."""
    if len(trained) == 1:
        return trained[0].status
    said = [f"{k} (weight {w:.2f}): {one.status}" for k, (one, w) in enumerate(zip(trained, weights, strict=True))]
    return f"{len(trained)} members; " + "; ".join(said)
