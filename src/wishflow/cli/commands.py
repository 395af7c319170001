"""The command line: parse, call, print."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Annotated, Optional

import typer

from .. import __version__
from ..errors import OptionError
from . import options
from .terminal import answering

app = typer.Typer(
    help="Stochastic differential equations with Wishart diffusions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # --debug shows a plain traceback
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 data or files that cannot be used, 2 wrong options, 130 stopped. "
    "`wishflow --install-completion` completes commands and options in your shell.",
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
def fit(
    data: options.Data,
    target: options.Targets,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file.")] = Path("model.wishflow"),
    drop: options.Drop = None,
    task: options.Task = "auto",
    model: options.Kind = "flow",
    members: options.Members = 1,
    seed: options.Seed = 0,
    max_iter: options.MaxIter = None,
    drop_missing: options.DropMissing = False,
    separator: options.Separator = None,
    report: options.Report = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Fit a regression or a classification to a table."""
    with answering(quiet, as_json, debug) as terminal:
        from . import regression

        how = regression.Model(model, members, seed, max_iter)
        regression.run_fit(terminal, data, output, target, drop or [], task, how, drop_missing, separator, report)


@app.command(no_args_is_help=True, epilog="Example: wishflow predict houses.wishflow new.csv -o predictions.csv")
def predict(
    model: Annotated[Path, typer.Argument(help="A file that `wishflow fit` wrote.", show_default=False)],
    data: options.Data,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="CSV or Parquet file.", show_default="standard output"),
    ] = None,
    quantile: options.Quantiles = options.QUANTILES,
    inputs: Annotated[bool, typer.Option(help="Whether the columns of the table are written too.")] = True,
    drop_missing: options.DropMissing = False,
    separator: options.Separator = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Predict new rows: mean, sd and quantiles of each target, or probabilities of the classes."""
    with answering(quiet, as_json, debug) as terminal:
        from . import regression

        regression.run_predict(terminal, model, data, output, quantile, inputs, drop_missing, separator)


@app.command(
    no_args_is_help=True,
    epilog="Example: wishflow forecast air.csv --time date --horizon 48h -o forecast.csv --report report.html",
)
def forecast(
    horizon: Annotated[str, typer.Option(help="Steps such as 48, or a span such as 48h.", show_default=False)],
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="The series, CSV or Parquet; not needed with --from.", show_default=False),
    ] = None,
    time: options.Time = None,
    series: options.Series = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="CSV or Parquet file.", show_default="standard output"),
    ] = None,
    report: options.Report = None,
    saved: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--from", help="Saved model to go on with: rows after its data are added.", show_default=False),
    ] = None,
    save: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write the fitted model to this file.", show_default=False),
    ] = None,
    freq: options.Freq = None,
    quantile: options.Quantiles = options.QUANTILES,
    draws: options.Draws = 1000,
    seed: options.Seed = 0,
    max_iter: options.MaxIter = None,
    date_format: options.DateFormat = None,
    separator: options.Separator = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Forecast series that go together: joint sample paths, and their mean, sd and quantiles."""
    with answering(quiet, as_json, debug) as terminal:
        from . import forecasting

        source = None if data is None else forecasting.Source(data, time, series or (), separator, date_format)
        how = forecasting.Forecasting(horizon, freq, seed, draws, max_iter)
        forecasting.run_forecast(terminal, source, output, how, quantile, saved, save, report)


@app.command(
    no_args_is_help=True,
    epilog="Examples: wishflow evaluate houses.csv --target price; wishflow evaluate air.csv --time date --horizon 24h",
)
def evaluate(
    data: options.Data,
    target: options.SomeTargets = None,
    horizon: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Of series: steps such as 24, or a span such as 24h.", show_default=False),
    ] = None,
    saved: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--from", help="Score this model, on data it has not seen.", show_default=False),
    ] = None,
    test: Annotated[float, typer.Option(help="Share of the rows that is held out; of series the last ones.")] = 0.2,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="Also write the scores to this file.", show_default=False),
    ] = None,
    report: options.Report = None,
    drop: options.Drop = None,
    task: options.Task = "auto",
    model: options.Kind = "flow",
    members: options.Members = 1,
    time: options.Time = None,
    series: options.Series = None,
    freq: options.Freq = None,
    draws: options.Draws = 500,
    seed: options.Seed = 0,
    max_iter: options.MaxIter = None,
    drop_missing: options.DropMissing = False,
    date_format: options.DateFormat = None,
    separator: options.Separator = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Hold rows out and score them: beside a sparse GP, or for series beside a VAR and a random walk."""
    with answering(quiet, as_json, debug) as terminal:
        from . import evaluation, forecasting, regression

        outputs = evaluation.Outputs(output, report)
        outputs.check()
        if horizon is not None:
            source = forecasting.Source(data, time, series or (), separator, date_format)
            how = forecasting.Forecasting(horizon, freq, seed, draws, max_iter)
            evaluation.evaluate_series(terminal, source, how, test, saved, outputs)
        elif saved is not None:
            evaluation.evaluate_saved_rows(terminal, saved, data, drop_missing, separator, outputs)
        elif target:
            rows = regression.read_rows(data, target, drop or [], task, drop_missing, separator)
            evaluation.evaluate_rows(terminal, rows, regression.Model(model, members, seed, max_iter), test, outputs)
        else:
            raise OptionError(
                "neither --target nor --horizon was given; expected --target for rows, --horizon for series."
            )


# --- the package itself ----------------------------------------------------------------------


@app.command(epilog="Example: wishflow demo --output figures")
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the figures; made if missing.")] = Path("demo_output"),
    quick: Annotated[bool, typer.Option("--quick", help="Train for a few steps only.")] = False,
) -> None:
    """Fit the models side by side on simulated data with a known truth."""
    try:
        from .. import plotting  # noqa: F401
    except ImportError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    from . import demo as demonstration  # loads all of the library; the other commands need little of it

    raise typer.Exit(demonstration.main(output, quick=quick))


@app.command(
    epilog="Example: make reproduce-uci", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def reproduce() -> None:
    """Say where the paper's experiments are: they belong to the repository, not to the package."""
    typer.echo(
        "The paper's tables and figures are made in a clone of the repository, by `make reproduce-uci` and "
        "`make reproduce-beijing` (studies/README.md).",
        err=True,
    )
    raise typer.Exit(2)


@app.command(epilog="Example: wishflow info houses.wishflow")
def info(
    model: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(help="A model file.", show_default="none: versions and devices"),
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Print what a model file holds, or versions and the device JAX computes on."""
    with answering(False, as_json, debug) as terminal:
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
