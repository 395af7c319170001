"""Options that are `"auto"`: what they stand for, given the data, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import DataError
from ..numerics.process import BLAS
from ..specs import checks
from ..training.specs import TrainingSpec
from ..wishart.specs import Wishart
from . import choices, choosing
from .data.calendar import calendar_option, with_harmonics
from .data.frames import Panel, check_targets
from .data.intake import training_data
from .data.times import TimeAxis
from .data.units import Tail, Units
from .linear_prior import DEFAULT, Prior
from .specs import DynamicsSpec, Lags, Latent, chosen_lags
from .windows import Ticks

AUTO = "auto"
# What the options stand for where nothing is chosen.
PLAIN: dict[str, Any] = {
    "lags": 1,
    "calendar": False,
    "transform": None,
    "rank": 10,
    "white_noise": "constant",
    "n_inducing": 100,
    "max_iter": None,
}
# Where rows are held back: a few columns of J, and iterations that the held-back rows decide about.
RANK, DRAWS = 5, 8
# With more rows there is more for a GP drift to learn; with many series each iteration is slow, and rows are few beside
# them (docs/decisions.md).
FEWEST_ITERATIONS, MOST_ITERATIONS, ROWS_PER_ITERATION, MOST_SERIES = 200, 800, 10, 50
FEWEST_INDUCING, MOST_INDUCING, ROWS_PER_INDUCING = 10, 100, 20
# Below this number of rows white noise is constant.
ROWS_FOR_STATE = 1000
# Rows of a series that candidates are compared on.
MOST_ROWS = 20_000


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options of a fit, none of them "auto". `periods` are those of a calendar that was chosen (None: `calendar`
    says which), `prior` is that of the linear weights, `season` the number of rows in the shortest
    period of the calendar, `reasons` say why a value was chosen, and `way` by what ("evidence", "rolled forecasts").
    `failure` says why nothing could be chosen, though the rows are enough and regular.
    """

    lags: Lags
    calendar: bool | str
    transform: Any
    rank: int | None
    white_noise: str
    n_inducing: int
    max_iter: Any
    periods: tuple[str, ...] | None = None
    prior: Prior = DEFAULT
    season: int | None = None
    reasons: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_validated: bool = False
    way: str = ""
    failure: str = ""


def plain_settings(options: Mapping[str, Any], why: str | None = None) -> Settings:
    """The options as given, "auto" being the values of `PLAIN`."""
    values = {name: PLAIN[name] if is_auto(options[name]) else options[name] for name in PLAIN}
    reasons = {} if why is None else {name: why for name in PLAIN if is_auto(options[name])}
    return Settings(
        checks.lags(values["lags"]),
        calendar_option(values["calendar"], options["drift"]),
        values["transform"],
        checks.rank_or_none(values["rank"]),
        values["white_noise"],
        checks.positive_int("n_inducing", values["n_inducing"]),
        values["max_iter"],
        reasons=reasons,
    )


def why_plain(options: Mapping[str, Any], panel: Panel) -> str | None:
    """Why nothing is held back or chosen; None where it is."""
    if options["latent_dim"] is not None or options["objective"] != "transition":
        return "latent states and rollouts take plain values"
    if options["step"] != 1.0:
        return f"step={options['step']!r}: rows are several steps apart"
    n_rows = sum(len(table.index) for table in panel.tables.values())
    if n_rows < choosing.LEAST_ROWS and not _has_linear_alternative(options["drift"], options["diffusion"]):
        return f"{n_rows} rows are too few to choose by"
    axis = TimeAxis.of([table.index for table in panel.tables.values()], options["freq"])
    return None if axis.is_regular else "stamps are irregular"


def _has_linear_alternative(drift: Any, diffusion: Any) -> bool:
    """Whether a linear model may be kept instead of the one that is asked for: one with a linear part of the drift, and
    Wishart noise, by name or as a spec.
    """
    return "linear" in str(drift) and (diffusion == "wishart" or isinstance(diffusion, Wishart))


def settings_of(options: Mapping[str, Any], panel: Panel, X: Panel | None, fraction: float) -> tuple[Settings, ...]:
    """The options of a fit to these data; of short series there may be two, of which held-back rows keep one."""
    plain = plain_settings(options)  # checks what was given
    check_targets(panel, 1)
    why = why_plain(options, panel)
    if why is not None:
        return (plain_settings(options, why),)
    try:
        judge = judge_of(options, panel, X, fraction)
    except DataError as error:
        why = f"nothing could be held back: {str(error).split(';')[0]}"
        return (dataclasses.replace(plain_settings(options, why), failure=str(error)),)
    given = choices.Given(
        None if is_auto(options["lags"]) else chosen_lags(plain.lags),
        None if is_auto(options["calendar"]) else given_periods(judge, plain.calendar),
        None if is_auto(options["transform"]) else named_transforms(plain.transform, panel),
        "linear" in str(options["drift"]),
    )
    # Many small systems: threads of BLAS wait for each other longer than they compute. Densities far out underflow.
    with BLAS.held(), np.errstate(under="ignore"):
        found = choices.choose(judge, given)
    return tuple(_settings(options, plain, judge, given, choice) for choice in found)


def _iterations(n_rows: int, dim: int) -> int:
    if dim > MOST_SERIES:
        return FEWEST_ITERATIONS
    return int(np.clip(n_rows // ROWS_PER_ITERATION, FEWEST_ITERATIONS, MOST_ITERATIONS))


def _settings(
    options: Mapping[str, Any], plain: Settings, judge: choosing.Judge, given: choices.Given, choice: choices.Choice
) -> Settings:
    """A choice, what was given, and sizes by the numbers of rows and series."""
    config, n_rows, dim = choice.config, judge.n_rows, judge.dim
    transform = plain.transform
    if given.transform is None:
        transform = dict(zip(judge.columns, config.transform, strict=True)) if config.transform else None
    sizes: dict[str, tuple[Any, str]] = {
        "rank": (min(RANK, dim), f"the number of series, at most {RANK}"),
        "white_noise": (
            "state" if n_rows >= ROWS_FOR_STATE else "constant",
            f"'state' from {ROWS_FOR_STATE} rows on",
        ),
        "n_inducing": (
            int(np.clip(n_rows // ROWS_PER_INDUCING, FEWEST_INDUCING, MOST_INDUCING)),
            f"one per {ROWS_PER_INDUCING} rows, at most {MOST_INDUCING}",
        ),
        "max_iter": (
            _iterations(n_rows, dim),
            f"one per {ROWS_PER_ITERATION} rows, from {FEWEST_ITERATIONS} to {MOST_ITERATIONS} ({FEWEST_ITERATIONS} "
            f"above {MOST_SERIES} series)",
        ),
    }
    chosen = {name: value if is_auto(options[name]) else getattr(plain, name) for name, (value, _) in sizes.items()}
    said = {name: why for name, (_, why) in sizes.items() if is_auto(options[name])}
    return Settings(
        plain.lags if given.lags is not None else checks.lags(config.lags),
        plain.calendar,
        transform,
        **chosen,
        periods=config.periods if given.periods is None else None,
        prior=config.prior,
        season=judge.season,
        reasons={**choice.reasons, **said},
        is_validated=True,
        way=choice.way,
    )


def judge_of(options: Mapping[str, Any], panel: Panel, X: Panel | None, fraction: float) -> choosing.Judge:
    """The series in the units of y on their grid, cut at long gaps."""
    # With a lag above 1 rows that never came are rows of the grid.
    spec = DynamicsSpec(lags=2, max_gap=float(checks.positive_int("max_gap", options["max_gap"])))
    has_effects = checks.flag("panel_effects", options["panel_effects"])
    units, tails = training_data(panel, X, spec, None, False, options["freq"], is_scaled=False)
    pieces = []
    for key, tail in tails.items():
        tail = units.rows(tail, slice(-MOST_ROWS, None))
        own = key if has_effects and len(tails) > 1 else None
        pieces += [_piece(own, tail, ticks) for ticks in units.ticks(tail)]
    if not any(len(p.values) > 1 for p in pieces):
        raise DataError("no two rows follow each other without a gap; expected stretches of several rows.")
    return choosing.Judge(pieces, panel.columns, fraction)


def _piece(key: Any, tail: Tail, ticks: Ticks) -> choosing.Piece:
    return choosing.Piece(ticks.y, tail.index[ticks.row], ticks.u, int(ticks.row[0]), len(tail.index), key)


def given_periods(judge: choosing.Judge, calendar: bool | str) -> tuple[str, ...]:
    """The periods of a calendar that was given, as far as linear models know them: without products of harmonics."""
    if not calendar:
        return ()
    return choosing.eligible_periods([piece.index for piece in judge.pieces])


def named_transforms(transform: Any, panel: Panel) -> tuple[Any, ...]:
    """One for each column."""
    if isinstance(transform, dict):
        return tuple(transform.get(name) for name in panel.columns)
    return (transform,) * len(panel.columns)


def with_periods(units: Units, tails: Mapping[Any, Tail], periods: tuple[str, ...]) -> tuple[Units, dict[Any, Tail]]:
    """Units and series with the harmonics of these periods, in place of a calendar that was not asked for."""
    found = {
        key: dataclasses.replace(tail, covariates=with_harmonics(tail.covariates, tail.index, periods))
        for key, tail in tails.items()
    }
    return dataclasses.replace(units, periods=periods), found


def validates(spec: DynamicsSpec, settings: Settings) -> bool:
    """Whether rolled validation decides what is kept."""
    return settings.is_validated and _has_linear_alternative(spec.drift, spec.diffusion)


def quick(training: TrainingSpec, fraction: float, has_draws: bool) -> TrainingSpec:
    """A training spec for rows that are held back: fewer draws of J unless they were asked for."""
    draws = training.n_train_samples if has_draws else min(DRAWS, training.n_train_samples)
    return dataclasses.replace(training, validation_fraction=fraction, n_train_samples=draws)


def latent_of(latent_dim: Any) -> Latent | None:
    if latent_dim is None or isinstance(latent_dim, Latent):
        return latent_dim
    return Latent(checks.positive_int("latent_dim", latent_dim))
