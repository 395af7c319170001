"""The works that are timed, as plain data: peers read this file with nothing but the standard library."""

from __future__ import annotations

import dataclasses

N_DATA = 7372
N_INDUCING = 100
FLOW_TIME = 1.0
LEARNING_RATE = 1e-3


@dataclasses.dataclass(frozen=True)
class Work:
    """One training step (or one forecast) with all its sizes.

    `rows` is the batch: rows of data, single transitions, windows, or the paths of a forecast. `dtype` is that of the
    big products: in the flows and series Kzz, its factor, the output GP and the densities are float64 for everybody.
    """

    name: str
    kind: str  # "svgp", "flow", "rollout", "transition" or "forecast"
    says: str
    dim: int
    rows: int
    dtype: str = "float32"
    n_inducing: int = N_INDUCING
    n_steps: int = 1
    n_samples: int = 1
    diffusion: str = "none"  # "none", "gp" or "wishart"
    rank: int = 0
    dof: int = 0
    columns: str = "shared"

    @property
    def n_posteriors(self) -> int:
        """How many q(v) the field holds: their quadratic forms are most of the arithmetic."""
        if self.diffusion == "gp":
            return self.dim
        return self.rank * (self.dof if self.columns == "independent" else 1)


def _flow(name: str, says: str, **options) -> Work:
    return Work(name, "flow", f"{says}, 20 Euler steps, batch 2000", dim=8, rows=2000, n_steps=20, **options)


def _series(name: str, kind: str, says: str, **options) -> Work:
    sizes = {"dim": 30, "diffusion": "wishart", "rank": 10, "dof": 10, "columns": "independent"}
    return Work(name, kind, f"auto-regressive Wishart, D = 30, ρ = ν = 10: {says}", **sizes, **options)


WISHART = {"diffusion": "wishart", "rank": 5, "dof": 5}

WORKS: tuple[Work, ...] = (
    Work("svgp32", "svgp", "SVGP step, D = 8, M = 100, batch 2000, float32", dim=8, rows=2000),
    Work("svgp64", "svgp", "SVGP step, D = 8, M = 100, batch 2000, float64", dim=8, rows=2000, dtype="float64"),
    _flow("diffgp", "diffGP flow step", diffusion="gp"),
    _flow("wishart_shared", "diffWGP flow step, ρ = ν = 5, shared columns", columns="shared", **WISHART),
    _flow("wishart_independent", "diffWGP flow step, ρ = ν = 5, independent columns", columns="independent", **WISHART),
    _series(
        "rollout", "rollout", "`rollout` step, 64 windows × 24 steps × 2 samples", rows=64, n_steps=24, n_samples=2
    ),
    _series("transition", "transition", "`transition` step, batch 1024", rows=1024),
    # A forecast is made in float64, as all prediction is.
    _series("forecast", "forecast", "48-step forecast of 1000 paths", rows=1000, n_steps=48, dtype="float64"),
)


def find_work(name: str) -> Work:
    """The work of that name."""
    by_name = {work.name: work for work in WORKS}
    if name not in by_name:
        raise ValueError(f"no work is called {name!r}; choose among {', '.join(by_name)}.")
    return by_name[name]
