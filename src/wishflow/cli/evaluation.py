"""`evaluate`: held-out scores and calibration, beside those of simple models."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import backtest, enable_compilation_cache
from ..errors import DataError, OptionError
from ..numerics.tables import in_words
from ..regression.data import names_of_targets
from ..series.data.horizons import horizon
from .forecasting import built, forecaster_of, horizon_of
from .options import RowModel, SeriesModel
from .regression import Rows, fitted_to, inputs_of, loaded, regressor_of
from .regression import Source as RowSource
from .rivals import EachSeries, RandomWalk, VectorAutoregression
from .series_files import SeriesData, Source, check_matches, check_regular
from .tables import PAGE, TABLES, check_columns, check_output, counted, numbers, write_table
from .terminal import Terminal

LEAST_ROWS = 20
# Origins of a rolling evaluation: more cost time and say little more.
MOST_ORIGINS = 50
# Of each series of a panel.
LEAST_ORIGINS = 3
COVERAGE = 0.8
VAR_LAGS = 3


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Where scores go: a table of them, and a report."""

    table: Path | None = None
    report: Path | None = None

    def check(self) -> None:
        """Before the work is done."""
        check_output(self.table, TABLES, "-o")
        check_output(self.report, PAGE, "--report")


def answered(terminal: Terminal, scores: pd.DataFrame, title: str, outputs: Outputs, more: dict[str, Any]) -> None:
    """Print scores with a row for each model, and write them."""
    if outputs.table is not None:
        write_table(scores.rename_axis("model").reset_index(), outputs.table)
    answer = {"scores": {str(name): row.to_dict() for name, row in scores.iterrows()}, **more}
    words = f"{title}\n{scores.to_string(float_format=in_words)}"
    files = [f"report written to {outputs.report}"] if outputs.report is not None else []
    terminal.result(answer, "\n".join([words, *files]))


# --- rows ------------------------------------------------------------------------------------


def evaluate_rows(terminal: Terminal, rows: Rows, model: RowModel, test: float, outputs: Outputs) -> None:
    """Fit to a part of the rows and score the rest, beside a sparse GP, or the frequencies of the classes."""
    if not 0.0 < test < 1.0:
        raise OptionError(f"--test {test:g} given; expected a share of the rows between 0 and 1, such as 0.2.")
    n_test = round(test * len(rows.X))
    if n_test < LEAST_ROWS // 4 or len(rows.X) - n_test < LEAST_ROWS // 2:
        raise DataError(
            f"{len(rows.X)} rows leave {n_test} to score and {len(rows.X) - n_test} to fit; expected at least "
            f"{LEAST_ROWS} rows in all, and 5 to score."
        )
    order = np.random.default_rng(model.seed).permutation(len(rows.X))
    train, held = (_part(rows, np.sort(part)) for part in (order[n_test:], order[:n_test]))
    fitted, _ = fitted_to(terminal, train, model)
    terminal.note(fitted.status_)
    scores = {_label(model, rows.classifies): row_scores(fitted, held)}
    if rows.classifies:
        scores["class frequencies"] = frequency_scores(train.y.iloc[:, 0], held.y.iloc[:, 0])
    elif model.model != "sgp":
        rival, _ = fitted_to(Terminal(quiet=True), train, dataclasses.replace(model, model="sgp", max_iter=None))
        scores["sgp"] = row_scores(rival, held)
    _finish_rows(terminal, fitted, held, scores, outputs, f"{counted(len(train.X), 'row')} to fit, {n_test} held out")


def evaluate_saved_rows(terminal: Terminal, path: Path, source: RowSource, outputs: Outputs) -> None:
    """Score a saved model by the rows of a file, which should be others than those of its training."""
    fitted = regressor_of(path)
    frame, targets = source.table(), names_of_targets(fitted)
    check_columns(frame, targets, source.path, "the target of the model")
    X = inputs_of(fitted, frame, source)
    classifies = hasattr(fitted, "classes_")
    y = frame.loc[X.index, targets]
    if classifies:  # labels that are no numbers were fitted as text
        y = y.astype(str if fitted.classes_.dtype.kind in "OU" else fitted.classes_.dtype)
    else:
        y = numbers(y, targets, source.path, "correct the cells")
    held = Rows(X, y, classifies)
    scores = {path.name: row_scores(fitted, held)}
    _finish_rows(terminal, fitted, held, scores, outputs, f"{counted(len(X), 'row')} of {source.path}")


def _finish_rows(
    terminal: Terminal, fitted: Any, held: Rows, scores: dict[str, dict[str, float]], outputs: Outputs, title: str
) -> None:
    if outputs.report is not None:
        fitted.report(outputs.report, held.X, _targets(held))
    answered(terminal, pd.DataFrame(scores).T, title, outputs, {"rows": len(held.X)})


def _part(rows: Rows, at: np.ndarray) -> Rows:
    return Rows(rows.X.iloc[at], rows.y.iloc[at], rows.classifies)


def _targets(rows: Rows) -> Any:
    return rows.y.iloc[:, 0] if rows.y.shape[1] == 1 else rows.y


def _label(model: RowModel, classifies: bool) -> str:
    members = f", {model.members} members" if model.members > 1 else ""
    return f"{'flow' if classifies else model.model}{members}"


def row_scores(fitted: Any, held: Rows) -> dict[str, float]:
    """Scores of held-out rows: of numbers with the coverage of intervals, of classes the accuracy."""
    if held.classifies:
        labels = held.y.iloc[:, 0]
        p = fitted.predict_proba(held.X)
        accuracy = float(np.mean(fitted.classes_[p.argmax(axis=1)] == labels.to_numpy()))
        return {"log_prob": float(np.mean(fitted.log_prob(held.X, labels))), "accuracy": accuracy}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the coverage is among the numbers
        found = fitted.diagnose(held.X, _targets(held))
    covered = {f"in {level:.0%}": share for level, share in found.coverage.items()}
    return {"log_density": found.log_density, "rmse": found.rmse, **covered, "width 95%": found.width[0.95]}


def frequency_scores(train: pd.Series, held: pd.Series) -> dict[str, float]:
    """What the frequencies of the classes alone achieve; a class that training lacks counts as seen once."""
    counts = train.value_counts()
    p = held.map(counts).fillna(1.0).astype(float) / len(train)
    return {"log_prob": float(np.log(p).mean()), "accuracy": float((held == counts.idxmax()).mean())}


# --- series ----------------------------------------------------------------------------------


def evaluate_series(
    terminal: Terminal,
    source: Source,
    model: SeriesModel,
    span: str,
    n_draws: int,
    test: float,
    saved: Path | None,
    outputs: Outputs,
) -> None:
    """Roll forecasts over the last part of the series, of wishflow, a VAR and a random walk."""
    if not 0.0 < test < 1.0:
        raise OptionError(f"--test {test:g} given; expected a share of the rows between 0 and 1, such as 0.3.")
    fh, known = horizon_of(span), None if saved is None else forecaster_of(saved)
    data = source.read(terminal, known)
    y, stamps = data.values, _stamps(data)
    enable_compilation_cache()
    if known is None:
        axis = check_regular(data, model.freq)
        first = round((1.0 - test) * len(stamps))
        if not 2 <= first < len(stamps):
            raise OptionError(
                f"--test {test:g} leaves {first} of {len(stamps)} rows for the fit; expected at least 2 of them, and 1 "
                "held out."
            )
        if axis is not None:
            _check_room(axis, fh, stamps, first, span)
        fitted = built(model, terminal.verbose).fit(_before(y, stamps[first]), data.X)
    else:
        fitted, first = known, _first_after(known, y, stamps)
    most = max(MOST_ORIGINS // len(data.tables), LEAST_ORIGINS)
    n_steps = _check_room(fitted.units_.axis, fh, stamps, first, span)
    step = max(n_steps, -(-(len(stamps) - first) // most))
    rolled: dict[str, Any] = {"X": data.X, "fh": fh, "initial": first, "step": step}
    rolled |= {"n_draws": n_draws, "coverage": COVERAGE, "verbose": terminal.verbose}
    scores = {"wishflow": backtest(fitted, y, **rolled)}
    for name, rival in rivals(data).items():
        try:
            scores[name] = backtest(rival, y, **rolled)
        except (ArithmeticError, ValueError) as error:  # too few rows, or columns that depend on each other
            terminal.note(f"Note: {name} could not be fitted ({str(error).splitlines()[0]}).")
    if outputs.report is not None:
        from ..report import write_report

        write_report(outputs.report, title=f"Backtest of {source.path}", model=fitted, scores=scores)
    table = pd.DataFrame({name: series_scores(found) for name, found in scores.items()}).T
    origins = int(scores["wishflow"]["crps"].notnull().any(("horizon", "variable")).sum())
    rolled_over = counted(origins, "origin") + (f" of {len(data.tables)} ids" if fitted.is_panel_ else "")
    title = f"{counted(first, 'row')} to fit, {rolled_over} in the {len(stamps) - first} after them, horizon {span}"
    answered(terminal, table, title, outputs, {"origins": origins, "horizon": span})


def _check_room(axis: Any, fh: int | str, stamps: pd.Index, first: int, span: str) -> int:
    """The number of steps of a horizon; an error where it is longer than the held-out rows."""
    ahead = horizon(axis, fh, stamps[first - 1])
    if len(ahead) > 1 and ahead[-2] >= stamps[-1]:  # stamps may be less than a step early
        raise OptionError(
            f"--horizon {span} reaches beyond the {len(stamps) - first} held-out rows; give a shorter horizon, or hold "
            "out more rows with --test."
        )
    return len(ahead)


def _stamps(data: SeriesData) -> pd.Index:
    """All stamps of a file in order, of a panel those of all series together."""
    return functools.reduce(
        lambda one, other: one.union(other), (table.index for table in data.tables.values())
    ).unique()


def _before(y: Any, stamp: Any) -> Any:
    return y[y.index.get_level_values(-1) < stamp]


def _first_after(fitted: Any, y: pd.DataFrame, stamps: pd.Index) -> int:
    """The number of stamps up to the end of a saved model; there must be some before and after it."""
    check_matches(fitted, y)
    first = int(stamps.searchsorted(fitted.end_, side="right"))
    if first < 2 or first >= len(stamps):
        raise DataError(
            f"the model has seen rows up to {fitted.end_}, and the file has {first} stamps up to there and "
            f"{len(stamps) - first} after it; expected rows before and after."
        )
    return first


def rivals(data: SeriesData) -> dict[str, Any]:
    """A VAR with the cycle that the stamps can show, and a random walk; of a panel for each series."""
    index = next(iter(data.tables.values())).index
    periods: tuple[str, ...] = ()
    if isinstance(index, pd.DatetimeIndex):
        gap = pd.Series(index).diff().median()
        periods = ("day",) if gap < pd.Timedelta("6h") else ("week",) if gap < pd.Timedelta("2d") else ()
    found = {f"VAR({VAR_LAGS})": VectorAutoregression(VAR_LAGS, periods), "random walk": RandomWalk()}
    is_panel = data.values.index.nlevels > 1
    return {name: EachSeries(rival) for name, rival in found.items()} if is_panel else found


def series_scores(data: Any) -> dict[str, float]:
    """Means of the scores over origins, horizons and variables, of a panel over its series too."""
    found = {"crps": float(data["crps"].mean()), "energy": float(data["energy"].mean())}
    found |= {f"log_density step {int(data['horizon'][0])}": float(data["log_density"].isel(horizon=0).mean())}
    return {**found, f"in {COVERAGE:.0%}": float(data["covered"].mean())}


# --- model files -----------------------------------------------------------------------------


def describe(path: Path) -> dict[str, Any]:
    """What a model file holds."""
    from ..files.model_file import read_model

    fitted = loaded(path)
    header, _ = read_model(path)
    found: dict[str, Any] = {"file": str(path), "class": type(fitted).__name__}
    if hasattr(fitted, "columns_"):
        found |= {"series": [str(name) for name in fitted.columns_], "freq": str(fitted.freq_), "end": str(fitted.end_)}
        found |= {"ids": [str(key) for key in fitted.tails_]} if fitted.is_panel_ else {}
        known = fitted.units_.x_columns
        found |= {} if known is None else {"covariates": [str(name) for name in known]}
    else:
        inputs = getattr(fitted, "feature_names_in_", None)
        found["inputs"] = fitted.n_features_in_ if inputs is None else [str(name) for name in inputs]
        found["targets"] = names_of_targets(fitted)
    if hasattr(fitted, "classes_"):
        found["classes"] = fitted.classes_.tolist()
    provenance = header.get("file", {})
    found |= {"iterations": fitted.n_iter_, "status": fitted.status_, "saved": provenance.get("created")}
    found |= {"wishflow": provenance.get("versions", {}).get("wishflow"), "bytes": path.stat().st_size}
    if hasattr(fitted, "summary"):
        found["summary"] = fitted.summary()
    return found


def run_info(terminal: Terminal, path: Path) -> None:
    """Say what a model file holds."""
    found = describe(path)
    shown = {name: value for name, value in found.items() if name != "summary"}
    lines = [f"{name:<12}{', '.join(map(str, v)) if isinstance(v, list) else v}" for name, v in shown.items()]
    terminal.result(found, "\n".join([*lines, *(["", found["summary"]] if "summary" in found else [])]))
