"""The command line: parse, call, print."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Stochastic differential equations with Wishart diffusions.",
    no_args_is_help=True,
    add_completion=False,
)

reproduce = typer.Typer(help="Make the paper's tables and figures from scratch.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")

REPORTED_PACKAGES = ("wishflow", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "pandas", "scikit-learn")


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the figures; made if missing.")] = Path("demo_output"),
    quick: Annotated[bool, typer.Option("--quick", help="Train for a few steps only.")] = False,
) -> None:
    """Fit the models side by side on simulated data with a known truth."""
    from .experiments import demo as demonstration  # loads all of the library; the other commands need little of it

    raise typer.Exit(demonstration.main(output, quick=quick))


@reproduce.command()
def uci(
    data: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Data sets, repeated or with commas; all eight if none.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="sgp, nonoise, diffgp, diffwgp5, diffwgp10, repeated or with commas; all if none."
        ),
    ] = None,
    splits: Annotated[int, typer.Option(min=1, help="Random 90/10 splits of each data set.")] = 20,
    preset: Annotated[str, typer.Option(help="Settings: fast, or paper for the paper's own.")] = "fast",
    group: Annotated[
        int | None, typer.Option(min=1, help="Splits trained at once; all if none. Fewer need less memory.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Cells trained side by side, each in its own process.")] = 1,
    output: Annotated[Path, typer.Option(help="Folder of results; made if missing.")] = Path("results/reproduction"),
    report_only: Annotated[bool, typer.Option("--report-only", help="Train nothing; tables and page anew.")] = False,
) -> None:
    """The UCI regression tables: train and score, skip what is done, write tables, figures and a page.

    Each finished cell (a data set and a model) is one file, so the command can be stopped and started again.
    """
    from .experiments.uci import reproduce as reproduction

    with _told_errors():
        code = reproduction.main(
            output,
            data=data or (),
            models=models or (),
            n_splits=splits,
            preset=preset,
            group=group,
            n_processes=processes,
            is_report_only=report_only,
        )
    raise typer.Exit(code)


@reproduce.command()
def beijing(
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="walk, var3, var24 (these need the extra compare), ensemble, wishart_state, wishart, "
            "diagonal_state, diagonal, nodrift, linear, rollout, repeated or with commas; all if none.",
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
    validation: Annotated[
        bool, typer.Option("--validation", help="Score October to December 2015 and read nothing of 2016.")
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder of results; made if missing.")] = Path("results/beijing"),
    report_only: Annotated[bool, typer.Option("--report-only", help="Train nothing; tables and page anew.")] = False,
) -> None:
    """Air quality in Beijing: the paper's two figures, and rolling forecasts over 2016 beside VARs.

    Each finished cell (scores, traces or joint density of a model) is one file, so the command can be stopped and
    started again.
    """
    from .experiments.beijing import reproduce as reproduction

    with _told_errors():
        code = reproduction.main(
            output,
            models=models or (),
            n_draws=draws,
            n_members=members,
            missing=missing,
            n_processes=processes,
            is_validation=validation,
            is_report_only=report_only,
        )
    raise typer.Exit(code)


@contextlib.contextmanager
def _told_errors() -> Iterator[None]:
    """Around a suite: programs compiled before a stop are there after it; our own errors are printed, not traced."""
    import jax

    from .errors import WishflowError
    from .runtime import enable_compilation_cache

    if jax.config.values["jax_compilation_cache_dir"] is None:
        enable_compilation_cache()
    try:
        yield
    except WishflowError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error


@app.command()
def info() -> None:
    """Print the versions that matter and the device JAX computes on."""
    for name, value in environment().items():
        typer.echo(f"{name:<14}{value}")


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
