"""The command line: parse, call, print."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Stochastic differential equations with Wishart diffusions.",
    no_args_is_help=True,
    add_completion=False,
)

REPORTED_PACKAGES = ("wishflow", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "pandas", "scikit-learn")


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the figures; made if missing.")] = Path("demo_output"),
    quick: Annotated[bool, typer.Option("--quick", help="Train for a few steps only.")] = False,
) -> None:
    """Fit the models side by side on simulated data with a known truth."""
    from . import demo as demonstration  # loads all of the library; the other commands need little of it

    raise typer.Exit(demonstration.main(output, quick=quick))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def reproduce() -> None:
    """Say where the paper's experiments are: they belong to the repository, not to the package."""
    typer.echo(
        "The paper's tables and figures are made in a clone of the repository, by `make reproduce-uci` and "
        "`make reproduce-beijing` (studies/README.md).",
        err=True,
    )
    raise typer.Exit(2)


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
