"""A noisy view of a small state: the latent model by both objectives beside the auto-regressive one and the truth.

    python -m studies.benchmarks.latent         # writes studies/results/latent.json

Six columns y = C x + noise of a state that turns and decays, 1200 rows to train on, 800 to score. The truth is linear
and Gaussian, so the Kalman filter gives the best score there is.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.files.json import write_json_atomic

from ..paths import RESULTS
from ..provenance import provenance

N_TRAIN, N_TEST = 1200, 800
WIDTH = 6
TURN = np.array([[0.97, 0.15], [-0.15, 0.97]]) * 0.98
STATE_SD, NOISE_SD = 0.15, 0.5
OPTIONS = {"drift": "linear+gp", "rank": 2, "n_inducing": 30, "max_iter": 1000, "validation_fraction": 0}
MODELS = {
    "auto-regressive, one lag": {},
    "auto-regressive, six lags": {"lags": 6},
    "latent, transition": {"latent_dim": 2},
    "latent, rollout": {"latent_dim": 2, "objective": "rollout"},
}


def simulated(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows of y and the readout C."""
    rng = np.random.default_rng(seed)
    C, x = rng.normal(size=(WIDTH, 2)), np.zeros(2)
    y = np.zeros((N_TRAIN + N_TEST, WIDTH))
    for t in range(len(y)):
        x = TURN @ x + STATE_SD * rng.normal(size=2)
        y[t] = C @ x + NOISE_SD * rng.normal(size=WIDTH)
    return pd.DataFrame(y), C


def kalman_log_density(y: np.ndarray, C: np.ndarray) -> np.ndarray:
    """log p of each row given those before it, under the truth."""
    m, P, scores = np.zeros(2), np.eye(2), []
    for row in y:
        m, P = TURN @ m, TURN @ P @ TURN.T + STATE_SD**2 * np.eye(2)
        S = C @ P @ C.T + NOISE_SD**2 * np.eye(WIDTH)
        r, K = row - C @ m, P @ C.T @ np.linalg.inv(S)
        scores.append(-0.5 * (WIDTH * np.log(2 * np.pi) + np.linalg.slogdet(S)[1] + r @ np.linalg.solve(S, r)))
        m, P = m + K @ r, P - K @ C @ P
    return np.array(scores)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "latent.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    y, C = simulated(0)
    train, test = y.iloc[:N_TRAIN], y.iloc[N_TRAIN:]
    result: dict = {"truth": {"log_density": float(kalman_log_density(y.to_numpy(), C)[N_TRAIN:].mean())}}
    for name, changes in MODELS.items():
        started = time.perf_counter()
        model = wf.WishartForecaster(**{**OPTIONS, **changes}).fit(train)
        seconds = time.perf_counter() - started
        scores = wf.backtest(model, y, fh=24, initial=N_TRAIN, n_draws=300, n_densities=0)
        result[name] = {
            "log_density": float(model.log_prob(test).mean()),
            "crps_1": float(scores["crps"].isel(horizon=0).mean()),
            "crps_24": float(scores["crps"].isel(horizon=23).mean()),
            "seconds": seconds,
        }
        print(name, json.dumps(result[name]), flush=True)
    print("truth", result["truth"])
    write_json_atomic(options.output, {"models": result, "provenance": provenance()})


if __name__ == "__main__":
    main()
