"""Mistakes of new users, each with what it looks like: `python -m tests.mistakes` writes them into the page.

A mistake is a command line or a few lines of Python, run in a folder with small files; the page shows what it prints.
`tests/test_mistakes.py` compares the page with what is printed now.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import tempfile
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from typer.testing import CliRunner

import wishflow as wf
from wishflow.cli.commands import app

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "troubleshooting.md"
START, END = "<!-- mistakes -->\n", "<!-- /mistakes -->\n"
WIDTH = 112


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A title, what was done (a command, or lines of Python), and what to do instead; `code` is the exit code."""

    title: str
    done: str
    remedy: str
    code: int = 1

    @property
    def is_command(self) -> bool:
        return self.done.startswith("wishflow ")


TABLES = (
    Mistake(
        "A missing file",
        "wishflow fit hoses.csv --target price",
        "The message suggests a file with a similar name, if there is one.",
    ),
    Mistake(
        "An unknown column",
        "wishflow fit houses.csv --target prize",
        "Column names are case-sensitive: Price is not price.",
    ),
    Mistake(
        "Neither a target nor a horizon",
        "wishflow evaluate houses.csv",
        "Name what to predict: a column (`--target`) or a time span (`--horizon`).",
        2,
    ),
    Mistake(
        "A file that is not UTF-8",
        "wishflow fit windows.csv --target price",
        "Separators and decimal commas are detected automatically; encodings are not.",
    ),
    Mistake(
        "Ambiguous numbers",
        "wishflow fit thousands.csv --target price",
        "The cell 1,250 may mean 1250 or 1.25.",
    ),
    Mistake("No header", "wishflow fit headless.csv --target price", "The first line must name the columns."),
    Mistake("An empty file", "wishflow fit empty.csv --target price", "Check how the file was made."),
    Mistake(
        "A file with only a header", "wishflow fit header.csv --target price", "Check the query that produced the file."
    ),
    Mistake("A spreadsheet", "wishflow fit houses.xlsx --target price", "Save the sheet as CSV in UTF-8."),
    Mistake(
        "Text among the inputs",
        "wishflow fit cities.csv --target price",
        "`--categories city` makes a 0/1 input from each city, here and in `predict`.",
    ),
    Mistake(
        "Text in a numeric column",
        "wishflow fit typos.csv --target price",
        "Empty cells, `NA`, `nan`, `?` and `-` count as missing; other text must be corrected.",
    ),
    Mistake(
        "Empty cells among the inputs",
        "wishflow fit holes.csv --target price",
        "`--drop-missing` leaves these rows out. Series, in contrast, may have holes.",
    ),
    Mistake(
        "Rows without a target",
        "wishflow fit unsold.csv --target price",
        "Drop rows without a target with `--drop-missing`. You can predict them later.",
    ),
    Mistake(
        "A sparse GP for classes",
        "wishflow fit kinds.csv --target kind --drop size --model sgp",
        "Leave `--model` out.",
        2,
    ),
    Mistake(
        "Two class targets",
        "wishflow fit kinds.csv --target kind --target size --task classify",
        "Fit one model for each target.",
        2,
    ),
    Mistake(
        "A missing folder",
        "wishflow fit houses.csv --target price -o models/houses.wishflow",
        "Outputs are checked before the fit, so no time is lost.",
        2,
    ),
    Mistake(
        "An output with the wrong extension",
        "wishflow fit houses.csv --target price -o houses.csv",
        "Model files have the extension `.wishflow`.",
        2,
    ),
)
PREDICTIONS = (
    Mistake(
        "A missing column",
        "wishflow predict houses.wishflow narrow.csv",
        "Columns are matched by name, in any order; other columns do not matter.",
    ),
    Mistake(
        "An unknown label",
        "wishflow predict cities.wishflow elsewhere.csv",
        "The model cannot predict for a label that was not in its training data.",
    ),
    Mistake(
        "A model of the wrong kind",
        "wishflow predict air.wishflow new.csv",
        "`wishflow info air.wishflow` says what a model file holds.",
    ),
    Mistake(
        "A table instead of a model file",
        "wishflow predict houses.csv new.csv",
        "The model comes first, then the table.",
    ),
    Mistake(
        "Inputs far outside the training data",
        "wishflow predict houses.wishflow far.csv -o out.csv",
        "This is a warning. Check units (thousands, degrees) before you trust these rows.",
        0,
    ),
    Mistake("A quantile in percent", "wishflow predict houses.wishflow new.csv --quantile 95", "Write 0.95.", 2),
)
SERIES = (
    Mistake(
        "A horizon of zero",
        "wishflow forecast air.csv --horizon 0",
        "Horizons count from 1, the first step after the data.",
        2,
    ),
    Mistake("A horizon in words", "wishflow forecast air.csv --horizon 'two days'", "Write 48h or 2d.", 2),
    Mistake(
        "An unknown time column",
        "wishflow forecast air.csv --time day --horizon 24",
        "Give the name of a column of the file.",
    ),
    Mistake("No date column", "wishflow forecast houses.csv --horizon 24", "Numbers can be stamps too: `--time week`."),
    Mistake(
        "Ambiguous dates",
        "wishflow forecast european.csv --time date --horizon 24",
        "ISO 8601 dates (2024-02-01) are unambiguous. Other dates need `--date-format`, or a day after the twelfth.",
    ),
    Mistake(
        "Rows out of order",
        "wishflow forecast shuffled.csv --from air.wishflow --horizon 2 -o out.csv",
        "The command line sorts the rows and prints a note. In Python, call `sort_index()` yourself.",
        0,
    ),
    Mistake(
        "Two values for one timestamp",
        "wishflow forecast twice.csv --horizon 24",
        "If the file holds several stations, name their column: `--id station`. Otherwise take a mean.",
    ),
    Mistake(
        "An invalid date",
        "wishflow forecast baddate.csv --time date --horizon 24",
        "Lines are counted from the header, which is line 1.",
    ),
    Mistake(
        "Text among the series",
        "wishflow forecast stations.csv --horizon 24",
        "Name the columns to forecast, or the column that identifies the series of a panel.",
    ),
    Mistake(
        "A constant series",
        "wishflow forecast stuck.csv --horizon 24",
        "Leave the series out; its sensor may be defective.",
    ),
    Mistake(
        "Irregular timestamps",
        "wishflow forecast irregular.csv --horizon 24",
        "`--freq h` moves each row to the nearest hour; hours without a row are missing.",
        2,
    ),
    Mistake(
        "Series that the model does not have",
        "wishflow forecast renamed.csv --from air.wishflow --horizon 24",
        "Column names must be those used in the fit.",
    ),
    Mistake(
        "Covariates that end with the data",
        "wishflow forecast air.csv --covariates no2 --horizon 24",
        "Covariates must be known in advance. Forecast other columns as series: leave `--covariates` out.",
    ),
    Mistake(
        "A covariate with missing values",
        "wishflow forecast priced.csv --covariates price --horizon 4",
        "Only series may have missing values. Fill covariates with what was known at the time.",
    ),
    Mistake(
        "Future rows without covariates",
        "wishflow forecast air.csv --future prices.csv --horizon 4",
        "Name the covariates with `--covariates`.",
        2,
    ),
    Mistake(
        "No covariates for the horizon",
        "wishflow forecast --from load.wishflow --horizon 4",
        "The file needs a time column and the covariates, with one row for each step.",
        2,
    ),
    Mistake(
        "A scenario outside the horizon",
        "wishflow forecast air.csv --horizon 2 --given plan.csv",
        "Use a longer `--horizon`.",
    ),
    Mistake(
        "A scenario for an unknown series",
        "wishflow forecast air.csv --horizon 4 --given prices.csv",
        "`--given` accepts only series of the model. Pass other known values as covariates.",
    ),
    Mistake(
        "An id for a model of one series",
        "wishflow forecast stations.csv --from air.wishflow --id station --horizon 4",
        "Fit a panel: `wishflow forecast stations.csv --id station --save stations.wishflow --horizon 4`.",
        2,
    ),
    Mistake(
        "A report of a panel",
        "wishflow forecast stations.csv --id station --horizon 4 --report report.html",
        "In Python, each forecast has its own report: `model.forecast(4)['north'].report('north.html')`.",
        2,
    ),
    Mistake(
        "A panel without a horizon",
        "wishflow evaluate stations.csv --id station --target pm25",
        "To evaluate series, use `--horizon 24h` instead of `--target`.",
        2,
    ),
)
PYTHON = (
    Mistake(
        "Dates as strings",
        'wf.WishartForecaster().fit(pd.read_csv("air.csv", index_col="date"))',
        "Use `parse_dates=True`, or `pd.to_datetime` on the index.",
    ),
    Mistake(
        "Unsorted dates",
        'wf.WishartForecaster().fit(pd.read_csv("shuffled.csv", index_col="date", parse_dates=True))',
        "Sort before you fit.",
    ),
    Mistake(
        "Predicting before fitting",
        "wf.FlowRegressor().predict([[1.0, 2.0]])",
        "Call `fit` first; it returns the estimator.",
    ),
    Mistake(
        "Missing targets",
        "wf.SparseGPRegressor().fit([[1.0], [2.0], [3.0]], [1.0, np.nan, 2.0])",
        "Drop these rows.",
    ),
    Mistake(
        "X and y of different lengths",
        "wf.SparseGPRegressor().fit(np.zeros((5, 2)), np.zeros(4))",
        "Check whether rows of only one of them were filtered.",
    ),
    Mistake(
        "Labels given to a regressor",
        'wf.FlowRegressor().fit([[1.0], [2.0], [3.0]], ["low", "high", "low"])',
        "Use `FlowClassifier` for labels.",
    ),
    Mistake(
        "Numbers given to a classifier",
        "wf.FlowClassifier().fit([[1.0], [2.0], [3.0]], [0.13, 2.7, 1.9])",
        "Use `FlowRegressor` for numbers.",
    ),
    Mistake(
        "A misspelt option",
        'wf.SparseGPRegressor(kernel="rfb").fit([[1.0], [2.0]], [1.0, 2.0])',
        "The message lists the valid names.",
    ),
    Mistake(
        "A logarithm of zero",
        'wf.WishartForecaster(transform="log").fit(pd.DataFrame({"rain": [0.0, 1.0, 0.5] * 30}))',
        'Use `transform="log1p"` for values that may be zero.',
    ),
)
SECTIONS = {
    "Tables": TABLES,
    "Predictions": PREDICTIONS,
    "Series": SERIES,
    "In Python": PYTHON,
}
ALL = tuple(mistake for mistakes in SECTIONS.values() for mistake in mistakes)


# --- the files they are made with ---


def write_files() -> None:
    """Small files and models, in the working directory."""
    rng = np.random.default_rng(0)
    area, age = rng.uniform(50, 200, 40).round(), rng.integers(0, 80, 40)
    houses = pd.DataFrame({"area": area, "age": age, "price": (2.0 * area - age + rng.normal(size=40)).round(1)})
    houses.to_csv("houses.csv", index=False)
    houses.rename(columns={"age": "âge"}).to_csv("windows.csv", index=False, encoding="cp1252")
    houses.assign(price=[f"1,{250 + row}" for row in range(40)]).to_csv("thousands.csv", index=False)
    houses.to_csv("headless.csv", index=False, header=False)
    houses.head(0).to_csv("header.csv", index=False)
    Path("empty.csv").write_text("")
    Path("houses.xlsx").write_text("")
    houses.assign(city=["Paris", "Lyon"] * 20).to_csv("cities.csv", index=False)
    houses.assign(city="Nice").to_csv("elsewhere.csv", index=False)
    houses.astype({"age": object}).replace({"age": {age[7]: "unknown"}}).to_csv("typos.csv", index=False)
    houses.assign(age=houses["age"].where(houses.index % 10 != 3)).to_csv("holes.csv", index=False)
    houses.assign(price=houses["price"].where(houses.index % 8 != 5)).to_csv("unsold.csv", index=False)
    kinds = np.where(area > 120, "house", "flat")
    houses.assign(kind=kinds, size=kinds).drop(columns="price").to_csv("kinds.csv", index=False)
    houses[["area", "age"]].head(5).to_csv("new.csv", index=False)
    houses[["area"]].head(5).to_csv("narrow.csv", index=False)
    houses[["area", "age"]].head(5).assign(area=[120.0, 1.2e6, 9e5, 80.0, 2e6]).to_csv("far.csv", index=False)
    wf.SparseGPRegressor(n_inducing=5, max_iter=5).fit(houses[["area", "age"]], houses["price"]).save("houses.wishflow")
    in_paris = houses.assign(**{"city=Lyon": [0.0, 1.0] * 20, "city=Paris": [1.0, 0.0] * 20})
    gp = wf.SparseGPRegressor(n_inducing=5, max_iter=5)
    gp.fit(in_paris.drop(columns="price"), houses["price"]).save("cities.wishflow")
    _write_series(rng)


def _write_series(rng: np.random.Generator) -> None:
    index = pd.date_range("2024-01-20", periods=80, freq="h", name="date")
    air = pd.DataFrame(rng.normal(size=(80, 2)).cumsum(axis=0).round(2), index, ["pm25", "no2"])
    air.to_csv("air.csv")
    early = air.set_axis(pd.date_range("2024-02-01", periods=80, freq="h", name="date"))
    early.to_csv("european.csv", date_format="%d.%m.%Y %H:%M")
    air.sample(frac=1.0, random_state=0).to_csv("shuffled.csv")
    pd.concat([air, air.iloc[3:4] + 1.0]).sort_index().to_csv("twice.csv")
    text = air.reset_index().astype({"date": str})
    text.loc[11, "date"] = "2024-01-32 11:00:00"
    text.to_csv("baddate.csv", index=False)
    air.assign(station="north").to_csv("stations.csv")
    air.assign(so2=0.0).to_csv("stuck.csv")
    air.rename(columns={"no2": "NO2"}).to_csv("renamed.csv")
    late = air.set_axis(index + pd.to_timedelta(rng.integers(0, 50, 80), unit="min"))
    late.rename_axis("date").to_csv("irregular.csv")
    later = pd.date_range(index[-1] + pd.Timedelta("1h"), periods=4, freq="h", name="date")
    price = pd.DataFrame({"price": rng.normal(size=84).round(2)}, index.append(later))
    price.loc[later].to_csv("prices.csv")
    air.join(price, how="right").assign(price=price["price"].where(price.index != index[5])).to_csv("priced.csv")
    pd.DataFrame({"pm25": [3.0]}, later[3:]).rename_axis("date").to_csv("plan.csv")
    options = {"n_inducing": 5, "max_iter": 2, "validation_fraction": 0}
    wf.WishartForecaster(**options).fit(air.iloc[:70]).save("air.wishflow")
    wf.WishartForecaster(**options).fit(air.iloc[:70], price).save("load.wishflow")


@contextlib.contextmanager
def folder_of_mistakes() -> Iterator[None]:
    """A folder with the files as the working directory."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        os.chdir(folder)
        try:
            write_files()
            yield
        finally:
            os.chdir(before)


# --- what they print ---


def printed(mistake: Mistake) -> tuple[int, str]:
    """The exit code and the message of a mistake; of Python the error with its type, and 1."""
    if mistake.is_command:
        result = CliRunner().invoke(app, shlex.split(mistake.done)[1:])
        told = [line for line in result.stderr.splitlines() if line.startswith(("Error:", "Warning:", "Note:"))]
        return result.exit_code, "\n".join(told)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(mistake.done, {"wf": wf, "np": np, "pd": pd})
    except Exception as error:
        return 1, f"{type(error).__name__}: {str(error).strip()}"
    return 0, ""


def entry(mistake: Mistake, message: str) -> str:
    """A mistake as it stands on the page."""
    kind, prompt = ("console", "$ ") if mistake.is_command else ("pycon", ">>> ")
    lines = [wrapped for line in message.splitlines() for wrapped in textwrap.wrap(line, WIDTH)]
    block = "\n".join([f"```{kind}", prompt + mistake.done, *lines, "```"])
    return f"### {mistake.title}\n\n{block}\n\n{textwrap.fill(mistake.remedy, WIDTH)}\n"


def generated(messages: dict[str, str]) -> str:
    """The generated part of the page, from messages by title."""
    parts = []
    for title, mistakes in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [entry(mistake, messages[mistake.title]) for mistake in mistakes]
    return "\n".join(parts) + "\n"


def split_page() -> tuple[str, str, str]:
    """What stands before the generated part, the part, and what stands after it."""
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    part, after = rest.split(END)
    return before, part, after


def main() -> None:
    """Write the page."""
    with folder_of_mistakes():
        messages = {mistake.title: printed(mistake)[1] for mistake in ALL}
    before, _, after = split_page()
    PAGE.write_text(before + START + generated(messages) + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
