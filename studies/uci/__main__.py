"""`python -m studies.uci`: the UCI regression tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..command import suite_errors
from ..paths import RESULTS
from . import reproduce as reproduction


def main(
    data: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Data sets, repeated or with commas; all eight if none.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="sgp, nonoise, diffgp, diffwgp5, diffwgp10, repeated or with commas; all if none.",
        ),
    ] = None,
    splits: Annotated[int, typer.Option(min=1, help="Random 90/10 splits of each data set.")] = 20,
    preset: Annotated[str, typer.Option(help="Settings: fast, or paper for the paper's own.")] = "fast",
    group: Annotated[
        int | None, typer.Option(min=1, help="Splits trained at once; all if none. Fewer need less memory.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Cells trained side by side, each in its own process.")] = 1,
    backend: Annotated[
        str | None, typer.Option(help="Where cells are trained: loky, ray, dask or slurm; here if none.")
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder of results; made if missing.", show_default="studies/results/reproduction")
    ] = RESULTS / "reproduction",
    report_only: Annotated[bool, typer.Option("--report-only", help="Train nothing; tables and page anew.")] = False,
) -> None:
    """The UCI regression tables: train and score, skip what is done, write tables, figures and a page.

    Each finished cell (a data set and a model) is one file, so the command can be stopped and started again.
    """
    with suite_errors():
        code = reproduction.main(
            output,
            data=data or (),
            models=models or (),
            n_splits=splits,
            preset=preset,
            group=group,
            n_processes=processes,
            backend=backend,
            is_report_only=report_only,
        )
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(main)
