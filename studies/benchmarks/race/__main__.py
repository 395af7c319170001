"""Seconds to a fixed test score: kin8nm, first split, a log density of 1.25 in the units of the data.

    python -m studies.benchmarks.race                     # writes studies/results/race.json
    python -m studies.benchmarks.race --minutes 10        # when to give up on a contender

Contenders run one after another: `FlowRegressor` with the `fast` rule (asked for more and more iterations, each a fit
of its own), GPyTorch's deep GP, and `FlowRegressor(preset="paper")`. Imports are not timed, compilation is, without a
cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wishflow.datasets import load_uci, split
from wishflow.files.json import write_json_atomic
from wishflow.numerics.scaling import Scaler

from ...paths import RESULTS
from ...provenance import provenance
from ..speed import environments
from .data import Split

DATA, TARGET = "kin8nm", 1.25
CONTENDERS = {
    "wishflow, fast": (None, f"{__package__}.ours", ("fast",)),
    "GPyTorch, deep GP": ("gpytorch", f"{__package__}.deep_gp", ()),
    "wishflow, paper": (None, f"{__package__}.ours", ("paper",)),
}


def first_split() -> Split:
    """The first of the splits of the suite."""
    data = load_uci(DATA)
    train, test = split(len(data.X), 0)
    X_scaler, y_scaler = Scaler.of(data.X[train]), Scaler.of(data.y[train][:, None])

    def targets(rows):
        return y_scaler.forward(data.y[rows][:, None])[:, 0]

    X, X_test = X_scaler.forward(data.X[train]), X_scaler.forward(data.X[test])
    return Split(X, targets(train), X_test, targets(test), float(y_scaler.scale[0]))


def run(name: str, path: Path, minutes: float) -> list[dict[str, Any]]:
    """What a contender reports of its attempts; the last is the one it ends with."""
    environment, module, arguments = CONTENDERS[name]
    python = sys.executable if environment is None else str(environments.ensure(environment))
    command = [python, "-m", module, str(path), str(TARGET), str(minutes), *arguments]
    attempts = []
    no_cache = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    with subprocess.Popen(command, cwd=environments.ROOT, stdout=subprocess.PIPE, text=True, env=no_cache) as process:
        assert process.stdout is not None
        for line in process.stdout:
            attempts.append(json.loads(line))
            print(f"{name}: {line.strip()}", flush=True)
    if process.returncode != 0:
        raise RuntimeError(f"{name} ended with status {process.returncode}; its own words are above.")
    return attempts


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m studies.benchmarks.race", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS), metavar="NAME")
    parser.add_argument("--output", type=Path, default=RESULTS / "race.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    path = environments.FOLDER / "race.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    first_split().save(path)
    attempts: dict[str, Any] = {}
    for name in options.contenders:
        attempts[name] = run(name, path, options.minutes)
        result = {"data": DATA, "target": TARGET, "minutes": options.minutes, "attempts": attempts}
        write_json_atomic(options.output, {**result, "provenance": provenance()})


if __name__ == "__main__":
    main()
