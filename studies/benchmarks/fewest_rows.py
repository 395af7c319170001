"""Series of 20 and 40 rows: the linear model that the evidence chooses, compared with the whole model.

    python -m studies.benchmarks.fewest_rows        # writes studies/results/fewest_rows.json

Below 50 rows no rows can be held back to decide what is kept of training. `default` is `WishartForecaster()`, which
keeps the linear model there. `whole` is the model with GP drift and Wishart noise, one lag and no other choice
(`validation_fraction=0`), which earlier versions took. The number is the mean CRPS of the next four rows from three
origins, in standard deviations of the rows that were fitted. Simulated kinds have two draws of each length. The others
are the last rows of sets of `short_series` (no test parts).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.files.json import write_json_atomic
from wishflow.metrics import crps_samples

from ..paths import RESULTS
from ..provenance import provenance
from .forecast_sets import SEED
from .short_problems import lotka_volterra
from .short_series import frames
from .unit_roots import regressions, walks

ROWS = (20, 40)
N_STEPS, ORIGINS, N_DRAWS = 4, (0, 4, 8), 400
N_LATER = max(ORIGINS) + N_STEPS
N_SERIES = 2

WAYS: dict[str, dict[str, Any]] = {"default": {}, "whole": {"validation_fraction": 0}}


def months(rng: np.random.Generator, n: int) -> np.ndarray:
    """Two auto-regressions with a cycle of twelve rows."""
    return regressions(rng, n, 2, 0.6) + 2.0 * np.cos(2.0 * np.pi * np.arange(n) / 12.0)[:, None]


def counts(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.poisson(np.exp(0.5 * regressions(rng, n, 1, 0.8))).astype(float)


# How rows are drawn, and the frequency of their stamps.
KINDS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], str]] = {
    "AR(1) of weight .8, 2 series": (lambda rng, n: regressions(rng, n, 2, 0.8), "D"),
    "random walks, 3 series": (lambda rng, n: walks(rng, n, 3), "B"),
    "independent rows, 2 series": (lambda rng, n: rng.normal(size=(n, 2)), "D"),
    "growth, 2 series": (lambda rng, n: 50.0 * np.exp(np.cumsum(0.03 + 0.02 * rng.normal(size=(n, 2)), axis=0)), "YS"),
    "cycle of a year, 2 series": (months, "MS"),
    "counts, 1 series": (counts, "D"),
    "predators and prey, 2 series": (lambda rng, n: lotka_volterra(rng, n), "D"),
}


def simulated(kind: str, n: int) -> list[pd.DataFrame]:
    draw, freq = KINDS[kind]
    found = []
    for k in range(N_SERIES):
        rows = draw(np.random.default_rng([SEED, list(KINDS).index(kind), n, k]), n + N_LATER)
        index = pd.date_range("2010-01-01", periods=len(rows), freq=freq)
        found.append(pd.DataFrame(rows, index, [f"s{d}" for d in range(rows.shape[1])]))
    return found


def score(frame: pd.DataFrame, n: int, options: dict[str, Any]) -> float:
    """The mean CRPS of the rows after the first n."""
    train, seen, found = frame.iloc[:n], n, []
    model = wf.WishartForecaster(**options).fit(train)
    for origin in (n + step for step in ORIGINS):
        if origin > seen:
            model.update(frame.iloc[seen:origin])
            seen = origin
        draws = model.forecast(N_STEPS, n_draws=N_DRAWS).samples.values
        found.append(crps_samples(frame.iloc[origin : origin + N_STEPS].to_numpy(), draws) / train.std().to_numpy())
    return float(np.nanmean(found))


def compared(parts: Sequence[pd.DataFrame], n: int) -> dict[str, Any]:
    crps = {label: float(np.mean([score(part, n, options) for part in parts])) for label, options in WAYS.items()}
    change = 100.0 * (crps["default"] / crps["whole"] - 1.0)
    return {"crps": crps, "change": change, "n_series": len(parts)}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "fewest_rows.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    longer = {name: frame for name, frame in frames().items() if name not in ("growth", "cycle")}
    results: dict[str, Any] = {}
    for name in (*KINDS, *longer):
        for n in ROWS:
            parts = simulated(name, n) if name in KINDS else [longer[name].iloc[-n - N_LATER :]]
            found = results.setdefault(name, {})[str(n)] = compared(parts, n)
            print(f"{name:<30} {n} rows: CRPS {found['change']:+.1f} % of that of the whole model", flush=True)
    write_json_atomic(options.output, {"series": results, "provenance": provenance()})


if __name__ == "__main__":
    main()
