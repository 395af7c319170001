"""Which forecasters of the Beijing comparison to put together, on October to December 2015 or, with --year, on 2015.

    python -m studies.benchmarks.mixtures fit JOBS.json DRAWS  # DRAWS: a folder; jobs that lie there are skipped
    python -m studies.benchmarks.mixtures score JOBS.json DRAWS

JOBS.json maps names to the options in which a job differs from `wishart_state` (as in `tune_beijing`). The
energy score of an equal mixture of K models with n draws each needs the mean distances within and between them alone:

    ES = 1/K Σ_k E‖X_k − y‖ − 1/(2K²) Σ_kl E‖X_k − X_l‖,

so all mixtures are scored from one table of pairs. Jobs whose names differ after a dot alone (rbf.0, rbf.1) are one
kind, and are mixed together or not at all. Of the jobs mixtures-11.json scores are written to
studies/results/tuning/mixtures-11.json. Several processes may share the fits: --part 0/4, --part 1/4, …
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from wishflow.files.json import write_json_atomic

from ..beijing.jobs import fit
from ..beijing.protocol import BANDS, HORIZON, Parts, load_parts, load_validation_year
from ..paths import tuning_output
from ..provenance import provenance
from .shares import share_of
from .tune_beijing import made

N_DRAWS = 200
MOST_KINDS = 6
N_SHOWN = 10


def parts_of(is_year: bool) -> Parts:
    return load_validation_year() if is_year else load_parts(is_validation=True)


def fit_all(jobs: dict[str, dict], parts: Parts, folder: Path, part: str) -> None:
    """Draws (W, n, H, D) of each job, one file each, and the fits beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, changes in share_of(list(jobs.items()), part):
        path = folder / f"{name}.npy"
        if not (path.exists() and len(np.load(path, mmap_mode="r")) == parts.n_windows):
            forecaster, _ = fit(made({"model": "wishart_state", "set": changes}, parts), parts, folder=folder / name)
            draws = rolled(forecaster, parts)
            np.save(path.with_suffix(".part.npy"), draws)
            path.with_suffix(".part.npy").replace(path)
            print(name, flush=True)


def rolled(forecaster, parts: Parts) -> np.ndarray:
    """Draws over all windows."""
    windows = []
    for w in range(parts.n_windows):
        windows.append(forecaster.forecast(HORIZON, n_draws=N_DRAWS).samples.values.astype(np.float32))
        forecaster.update(parts.rest.iloc[w * HORIZON : (w + 1) * HORIZON])
    return np.stack(windows)


@jax.jit
def distances(X: jax.Array, Y: jax.Array) -> jax.Array:
    """Σ_ij ‖x_i − y_j‖ by window and hour: (W, n, H, D), (W, m, H, D) -> (W, H)."""

    def one(pair):
        x, y = pair  # (n, D), (m, D)
        return jnp.sum(jnp.sqrt(jnp.sum((x[:, None] - y[None]) ** 2, -1)))

    def window(pair):
        return jax.lax.map(one, tuple(jnp.swapaxes(draws, 0, 1) for draws in pair))

    return jax.lax.map(window, (X, Y))


def in_bands(values: np.ndarray) -> np.ndarray:
    return np.array([values[:, hours].mean() for hours in BANDS.values()])


def pair_table(draws: dict[str, np.ndarray], y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean distances by band: to what came (K, 4), and between draws (K, K, 4), fair where a model meets itself."""
    names = list(draws)
    to_data = np.stack([in_bands(np.asarray(distances(draws[k], y[:, None]))) / N_DRAWS for k in names])
    between = np.zeros((len(names), len(names), len(BANDS)))
    for i, j in itertools.combinations_with_replacement(range(len(names)), 2):
        n_pairs = N_DRAWS * (N_DRAWS - (i == j))
        between[i, j] = between[j, i] = in_bands(np.asarray(distances(draws[names[i]], draws[names[j]]))) / n_pairs
    return to_data, between


def mixture_energy(to_data: np.ndarray, between: np.ndarray, members: tuple[int, ...]) -> np.ndarray:
    """The energy score of an equal mixture by band, from the table of pairs."""
    chosen = list(members)
    return to_data[chosen].mean(0) - 0.5 * between[np.ix_(chosen, chosen)].mean((0, 1))


def kinds_of(names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Which jobs are of a kind, by their places."""
    kinds: dict[str, tuple[int, ...]] = {}
    for i, name in enumerate(names):
        kind = name.partition(".")[0]
        kinds[kind] = (*kinds.get(kind, ()), i)
    return kinds


def best_mixtures(
    to_data: np.ndarray, between: np.ndarray, kinds: dict[str, tuple[int, ...]], size: int
) -> list[tuple[tuple[str, ...], np.ndarray]]:
    """All mixtures of `size` kinds and their energy scores, the best first.

    Bands count alike: each relative to its mean over single kinds.
    """
    usual = np.mean([mixture_energy(to_data, between, members) for members in kinds.values()], axis=0)
    found = []
    for names in itertools.combinations(kinds, size):
        members = tuple(i for name in names for i in kinds[name])
        found.append((names, mixture_energy(to_data, between, members)))
    return sorted(found, key=lambda pair: float((pair[1] / usual).mean()))


def score_all(jobs: dict[str, dict], parts: Parts, folder: Path, output: Path) -> None:
    y = parts.rest.to_numpy(np.float32)[: parts.n_windows * HORIZON].reshape(parts.n_windows, HORIZON, -1)
    draws = {name: np.load(folder / f"{name}.npy") for name in jobs if (folder / f"{name}.npy").exists()}
    draws = {name: values for name, values in draws.items() if np.isfinite(values).all()}
    names, (to_data, between) = list(draws), pair_table(draws, y)
    alone = {name: mixture_energy(to_data, between, (i,)) for i, name in enumerate(names)}
    for name, energy in alone.items():
        print(f"{name:24s}", energy.round(4), flush=True)
    kinds = kinds_of(names)
    for size in range(1, MOST_KINDS + 1):
        for mixed, energy in best_mixtures(to_data, between, kinds, size)[:N_SHOWN]:
            print(energy.round(4), ", ".join(mixed), flush=True)
    write_json_atomic(
        output,
        {
            "jobs": {name: jobs[name] for name in names},
            "n_draws": N_DRAWS,
            "windows": [str(parts.rest.index[0]), parts.n_windows],
            "energy": alone,
            "to_data": to_data,
            "between": between,
            "provenance": provenance(),
        },
    )


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("fit", "score"))
    parser.add_argument("jobs", type=Path)
    parser.add_argument("draws", type=Path)
    parser.add_argument("--output", type=Path, help="studies/results/tuning/JOBS.json if not given")
    parser.add_argument("--part", default="0/1", help="which share of the jobs, as 0/4")
    parser.add_argument("--year", action="store_true", help="fit on all before 2015, score 2015")
    options = parser.parse_args(arguments)
    options.output = options.output or tuning_output(options.jobs, ".json")
    return options


def main() -> None:
    options = parse()
    jobs = json.loads(options.jobs.read_text())
    if options.do == "fit":
        fit_all(jobs, parts_of(options.year), options.draws, options.part)
    else:
        score_all(jobs, parts_of(options.year), options.draws, options.output)


if __name__ == "__main__":
    main()
