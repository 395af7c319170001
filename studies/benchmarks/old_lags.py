"""How many lags the regression that training starts from can bear, with and without the prior of old lags.

    python -m studies.benchmarks.old_lags            # writes studies/results/old_lags.json

The Beijing series as the models of the comparison see them (logarithms, harmonics), October to December 2015: the
linear drift alone, without noise, is simulated 48 hours ahead from one origin after the other. The number is the root
of the mean squared error over origins, hours of a band and series, in standard deviations of the training part.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.files.json import write_json_atomic
from wishflow.numerics.devices import computing
from wishflow.series.data.frames import read
from wishflow.series.data.intake import further_rows
from wishflow.series.starts import ridge_start
from wishflow.series.windows import Series, cut, to_ticks

from ..beijing.models import TRANSFORMS, transform_by_kind
from ..beijing.protocol import BANDS, HORIZON, Parts, load_parts
from ..paths import RESULTS
from ..provenance import provenance

LAGS = (3, 6, 12, 24)
MAX_GAP = 24.0


def as_seen(parts: Parts) -> Series:
    """Training and validation part in the units of a model that is fitted to the first."""
    train, rest = (part.mul(parts.sd).add(parts.mean).round(9) for part in (parts.train, parts.rest))
    options = {"drift": "linear", "diffusion": "diagonal", "calendar": True, "max_iter": 1, "n_inducing": 5, "lags": 1}
    options |= {"validation_fraction": 0}
    transform = transform_by_kind(TRANSFORMS, train.columns)
    units = wf.WishartForecaster(**options, transform=transform).fit(train).units_
    ((tail, _),) = further_rows(units, read(pd.concat([train, rest]), "y"), None).values()
    return tail


def errors(series: Series, n_train: int, n_windows: int, lags: int, has_prior: bool) -> list[float]:
    """By band of horizons."""
    first = Series(series.times[:n_train], series.values[:n_train], series.covariates[:n_train])
    transitions, _ = cut(to_ticks(first, 1.0, lags, MAX_GAP), lags)
    with computing():
        start = ridge_start(transitions, True, lags if has_prior else 1)
    W, b, y = np.asarray(start.weights), np.asarray(start.constant), series.values
    origins, dim = n_train + HORIZON * np.arange(n_windows), y.shape[1]
    history = np.concatenate([y[origins - lag] for lag in range(1, lags + 1)], axis=1)
    squares = []
    for hour in range(HORIZON):
        u = series.covariates[origins + hour]
        x = history[:, :dim] + np.concatenate([history, u], axis=1) @ W.T + b
        history = np.concatenate([x, history[:, :-dim]], axis=1)
        squares.append(((x - y[origins + hour]) ** 2).mean())
    return [float(np.sqrt(np.mean(squares[hours]))) for hours in BANDS.values()]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "old_lags.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    made, parts = provenance(), load_parts(is_validation=True)
    series, found = as_seen(parts), {}
    for lags in LAGS:
        for has_prior in (False, True):
            name = f"{lags} lags{', old ones held small' * has_prior}"
            found[name] = errors(series, len(parts.train), parts.n_windows, lags, has_prior)
            print(name, np.round(found[name], 4), flush=True)
    write_json_atomic(options.output, {"root_mean_squared_errors": found, "bands": list(BANDS), "provenance": made})


if __name__ == "__main__":
    main()
