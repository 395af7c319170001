"""Data and starting values of each work in NumPy, so that every library computes the same number from the same arrays.

q is not at its prior and L is not the identity: a library that left a term out would give another bound.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from .works import N_DATA, Work

N_BATCHES = 3
NOISE_VARIANCE = 0.1
# Relative to the kernel's variance. Large enough for a factorisation in float32.
JITTER = 1e-6


@dataclasses.dataclass(frozen=True)
class GPStart:
    """A sparse GP: RBF kernel with one lengthscale for each input, Z, and q(v_p) = N(mean_p, sqrt_p sqrt_pᵀ)."""

    variance: float
    lengthscale: np.ndarray
    Z: np.ndarray
    mean: np.ndarray
    sqrt: np.ndarray

    @property
    def jitter(self) -> float:
        return JITTER * self.variance


@dataclasses.dataclass(frozen=True)
class FieldStart:
    """A field on the basis of `gp`, whose q are those of the diffusion; what a work does not use has no entries."""

    gp: GPStart
    drift_mean: np.ndarray  # (D, M)
    scale: np.ndarray  # L, (D, ρ); flows normalise its rows, series do not
    linear: np.ndarray  # (D, D), series only
    constant: np.ndarray  # (D,), series only
    amplitude: np.ndarray  # (D,), of the GP drift of a series
    white: np.ndarray  # Λ, (D,), series only


def _gp_start(seed: int, dim: int, n_inducing: int, n_outputs: int, variance: float, lengthscale: float) -> GPStart:
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n_inducing, dim))
    mean = 0.3 * rng.standard_normal((n_outputs, n_inducing))
    below = 0.02 * np.tril(rng.standard_normal((n_outputs, n_inducing, n_inducing)), -1)
    return GPStart(variance, np.full(dim, lengthscale), Z, mean, below + 0.7 * np.eye(n_inducing))


def output_start(work: Work) -> GPStart:
    """The GP that predicts y: the whole of an SVGP, the last layer of a flow."""
    return _gp_start(1, work.dim, work.n_inducing, 1, 1.0, 2.0)


def field_start(work: Work) -> FieldStart:
    """Drift and diffusion of a flow or of a series."""
    rng, D = np.random.default_rng(2), work.dim
    is_flow = work.kind == "flow"
    # k(x, x) = 1/ν for a series, so that E[Σ] = L Lᵀ; a flow starts near the identity.
    variance, lengthscale = (0.04, 2.0) if is_flow else (1.0 / work.dof, 2.0 * D**0.5)
    return FieldStart(
        _gp_start(3, D, work.n_inducing, work.n_posteriors, variance, lengthscale),
        drift_mean=0.3 * rng.standard_normal((D, work.n_inducing)),
        scale=0.3 * rng.standard_normal((D, work.rank)),
        linear=-0.1 * np.eye(D) + 0.01 * rng.standard_normal((D, D)),
        constant=0.1 * rng.standard_normal(D),
        amplitude=np.full(D, 0.1 / variance**0.5),
        white=np.linspace(0.2, 0.4, D),
    )


def batches(work: Work) -> list[dict[str, np.ndarray]]:
    """Batches gathered beforehand, taken in turn: picking rows is no part of the time."""
    rng = np.random.default_rng(4)
    shape = (work.rows, work.n_steps, work.dim)
    makers = {
        "svgp": lambda: _regression(rng, work),
        "flow": lambda: _regression(rng, work),
        "rollout": lambda: {"start": rng.standard_normal(shape[::2]), "y": rng.standard_normal(shape)},
        "transition": lambda: {name: rng.standard_normal(shape[::2]) for name in ("X", "increment")},
        "forecast": lambda: {"start": rng.standard_normal(shape[::2])},
    }
    return [makers[work.kind]() for _ in range(N_BATCHES)]


def _regression(rng: np.random.Generator, work: Work) -> dict[str, np.ndarray]:
    X = rng.standard_normal((work.rows, work.dim))
    y = np.sin(X @ np.linspace(-1.0, 1.0, work.dim)) + 0.1 * rng.standard_normal(work.rows)
    return {"X": X, "y": y[:, None]}


def n_data(work: Work) -> int:
    """How many rows, transitions or windows a batch stands for."""
    return N_DATA if work.kind in ("svgp", "flow") else N_BATCHES * work.rows


# --- noise for the comparison of values ----------------------------------------------------------


def write_noise(path: Path, arrays: list[np.ndarray]) -> None:
    """Standard normals in the order of their use, for libraries that are to follow the same paths."""
    np.savez(path, **{f"{i:04d}": array for i, array in enumerate(arrays)})


def read_noise(path: Path) -> list[np.ndarray]:
    with np.load(path) as stored:
        return [stored[name] for name in sorted(stored.files)]
