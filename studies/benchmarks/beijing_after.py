"""The Beijing forecasters on January and February 2017, which nothing was chosen on and which come after all looks.

    python -m studies.beijing --models ensemble --output RUN  # stopped before it scores: RUN/fits
    python -m studies.benchmarks.beijing_after RUN/fits  # writes studies/results/beijing_after.json

The fits are those of the comparison, to 2014 and 2015; 2016 is what they are conditioned on, row by row.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

import wishflow as wf
from wishflow.datasets import load_beijing
from wishflow.files.json import read_json, write_json_atomic

from ..beijing.jobs import Job, fit, fit_path
from ..beijing.models import Standardised
from ..beijing.protocol import Parts, load_parts, roll
from ..paths import RESULTS
from ..provenance import provenance

BASELINES = ("walk", "var3", "var24")
N_DRAWS = 1000


def parts_after(parts: Parts) -> Parts:
    """What was scored before belongs to the past now, in the same units."""
    past = pd.concat([parts.train, parts.rest])
    filled, measured = load_beijing(interpolate=True), load_beijing()
    rest = (filled.loc[filled.index > past.index[-1]] - parts.mean) / parts.sd
    return dataclasses.replace(parts, train=past, rest=rest, is_observed=measured.notna().loc[rest.index])


def ensemble_of(folder: Path, parts: Parts) -> tuple[Standardised, str]:
    """The fit of a folder, and the commit that made it."""
    path = fit_path(folder, Job("ensemble"))
    found = read_json(path.with_suffix(".json"))
    n_rows = None if found is None else found["settings"]["n_rows"]
    if not path.exists() or n_rows != len(parts.train):
        given = "no fit" if not path.exists() or found is None else f"a fit to {n_rows} rows"
        raise SystemExit(
            f"{folder} holds {given}; expected that of the ensemble, to {len(parts.train)} rows: fit it with "
            "python -m studies.beijing."
        )
    assert found is not None
    return Standardised(wf.load(path), parts.mean, parts.sd), found["settings"]["commit"]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fits", type=Path)
    parser.add_argument("--output", type=Path, default=RESULTS / "beijing_after.json")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    parts = load_parts()
    after = parts_after(parts)
    ensemble, commit = ensemble_of(options.fits, parts)
    forecasters = {name: fit(Job(name), parts)[0] for name in BASELINES} | {"ensemble": ensemble}
    result: dict[str, object] = {"n_windows": after.n_windows, "n_draws": N_DRAWS}
    result |= {"fitted_by": [commit], "n_members": len(ensemble.forecaster.members_)}
    for name, forecaster in forecasters.items():
        found = roll(forecaster.update(parts.rest), after, N_DRAWS)
        result[name] = {key: found[key] for key in ("bands", "log_density_1", "windows")}
        print(name, round(found["log_density_1"], 2), found["bands"]["crps"], found["bands"]["energy"], flush=True)
    write_json_atomic(options.output, {**result, "provenance": provenance()})


if __name__ == "__main__":
    main()
