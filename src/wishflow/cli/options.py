"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95]

Data = Annotated[Path, typer.Argument(help="The table, CSV or Parquet by its extension.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Separator = Annotated[
    Optional[str], typer.Option(help="What separates columns of a CSV file.", show_default="a comma")  # noqa: UP045
]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
MaxIter = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(min=1, help="The most iterations of training.", show_default="by the number of rows"),
]
Report = Annotated[
    Optional[Path], typer.Option(help="Also write a report, one HTML file.", show_default=False)  # noqa: UP045
]
Quantiles = Annotated[list[float], typer.Option("--quantile", help="Probabilities of the quantiles; repeat for more.")]
Targets = Annotated[
    list[str], typer.Option("--target", "-t", help="Column to predict; repeat for several.", show_default=False)
]
SomeTargets = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--target", "-t", help="Of rows: column to predict; repeat for several.", show_default=False),
]
Drop = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(help="Column that is no input, such as an id; repeat for several.", show_default=False),
]
DropMissing = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with empty cells.")]
Task = Annotated[str, typer.Option(help="auto, regress or classify. auto: text targets are classes.")]
Kind = Annotated[str, typer.Option("--model", help="flow, or sgp for a sparse GP.")]
Members = Annotated[int, typer.Option(min=1, help="Fits without one fold each, mixed. 5 is better and slower.")]
Time = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Column of the time stamps.", show_default="the one with dates"),
]
Series = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(help="Column to forecast; repeat for several.", show_default="all but the time"),
]
Freq = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Length of a step, such as h, 15min, D, B or MS.", show_default="that of the stamps"),
]
DateFormat = Annotated[
    Optional[str], typer.Option(help="Form of the dates, such as '%d.%m.%Y'.", show_default="ISO 8601")  # noqa: UP045
]
Draws = Annotated[int, typer.Option(min=2, help="Number of sample paths.")]
