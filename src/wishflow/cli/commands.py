"""The command line: parse, call, print."""

from __future__ import annotations

import platform
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Optional

import typer

from .. import __version__
from ..errors import OptionError
from . import options
from .options import grouped
from .terminal import Commands, answering

app = typer.Typer(
    cls=Commands,
    help="Regression, classification and forecasting with predictive distributions, for CSV and Parquet files.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # --debug shows a plain traceback
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: wishflow fit houses.csv --target price -o houses.wishflow\n\n"
    "Exit codes: 0 success, 1 unusable data or files, 2 wrong options, 130 stopped by Ctrl-C. "
    "`wishflow --install-completion` sets up completion of commands and options in your shell.",
)

REPORTED_PACKAGES = ("wishflow", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "pandas", "scikit-learn")


def _print_version(is_asked: bool) -> bool:
    if is_asked:
        typer.echo(f"wishflow {__version__}")
        raise typer.Exit()
    return is_asked


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a command; the help of the command line is that of `app`."""


# --- models of your own data -----------------------------------------------------------------


@app.command(no_args_is_help=True, epilog="Example: wishflow fit houses.csv --target price -o houses.wishflow")
@grouped
def fit(
    data: options.Data,
    target: options.Targets,
    columns: options.RowColumns,
    model: options.RowModel,
    reading: options.Reading,
    talking: options.Talking,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")] = Path("model.wishflow"),
    drop_missing: options.DropMissing = False,
    report: options.Report = None,
) -> None:
    """Fit a regressor or a classifier to a table."""
    with answering(talking) as terminal:
        from . import regression

        source = regression.Source(data, columns, drop_missing, reading)
        regression.run_fit(terminal, source, target, output, model, report)


@app.command(no_args_is_help=True, epilog="Example: wishflow predict houses.wishflow new.csv -o predictions.csv")
@grouped
def predict(
    model: Annotated[Path, typer.Argument(help="A model file, as written by `wishflow fit`.", show_default=False)],
    data: options.Data,
    reading: options.Reading,
    talking: options.Talking,
    output: options.Table = None,
    quantile: options.Quantiles = options.QUANTILES,
    inputs: Annotated[bool, typer.Option(help="Whether to write the columns of the table too.")] = True,
    drop_missing: options.DropMissing = False,
) -> None:
    """Predict new rows: mean, sd and quantiles of each target, or probabilities of the classes."""
    with answering(talking) as terminal:
        from . import regression

        source = regression.Source(data, options.RowColumns(), drop_missing, reading)
        regression.run_predict(terminal, model, source, output, quantile, inputs)


@app.command(
    no_args_is_help=True,
    epilog="Examples: wishflow forecast air.csv --time date --horizon 48h -o forecast.csv --report report.html; "
    "wishflow forecast stations.csv --time date --id station --horizon 48h; "
    "wishflow forecast load.csv --covariates price --future prices.csv --horizon 24",
)
@grouped
def forecast(
    horizon: Annotated[
        str, typer.Option(help="Number of steps such as 48, or a time span such as 48h.", show_default=False)
    ],
    columns: options.SeriesColumns,
    model: options.SeriesModel,
    reading: options.Reading,
    talking: options.Talking,
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="The series: a CSV or Parquet file. Not needed with --from.", show_default=False),
    ] = None,
    output: options.Table = None,
    report: options.Report = None,
    saved: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--from",
            help="Forecast with this saved model, updated with the later rows of the data.",
            show_default=False,
        ),
    ] = None,
    save: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write the fitted model to this file.", show_default=False),
    ] = None,
    future: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Table of future covariates.", show_default="the last rows of the data, without series values"
        ),
    ] = None,
    given: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Table of known or assumed values of some series (a scenario).", show_default=False),
    ] = None,
    quantile: options.Quantiles = options.QUANTILES,
    draws: options.Draws = 1000,
) -> None:
    """Forecast one or more series jointly: mean, sd and quantiles of each step."""
    with answering(talking) as terminal:
        from . import forecasting, series_files

        source = series_files.Source(data, columns, reading, future, given)
        files = forecasting.Files(saved, save, output, report)
        forecasting.run_forecast(terminal, source, files, model, horizon, quantile, draws)


@app.command(
    no_args_is_help=True,
    epilog="Examples: wishflow evaluate houses.csv --target price; "
    "wishflow evaluate air.csv --time date --horizon 24h; "
    "wishflow evaluate stations.csv --time date --id station --horizon 24h",
)
@grouped
def evaluate(
    data: options.Data,
    columns: options.RowColumns,
    model: options.RowModel,
    series_columns: options.SeriesColumns,
    series_model: options.SeriesModel,
    reading: options.Reading,
    talking: options.Talking,
    target: options.SomeTargets = None,
    horizon: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="For series: number of steps such as 24, or a time span such as 24h.", show_default=False),
    ] = None,
    saved: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--from", help="Score this saved model, on data that it has not seen.", show_default=False),
    ] = None,
    test: Annotated[float, typer.Option(help="Share of the rows to hold out (for series, the last rows).")] = 0.2,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="Also write the scores to this file.", show_default=False),
    ] = None,
    report: options.Report = None,
    draws: options.Draws = 500,
    drop_missing: options.DropMissing = False,
) -> None:
    """Score predictions of held-out rows, compared with simpler models."""
    with answering(talking) as terminal:
        from . import evaluation, regression, series_files

        outputs = evaluation.Outputs(output, report)
        outputs.check()
        of_rows = [*options.changed(columns), *options.own(model, series_model)]
        of_series = [*options.changed(series_columns), *options.own(series_model, model)]
        _check_kind_of_data(horizon, ["--target", *of_rows] if target else of_rows, of_series)
        if saved is not None:
            options.check_no_fit(model if horizon is None else series_model)
        rows = regression.Source(data, columns, drop_missing, reading)
        if horizon is not None:
            source = series_files.Source(data, series_columns, reading)
            evaluation.evaluate_series(terminal, source, series_model, horizon, draws, test, saved, outputs)
        elif saved is not None:
            evaluation.evaluate_saved_rows(terminal, saved, rows, outputs)
        else:
            evaluation.evaluate_rows(terminal, regression.read_rows(rows, target or ()), model, test, outputs)


def _check_kind_of_data(horizon: str | None, of_rows: list[str], of_series: list[str]) -> None:
    """Options of rows and those of series do not go together."""
    if horizon is None and of_series:
        raise OptionError(f"{of_series[0]} is for series, but there is no --horizon; name one, such as 24.")
    if horizon is not None and of_rows:
        raise OptionError(f"{of_rows[0]} is for rows and --horizon is for series; expected only one of them.")


@app.command(
    no_args_is_help=True,
    epilog="Examples: wishflow launch -n 2 fit.py; "
    "wishflow launch --hosts 4 --host 1 --coordinator node0:1234 fit.py --rows 1000",
    context_settings={"allow_interspersed_args": False},
)
@grouped
def launch(
    talking: options.Talking,
    script: Annotated[Path, typer.Argument(help="The Python script that all processes run.", show_default=False)],
    arguments: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(help="Arguments of the script.", show_default=False),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", "-n", min=1, help="Processes on this host.")] = 1,
    hosts: Annotated[int, typer.Option(min=1, help="Number of hosts; each runs the same number of processes.")] = 1,
    host: Annotated[int, typer.Option(min=0, help="Number of this host, from 0.")] = 0,
    coordinator: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Address of host 0, as HOST:PORT.", show_default="a free port of this host"),
    ] = None,
    heartbeat: Annotated[
        int, typer.Option(min=1, help="Seconds without a sign of life after which a process counts as dead.")
    ] = 30,
) -> None:
    """Run a script in several processes that fit one model together, with `fit(..., devices="all")`."""
    with answering(talking) as terminal:
        from . import launching

        job = launching.Job(script, tuple(arguments or ()), processes, hosts, host, coordinator, heartbeat)
        launching.run_launch(terminal, job)


# --- the package itself ----------------------------------------------------------------------


@app.command(epilog="Example: wishflow demo --output figures")
@grouped
def demo(
    talking: options.Talking,
    output: Annotated[Path, typer.Option(help="Folder for the figures; created if missing.")] = Path("demo_output"),
    quick: Annotated[bool, typer.Option("--quick", help="Train for a few steps only.")] = False,
) -> None:
    """Fit the models side by side on simulated data with a known truth."""
    with answering(talking) as terminal:
        if find_spec("matplotlib") is None:
            raise OptionError("the demo draws figures, but matplotlib is missing; pip install 'wishflow[demo]'.")
        from . import demo as demonstration  # loads all of the library; the other commands need little of it

        demonstration.main(terminal, output, quick=quick)


@app.command(
    epilog="Example: make reproduce-uci", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def reproduce() -> None:
    """Show where the paper's experiments are."""
    typer.echo(
        "The paper's experiments are in the repository, not in the package. In a clone, run `make reproduce-uci` or "
        "`make reproduce-beijing` (see studies/README.md).",
        err=True,
    )
    raise typer.Exit(2)


@app.command(epilog="Example: wishflow info houses.wishflow")
@grouped
def info(
    talking: options.Talking,
    model: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="A model file.", show_default="none: versions and devices"),
    ] = None,
) -> None:
    """Show the contents of a model file, or versions and devices for bug reports."""
    with answering(talking) as terminal:
        if model is not None:
            from . import evaluation

            evaluation.run_info(terminal, model)
        else:
            found = environment()
            terminal.result(found, "\n".join(f"{name:<14}{value}" for name, value in found.items()))


def environment() -> dict[str, str]:
    """Versions, platform and devices, by name; for bug reports."""
    import jax

    devices = ", ".join(str(device) for device in jax.devices())
    versions = {name: _version(name) for name in REPORTED_PACKAGES}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        **versions,
        "backend": jax.default_backend(),
        "devices": devices,
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def main() -> None:
    """Entry point of the console script `wishflow`."""
    app()


if __name__ == "__main__":
    main()
