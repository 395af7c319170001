"""Options that several commands share: single ones, and groups of them, each a dataclass with an option for each field.

`grouped` makes a command of a function with parameters that are such groups.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional, get_type_hints

import typer

QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95]

Data = Annotated[Path, typer.Argument(help="The table, CSV or Parquet by its extension.", show_default=False)]
Table = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--output", "-o", help="CSV or Parquet file.", show_default="standard output"),
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
DropMissing = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with empty cells.")]
Draws = Annotated[int, typer.Option(min=2, help="Number of sample paths.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
MaxIter = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(min=1, help="The most iterations of training.", show_default="by the number of rows"),
]


# --- groups ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Talking:
    """What a command says, and how."""

    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False


@dataclasses.dataclass(frozen=True)
class Reading:
    """How text files are read."""

    separator: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="What separates columns of a CSV file, such as ';'.", show_default="by the header"),
    ] = None
    decimal: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Decimal sign of a CSV file, . or ,", show_default="by the cells"),
    ] = None
    encoding: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Encoding of a CSV file, such as cp1252.", show_default="UTF-8"),
    ] = None


@dataclasses.dataclass(frozen=True)
class RowColumns:
    """What the columns of a table of rows are."""

    drop: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Columns that are no inputs, such as ids, as a,b or repeated.", show_default=False),
    ] = None
    categories: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="Columns of labels, as a,b or repeated: each label becomes an input that is 0 or 1.",
            show_default=False,
        ),
    ] = None
    task: Annotated[str, typer.Option(help="auto, regress or classify. auto: text targets are classes.")] = "auto"


@dataclasses.dataclass(frozen=True)
class RowModel:
    """A model of rows."""

    model: Annotated[str, typer.Option(help="flow, or sgp for a sparse GP.")] = "flow"
    members: Annotated[int, typer.Option(min=1, help="Fits without one fold each, mixed. 5 is better and slower.")] = 1
    seed: Seed = 0
    max_iter: MaxIter = None


@dataclasses.dataclass(frozen=True)
class SeriesColumns:
    """What the columns of a table of series are."""

    time: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Column of the time stamps.", show_default="the one with dates"),
    ] = None
    id: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Of a panel: column that tells its series apart, such as a station.", show_default=False),
    ] = None
    series: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Columns to forecast, as a,b or repeated.", show_default="all that are left"),
    ] = None
    covariates: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Columns that are known in advance, as a,b or repeated.", show_default=False),
    ] = None
    date_format: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Form of the dates, such as '%d.%m.%Y'.", show_default="ISO 8601"),
    ] = None


@dataclasses.dataclass(frozen=True)
class SeriesModel:
    """A model of series."""

    freq: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Length of a step, such as h, 15min, D, B or MS.", show_default="that of the stamps"),
    ] = None
    seed: Seed = 0
    max_iter: MaxIter = None


def changed(group: Any) -> list[str]:
    """The options of a group that were given, as they are written."""
    given = [f.name for f in dataclasses.fields(group) if getattr(group, f.name) not in (f.default, [])]
    return [f"--{name.replace('_', '-')}" for name in given]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters that are groups become options, one for each field.

    A field that two groups have is one option, which both get.
    """
    hints, own = get_type_hints(command, include_extras=True), inspect.signature(command).parameters
    groups = {name: hints[name] for name in own if dataclasses.is_dataclass(hints[name])}
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = {
        name: parameter.replace(annotation=hints[name], kind=keyword)
        for name, parameter in own.items()
        if name not in groups
    }
    n_own = len(parameters)
    for group in groups.values():
        types = get_type_hints(group, include_extras=True)
        for field in dataclasses.fields(group):
            found = inspect.Parameter(field.name, keyword, default=field.default, annotation=types[field.name])
            parameters.setdefault(field.name, found)

    def run(**given: Any) -> None:
        parts = {
            name: group(**{field.name: given[field.name] for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**{name: given[name] for name in list(parameters)[:n_own]}, **parts)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run
