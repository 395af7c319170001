"""Grids of the plane, and times over which the moves of a field can be seen on them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def plane_grid(rows: Float[np.ndarray, "N 2"], n_side: int) -> tuple[Float[np.ndarray, "G 2"], Float[np.ndarray, " 2"]]:
    """n_side² points over the middle 96 % of the rows, and the distances between neighbours along each axis."""
    low, high = np.nanquantile(rows, [0.02, 0.98], axis=0)
    lines = [np.linspace(low[i], high[i], n_side) for i in (0, 1)]
    points = np.stack(np.meshgrid(*lines), axis=-1).reshape(-1, 2)
    return points, np.maximum((high - low) / max(n_side - 1, 1), np.finfo(float).tiny)


def visible_times(
    drift: Float[np.ndarray, "N 2"], rates: Float[np.ndarray, "N 2 2"], spacing: Float[np.ndarray, " 2"]
) -> tuple[float, float]:
    """The times over which the drift, and the noise, move by at most half of the distance of neighbours.

    Over short times noise moves much further than drift, so one time for both would hide one of them. 1 where nothing
    moves.
    """
    speed = np.linalg.norm(drift / spacing, axis=1).max()
    spread = np.linalg.eigvalsh(rates / (spacing[:, None] * spacing)).max()
    return float(0.5 / speed) if speed > 0.0 else 1.0, float(0.25 / spread) if spread > 0.0 else 1.0
