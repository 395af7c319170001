"""What the commands share: notes on standard error, one result on standard output, errors as a line and an exit code.

Exit codes: 0 done, 1 data or files that cannot be used, 2 wrong options, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from ..errors import OptionError, TrainingWarning, WishflowError
from .options import Talking

BAD_DATA, BAD_USAGE, STOPPED = 1, 2, 130


@dataclasses.dataclass(frozen=True)
class Terminal:
    """Where a command writes to.

    Parameters
    ----------
    quiet : bool
        Whether notes and progress are left out.
    as_json : bool
        Whether the result is one JSON object on standard output, in place of words.
    """

    quiet: bool = False
    as_json: bool = False

    @property
    def verbose(self) -> int:
        """What estimators are told: 1 shows their progress."""
        return 0 if self.quiet else 1

    def note(self, text: str) -> None:
        """Say something about what is done, on standard error."""
        if not self.quiet:
            typer.echo(text, err=True)

    def result(self, answer: dict[str, Any], words: str) -> None:
        """Print what was asked for: the answer as JSON, or words."""
        if self.as_json:
            typer.echo(json.dumps(_finite(answer), default=str, allow_nan=False))
        elif not self.quiet:
            typer.echo(words)

    @contextlib.contextmanager
    def progress(self, title: str, total: int) -> Iterator[Any]:
        """Show how many of `total` parts are done, with the time left; yields a function to call after each part."""
        import time

        from ..callbacks import ChunkEvent, ProgressBar

        bar, start, done = ProgressBar(), time.perf_counter(), 0

        def advance(n_parts: int = 1) -> None:
            nonlocal done
            done += n_parts
            if not self.quiet:
                bar.on_chunk(ChunkEvent(title, done, total, {}, time.perf_counter() - start))

        if not self.quiet:
            bar.on_start(title, total)
        try:
            yield advance
        finally:
            bar.on_end()


class Commands(TyperGroup):
    """The commands; what is wrong with their arguments is said in a line, as all other errors are."""

    def main(  # type: ignore[override]
        self, args: Any = None, prog_name: Any = None, *, standalone_mode: bool = True, **named: Any
    ) -> Any:
        args = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(args, prog_name, standalone_mode=False, **named)
        except Exception as error:
            # Which module of typer or click defines these errors depends on its version.
            if not standalone_mode or not hasattr(error, "format_message"):
                raise
            code = _say_usage(error, "--json" in args)
        if not standalone_mode:
            return code
        sys.exit(code or 0)


def _say_usage(error: Any, as_json: bool) -> int:
    context: Any = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(context.get_help())  # with rich it is printed there, and the text is empty
        return BAD_USAGE
    command = "wishflow" if context is None or context.parent is None else f"wishflow {context.info_name}"
    text = " ".join(str(error.format_message()).split())
    if not text.endswith((".", "?", ")")):
        text += "."
    _say_error(f"{text} `{command} --help` lists the options.", BAD_USAGE, as_json)
    return BAD_USAGE


def _say_error(text: str, code: int, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"error": text, "exit_code": code}))
    else:
        typer.echo(f"Error: {text}", err=True)


@contextlib.contextmanager
def answering(talking: Talking) -> Iterator[Terminal]:
    """Run a command: its errors become a line and an exit code, its warnings a line; with `debug` all is shown."""
    terminal, debug = Terminal(talking.quiet, talking.as_json), talking.debug
    with warnings.catch_warnings():
        if not debug:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.simplefilter("always", TrainingWarning)
            warnings.showwarning = lambda message, *_, **__: terminal.note(f"Warning: {message}")
        try:
            yield terminal
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:  # the reader of standard output, such as `head`, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor may the flush at exit complain
            raise typer.Exit(0) from None
        except (Exception, KeyboardInterrupt) as error:
            if debug:
                raise
            code, text = _explained(error)
            _say_error(text, code, terminal.as_json)
            raise typer.Exit(code) from None


def _explained(error: BaseException) -> tuple[int, str]:
    """Exit code and words of an error."""
    if isinstance(error, KeyboardInterrupt):
        return STOPPED, "stopped by Ctrl-C."
    if isinstance(error, OptionError):
        return BAD_USAGE, str(error)
    if isinstance(error, WishflowError):
        return BAD_DATA, str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return BAD_DATA, f"{error.filename}: {error.strerror}."
    # Those of other libraries may have many lines.
    first = str(error).strip().partition("\n")[0]
    return BAD_DATA, f"{type(error).__name__}: {first} (--debug shows where)"


def _finite(answer: Any) -> Any:
    """An answer in which numbers that JSON does not know are None."""
    if isinstance(answer, dict):
        return {key: _finite(value) for key, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [_finite(value) for value in answer]
    return None if isinstance(answer, float) and not math.isfinite(answer) else answer
