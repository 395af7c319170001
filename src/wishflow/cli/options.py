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

from ..errors import OptionError

QUANTILES = ["0.05", "0.25", "0.5", "0.75", "0.95"]

Data = Annotated[Path, typer.Argument(help="The table: a CSV or Parquet file.", show_default=False)]
Table = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--output", "-o", help="Output table, CSV or Parquet.", show_default="standard output"),
]
Report = Annotated[
    Optional[Path], typer.Option(help="Also write a report to this HTML file.", show_default=False)  # noqa: UP045
]
Quantiles = Annotated[
    list[str],
    typer.Option("--quantile", help="Probabilities of the quantiles, as 0.1,0.9 or repeated.", metavar="list[float]"),
]
Targets = Annotated[
    list[str], typer.Option("--target", "-t", help="Columns to predict, as a,b or repeated.", show_default=False)
]
SomeTargets = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--target", "-t", help="For rows: columns to predict, as a,b or repeated.", show_default=False),
]
DropMissing = Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with empty cells.")]
Draws = Annotated[int, typer.Option(min=2, help="Number of sample paths.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
MaxIter = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(min=1, help="Maximum number of training iterations.", show_default="by the number of rows"),
]


# --- groups ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Talking:
    """What a command prints, and how."""

    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False


@dataclasses.dataclass(frozen=True)
class Reading:
    """How text files are read."""

    separator: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Column separator of a CSV file, such as ';'.", show_default="by the header"),
    ] = None
    decimal: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Decimal sign of a CSV file: . or ,", show_default="by the cells"),
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
        typer.Option(help="Columns to leave out, such as ids, as a,b or repeated.", show_default=False),
    ] = None
    categories: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="Columns of labels, as a,b or repeated. Each label becomes a 0/1 input.",
            show_default=False,
        ),
    ] = None
    task: Annotated[str, typer.Option(help="auto, regress or classify. With auto, a text target is classified.")] = (
        "auto"
    )


@dataclasses.dataclass(frozen=True)
class RowModel:
    """A model of rows."""

    model: Annotated[str, typer.Option(help="flow, or sgp (sparse GP).")] = "flow"
    members: Annotated[int, typer.Option(min=1, help="Number of fits to mix, each without one fold of the rows.")] = 1
    seed: Seed = 0
    max_iter: MaxIter = None


@dataclasses.dataclass(frozen=True)
class SeriesColumns:
    """What the columns of a table of series are."""

    time: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Column of the timestamps.", show_default="the one with dates"),
    ] = None
    id: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="For a panel: column that identifies the series, such as a station.", show_default=False),
    ] = None
    series: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Columns to forecast, as a,b or repeated.", show_default="all other columns"),
    ] = None
    covariates: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Columns known in advance, as a,b or repeated.", show_default=False),
    ] = None
    date_format: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Format of the dates, such as '%d.%m.%Y'.", show_default="ISO 8601"),
    ] = None


@dataclasses.dataclass(frozen=True)
class SeriesModel:
    """A model of series."""

    freq: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Length of a step, such as h, 15min, D, B or MS.", show_default="inferred from the timestamps"
        ),
    ] = None
    seed: Seed = 0
    max_iter: MaxIter = None


def changed(group: Any) -> list[str]:
    """The options of a group that were given, as they are written."""
    given = [f.name for f in dataclasses.fields(group) if getattr(group, f.name) not in (f.default, [])]
    return [f"--{name.replace('_', '-')}" for name in given]


def own(group: Any, other: Any) -> list[str]:
    """The options of a group that were given and that the other group does not have."""
    return [option for option in changed(group) if option not in changed(other)]


def check_no_fit(model: RowModel | SeriesModel) -> None:
    """Options of a fit have no meaning for a saved model."""
    given = changed(model)
    if given:
        raise OptionError(f"{given[0]} is for a new fit, but --from names a saved model; leave one of them out.")


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
