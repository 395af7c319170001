"""How often central intervals cover what comes, horizon by horizon, on data simulated from a model of ours.

    python -m studies.benchmarks.coverage            # writes studies/results/coverage.json

Three series with correlated noise that depends on the state. A new model of the same form is fitted to the first part;
the second part is forecast 1 to 12 steps ahead, from one origin after the other. Standard errors are those of means
over origins.

J has a wide law here, so single steps have heavy tails. The bound averages densities over draws of J; with few of them
it prefers a narrow law, and the 50 % intervals of the first steps are too wide.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.files.json import write_json_atomic
from wishflow.numerics.devices import computing
from wishflow.series import autoregressive as dynamics
from wishflow.series.layout import Layout
from wishflow.series.linear import LinearDrift
from wishflow.series.specs import DynamicsSpec
from wishflow.wishart import Field
from wishflow.wishart.specs import Wishart

from ..paths import RESULTS
from ..provenance import provenance

DIM, N_TRAIN, N_TEST = 3, 4000, 8000
HORIZON = 12
LEVELS = (0.5, 0.8, 0.95)
BANDS = {"1": slice(0, 1), "2–6": slice(1, 6), "7–12": slice(6, 12)}
OPTIONS = {"rank": 2, "white_noise": "state", "n_inducing": 30, "validation_fraction": 0}
WAYS: dict[str, dict[str, int]] = {
    **{f"{n} draws of J": {"n_train_samples": n} for n in (8, 16)},
    "32 draws of J, as in the preset": {},
    "64 draws of J": {"n_train_samples": 64},
}
N_DRAWS = 1000
# With the form of q that forecasters have by name.
DIFFUSION = Wishart(rank=2, unit_rows=False, posterior="structured")


def truth(seed: int) -> Field:
    """A field of ours with all parameters moved at random, but for a drift that pulls every series back to zero."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(DIM, DIM))
    start = dynamics.Start(*(jnp.asarray(x) for x in (np.zeros((DIM, DIM)), np.zeros(DIM), root @ root.T)))
    spec = DynamicsSpec(diffusion=DIFFUSION, white_noise="state")
    model = dynamics.build(spec, Layout(DIM, 1, 0), start, rng.normal(size=(6, DIM)), jax.random.key(seed))

    def moved(path, leaf):
        is_jitter = getattr(path[-1], "name", "") == "jitter"
        return leaf if is_jitter else leaf + 0.5 * rng.normal(size=leaf.shape)

    field = jax.tree_util.tree_map_with_path(moved, model.field)
    return eqx.tree_at(lambda f: f.linear, field, LinearDrift.of(-0.15 * jnp.eye(DIM), jnp.zeros(DIM)))


def simulated(seed: int) -> pd.DataFrame:
    """Rows of one path, a unit of time apart."""
    n = N_TRAIN + N_TEST
    with computing():
        start, steps = jnp.zeros((1, DIM)), (jnp.ones(n), jnp.zeros((n, 0)))
        _, before = dynamics.simulate(jax.random.key(seed), truth(seed).prepare(), start, *steps)
        return pd.DataFrame(np.asarray(before)[:, 0])


def covered(model: wf.WishartForecaster, y: pd.DataFrame) -> dict[float, np.ndarray]:
    """Whether each value after the training part lies in its interval, by level: (origin, horizon, variable)."""
    found: dict[float, list[np.ndarray]] = {level: [] for level in LEVELS}
    for origin in range(N_TRAIN, len(y) - HORIZON + 1, HORIZON):
        came, samples = y.iloc[origin : origin + HORIZON], model.forecast(HORIZON, n_draws=N_DRAWS).samples.values
        for level in LEVELS:
            low, high = np.quantile(samples, [0.5 - level / 2, 0.5 + level / 2], axis=0)
            found[level].append((low <= came.to_numpy()) & (came.to_numpy() <= high))
        model.update(came)
    return {level: np.stack(cells) for level, cells in found.items()}


def summary(cells: np.ndarray) -> dict[str, Any]:
    """Shares of cells (origin, horizon, variable) with their standard errors: by horizon, by band, and in all."""
    by_horizon = cells.mean(axis=2)
    parts = {"all": slice(None), **BANDS}
    bands = {name: by_horizon[:, part].mean(axis=1) for name, part in parts.items()}
    n_root = np.sqrt(len(cells))
    return {
        "by_horizon": by_horizon.mean(axis=0).tolist(),
        "standard_errors": (by_horizon.std(axis=0, ddof=1) / n_root).tolist(),
        "bands": {name: [float(x.mean()), float(x.std(ddof=1) / n_root)] for name, x in bands.items()},
    }


def measure(seed: int, way: str) -> dict[str, Any]:
    """One truth, one fit, all levels."""
    y = simulated(seed)
    started = time.perf_counter()
    model = wf.WishartForecaster(**OPTIONS, **WAYS[way]).fit(y.iloc[:N_TRAIN])
    seconds = time.perf_counter() - started
    levels = {f"{100 * level:g}": summary(cells) for level, cells in covered(model, y).items()}
    return {"levels": levels, "n_origins": N_TEST // HORIZON, "fit_seconds": seconds}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "coverage.json")
    parser.add_argument("--seeds", type=int, default=3, help="how many truths, each with a fit of its own")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    made = provenance()  # now: what happens to the code while this runs does not matter
    found: dict[str, dict[str, dict]] = {way: {} for way in WAYS}
    for seed, way in itertools.product(range(options.seeds), WAYS):
        found[way][str(seed)] = result = measure(seed, way)
        shown = {
            level: [round(100 * x, 1) for x, _ in part["bands"].values()] for level, part in result["levels"].items()
        }
        print(seed, way, shown, flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(options.output, {"ways": found, "provenance": made})


if __name__ == "__main__":
    main()
