"""Series of 600 to 3,200 rows with and without unit roots: what models of increments change.

    python -m studies.benchmarks.unit_roots        # writes studies/results/unit_roots.json

Linear auto-regressions alone. Options are chosen by rolled forecasts on the first 55, 70 and 85 % of the rows, and the
next 15 % are forecast from origin after origin, as in `short_series`. The numbers are mean CRPS by band of horizons, in
standard deviations of y: of the default choice, of the same options with levels for all series, and of a random walk.
Simulated kinds have four draws each; the other series are training parts of `forecast_sets`.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wishflow.files.json import write_json_atomic
from wishflow.series.choices import WALK, Choice, Given, by_rolled_forecasts
from wishflow.series.choosing import Config, Judge

from ..paths import RESULTS
from ..provenance import provenance
from .forecast_sets import SEED, SETS
from .forecasts import split_of
from .short_series import run

N_DRAWS = 4
SERIES = ("lorenz", "heavy_tails", "ten_minutes", "new_york")


def with_levels(judge: Judge, given: Given) -> Choice:
    """The default choice, with levels for all series."""
    found = by_rolled_forecasts(judge, given)
    prior = dataclasses.replace(found.config.prior, sums=math.inf)
    return dataclasses.replace(found, config=dataclasses.replace(found.config, prior=prior))


def random_walk(judge: Judge, given: Given) -> Choice:
    del judge, given
    return Choice(Config((1,), prior=WALK), {}, "")


WAYS: dict[str, Callable[[Judge, Given], Choice]] = {
    "default": by_rolled_forecasts,
    "levels": with_levels,
    "random walk": random_walk,
}


def walks(rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    """Random walks whose steps have five degrees of freedom and correlations of one half."""
    mixing = np.linalg.cholesky(0.5 * np.eye(dim) + 0.5)
    return np.cumsum(rng.standard_t(5, (n, dim)) @ mixing.T, axis=0)


def regressions(rng: np.random.Generator, n: int, dim: int, weight: float) -> np.ndarray:
    """Auto-regressions of order one."""
    rows = np.zeros((n, dim))
    for t in range(1, n):
        rows[t] = weight * rows[t - 1] + rng.normal(size=dim)
    return rows


def cointegrated(rng: np.random.Generator, n: int) -> np.ndarray:
    """Two series that share one random walk."""
    return np.cumsum(rng.normal(size=(n, 1)), axis=0) + regressions(rng, n, 2, 0.8)


KINDS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "random walks, 6 series, 800 rows": lambda rng: walks(rng, 800, 6),
    "random walks, 20 series, 1,000 rows": lambda rng: walks(rng, 1000, 20),
    "prices that grow, 4 series, 1,200 rows": lambda rng: 100.0 * np.exp(0.01 * walks(rng, 1200, 4)),
    "sums of AR(1), 3 series, 900 rows": lambda rng: np.cumsum(regressions(rng, 900, 3, 0.6), axis=0),
    "cointegrated, 2 series, 800 rows": lambda rng: cointegrated(rng, 800),
    "2 random walks beside 2 AR(1), 1,200 rows": lambda rng: np.column_stack(
        [walks(rng, 1200, 2), regressions(rng, 1200, 2, 0.9)]
    ),
    "AR(1) of weight .99, 4 series, 1,500 rows": lambda rng: regressions(rng, 1500, 4, 0.99),
    "AR(1) of weight .97, 4 series, 900 rows": lambda rng: regressions(rng, 900, 4, 0.97),
    "AR(1) of weight .9, 4 series, 900 rows": lambda rng: regressions(rng, 900, 4, 0.9),
}


def frame_of(kind: str, draw: int) -> pd.DataFrame:
    rng = np.random.default_rng([SEED, list(KINDS).index(kind), draw])
    rows = KINDS[kind](rng)
    return pd.DataFrame(rows, pd.bdate_range("2010-01-01", periods=len(rows)), [f"s{d}" for d in range(rows.shape[1])])


def compared(frames: Sequence[pd.DataFrame]) -> dict[str, Any]:
    found = {label: [run(frame, way) for frame in frames] for label, way in WAYS.items()}
    crps = {label: np.mean([one["crps"] for one in parts], axis=0) for label, parts in found.items()}
    return {
        "crps": {label: values.tolist() for label, values in crps.items()},
        "change": {label: (100.0 * (crps["default"] / crps[label] - 1.0)).tolist() for label in list(WAYS)[1:]},
        "steps": found["default"][0]["steps"],
        "chosen": [one["chosen"] for one in found["default"]],
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "unit_roots.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results: dict[str, Any] = {}
    for name in (*KINDS, *SERIES):
        if name in KINDS:
            frames = [frame_of(name, draw) for draw in range(N_DRAWS)]
        else:
            split = split_of(SETS[name], False)
            frames = [split.y.iloc[: split.n_train]]
        results[name] = compared(frames)
        words = [
            f"{'/'.join(f'{v:+.1f}' for v in values)} % of {label}" for label, values in results[name]["change"].items()
        ]
        print(f"{name:<45} {'; '.join(words)}", flush=True)
    write_json_atomic(options.output, {"series": results, "provenance": provenance()})


if __name__ == "__main__":
    main()
