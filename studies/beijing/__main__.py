"""`python -m studies.beijing`: air quality in Beijing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..command import suite_errors
from ..paths import RESULTS
from . import reproduce as reproduction


def main(
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="walk, var3, var24 (these need the extra compare), ensemble, members, default, wishart_state, "
            "wishart, diagonal_state, diagonal, nodrift, linear, rollout, repeated or with commas; all if none.",
        ),
    ] = None,
    draws: Annotated[int, typer.Option(min=2, help="Sample paths of each forecast.")] = 1000,
    members: Annotated[
        int | None,
        typer.Option(min=1, help="Fits of each of our models that share the draws; its own number if not given."),
    ] = None,
    missing: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of training entries to delete, for our models.")
    ] = 0.0,
    processes: Annotated[
        int, typer.Option(min=1, help="Fits, then models, done side by side, each in its own process.")
    ] = 1,
    backend: Annotated[
        str | None,
        typer.Option(help="Where models are fitted: loky, ray, dask or slurm, with OUTPUT on all nodes; here if none."),
    ] = None,
    validation: Annotated[
        bool, typer.Option("--validation", help="Score October to December 2015 and read nothing of 2016.")
    ] = False,
    output: Annotated[
        Path, typer.Option(help="Folder of results; made if missing.", show_default="studies/results/beijing")
    ] = RESULTS / "beijing",
    report_only: Annotated[bool, typer.Option("--report-only", help="Train nothing; tables and page anew.")] = False,
) -> None:
    """Air quality in Beijing: the paper's two figures, and rolling forecasts over 2016 and early 2017 beside VARs.

    Each finished cell (scores, scores of 2017, traces or joint density of a model) is one file, and fits have
    checkpoints, so the command can be stopped and started again.
    """
    with suite_errors():
        code = reproduction.main(
            output,
            models=models or (),
            n_draws=draws,
            n_members=members,
            missing=missing,
            n_processes=processes,
            backend=backend,
            is_validation=validation,
            is_report_only=report_only,
        )
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(main)
