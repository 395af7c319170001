"""What the commands of the studies have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax
import typer

from wishflow.errors import WishflowError
from wishflow.numerics.devices import enable_compilation_cache


@contextlib.contextmanager
def suite_errors() -> Iterator[None]:
    """Around a suite: programs compiled before a stop are there after it; our own errors are printed, not traced."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        enable_compilation_cache()
    try:
        yield
    except WishflowError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2) from error
