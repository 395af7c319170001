"""What each difference to the paper's reference code is worth: diffWGP with one thing done as there, on all splits.

    python -m studies.benchmarks.differences --data kin8nm --variants right mixed_kl

Each variant is one file DATA-VARIANT.json of the folder studies/results/differences. Variants replace a part of the
package for the whole process, so each runs in a process of its own (given several, the command starts them one after
another).
"""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import wishflow as wf
from wishflow.files.json import write_json_atomic
from wishflow.numerics.linalg import solve_lower
from wishflow.numerics.scaling import Scaler
from wishflow.wishart import Field
from wishflow.wishart.specs import Wishart

from .. import paths
from ..provenance import provenance
from ..uci.reproduce import load
from ..uci.suite import N_PATHS
from ..uci.training import run_splits, score_mixture, split_rows


def mixed_kl(field: Field) -> dict[str, Any]:
    """The reference code's penalty: q(v) of the whitened conditional is held against N(0, Kzz), the prior of u = Lz v.

    KL(N(m, RRᵀ) ‖ N(0, LzLzᵀ)) = ½ (‖Lz⁻¹m‖² + ‖Lz⁻¹R‖²_F − M) + log det Lz − log det R.
    """
    Lz = field.basis.factor()

    def one(mean, factor):
        squares = jnp.sum(solve_lower(Lz, mean[:, None]) ** 2) + jnp.sum(solve_lower(Lz, factor) ** 2)
        log_det = jnp.sum(jnp.log(jnp.diagonal(Lz))) - jnp.sum(jnp.log(jnp.diagonal(factor)))
        return 0.5 * (squares - len(mean)) + log_det

    times = field.noise.multiplicity
    columns = jax.vmap(one)(field.noise.posterior.mean, field.noise.posterior.factors())
    drift = 0.5 * jnp.sum(solve_lower(Lz, field.gp.mean.T) ** 2)
    return {"kl_drift": drift, "kl_diffusion": times * jnp.sum(columns)}


def kl_counted_once(field: Field) -> dict[str, Any]:
    """Shared columns of J penalised as if they were one."""
    parts = RIGHT_KL(field)
    return {**parts, "kl_diffusion": parts["kl_diffusion"] / field.noise.dof}


MODULE = f"{__package__}.differences"
RIGHT_KL = Field.kl
PENALTIES: dict[str, Callable] = {"mixed_kl": mixed_kl, "kl_once": kl_counted_once}
# The paper's model has ν = ρ, and states that are the inputs; a spec says so whatever the rule. The form of q is that
# with which the results were made.
PAPER = {"diffusion": Wishart(posterior="structured")}
OPTIONS: dict[str, dict[str, Any]] = {
    "rule": {},
    "independent": {"diffusion": Wishart(columns="independent", posterior="structured")},
    "pathwise": {**PAPER, "sampling": "pathwise"},
}
LABELS = {
    "right": "as it is here, with the paper's ν = ρ",
    "rule": "as the rule has it (ν = 1 and wider states up to ten inputs)",
    "mixed_kl": "KL of the unwhitened prior with the whitened conditional",
    "kl_once": "KL of shared columns counted once",
    "independent": "independent columns",
    "pathwise": "pathwise sampling",
    "test_scaling": "test rows scaled by their own standard deviation",
}


def scaled_by_itself(values: np.ndarray, training: Scaler) -> tuple[np.ndarray, np.ndarray]:
    """Values which the training scaler turns into (x − training mean) / own sd, and the ratio of the two scales."""
    ratio = training.scale / Scaler.of(values).scale
    return training.mean + (values - training.mean) * ratio, ratio


def score_scaled_by_itself(
    models: Sequence[Any], data: Sequence[tuple[np.ndarray, np.ndarray]]
) -> list[dict[str, float]]:
    """Scores as the reference code has them: means and log densities in units of the test part's own deviations."""
    rows = []
    for model, (X, y) in zip(models, data, strict=True):
        inputs, _ = scaled_by_itself(X, model.x_scaler_)
        targets, ratio = scaled_by_itself(y[:, None], model.y_scaler_)
        row = score_mixture(targets[:, 0], *model.predict_components(inputs, return_weights=True))
        shift = float(np.log(ratio[0]))  # the density of y, not of what it became
        row["log_density"] += shift
        row["mean_log_density_of_paths"] += shift
        row["rmse"] /= float(ratio[0])
        row["crps"] /= float(ratio[0])
        rows.append(row)
    return rows


def run(name: str, variant: str, n_splits: int, options: dict[str, Any]) -> dict[str, Any]:
    """Train and score all splits of one variant. Replaces the penalty for this process."""
    if variant in PENALTIES:
        Field.kl = PENALTIES[variant]  # type: ignore[method-assign]
    data = load(name)
    rows = [split_rows(len(data.X), index) for index in range(n_splits)]
    state = {} if variant == "rule" else {"state_dim": data.X.shape[1]}
    chosen = {**state, **OPTIONS.get(variant, PAPER), **options}
    make = functools.partial(wf.FlowRegressor, n_predict_samples=N_PATHS, **chosen)
    score = score_scaled_by_itself if variant == "test_scaling" else None
    return {"data": name, "variant": variant, **run_splits(make, data.X, data.y, rows, score=score)}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="kin8nm")
    parser.add_argument("--variants", nargs="+", default=list(LABELS), choices=list(LABELS))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--max-iter", type=int, help="fewer iterations, to try the command; written to .bench/trials")
    parser.add_argument("--output", type=Path, help="a folder; studies/results/differences if not given")
    options = parser.parse_args(arguments)
    options.output = options.output or paths.output("differences", is_trial=options.max_iter is not None)
    return options


def main() -> None:
    options = parse()
    if len(options.variants) > 1:
        others = [f"--data={options.data}", f"--splits={options.splits}", f"--output={options.output}"]
        others += [] if options.max_iter is None else [f"--max-iter={options.max_iter}"]
        for variant in options.variants:
            command = [sys.executable, "-m", MODULE, "--variants", variant, *others]
            subprocess.run(command, check=True)
        return
    (variant,) = options.variants
    fewer = {} if options.max_iter is None else {"max_iter": options.max_iter}
    result = {**run(options.data, variant, options.splits, fewer), "provenance": provenance()}
    options.output.mkdir(parents=True, exist_ok=True)
    write_json_atomic(options.output / f"{options.data}-{variant}.json", result)
    print(options.data, variant, result["mean"], flush=True)


if __name__ == "__main__":
    main()
